"""Session rows in memory while a batch of events is folded, and how they come from and go to the table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .base import Connection

SOURCE_COLUMNS: dict[str, str] = {
    "id": "TEXT PRIMARY KEY",
    "source": "TEXT NOT NULL",
    "user_id": "TEXT",
    "session_key": "TEXT",
    "chat_id": "TEXT",
    "chat_type": "TEXT",
    "thread_id": "TEXT",
    "display_name": "TEXT",
    "origin_json": "TEXT",
    "expiry_finalized": "INTEGER DEFAULT 0",
    "model": "TEXT",
    "model_config": "TEXT",
    "system_prompt": "TEXT",
    "system_prompt_hash": "TEXT",
    "parent_session_id": "TEXT",
    "started_at": "REAL NOT NULL",
    "ended_at": "REAL",
    "end_reason": "TEXT",
    "message_count": "INTEGER DEFAULT 0",
    "tool_call_count": "INTEGER DEFAULT 0",
    "input_tokens": "INTEGER DEFAULT 0",
    "output_tokens": "INTEGER DEFAULT 0",
    "cache_read_tokens": "INTEGER DEFAULT 0",
    "cache_write_tokens": "INTEGER DEFAULT 0",
    "reasoning_tokens": "INTEGER DEFAULT 0",
    "cwd": "TEXT",
    "git_branch": "TEXT",
    "git_repo_root": "TEXT",
    "billing_provider": "TEXT",
    "billing_base_url": "TEXT",
    "billing_mode": "TEXT",
    "estimated_cost_usd": "REAL",
    "actual_cost_usd": "REAL",
    "cost_status": "TEXT",
    "cost_source": "TEXT",
    "pricing_version": "TEXT",
    "title": "TEXT",
    "api_call_count": "INTEGER DEFAULT 0",
    "handoff_state": "TEXT",
    "handoff_platform": "TEXT",
    "handoff_error": "TEXT",
    "compression_failure_cooldown_until": "REAL",
    "compression_failure_error": "TEXT",
    "compression_fallback_streak": "INTEGER NOT NULL DEFAULT 0",
    "profile_name": "TEXT",
    "rewind_count": "INTEGER NOT NULL DEFAULT 0",
    "archived": "INTEGER NOT NULL DEFAULT 0",
    "pinned": "INTEGER NOT NULL DEFAULT 0",
}
"""Under Hermes' names (REFERENCE.md 1.3), for tools that read that table. The prompt's text stands
once in system_prompts, as in Hermes' newer schemas; counts are counted here, never copied."""

OWN_COLUMNS: dict[str, str] = {
    "started_us": "INTEGER NOT NULL",
    "ended_us": "INTEGER",
    "hard_end": "INTEGER NOT NULL DEFAULT 0",
    "last_active_us": "INTEGER",
    "parent_kind": "TEXT",
    "preview": "TEXT",
    "preview_message": "INTEGER",
    "lost_key": "TEXT",
    "source_gone": "INTEGER NOT NULL DEFAULT 0",
    "title_claimed": "INTEGER NOT NULL DEFAULT 0",
    "version": "INTEGER NOT NULL",
    "created_position": "INTEGER NOT NULL",
    "last_message_position": "INTEGER",
    "ended_position": "INTEGER",
    "identity_position": "INTEGER",
    "running_turn": "TEXT",
    "turn_since_us": "INTEGER",
    "lease_until_us": "INTEGER",
    "turn_gateway": "TEXT",
    "waiting": "TEXT",
    "resume_reason": "TEXT",
    "resume_marked_us": "INTEGER",
    "restarts": "INTEGER NOT NULL DEFAULT 0",
    "suspended": "TEXT",
    "handoff_gateway": "TEXT",
    "handoff_deadline_us": "INTEGER",
    "handoff_claimed_us": "INTEGER",
    "extra": "BLOB",
}
"""Ours. `last_active_us` is the latest user or assistant message, never after it was recorded;
`lost_key` is a key it bore and lost; `extra` (MessagePack) what no column here can bear."""

COLUMNS = tuple({**SOURCE_COLUMNS, **OWN_COLUMNS})
_NAMES = ", ".join(COLUMNS)
NEVER_NULL = frozenset(n for n, kind in {**SOURCE_COLUMNS, **OWN_COLUMNS}.items() if "NOT NULL" in kind)
_KEPT: dict[str, tuple[type, ...]] = {
    "TEXT": (str, bytes, type(None)),
    "INTEGER": (int, bytes, type(None)),
    "REAL": (float, bytes, type(None)),
    "BLOB": (bytes, type(None)),
}
"""What a column of this type gives back as it was told; of another value SQLite may make its own kind."""
_KINDS = {name: _KEPT[kind.split()[0]] for name, kind in {**SOURCE_COLUMNS, **OWN_COLUMNS}.items()}
_DEFAULTS: dict[str, Any] = {
    name: 0 for name, kind in {**SOURCE_COLUMNS, **OWN_COLUMNS}.items() if "DEFAULT 0" in kind
}

_SAID = frozenset({"version", "last_message_position", "message_count", "tool_call_count", "last_active_us"})


class SessionRow:
    """One row, with the names of what changed."""

    __slots__ = ("deleted", "dirty", "fresh", "unsettled", "values")

    def __init__(
        self, values: dict[str, Any], *, fresh: bool, stored: bool = False, deleted: bool = False
    ) -> None:
        self.values = values
        self.fresh = fresh
        self.deleted = deleted
        """It stands among the deleted ones, where no view looks."""
        self.dirty: set[str] = set()
        self.unsettled = not stored and any(type(value) not in _KINDS[name] for name, value in values.items())
        """Some value is not yet what the table will give back."""

    def __getitem__(self, column: str) -> Any:
        return self.values[column]

    def __setitem__(self, column: str, value: Any) -> None:
        if self.values[column] != value or type(self.values[column]) is not type(value):
            self.values[column] = value
            self.dirty.add(column)
            self.unsettled = self.unsettled or type(value) not in _KINDS[column]

    def said(self) -> dict[str, Any]:
        """The values, for a message to change those that messages change (`_SAID`), all of them counts,
        positions and times of ours: most of what is folded, so no column is looked at one by one."""
        self.dirty |= _SAID
        return self.values


class SessionRows:
    """The rows that a batch touches: loaded when first asked for, written together at its end."""

    def __init__(self, db: Connection, prefix: str) -> None:
        self._db = db
        self._tables = (f"{prefix}sessions", f"{prefix}deleted_sessions")
        self._rows: dict[str, SessionRow | None] = {}
        self._insert = f"INSERT INTO {self._tables[0]} VALUES ({','.join('?' * len(COLUMNS))})"

    def get(self, session_id: str) -> SessionRow | None:
        """The session's row, or None where no event created it."""
        try:
            known = self._rows[session_id]
            if known is None or not (known.unsettled and known.dirty):
                return known
            # Else what is decided on it would hang on where a batch was cut.
            self._write([known])
        except KeyError:
            pass
        return self._load(session_id)

    def _load(self, session_id: str) -> SessionRow | None:
        row = None
        for deleted, table in enumerate(self._tables):
            found = self._db.execute(f"SELECT {_NAMES} FROM {table} WHERE id = ?", (session_id,)).fetchone()
            if found is not None:
                values = dict(zip(COLUMNS, found, strict=True))
                row = SessionRow(values, fresh=False, stored=True, deleted=bool(deleted))
                break
        self._rows[session_id] = row
        return row

    def move(self, row: SessionRow, *, deleted: bool) -> None:
        """Put a row among the deleted ones, or back."""
        self._write([row])
        there, here = self._tables[deleted], self._tables[row.deleted]
        self._db.execute(f"INSERT INTO {there} SELECT * FROM {here} WHERE id = ?", (row["id"],))
        self._db.execute(f"DELETE FROM {here} WHERE id = ?", (row["id"],))
        row.deleted = deleted

    def drop(self, row: SessionRow) -> None:
        """Its session was erased."""
        if not row.fresh:
            self._db.execute(f"DELETE FROM {self._tables[row.deleted]} WHERE id = ?", (row["id"],))
        self._rows[row["id"]] = None

    def create(self, session_id: str, **values: Any) -> SessionRow:
        """A new row, in place of one that a damaged history might have brought before."""
        replaced = self.get(session_id)
        row = SessionRow(
            {**dict.fromkeys(COLUMNS), **_DEFAULTS, "id": session_id, **values},
            fresh=replaced is None or replaced.fresh,
            deleted=replaced is not None and replaced.deleted,
        )
        row.dirty.update(COLUMNS)
        self._rows[session_id] = row
        return row

    def write(self) -> None:
        """Write what changed; the rows stay known."""
        self._write(row for row in self._rows.values() if row is not None and row.dirty)

    def _write(self, rows: Iterable[SessionRow]) -> None:
        fresh = []
        for row in rows:
            if row.fresh:
                fresh.append(tuple(row.values[name] for name in COLUMNS))
                row.fresh = False
            else:
                changed = sorted(row.dirty)
                if not changed:
                    continue
                sets = ", ".join(f"{name} = ?" for name in changed)
                self._db.execute(
                    f"UPDATE {self._tables[row.deleted]} SET {sets} WHERE id = ?",
                    (*(row.values[name] for name in changed), row.values["id"]),
                )
            row.dirty.clear()
        if fresh:
            self._db.executemany(self._insert, fresh)
