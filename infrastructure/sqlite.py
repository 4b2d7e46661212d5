"""Connections to our own SQLite files, and SQLite's errors as ours. apsw is the only SQLite here.

Two SQLite libraries on one file in one process drop each other's locks, so nothing in this
package imports `sqlite3`, and no live database file is opened by other means.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from ..domain.errors import LogDamaged, NoRoom, RetoldError, StoreBusy

BUSY_TIMEOUT_MS = 10_000
_HARDLY_ANY_BYTES = 1 << 16


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


@contextlib.contextmanager
def translated(what: str, damaged: Callable[[str], RetoldError] | None = None) -> Iterator[None]:
    """apsw's errors as ours; `what` names the file in the message.

    Raises:
        StoreBusy: locked longer than the busy timeout.
        NoRoom: the disk is full, or the file or folder cannot be written.
        LogDamaged (or what `damaged` makes): the file is not what SQLite expects.
    """
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreBusy(
            f"{what} stayed locked by another process: {error}",
            hint="try again; nothing was written",
        ) from error
    except apsw.FullError as error:
        raise NoRoom(f"no room to write {what}: {error}", hint="free some space and try again") from error
    except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError) as error:
        raise NoRoom(
            f"{what} cannot be opened or written: {error}",
            hint="check the folder's permissions; nothing was written",
        ) from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        if damaged is None:
            raise LogDamaged(
                f"{what} is damaged: {error}", hint="restore a backup of it; nothing was written"
            ) from error
        raise damaged(str(error)) from error
    except apsw.IOError as error:
        if _is_full(what):
            raise NoRoom(
                f"there is no room to open or write {what}: {error}", hint="free some space and try again"
            ) from error
        raise NoRoom(f"{what} could not be read or written: {error}", hint="check the disk") from error


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
