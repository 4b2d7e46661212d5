"""Connections to our own SQLite files, and SQLite's errors as ours. apsw is the only SQLite here.

Two SQLite libraries on one file in one process drop each other's locks, so nothing in this
package imports `sqlite3`, and no live database file is opened by other means.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from ..domain.errors import LogDamaged, NoRoom, RetoldError, StoreBusy

BUSY_TIMEOUT_MS = 10_000
WAL_PAGES = 8_000
"""Of a WAL that is folded into its file."""
LOG_WAL_PAGES = 2_000
WAL_BYTES = WAL_PAGES * 4_152
"""What is left of a WAL that a reader had kept from being folded: so many pages, each with its header."""
_HARDLY_ANY_BYTES = 1 << 16
_SHORT_TURNS = 200


def uri(path: Path, **params: str) -> str:
    """A SQLite URI for any file name (`?`, `#`, `%` and spaces included)."""
    query = "&".join(f"{name}={value}" for name, value in params.items())
    return f"file:{quote(str(path.absolute()))}" + (f"?{query}" if query else "")


def connect(
    path: Path, *, flags: int, busy_timeout_ms: int = BUSY_TIMEOUT_MS, **params: str
) -> apsw.Connection:
    """Open `path`; `params` are URI parameters such as immutable="1"."""
    connection = apsw.Connection(uri(path, **params), flags=flags | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(busy_timeout_ms)
    return connection


class Patience:
    """Waits for a lock that another connection holds: in short turns of random length, so that many who
    wait have the same chance.

    SQLite's own waiting sleeps 50 ms and then 100 ms at a time, and whoever has waited long is
    passed by those who have just come: of eight writers some waited for over a second
    (tests/bench/bench_f_processes.py).
    """

    def __init__(self, connection: apsw.Connection, limit_ms: int = BUSY_TIMEOUT_MS) -> None:
        self.limit_ms = limit_ms
        self._until_s = 0.0
        connection.set_busy_handler(self)

    def __call__(self, tries: int) -> bool:
        """Wait a turn; False where the limit is reached."""
        now_s = time.monotonic()
        if tries == 0:
            self._until_s = now_s + self.limit_ms / 1000
        if now_s >= self._until_s:
            return False
        time.sleep(random.uniform(0.0005, 0.003 if tries < _SHORT_TURNS else 0.01))  # noqa: S311
        return True


def bound_wal(connection: apsw.Connection, pages: int | None = None) -> None:
    """For a connection that writes: fold the WAL into the file seldom, and never keep a large one.

    Every fold syncs both files, and whoever writes next waits for it: by SQLite's default that is one in some
    170 messages (tests/bench/bench_a_append.py). But a WAL that is synced with each save should soon begin
    anew: to sync a file that grows takes ten times as long.
    """
    connection.execute(f"PRAGMA wal_autocheckpoint = {pages or WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")


def connect_reader(path: Path, *, cut_off: bool = False) -> apsw.Connection:
    """Open `path` for reading, also where nothing can be written beside it.

    Args:
        cut_off: also where the file is shorter than it says.
    """
    folder_is_fixed = not os.access(path.parent, os.W_OK)
    # In a folder that cannot be written, a database without a WAL is read so or not at all.
    if folder_is_fixed and not has_wal(path):
        return connect(path, flags=READ_ONLY, immutable="1")
    connection = connect(path, flags=READ_ONLY)
    try:
        one(connection, "PRAGMA schema_version")
    except (apsw.FullError, apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
        if has_wal(path):
            raise
        # No room for the index of a WAL that is empty. Who else has the file open would have made it.
        connection = connect(path, flags=READ_ONLY, immutable="1")
    except apsw.CorruptError:
        if not cut_off:
            connection.close()
            raise
        # A file that is shorter than it says is refused whole, unless one asks as for a salvage.
        connection.pragma("writable_schema", 1)
    return connection


NOT_THE_FOLDS = (
    apsw.BusyError,
    apsw.FullError,
    apsw.IOError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.ReadOnlyError,
    apsw.NoMemError,
    MemoryError,
)
"""What a fold may meet that is the file's or the machine's trouble and not its own."""
READ_ONLY = apsw.SQLITE_OPEN_READONLY
READ_WRITE = apsw.SQLITE_OPEN_READWRITE
CREATE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class translated:  # noqa: N801  # a statement of `with`; as a generator it takes a tenth of an append's time
    """apsw's errors as ours; `what` names the file in the message.

    Raises:
        StoreBusy: locked longer than the busy timeout.
        NoRoom: the disk is full, or the file or folder cannot be written.
        LogDamaged (or what `damaged` makes): the file is not what SQLite expects, or a text in it is
            no UTF-8.
    """

    __slots__ = ("_damaged", "_what")

    def __init__(self, what: str, damaged: Callable[[str], RetoldError] | None = None) -> None:
        self._what = what
        self._damaged = damaged

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        ours = _ours(self._what, self._damaged, error)
        if ours is not None:
            raise ours from error


def _ours(
    what: str, damaged: Callable[[str], RetoldError] | None, error: BaseException
) -> RetoldError | None:
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(
                f"{what} stayed locked by another process: {error}",
                hint="try again; nothing was written",
            )
        case apsw.FullError():
            return NoRoom(f"no room to write {what}: {words(error)}", hint=_FREE)
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return NoRoom(
                f"{what} cannot be opened or written: {error}",
                hint="check the folder's permissions; nothing was written",
            )
        case apsw.CorruptError() | apsw.NotADBError():
            return damaged(str(error)) if damaged else _log_damaged(what, str(error))
        case UnicodeDecodeError():  # SQLite stores a text as it comes and never looks into it
            detail = f"a text in it is no UTF-8 ({error.reason})"
            return damaged(detail) if damaged else _log_damaged(what, detail)
        case apsw.IOError() if _is_full(what):
            return NoRoom(f"there is no room to open or write {what}: {error}", hint=_FREE)
        case apsw.IOError():
            return NoRoom(f"{what} could not be read or written: {error}", hint="check the disk")
        case _:
            return None


def words(error: apsw.Error) -> str:
    """What an error says; a copy that fails says "not an error" where the disk is full."""
    said = str(error)
    if "not an error" not in said:
        return said
    return "the disk is full" if isinstance(error, apsw.FullError) else type(error).__name__


_FREE = "nothing was written; free some space and try again"


def _log_damaged(what: str, detail: str) -> LogDamaged:
    return LogDamaged(f"{what} is damaged: {detail}", hint="restore a backup of it; nothing was written")


def _is_full(what: str) -> bool:
    try:
        found = os.statvfs(os.path.dirname(what))
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _HARDLY_ANY_BYTES


class ThreadLocal:
    """One connection a thread, all closed together."""

    def __init__(self, make: Callable[[], apsw.Connection]) -> None:
        self._make = make
        self._local = threading.local()
        self._all: list[apsw.Connection] = []
        self._lock = threading.Lock()

    def get(self) -> apsw.Connection:
        """This thread's connection, made when first asked for."""
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._make()
            self._local.connection = connection
            with self._lock:
                self._all.append(connection)
        return connection

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            every, self._all = self._all, []
            self._local = threading.local()
        for connection in every:
            with contextlib.suppress(apsw.Error):
                connection.close()


def one(connection: apsw.Connection, sql: str, values: Any = ()) -> Any:
    """The first column of the first row, or None."""
    row = connection.execute(sql, values).fetchone()
    return None if row is None else row[0]


def has_wal(path: Path) -> bool:
    """Whether a WAL with something in it stands beside the database."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except OSError:
        return False
