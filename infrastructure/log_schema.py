"""The log's tables, and making them once however many threads and processes come first."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import apsw
import msgspec

from ..domain.errors import LogDamaged, NeedsUpgrade, NoRoom
from .foreign import refuse_foreign, refuse_lost_log, refuse_no_file, refuse_no_folder, stat_of
from .sqlite import CREATE, READ_ONLY, connect, one, translated

APPLICATION_ID = 0x52544C44
"""'RTLD' in the file's header (https://sqlite.org/pragma.html#pragma_application_id)."""
FORMAT = 2
"""user_version of a log that this program writes. From 2 on the streams of titles bear names that nothing
can be guessed from, and `aliases` leads to them until a title is forgotten."""
TITLE = "title:"
MESSAGE_TOPIC = "message_appended.1"

ALIASES = (
    "CREATE TABLE IF NOT EXISTS aliases (alias TEXT PRIMARY KEY, name TEXT NOT NULL) STRICT, WITHOUT ROWID"
)
TABLES = f"""
{ALIASES};
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE streams (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL,
    version INTEGER NOT NULL,
    topic TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    at_kind INTEGER NOT NULL,
    recorded_at_us INTEGER NOT NULL,
    actor TEXT NOT NULL,
    caused_by INTEGER,
    save INTEGER NOT NULL,
    source_ref BLOB,
    idempotency_key BLOB,
    salt BLOB,
    payload_hash BLOB NOT NULL,
    chain BLOB NOT NULL,
    payload BLOB
) STRICT;
CREATE UNIQUE INDEX events_by_stream ON events (stream, version);
CREATE INDEX events_without_messages ON events (stream, version) WHERE topic <> '{MESSAGE_TOPIC}';
CREATE UNIQUE INDEX events_by_idempotency_key ON events (stream, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE TABLE snapshots (
    originator TEXT NOT NULL, version INTEGER NOT NULL, topic TEXT NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (originator, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE tracking (
    application_name TEXT PRIMARY KEY, notification_id INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

AT_EXACT, AT_NO_LATER, AT_UNSAID = 0, 1, 2
"""`at_kind`: when it happened; by when at the latest; nobody said (the library's stock mapper)."""

_one_at_a_time = threading.Lock()
_pack = msgspec.msgpack.Encoder().encode


class LogIdentity(msgspec.Struct, frozen=True):
    """What never changes in a log file."""

    log_id: str
    secret: bytes

    @property
    def genesis(self) -> bytes:
        """The chain value before the first event; differs from log to log."""
        from hashlib import blake2b

        return blake2b(b"retold log\0" + self.log_id.encode(), digest_size=32).digest()

    def keyed_hash(self, *parts: str | bytes | int) -> bytes:
        """16 bytes that name `parts` without holding them; differs from log to log."""
        from hashlib import blake2b

        return blake2b(_pack(parts), digest_size=16, key=self.secret).digest()


def link(previous: bytes, columns: tuple[object, ...]) -> bytes:
    """The next chain value: BLAKE2b over the previous one and every column but payload and salt.

    MessagePack writes each column with its length or width before it, so no two rows read alike.
    """
    from hashlib import blake2b  # not for those who only read: start-up is imports

    return blake2b(previous + _pack(columns), digest_size=32).digest()


def _create(path: Path) -> None:
    if path.stat().st_size:
        # Looked at before anything is written: the switch to WAL alone would change another's file.
        connection = connect(path, flags=READ_ONLY)
        try:
            if _made(connection, path) and one(connection, "PRAGMA user_version") >= FORMAT:
                return
        finally:
            connection.close()
    connection = connect(path, flags=CREATE)
    try:
        # Switching to WAL ignores the busy timeout, hence the retry around this function (ensure_log).
        connection.pragma("journal_mode", "wal")
        with connection:
            connection.execute("BEGIN IMMEDIATE") if not connection.in_transaction else None
            if _made(connection, path):
                if one(connection, "PRAGMA user_version") < FORMAT:
                    connection.execute(ALIASES)
                    connection.pragma("user_version", FORMAT)
                return
            connection.execute(TABLES)
            connection.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [("log_id", os.urandom(16).hex().encode()), ("secret", os.urandom(32))],
            )
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", FORMAT)
    finally:
        connection.close()


def stored_name(connection: apsw.Connection, stream: str) -> str:
    """The name under which a stream stands; a title's is found by its hash until it is forgotten."""
    if not stream.startswith(TITLE):
        return stream
    try:
        found: str | None = one(connection, "SELECT name FROM aliases WHERE alias = ?", (stream,))
    except apsw.SQLError:  # a log of the first format, to which this program has not written
        return stream
    return found or stream


def _made(connection: apsw.Connection, path: Path) -> bool:
    """Whether it is a log already.

    Raises:
        LogDamaged: it is another program's.
    """
    if one(connection, "PRAGMA application_id") == APPLICATION_ID:
        return True
    if one(connection, "SELECT count(*) FROM sqlite_schema"):
        if one(connection, "PRAGMA application_id") == APPLICATION_ID:
            return True  # another process made it between the two looks
        raise LogDamaged(
            f"{path} is another program's database, not a Retold log", hint="give another folder with --home"
        )
    return False


def ensure_log(path: Path) -> None:
    """Make the log at `path` if there is none; any number of threads and processes may try at once.

    Raises:
        BadUsage: it would stand in a Hermes home.
        LogDamaged: the file is no SQLite database, or another program's; or it is lost.
        StoreBusy, NoRoom: it could not be made now.
    """
    import tenacity  # only where something is written: start-up is imports

    patient = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((apsw.BusyError, apsw.LockedError)),
        wait=tenacity.wait_random(0.005, 0.05),
        stop=tenacity.stop_after_delay(30),
        reraise=True,
    )
    with translated(str(path)), _one_at_a_time:
        refuse_no_folder(path.parent)
        refuse_foreign(path.parent)
        refuse_lost_log(path)
        refuse_no_file(path)
        if stat_of(path) is None:
            try:
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            except OSError as error:
                raise NoRoom(
                    f"{path} cannot be made: {error.strerror}", hint="check the folder's permissions"
                ) from error
        patient(_create, path)


def identity(connection: apsw.Connection, path: Path) -> LogIdentity:
    """Read and check what kind of log `path` is.

    Raises:
        LogDamaged: it is none. NeedsUpgrade: a newer program made it.
    """
    with translated(str(path)):
        if one(connection, "PRAGMA application_id") != APPLICATION_ID:
            raise LogDamaged(
                f"{path} is not a Retold log", hint="restore a backup, or give another folder with --home"
            )
        found = one(connection, "PRAGMA user_version")
        if found > FORMAT:
            raise NeedsUpgrade(
                f"{path} has log format {found}, and this program knows up to {FORMAT}",
                hint="upgrade retold",
            )
        meta = dict(connection.execute("SELECT key, value FROM meta"))
    try:
        return LogIdentity(log_id=bytes(meta["log_id"]).decode(), secret=bytes(meta["secret"]))
    except (KeyError, TypeError, UnicodeDecodeError):
        raise LogDamaged(
            f"{path} has lost what names it (table meta)", hint="restore a backup of it"
        ) from None
