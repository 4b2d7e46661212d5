"""Removes generations of the projections' file that the link has left, where that loses and harms nothing.

They hold text that an erasure cannot reach. One is removed once nobody has it open and all that it
told of this log is told by the generation in use; what is left of another log, or of events that are
damaged now, stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import apsw

from ..domain.errors import RetoldError
from .checkpoints import Checkpoint, load
from .sqlite import READ_ONLY, READ_WRITE, connect

GRACE_S = 60.0
"""So long the link has led elsewhere, for whoever followed it before and is about to open the old file."""
_GENERATION = re.compile(r"state\.(\d+)\.db")


def left_behind(link: Path) -> list[Path]:
    """The files of generations before the one that the link leads to, without what another link leads to."""
    in_use = _GENERATION.fullmatch(link.resolve().name)
    if in_use is None:
        return []
    found: list[Path] = []
    linked: set[str] = set()
    for each in os.scandir(link.parent):
        if each.is_symlink():
            linked.add(os.path.basename(os.readlink(each.path)))
        elif (number := _GENERATION.fullmatch(each.name)) and int(number[1]) < int(in_use[1]):
            found.append(link.with_name(each.name))
    return [path for path in found if path.name not in linked]


def remove_left_behind(link: Path) -> None:
    """Remove those that can go. The caller keeps others from moving the link."""
    with contextlib.suppress(OSError, RetoldError, apsw.Error):
        if time.time() - link.lstat().st_mtime < GRACE_S:
            return
        connection = connect(link.resolve(), flags=READ_ONLY)
        try:
            here = load(connection)
        finally:
            connection.close()
        for path in left_behind(link):
            with contextlib.suppress(OSError, RetoldError, apsw.Error):
                _remove(path, here)


def _remove(path: Path, here: Mapping[str, Checkpoint]) -> None:
    """Remove the file, unless somebody has it open or it may hold what nothing else does."""
    connection = connect(path, flags=READ_WRITE, busy_timeout_ms=0)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        # Whoever has a file in WAL mode open keeps a shared lock on it, also between transactions.
        connection.pragma("locking_mode", "exclusive")
        connection.execute("BEGIN EXCLUSIVE")
        if all(is_told(each, here.get(name)) for name, each in load(connection).items()):
            for suffix in ("-wal", "-shm", ""):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
    finally:
        connection.close()


def is_told(old: Checkpoint, here: Checkpoint | None) -> bool:
    """Whether the generation in use has all that this projection had told there."""
    if old.projection.startswith("new_") or not old.position:
        return True  # what a rebuild had begun, or nothing
    return (
        here is not None
        and here.log_id == old.log_id
        and here.position >= old.position
        and not here.detached
        and not here.passed_over
    )
