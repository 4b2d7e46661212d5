"""A file that an export writes: there as a whole or not at all, and never in place of another unasked."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ...domain.errors import BadUsage, NoRoom, RuleBroken

_MAGIC = b"SQLite format 3\0"
EXPORTS = "session-exports"
"""The folder in a home where pages go for which no other is named."""


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to write over what is there.

    Raises:
        RuleBroken: a file is there, and `force` is false; or it is a database.
    """
    if not path.is_file():
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
    home, path = home.resolve(), path.resolve()
    if path == home or (home in path.parents and home / EXPORTS not in (path, *path.parents)):
        raise BadUsage(f"{path} lies inside the home {home}", hint="name a file or folder outside of it")


def make_folder(folder: Path) -> None:
    """The folder, and those above it, where they are not there.

    Raises:
        NoRoom: it cannot be made.
    """
    with _naming(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def written(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """What to write to; the file stands under its name once all of it is written, for its owner alone.

    Raises:
        RuleBroken: as `refuse_existing`. NoRoom: it cannot be written.
    """
    refuse_existing(path, force=force)
    if path.exists() and not path.is_file():  # a pipe or a device
        with _naming(path), open(path, "wb") as out:
            yield out
        return
    beside = path.with_name(f".{os.getpid()}-{os.urandom(4).hex()}.export")
    with _naming(path):
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(handle, "wb") as out:
                yield out
            refuse_existing(path, force=force)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise


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
            raise
        raise NoRoom(
            f"{path} cannot be written: {error.strerror or error}", hint="name another file or folder"
        ) from error
