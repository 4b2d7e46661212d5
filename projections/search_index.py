"""Keeping the full-text index equal to the messages: contentless, so it must be told what leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .base import Connection
from .bulk import inserts
from .search_text import indexed_text

TRAIL = 64
"""How many messages the index may be behind the last one; it is caught up before each search."""

Text = tuple[str | bytes | None, str | bytes | None, str | bytes | None]
"""(content, tool_name, tool_calls) of a message."""


class SearchIndex:
    """The index under one prefix, for the length of a transaction.

    A failure here never stops the fold: the index is marked stale, search falls back to reading the
    messages, and a rebuild clears the mark (FIELD_CASES B19).
    """

    def __init__(self, db: Connection, prefix: str) -> None:
        self._db = db
        self._table = f"{prefix}search"
        self._messages = f"{prefix}messages"
        self._state = f"{prefix}search_state"
        upto, stale = db.execute(f"SELECT indexed_upto, stale FROM {self._state}").fetchone()
        self._upto: int = upto
        self._last: int | None = None
        self._stale = stale is not None
        self._pending: list[tuple[int, str]] = []
        self._erased = False

    def add(self, texts: Sequence[tuple[int, str]], last: int) -> None:
        """New messages with their `indexed_text`, and the last new one, which may be a copy and have none;
        they are indexed with the others that wait."""
        self._last = last
        if not self._stale:
            self._pending += texts

    def follow(self, message: int) -> None:
        """A message whose row is there already; it is indexed with the others that wait."""
        if message - self._upto >= TRAIL:
            self._last = message
            self.trail()

    def trail(self) -> None:
        """Index what waits if it has become much; else leave it for `catch_up`."""
        if self._last is None:
            return
        waiting = self._db.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM {self._messages} WHERE id > ? LIMIT {TRAIL})",
            (self._upto,),
        ).fetchone()[0]
        if waiting >= TRAIL:
            self.flush()

    def catch_up(self) -> None:
        """Index every message that waits."""
        last = self._db.execute(f"SELECT max(id) FROM {self._messages}").fetchone()[0]
        if last is not None and last > self._upto:
            self._last = last
            self.flush()

    def flush(self) -> None:
        """Index what waits, from this batch and from before it. The messages are written already."""
        if self._last is None or self._stale:
            return
        first = self._pending[0][0] if self._pending else self._last + 1
        rows = [
            (message, indexed_text(content, name, calls))
            for message, content, name, calls in self._db.execute(
                f"SELECT id, content, tool_name, tool_calls FROM {self._messages}"
                " WHERE id > ? AND id < ? AND copy_of IS NULL ORDER BY id",
                (self._upto, first),
            )
        ]
        rows += self._pending
        self._insert(rows)
        self._pending.clear()
        self._upto, self._last = self._last, None
        self._db.execute(f"UPDATE {self._state} SET indexed_upto = ?", (self._upto,))

    def replace(self, message: int, old: Text, new: Text) -> None:
        """A message's text changed."""
        before, after = indexed_text(*old), indexed_text(*new)
        if before == after or message > self._upto:
            return
        self._delete(message, before)
        self._insert([(message, after)])

    def remove(self, message: int, old: Text) -> None:
        """A message leaves."""
        if message <= self._upto:
            self._delete(message, indexed_text(*old))

    def erase(self, message: int, old: Text) -> None:
        """A message leaves for good: its words too, once `purge` has run."""
        self.remove(message, old)
        self._erased = True

    def leave(self, rows: Sequence[tuple[int, Text]]) -> None:
        """Messages that no search is to find any more; what waits was flushed."""
        for message, text in rows:
            self.remove(message, text)

    def come_back(self, rows: Sequence[tuple[int, Text]]) -> None:
        """Messages that are to be found again; what waits was flushed, and newer ones wait."""
        found = [(message, indexed_text(*text)) for message, text in rows if message <= self._upto]
        self._insert(found)

    def purge_later(self) -> None:
        """Messages that left before are to leave for good."""
        self._erased = True

    def purge(self) -> None:
        """After an erasure, write the index anew: words that left lie in its older pieces until then."""
        if not self._erased:
            return
        self._erased = False
        # An index that failed no longer knows what left; it answers nothing and may as well be empty.
        how = "delete-all" if self._stale else "optimize"
        self._db.execute(f"INSERT INTO {self._table} ({self._table}) VALUES ('{how}')")

    def optimise(self) -> None:
        """Make one piece of it: a search then looks in one place."""
        self._guarded(f"INSERT INTO {self._table} ({self._table}) VALUES (?)", [("optimize",)])

    def begin_bulk(self) -> None:
        """A rebuild begins: leave the pieces that each transaction writes as they are."""
        self._configure(automerge=0, crisismerge=1_000_000)

    def end_bulk(self) -> None:
        """A rebuild has filled the index: make one piece of it, merging the text once and not at every
        level of a tree (tests/bench: a fifth of the index's time), and go on as FTS5 does by itself."""
        self._configure(automerge=4, crisismerge=16)
        self._guarded(f"INSERT INTO {self._table} ({self._table}) VALUES (?)", [("optimize",)])

    def _configure(self, **options: int) -> None:
        self._guarded(f"INSERT INTO {self._table} ({self._table}, rank) VALUES (?, ?)", list(options.items()))

    def _insert(self, rows: Sequence[tuple[int, str]]) -> None:
        for sql, bound in inserts(f"INSERT INTO {self._table} (rowid, text)", rows):
            self._guarded(sql, [bound])

    def _delete(self, message: int, text: str) -> None:
        self._guarded(
            f"INSERT INTO {self._table} ({self._table}, rowid, text) VALUES ('delete', ?, ?)",
            [(message, text)],
        )

    def _guarded(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if self._stale or not rows:
            return
        self._db.execute("SAVEPOINT search_index")
        try:
            self._db.executemany(sql, rows)
        except Exception as error:  # noqa: BLE001  # whatever broke the index must not stop the fold
            self._db.execute("ROLLBACK TO search_index")
            self._db.execute("RELEASE search_index")
            self._stale = True
            self._db.execute(f"UPDATE {self._state} SET stale = ?", (f"{type(error).__name__}: {error}",))
        else:
            self._db.execute("RELEASE search_index")
