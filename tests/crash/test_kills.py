"""kill -9 of a writing process: what was acknowledged is there, in a log without gaps."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import pytest

from retold.domain.events import MessageAppended, SessionCreated
from retold.infrastructure.home import Home
from retold.infrastructure.verify import verify
from retold.tests.crash.writer import text_of

KILLS_A_HOME = 12
LONGEST_S = 0.004
"""More than an append takes: a kill this long after one began falls before, into or after its commit."""


class Killed(msgspec.Struct):
    """What one writer had said when it was killed."""

    acknowledged: dict[int, list[int]] = {}
    """number of the append -> its positions"""
    in_flight: tuple[int, int] | None = None
    """number and messages of an append that had begun and was not acknowledged"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "retold.tests.crash.writer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        process.wait(timeout=30)


def kill_one(server: subprocess.Popen[str], home: Path, run: str, rng: random.Random) -> Killed:
    """Start a writer, let it acknowledge some appends, and kill it at a random moment of a later one."""
    said, asked = server.stdout, server.stdin
    assert said is not None
    assert asked is not None
    asked.write(f"{home} {run}\n")
    asked.flush()
    killed = Killed()
    pid = int(said.readline().split()[1])
    if rng.random() < 0.1:  # while the home is being opened or made
        _spin(rng.uniform(0, 0.03))
    else:
        _listen(said, killed, until=rng.randrange(1, 30))
        _spin(rng.uniform(0, LONGEST_S))
    os.kill(pid, signal.SIGKILL)
    over = _listen(said, killed)

    assert over == f"over {int(signal.SIGKILL)}"
    return killed


def _listen(said: IO[str], killed: Killed, until: int | None = None) -> str:
    """Take down what the writer says, up to the beginning of its `until`-th append or its end."""
    for line in said:
        word, *rest = line.split()
        if word == "over":
            return line.strip()
        if word == "begin":
            killed.in_flight = int(rest[0]), int(rest[1])
            if until is not None and int(rest[0]) >= until:
                return ""
        elif word == "ack":
            killed.acknowledged[int(rest[0])] = [int(each) for each in rest[1].split(",")]
            killed.in_flight = None
    raise AssertionError("the server of writers is gone")


def _spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def check(home: Path, run: str, killed: Killed, before: int) -> int:
    """Hold a home against what one killed writer was told; returns the log's last position."""
    with Home(home) as opened:
        log = opened.log
        head = log.head().position
        expected = before
        for number, positions in killed.acknowledged.items():
            assert positions == list(range(positions[0], positions[-1] + 1))
            assert positions[0] == expected + 1, "nobody else writes: what was acknowledged has no gaps"
            expected = positions[-1]
            for part, event in enumerate(log.read(positions[0] - 1, upto=positions[-1])):
                if isinstance(event.payload, MessageAppended):
                    assert event.payload.content == text_of(run, number, part)
        extra = log.read(expected)
        assert len({event.save for event in extra}) <= 1, "at most the one save that was in flight"
        if extra:
            assert killed.in_flight is not None
            created = isinstance(extra[0].payload, SessionCreated)
            assert len(extra) == (3 if created else killed.in_flight[1]), "a save is whole or not there"
        opened.catch_up(wait_ms=10_000)
    found = verify(home)

    assert (found.log.problems, found.problems, found.lag) == ([], [], 0)
    assert (found.log.events, found.position) == (head, head)
    return head


def rounds(server: subprocess.Popen[str], folder: Path, kills: int, seed: int) -> tuple[int, int, int]:
    """Kill so many writers; how many appends were in flight, how many of those stayed, how many acks."""
    rng = random.Random(seed)
    in_flight = stayed = acknowledged = head = 0
    for number in range(kills):
        home = folder / f"home-{number // KILLS_A_HOME}"
        before = head if number % KILLS_A_HOME else 0
        run = f"r{number}"
        killed = kill_one(server, home, run, rng)
        if killed.in_flight is None and not killed.acknowledged and not (home / "events.db").exists():
            head = 0
            continue
        head = check(home, run, killed, before)
        acknowledged += sum(len(each) for each in killed.acknowledged.values())
        told = max((each[-1] for each in killed.acknowledged.values()), default=before)
        in_flight += killed.in_flight is not None
        stayed += head > told
    return in_flight, stayed, acknowledged


def test_b6_what_was_acknowledged_outlives_25_kills(server: subprocess.Popen[str], tmp_path: Path) -> None:
    in_flight, _, acknowledged = rounds(server, tmp_path, kills=25, seed=1)

    assert in_flight >= 8, "kills that fell into an append"
    assert acknowledged > 100


@pytest.mark.soak
def test_b6_what_was_acknowledged_outlives_300_kills(
    server: subprocess.Popen[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_flight, stayed, acknowledged = rounds(server, tmp_path, kills=300, seed=2)
    with capsys.disabled():
        print(
            f"\n300 kills, {in_flight} in an append ({stayed} of them committed); {acknowledged} events kept"
        )

    assert in_flight >= 100
    assert 0 < stayed < in_flight
