"""What a decision must know of a chat beyond its own streams: who could be led to, and what is due."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..domain.recovery import Claimant
from .base import Connection
from .tree import tip

_CLAIMANT = """
SELECT id, source, session_key, started_us, last_active_us, last_message_position IS NOT NULL, ended_us,
       coalesce(end_reason, iif(expiry_finalized, 'session_reset', NULL)), parent_kind,
       coalesce(handoff_state, '') = 'completed'
FROM sessions
"""


class Activity(msgspec.Struct, frozen=True):
    """When a session began and when a user or the assistant last said anything, as of its version."""

    began_us: int
    last_us: int | None
    version: int

    @property
    def in_use_us(self) -> int:
        """When it was last in use; of a session in which nothing was said, when it began."""
        return self.began_us if self.last_us is None else self.last_us


class Occupied(msgspec.Struct, frozen=True):
    """A key and the session that it leads to, with when that was last in use."""

    key: str
    session_id: str
    source: str
    chat_type: str
    in_use_us: int


class SameChat(msgspec.Struct, frozen=True):
    """A chat without its key, as the columns of sessions have it; None and "" are one."""

    source: str
    chat_id: str
    chat_type: str
    thread_id: str | None
    user_id: str | None
    profile: str | None


def claimants(db: Connection, key: str, chat: SameChat | None) -> list[Claimant]:
    """The sessions that bear a key, and where the compressed ones go on; else those of the same chat."""
    found = {each.id: each for each in _read(db, f"{_CLAIMANT} WHERE session_key = ?", (key,))}
    for each in list(found.values()):
        goes_on_as = tip(db, each.id)
        if goes_on_as == each.id:
            continue
        found[each.id] = msgspec.structs.replace(each, goes_on_as=goes_on_as)
        if goes_on_as not in found:
            for last in _read(db, f"{_CLAIMANT} WHERE id = ?", (goes_on_as,)):
                # A crash may have left a continuation without the key that it was to inherit.
                if last.key is None:
                    found[last.id] = msgspec.structs.replace(last, key=key)
    if found or chat is None:
        return list(found.values())
    same = (
        " WHERE session_key IS NULL AND source = ? AND chat_id = ? AND chat_type = ?"
        " AND coalesce(thread_id, '') = ? AND coalesce(user_id, '') = ? AND coalesce(profile_name, '') = ?"
    )
    values = (
        chat.source,
        chat.chat_id,
        chat.chat_type,
        chat.thread_id or "",
        chat.user_id or "",
        chat.profile or "",
    )
    return list(_read(db, _CLAIMANT + same, values))


def _read(db: Connection, sql: str, values: tuple[str, ...]) -> Iterator[Claimant]:
    for row in db.execute(sql, values):
        session_id, source, key, started_us, last_us, said, ended_us, reason, kind, handed_over = row
        yield Claimant(
            id=session_id,
            source=source,
            key=key,
            started_us=started_us,
            last_active_us=last_us,
            has_messages=bool(said),
            ended_us=ended_us,
            end_reason=reason,
            parent_kind=kind,
            handed_over=bool(handed_over),
        )


def activity(db: Connection, session_id: str) -> Activity | None:
    """What is told of a session's activity; None where the session is not."""
    row = db.execute(
        "SELECT started_us, last_active_us, version FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    return None if row is None else Activity(*row)


def occupied(db: Connection) -> list[Occupied]:
    """The keys whose session did not end for good, the one that was silent for longest first."""
    return [
        Occupied(*row)
        for row in db.execute(
            "SELECT r.key, s.id, s.source, coalesce(s.chat_type, 'dm'),"
            " coalesce(s.last_active_us, s.started_us) FROM routes r JOIN sessions s ON s.id = r.session_id"
            " WHERE NOT s.hard_end ORDER BY coalesce(s.last_active_us, s.started_us), r.key"
        )
    ]


def keys_of(db: Connection, session_id: str) -> list[str]:
    """The keys that lead to a session."""
    rows = db.execute("SELECT key FROM routes WHERE session_id = ? ORDER BY key", (session_id,))
    return [str(row[0]) for row in rows]
