"""What a deletion does to the tables of sessions and messages: the rows move to where no view looks.

They keep every value, so an undeletion moves them back as they were; an erasure drops them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..domain import events as e
from ..domain.events import Recorded
from .message_columns import MESSAGE_COLUMNS
from .session_rows import SessionRow

if TYPE_CHECKING:
    from .transcript_batch import TranscriptBatch

_OF = "session_id = ? AND id > ? AND id <= ?"
"""The messages of a session. The bounds are for a rebuild, which makes indexes last."""


class Deletion:
    """The deleted sessions of one batch."""

    def __init__(self, batch: TranscriptBatch) -> None:
        self._batch = batch
        self._db = batch.db
        self._p = batch.prefix
        self.messages: list[tuple[Any, ...]] = []
        """Of deleted sessions, not yet written: an import may bring some, or a writer that lost a race."""

    def flush(self) -> None:
        """Write the messages so far."""
        if self.messages:
            marks = ",".join("?" * len(MESSAGE_COLUMNS))
            self._db.executemany(f"INSERT INTO {self._p}deleted_messages VALUES ({marks})", self.messages)
            self.messages.clear()

    def noted(self, event: Recorded, payload: e.SessionDeleted) -> None:
        """That it was deleted, by whom and why; it stays on record when all else is erased."""
        self._db.execute(
            f"INSERT OR REPLACE INTO {self._p}deletions VALUES (?,?,?,?,?,?,?,?,NULL)",
            (
                event.session_id,
                event.position,
                event.at_us,
                event.actor,
                payload.reason,
                payload.erase_after_us,
                payload.messages,
                payload.with_parent,
            ),
        )

    def delete(self, row: SessionRow) -> None:
        """The session and its messages leave every view, and the search index."""
        if not row.deleted:
            self._settle()
            self._batch.index.leave(self._texts(row))
            self._move(row, deleted=True)

    def undelete(self, row: SessionRow) -> None:
        """They are back, as they were."""
        self._db.execute(f"DELETE FROM {self._p}deletions WHERE session_id = ?", (row["id"],))
        if row.deleted:
            self._settle()
            self._batch.index.come_back(self._texts(row))
            self._move(row, deleted=False)

    def erased(self, event: Recorded, payload: e.PayloadsErased) -> None:
        """All of a session is gone for good, with the prompts that nobody else has."""
        if payload.session is None:
            return
        self._db.execute(
            f"UPDATE {self._p}deletions SET erased_position = ? WHERE session_id = ?",
            (event.position, payload.session),
        )
        self._db.executemany(
            f"DELETE FROM {self._p}system_prompts WHERE hash = ?", [(each,) for each in payload.prompts]
        )
        row = self._batch.rows.get(payload.session)
        if row is not None:
            self.delete(row)
            self._db.execute(f"DELETE FROM {self._p}deleted_messages WHERE {_OF}", _bounds(row))
            self._batch.index.purge_later()
            self._batch.rows.drop(row)

    def _settle(self) -> None:
        self._batch.flush_messages()
        self._batch.index.flush()

    def _move(self, row: SessionRow, *, deleted: bool) -> None:
        here = self._batch.table(row)
        self._batch.rows.move(row, deleted=deleted)
        there = self._batch.table(row)
        self._db.execute(f"INSERT INTO {there} SELECT * FROM {here} WHERE {_OF}", _bounds(row))
        self._db.execute(f"DELETE FROM {here} WHERE {_OF}", _bounds(row))

    def _texts(self, row: SessionRow) -> list[tuple[int, tuple[Any, Any, Any]]]:
        return [
            (message, (content, tool_name, tool_calls))
            for message, content, tool_name, tool_calls in self._db.execute(
                f"SELECT id, content, tool_name, tool_calls FROM {self._batch.table(row)}"
                f" WHERE {_OF} AND copy_of IS NULL ORDER BY id",
                _bounds(row),
            )
        ]


def _bounds(row: SessionRow) -> tuple[str, int, int]:
    return row["id"], row["created_position"], row["last_message_position"] or 0
