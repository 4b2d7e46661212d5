"""The log: one SQLite file that is only ever appended to, and the reads and writes it offers.

`Log` knows envelopes and chains, not the library that decisions come through; recorders.py puts
the library's interfaces over it. One class over 400 lines: what may be written to the file, and what
is read of it, is to be seen in one place.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from ..domain.errors import FileReplaced, LogDamaged, RuleBroken
from ..domain.events import Recorded
from .clock import now_us
from .envelope import ENVELOPE
from .envelope import recorded as recorded
from .foreign import refuse_no_log
from .log_schema import LogIdentity, ensure_log, identity, link
from .log_values import Condition as Condition
from .log_values import Conflict as Conflict
from .log_values import Draft as Draft
from .log_values import Head as Head
from .log_values import default_actor as default_actor
from .sqlite import BUSY_TIMEOUT_MS, READ_WRITE, ThreadLocal, connect, connect_reader, one, translated

_INSERT = "INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_GENESIS = "session_created."


class Log:
    """events.db, open.

    One connection writes, under a lock of this process and SQLite's own between processes; each
    thread reads on its own. Durable on return: `synchronous=FULL` syncs the WAL before COMMIT
    answers (https://sqlite.org/pragma.html#pragma_synchronous).
    """

    def __init__(
        self, path: Path, *, read_only: bool = False, synchronous: str = "FULL", actor: str = "cli"
    ) -> None:
        """Open `path`, making the log where there is none unless `read_only`.

        Raises:
            NoSuchHome: `read_only` and there is no log. BadUsage: the folder is a file, or Hermes'.
            LogDamaged, NeedsUpgrade, NoRoom, StoreBusy.
        """
        self.path = path
        self.read_only = read_only
        self.actor = default_actor(actor)
        self._synchronous = synchronous
        self.damaged: tuple[tuple[int, int], ...] = ()
        """Runs of events that are known to be unreadable: while there are any, nothing is written."""
        if read_only:
            refuse_no_log(path)
        else:
            ensure_log(path)
        self._readers = ThreadLocal(self._open_reader)
        self._writing = threading.RLock()
        self._writer: apsw.Connection | None = None
        self._stream_ids: dict[str, int] = {}
        self._listeners: set[threading.Event] = set()
        self._inode = self._stat()
        with translated(str(path)):
            self.identity: LogIdentity = identity(self._readers.get(), path)

    # --- opening and closing -----------------------------------------------------------------------

    def _open_reader(self) -> apsw.Connection:
        with translated(str(self.path)):
            connection = connect_reader(self.path, cut_off=True)
            connection.pragma("query_only", 1)
            connection.pragma("mmap_size", 1 << 26)  # what is mapped counts as memory
        return connection

    def reader(self) -> apsw.Connection:
        """This thread's read-only connection."""
        return self._readers.get()

    def _write_connection(self) -> apsw.Connection:
        if self._writer is None:
            connection = connect(self.path, flags=READ_WRITE)
            connection.pragma("synchronous", self._synchronous)
            connection.pragma("secure_delete", 1)
            connection.pragma("foreign_keys", 0)
            self._writer = connection
        return self._writer

    def _stat(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def close(self) -> None:
        """Close every connection; the writer, last out, folds the WAL into the file."""
        self._readers.close()
        with self._writing:
            if self._writer is not None:
                with contextlib.suppress(apsw.Error):
                    self._writer.close()
                self._writer = None

    # --- writing -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """A write transaction: IMMEDIATE, committed on leaving, rolled back on any error.

        Raises:
            FileReplaced: another file stands where this one was opened; nothing was written.
            LogDamaged: the log holds events that cannot be read.
            Conflict: a uniqueness was violated. StoreBusy, NoRoom.
        """
        with self._writing:
            if self._stat() != self._inode:
                raise FileReplaced(
                    f"{self.path} was moved, removed or replaced while it was open; nothing was written",
                    hint="start the command again on the file that is there now",
                )
            self._refuse_damaged()
            with translated(str(self.path)):
                connection = self._write_connection()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException as error:
                    with contextlib.suppress(apsw.Error):
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
                    if isinstance(error, apsw.ConstraintError):
                        raise Conflict(str(error)) from error
                    raise

    def note_damage(self, runs: Iterable[tuple[int, int]]) -> None:
        """Events, first to last of each run, that were found unreadable."""
        from .past_damage import merged

        self.damaged = merged((*self.damaged, *runs), ())

    def _refuse_damaged(self) -> None:
        if not self.damaged:
            return
        from .past_damage import readable, told

        self.damaged = tuple(run for run in self.damaged if not readable(self, run[0]))
        if self.damaged:
            raise LogDamaged(
                f"{self.path} is damaged at {told(self.damaged)}; nothing was written",
                hint="see what is lost with retold verify, and restore a backup of events.db",
            )

    def append(
        self,
        drafts: Sequence[Draft],
        *,
        actor: str | None = None,
        condition: Condition | None = None,
    ) -> list[int]:
        """Write `drafts` as one save and return their positions; durable on return.

        Raises:
            Conflict: a version or an idempotency key is taken, or `condition` does not hold.
            FileReplaced, StoreBusy, NoRoom, LogDamaged: nothing was written.
        """
        with self.transaction() as connection:
            positions, learned = self.append_within(connection, drafts, actor=actor, condition=condition)
        self.remember(learned)
        self.notify()
        return positions

    def remember(self, stream_ids: dict[str, int]) -> None:
        """Keep what `append_within` learned, once it is committed: a rolled back id may be reused."""
        self._stream_ids.update(stream_ids)

    def append_within(
        self,
        connection: apsw.Connection,
        drafts: Sequence[Draft],
        *,
        actor: str | None = None,
        condition: Condition | None = None,
    ) -> tuple[list[int], dict[str, int]]:
        """`append` inside a transaction that is open; also returns stream ids to remember after it."""
        if condition is not None:
            self._hold(connection, condition)
        if not drafts:
            return [], {}
        last = self._head(connection)
        save, chain = last.position + 1, last.chain
        recorded_at_us = now_us()
        who = actor or self.actor
        learned: dict[str, int] = {}
        rows: list[tuple[Any, ...]] = []
        for position, draft in enumerate(drafts, save):
            at_us = recorded_at_us if draft.at_us is None else draft.at_us
            chain = link(
                chain,
                (
                    position,
                    draft.stream,
                    draft.version,
                    draft.topic,
                    at_us,
                    draft.at_kind,
                    recorded_at_us,
                    who,
                    draft.caused_by,
                    save,
                    draft.source_ref,
                    draft.idempotency_key,
                    draft.payload_hash,
                ),
            )
            stream = self._stream_ids.get(draft.stream) or learned.get(draft.stream)
            if stream is None:
                stream = learned[draft.stream] = self._intern(connection, draft)
            rows.append(
                (
                    position,
                    stream,
                    draft.version,
                    draft.topic,
                    at_us,
                    draft.at_kind,
                    recorded_at_us,
                    who,
                    draft.caused_by,
                    save,
                    draft.source_ref,
                    draft.idempotency_key,
                    draft.salt,
                    draft.payload_hash,
                    chain,
                    draft.payload,
                )
            )
        connection.executemany(_INSERT, rows)
        return list(range(save, save + len(rows))), learned

    def _intern(self, connection: apsw.Connection, draft: Draft) -> int:
        found = one(connection, "SELECT id FROM streams WHERE name = ?", (draft.stream,))
        if found is None:
            if draft.stream.startswith("session:") and not draft.topic.startswith(_GENESIS):
                raise RuleBroken(
                    f"{draft.stream} cannot begin with {draft.topic}: first comes a session's creation",
                    hint="create the session first; nothing was written",
                )
            connection.execute("INSERT INTO streams (name) VALUES (?)", (draft.stream,))
            found = connection.last_insert_rowid()
        return int(found)

    def _hold(self, connection: apsw.Connection, condition: Condition) -> None:
        for column, wanted, of in (
            ("stream", condition.streams, "SELECT id FROM streams WHERE name"),
            ("topic", condition.topics, None),
        ):
            if not wanted:
                continue
            marks = ",".join("?" * len(wanted))
            chosen = f"{of} IN ({marks})" if of else marks
            moved = one(
                connection,
                f"SELECT position FROM events WHERE position > ? AND {column} IN ({chosen}) LIMIT 1",
                (condition.position, *wanted),
            )
            if moved is not None:
                raise Conflict(f"what the decision read has moved: event #{moved}")

    def erase(
        self,
        positions: Sequence[int],
        draft: Draft,
        *,
        actor: str | None = None,
        condition: Condition | None = None,
    ) -> int:
        """Empty the payloads and salts at `positions` and write `draft` (which names them) in one save.

        Returns its position. The bytes stay in the WAL until `empty_wal`.

        Raises:
            Conflict: `draft`'s version is taken, or `condition` does not hold; nothing was emptied.
        """
        with self.transaction() as connection:
            placed, learned = self.append_within(connection, [draft], actor=actor, condition=condition)
            connection.executemany(
                "UPDATE events SET payload = NULL, salt = NULL WHERE position = ?",
                [(position,) for position in positions],
            )
        self.remember(learned)
        self.notify()
        return placed[0]

    def empty_wal(self, *, wait_ms: int = BUSY_TIMEOUT_MS) -> bool:
        """Fold the WAL into the file and empty it; False where a reader still needs it after `wait_ms`."""
        with self._writing, translated(str(self.path)):
            connection = self._write_connection()
            connection.set_busy_timeout(wait_ms)
            one(connection, "PRAGMA schema_version")  # who has read nothing does not know of the WAL
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.BusyError:
                return False
            finally:
                connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        return True

    # --- reading -----------------------------------------------------------------------------------

    def _head(self, connection: apsw.Connection) -> Head:
        row = connection.execute(
            "SELECT position, chain FROM events ORDER BY position DESC LIMIT 1"
        ).fetchone()
        return Head(0, self.identity.genesis) if row is None else Head(row[0], bytes(row[1]))

    def head(self) -> Head:
        """The last event's position and chain value; no chain value where the end cannot be read."""
        try:
            with translated(str(self.path)):
                return self._head(self.reader())
        except (LogDamaged, TypeError):
            from .past_damage import last_position

            with translated(str(self.path)):
                return Head(last_position(self.reader()), b"")

    def chain_at(self, position: int) -> bytes | None:
        """The chain value at `position`, or None where there is no such event."""
        if position == 0:
            return self.identity.genesis
        with translated(str(self.path)):
            found = one(self.reader(), "SELECT chain FROM events WHERE position = ?", (position,))
        return None if found is None else bytes(found)

    def read(
        self,
        after: int = 0,
        *,
        limit: int = 4096,
        upto: int | None = None,
        stream: str | None = None,
        topics: Sequence[str] = (),
    ) -> list[Recorded]:
        """At most `limit` events after position `after`, oldest first, decoded.

        Raises:
            LogDamaged: an event cannot be read or decoded; names its position.
        """
        where, values = ["e.position > ?"], [after]
        bound: list[Any] = list(values)
        if upto is not None:
            where.append("e.position <= ?")
            bound.append(upto)
        if stream is not None:
            where.append("e.stream = (SELECT id FROM streams WHERE name = ?)")
            bound.append(stream)
        if topics:
            where.append(f"e.topic IN ({','.join('?' * len(topics))})")
            bound.extend(topics)
        bound.append(limit)
        sql = f"{ENVELOPE} WHERE {' AND '.join(where)} ORDER BY e.position LIMIT ?"
        with translated(str(self.path)):
            rows = self.reader().execute(sql, bound).fetchall()
        return [recorded(row) for row in rows]

    def stream_events(self, stream: str, *, without_messages: bool = False) -> list[Recorded]:
        """Every event of one stream by version; `without_messages` costs nothing per message."""
        skip = " AND e.topic <> 'message_appended.1'" if without_messages else ""
        sql = f"{ENVELOPE} WHERE e.stream = (SELECT id FROM streams WHERE name = ?){skip} ORDER BY e.version"
        with translated(str(self.path)):
            rows = self.reader().execute(sql, (stream,)).fetchall()
        return [recorded(row) for row in rows]

    def stream_version(self, stream: str) -> int:
        """The last version in `stream`, 0 for none."""
        with translated(str(self.path)):
            found = one(
                self.reader(),
                "SELECT max(version) FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?)",
                (stream,),
            )
        return int(found or 0)

    def by_idempotency_key(self, stream: str, key: bytes) -> Recorded | None:
        """The event of `stream` that was saved under this key."""
        sql = f"{ENVELOPE} WHERE e.stream = (SELECT id FROM streams WHERE name = ?) AND e.idempotency_key = ?"
        with translated(str(self.path)):
            row = self.reader().execute(sql, (stream, key)).fetchone()
        return None if row is None else recorded(row)

    # --- who waits for news ------------------------------------------------------------------------

    def listen(self, event: threading.Event) -> None:
        """Set `event` after each save of this process."""
        self._listeners.add(event)

    def unlisten(self, event: threading.Event) -> None:
        """No longer."""
        self._listeners.discard(event)

    def notify(self) -> None:
        """Wake whoever listens."""
        for each in tuple(self._listeners):
            each.set()
