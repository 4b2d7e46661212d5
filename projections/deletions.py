"""Queries about what was deleted: who did it and why, and until when it can be taken back."""

from __future__ import annotations

from typing import Final

import msgspec

from .base import Connection

NEVER: Final = 1 << 62
_LAST = "\U0010ffff"
_COLUMNS = (
    "session_id, position, at_us, actor, reason, erase_after_us, messages, with_parent, erased_position"
)


class Deletion(msgspec.Struct, frozen=True):
    """One session's deletion. `actor` is the event's; times are microseconds since the Unix epoch."""

    session_id: str
    position: int
    at_us: int
    actor: str
    reason: str | None
    erase_after_us: int
    messages: int
    with_parent: str | None
    erased_position: int | None


def deletion(db: Connection, session_id: str) -> Deletion | None:
    """The deletion of a session, None where it stands."""
    row = db.execute(f"SELECT {_COLUMNS} FROM deletions WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else Deletion(*row)


def is_deleted(db: Connection, session_id: str) -> bool:
    """Whether a session that is not here was deleted; it may be erased by now."""
    return deletion(db, session_id) is not None


def deletions_named(db: Connection, name: str) -> list[Deletion]:
    """The deletions that a name may mean: of the session of that id, else of those that begin so."""
    exact = deletion(db, name)
    if exact is not None:
        return [exact]
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM deletions WHERE session_id >= ? AND session_id < ? ORDER BY session_id",
        (name, name + _LAST),
    )
    return [Deletion(*row) for row in rows] if name else []


def due(db: Connection, at_us: int) -> list[str]:
    """The sessions to be erased by a time, in the order in which they were deleted."""
    rows = db.execute(
        "SELECT session_id FROM deletions WHERE erased_position IS NULL AND erase_after_us <= ?"
        " ORDER BY position",
        (at_us,),
    )
    return [row[0] for row in rows]


def next_due(db: Connection) -> int:
    """When the next session is to be erased; NEVER where none is."""
    row = db.execute("SELECT min(erase_after_us) FROM deletions WHERE erased_position IS NULL").fetchone()
    return NEVER if row[0] is None else int(row[0])


def deleted_along(db: Connection, session_id: str) -> list[str]:
    """The session and the delegates that were deleted along with it, and theirs."""
    found = {session_id: None}
    for each in (waiting := [session_id]):
        for (child,) in db.execute(
            "SELECT session_id FROM deletions WHERE with_parent = ? AND erased_position IS NULL"
            " ORDER BY position",
            (each,),
        ):
            if child not in found:
                found[child] = None
                waiting.append(child)
    return list(found)


def delegates_of(db: Connection, session_id: str) -> dict[str, str]:
    """The delegates of a session, and theirs, each with the session whose delegate it is."""
    found: dict[str, str] = {}
    for each in (waiting := [session_id]):
        for (child,) in db.execute(
            "SELECT id FROM sessions WHERE parent_session_id = ? AND parent_kind = 'delegate' ORDER BY id",
            (each,),
        ):
            if child != session_id and child not in found:
                found[child] = each
                waiting.append(child)
    return found
