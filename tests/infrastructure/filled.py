"""Homes with a few hundred events in them, and ways to look at and to damage their files."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from retold.domain import events as e
from retold.infrastructure import codec
from retold.infrastructure.home import Home
from retold.infrastructure.log import Draft, Log
from retold.infrastructure.projector import Projector

START_US = 1_778_000_000_000_000
WORDS = (
    *("harbour", "lantern", "kitchen", "plan", "boat", "repair", "varnish", "ledger", "orchard", "cellar"),
    *("请帮我", "重构", "認証", "café", "signal", "copper", "meadow", "anchor", "thimble", "bridge"),
)


def draft(stream: str, version: int, payload: e.Payload, at_us: int = START_US) -> Draft:
    """An event ready for the log."""
    plain = codec.encode(payload)
    salt = os.urandom(codec.SALT_BYTES)
    packed = codec.pack(plain)
    return Draft(stream, version, payload.topic, packed, codec.payload_hash(plain, salt), salt, at_us)


def drafts(messages: int, *, sessions: int = 5, seed: int = 1, prefix: str = "s") -> list[Draft]:
    """Sessions with their messages in turn, a title, an edit, a route and a continuation among them."""
    rng = random.Random(seed)
    ids = [f"{prefix}{n}" for n in range(sessions)]
    versions = dict.fromkeys(ids, 1)
    found = [draft(f"session:{each}", 1, e.SessionCreated(source="telegram", chat_id="1")) for each in ids]
    for number in range(messages):
        each = ids[number % sessions]
        versions[each] += 1
        text = " ".join(rng.choices(WORDS, k=rng.randint(5, 120)))
        payload = e.MessageAppended(role=("user", "assistant")[number % 2], content=f"{text} nr{number}")
        found.append(draft(f"session:{each}", versions[each], payload, START_US + number * 1_000_000))
    found.append(draft(f"session:{ids[0]}", versions[ids[0]] + 1, e.SessionTitled(title="boat repair")))
    routed = e.SessionRerouted(key="k", session_id=ids[0], previous=None, cause="first_message")
    found.append(draft(f"route:{prefix}", 1, routed))
    return found


def fill(path: Path, messages: int = 300, *, seed: int = 1, prefix: str = "s", fold: bool = True) -> int:
    """Make or grow a home; returns the log's last position."""
    with Home(path) as home:
        home.log.append(drafts(messages, seed=seed, prefix=prefix))
        if fold:
            home.catch_up(wait_ms=10_000)
            home.projector.settle(wait_ms=10_000)
        return home.log.head().position


def content(projector: Projector) -> dict[str, list[Any]]:
    """Every row of every projection, the search index settled."""
    projector.settle(wait_ms=10_000)
    db = projector.state.reader()
    return {
        table: db.execute(sql.format(p="")).fetchall()
        for each in projector.projections.values()
        for table, sql in each().ordered().items()
    }


def told_from_nothing(log: Log) -> dict[str, list[Any]]:
    """What every projection is when it is folded in one go, in memory."""
    from retold.infrastructure.projector import PROJECTIONS

    db = apsw.Connection(":memory:")
    found: dict[str, list[Any]] = {}
    for each in PROJECTIONS:
        fold = each()
        fold.create(db)
        fold.fold(log.read(limit=1 << 30), db)
        fold.settle(db)
        for table, sql in fold.ordered().items():
            found[table] = db.execute(sql.format(p="")).fetchall()
    db.close()
    return found


def execute(path: Path, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """Change a file by hand, and fold its WAL in, so that its bytes can be looked at."""
    db = apsw.Connection(str(path))
    try:
        found = db.execute(sql, values).fetchall()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return found
    finally:
        db.close()


def state_file(home: Path) -> Path:
    """The file behind the link, its WAL folded in."""
    path = (home / "state.db").resolve()
    execute(path, "SELECT 1")
    return path


def events_file(home: Path) -> Path:
    """The log's file, its WAL folded in."""
    execute(home / "events.db", "SELECT 1")
    return home / "events.db"


def copy_of(path: Path, to: Path) -> Path:
    """A copy of a file whose WAL was folded in."""
    execute(path, "SELECT 1")
    shutil.copyfile(path, to)
    return to
