"""Telling again: beside the live rows, compared with them, swapped in one go, killed at any point."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from retold.domain.errors import NoRoom, NoSuchProjection
from retold.infrastructure.home import Home
from retold.infrastructure.log import Log
from retold.infrastructure.past_damage import Stretch, events_past
from retold.infrastructure.projector import PROJECTIONS, Progress
from retold.infrastructure.rebuild import Difference, Rebuilt, difference_of, rebuild
from retold.infrastructure.state_file import BESIDE
from retold.infrastructure.verify import verify
from retold.projections.bulk import BOUND
from retold.projections.transcripts import Transcripts
from retold.tests.infrastructure import damage
from retold.tests.infrastructure.filled import (
    content,
    drafts,
    execute,
    fill,
    state_file,
    told_from_nothing,
)

NAMES = [each.name for each in PROJECTIONS]


def tell_again(home: Path, *names: str) -> dict[str, Rebuilt]:
    with Home(home) as opened:
        told = rebuild(opened.projector, names or NAMES)
    return {each.name: each for each in told}


def tables(home: Path) -> list[str]:
    return [row[0] for row in execute(state_file(home), "SELECT name FROM sqlite_schema ORDER BY name")]


def test_what_is_told_again_is_equal_and_leaves_nothing_beside_it(home: Path) -> None:
    fill(home)
    before = {name.rsplit("_g", 1)[0] for name in tables(home)}
    told = tell_again(home)

    assert all(each.equal for each in told.values())
    assert told["transcripts"].rows["messages"] == 300
    assert {name.rsplit("_g", 1)[0] for name in tables(home)} == before
    assert tell_again(home)["transcripts"].equal, "and once more, though names of indexes were taken"


def test_an_index_that_trails_is_no_difference(home: Path) -> None:
    with Home(home) as opened:
        opened.log.append(drafts(300))
        opened.catch_up()
        opened.log.append(drafts(20, prefix="later"))
        opened.catch_up()

    assert tell_again(home)["transcripts"].equal


def test_lag_is_no_difference(home: Path) -> None:
    fill(home)
    fill(home, 50, prefix="later", fold=False)

    told = tell_again(home)

    assert {name: each.equal for name, each in told.items()} == dict.fromkeys(NAMES, True)
    assert told["transcripts"].events == 364


def test_what_differed_is_counted_and_its_first_key_named(home: Path) -> None:
    fill(home)
    path = state_file(home)
    execute(path, "DELETE FROM messages WHERE id IN (20, 30)")
    execute(path, "UPDATE messages SET content = 'no' WHERE id = 40")
    execute(path, "INSERT INTO edges VALUES ('a', 'b', 'child', 1)")
    told = tell_again(home)

    assert Difference("messages", 0, 2, 1, "20") in told["transcripts"].differences
    assert told["lineage"].differences == (Difference("edges", 1, 0, 0, "a"),)
    assert told["usage"].equal
    assert verify(home).exit_code == 0


def test_one_may_be_told_again_alone(home: Path) -> None:
    fill(home)

    assert list(tell_again(home, "routing")) == ["routing"]


def test_an_unknown_name_is_refused_with_those_there_are(home: Path) -> None:
    fill(home)
    with Home(home) as opened, pytest.raises(NoSuchProjection, match="'rooting'") as refused:
        rebuild(opened.projector, ["rooting"])

    assert "routing" in refused.value.hint


def test_a_damaged_table_is_told_in_a_new_file(home: Path) -> None:
    fill(home)
    path = state_file(home)
    damage.overwrite(path, damage.tree(path, "messages").leaves[2])
    told = tell_again(home, "usage")

    assert set(told) == set(NAMES)
    assert "malformed" in str(told["usage"].file_damaged) or "Tree" in str(told["usage"].file_damaged)
    assert state_file(home) != path
    assert verify(home).exit_code == 0


def test_a_difference_of_rows_under_one_key_is_counted_by_row() -> None:
    before = [("a", 1), ("a", 2), ("b", 1), ("d", 1)]
    now = [("a", 1), ("a", 3), ("c", 1), ("d", 1), ("e", 1)]

    assert difference_of("t", iter(before), iter(now)) == Difference("t", 1, 2, 1, "a")
    assert difference_of("t", iter(now), iter(now)) is None
    assert difference_of("t", iter([]), iter([("a", 1)])) == Difference("t", 0, 1, 0, "a")


@pytest.mark.parametrize("damaged", [None, 7, 2.5, "b", b"b"])
def test_a_key_of_another_kind_is_a_difference_like_any_other(damaged: object) -> None:
    for sound in (3, "a"):
        found = difference_of("t", iter([(damaged, 1)]), iter([(sound, 1)]))

        assert found is not None
        assert (found.only_before, found.only_now, found.changed) == (1, 1, 0)


# --- while others read and write ------------------------------------------------------------------


WRITER = """
import sys
from pathlib import Path
from retold.infrastructure.home import Home
from retold.tests.infrastructure.filled import drafts
with Home(Path(sys.argv[1])) as home:
    print("ready", flush=True)
    turn = 0
    while not Path(sys.argv[2]).exists() or turn < 5:
        turn += 1
        home.log.append(drafts(4, sessions=1, prefix=f"w{turn}-"))
        home.catch_up()
    print(turn, home.log.head().position, flush=True)
"""
READER = """
import sys
from pathlib import Path
from retold.infrastructure.home import Home
last = reads = 0
with Home(Path(sys.argv[1]), read_only=True) as home:
    print("ready", flush=True)
    while not Path(sys.argv[2]).exists() or reads < 5:
        reads += 1
        lag = home.catch_up()
        db = home.state.reader()
        messages, counted = db.execute(
            "SELECT (SELECT count(*) FROM messages), (SELECT sum(message_count) FROM sessions)").fetchone()
        found = db.execute("SELECT count(*) FROM search WHERE search MATCH 'harbour'").fetchone()[0]
        assert messages == counted, (messages, counted)
        assert messages >= last and found > 0, (messages, last, found)
        assert not lag.told_again, lag
        last = messages
    print(reads, last, flush=True)
"""


def start(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def test_live_readers_and_a_live_writer_go_on_during_a_rebuild(home: Path, tmp_path: Path) -> None:
    head = fill(home, 3_000)
    stop = tmp_path / "stop"
    others = [start(WRITER, home, stop), start(READER, home, stop), start(READER, home, stop)]
    try:
        told = [tell_again(home) for _ in range(4)]
    finally:
        stop.touch()
    said = [each.communicate(timeout=60) for each in others]
    turns, last = (int(each) for each in said[0][0].split())

    assert [err for _, err in said] == ["", "", ""]
    assert last == head + 7 * turns, "no append was lost"
    assert turns > 5
    assert all(int(out.split()[0]) > 5 for out, _ in said[1:])
    assert all(each.equal for every in told for each in every.values())
    with Home(home) as opened:
        opened.catch_up()
        assert content(opened.projector) == told_from_nothing(opened.log)
    assert verify(home).exit_code == 0


def test_threads_of_one_process_go_on_too(home: Path) -> None:
    fill(home, 1_000)
    over = threading.Event()

    def read(opened: Home) -> None:
        while not over.is_set():
            opened.state.reader().execute("SELECT count(*) FROM messages").fetchall()

    with Home(home) as opened, ThreadPoolExecutor(3) as pool:
        reading = [pool.submit(read, opened) for _ in range(3)]
        told = rebuild(opened.projector, NAMES)
        over.set()
        for each in reading:
            each.result()

    assert all(each.equal for each in told)


def test_all_are_told_in_a_new_file_and_the_old_one_is_removed(home: Path) -> None:
    fill(home)
    old = state_file(home)
    with Home(home) as reading:
        snapshot = reading.state.reader().execute("SELECT id FROM messages")
        first = next(iter(snapshot))
        tell_again(home)

        assert [first, *snapshot] == reading.state.reader().execute("SELECT id FROM messages").fetchall()
    assert state_file(home) != old
    assert list(home.glob(f"{old.name}*")) == []
    assert not (home / BESIDE).is_symlink()
    assert execute(state_file(home), "PRAGMA journal_mode") == [("wal",)]


def test_who_was_about_to_write_into_the_old_file_writes_into_the_new_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home)
    with Home(home) as late:
        writer = late.state.writer

        def overtaken() -> apsw.Connection:
            found = writer()
            monkeypatch.undo()
            tell_again(home)
            return found

        late.log.append(drafts(3, sessions=1, prefix="later"))
        monkeypatch.setattr(late.state, "writer", overtaken)
        late.catch_up()

        assert content(late.projector) == told_from_nothing(late.log)
    assert verify(home).exit_code == 0


def test_where_one_fails_its_old_rows_stay_and_the_others_are_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home)
    rows = execute(state_file(home), "SELECT * FROM messages")

    def fail(*_: object) -> None:
        raise ValueError("no such fold")

    monkeypatch.setattr(Transcripts, "fold", fail)
    told = tell_again(home)

    assert told["transcripts"].failed == "ValueError: no such fold"
    assert [name for name, each in told.items() if each.equal] == [*NAMES[1:]]
    assert execute(state_file(home), "SELECT * FROM messages") == rows
    assert not (home / BESIDE).is_symlink()
    assert len(list(home.glob("state.*.db"))) == 1


def test_what_was_begun_beside_and_cannot_be_read_is_begun_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, 1_000)
    monkeypatch.setattr("retold.infrastructure.rebuild.BATCH", 50)

    def stop(at: Progress) -> None:
        if at.done >= 400:
            raise KeyboardInterrupt

    with Home(home) as opened, pytest.raises(KeyboardInterrupt):
        rebuild(opened.projector, NAMES, progress=stop)
    beside = (home / BESIDE).resolve()
    damage.overwrite(beside, damage.tree(beside, "new_messages").leaves[-1])
    told = tell_again(home)

    assert all(each.equal for each in told.values())
    assert verify(home).exit_code == 0


# --- the index is written while the next events are read --------------------------------------------


def words(home: Path) -> list[Any]:
    """Every word of the search index with its message and place."""
    with contextlib.closing(apsw.Connection(str(state_file(home)))) as db:
        db.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, search, instance)")
        found: list[Any] = db.execute(
            "SELECT term, doc, offset FROM temp.words ORDER BY doc, offset"
        ).fetchall()
        return found


@pytest.mark.parametrize("bound", [60, 420, BOUND])
def test_the_index_has_the_same_words_however_it_was_cut(
    home: Path, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    fill(home, 200)
    before = words(home)
    monkeypatch.setattr("retold.infrastructure.rebuild.BATCH", 30)
    monkeypatch.setattr("retold.projections.bulk.BOUND", bound)
    tell_again(home)

    assert len(before) > 1_000
    assert words(home) == before


def test_what_stops_the_reading_waits_for_the_index(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(home, 1_000)
    monkeypatch.setattr("retold.infrastructure.rebuild.BATCH", 50)
    stopped = threading.Event()
    in_transaction: list[bool] = []
    settle = Transcripts.settle

    def read(log: Log, after: int, *, limit: int, upto: int) -> Stretch:
        if after >= 400:
            stopped.set()
            raise KeyboardInterrupt
        return events_past(log, after, limit=limit, upto=upto)

    def settle_late(self: Transcripts, db: apsw.Connection) -> None:
        if len(in_transaction) == 7:  # the eighth batch ends at 400
            assert stopped.wait(10)
        settle(self, db)
        in_transaction.append(db.in_transaction)

    with monkeypatch.context() as patch, Home(home) as opened:
        patch.setattr("retold.infrastructure.rebuild.events_past", read)
        patch.setattr(Transcripts, "settle", settle_late)
        with pytest.raises(KeyboardInterrupt):
            rebuild(opened.projector, NAMES)
    told = tell_again(home)

    assert in_transaction == [True] * 8
    assert {each.resumed_at for each in told.values()} == {200}
    assert all(each.equal for each in told.values())


def test_what_stops_the_index_stops_the_rebuild(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(home, 100)

    def no_room(self: Transcripts, db: apsw.Connection) -> None:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patch, Home(home) as opened:
        patch.setattr(Transcripts, "settle", no_room)
        with pytest.raises(NoRoom):
            rebuild(opened.projector, NAMES)
    told = tell_again(home)

    assert all(each.equal for each in told.values())


# --- interrupted ----------------------------------------------------------------------------------


def test_d15_an_interrupted_rebuild_goes_on_where_it_was(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(home, 1_000)
    monkeypatch.setattr("retold.infrastructure.rebuild.BATCH", 50)

    def stop(at: Progress) -> None:
        if at.done >= 400:
            raise KeyboardInterrupt

    with Home(home) as opened, pytest.raises(KeyboardInterrupt):
        rebuild(opened.projector, NAMES, progress=stop)
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
    monkeypatch.setattr("retold.infrastructure.rebuild.BATCH", 50)

    def stop(at: Progress) -> None:
        if at.done >= 400:
            raise KeyboardInterrupt

    with Home(home) as opened, pytest.raises(KeyboardInterrupt):
        rebuild(opened.projector, NAMES, progress=stop)
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
    monkeypatch.setattr("retold.infrastructure.rebuild.BATCH", 50)

    def stop(at: Progress) -> None:
        if at.done >= 400:
            raise KeyboardInterrupt

    with Home(home) as opened, pytest.raises(KeyboardInterrupt):
        rebuild(opened.projector, NAMES, progress=stop)
    execute((home / BESIDE).resolve(), "UPDATE checkpoints SET chain = randomblob(32)")
    told = tell_again(home)

    assert {each.resumed_at for each in told.values()} == {0}
    assert all(each.equal for each in told.values())


def test_what_was_being_filled_when_the_machine_stopped_is_begun_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, 1_000)
    monkeypatch.setattr("retold.infrastructure.rebuild.BATCH", 50)

    def stop(at: Progress) -> None:
        if at.done >= 400:
            raise KeyboardInterrupt

    with Home(home) as opened, pytest.raises(KeyboardInterrupt):
        rebuild(opened.projector, NAMES, progress=stop)
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
import retold.infrastructure.rebuild as r
from retold.infrastructure.home import Home
r.BATCH = 100
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
    monkeypatch.setattr("retold.infrastructure.rebuild.BATCH", 100)  # as those that are killed
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


def test_a_rebuild_gives_back_the_room_of_what_it_replaced(home: Path) -> None:
    fill(home, 3_000)
    before = state_file(home).stat().st_size
    with Home(home) as opened:
        rebuild(opened.projector, list(opened.projector.projections))

    assert state_file(home).stat().st_size < before * 1.1
    assert execute(state_file(home), "PRAGMA freelist_count") == [(0,)]
