"""Folded states of the past: the projections as they were at a position, or as of a time."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import apsw

from ..domain.errors import BadUsage
from ..domain.events import Recorded
from .log import Log
from .projector import PROJECTIONS
from .sqlite import CREATE, READ_ONLY, connect, translated
from .when import Point

BATCH = 4_000
KEEP = 16
"""Folded states kept in the cache; the oldest goes first."""
CACHE = "cache"


def state_at(log: Log, home: Path, point: Point) -> apsw.Connection:
    """Every projection folded up to `point`, read-only; from the cache where it was folded before.

    A position gives what this log said then. A time gives, in position order, what had happened by
    it plus each stream's first event, as it is known at the head.

    Raises:
        BadUsage: a position that the log has not reached.
    """
    head = log.head()
    if point.position is not None and point.position > head.position:
        raise BadUsage(
            f"the log ends at #{head.position}; there is no #{point.position} yet",
            hint="give a lower position",
        )
    name = _name(log, point)
    folder = home / CACHE
    cached = folder / name
    with translated(str(cached)):
        if cached.exists():
            with contextlib.suppress(OSError):
                os.utime(cached)
            return connect(cached, flags=READ_ONLY, immutable="1")
        if not os.access(home, os.W_OK):
            db = apsw.Connection(":memory:")
            _fold(log, db, point)
            return db
        folder.mkdir(mode=0o700, exist_ok=True)
        making = folder / f".{name}.{os.getpid()}"
        making.unlink(missing_ok=True)
        os.close(os.open(making, os.O_CREAT | os.O_RDWR, 0o600))
        db = connect(making, flags=CREATE)
        try:
            db.pragma("journal_mode", "off")
            db.pragma("synchronous", "off")
            _fold(log, db, point)
        except BaseException:
            making.unlink(missing_ok=True)
            raise
        finally:
            db.close()
        os.replace(making, cached)  # nobody has it open yet
        _prune(folder)
        return connect(cached, flags=READ_ONLY, immutable="1")


def _name(log: Log, point: Point) -> str:
    versions = "-".join(str(each.version) for each in PROJECTIONS)
    if point.position is not None:
        chain = log.chain_at(point.position) or b""
        return f"at-{point.position}-{chain.hex()[:16]}-v{versions}.db"
    head = log.head()
    return f"as-of-{point.at_us}-{head.position}-{head.chain.hex()[:16]}-v{versions}.db"


def _fold(log: Log, db: apsw.Connection, point: Point) -> None:
    projections = [each() for each in PROJECTIONS]
    upto = log.head().position if point.position is None else point.position
    with db:
        for each in projections:
            each.create(db)
        after = 0
        while events := log.read(after, limit=BATCH, upto=upto):
            after = events[-1].position
            chosen = events if point.at_us is None else [e for e in events if _had_happened(e, point.at_us)]
            for each in projections:
                each.fold(chosen, db)
        for each in projections:
            each.settle(db)
            each.create_indexes(db, 1)


def _had_happened(event: Recorded, at_us: int) -> bool:
    """By `at_us`; a stream's first event always counts, or nothing after it could be told."""
    return event.version == 1 or event.at_us <= at_us


def _prune(folder: Path) -> None:
    kept = sorted(folder.glob("a*.db"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in kept[KEEP:]:
        each.unlink(missing_ok=True)
