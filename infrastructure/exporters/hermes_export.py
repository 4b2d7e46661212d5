"""A whole Hermes home, made of what is told here: beside its place first, then in it, or not there at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from ...domain.errors import BadUsage, NoRoom, RuleBroken
from ..backup import beside, put_in_place
from ..copies import note_copy
from ..importers.source_file import Fingerprint, fingerprint
from ..log import Log
from .hermes_store import Counts, HermesStore, Progress
from .output_file import refuse_inside

STATE, FOLDER, MIRROR = "state.db", "sessions", "sessions.json"
MADE = ".retold-export"
"""In the folder: that it was made here, and what its database was like then."""
README = (
    "Where each chat's key leads, as Retold exported it. Hermes reads gateway_routing in state.db first,"
    " and this file for what that table lacks."
)


class ExportedHome(msgspec.Struct, frozen=True):
    """What stands in the exported home, as of a position of the log."""

    path: str
    position: int
    sessions: int
    messages: int
    routes: int
    usage: int
    scope: str
    notes: list[str]


class _Made(msgspec.Struct, frozen=True):
    """The database as it was left: whoever writes to it moves one of these, or leaves a log beside it."""

    inode: int
    size_bytes: int
    mtime_ns: int


def export_home(
    home: Path,
    db: apsw.Connection,
    log: Log,
    to: Path,
    *,
    position: int,
    place: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ExportedHome:
    """Write all sessions of the home at `home` that are not deleted as a Hermes home into `to`.

    Args:
        db, position: the projections, and the position that they are told up to.
        place: where Hermes is to find it later, if not there: its routing table says so.
        force: write over a folder that an export made, and nobody has written to since.

    Raises:
        RuleBroken: `to` holds something else. BadUsage: it is a file, or lies in the home. NoRoom.
    """
    refuse_inside(home, to)
    _refuse_taken(to, force=force)
    scope = str((to if place is None else place).resolve() / FOLDER)
    with beside(to) as folder:
        counts, routes = _written(db, log, folder / STATE, scope, progress)
        (folder / FOLDER).mkdir(mode=0o700)
        _write(
            folder / FOLDER / MIRROR, json.dumps({"_README": README, **routes}, indent=2, ensure_ascii=False)
        )
        found = fingerprint(folder / STATE)
        _write(folder / MADE, json.dumps(msgspec.to_builtins(_made(found))))
        _synced(folder / STATE, folder / FOLDER, folder)
        with _out_of_the_way(to, force=force):
            put_in_place(folder, to)
    for name in (STATE, f"{FOLDER}/{MIRROR}"):
        note_copy(home, to / name)
    return ExportedHome(
        str(to), position, counts.sessions, counts.messages, counts.routes, counts.usage, scope, counts.notes
    )


def _written(
    db: apsw.Connection, log: Log, path: Path, scope: str, progress: Progress | None
) -> tuple[Counts, dict[str, Any]]:
    """The database at `path`, of one state of the projections."""
    began = not db.in_transaction
    if began:
        db.execute("BEGIN")
    try:
        store = HermesStore(db, log, path, scope=scope, progress=progress)
        routes = store.write()
        return store.counts, routes
    finally:
        if began:
            db.execute("ROLLBACK")


def _refuse_taken(path: Path, *, force: bool) -> None:
    """Refuse a folder that holds anything, but for an export that nobody has written to.

    Raises:
        RuleBroken, BadUsage: it does; nothing was written.
    """
    try:
        inside = {each.name for each in path.iterdir()}
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise BadUsage(f"{path} is a file, not a folder", hint="name a folder to be made") from None
    except OSError as error:
        raise NoRoom(f"{path} cannot be read: {error.strerror}", hint="name another folder") from error
    if not inside:
        return
    made = _made_of(path)
    if made is None:
        raise RuleBroken(
            f"{path} is not empty, and no export of ours; nothing was written", hint="name another folder"
        )
    if not force:
        raise RuleBroken(
            f"{path} holds an export already; nothing was written",
            hint="--force writes over it, or name another folder",
        )
    more = sorted(inside - {STATE, FOLDER, MADE})
    if more or not _is_as_made(path, made):
        what = f"it holds {more[0]}, too" if more else "its state.db was written since"
        raise RuleBroken(
            f"{path} is no longer what was exported ({what}); nothing was written",
            hint="move it away, or name another folder",
        )


def _made_of(path: Path) -> _Made | None:
    try:
        return msgspec.json.decode((path / MADE).read_bytes(), type=_Made)
    except (OSError, msgspec.MsgspecError):
        return None


def _is_as_made(path: Path, made: _Made) -> bool:
    try:
        return _made(fingerprint(path / STATE)) == made
    except OSError:
        return False


def _made(found: Fingerprint) -> _Made:
    return _Made(found.inode, found.size_bytes, found.mtime_ns)


@contextlib.contextmanager
def _out_of_the_way(path: Path, *, force: bool) -> Iterator[None]:
    """Take an older export out of its place, and away once the new one stands there."""
    if not force or _made_of(path) is None:
        yield
        return
    _refuse_taken(path, force=True)  # it may have been written to while this went on
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.rename(old)
    try:
        yield
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def _synced(*paths: Path) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
