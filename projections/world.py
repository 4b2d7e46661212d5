"""The facts that the rules of audit and repair may know, read from the projections' tables."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..domain.facts import ConflictFacts, RouteFacts, SessionFacts, World
from ..domain.keys import platform_of
from .base import Connection

_SESSIONS = """
SELECT s.id, s.source, s.started_us, s.created_position, s.session_key, s.lost_key, s.chat_id,
       s.chat_type, s.thread_id, s.user_id, s.profile_name, s.last_active_us,
       s.message_count, s.ended_us, s.end_reason, e.parent, e.kind, s.archived,
       s.last_message_position, s.ended_position, s.identity_position, s.source_gone, s.title
FROM sessions s
LEFT JOIN edges e ON e.child = s.id
"""
_BY_PERSON = frozenset({"resume", "branch", "handoff"})
_UNDOES = re.compile(r'"undoes #(\d{1,18})"')
_ROUTES = """
SELECT h.key, h.session_id, h.previous, h.cause, h.position, h.at_us, h.at_kind,
       coalesce(r.entry_created_us, h.entry_created_us), coalesce(r.entry_updated_us, h.entry_updated_us),
       CASE WHEN h.cause IN ('undo', 'repair') THEN h.evidence ELSE '' END
FROM route_history h LEFT JOIN routes r ON r.key = h.key AND r.position = h.position
ORDER BY h.position
"""


def world(
    db: Connection,
    *,
    gap_seconds: float = 900,
    sources: Collection[str] | None = None,
) -> World:
    """The facts as the tables of `db` tell them; messages are only read where a rule asks for them.

    Args:
        gap_seconds: how far apart a keyed session may fall quiet and a keyless one begin.
        sources: only the sessions of these; of a chat whose `chat_sources` they are, no rule says
            anything else than with all.
    """
    chosen = [] if sources is None else sorted(sources)
    where = "" if sources is None else f"WHERE s.source IN ({','.join('?' * len(chosen))})"
    spoken = f"""
        SELECT m.session_id, max(m.timestamp) FROM messages m
        {"" if sources is None else f"WHERE m.session_id IN (SELECT s.id FROM sessions s {where})"}
        GROUP BY m.session_id
    """
    latest: dict[str, object] = dict(db.execute(spoken, chosen))
    rows = db.execute(f"{_SESSIONS} {where}", chosen)
    sessions = {row[0]: _session(row, _us(latest.get(row[0]))) for row in rows}
    return World(
        sessions=sessions,
        routes=_routes(db),
        activity=MessageTimes(db, sessions),
        conflicts=_conflicts(db),
        gap_seconds=gap_seconds,
        profile=_own_profile(db),
    )


def chat_sources(db: Connection, *, key: str | None = None, session_id: str | None = None) -> set[str]:
    """The sources whose sessions can have a part in one chat: those of its own, and what continues them.

    Everything that the rules weigh against each other is of one source; only a continuation may be
    of another than its parent.
    """
    found = {
        source
        for (source,) in db.execute(
            "SELECT DISTINCT source FROM sessions WHERE id = ?1 OR session_key = ?2 OR lost_key = ?2"
            " OR id IN (SELECT session_id FROM route_history WHERE key = ?2)",
            (session_id, key),
        )
    }
    platform = None if key is None else platform_of(key)
    if platform is not None:
        found.add(platform)
    across = list(
        db.execute(
            "SELECT DISTINCT a.source, b.source FROM edges e JOIN sessions a ON a.id = e.child"
            " JOIN sessions b ON b.id = e.parent WHERE e.kind = 'continuation' AND a.source <> b.source"
        )
    )
    while more := {each for pair in across if found & set(pair) for each in pair} - found:
        found |= more
    return found


def _own_profile(db: Connection) -> str | None:
    """The store's own: the only one that any of its sessions names."""
    named = [name for (name,) in db.execute("SELECT DISTINCT profile_name FROM sessions") if name]
    return named[0] if len(named) == 1 else None


def count_messages(db: Connection, session_id: str) -> int:
    """How many messages of a session are here, the compacted and the rewound among them."""
    found = db.execute("SELECT count(*) FROM messages WHERE session_id = ?", (session_id,)).fetchone()
    return int(found[0])


def message_at(db: Connection, session_id: str, at_us: int) -> int | None:
    """The position of the user's or assistant's message of a time that `MessageTimes` gave."""
    rows = db.execute(
        "SELECT id, timestamp FROM messages WHERE session_id = ? AND role IN ('user', 'assistant')"
        " AND NOT summary"
        " ORDER BY id",
        (session_id,),
    )
    return next((position for position, at in rows if _us(at) == at_us), None)


class Place(Struct, frozen=True):
    """What a session's row says of where it was."""

    chat_id: str | None = None
    user_id: str | None = None
    origin_json: str | None = None
    title: str | None = None


def place(db: Connection, session_id: str) -> Place:
    """Where a session was; nothing is known of one that is not here."""
    row = db.execute(
        "SELECT chat_id, user_id, origin_json, title FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    return Place(*(each if isinstance(each, str) else None for each in row or ()))


def platform_sides(db: Connection, donor: str, orphan: str) -> tuple[str | None, str | None]:
    """The platform's ids of the donor's last message that has one, and of the orphan's first."""
    found = []
    for session_id, order in ((donor, "DESC"), (orphan, "ASC")):
        row = db.execute(
            "SELECT platform_message_id FROM messages WHERE session_id = ?"
            f" AND platform_message_id IS NOT NULL ORDER BY id {order} LIMIT 1",
            (session_id,),
        ).fetchone()
        found.append(None if row is None else str(row[0]))
    return found[0], found[1]


class MessageTimes:
    """When user and assistant messages were, by session; a session is read when first asked about.

    No time is later than the session's last activity: that one was held against the clock of when it
    was recorded, and a message that claims the future must not outrank it.
    """

    def __init__(self, db: Connection, sessions: Mapping[str, SessionFacts]) -> None:
        self._db = db
        self._sessions = sessions
        self._times: dict[str, list[int]] = {}

    def last_before(self, session_id: str, at_us: int) -> int | None:
        """The latest at or before `at_us`."""
        times = self._of(session_id)
        after = bisect_right(times, at_us)
        return times[after - 1] if after else None

    def first_after(self, session_id: str, at_us: int) -> int | None:
        """The earliest strictly after `at_us`."""
        times = self._of(session_id)
        after = bisect_right(times, at_us)
        return times[after] if after < len(times) else None

    def _of(self, session_id: str) -> list[int]:
        if session_id not in self._times:
            self._times[session_id] = self._read(session_id)
        return self._times[session_id]

    def _read(self, session_id: str) -> list[int]:
        session = self._sessions.get(session_id)
        if session is None or session.last_active_us is None:
            return []
        rows = self._db.execute(
            "SELECT timestamp FROM messages WHERE session_id = ? AND role IN ('user', 'assistant')"
            " AND NOT summary",
            (session_id,),
        )
        # The last activity counts though its message may have been erased since.
        times = {session.last_active_us}
        times.update(min(at_us, session.last_active_us) for (at,) in rows if (at_us := _us(at)) is not None)
        return sorted(times)


def _session(row: Sequence[Any], last_message_us: int | None) -> SessionFacts:
    (
        *identity,
        last_active_us,
        message_count,
        ended_us,
        end_reason,
        parent_id,
        parent_kind,
        archived,
        last_message_position,
        ended_position,
        identity_position,
        source_gone,
        title,
    ) = row
    session_id, source, started_us, created_position, key, lost_key, chat_id, chat_type = identity[:8]
    thread_id, user_id, profile = identity[8:]
    lost_key = lost_key if key is None else None
    return SessionFacts(
        id=session_id,
        source=source,
        started_us=started_us,
        created_position=created_position,
        key=key,
        lost_key=lost_key,
        chat_id=chat_id,
        chat_type=chat_type,
        thread_id=thread_id,
        user_id=user_id,
        profile=profile,
        last_active_us=last_active_us,
        last_message_us=last_message_us,
        message_count=message_count,
        ended_us=ended_us,
        end_reason=end_reason,
        parent_id=parent_id,
        parent_kind=parent_kind,
        archived=bool(archived),
        last_message_position=last_message_position,
        ended_position=ended_position,
        lost_position=identity_position if lost_key is not None else None,
        source_gone=bool(source_gone),
        title=title,
    )


def _routes(db: Connection) -> dict[str, Sequence[RouteFacts]]:
    found: dict[str, list[RouteFacts]] = {}
    for row in db.execute(_ROUTES):
        key, session_id, previous, cause, position, at_us, at_kind, created_us, updated_us, said = row
        found.setdefault(key, []).append(
            RouteFacts(
                key=key,
                session_id=session_id or previous or "",
                position=position,
                at_us=at_us,
                cause=cause,
                at_kind=at_kind,
                previous_id=previous,
                entry_created_us=created_us,
                entry_updated_us=updated_us,
                closed=session_id is None,
                by_person=cause in _BY_PERSON or (cause == "repair" and '"a person ' in said),
                undoes=_undone_by(said) if cause == "undo" else None,
            )
        )
    return dict(found)


def _undone_by(evidence: str) -> int | None:
    """The save that an undo says of itself to have taken back."""
    found = _UNDOES.search(evidence)
    return None if found is None else int(found[1])


def _conflicts(db: Connection) -> list[ConflictFacts]:
    there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'source_conflicts'"
    if db.execute(there).fetchone() is None:
        return []
    return [
        ConflictFacts(
            position=position,
            session_id=session_id,
            key=row if kind == "route" else None,
            column=column,
            ours=ours,
            theirs=theirs,
        )
        for position, kind, session_id, row, column, ours, theirs in db.execute(
            'SELECT position, kind, session_id, row, "column", ours, theirs FROM source_conflicts'
            ' ORDER BY position, "column"'
        )
    ]


def _us(seconds: object) -> int | None:
    """A REAL of seconds as microseconds; None where a damaged row holds no such number."""
    if not isinstance(seconds, (int, float)):
        return None
    try:
        return round(seconds * 1_000_000)
    except (OverflowError, ValueError):
        return None
