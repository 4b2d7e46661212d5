"""Folded states of the past: the projections as they were at a position, or as of a time."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw

from ..domain.errors import BadUsage, ProjectionDamaged
from ..domain.events import Recorded, SessionRerouted, session_stream
from .log import Head, Log
from .past_damage import events_past
from .projector import PROJECTIONS
from .sqlite import CREATE, READ_ONLY, connect, one, translated
from .when import Point

BATCH = 4_000
KEEP = 16
"""Folded states kept in the cache; the oldest goes first."""
CACHE = "cache"
TRIES = 5
"""How often a state is folded again whose file went away meanwhile: pruned, or swept by an erasure."""


def state_at(log: Log, home: Path, point: Point) -> apsw.Connection:
    """Every projection folded up to `point`, read-only; from the cache where it was folded before.

    A position gives what this log said then. A time gives, in position order, what had happened by
    it, plus the first event of each stream that may have begun by it, as it is known at the head.

    Raises:
        BadUsage: a position that the log has not reached.
    """
    head = log.head()
    if point.position is not None and point.position > head.position:
        raise BadUsage(
            f"the log ends at #{head.position}; there is no #{point.position} yet",
            hint="give a lower position",
        )
    if not os.access(home, os.W_OK):
        db = apsw.Connection(":memory:")
        _fold(log, db, point, head)
        return db
    cached = home / CACHE / _name(log, point, head)
    for _ in range(TRIES):
        with contextlib.suppress(FileNotFoundError, ProjectionDamaged), translated(str(cached), _damaged):
            if not cached.exists():
                _make(log, cached, point, head)
            return _open(cached)
        cached.unlink(missing_ok=True)
    raise _damaged(f"{cached} cannot be kept")


def forget_cache(home: Path) -> None:
    """Remove every folded state: after an erasure they would still hold the text.

    The folder goes first, in one step, so that a state being folded from before is not put there.
    """
    away = home / f".{CACHE}.{os.getpid()}"
    shutil.rmtree(away, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        (home / CACHE).rename(away)
    shutil.rmtree(away, ignore_errors=True)


def _damaged(detail: str) -> ProjectionDamaged:
    return ProjectionDamaged(
        f"a folded state of the past cannot be read: {detail}", hint=f"remove the folder {CACHE}/ in the home"
    )


def _open(cached: Path) -> apsw.Connection:
    with contextlib.suppress(OSError):
        os.utime(cached)
    db = connect(cached, flags=READ_ONLY, immutable="1")
    try:
        if not one(db, "SELECT count(*) FROM sqlite_schema"):  # a torn file shows here, not at a query
            raise _damaged("it is empty")
    except BaseException:
        db.close()
        raise
    return db


def _make(log: Log, cached: Path, point: Point, head: Head) -> None:
    """Fold into a file beside, and put it in place whole."""
    folder = cached.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    making = folder / f".{os.urandom(8).hex()}"
    handle = os.open(making, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        db = connect(making, flags=CREATE)
        try:
            db.pragma("journal_mode", "off")
            db.pragma("synchronous", "off")
            _fold(log, db, point, head)
        finally:
            db.close()
        os.fsync(handle)  # or a power cut leaves a torn file under a good name
    except BaseException:
        making.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    os.replace(making, cached)  # nobody has it open yet
    _prune(folder)


def _name(log: Log, point: Point, head: Head) -> str:
    """Names all that a state depends on: a restored log, a changed fold or a later head has another name."""
    versions = "-".join(str(each.version) for each in PROJECTIONS)
    if point.position is not None:
        chain = log.chain_at(point.position) or b""
        return f"at-{point.position}-{chain.hex()[:16]}-v{versions}.db"
    return f"as-of-{point.at_us}-{head.position}-{head.chain.hex()[:16]}-v{versions}.db"


def _fold(log: Log, db: apsw.Connection, point: Point, head: Head) -> None:
    projections = [each() for each in PROJECTIONS]
    upto = head.position if point.position is None else point.position
    begun = None if point.at_us is None else _begun(log, point.at_us)
    with db:
        for each in projections:
            each.create(db)
        after = 0
        while after < upto:
            stretch = events_past(log, after, limit=BATCH, upto=upto)
            after, events = stretch.done, stretch.events
            chosen = events if begun is None else [each for each in events if begun(each)]
            for each in projections:
                each.fold(chosen, db)
        for each in projections:
            each.settle(db)
            each.create_indexes(db, 1)


def _begun(log: Log, at_us: int) -> Callable[[Recorded], bool]:
    """Whether an event had happened by `at_us`.

    A stream's first event counts as well where only "no later than" is known of it (a title or a
    route that an import found), or where something else of its stream had happened (a clock went
    back): without it nothing after it could be told. What is known to have begun later had not
    begun: neither a session with a later start, nor an imported route that says it is younger or
    that leads to such a session.
    """
    sql = (
        "SELECT s.name FROM streams s WHERE EXISTS"
        " (SELECT 1 FROM events e WHERE e.stream = s.id AND e.at_us {} ?)"
    )
    with translated(str(log.path)):
        begun = {name for (name,) in log.reader().execute(sql.format("<="), (at_us,))}
        later = {name for (name,) in log.reader().execute(sql.format(">"), (at_us,))} - begun

    def had_happened(event: Recorded) -> bool:
        if event.at_us <= at_us:
            return True
        if event.version != 1:
            return False
        if event.at_kind == "exact":
            return event.stream in begun
        match event.payload:
            case SessionRerouted(session_id=leads_to, entry_created_us=since_us):
                young = since_us is not None and since_us > at_us
                return not young and session_stream(leads_to) not in later
            case _:
                return True

    return had_happened


def _prune(folder: Path) -> None:
    def used_at(path: Path) -> float:
        with contextlib.suppress(FileNotFoundError):
            return path.stat().st_mtime
        return 0.0

    for each in sorted(folder.glob("a*.db"), key=used_at, reverse=True)[KEEP:]:
        each.unlink(missing_ok=True)
