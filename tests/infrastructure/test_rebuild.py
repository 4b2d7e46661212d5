"""Telling again: beside the live rows, compared with them, swapped in one go, killed at any point."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from retold.domain.errors import NoSuchProjection
from retold.infrastructure.home import Home
from retold.infrastructure.rebuild import Difference, difference_of, rebuild
from retold.infrastructure.state_file import BESIDE
from retold.infrastructure.verify import verify
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
from retold.tests.infrastructure.rebuilding import NAMES, tell_again


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


def test_a_rebuild_gives_back_the_room_of_what_it_replaced(home: Path) -> None:
    fill(home, 3_000)
    before = state_file(home).stat().st_size
    with Home(home) as opened:
        rebuild(opened.projector, list(opened.projector.projections))

    assert state_file(home).stat().st_size < before * 1.1
    assert execute(state_file(home), "PRAGMA freelist_count") == [(0,)]
