"""A file that an export writes: there as a whole or not at all, and never in place of another unasked."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from ...domain.errors import BadUsage, NoRoom, RuleBroken

_BUFFER = 1 << 20
"""Bytes that are gathered for one write."""
_MAGIC = b"SQLite format 3\0"
_WRONG_PLACE = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG)
EXPORTS = "session-exports"
"""The folder in a home where pages go for which no other is named."""


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to write over what is there.

    Raises:
        RuleBroken: a file is there, and `force` is false; or it is a database.
    """
    if not os.path.isfile(path):
        return
    if not force:
        raise RuleBroken(
            f"Export already exists: {path}. Pass --force to overwrite.", hint="nothing was written"
        )
    if _is_database(path):
        raise RuleBroken(f"{path} is a database and not written over", hint="name another file")


def refuse_inside(home: Path, path: Path) -> None:
    """Refuse to write among the files of a home, but for the folder of its exports.

    Raises:
        BadUsage: `path` lies there.
    """
    home, path = Path(os.path.realpath(home)), Path(os.path.realpath(path))
    if path == home or (home in path.parents and home / EXPORTS not in (path, *path.parents)):
        raise BadUsage(f"{path} lies inside the home {home}", hint="name a file or folder outside of it")


def make_folder(folder: Path) -> None:
    """The folder, and those above it, where they are not there.

    Raises:
        BadUsage: a file stands there. NoRoom: it cannot be made.
    """
    with _naming(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def written(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """What to write to; the file stands under its name once all of it is written, for its owner alone.

    Raises:
        RuleBroken: as `refuse_existing`. BadUsage: its folder is not there, or a folder stands there.
        NoRoom: it cannot be written.
    """
    refuse_existing(path, force=force)
    if os.path.islink(path):  # what it leads to is written, there or not yet, as a shell does it
        path = Path(os.path.realpath(path))
        if os.path.islink(path):
            raise BadUsage(
                f"{path} cannot be written: {os.strerror(errno.ELOOP)}", hint="name another file or folder"
            )
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device
        with _naming(path), open(path, "wb") as out:
            yield out
        return
    beside = path.with_name(f".{os.getpid()}-{os.urandom(4).hex()}.export")
    with _naming(path):
        nameless = _nameless(path.parent)
        handle = (
            os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600) if nameless is None else nameless
        )
        try:
            with open(handle, "wb", buffering=_BUFFER) as out:
                yield out
                out.flush()
                if nameless is not None:
                    _name(nameless, beside)
            refuse_existing(path, force=force)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise


def _nameless(folder: Path) -> int | None:
    """A file that is gone with who writes it, killed or not, until it has a name; else None."""
    flag = getattr(os, "O_TMPFILE", None)  # Linux has it, on most file systems
    if flag is None:
        return None
    try:
        handle = os.open(folder, os.O_WRONLY | flag, 0o600)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            return None
        raise
    if os.path.exists(f"/proc/self/fd/{handle}"):
        return handle
    os.close(handle)
    return None


def _name(handle: int, path: Path) -> None:
    # The handle is not used, as the path is absolute; without one a call is made that follows no link.
    os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle, follow_symlinks=True)


def add_line(path: Path, line: bytes) -> None:
    """Add a line to a file of lines, whoever else adds one; it is made for its owner alone.

    Raises:
        NoRoom: it cannot be written.
    """
    with _naming(path), _held(path) as file:
        file.write(line)


def keep_last(path: Path, key: Callable[[bytes], object]) -> None:
    """Of the lines of a file that `key` says the same of, keep the last; None is kept whatever follows.

    Raises:
        NoRoom: it cannot be written.
    """
    with _naming(path), _held(path) as file:
        file.seek(0)
        found = file.read().splitlines(keepends=True)
        last = {each: place for place, each in enumerate(map(key, found)) if each is not None}
        kept = [line for place, line in enumerate(found) if last.get(key(line), place) == place]
        if len(kept) < len(found):
            real = Path(os.path.realpath(path))
            beside = real.with_name(f".{os.getpid()}-{os.urandom(4).hex()}.export")
            try:
                beside.touch(mode=0o600, exist_ok=False)
                beside.write_bytes(b"".join(kept))
                os.replace(beside, real)
            finally:
                beside.unlink(missing_ok=True)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[BinaryIO]:
    """A file to add to, and nobody else adds to it meanwhile or puts another in its place."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with open(handle, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                yield file
                return


def _is_database(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC
    return False


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Tell of a file that cannot be written in a sentence; a full disk is told of elsewhere."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EPIPE):
            error.filename = error.filename or os.fspath(path)
            raise
        if error.errno == errno.ENOENT and not path.parent.exists():
            raise BadUsage(
                f"the folder {path.parent} is not there", hint="make it, or name another file"
            ) from error
        kind = BadUsage if error.errno in _WRONG_PLACE else NoRoom
        raise kind(
            f"{path} cannot be written: {error.strerror or error}", hint="name another file or folder"
        ) from error
