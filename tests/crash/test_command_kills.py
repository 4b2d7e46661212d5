"""kill -9 at random moments of every kind of command: all of it happened, or none."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain.events import Recorded
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.verify import verify
from retold.tests.infrastructure.filled import content, told_from_nothing
from retold.tests.infrastructure.ready import COMMANDS, START_US, given, prepare
from retold.tests.proof.writers import DIED, Clock, Remote, Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    serving = Server()
    yield serving
    serving.close()


def events_of(home: Path, after: int) -> list[Recorded]:
    with SessionEngine(home) as engine:
        return engine.event_log.read(after, limit=10_000)


def spoken(events: list[Recorded], before: int) -> list[tuple[Any, ...]]:
    """What events say, but for what is drawn anew each time: the names of sessions, salted hashes."""
    return [(each.position - before, each.save - before, each.topic) for each in events]


class Killing:
    """Kills writers in the middle of commands, on copies of one home."""

    def __init__(self, server: Server, folder: Path, seed: int) -> None:
        self.server = server
        self.folder = folder
        self.rng = random.Random(seed)
        self.clock = Clock(START_US + 1_000_000)
        self.prepared = folder / "prepared"
        self.head = prepare(self.prepared)
        self.whole: dict[str, list[tuple[Any, ...]]] = {}
        self.took_s: dict[str, float] = {}
        self.outcomes: Counter[str] = Counter()

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """What the command writes when nobody kills it."""
        if name not in self.whole:
            home = self.folder / "whole"
            shutil.copytree(self.prepared, home, symlinks=True)
            writer = Remote(self.server, home, self.clock)
            begun = time.perf_counter()
            heard = writer.tell(*given(name, self.head, self.clock.now_us))
            self.took_s[name] = time.perf_counter() - begun
            writer.close()
            assert "refused" not in heard, (name, heard)
            self.whole[name] = spoken(events_of(home, self.head), self.head)
            assert self.whole[name], name
            shutil.rmtree(home)
        return self.whole[name]

    def kill(self, name: str) -> None:
        whole = self.of(name)
        home = self.folder / "killed"
        shutil.copytree(self.prepared, home, symlinks=True)
        writer = Remote(self.server, home, self.clock)
        writer.begin(*given(name, self.head, self.clock.now_us))
        # Asleep, not in a loop: on a busy machine that would take the time of the writer.
        time.sleep(self.rng.uniform(0, self.took_s[name]))
        os.kill(writer.pid, signal.SIGKILL)
        heard = writer.hear()
        if heard != DIED:  # answered, and killed then
            assert writer.hear() == DIED
        writer.close()
        self.check(home, name, whole, answered=heard != DIED)
        shutil.rmtree(home)

    def check(self, home: Path, name: str, whole: list[tuple[Any, ...]], *, answered: bool) -> None:
        found = spoken(events_of(home, self.head), self.head)
        assert found == whole[: len(found)], (name, found, whole)
        if len(found) < len(whole):
            assert not answered, (name, "an answer that is not true")
            assert whole[len(found)][1] != (found[-1][1] if found else 0), (
                name,
                "a save is whole or not there",
            )
        self.outcomes[
            "answered" if answered else "all" if found == whole else "some saves" if found else "none"
        ] += 1
        with SessionEngine(home) as engine:
            engine.unarchive_session("there")  # whoever writes next finds a sound home, and goes on
            engine.archive_session("there")
            engine.projector.catch_up()
            assert content(engine.projector) == told_from_nothing(engine.event_log), name
        verified = verify(home)
        assert (verified.exit_code, verified.log.problems, verified.problems) == (0, [], []), name


@pytest.fixture
def killing(server: Server, tmp_path: Path) -> Killing:
    return Killing(server, tmp_path, seed=1)


def test_one_command_of_each_kind_is_all_or_nothing_when_it_is_killed(killing: Killing) -> None:
    for name in COMMANDS:
        killing.kill(name)

    assert killing.outcomes["none"] > 0
    assert killing.outcomes.total() == len(COMMANDS)


@pytest.mark.soak
def test_commands_are_all_or_nothing_through_200_kills(
    killing: Killing, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(200):
        killing.kill(list(COMMANDS)[number % len(COMMANDS)])
    with capsys.disabled():
        print(f"\n200 kills: {dict(killing.outcomes)}")

    assert killing.outcomes["none"] > 20
    assert killing.outcomes["all"] > 20
