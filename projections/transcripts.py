"""Sessions, messages and the search index: one fold, since the index must be told a leaving row's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..domain.events import MessageAppended, Recorded
from .base import Connection, Projection
from .message_columns import MESSAGE_COLUMNS
from .search_index import SearchIndex
from .session_rows import OWN_COLUMNS, SOURCE_COLUMNS
from .transcript_batch import NONE, Prepared, TranscriptBatch, prepared

_SESSIONS = f"({', '.join(f'{n} {k}' for n, k in {**SOURCE_COLUMNS, **OWN_COLUMNS}.items())})"
_MESSAGES = f"({', '.join(f'{n} {k}' for n, k in MESSAGE_COLUMNS.items())})"


class Transcripts(Projection):
    """What was said, session by session, and where to find it."""

    name: ClassVar[str] = "transcripts"
    version: ClassVar[int] = 3
    tables: ClassVar[dict[str, str]] = {
        "sessions": _SESSIONS,
        "messages": _MESSAGES,
        "deleted_sessions": _SESSIONS,
        "deleted_messages": _MESSAGES,
        "deletions": (
            "(session_id TEXT PRIMARY KEY, position INTEGER NOT NULL, at_us INTEGER NOT NULL,"
            " actor TEXT NOT NULL, reason TEXT, erase_after_us INTEGER NOT NULL,"
            " messages INTEGER NOT NULL, with_parent TEXT, erased_position INTEGER) WITHOUT ROWID"
        ),
        "system_prompts": "(hash TEXT PRIMARY KEY, prompt TEXT NOT NULL) WITHOUT ROWID",
        "search_state": "(one INTEGER PRIMARY KEY, indexed_upto INTEGER NOT NULL, stale TEXT)",
    }
    virtual: ClassVar[dict[str, str]] = {
        "search": "fts5(text, content='', tokenize='unicode61 remove_diacritics 2')"
    }
    indexes: ClassVar[dict[str, str]] = {
        "messages_by_session": "messages (session_id, id)",
        "messages_by_platform_id": (
            "messages (session_id, platform_message_id) WHERE platform_message_id IS NOT NULL"
        ),
        "deleted_messages_by_session": "deleted_messages (session_id, id)",
        "deletions_by_time": "deletions (erase_after_us) WHERE erased_position IS NULL",
        "messages_not_live": "messages (session_id) WHERE active = 0",
        "sessions_by_parent": "sessions (parent_session_id, parent_kind) WHERE parent_session_id IS NOT NULL",
        "sessions_by_key": "sessions (session_key) WHERE session_key IS NOT NULL",
        "sessions_by_chat": "sessions (chat_id) WHERE session_key IS NULL AND chat_id IS NOT NULL",
        "sessions_by_title": "sessions (title) WHERE title IS NOT NULL",
        "sessions_by_activity": (
            "sessions (coalesce(last_active_us, started_us) DESC, id, archived, source, parent_kind)"
        ),
        "sessions_pinned": ("sessions (coalesce(last_active_us, started_us) DESC, id) WHERE pinned = 1"),
        "sessions_in_a_turn": "sessions (turn_gateway) WHERE running_turn IS NOT NULL",
        "sessions_to_resume": "sessions (resume_reason) WHERE resume_reason IS NOT NULL",
        "sessions_by_handoff": "sessions (handoff_state, started_us) WHERE handoff_state IS NOT NULL",
        "sessions_by_kind": "sessions (parent_kind, archived, source)",
    }

    def __init__(self, prefix: str = "") -> None:
        super().__init__(prefix)
        self._prepared: Mapping[int, Prepared] = NONE
        self._left: TranscriptBatch | None = None
        """With the messages and texts of the last fold, where a rebuild leaves them to `settle`."""

    def create(self, db: Connection) -> None:
        """Make the tables, empty, with the index's watermark at 0."""
        super().create(db)
        db.execute(f"INSERT INTO {self.t('search_state')} VALUES (1, 0, NULL)")
        if self.prefix:
            SearchIndex(db, self.prefix).begin_bulk()

    def create_indexes(self, db: Connection, generation: int) -> None:
        """Make the indexes; of the search index that a rebuild filled, one piece."""
        if self.prefix:  # first, so that the indexes take the pages which that sets free
            SearchIndex(db, self.prefix).end_bulk()
        super().create_indexes(db, generation)

    def ordered(self) -> dict[str, str]:
        """Whole content in a fixed order; the index by its rows' token counts."""
        return {
            "sessions": "SELECT * FROM {p}sessions ORDER BY id",
            "messages": "SELECT * FROM {p}messages ORDER BY id",
            "deleted_sessions": "SELECT * FROM {p}deleted_sessions ORDER BY id",
            "deleted_messages": "SELECT * FROM {p}deleted_messages ORDER BY id",
            "deletions": "SELECT * FROM {p}deletions ORDER BY session_id",
            "system_prompts": "SELECT * FROM {p}system_prompts ORDER BY hash",
            "search": "SELECT id, sz FROM {p}search_docsize ORDER BY id",
        }

    def prepare(self, events: Sequence[Recorded]) -> None:
        """Make the rows and the texts of messages."""
        self._prepared = {
            event.position: prepared(event, event.payload)
            for event in events
            if type(event.payload) is MessageAppended
        }

    def settle(self, db: Connection) -> None:
        """Index the messages that trail behind."""
        left, self._left = self._left, None
        if left is not None:
            left.flush_messages()
        index = left.index if left is not None else SearchIndex(db, self.prefix)
        index.catch_up()

    def fold(self, events: Sequence[Recorded], db: Connection) -> None:
        """Fold a batch: session rows in memory, messages in bulk, both written before it ends."""
        if self._left is not None:
            self._left.flush_messages()
        batch = TranscriptBatch(db, self.prefix, self._prepared)
        batch.fold_all(events)
        if self.prefix:
            self._left = batch
        else:
            batch.flush_messages()
        batch.finish()
        if not self.prefix:
            batch.index.trail()
