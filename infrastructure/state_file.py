"""state.db: a pointer to the generation of the projections' file that is in use.

A file that others may hold is never replaced or truncated: a new file under a live WAL is
malformed at the next open. So `state.db` is a symbolic link to `state.N.db`, and a file that turns
out damaged is left where it lies while the link is moved to the next generation. A sound file whose
every projection was told again in the next one is unlinked: no later file ever bears its name, and
who has it open reads on and goes over with the next connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from ..domain.errors import NoRoom, ProjectionDamaged
from .foreign import STATE_APPLICATION_ID
from .old_generations import left_behind, remove_left_behind
from .sqlite import READ_WRITE, Patience, ThreadLocal, bound_wal, connect, connect_reader, one, translated

APPLICATION_ID = STATE_APPLICATION_ID
NAME = "state.db"
CACHE_KIB = 16_384
"""Of each reader: what most queries touch again fits in."""
BESIDE = "state.beside"
"""The link to a file that is being filled and that nobody reads yet."""
LOCK = "state.lock"
_GENERATION = re.compile(r"state\.(?:replaced\.)?(\d+)\.db(?:-journal|-wal|-shm)?")

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
    passed_over TEXT NOT NULL DEFAULT '[]',
    unicode TEXT NOT NULL DEFAULT ''
) STRICT
"""


_DAMAGED = f"the projections in {NAME} are damaged: "


def damaged(detail: str) -> ProjectionDamaged:
    """state.db cannot be read."""
    return ProjectionDamaged(
        f"{_DAMAGED}{detail}",
        hint="the log is untouched; tell them again with: retold projections rebuild",
    )


def detail_of(error: ProjectionDamaged) -> str:
    """What was wrong, without the words around it."""
    return error.message.removeprefix(_DAMAGED)


class StateFile:
    """The projections' file of a home, open.

    Another process may begin a new generation at any time; whoever asks for a connection afterwards
    gets one to that. A snapshot that is being read goes on.
    """

    def __init__(self, home: Path, *, as_found: bool = False, name: str = NAME) -> None:
        """Open the file of `home`, beginning it where there is none that can be read.

        Args:
            as_found: only look: whatever is wrong with it stays so.
            name: the link to it.
        """
        self.home = home
        self.link = home / name
        self.named = os.fspath(self.link)
        self.read_only = as_found or not os.access(home, os.W_OK)
        self._opened: tuple[int, int] | None = None
        self._writer: apsw.Connection | None = None
        self._written: tuple[int, int] | None = None
        """The file that the writer writes, which may not be the one that is read by now."""
        self._readers = ThreadLocal(self._open_cached)
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
            found = os.stat(self.named)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _ensure(self) -> None:
        if self.there() and self.problem() is None:
            if self.link.name == NAME and left_behind(self.link):
                with self._alone():
                    remove_left_behind(self.link)
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
                if self.link.name == BESIDE:  # whoever was killed at it may have left a journal to take back
                    connection = connect(self.path, flags=READ_WRITE)
                else:
                    connection = connect_reader(self.path)
                try:
                    if one(connection, "PRAGMA application_id") != APPLICATION_ID:
                        return "it is not a file of projections"
                    connection.execute("SELECT projection, unicode FROM checkpoints").fetchall()
                    begun = one(connection, "PRAGMA user_version")
                    if begun and self.link.name == BESIDE and begun != since_start():
                        return "it was being filled when the machine stopped"
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
        for link in (NAME, BESIDE):
            with contextlib.suppress(OSError):
                names.append(os.readlink(self.home / link))
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
        """Go over to the generation that the link leads to now.

        A thread that still reads the one before holds its connection, which is closed once it lets go.
        """
        if not self.read_only:
            self._ensure()
        self._opened = self._stat()
        self._readers = ThreadLocal(self._open_cached)

    def beside(self) -> StateFile:
        """A file to tell every projection in, beside this one: a new one, or what was begun before."""
        file = StateFile(self.home, name=BESIDE)
        with translated(str(file.link), damaged):
            db = file.writer()
            # Read by nobody yet, so what is written need not go through a WAL first.
            db.pragma("journal_mode", "truncate")
            running = since_start()
            if running is not None:
                # A kill leaves the journal to take back; after a power cut the file is begun anew.
                db.pragma("user_version", running)
                db.pragma("synchronous", "OFF")
        return file

    def go_over(self) -> None:
        """Make this file, filled beside the one in use, the one in use, and close it.

        The caller holds the other's write lock, and calls `leave` with its path afterwards.
        """
        with translated(str(self.link), damaged):
            self.writer().pragma("user_version", 0)
            self.writer().pragma("journal_mode", "wal")
        self.close()  # first: closing any handle of a file drops the locks that SQLite has on it
        _sync(self.path)
        with self._alone(), _forbidden(self.home):
            os.replace(self.link, self.home / NAME)
            _sync(self.home)

    def drop_beside(self) -> None:
        """Remove what was begun beside the file in use; the caller holds the lock of rebuilds."""
        self.close()
        link = self.home / BESIDE
        if link.is_symlink():
            self.leave(link.resolve())
            link.unlink()

    def leave(self, path: Path) -> None:
        """Unlink a file that the link no longer leads to; what nobody has open any more is gone with it."""
        for suffix in ("", "-journal", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    # --- connections -------------------------------------------------------------------------------

    def _open_cached(self) -> apsw.Connection:
        """Not mapped: whoever reads a mapped file that somebody cuts short is killed (SIGBUS).

        With this cache nothing is slower for it, and a command that reads once is a tenth faster: see
        docs/performance.md.
        """
        connection = self.open_reader()
        connection.pragma("cache_size", -CACHE_KIB)
        return connection

    def open_reader(self) -> apsw.Connection:
        """A read-only connection of the caller's own, whose memory does not grow with the file."""
        with translated(str(self.link), damaged):
            if self.path.is_dir():
                raise damaged("it is a folder")
            connection = self._open(connect_reader)
            connection.pragma("query_only", 1)
        return connection

    def _open(self, opened: Callable[[Path], apsw.Connection]) -> apsw.Connection:
        """Open the file behind the link, which may be unlinked between the look and the opening."""
        while True:
            path = self.path
            try:
                return opened(path)
            except apsw.CantOpenError:
                if self.path == path:
                    raise

    def reader(self) -> apsw.Connection:
        """This thread's read-only connection."""
        if self._stat() != self._opened:
            self._move()
        return self._readers.get()

    def writer(self) -> apsw.Connection:
        """The one connection that writes; the caller holds the projector's lock."""
        now = self._stat()
        if now != self._opened:
            self._move()
            now = self._stat()
        if self._writer is not None and self._written != now:
            self._close_writer()
        if self._writer is None:
            with translated(str(self.link), damaged):
                connection = self._open(lambda path: connect(path, flags=READ_WRITE))
                self._written = now
                connection.pragma("synchronous", "NORMAL")
                connection.pragma("secure_delete", 1)
                bound_wal(connection)
                self.patience = Patience(connection)
                # temp_store stays at files: in memory, dropping a table of a million rows takes 300 MB.
                connection.pragma("cache_size", -65536)
            self._writer = connection
        return self._writer

    def writer_at_hand(self) -> apsw.Connection:
        """`writer` without a look at the link, for who asks `writes_elsewhere` once it has the write lock."""
        return self._writer or self.writer()

    def writes_elsewhere(self) -> bool:
        """Whether the link has left the file that `writer` has open."""
        return self._stat() != self._written

    def close(self) -> None:
        """Close every connection; the writer last, since only it can fold the WAL into the file."""
        self._readers.close()
        self._close_writer()

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(apsw.Error):
                writer.close()


def since_start() -> int | None:
    """A number for the time since the machine was started, not 0; None where it has no name for it.

    Linux: random(4), boot_id.
    """
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return None
    return zlib.crc32(name) & 0x7FFF_FFFF or 1


def _sync(path: Path) -> None:
    """A power cut must not take back a link and leave the unlinking of what it led to."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _forbidden(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NoRoom(
            f"the projections in {home} cannot be written: {error.strerror}",
            hint="free some space or mend the folder's permissions, then try again",
        ) from error
