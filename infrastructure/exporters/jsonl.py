"""Sessions as JSONL: an object a line, every column of a session and its live messages."""

from __future__ import annotations

from collections.abc import Callable

from ...projections.exported import Fields, last_active
from .rows import Rows
from .values import encode

Write = Callable[[bytes], object]


def write_session(rows: Rows, session_id: str, write: Write, *, with_activity: bool) -> tuple[int, int]:
    """One session as a line, written message by message: of any length it takes no memory.

    Returns how many messages it holds, and how many values in it were no valid UTF-8 in their source.
    """
    fields = rows.session(session_id)
    if with_activity:
        fields["last_active"] = last_active(rows.db, session_id)
    write(encode(fields)[:-1] + b',"messages":[')
    count, odd = 0, _odd(fields)
    for message in rows.live(session_id):
        write(b"," + encode(message) if count else encode(message))
        count += 1
        odd += _odd(message)
    write(b"]}\n")
    return count, odd


def _odd(fields: Fields) -> int:
    return len(fields.get("not_utf8", ()))
