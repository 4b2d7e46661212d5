"""How the projections stand, as they are found."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

import apsw
import msgspec

from ..projections.transcripts import Transcripts
from .checkpoints import is_newer, load, why_tell_again
from .home import Home
from .past_damage import damage_at_the_end, merged, told
from .sqlite import one, translated
from .state_file import damaged

Health = Literal[
    "ok",
    "behind",
    "passed over",
    "stale index",
    "detached",
    "not a fold of this log",
    "newer",
    "not told yet",
    "damaged",
]


class ProjectionStatus(msgspec.Struct, frozen=True):
    """One projection."""

    name: str
    fold_version: int
    position: int
    lag: int
    rows: dict[str, int | None]
    """By table; None where it cannot be counted."""
    health: Health
    detail: str | None


class Status(msgspec.Struct, frozen=True):
    """All of a home's."""

    head: int
    projections: list[ProjectionStatus]
    log_bytes: int
    log_wal_bytes: int
    state_bytes: int
    state_wal_bytes: int
    superseded: str | None = None
    """What was wrong with state.db, if it was begun anew just now."""


def status_of(home: Home) -> Status:
    """Read it in one snapshot; nothing is folded.

    Raises:
        ProjectionDamaged: state.db cannot be read.
    """
    projector = home.projector
    found = []
    with (
        contextlib.closing(home.state.open_reader()) as db,
        translated(str(home.state.link), damaged),
    ):
        db.execute("BEGIN")
        known = load(db)
        head = home.log.head()
        for name, projection in projector.projections.items():
            checkpoint = known.get(name)
            health: Health = "ok"
            detail: str | None = None
            position, version = 0, projection.version
            rows: dict[str, int | None] = {}
            if checkpoint is None:
                health = "not told yet" if head.position else "ok"
            else:
                position, version = checkpoint.position, checkpoint.fold_version
                rows = {table: _count(db, table) for table in projection.tables if table != "search_state"}
                if projection is Transcripts:
                    rows["search"] = _count(db, "search_docsize")
                why = why_tell_again(checkpoint, projection, home.log, head)
                if is_newer(checkpoint, projection):
                    health, detail = "newer", f"this program folds v{projection.version}; upgrade retold"
                elif checkpoint.detached:
                    health, detail = "detached", checkpoint.detached
                elif why is not None:
                    health, detail = "not a fold of this log", why
                elif projection is Transcripts and (stale := _stale(db)) is not None:
                    health, detail = "stale index", stale
                elif None in rows.values():
                    health, detail = "damaged", "a table cannot be read"
                elif passed := merged(
                    (*checkpoint.passed_over, *damage_at_the_end(home.log, position, head.position)), ()
                ):
                    health, detail = (
                        "passed over",
                        f"{told(passed)}, which cannot be read; see: retold verify",
                    )
                elif position < head.position:
                    health = "behind"
            lag = max(head.position - position, 0)
            found.append(ProjectionStatus(name, version, position, lag, rows, health, detail))
    return Status(
        head.position,
        found,
        _bytes(home.log.path),
        _bytes(_wal(home.log.path)),
        _bytes(home.state.path),
        _bytes(_wal(home.state.path)),
        home.state.superseded,
    )


def _stale(db: apsw.Connection) -> str | None:
    try:
        found = one(db, "SELECT stale FROM search_state")
    except (apsw.SQLError, apsw.CorruptError) as error:
        return str(error)
    return None if found is None else str(found)


def _count(db: apsw.Connection, table: str) -> int | None:
    try:
        return int(one(db, f"SELECT count(*) FROM {table}"))
    except (apsw.SQLError, apsw.CorruptError):
        return None


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
