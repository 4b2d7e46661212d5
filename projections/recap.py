"""The last things that were said in a conversation, read from its end."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..domain.message import content_given, json_given
from ..domain.recap import Entry, Limits, entry
from .amounts import MOST
from .base import Connection
from .preview import is_summary
from .tree import chain
from .visibility import NOT_UNDONE

COUNTED: Final = 5_000
"""Messages from the end that are counted."""
_PAGE: Final = 100
_SAID = f"copy_of IS NULL AND summary = 0 AND role IN ('user', 'assistant') AND {NOT_UNDONE}"
"""What a person saw of a conversation, each message once; no summary was said by anybody."""


class Recap(msgspec.Struct, frozen=True):
    """Entries in order, how many there are before them, and how much a model is given of the session.

    Where `more`, there are more than `earlier`: a long conversation is not counted to its beginning, and
    `user_messages` is None.
    """

    entries: list[Entry]
    earlier: int
    more: bool
    user_messages: int | None
    messages: int


def recap(db: Connection, session_id: str, limits: Limits) -> Recap:
    """The end of the conversation that leads to a session, all its segments included.

    It costs what it shows; what is before that is counted as far as `COUNTED` messages back (FIELD_CASES K4).
    """
    above = [each.session_id for each in chain(db, session_id)]
    segments = above[above.index(session_id) :: -1]
    entries: list[Entry] = []
    for at in segments:
        if len(entries) < limits.entries:
            _read(db, at, limits, entries)
    shown, more = _counted(db, segments, limits)
    live, users = db.execute(
        "SELECT message_count, CASE WHEN message_count <= ? THEN (SELECT count(*) FROM messages"
        " WHERE session_id = s.id AND active AND role = 'user' AND summary = 0) END"
        " FROM sessions s WHERE id = ?",
        (COUNTED, session_id),
    ).fetchone()
    return Recap(entries[::-1], max(0, shown - len(entries)), more, users, int(live or 0))


def _read(db: Connection, session_id: str, limits: Limits, entries: list[Entry]) -> None:
    """The last entries of a session, the newest first, as far as there is room for them."""
    before = MOST
    while True:
        rows = db.execute(
            f"SELECT id, role, content, tool_calls FROM messages WHERE session_id = ? AND id < ? AND {_SAID}"
            f" ORDER BY id DESC LIMIT {_PAGE}",
            (session_id, before),
        ).fetchall()
        for row in rows:
            made = _entry(row, limits)
            if made is not None:
                entries.append(made)
                if len(entries) == limits.entries:
                    return
        if len(rows) < _PAGE:
            return
        before = rows[-1][0]


def _entry(row: Any, limits: Limits) -> Entry | None:
    _, role, content, tool_calls = row
    text = content if isinstance(content, str) else None
    if role == "user" and is_summary(text):
        return None
    calls = json_given(tool_calls) if isinstance(tool_calls, str) else None
    return entry(role, content_given(text), calls, limits)


def _counted(db: Connection, segments: list[str], limits: Limits) -> tuple[int, bool]:
    """How many messages would be entries, and whether there may be more than were looked at."""
    calls = "0" if limits.skip_tool_only else "coalesce(tool_calls, '[]') <> '[]'"
    shown = (
        "(trim(coalesce(content, ''), ' ' || char(9, 10, 13)) <> '' AND NOT (role = 'user' AND"
        " (content LIKE '[CONTEXT COMPACTION%' OR content LIKE '[CONTEXT SUMMARY%')))"
        f" OR (role = 'assistant' AND {calls})"
    )
    found, room = 0, COUNTED
    for each in segments:
        row = db.execute(
            f"SELECT count(*), coalesce(sum({shown}), 0) FROM (SELECT role, content, tool_calls FROM messages"
            f" WHERE session_id = ? AND {_SAID} ORDER BY id DESC LIMIT ?)",
            (each, room),
        ).fetchone()
        found, room = found + int(row[1]), room - int(row[0])
        if room <= 0:
            return found, True
    return found, False
