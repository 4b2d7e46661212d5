"""Of several processes one at a time gives a session its turn before a reset.

What the turn of a second one saved would be lost without a word once the first has reset the session.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

AT_MOST_S: Final = 900.0
"""A turn that takes longer holds nobody up any more."""


@contextlib.contextmanager
def claim(home: Path, session_id: str) -> Iterator[bool]:
    """Hold a session's turn before its reset; False where another process does. It ends with its process.

    A home in which no file can be made holds nobody up.
    """
    path = _path(home, session_id)
    try:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        yield True
        return
    try:
        taken = _locked(handle, fcntl.LOCK_EX) and _is_at(path, handle)
        if taken:
            os.utime(handle)
        yield taken or not _holds(handle)
        if taken:
            with contextlib.suppress(OSError):
                path.unlink()
    finally:
        os.close(handle)  # and with it the lock


def is_claimed(home: Path, session_id: str) -> bool:
    """Whether a process gives the session its turn just now."""
    try:
        handle = os.open(_path(home, session_id), os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _locked(handle, fcntl.LOCK_SH) and _holds(handle)
    finally:
        os.close(handle)


def _path(home: Path, session_id: str) -> Path:
    return home / f"before-reset.{hashlib.blake2b(session_id.encode(), digest_size=8).hexdigest()}"


def _locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(path: Path, handle: int) -> bool:
    """Whether the file still bears its name: whoever held it before has unlinked it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _holds(handle: int) -> bool:
    """Whether the claim of another is not too old."""
    return time.time() - os.fstat(handle).st_mtime < AT_MOST_S
