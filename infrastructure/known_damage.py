"""What verify found wrong with the log: kept beside it, so that nothing is written to it until it is mended.

It speaks of the file as it lay there then. Once that is another, restored or changed in any way, nobody
goes by the note: the log is verified again, and the note goes or is made anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..domain.errors import LogDamaged
from .log import DAMAGE_NOTE, Log
from .past_damage import merged, told
from .verify_log import Problem, verify_log

_NOT_THE_LOGS = "expected"
"""That another head was expected says nothing against the log: it may be the expectation that errs."""


class Found(msgspec.Struct, frozen=True):
    """Something that did not hold: of what kind, and where, as [first, last] of each run."""

    kind: str
    positions: list[list[int]]


def damage_of(problems: Iterable[Problem]) -> list[Found]:
    """What of the problems of a log is damage."""
    return [Found(each.kind, each.positions) for each in problems if each.kind != _NOT_THE_LOGS]


Print = list[list[int] | None]
"""Of the log's file and its WAL: inode, size, and when bytes and inode last changed; None for none."""


class Note(msgspec.Struct, frozen=True):
    """What was found, and of which file of which log."""

    log_id: str
    files: Print
    found: list[Found]


def print_of(log: Log) -> Print:
    """What changes whenever anything is written to the log's files."""
    found: Print = []
    for path in (log.path, log.path.with_name(f"{log.path.name}-wal")):
        try:
            here = path.stat()
        except OSError:
            found.append(None)
            continue
        # A WAL that was emptied holds no more than one that is not there.
        found.append(
            [here.st_ino, here.st_size, here.st_mtime_ns, here.st_ctime_ns] if here.st_size else None
        )
    return found


def keep(log: Log, files: Print, problems: Iterable[Problem]) -> None:
    """Note what a verification found in `files`, or that there is nothing to note any more.

    Where the home cannot be written nothing is noted, and nobody can write to the log either.
    """
    found = damage_of(problems)
    path = _path(log)
    with contextlib.suppress(OSError):
        if not found:
            path.unlink(missing_ok=True)
            return
        note = msgspec.json.encode(Note(log.identity.log_id, files, found))
        making = path.with_name(f".{path.name}.{os.getpid()}")
        handle = os.open(making, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with open(handle, "wb") as file:
            file.write(note)
        os.replace(making, path)


def known(log: Log) -> list[Found]:
    """What is known to be wrong with the log as it lies there now; verifies it where that is in doubt."""
    try:
        text = _path(log).read_bytes()
    except OSError:
        return []
    note: Note | None = None
    with contextlib.suppress(msgspec.DecodeError):
        note = msgspec.json.decode(text, type=Note)
    if note is not None and note.log_id != log.identity.log_id:
        return []  # another log's, in whose place this one was put
    files = print_of(log)
    if note is not None and note.files == files:
        return note.found
    with contextlib.closing(Log(log.path, read_only=True)) as as_it_is:
        problems = verify_log(as_it_is).problems
    keep(log, files, problems)
    return damage_of(problems)


def refuse_known(log: Log) -> None:
    """Nothing is written to a log that is known to be damaged.

    Raises:
        LogDamaged: it is.
    """
    found = known(log)
    if found:
        raise LogDamaged(
            f"{log.path} is damaged{where(found)}, as verify found; nothing was written",
            hint="see what is lost with retold verify, and restore a backup of events.db",
        )


def where(found: Iterable[Found], passed_over: Iterable[tuple[int, int]] = ()) -> str:
    """ " at #60, #71-75", or of what kinds the damage is where it stands at no position."""
    runs = merged([*passed_over, *((run[0], run[1]) for each in found for run in each.positions)], ())
    kinds = dict.fromkeys(each.kind for each in found)
    return f" at {told(runs)}" if runs else f" ({', '.join(kinds)})"


def _path(log: Log) -> Path:
    return log.path.with_name(DAMAGE_NOTE)
