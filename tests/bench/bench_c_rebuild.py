"""How fast every projection is told again from the log, search included, and whether that is linear."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import apsw
import pytest

from retold.infrastructure.home import Home
from retold.infrastructure.rebuild import rebuild
from retold.projections.search_text import indexed_text
from retold.tests.bench.conftest import SIZE, MakeStore, Peer, run_child
from retold.tests.bench.figures import note, rate

Told = Callable[[Path], Path]
GROUP = "rebuild of every projection, search included"


@pytest.mark.parametrize(("name", "cjk", "bar"), [("Latin text", 0.0, 40_000), ("20 % CJK", 0.2, 20_000)])
def test_rebuild(
    store: MakeStore, told: Told, folder: Path, peer: Peer, name: str, cjk: float, bar: int
) -> None:
    hermes = store(SIZE, cjk=cjk, index=True)
    home = told(hermes)
    ours, floor = [], []
    for _ in range(5):
        ours.append(_rebuilt(home))
        floor.append(_raw(home, folder / "raw-rows.db"))
    with Home(home) as opened:
        events = opened.log.head().position
    command = ["projections", "rebuild", "--home", str(home)]
    whole = [events / run_child(command).wall_s for _ in range(3)]
    copy = folder / "reindexed"
    shutil.copytree(hermes, copy)
    theirs = peer("reindex", copy)
    shutil.rmtree(copy)

    what = f"{SIZE:,} messages, {name}"
    note(GROUP, what, "events/s", median(ours), hermes=theirs, floor=median(floor), at_least=bar)
    note(GROUP, f"{what}, whole command, compared with what was there", "events/s", median(whole))


def test_rebuild_is_linear(store: MakeStore, told: Told) -> None:
    rates = {}
    for size, times in ((SIZE // 2, 3), (SIZE, 3), (2 * SIZE, 3), (10 * SIZE, 1)):
        home = told(store(size, index=size == SIZE))
        rates[size] = median(_rebuilt(home) for _ in range(times))
        if size != SIZE:
            note(GROUP, f"{size:,} messages", "events/s", rates[size])
    note(
        GROUP,
        f"linear: rate at {10 * SIZE:,} to rate at {SIZE:,}",
        "ratio",
        rates[10 * SIZE] / rates[SIZE],
        at_least=0.8,
    )


def _rebuilt(home: Path) -> float:
    """Events a second; the comparison with the rows that were there is left out."""
    with Home(home) as opened:
        opened.catch_up()
        events = opened.log.head().position
        names = list(opened.projector.projections)
        return rate(events, lambda: rebuild(opened.projector, names, compare=False))


def _raw(home: Path, target: Path) -> float:
    """The same rows and the same texts, ready in memory, into the same tables by SQLite alone."""
    target.unlink(missing_ok=True)
    with Home(home, read_only=True) as opened:
        source = opened.state.reader()
        rows = source.execute("SELECT * FROM messages ORDER BY id").fetchall()
        told = "SELECT id, content, tool_name, tool_calls FROM messages ORDER BY id"
        texts = [(row[0], indexed_text(*row[1:])) for row in source.execute(told)]
        tables = [
            row[0]
            for row in source.execute("SELECT sql FROM sqlite_schema WHERE name IN ('messages', 'search')")
        ]
        events = opened.log.head().position
    db = apsw.Connection(str(target))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "NORMAL")
    for each in tables:
        db.execute(each)
    marks = ",".join("?" * len(rows[0]))
    began_s = perf_counter()
    for at in range(0, len(rows), 4_000):
        with db:
            db.executemany(f"INSERT INTO messages VALUES ({marks})", rows[at : at + 4_000])
            db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", texts[at : at + 4_000])
    db.execute("CREATE INDEX by_session ON messages (session_id, id)")
    taken_s = perf_counter() - began_s
    db.close()
    return events / taken_s
