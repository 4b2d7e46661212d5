"""Folded states of the past: the projections as they were at a position, or as of a time."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import apsw

from ..domain.errors import BadUsage, NoRoom, ProjectionDamaged
from ..projections.versions import UNICODE
from .foreign import STATE
from .happened import RULE, AsOf
from .log import Head, Log
from .past_damage import events_past, merged
from .projector import PROJECTIONS
from .sqlite import CREATE, READ_ONLY, connect, one, translated
from .when import Point

BATCH = 4_000
KEEP = 16
"""Folded states kept in the cache; the oldest goes first."""
KEEP_BYTES = 512 << 20
"""So many bytes of them, or twice what state.db takes where that is more."""
CACHE = "cache"
TRIES = 5
"""How often a state is folded again whose file went away meanwhile: pruned, or swept by an erasure."""


class Past(NamedTuple):
    """A folded state, read-only, and the events that it lacks since they cannot be read."""

    db: apsw.Connection
    damaged: tuple[tuple[int, int], ...] = ()
    kept: bool = False
    """Whether it was folded before, into a file of the cache."""


def past_at(log: Log, home: Path, point: Point) -> Past:
    """Every projection folded up to `point`, read-only; from the cache where it was folded before.

    A position gives what this log said then. A time gives, in position order, what had happened by
    it (`AsOf` says which), as it is known at the head.

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
        return _in_memory(log, point, head)
    cached = home / CACHE / _name(log, point, head)
    for _ in range(TRIES):
        with contextlib.suppress(FileNotFoundError, ProjectionDamaged):
            try:
                with translated(str(cached), _damaged):
                    if cached.exists():
                        return Past(_open(cached), kept=True)
                    return _make(log, cached, point, head)
            except NoRoom:
                return _in_memory(log, point, head)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                return _in_memory(log, point, head)
        cached.unlink(missing_ok=True)
    raise _damaged(f"{cached} cannot be kept")


def state_at(log: Log, home: Path, point: Point) -> apsw.Connection:
    """`past_at`, for who asks for its rows only."""
    return past_at(log, home, point).db


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


def _in_memory(log: Log, point: Point, head: Head) -> Past:
    """For who can keep nothing: a home that cannot be written, or a full disk."""
    db = apsw.Connection(":memory:")
    return Past(db, _fold(log, db, point, head))


def _make(log: Log, cached: Path, point: Point, head: Head) -> Past:
    """Fold into a file beside, and put it in place whole.

    One that lacks damaged events is not kept: they may be mended or restored.
    """
    folder = cached.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    making = folder / f".{os.urandom(8).hex()}"
    handle = os.open(making, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        db = connect(making, flags=CREATE)
        try:
            db.pragma("journal_mode", "off")
            db.pragma("synchronous", "off")
            damaged = _fold(log, db, point, head)
        finally:
            db.close()
        if damaged:
            past = Past(_open(making), damaged)
            making.unlink()
            return past
        os.fsync(handle)  # or a power cut leaves a torn file under a good name
    except BaseException:
        making.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    os.replace(making, cached)  # nobody has it open yet
    _prune(folder, _limit_bytes(folder.parent))
    return Past(_open(cached))


def _name(log: Log, point: Point, head: Head) -> str:
    """Names all that a state depends on: a restored log, a changed fold or a later head has another name."""
    versions = "-".join([*(str(each.version) for each in PROJECTIONS), f"u{UNICODE}"])
    if point.position is not None:
        chain = log.chain_at(point.position) or b""
        return f"at-{point.position}-{chain.hex()[:16]}-v{versions}.db"
    return f"as-of-{point.at_us}-{head.position}-{head.chain.hex()[:16]}-v{versions}-r{RULE}.db"


def _fold(log: Log, db: apsw.Connection, point: Point, head: Head) -> tuple[tuple[int, int], ...]:
    """Fold it; the events that could not be read."""
    projections = [each() for each in PROJECTIONS]
    upto = head.position if point.position is None else point.position
    begun = None if point.at_us is None else AsOf(log, point.at_us).had_happened
    damaged: tuple[tuple[int, int], ...] = ()
    with db:
        for each in projections:
            each.create(db)
        after = 0
        while after < upto:
            stretch = events_past(log, after, limit=BATCH, upto=upto)
            after, events = stretch.done, stretch.events
            damaged = merged(damaged, stretch.damaged)
            chosen = events if begun is None else [each for each in events if begun(each)]
            for each in projections:
                each.fold(chosen, db)
        for each in projections:
            each.settle(db)
            each.create_indexes(db, 1)
    return damaged


def _prune(folder: Path, limit_bytes: int) -> None:
    """Keep the newest states: so many, and so many bytes; the one just made in any case."""

    def used(path: Path) -> tuple[float, int]:
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            return found.st_mtime, found.st_size
        return 0.0, 0

    total = 0
    every = sorted(((*used(path), path) for path in folder.glob("a*.db")), reverse=True)
    for number, (_, size, path) in enumerate(every):
        total += size
        if number and (number >= KEEP or total > limit_bytes):
            path.unlink(missing_ok=True)


def _limit_bytes(home: Path) -> int:
    with contextlib.suppress(OSError):
        return max(KEEP_BYTES, 2 * (home / STATE).stat().st_size)
    return KEEP_BYTES
