"""Copies of what a home holds that lie outside of it, by name: whoever erases a text must know of them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from ..projections.base import Connection

BEFORE_REPAIR, BEFORE_RESTORE = ".before-repair-", ".before-restore."
"""What follows the name of a home, or of a file of Hermes', in that of its copy."""
BACKUPS = "backups"
"""In the home: where backups and exports of it were put, and what was imported, a path a line, as JSON."""
_OF_HERMES = ("state.db", "sessions/sessions.json")


def note_copy(home: Path, to: Path) -> None:
    """Remember that a copy of the home lies at `to`; a home that cannot be written remembers nothing."""
    if to.parent == home.parent and to.name.startswith(f"{home.name}{BEFORE_REPAIR}"):
        return  # found by its name
    if to in noted(home):
        return
    with contextlib.suppress(OSError):
        handle = os.open(home / BACKUPS, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            os.write(handle, json.dumps(os.path.abspath(to)).encode("ascii") + b"\n")
        finally:
            os.close(handle)


def copies_of(home: Path, db: Connection) -> list[Path]:
    """All that may still hold what is erased in this home, as far as it lies where it was put.

    These are backups, copies that repairs and restores laid beside the home, the Hermes homes that were
    imported and the copies that repairs laid into them.
    """
    found = [*_named(home, BEFORE_REPAIR, BEFORE_RESTORE), *noted(home)]
    for path in _sources(db):
        found += _in_hermes(path) or _logs(path)
    return list(dict.fromkeys(found))


def logs_of(db: Connection) -> list[Path]:
    """Those of `copies_of` that are logs of coding agents."""
    return [each for path in _sources(db) if not _in_hermes(path) for each in _logs(path)]


def _sources(db: Connection) -> list[Path]:
    rows = db.execute("SELECT path FROM source_homes WHERE path IS NOT NULL ORDER BY path")
    return [Path(path) for (path,) in rows]


def _named(path: Path, *endings: str) -> list[Path]:
    """What lies beside `path` under its name with more behind it; what was cut off begins with a dot."""
    names = tuple(f"{dot}{path.name}{ending}" for ending in endings for dot in ("", "."))
    with contextlib.suppress(OSError):
        return sorted(each for each in path.parent.iterdir() if each.name.startswith(names))
    return []


def noted(home: Path) -> Iterator[Path]:
    """Backups of the home that lie where they were put."""
    with contextlib.suppress(OSError, ValueError):
        for line in (home / BACKUPS).read_bytes().splitlines():
            path = json.loads(line)
            if isinstance(path, str) and os.path.lexists(path):
                yield Path(path)


def _logs(path: Path) -> list[Path]:
    """The logs of a coding agent, where it was those that were imported."""
    with contextlib.suppress(OSError):
        if path.is_file() or next(path.rglob("*.jsonl"), None) is not None:
            return [path]
    return []


def _in_hermes(home: Path) -> list[Path]:
    return list(_found_in_hermes(home))


def _found_in_hermes(home: Path) -> Iterator[Path]:
    for name in _OF_HERMES:
        path = home / name
        with contextlib.suppress(OSError):
            if path.exists():
                yield path
        yield from _named(path.resolve() if name == "state.db" else path, BEFORE_REPAIR)
