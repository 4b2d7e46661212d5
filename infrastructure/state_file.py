"""state.db: a pointer to the generation of the projections' file that is in use.

A file that others may hold is never replaced, truncated or removed: a new file under a live WAL is
malformed at the next open. So `state.db` is a symbolic link to `state.N.db`, and a file that turns
out damaged is left where it lies while the link is moved to the next generation.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import apsw

from ..domain.errors import ProjectionDamaged
from .sqlite import CREATE, READ_ONLY, ThreadLocal, connect, one, translated

APPLICATION_ID = 0x52544C53
"""'RTLS' in the file's header."""
NAME = "state.db"
_GENERATION = re.compile(r"state\.(\d+)\.db")

CHECKPOINTS = """
CREATE TABLE IF NOT EXISTS checkpoints (
    projection TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    fold_version INTEGER NOT NULL,
    log_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    chain BLOB NOT NULL,
    detached TEXT,
    unknown_topics TEXT NOT NULL DEFAULT '[]'
) STRICT
"""


def damaged(detail: str) -> ProjectionDamaged:
    """state.db cannot be read."""
    return ProjectionDamaged(
        f"the projections in {NAME} are damaged: {detail}",
        hint="the log is untouched; tell them again with: retold projections rebuild",
    )


class StateFile:
    """The projections' file of a home, open."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.link = home / NAME
        self.read_only = not os.access(home, os.W_OK)
        self._writer: apsw.Connection | None = None
        self._readers = ThreadLocal(self._open_reader)
        self.superseded: str | None = None
        """What was wrong with the generation before, if this opening had to make a new one."""
        if not self.read_only:
            self._ensure()

    @property
    def path(self) -> Path:
        """The file behind the link."""
        return self.link.resolve()

    def _ensure(self) -> None:
        if not self.link.exists():
            self._next_generation(None)
            return
        problem = self._problem()
        if problem is not None:
            self._next_generation(problem)

    def _problem(self) -> str | None:
        """What is wrong with the file, judged by its header and its first page, or None."""
        try:
            connection = connect(self.path, flags=READ_ONLY)
            try:
                if one(connection, "PRAGMA application_id") != APPLICATION_ID:
                    return "it is not a file of projections"
                connection.execute("SELECT count(*) FROM checkpoints").fetchall()
            finally:
                connection.close()
        except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError) as error:
            return str(error)
        return None

    def _next_generation(self, problem: str | None) -> None:
        self.close()
        self.superseded = problem
        with translated(str(self.link)):
            number = 1 + max(
                (int(m[1]) for each in self.home.iterdir() if (m := _GENERATION.fullmatch(each.name))),
                default=0,
            )
            path = self.home / f"state.{number}.db"
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            connection = connect(path, flags=CREATE)
            connection.pragma("journal_mode", "wal")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(CHECKPOINTS)
            connection.pragma("application_id", APPLICATION_ID)
            connection.execute("COMMIT")
            connection.close()
            pointer = self.home / f".state.{os.getpid()}.{number}"
            with contextlib.suppress(FileNotFoundError):
                pointer.unlink()
            pointer.symlink_to(path.name)
            if self.link.exists() and not self.link.is_symlink():
                # Somebody put a plain file here; it may be held open, so it keeps its inode.
                self.link.rename(self.home / f"state.replaced.{number}.db")
            os.replace(pointer, self.link)

    def supersede(self, problem: str) -> None:
        """Begin a new generation: the file in use cannot be trusted."""
        self._next_generation(problem)

    def _open_reader(self) -> apsw.Connection:
        with translated(str(self.link), damaged):
            if self.read_only:
                connection = connect(self.path, flags=READ_ONLY, immutable="1")
            else:
                connection = connect(self.path, flags=READ_ONLY)
            connection.pragma("query_only", 1)
            connection.pragma("mmap_size", 1 << 28)
        return connection

    def reader(self) -> apsw.Connection:
        """This thread's read-only connection."""
        return self._readers.get()

    def writer(self) -> apsw.Connection:
        """The one connection that writes; the caller holds the projector's lock."""
        if self._writer is None:
            with translated(str(self.link), damaged):
                connection = connect(self.path, flags=CREATE)
                connection.pragma("synchronous", "NORMAL")
                connection.pragma("secure_delete", 1)
                connection.pragma("temp_store", "memory")
                connection.pragma("cache_size", -65536)
            self._writer = connection
        return self._writer

    def close(self) -> None:
        """Close every connection."""
        if self._writer is not None:
            with contextlib.suppress(apsw.Error):
                self._writer.close()
            self._writer = None
        self._readers.close()
