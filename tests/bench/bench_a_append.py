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

ROUNDS, COUNT = 10, 5_000
MODES: tuple[Literal["FULL", "NORMAL"], ...] = ("FULL", "NORMAL")
TIMES_HERMES = {"FULL": 3.5, "NORMAL": 6.0}


def test_append_one_message_at_a_time(folder: Path, peer: Peer) -> None:
    said = [Speech(7, 0.0).said(4) for _ in range(COUNT)]
    engines = {mode: open_home(folder / f"append-{mode}", synchronous=mode) for mode in MODES}
    floors = {mode: _raw(folder / f"raw-{mode}.db", mode) for mode in MODES}
    taken_s: dict[str, list[float]] = {mode: [] for mode in MODES}
    raw: dict[str, list[float]] = {mode: [] for mode in MODES}
    theirs_s = dict.fromkeys(MODES, 0.0)
    for _ in range(ROUNDS):  # in turn, so that what else the machine does meets all of them
        for mode in MODES:
            taken_s[mode] += appended(engines[mode], said)
            raw[mode].append(_inserted(floors[mode], said))
            theirs_s[mode] += COUNT / peer("append", folder / f"append-peer-{mode}", str(COUNT), mode)
    for mode in MODES:
        engines[mode].close()
        floors[mode].close()

    for mode in MODES:
        group = f"append {ROUNDS * COUNT:,} messages, one a transaction"
        note(
            group,
            f"synchronous={mode}",
            "messages/s",
            ROUNDS * COUNT / sum(taken_s[mode]),
            hermes=ROUNDS * COUNT / theirs_s[mode],
            floor=median(raw[mode]),
            ratio_at_least=TIMES_HERMES[mode],
        )
        note(group, f"synchronous={mode}, 99 of 100 within", "ms", p99_ms(taken_s[mode]), at_most=2.0)


def appended(engine: SessionEngine, said: list[str], session: str | None = None) -> list[float]:
    """How long each message took, in seconds; in a session of their own by default."""
    session = session or engine.create_session("cli").session_id
    taken_s = []
    for number, each in enumerate(said):
        began_s = perf_counter()
        engine.append_message(session, "assistant" if number % 2 else "user", each)
        taken_s.append(perf_counter() - began_s)
    return taken_s


def p99_ms(taken_s: list[float]) -> float:
    """What 99 of 100 took at most."""
    return sorted(taken_s)[len(taken_s) * 99 // 100] * 1e3


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
