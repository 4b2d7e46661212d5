"""How fast one message after the other is made durable."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Literal

import apsw

from retold.infrastructure.engine import SessionEngine, open_home
from retold.tests.bench.conftest import Peer
from retold.tests.bench.figures import note
from retold.tests.bench.make_store import Speech

ROUNDS, COUNT = 5, 2_000
MODES: tuple[Literal["FULL", "NORMAL"], ...] = ("FULL", "NORMAL")


def test_append_one_message_at_a_time(folder: Path, peer: Peer) -> None:
    said = [Speech(7, 0.0).said(4) for _ in range(COUNT)]
    engines = {mode: open_home(folder / f"append-{mode}", synchronous=mode) for mode in MODES}
    floors = {mode: _raw(folder / f"raw-{mode}.db", mode) for mode in MODES}
    ours: dict[str, list[float]] = {mode: [] for mode in MODES}
    raw: dict[str, list[float]] = {mode: [] for mode in MODES}
    theirs: list[float] = []
    for _ in range(ROUNDS):  # in turn, so that what else the machine does meets all of them
        for mode in MODES:
            ours[mode].append(_appended(engines[mode], said))
            raw[mode].append(_inserted(floors[mode], said))
        theirs.append(peer("append", folder / "append-peer", str(COUNT)))
    for mode in MODES:
        engines[mode].close()
        floors[mode].close()

    for mode in MODES:
        note(
            "append, one message a transaction",
            f"synchronous={mode}",
            "messages/s",
            median(ours[mode]),
            hermes=median(theirs),
            floor=median(raw[mode]),
        )


def _appended(engine: SessionEngine, said: list[str]) -> float:
    session = engine.create_session("cli").session_id
    began_s = perf_counter()
    for number, each in enumerate(said):
        engine.append_message(session, "assistant" if number % 2 else "user", each)
    return len(said) / (perf_counter() - began_s)


def _raw(path: Path, mode: str) -> apsw.Connection:
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", mode)
    db.execute("CREATE TABLE log (position INTEGER PRIMARY KEY, at INTEGER, payload BLOB)")
    return db


def _inserted(db: apsw.Connection, said: list[str]) -> float:
    began_s = perf_counter()
    for number, each in enumerate(said):
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO log (at, payload) VALUES (?, ?)", (number, each.encode()))
        db.execute("COMMIT")
    return len(said) / (perf_counter() - began_s)
