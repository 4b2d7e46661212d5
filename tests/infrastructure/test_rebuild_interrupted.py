"""A rebuild that is stopped, killed or met by a stop of the machine: the old stays, and the next goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retold.infrastructure.home import Home
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.state_file import BESIDE
from retold.infrastructure.verify import verify
from retold.tests.infrastructure import damage
from retold.tests.infrastructure.filled import (
    content,
    execute,
    fill,
    state_file,
    told_from_nothing,
)
from retold.tests.infrastructure.rebuilding import NAMES, interrupted, tell_again


def test_d15_an_interrupted_rebuild_goes_on_where_it_was(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(home, 1_000)
    interrupted(home, monkeypatch)
    told = tell_again(home)

    assert {each.resumed_at for each in told.values()} == {400}
    assert all(each.equal for each in told.values())


HALF_WRITTEN = """
import apsw, os, sys
db = apsw.Connection(sys.argv[1])
db.execute("BEGIN IMMEDIATE; DELETE FROM new_messages WHERE id > 200; UPDATE checkpoints SET position = 999")
db.cache_flush()
os._exit(0)
"""


def test_what_a_killed_rebuild_had_half_written_is_taken_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, 1_000)
    interrupted(home, monkeypatch)
    beside = (home / BESIDE).resolve()
    subprocess.run([sys.executable, "-c", HALF_WRITTEN, str(beside)], check=True)
    assert beside.with_name(f"{beside.name}-journal").stat().st_size > 0
    told = tell_again(home)

    assert {each.resumed_at for each in told.values()} == {400}
    assert all(each.equal for each in told.values())
    assert list(home.glob("*-journal")) == []


def test_an_interrupted_rebuild_of_a_log_that_was_restored_since_begins_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, 1_000)
    interrupted(home, monkeypatch)
    execute((home / BESIDE).resolve(), "UPDATE checkpoints SET chain = randomblob(32)")
    told = tell_again(home)

    assert {each.resumed_at for each in told.values()} == {0}
    assert all(each.equal for each in told.values())


def test_what_was_being_filled_when_the_machine_stopped_is_begun_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, 1_000)
    interrupted(home, monkeypatch)
    monkeypatch.setattr("retold.infrastructure.state_file.since_start", lambda: 1)
    told = tell_again(home)

    assert {each.resumed_at for each in told.values()} == {0}
    assert all(each.equal for each in told.values())


@pytest.mark.parametrize("running", [7, None])
def test_the_file_that_takes_the_place_is_synced_before_and_says_nothing_of_the_start(
    home: Path, monkeypatch: pytest.MonkeyPatch, running: int | None
) -> None:
    fill(home, 100)
    synced: list[int] = []
    fsync = os.fsync

    def seen(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr("retold.infrastructure.state_file.since_start", lambda: running)
    monkeypatch.setattr(os, "fsync", seen)
    tell_again(home)

    assert state_file(home).stat().st_ino in synced
    assert execute(state_file(home), "PRAGMA user_version") == [(0,)]


REBUILDER = """
import os, signal, sys
from pathlib import Path
import retold.infrastructure.new_tables as tables
import retold.infrastructure.rebuild as r
from retold.infrastructure.home import Home
tables.BATCH = 100
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        with Home(Path(sys.argv[1])) as home:
            os.write(1, b"begun\\n")
            told = r.rebuild(home.projector, list(home.projector.projections))
            os.write(1, b"done\\n")
            signal.pause()
    os.write(1, f"{pid}\\n".encode())
    os.waitpid(pid, 0)
    os.write(1, b"over\\n")
"""


def left_beside(home: Path) -> bool:
    """Whether there is something to go on from."""
    file = (home / BESIDE).resolve()
    if not file.exists():
        return False
    return any(position for (position,) in execute(file, "SELECT position FROM checkpoints"))


def test_k9_killed_at_any_point_the_old_stays_and_the_next_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, 2_000)
    monkeypatch.setattr("retold.infrastructure.new_tables.BATCH", 100)  # as those that are killed
    with Home(home) as opened:
        opened.projector.settle()
        expected = told_from_nothing(opened.log)
        begun = time.perf_counter()
        rebuild(opened.projector, NAMES)
        takes_s = time.perf_counter() - begun
    rng = random.Random(9)
    resumed = killed = 0
    with subprocess.Popen(
        [sys.executable, "-c", REBUILDER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for _ in range(25):
            server.stdin.write("again\n")
            server.stdin.flush()
            pid, _ = sorted(server.stdout.readline().strip() for _ in ("its pid", "begun"))
            until = time.perf_counter() + rng.uniform(0, takes_s)
            while time.perf_counter() < until:
                pass
            os.kill(int(pid), signal.SIGKILL)
            said = server.stdout.readline().strip()
            while said != "over":
                killed -= said == "done"
                said = server.stdout.readline().strip()
            killed += 1
            with Home(home, read_only=True) as opened:
                lag = opened.catch_up()
                resumed += left_beside(home)

                assert (lag.events, lag.told_again) == (0, {}), "the old stays"
                assert content(opened.projector) == expected
        server.stdin.close()
    told = tell_again(home)

    assert killed >= 15, "rebuilds that were killed before they were done"
    assert resumed >= 5, "that left something to go on from"
    assert all(each.equal for each in told.values())
    assert verify(home).exit_code == 0


def test_what_was_begun_beside_and_cannot_be_read_is_begun_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, 1_000)
    interrupted(home, monkeypatch)
    beside = (home / BESIDE).resolve()
    damage.overwrite(beside, damage.tree(beside, "new_messages").leaves[-1])
    told = tell_again(home)

    assert all(each.equal for each in told.values())
    assert verify(home).exit_code == 0
