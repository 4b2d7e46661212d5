"""The tables of a Hermes 0.19 store, by name and type: what an exported home is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ...projections.message_columns import MESSAGE_COLUMNS
from ...projections.session_rows import SOURCE_COLUMNS

VERSION: Final = 22
"""Of the schema, as Hermes 0.19 counts it."""

_LATER: Final = frozenset({"system_prompt_hash", "pinned"})
"""Columns of sessions that only later versions have."""
_OURS: Final = frozenset({"copy_of", "source_id", "attachments", "summary", "extra"})

SESSIONS: Final = {name: kind for name, kind in SOURCE_COLUMNS.items() if name not in _LATER}
MESSAGES: Final = {name: kind for name, kind in MESSAGE_COLUMNS.items() if name not in _OURS} | {
    "id": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "session_id": "TEXT NOT NULL REFERENCES sessions(id)",
}
USAGE: Final = {
    "session_id": "TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE",
    "model": "TEXT NOT NULL",
    **dict.fromkeys(
        ("billing_provider", "billing_base_url", "billing_mode", "task"), "TEXT NOT NULL DEFAULT ''"
    ),
    **dict.fromkeys(
        (
            "api_call_count",
            "input_tokens",
            "output_tokens",
            "cache_read_tokens",
            "cache_write_tokens",
            "reasoning_tokens",
        ),
        "INTEGER NOT NULL DEFAULT 0",
    ),
    **dict.fromkeys(("estimated_cost_usd", "actual_cost_usd"), "REAL NOT NULL DEFAULT 0"),
    **dict.fromkeys(("cost_status", "cost_source"), "TEXT"),
    **dict.fromkeys(("first_seen", "last_seen"), "REAL"),
}
ROUTING: Final = {
    "scope": "TEXT NOT NULL DEFAULT ''",
    "session_key": "TEXT NOT NULL",
    "entry_json": "TEXT NOT NULL",
    "updated_at": "REAL NOT NULL",
}
_LOCKS: Final = {
    "session_id": "TEXT PRIMARY KEY",
    "holder": "TEXT NOT NULL",
    "acquired_at": "REAL NOT NULL",
    "expires_at": "REAL NOT NULL",
}
_DELEGATIONS: Final = {
    "delegation_id": "TEXT PRIMARY KEY",
    "origin_session": "TEXT NOT NULL",
    "origin_ui_session_id": "TEXT NOT NULL DEFAULT ''",
    "parent_session_id": "TEXT",
    "state": "TEXT NOT NULL",
    "dispatched_at": "REAL NOT NULL",
    "completed_at": "REAL",
    "updated_at": "REAL NOT NULL",
    "event_json": "TEXT",
    "result_json": "TEXT",
    "delivery_state": "TEXT NOT NULL DEFAULT 'pending'",
    "delivery_attempts": "INTEGER NOT NULL DEFAULT 0",
    "delivered_at": "REAL",
    "owner_pid": "INTEGER",
    "owner_started_at": "INTEGER",
    "task_json": "TEXT",
    "delivery_claim": "TEXT",
    "delivery_claimed_at": "REAL",
}
_USAGE_KEY: Final = "session_id, model, billing_provider, billing_base_url, billing_mode, task"
_TABLES: Final[tuple[tuple[str, Mapping[str, str], str], ...]] = (
    ("schema_version", {"version": "INTEGER NOT NULL"}, ""),
    ("sessions", SESSIONS, "FOREIGN KEY (parent_session_id) REFERENCES sessions(id)"),
    ("messages", MESSAGES, ""),
    ("session_model_usage", USAGE, f"PRIMARY KEY ({_USAGE_KEY})"),
    ("state_meta", {"key": "TEXT PRIMARY KEY", "value": "TEXT"}, ""),
    ("gateway_routing", ROUTING, "PRIMARY KEY (scope, session_key)"),
    ("compression_locks", _LOCKS, ""),
    ("async_delegations", _DELEGATIONS, ""),
)
_INDEXES: Final = {
    "idx_sessions_source": "sessions(source)",
    "idx_sessions_source_id": "sessions(source, id)",
    "idx_sessions_parent": "sessions(parent_session_id)",
    "idx_sessions_started": "sessions(started_at DESC)",
    "idx_messages_session": "messages(session_id, timestamp)",
    "idx_compression_locks_expires": "compression_locks(expires_at)",
    "idx_session_model_usage_session": "session_model_usage(session_id)",
    "idx_session_model_usage_model": "session_model_usage(model)",
    "idx_async_delegations_delivery": "async_delegations(delivery_state, completed_at)",
    "idx_messages_platform_msg_id": (
        "messages(session_id, platform_message_id) WHERE platform_message_id IS NOT NULL"
    ),
    "idx_messages_session_active": "messages(session_id, active, timestamp)",
    "idx_messages_active_null": "messages(active) WHERE active IS NULL",
    "idx_sessions_session_key": "sessions(session_key, started_at DESC)",
    "idx_sessions_gateway_peer": (
        "sessions(source, user_id, chat_id, chat_type, thread_id, started_at DESC)"
    ),
    "idx_sessions_handoff_state": "sessions(handoff_state, started_at)",
}
_TITLES: Final = "CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL"
SEARCH: Final = {"messages_fts": "content", "messages_fts_trigram": "content, tokenize='trigram'"}
"""The search indexes, and what FTS5 is told of each."""
_INDEXED: Final = ("content", "tool_name", "tool_calls")


def tables() -> Iterator[str]:
    """The statements that make the tables."""
    for name, columns, constraint in _TABLES:
        inside = [f"{column} {kind}" for column, kind in columns.items()]
        inside += [constraint] if constraint else []
        yield f"CREATE TABLE {name} ({', '.join(inside)})"
    for name, told in SEARCH.items():
        yield f"CREATE VIRTUAL TABLE {name} USING fts5({told})"


def indexes() -> Iterator[str]:
    """Those that make the indexes, for tables that are filled."""
    for name, on in _INDEXES.items():
        yield f"CREATE INDEX {name} ON {on}"
    yield _TITLES


def indexed_text(row: str = "") -> str:
    """The text of a message that its search indexes hold; `row` qualifies its columns."""
    return " || ' ' || ".join(f"COALESCE({row}{column}, '')" for column in _INDEXED)


def triggers() -> Iterator[str]:
    """Those that keep the search indexes up, for indexes that are filled."""
    for name in SEARCH:
        out = f"DELETE FROM {name} WHERE rowid = old.id;"
        into = f"INSERT INTO {name}(rowid, content) VALUES (new.id, {indexed_text('new.')});"
        for when, what in (("insert", into), ("delete", out), ("update", f"{out} {into}")):
            yield f"CREATE TRIGGER {name}_{when} AFTER {when.upper()} ON messages BEGIN {what} END"
