"""The columns of a message's row, and the row that the event of a message makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from ..domain.events import MessageAppended, Recorded, Visibility
from ..domain.message import attachments_kept
from .bulk import inserts

MESSAGE_COLUMNS: dict[str, str] = {
    "id": "INTEGER PRIMARY KEY",
    "session_id": "TEXT NOT NULL",
    "role": "TEXT NOT NULL",
    "content": "TEXT",
    "tool_call_id": "TEXT",
    "tool_calls": "TEXT",
    "tool_name": "TEXT",
    "effect_disposition": "TEXT",
    "timestamp": "REAL NOT NULL",
    "token_count": "INTEGER",
    "finish_reason": "TEXT",
    "reasoning": "TEXT",
    "reasoning_content": "TEXT",
    "reasoning_details": "TEXT",
    "codex_reasoning_items": "TEXT",
    "codex_message_items": "TEXT",
    "platform_message_id": "TEXT",
    "observed": "INTEGER DEFAULT 0",
    "active": "INTEGER NOT NULL DEFAULT 1",
    "compacted": "INTEGER NOT NULL DEFAULT 0",
    "api_content": "TEXT",
    "copy_of": "INTEGER",
    "source_id": "INTEGER",
    "attachments": "TEXT",
    "summary": "INTEGER NOT NULL DEFAULT 0",
    "extra": "BLOB",
}
"""Under Hermes' names (REFERENCE.md 1.4) but the last five. `id` is the event's position and gives
the order; `extra` (MessagePack) holds what no column can bear."""

INSERT_MESSAGE: Final = f"INSERT INTO {{p}}messages VALUES ({','.join('?' * len(MESSAGE_COLUMNS))})"
"""Of a row as `message_row` gives it, with `p` for the prefix of the tables."""
SHOWN: Final[dict[Visibility, tuple[int, int]]] = {"live": (1, 0), "compacted": (0, 1), "rewound": (0, 0)}
"""`active` and `compacted` by visibility."""
_pack = msgspec.msgpack.Encoder().encode


def insert_messages(table: str, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Statements that write `rows`, as `message_row` gives them; columns that none of them uses are left
    out, which is most of them: a statement then takes twice the rows."""
    columns = {
        name: values
        for (name, kind), values in zip(MESSAGE_COLUMNS.items(), zip(*rows, strict=True), strict=False)
        if " DEFAULT " in kind or values.count(None) < len(rows)
    }
    return inserts(f"INSERT INTO {table} ({', '.join(columns)})", list(zip(*columns.values(), strict=True)))


def message_row(event: Recorded, m: MessageAppended) -> tuple[Any, ...]:
    """The row of a message, in the order of `MESSAGE_COLUMNS`."""
    active, compacted = SHOWN[m.visibility]
    return (
        event.position,
        event.stream[8:],
        m.role,
        m.content,
        m.tool_call_id,
        m.tool_calls,
        m.tool_name,
        m.effect_disposition,
        event.at_us / 1e6 if m.timestamp is None else m.timestamp,
        m.token_count,
        m.finish_reason,
        m.reasoning,
        m.reasoning_content,
        m.reasoning_details,
        m.codex_reasoning_items,
        m.codex_message_items,
        m.platform_message_id,
        m.observed,
        active,
        compacted,
        m.api_content,
        m.copy_of,
        m.source_id,
        attachments_kept(m.attachments) if m.attachments else None,
        int(m.summary),
        _pack([m.columns, m.odd]) if m.columns or m.odd else None,
    )
