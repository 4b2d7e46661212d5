"""Conversations as maintenance weighs them, and open sessions that nobody will end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..domain.retention import SWEPT, Segment
from .base import Connection

_LAST = (
    "max(s.started_us, coalesce(s.last_active_us, 0), coalesce(s.ended_us, 0), coalesce("
    "(SELECT max(m.timestamp) FROM messages m WHERE m.session_id = s.id) * 1000000, 0))"
)


def silent_conversations(db: Connection, cut_us: int) -> Iterator[list[Segment]]:
    """The conversations that may be old enough: each with all its segments, the first one first.

    A session that is no continuation, or whose parent is not here, begins one; delegates begin none,
    since they go with whom they work for.
    """
    continued: defaultdict[str, list[str]] = defaultdict(list)
    for parent, child in db.execute(
        "SELECT p.id, c.id FROM sessions c JOIN sessions p ON p.id = c.parent_session_id"
        " WHERE c.parent_kind = 'continuation' ORDER BY c.started_us, c.id"
    ):
        continued[parent].append(child)
    first = db.execute(
        "SELECT s.id FROM sessions s WHERE s.started_us < ? AND NOT (coalesce(s.parent_kind, '') IN"
        " ('continuation', 'delegate') AND EXISTS"
        " (SELECT 1 FROM sessions p WHERE p.id = s.parent_session_id))"
        " ORDER BY s.started_us, s.id",
        (cut_us,),
    ).fetchall()
    for (root,) in first:
        found = {root: None}
        for each in (waiting := [root]):
            fresh = [child for child in continued[each] if child not in found]
            found.update(dict.fromkeys(fresh))
            waiting += fresh
        yield [segment(db, each) for each in found]


def segment(db: Connection, session_id: str) -> Segment:
    """A session as a segment. A message counts by its own time, whatever its role."""
    ended, pinned, last_us = db.execute(
        f"SELECT s.ended_us IS NOT NULL OR s.end_reason IS NOT NULL, s.pinned, {_LAST}"
        " FROM sessions s WHERE s.id = ?",
        (session_id,),
    ).fetchone()
    return Segment(session_id, bool(ended), bool(pinned), int(last_us))


def left_open(db: Connection, before_us: int) -> list[str]:
    """Open sessions of sources that end with their process, silent since before a time."""
    marks = ",".join("?" * len(SWEPT))
    rows = db.execute(
        f"SELECT s.id FROM sessions s WHERE s.source IN ({marks}) AND s.ended_us IS NULL"
        f" AND s.end_reason IS NULL AND {_LAST} < ? ORDER BY s.id",
        (*sorted(SWEPT), before_us),
    )
    return [row[0] for row in rows]


def ghosts(db: Connection, before_us: int) -> list[str]:
    """Sessions of a terminal that ended before a time without a title or a message (REFERENCE.md 1.10)."""
    rows = db.execute(
        "SELECT s.id FROM sessions s WHERE s.source = 'tui' AND s.title IS NULL AND s.ended_us < ?"
        " AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id) ORDER BY s.id",
        (before_us,),
    )
    return [row[0] for row in rows]
