"""A home in one folder, taken while others write, and put back; never said to be done before it is proved.

Only what nothing can tell again is taken: the log, the settings, memories and jobs. The log is copied
page by page through SQLite's own backup, which sees one committed state however many write meanwhile
(https://sqlite.org/backup.html).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ..domain.errors import BadUsage, LogDamaged, NoRoom, NoSuchHome
from .config import NAME as CONFIG
from .copies import BEFORE_REPAIR as BEFORE_REPAIR
from .copies import BEFORE_RESTORE, note_copy, noted
from .foreign import EVENTS, refuse_foreign, refuse_no_log, stat_of
from .log import Head, Log
from .sqlite import CREATE, READ_ONLY, READ_WRITE, connect, has_wal, one, translated
from .verify_log import LogReport, verify_log

FOLDERS = ("memories", "cron")
"""Copied as they lie: people and jobs write there too."""
PAGES = 2_000
"""Pages a step, so that nobody waits for a copy."""
_SETTLED_S = 60.0
"""So old is a folder before it is held for one that nobody fills any more."""

Progress = Callable[[str, int, int], None]
"""(what is being done, done, total)"""


class BackedUp(msgspec.Struct, frozen=True):
    """What stands in the backup. `head` is what `retold verify --expect` takes."""

    path: str
    head: Head
    events: int
    size_bytes: int
    files: tuple[str, ...]


class Restored(msgspec.Struct, frozen=True):
    """What is in its place again; `kept` is where the home that was there lies now, if there was one."""

    path: str
    head: Head
    events: int
    files: tuple[str, ...]
    kept: str | None = None


def back_up(home: Path, to: Path, *, numbered: bool = False, progress: Progress | None = None) -> BackedUp:
    """Copy the home at `home` into the folder `to`, which is made and must hold nothing.

    Args:
        numbered: where `to` holds something, take `to-2`, `to-3`, …; the answer says which.

    Raises:
        NoSuchHome: there is no log. BadUsage: `to` holds something, or lies inside the home.
        LogDamaged: the log, or the copy of it, is damaged: nothing is left at `to`. NoRoom, StoreBusy.
    """
    refuse_no_log(home / EVENTS)
    if not numbered:
        _refuse_taken(to)
    if home.resolve() in (to.resolve(), *to.resolve().parents):
        raise BadUsage(
            f"{to} lies inside the home {home}", hint="give a folder outside of it, best on another disk"
        )
    with beside(to) as folder:
        _copy_log(home / EVENTS, folder / EVENTS, progress)
        report = _proved(folder, progress)
        files = _copy_files(home, folder)
        to = _put_beside(folder, to) if numbered else to
        if not numbered:
            put_in_place(folder, to)
    note_copy(home, to)
    return BackedUp(
        str(to), report.head, report.events, sum(each.stat().st_size for each in _files(to)), files
    )


def restore(backup: Path, home: Path, *, replace: bool = False, progress: Progress | None = None) -> Restored:
    """Put a backup in place as the home `home`. Projections are told from it by whoever opens it next.

    Args:
        replace: where a home is there already, move it aside whole, and name where it lies.

    Raises:
        NoSuchHome: `backup` holds no log. LogDamaged: that is damaged; nothing was changed.
        BadUsage: `home` holds something, and `replace` was not given. NoRoom, StoreBusy.
    """
    try:
        refuse_no_log(backup / EVENTS)
    except (NoSuchHome, BadUsage) as error:
        raise type(error)(
            error.message, hint="give a folder that `retold backup` made; nothing was changed"
        ) from error
    if home.resolve() == backup.resolve():
        raise BadUsage(f"{home} is the backup itself", hint="give another folder with --home")
    refuse_foreign(home)
    if not replace:
        _refuse_taken(home, hint="--replace moves aside what is there, and names where it lies")
    with beside(home) as folder:
        _copy_log(backup / EVENTS, folder / EVENTS, progress, still=not has_wal(backup / EVENTS))
        report = _proved(folder, progress)
        files = _copy_files(backup, folder)
        kept = put_in_place(folder, home, replace=replace)
    for each in (backup, *(noted(Path(kept)) if kept is not None else ())):
        note_copy(home, each)
    return Restored(str(home), report.head, report.events, files, kept)


def sweep(parent: Path, prefix: str) -> None:
    """Remove what killed backups left of folders whose name was to begin with `prefix`."""
    unfinished = re.compile(rf"\.{re.escape(prefix)}(.*\.)?\d+\.[0-9a-f]{{8}}", re.DOTALL)
    with contextlib.suppress(OSError):
        for each in list(parent.iterdir()):
            if unfinished.fullmatch(each.name) and time.time() - each.stat().st_mtime > _SETTLED_S:
                with _held(each) as held:
                    if held:
                        shutil.rmtree(each, ignore_errors=True)


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A folder beside `path` to fill and then to put in its place; removed where anything fails."""
    sweep(path.parent, f"{path.name}.")
    folder = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        with _held(folder):
            yield folder
    except OSError as error:
        raise NoRoom(
            f"{path} cannot be written: {error.strerror}",
            hint="nothing was left there; make room and try again",
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Hold a folder against being swept while it is filled; false where that cannot be had."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        held = False
        with contextlib.suppress(OSError):  # another process has it, or its disk knows no locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        yield held
    finally:
        os.close(handle)


def _put_beside(folder: Path, path: Path) -> Path:
    """Rename it to the first name of `path`, `path-2`, … that holds nothing; that name."""
    for number in range(1, 10_000):
        to = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            put_in_place(folder, to)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        else:
            return to
    raise NoRoom(f"{path} cannot be written", hint="remove older folders beside it")


def put_in_place(folder: Path, path: Path, *, replace: bool = False) -> str | None:
    """Rename it; where the home that was there lies now."""
    kept = _set_aside(path) if replace else None
    try:
        folder.rename(path)  # an empty folder gives way, any other does not
    except OSError:
        if kept is not None:
            kept.rename(path)
        raise
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return None if kept is None else str(kept)


def _refuse_taken(path: Path, *, hint: str = "give a folder that is not there, or is empty") -> None:
    found = stat_of(path)
    if found is None:
        return
    try:
        holds = any(path.iterdir())
    except NotADirectoryError:
        raise BadUsage(f"{path} is a file, not a folder", hint=hint) from None
    if holds:
        raise BadUsage(f"{path} is not empty", hint=hint)


def _copy_log(source: Path, to: Path, progress: Progress | None, *, still: bool = False) -> None:
    """Every page of one committed state.

    Args:
        still: nobody writes to the source; nothing is left beside it.
    """
    with translated(str(to)):
        os.close(os.open(to, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        there = connect(source, flags=READ_ONLY, immutable=str(int(still)))
        here = connect(to, flags=CREATE)
        try:
            # In a read transaction of its own the source stays as it is, whoever writes.
            there.execute("BEGIN")
            one(there, "SELECT count(*) FROM sqlite_schema")
            with here.backup("main", there, "main") as copying:
                while not copying.done:
                    copying.step(PAGES)
                    if progress is not None:
                        progress("copying", copying.page_count - copying.remaining, copying.page_count)
            here.pragma("journal_mode", "delete")
        finally:
            here.close()
            there.close()
    handle = os.open(to, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy_files(source: Path, to: Path) -> tuple[str, ...]:
    copied = []
    if (source / CONFIG).is_file():
        shutil.copyfile(source / CONFIG, to / CONFIG)
        copied.append(CONFIG)
    for name in FOLDERS:
        if (source / name).is_dir():
            shutil.copytree(source / name, to / name)
            copied.append(name)
    for each in _files(to):
        each.chmod(0o600)
    return tuple(copied)


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file() and not each.is_symlink())


def _proved(folder: Path, progress: Progress | None) -> LogReport:
    """Hold every event of the copy against the one before it, before it is anybody's log.

    Raises:
        LogDamaged: it does not hold.
    """
    with contextlib.closing(Log(folder / EVENTS, read_only=True)) as log:
        report = verify_log(log, None, progress)
    if not report.ok:
        told = "; ".join(f"{each.kind}: {each.detail}" for each in report.problems[:3])
        raise LogDamaged(
            f"the backup does not hold: {told}", hint="retold verify says more; use an older backup"
        )
    connection = connect(folder / EVENTS, flags=READ_WRITE)
    try:
        connection.pragma("journal_mode", "wal")
    finally:
        connection.close()
    return report


def _set_aside(home: Path) -> Path | None:
    """Move the home that is there out of the way, whole."""
    if stat_of(home) is None:
        return None
    for number in range(1, 10_000):
        kept = home.with_name(f"{home.name}{BEFORE_RESTORE}{number}")
        if not os.path.lexists(kept):
            home.rename(kept)
            return kept
    raise NoRoom(f"{home} cannot be moved aside", hint="remove older folders beside it")
