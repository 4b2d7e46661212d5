"""Rows as the search tool shows them: a session's facts, a message, and the messages around one."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

import msgspec

from ..domain.message import STRUCTURED
from .base import Connection
from .sessions import micros
from .visibility import visibility

COLUMNS = "id, role, content, timestamp, tool_name, tool_calls, tool_call_id, active, compacted"
"""What `message_of` reads."""
_MOST_ID = 2**63 - 1


class Meta(msgspec.Struct, frozen=True):
    """What an answer says of a session."""

    started_us: int | None
    source: str
    model: str | None
    title: str | None


def meta_of(db: Connection, session_id: str) -> Meta | None:
    row = db.execute(
        "SELECT started_us, source, model, title FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    return None if row is None else Meta(*row)


def session_meta(meta: Meta, zone: tzinfo | None) -> dict[str, Any]:
    return {
        "when": when(meta.started_us, zone),
        "source": meta.source,
        "model": meta.model,
        "title": meta.title,
    }


def when(at_us: int | None, zone: tzinfo | None) -> str:
    """ "November 29, 2026 at 04:30 PM"."""
    if at_us is None:
        return "unknown"
    try:
        return datetime.fromtimestamp(at_us / 1e6, zone).strftime("%B %d, %Y at %I:%M %p")
    except (ValueError, OverflowError, OSError):
        return "unknown"


def owner_of(db: Connection, message: int) -> str | None:
    if not 0 <= message <= _MOST_ID:
        return None
    row = db.execute("SELECT session_id FROM messages WHERE id = ?", (message,)).fetchone()
    return None if row is None else str(row[0])


def around(
    db: Connection, session_id: str, anchor: int, count: int, which: str
) -> tuple[list[Any], list[Any]]:
    """Up to `count` messages before the anchor and itself, and as many after it.

    Args:
        which: SQL that each of them fulfils.
    """
    rows = (
        f"SELECT {COLUMNS} FROM messages WHERE session_id = ? AND id {{}} ? AND {which}"
        " ORDER BY id {} LIMIT ?"
    )
    before = db.execute(rows.format("<=", "DESC"), (session_id, anchor, count + 1)).fetchall()
    after = db.execute(rows.format(">", "ASC"), (session_id, anchor, count)).fetchall()
    return before[::-1], after


def message_of(row: Any, anchor: int | None = None) -> dict[str, Any]:
    """A message: its content always, of the rest what there is; `visibility` where it is not live."""
    message, role, content, timestamp, tool_name, tool_calls, call_id, active, compacted = row
    shown: dict[str, Any] = {"id": message, "role": role, "content": _decoded(content, STRUCTURED)}
    if micros(timestamp) is not None:
        shown["timestamp"] = timestamp
    if tool_name:
        shown["tool_name"] = tool_name
    if tool_calls:
        shown["tool_calls"] = _decoded(tool_calls, "")
    if call_id:
        shown["tool_call_id"] = call_id
    if message == anchor:
        shown["anchor"] = True
    if not active:
        shown["visibility"] = visibility(active, compacted)
    return shown


def _decoded(text: object, prefix: str) -> object:
    """Structured content and tool calls as values; what cannot be decoded as it was stored."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "replace")
    if not isinstance(text, str) or not text.startswith(prefix):
        return text
    try:
        return msgspec.json.decode(text[len(prefix) :])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
