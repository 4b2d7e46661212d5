"""The log: one SQLite file that is only ever appended to, and the reads and writes it offers.

`Log` knows envelopes and chains, not the library that decisions come through; recorders.py puts
the library's interfaces over it. One class over 400 lines: what may be written to the file, and what
is read of it, is to be seen in one place.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from ..domain.errors import FileReplaced, LogDamaged, RuleBroken
from ..domain.events import Recorded
from .clock import now_us
from .codec import payload_hash, unpack
from .envelope import ENVELOPE, all_recorded
from .envelope import recorded as recorded
from .foreign import refuse_no_log
from .log_schema import TITLE, LogIdentity, ensure_log, identity, link, stored_name
from .log_values import Condition as Condition
from .log_values import Conflict as Conflict
from .log_values import Draft as Draft
from .log_values import Head as Head
from .log_values import Masked as Masked
from .log_values import Written as Written
from .log_values import default_actor as default_actor
from .sqlite import (
    BUSY_TIMEOUT_MS,
    LOG_WAL_PAGES,
    READ_WRITE,
    Patience,
    ThreadLocal,
    bound_wal,
    connect,
    connect_reader,
    one,
    translated,
)

_INSERT = "INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_GENESIS = "session_created."
DAMAGE_NOTE = "events.damage"
"""Beside the log where verify found it damaged; see known_damage.py."""


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
        self._named = os.fspath(path)
        self.read_only = read_only
        self.actor = default_actor(actor)
        self._synchronous = synchronous
        self.damaged: tuple[tuple[int, int], ...] = ()
        """Runs of events that are known to be unreadable: while there are any, nothing is written."""
        self._damage_note = os.fspath(path.with_name(DAMAGE_NOTE))
        self.saves = 0
        """How often events were committed here."""
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
        with translated(self._named):
            connection = connect_reader(self.path, cut_off=True)
            connection.pragma("query_only", 1)
        return connection

    def reader(self) -> apsw.Connection:
        """This thread's read-only connection."""
        return self._readers.get()

    def _write_connection(self) -> apsw.Connection:
        if self._writer is None:
            connection = connect(self.path, flags=READ_WRITE)
            connection.pragma("synchronous", self._synchronous)
            connection.pragma("secure_delete", 1)
            bound_wal(connection, LOG_WAL_PAGES)
            self._patience = Patience(connection)
            connection.pragma("foreign_keys", 0)
            self._writer = connection
        return self._writer

    def _stat(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._named)
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
            with translated(self._named):
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
        if os.path.exists(self._damage_note):
            from .known_damage import refuse_known

            refuse_known(self)
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
        return list(self.write(drafts, actor=actor, condition=condition).positions)

    def write(
        self,
        drafts: Sequence[Draft],
        *,
        actor: str | None = None,
        condition: Condition | None = None,
    ) -> Written:
        """`append`, for who goes on with what was saved."""
        with self.transaction() as connection:
            written = self.append_within(connection, drafts, actor=actor, condition=condition)
        self.remember(written)
        self.notify()
        return written

    def remember(self, written: Written) -> None:
        """Keep what `append_within` learned, once it is committed: a rolled back id may be reused."""
        self.saves += 1
        if written.learned:
            self._stream_ids.update(written.learned)

    def append_within(
        self,
        connection: apsw.Connection,
        drafts: Sequence[Draft],
        *,
        actor: str | None = None,
        condition: Condition | None = None,
    ) -> Written:
        """`append` inside a transaction that is open; what it returns is to be remembered after it."""
        if condition is not None:
            self._hold(connection, condition)
        last = self._head(connection)
        if not drafts:
            return Written(last, last, ())
        save, chain = last.position + 1, last.chain
        recorded_at_us = now_us()
        who = actor or self.actor
        learned: dict[str, int] = {}
        rows: list[tuple[Any, ...]] = []
        told: list[tuple[Any, ...]] = []
        for position, draft in enumerate(drafts, save):
            name, stream = draft.stream, self._stream_ids.get(draft.stream) or learned.get(draft.stream)
            if name.startswith(TITLE):
                name = self._title(connection, draft)
                stream = self._intern(connection, name, draft)
            at_us = recorded_at_us if draft.at_us is None else draft.at_us
            when = draft.topic, at_us, draft.at_kind, recorded_at_us, who, draft.caused_by, save
            refs = draft.source_ref, draft.idempotency_key
            chain = link(chain, (position, name, draft.version, *when, *refs, draft.payload_hash))
            if stream is None:
                stream = learned[name] = self._intern(connection, name, draft)
            hashes = draft.salt, draft.payload_hash, chain
            rows.append((position, stream, draft.version, *when, *refs, *hashes, draft.payload))
            told.append((position, name, draft.version, *when, draft.source_ref, draft.payload))
        connection.executemany(_INSERT, rows)
        return Written(last, Head(save + len(rows) - 1, chain), told, learned)

    def _title(self, connection: apsw.Connection, draft: Draft) -> str:
        """The name under which a title's stream stands: one that nobody can guess the title from."""
        name = stored_name(connection, draft.stream)
        if name != draft.stream or one(connection, "SELECT 1 FROM streams WHERE name = ?", (name,)):
            return name
        if draft.version != 1:
            raise Conflict("the title was forgotten since the decision read who bears it")
        name = f"{TITLE}{os.urandom(16).hex()}"
        connection.execute("INSERT INTO aliases VALUES (?, ?)", (draft.stream, name))
        return name

    def _intern(self, connection: apsw.Connection, name: str, draft: Draft) -> int:
        found = one(connection, "SELECT id FROM streams WHERE name = ?", (name,))
        if found is None:
            if name.startswith("session:") and not draft.topic.startswith(_GENESIS):
                raise RuleBroken(
                    f"{draft.stream} cannot begin with {draft.topic}: first comes a session's creation",
                    hint="create the session first; nothing was written",
                )
            connection.execute("INSERT INTO streams (name) VALUES (?)", (name,))
            found = connection.last_insert_rowid()
        return int(found)

    def _hold(self, connection: apsw.Connection, condition: Condition) -> None:
        for column, wanted, of in (
            ("stream", condition.streams, "SELECT id FROM streams WHERE name"),
            ("topic", condition.topics, None),
        ):
            if not wanted:
                continue
            if of is not None:
                wanted = tuple(stored_name(connection, each) for each in wanted)
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
        *drafts: Draft,
        masked: Mapping[int, Masked] | None = None,
        titles: Sequence[str] = (),
        actor: str | None = None,
        condition: Condition | None = None,
    ) -> list[int]:
        """Empty payloads and salts and write `drafts`, which name them, in one save.

        What is `masked` gets another payload instead of none. Snapshots go, since they may hold the text.
        No title leads to the streams named in `titles` any more.

        Returns the positions of the drafts. The bytes stay in the WAL until `empty_wal`.

        Raises:
            Conflict: a draft's version is taken, or `condition` does not hold; nothing was emptied.
        """
        with self.transaction() as connection:
            written = self.append_within(connection, drafts, actor=actor, condition=condition)
            connection.executemany(
                "UPDATE events SET payload = NULL, salt = NULL WHERE position = ?",
                [(position,) for position in positions],
            )
            connection.executemany(
                "UPDATE events SET payload = ?, salt = ? WHERE position = ?",
                [(each.payload, each.salt, position) for position, each in (masked or {}).items()],
            )
            connection.executemany("DELETE FROM aliases WHERE name = ?", [(each,) for each in titles])
            connection.execute("DELETE FROM snapshots")
        self.remember(written)
        self.notify()
        return list(written.positions)

    def is_masked(self, position: int) -> bool:
        """Whether another payload stands there than the one that was hashed when it was written."""
        with translated(self._named):
            row = (
                self.reader()
                .execute("SELECT payload, salt, payload_hash FROM events WHERE position = ?", (position,))
                .fetchone()
            )
        if row is None or row[0] is None or row[1] is None:
            return False
        return bool(payload_hash(unpack(row[0]), row[1]) != row[2])

    def empty_wal(self, *, wait_ms: int = BUSY_TIMEOUT_MS) -> bool:
        """Fold the WAL into the file and empty it; False where a reader still needs it after `wait_ms`."""
        with self._writing, translated(self._named):
            connection = self._write_connection()
            self._patience.limit_ms = wait_ms
            one(connection, "PRAGMA schema_version")  # who has read nothing does not know of the WAL
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.BusyError:
                return False
            finally:
                self._patience.limit_ms = BUSY_TIMEOUT_MS
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
            with translated(self._named):
                return self._head(self.reader())
        except (LogDamaged, TypeError):
            from .past_damage import last_position

            with translated(self._named):
                return Head(last_position(self.reader()), b"")

    def chain_at(self, position: int) -> bytes | None:
        """The chain value at `position`, or None where there is no such event."""
        if position == 0:
            return self.identity.genesis
        with translated(self._named):
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
            bound.append(stored_name(self.reader(), stream))
        if topics:
            where.append(f"e.topic IN ({','.join('?' * len(topics))})")
            bound.extend(topics)
        bound.append(limit)
        sql = f"{ENVELOPE} WHERE {' AND '.join(where)} ORDER BY e.position LIMIT ?"
        with translated(self._named):
            rows = self.reader().execute(sql, bound).fetchall()
        return all_recorded(rows)

    def stream_events(self, stream: str, *, after: int = 0, without_messages: bool = False) -> list[Recorded]:
        """The events of one stream after version `after`; `without_messages` costs nothing per message."""
        skip = " AND e.topic <> 'message_appended.1'" if without_messages else ""
        sql = (
            f"{ENVELOPE} WHERE e.stream = (SELECT id FROM streams WHERE name = ?) AND e.version > ?{skip}"
            " ORDER BY e.version"
        )
        with translated(self._named):
            rows = self.reader().execute(sql, (stored_name(self.reader(), stream), after)).fetchall()
        return all_recorded(rows)

    def stream_version(self, stream: str) -> int:
        """The last version in `stream`, 0 for none."""
        with translated(self._named):
            found = one(
                self.reader(),
                "SELECT max(version) FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?)",
                (stored_name(self.reader(), stream),),
            )
        return int(found or 0)

    def by_idempotency_key(self, stream: str, key: bytes) -> Recorded | None:
        """The event of `stream` that was saved under this key."""
        sql = f"{ENVELOPE} WHERE e.stream = (SELECT id FROM streams WHERE name = ?) AND e.idempotency_key = ?"
        with translated(self._named):
            row = self.reader().execute(sql, (stored_name(self.reader(), stream), key)).fetchone()
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
