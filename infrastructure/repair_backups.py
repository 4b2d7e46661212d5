"""The backup of a home before a repair: one for repairs in a row, and as many as the settings keep."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from ..domain import events as e
from ..domain.adoption import is_repair
from ..domain.errors import RetoldError
from ..domain.events import Recorded
from .backup import BEFORE_REPAIR, Progress, back_up, sweep
from .foreign import EVENTS
from .log import Head, Log
from .sqlite import READ_ONLY, connect, one, translated

_MOST_LOOKED_AT = 2_000
"""So many events since a backup are looked at; where there are more, another is taken."""


class Kept(msgspec.Struct, frozen=True):
    """Where a home lies as it was.

    Attributes:
        taken: it was taken now; else nothing but repairs and undos was written since it was.
        removed: older ones that are no longer kept.
    """

    path: Path
    taken: bool
    removed: tuple[Path, ...] = ()


def sweep_backups(home: Path) -> None:
    """Remove what a kill left of a backup before a repair."""
    sweep(home.parent, f"{home.name}{BEFORE_REPAIR}")


def keep_backup(home: Path, log: Log, *, keep: int, stamp: str, progress: Progress | None = None) -> Kept:
    """See to it that the home lies beside itself as it is before a repair.

    Args:
        keep: how many such backups are kept, the newest of them.
        stamp: of the time, for the name of one that is taken.

    Raises:
        LogDamaged, NoRoom, StoreBusy: none could be taken; those that are there stay.
    """
    there = _backups(home, log)
    if there and _is_before_repairs_only(there[0][1], log):
        return Kept(there[0][0], taken=False)
    to = home.with_name(f"{home.name}{BEFORE_REPAIR}{stamp}")
    taken = Path(back_up(home, to, numbered=True, progress=progress).path)
    return Kept(taken, taken=True, removed=tuple(_removed([each for each, _ in there], keep - 1)))


def _backups(home: Path, log: Log) -> list[tuple[Path, Head]]:
    """Those of this home, the newest state first; what a person gave such a name to is none."""
    named = re.compile(rf"{re.escape(home.name)}{re.escape(BEFORE_REPAIR)}\d{{8}}-\d{{6}}(?:-\d+)?")
    there: list[Path] = []
    with suppress(OSError):
        there += [each for each in home.parent.iterdir() if named.fullmatch(each.name)]
    heads = [(each, _head_of(each, log)) for each in there if not each.is_symlink()]
    found = [(path, head) for path, head in heads if head is not None]
    return sorted(found, key=lambda each: (each[1].position, each[0].name), reverse=True)


def _head_of(backup: Path, log: Log) -> Head | None:
    """Where the log of a backup ends; None where it is none of this log."""
    with suppress(RetoldError, OSError), translated(str(backup)):
        with closing(connect(backup / EVENTS, flags=READ_ONLY, immutable="1")) as held:
            log_id = one(held, "SELECT value FROM meta WHERE key = 'log_id'")
            last = held.execute(
                "SELECT position, chain FROM events ORDER BY position DESC LIMIT 1"
            ).fetchone()
        if bytes(log_id).decode() == log.identity.log_id:
            return Head(0, log.identity.genesis) if last is None else Head(int(last[0]), bytes(last[1]))
    return None


def _is_before_repairs_only(head: Head, log: Log) -> bool:
    """Whether a backup is a beginning of this log after which nothing came but repairs and their undos."""
    if log.chain_at(head.position) != head.chain:
        return False
    since = log.read(head.position, limit=_MOST_LOOKED_AT)
    return len(since) < _MOST_LOOKED_AT and not _others(since)


def _others(events: list[Recorded]) -> set[int]:
    """Saves that are no repair, no undo, and no note of what was carried."""
    repairs = {each.save for each in events if is_repair(each)}
    return {
        each.save
        for each in events
        if (each.save not in repairs and each.caused_by is None) or isinstance(each.payload, e.PayloadsErased)
    }


def _removed(older: list[Path], keep: int) -> Iterator[Path]:
    for path in older[max(keep, 0) :]:
        aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        with suppress(OSError):  # what cannot be removed stays, and is not named
            path.rename(aside)
            shutil.rmtree(aside)
            yield path
