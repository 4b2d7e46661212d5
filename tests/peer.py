"""The peer that Retold is held against, hermes-agent in an environment of its own: `make check` makes it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

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
