"""A file that an export writes: there as a whole or not at all, and never in place of another unasked."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ...domain.errors import NoRoom, RuleBroken


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to write over what is there.

    Raises:
        RuleBroken: a file is there, and `force` is false.
    """
    if not force and path.is_file():
        raise RuleBroken(
            f"Export already exists: {path}. Pass --force to overwrite.", hint="nothing was written"
        )


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
