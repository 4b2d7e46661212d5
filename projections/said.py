"""The short fold of what most saves hold: plain messages, at the end of a session that is there.

The fold of transcripts loads a session's row, some seventy columns, changes five and writes them. Here SQL
adds to the five where they stand. It is for nothing else: what is imported, copied, hidden or odd, or said in
a session that is deleted or not there, goes the long way, and tests/laws hold the two ways equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..domain.events import MessageAppended, Recorded
from .base import Connection
from .message_columns import INSERT_MESSAGE, message_row
from .preview import preview_of
from .search_index import SearchIndex
from .transcript_batch import count_calls

_INSERT: Final = INSERT_MESSAGE.format(p="")
_COUNT: Final = """
UPDATE sessions SET version = ?2, last_message_position = ?3,
  message_count = message_count + ?4, tool_call_count = tool_call_count + ?5,
  last_active_us = CASE WHEN ?6 IS NULL OR last_active_us >= ?6 THEN last_active_us ELSE ?6 END
WHERE id = ?1 RETURNING preview
"""
_PREVIEW: Final = "UPDATE sessions SET preview = ?, preview_message = ? WHERE id = ?"


def are_plain(events: Sequence[Recorded]) -> bool:
    """Whether these are messages that were said in one session, just now and here.

    No projection but the transcripts has anything to tell of such.
    """
    return bool(events) and all(
        type(event.payload) is MessageAppended
        and event.source_ref is None
        and event.stream == events[0].stream
        and event.payload.visibility == "live"
        and event.payload.copy_of is None
        and not (event.payload.columns or event.payload.odd)
        for event in events
    )


def fold_said(events: Sequence[Recorded], db: Connection) -> bool:
    """Fold plain messages; False where the session has no row among those that are not deleted.

    Then all that was written has to be taken back.
    """
    last = events[-1]
    calls, active_us = 0, None
    for event in events:
        message: MessageAppended = event.payload
        db.execute(_INSERT, message_row(event, message))
        if message.tool_calls:
            calls += count_calls(message.tool_calls)
        if message.role in ("user", "assistant") and not message.summary:
            said_us = min(event.at_us, event.recorded_at_us)
            active_us = said_us if active_us is None else max(active_us, said_us)
    known = db.execute(
        _COUNT, (last.session_id, last.version, last.position, len(events), calls, active_us)
    ).fetchall()
    if not known:
        return False
    if known[0][0] is None:
        _preview(events, db)
    SearchIndex(db, "").follow(last.position)
    return True


def _preview(events: Sequence[Recorded], db: Connection) -> None:
    """The line that lists show, where nothing said so far makes one."""
    for event in events:
        said: MessageAppended = event.payload
        preview = preview_of(said.content) if said.role == "user" and not said.summary else None
        if preview is not None:
            db.execute(_PREVIEW, (preview, event.position, event.session_id))
            return
