"""A gateway is killed before and after each of its saves: what was acknowledged as queued runs once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from retold.domain import events as e
from retold.infrastructure.home import Home
from retold.infrastructure.verify import verify
from retold.tests.crash.gateway_runner import ASKED, SESSION

TEXTS = sorted(text for text, _ in ASKED)


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "retold.tests.crash.gateway_runner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        process.wait(timeout=30)


def play(
    server: subprocess.Popen[str], home: Path, kill_at: int = -1, moment: str = "never"
) -> tuple[int, int]:
    """One run of the gateway: how it ended, and how many saves it made if it was not killed."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{home} {kill_at} {moment}\n")
    server.stdin.flush()
    _, status, saves = server.stdout.readline().split()
    return int(status), int(saves)


def ran_once(home: Path) -> None:
    """Every text was said once, answered once, and in one turn that was done; nothing is left over."""
    with Home(home) as opened:
        events = opened.log.read()
        opened.catch_up(wait_ms=10_000)
    mine = [event.payload for event in events if event.stream == f"session:{SESSION}"]
    texts = {each.turn: each.text for each in mine if isinstance(each, e.TurnQueued)}
    started = Counter(each.turn for each in mine if isinstance(each, e.TurnStarted))
    finished = [each for each in mine if isinstance(each, e.TurnFinished)]

    done = [each.turn for each in finished if each.outcome == "done" and each.turn in texts]
    assert sorted(texts[turn] for turn in done) == TEXTS
    assert set(started.values()) == {1}
    assert Counter(each.turn for each in finished) == started
    assert {each.outcome for each in finished} <= {"done", "lost"}
    said = [each.content for each in mine if isinstance(each, e.MessageAppended) and each.role == "user"]
    assert sorted(str(each) for each in said) == TEXTS
    found = verify(home)
    assert (found.log.problems, found.problems) == ([], [])


@pytest.mark.parametrize("moment", ["before", "after"])
def test_i1_killed_at_any_save_each_acknowledged_turn_runs_once(
    server: subprocess.Popen[str], tmp_path: Path, moment: str
) -> None:
    status, saves = play(server, tmp_path / "whole")
    assert status == 0
    ran_once(tmp_path / "whole")
    for number in range(saves):
        home = tmp_path / f"killed-{number}"
        assert play(server, home, number, moment)[0] == signal.SIGKILL
        assert play(server, home)[0] == 0
        ran_once(home)


def test_i1_killed_again_and_again_each_acknowledged_turn_runs_once(
    server: subprocess.Popen[str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("gateway: {restart_loop_guard: {max_restarts: 0}}\n")
    kills = 0
    for number in (6, 5, 6, 5, 6, 5, 6, 5):  # a resumed turn is over by then: else the third one suspends
        status, _ = play(server, home, number, ("before", "after")[kills % 2])
        kills += status == signal.SIGKILL
    assert play(server, home)[0] == 0

    assert kills >= 4
    ran_once(home)
