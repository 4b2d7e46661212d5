"""The columns of a message's row."""

from __future__ import annotations

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
    "extra": "BLOB",
}
"""Under Hermes' names (REFERENCE.md 1.4) but the last three. `id` is the event's position and gives
the order; `extra` (MessagePack) holds what no column can bear."""
