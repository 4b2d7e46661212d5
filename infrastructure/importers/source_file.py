"""Opens somebody else's SQLite file so that nothing beside it appears, changes or is locked out."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import apsw
import msgspec

from ...domain.errors import NotAStore, SourceChanged
from .wal_check import makes_sense

MAGIC = b"SQLite format 3\0"
BUSY_TIMEOUT_MS = 5000
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")

#: How a file is read. `immutable`: no sidecar holds anything, so no locks and no sidecars are made.
#: `shared`: beside a WAL and its index, under SQLite's own locks, the index mapped read-only.
#: `linked`: a WAL without an index (a crash copy): under another name, where an index may be made.
#: `recovered`: a hot rollback journal: rolled back in a copy of ours.
Mode = Literal["immutable", "shared", "linked", "recovered"]


class Fingerprint(msgspec.Struct, frozen=True):
    """What moves when anybody writes the file."""

    inode: int
    size_bytes: int
    mtime_ns: int
    change_counter: bytes


class SourceFile(msgspec.Struct, frozen=True):
    """A database file of another program, and the way it may be opened.

    Attributes:
        links: our folder with links or copies of it.
        passed_by: a write-ahead log beside it that no SQLite can read.
    """

    path: Path
    opened: Path
    mode: Mode
    before: Fingerprint
    links: Path | None = None
    passed_by: Path | None = None

    def connect(self) -> apsw.Connection:
        """A new connection that can write nothing (in a copy of ours it may only recover)."""
        name = "file:" + quote(os.fsencode(self.opened))
        flags = apsw.SQLITE_OPEN_URI
        if self.mode == "recovered":
            flags |= apsw.SQLITE_OPEN_READWRITE
        else:
            flags |= apsw.SQLITE_OPEN_READONLY
            # readonly_shm: an index left by a killed process is read past, not rebuilt in place.
            name += {"immutable": "?immutable=1", "shared": "?mode=ro&readonly_shm=1"}.get(
                self.mode, "?mode=ro"
            )
        connection = apsw.Connection(name, flags=flags)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        return connection

    @property
    def wal(self) -> Path | None:
        """The write-ahead log that is read along with the file."""
        return None if self.mode == "immutable" else _beside(self.opened, "-wal")

    def settle(self) -> None:
        """Remove the links and copies; call it after every connection is closed.

        Raises:
            SourceChanged: the file was written meanwhile by someone whose locks did not hold it.
        """
        self.remove_links()
        if self.mode in ("immutable", "linked"):
            try:
                unchanged = fingerprint(self.path) == self.before
            except OSError:
                unchanged = False
            if not unchanged:
                raise SourceChanged(
                    f"{self.path} was written while it was being read",
                    hint="run the import again; what was taken so far stands",
                )

    def remove_links(self) -> None:
        if self.links is not None:
            shutil.rmtree(self.links, ignore_errors=True)


def prepare(path: Path, scratch: Path, *, aside: bool = False) -> SourceFile:
    """Decide how `path` is to be opened; links and copies go under `scratch`.

    `aside`: pass by the WAL index that lies beside the file, as no sense can be made of it.

    Raises:
        NotAStore: the file cannot be read, or is no SQLite database.
        SourceChanged: it was written while it was being copied.
    """
    try:
        before = fingerprint(path)
        start = _head(path, 16)
        wal, index = _beside(path, "-wal"), _beside(path, "-shm")
        if start not in (b"", MAGIC):
            raise NotAStore(f"{path} is no SQLite database")
        if _is_hot(_beside(path, "-journal")) and before.size_bytes > 0:
            return _aside(path, scratch, before, "recovered", ("-journal", "-wal"))
        # Of an empty database file SQLite deletes the WAL, even for a reader (ran).
        if not _holds_something(wal) or before.size_bytes == 0:
            return SourceFile(path, path, "immutable", before)
        if not makes_sense(wal):
            return SourceFile(path, path, "immutable", before, passed_by=wal)
        if index.exists() and not aside:
            return SourceFile(path, path, "shared", before)
        return _aside(path, scratch, before, "linked", ("-wal",))
    except OSError as error:
        raise NotAStore(f"{path} cannot be read: {error.strerror or error}") from error


def fingerprint(path: Path) -> Fingerprint:
    """Read it only while no connection is open: closing a file drops this process's locks on it."""
    counter = _head(path, 28)[24:28]
    stat = path.stat()
    return Fingerprint(stat.st_ino, stat.st_size, stat.st_mtime_ns, counter)


def _aside(
    path: Path, scratch: Path, before: Fingerprint, mode: Mode, sidecars: tuple[str, ...]
) -> SourceFile:
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    links = Path(tempfile.mkdtemp(prefix="hermes-", dir=scratch))
    try:
        opened = links / path.name
        if mode == "linked":
            _link_or_copy(path, opened)
        else:
            shutil.copyfile(path, opened)
        for suffix in sidecars:
            if _beside(path, suffix).exists():
                shutil.copyfile(_beside(path, suffix), _beside(opened, suffix))
        file = SourceFile(path, opened, mode, before, links)
        if fingerprint(path) != before:
            raise SourceChanged(f"{path} was written while it was being copied", hint="run the import again")
        return file
    except BaseException:
        shutil.rmtree(links, ignore_errors=True)
        raise


def _link_or_copy(path: Path, to: Path) -> None:
    try:
        os.link(path, to)
    except OSError:  # another filesystem, a read-only one, or not our file
        shutil.copyfile(path, to)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _holds_something(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _is_hot(journal: Path) -> bool:
    """A journal that was emptied or zeroed after its commit asks for no rollback."""
    return journal.exists() and _head(journal, 8) == JOURNAL_MAGIC


def _head(path: Path, size_bytes: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size_bytes)
