"""`retold import hermes --follow` beside the real Hermes store: what happens there is told as it happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold.tests.infrastructure.importing import ask
from retold.tests.peer import PeerStore

if TYPE_CHECKING:
    from retold.tests.conftest import Run

pytestmark = pytest.mark.slow
KEY = "agent:main:telegram:dm:4242"
FIRST, SECOND = "20261101_090000_aaaaaaaa", "20261101_100000_bbbbbbbb"
WITHIN_S = 2.0


class Followed:
    """The command in a process of its own."""

    def __init__(self, hermes_home: Path, home: Path, *more: str) -> None:
        argv = ["import", "hermes", hermes_home, "--home", home, "--follow", *more]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "retold", *map(str, argv)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, how: signal.Signals) -> tuple[int, str, str]:
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def followed(hermes_home: Path, home: Path) -> Iterator[Followed]:
    it = Followed(hermes_home, home, "--json")
    try:
        assert json.loads(it.line())["taken"]["messages"] == 914
        yield it
    finally:
        it.process.kill()
        it.process.communicate()


def entry(session_id: str) -> str:
    at = "2026-11-01T09:00:00"
    told = {"session_key": KEY, "session_id": session_id, "created_at": at, "updated_at": at}
    return json.dumps(told | {"platform": "telegram", "chat_type": "dm"})


def begun(session_id: str) -> list[Any]:
    identity = {"user_id": "4242", "session_key": KEY, "chat_id": "4242", "chat_type": "dm"}
    return ["create_session", session_id, "telegram", {"**": identity}]


def test_what_hermes_writes_is_told_within_two_seconds_and_why_tells_the_story(
    followed: Followed, hermes_home: Path, run: Run
) -> None:
    ((scope,),) = ask(hermes_home, "SELECT DISTINCT scope FROM gateway_routing")
    into = {"**": {"scope": scope}}
    at: dict[str, int] = {}
    with PeerStore(hermes_home) as store:
        for what, taken, *calls in (
            ("begins", "sessions", begun(FIRST)),
            ("is led", "routes", ["save_gateway_routing_entry", KEY, entry(FIRST), into]),
            ("is said", "messages", ["append_message", FIRST, "user", "does the hull leak?"]),
            ("is answered", "messages", ["append_message", FIRST, "assistant", "a little"]),
            ("is reset", "ends", ["end_session", FIRST, "session_reset"]),
            ("begins anew", "sessions", begun(SECOND)),
            ("is led on", "routes", ["save_gateway_routing_entry", KEY, entry(SECOND), into]),
            ("is said again", "messages", ["append_message", SECOND, "user", "and now?"]),
            (
                "loses its key",
                "identities lost",
                ["sql", f"UPDATE sessions SET session_key = NULL WHERE id = '{SECOND}'"],
            ),
            ("is led back", "routes", ["save_gateway_routing_entry", KEY, entry(FIRST), into]),
        ):
            store.call(*calls)
            wrote_s = time.monotonic()
            told = json.loads(followed.line())
            while taken not in told["taken"] and time.monotonic() - wrote_s < WITHIN_S:
                told = json.loads(followed.line())  # one that was still on its way

            assert taken in told["taken"], (what, told)
            assert time.monotonic() - wrote_s < WITHIN_S, what
            at[what] = told["position"]
    code, out, _ = followed.end(signal.SIGTERM)
    ended = json.loads(out.splitlines()[-1])["followed"]

    assert code == 0
    assert ended["taken"]["identities lost"] == 1
    assert ended["imports"] > len(at)
    assert FIRST in run("why", KEY, "--at", f"#{at['is answered']}").stdout
    story = run("why", KEY)
    assert "JUMPED BACK" in story.stdout
    assert story.exit_code == 1
    lost = run("log", "--type", "identity_lost", "--json").json
    assert lost["stream"] == f"session:{SECOND}"
    then = run("why", KEY, "--at", f"#{at['is said again']}")
    assert "JUMPED BACK" not in then.stdout
    assert SECOND in then.stdout
    assert run("import", "hermes", hermes_home, "--json").json["taken"] == {}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_it_is_told_to_and_says_what_came_of_it(
    hermes_home: Path, home: Path, how: signal.Signals
) -> None:
    it = Followed(hermes_home, home)
    first = it.line()
    while "recorded as" not in first:
        first = it.line()
    code, out, err = it.end(how)

    assert code == 0
    assert out.startswith(f"followed {hermes_home} for ")
    assert "57 sessions, 914 messages" in out
    assert "end it with Ctrl-C" in err


def test_a_second_one_says_that_the_first_is_at_it(followed: Followed, hermes_home: Path, run: Run) -> None:
    ran = run("import", "hermes", hermes_home, "--follow")
    code, _, _ = followed.end(signal.SIGINT)

    assert ran.exit_code == 4
    assert f"is followed already, by process {followed.process.pid}" in " ".join(ran.stderr.split())
    assert code == 0


def test_it_goes_on_where_it_was(hermes_home: Path, home: Path, run: Run) -> None:
    run("import", "hermes", hermes_home)
    with PeerStore(hermes_home) as store:
        store.call(["append_message", "20260508_141930_46dc1a26", "user", "while nobody looked"])
        it = Followed(hermes_home, home, "--json")
        told = json.loads(it.line())
        code, _, _ = it.end(signal.SIGINT)

    assert told["taken"] == {"messages": 1}
    assert code == 0
