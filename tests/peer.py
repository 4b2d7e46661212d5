"""The peer that Retold is held against, hermes-agent in an environment of its own: `make check` makes it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from retold.tests.conftest import ROOT

_ROUTES = """
import json, os, sys
from pathlib import Path
from gateway.config import GatewayConfig, Platform
from gateway.session import SessionSource, SessionStore

store = SessionStore(Path(os.environ["HERMES_HOME"]) / "sessions", GatewayConfig())
found = {}
for said in json.loads(sys.argv[1]):
    entry = store.get_or_create_session(SessionSource(**said | {"platform": Platform(said["platform"])}))
    found[entry.session_key] = entry.session_id
print(json.dumps(found))
"""


def peer_python() -> Path:
    """The Python of the peer's environment (RETOLD_PEER, else .peer). A test that needs it fails without."""
    path = ROOT / (os.environ.get("RETOLD_PEER") or ".peer/bin/python")
    assert path.is_file(), f"{path} is not there: `make .peer/bin/python` makes it"
    return path


def routed_by_peer(hermes_home: Path, *sources: dict[str, str]) -> dict[str, str]:
    """Which session the peer's gateway takes up for a message of each source, by routing key."""
    done = subprocess.run(
        [str(peer_python()), "-c", _ROUTES, json.dumps(sources)],
        env=os.environ | {"HERMES_HOME": str(hermes_home), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Any = json.loads(done.stdout.splitlines()[-1])
    return {str(key): str(session_id) for key, session_id in found.items()}


_SEARCHED = """
import json, os, sys
from pathlib import Path
from hermes_state import SessionDB
from tools.session_search_tool import session_search

db = SessionDB(db_path=Path(os.environ["HERMES_HOME"]) / "state.db")
print(json.dumps([json.loads(session_search(db=db, **asked)) for asked in json.loads(sys.argv[1])]))
"""


def searched_by_peer(hermes_home: Path, *asked: dict[str, Any]) -> list[dict[str, Any]]:
    """What the peer's search tool answers to each set of arguments. It may write: give it a copy."""
    done = subprocess.run(
        [str(peer_python()), "-c", _SEARCHED, json.dumps(asked)],
        env=os.environ | {"HERMES_HOME": str(hermes_home), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


_STORE = """
import json, os, sys
from pathlib import Path
from hermes_state import SessionDB

db = SessionDB(db_path=Path(os.environ["HERMES_HOME"]) / "state.db")
print(json.dumps(None), flush=True)
for line in sys.stdin:
    for name, *given in json.loads(line):
        if name == "sql":  # what an accident does
            answer = db._execute_write(lambda connection: connection.execute(*given).rowcount)
        else:
            named = given.pop() if given and isinstance(given[-1], dict) and "**" in given[-1] else {}
            answer = getattr(db, name)(*given, **named.get("**", {}))
    print(json.dumps(answer, default=str), flush=True)
db.close()
"""


class PeerStore:
    """The peer's own store, open on a home in another process: what it is told to call, it calls."""

    def __init__(self, hermes_home: Path) -> None:
        self._process = subprocess.Popen(
            [str(peer_python()), "-c", _STORE],
            env=os.environ | {"HERMES_HOME": str(hermes_home), "PYTHONPATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def call(self, *calls: list[Any]) -> Any:
        """Call methods by name with what follows it, last {"**": what is given by name}; the last answer."""
        stdin = self._process.stdin
        assert stdin is not None
        print(json.dumps(calls), file=stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        stdout: IO[str] | None = self._process.stdout
        assert stdout is not None
        line = stdout.readline()
        assert line, "the peer's store has ended"
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=60)


def hermes(hermes_home: Path, *argv: str) -> str:
    """What the peer's program prints. It may write: give it a copy."""
    done = subprocess.run(
        [str(peer_python().with_name("hermes")), *argv],
        env=os.environ | {"HERMES_HOME": str(hermes_home), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_INSIGHTS = """
import json, os, sys
from pathlib import Path
from agent import insights
from hermes_state import SessionDB

insights._estimate_cost = lambda *given, **more: (0.0, "unknown")  # it would ask the network for prices
insights.has_known_pricing = lambda *given, **more: False
db = SessionDB(db_path=Path(os.environ["HERMES_HOME"]) / "state.db")
print(json.dumps(insights.InsightsEngine(db).generate(days=int(sys.argv[1])), default=str))
"""


def insights_of_peer(hermes_home: Path, days: int) -> dict[str, Any]:
    """What the peer's `insights` counts, but for costs. It may write: give it a copy."""
    done = subprocess.run(
        [str(peer_python()), "-c", _INSIGHTS, str(days)],
        env=os.environ | {"HERMES_HOME": str(hermes_home), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def command_of_peer(hermes_home: Path, *argv: str) -> list[str]:
    """The lines that a command of the peer prints."""
    done = subprocess.run(
        [str(peer_python().with_name("hermes")), *argv],
        env=os.environ | {"HERMES_HOME": str(hermes_home), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
