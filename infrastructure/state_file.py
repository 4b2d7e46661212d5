"""state.db: a pointer to the generation of the projections' file that is in use.

A file that others may hold is never replaced, truncated or removed: a new file under a live WAL is
malformed at the next open. So `state.db` is a symbolic link to `state.N.db`, and a file that turns
out damaged is left where it lies while the link is moved to the next generation.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

import apsw

from ..domain.errors import NoRoom, ProjectionDamaged
from .foreign import STATE_APPLICATION_ID
from .sqlite import READ_WRITE, ThreadLocal, connect, connect_reader, one, translated

APPLICATION_ID = STATE_APPLICATION_ID
NAME = "state.db"
LOCK = "state.lock"
_GENERATION = re.compile(r"state\.(?:replaced\.)?(\d+)\.db(?:-wal|-shm)?")

CHECKPOINTS = """
CREATE TABLE IF NOT EXISTS checkpoints (
    projection TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    fold_version INTEGER NOT NULL,
    log_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    chain BLOB NOT NULL,
    detached TEXT,
    unknown_topics TEXT NOT NULL DEFAULT '[]',
    passed_over TEXT NOT NULL DEFAULT '[]'
) STRICT
"""


def damaged(detail: str) -> ProjectionDamaged:
    """state.db cannot be read."""
    return ProjectionDamaged(
        f"the projections in {NAME} are damaged: {detail}",
        hint="the log is untouched; tell them again with: retold projections rebuild",
    )


class StateFile:
    """The projections' file of a home, open.

    Another process may begin a new generation at any time; whoever asks for a connection afterwards
    gets one to that. A snapshot that is being read goes on.
    """

    def __init__(self, home: Path, *, as_found: bool = False) -> None:
        """Open the file of `home`, beginning it where there is none that can be read.

        Args:
            as_found: only look: whatever is wrong with it stays so.
        """
        self.home = home
        self.link = home / NAME
        self.read_only = as_found or not os.access(home, os.W_OK)
        self._opened: tuple[int, int] | None = None
        self._writer: apsw.Connection | None = None
        self._readers = ThreadLocal(self._open_mapped)
        self._left: list[ThreadLocal] = []
        """Readers of generations before: another thread may still be reading with them."""
        self.superseded: str | None = None
        """What was wrong with the generation before, if this process had to make a new one."""
        if not self.read_only:
            self._ensure()
        self._opened = self._stat()

    @property
    def path(self) -> Path:
        """The file behind the link."""
        return self.link.resolve()

    # --- generations -------------------------------------------------------------------------------

    def _stat(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.link)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _ensure(self) -> None:
        if self.there() and self.problem() is None:
            return
        with self._alone():
            if not self.there():
                self._next_generation()
                return
            problem = self.problem()
            if problem is not None:
                self.superseded = problem
                self._next_generation()

    def there(self) -> bool:
        """Whether the link leads to something."""
        return self.link.exists()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Threads and processes that find the file missing or damaged make one new generation, not many."""
        with _forbidden(self.home):
            handle = os.open(self.home / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def problem(self) -> str | None:
        """What is wrong with the file, judged by its header and its first pages, or None."""
        if self.path.is_dir():
            return "it is a folder"
        try:
            with translated(str(self.link), damaged):
                connection = connect_reader(self.path)
                try:
                    if one(connection, "PRAGMA application_id") != APPLICATION_ID:
                        return "it is not a file of projections"
                    connection.execute("SELECT projection, passed_over FROM checkpoints").fetchall()
                finally:
                    connection.close()
        except ProjectionDamaged as error:
            return str(error.__cause__)
        except apsw.SQLError as error:
            return str(error)
        return None

    def _next_generation(self) -> None:
        """Make an empty file and lead the link there. The caller holds the lock."""
        number = self._next_number()
        path = self.home / f"state.{number}.db"
        with translated(str(self.link)), _forbidden(self.home):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            connection = connect(path, flags=READ_WRITE)
            try:
                # Before the first table, or never: a rebuild gives back what the old tables took.
                connection.pragma("auto_vacuum", 2)
                connection.pragma("journal_mode", "wal")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(CHECKPOINTS)
                connection.pragma("application_id", APPLICATION_ID)
                connection.execute("COMMIT")
            finally:
                connection.close()
            pointer = self.home / f".state.{os.getpid()}.{number}"
            pointer.unlink(missing_ok=True)
            pointer.symlink_to(path.name)
            if self.link.exists() and not self.link.is_symlink():
                # Somebody put a plain file here; it may be held open, so it keeps its inode.
                self.link.rename(self.home / f"state.replaced.{number}.db")
            os.replace(pointer, self.link)

    def _next_number(self) -> int:
        """One that no file bears, nor did: a WAL that was left behind must never meet a new file."""
        names = [each.name for each in self.home.iterdir()]
        with contextlib.suppress(OSError):
            names.append(os.readlink(self.link))
        return 1 + max((int(m[1]) for name in names if (m := _GENERATION.fullmatch(name))), default=0)

    def supersede(self, problem: str) -> None:
        """Begin a new generation: the file in use cannot be trusted.

        Where another process did so since this one opened the file, its generation is taken.
        """
        with self._alone():
            if self._stat() == self._opened:
                self.superseded = problem
                self._next_generation()
        self._move()

    def _move(self) -> None:
        """Go over to the generation that the link leads to now."""
        if not self.read_only:
            self._ensure()
        self._opened = self._stat()
        self._left.append(self._readers)
        self._readers = ThreadLocal(self._open_mapped)
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(apsw.Error):
                writer.close()

    # --- connections -------------------------------------------------------------------------------

    def _open_mapped(self) -> apsw.Connection:
        connection = self.open_reader()
        connection.pragma("mmap_size", 1 << 26)
        return connection

    def open_reader(self) -> apsw.Connection:
        """A read-only connection of the caller's own, whose memory does not grow with the file."""
        with translated(str(self.link), damaged):
            if self.path.is_dir():
                raise damaged("it is a folder")
            connection = connect_reader(self.path)
            connection.pragma("query_only", 1)
        return connection

    def reader(self) -> apsw.Connection:
        """This thread's read-only connection."""
        if self._stat() != self._opened:
            self._move()
        return self._readers.get()

    def writer(self) -> apsw.Connection:
        """The one connection that writes; the caller holds the projector's lock."""
        if self._stat() != self._opened:
            self._move()
        if self._writer is None:
            with translated(str(self.link), damaged):
                connection = connect(self.path, flags=READ_WRITE)
                connection.pragma("synchronous", "NORMAL")
                connection.pragma("secure_delete", 1)
                # temp_store stays at files: in memory, dropping a table of a million rows takes 300 MB.
                connection.pragma("cache_size", -65536)
            self._writer = connection
        return self._writer

    def close(self) -> None:
        """Close every connection; the writer last, since only it can fold the WAL into the file."""
        for readers in (*self._left, self._readers):
            readers.close()
        self._left.clear()
        if self._writer is not None:
            with contextlib.suppress(apsw.Error):
                self._writer.close()
            self._writer = None


@contextlib.contextmanager
def _forbidden(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NoRoom(
            f"the projections in {home} cannot be written: {error.strerror}",
            hint="free some space or mend the folder's permissions, then try again",
        ) from error
