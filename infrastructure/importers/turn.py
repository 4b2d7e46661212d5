"""One import into a home at a time: the second waits, and then finds what the first has taken in."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ...domain.errors import NoRoom, StoreBusy

LOCK = "import.lock"
POLL_S = 0.05


@contextlib.contextmanager
def my_turn(
    home: Path, *, waiting: Callable[[], None] | None = None, timeout_s: float = 0.0
) -> Iterator[bool]:
    """Hold the home's turn to import; true where it had to be waited for. It ends with its process.

    Args:
        waiting: called once, where another import is at it.
        timeout_s: so long it is waited for.

    Raises:
        StoreBusy: another import is at it for longer than `timeout_s`; nothing was written.
        NoRoom: the home cannot be written.
    """
    try:
        handle = os.open(home / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise NoRoom(
            f"nothing can be imported into {home}: {error.strerror}",
            hint="make room or mend the folder's permissions, then try again",
        ) from error
    try:
        waited = not _taken(handle)
        if waited:
            if waiting is not None:
                waiting()
            _wait(handle, home, timeout_s)
        yield waited
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(handle: int, home: Path, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not _taken(handle):
        if time.monotonic() >= deadline_s:
            raise StoreBusy(
                f"another import into {home} is still running; nothing was written",
                hint="run this one again when that one is done",
            )
        time.sleep(POLL_S)
