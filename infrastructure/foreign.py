"""What must not be taken for a home: a Hermes home, a file, a folder whose log is lost."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw

from ..domain.errors import BadUsage, LogDamaged, NoRoom, NoSuchHome, RetoldError
from .sqlite import READ_ONLY, connect, one

EVENTS = "events.db"
STATE = "state.db"
STATE_APPLICATION_ID = 0x52544C53
"""'RTLS' in the header of a file of projections."""
_HERMES_TABLES = {"sessions", "messages"}


def stat_of(path: Path) -> os.stat_result | None:
    """What stands at `path`, None where nothing does.

    Raises:
        NoRoom: nobody may look there.
    """
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NoRoom(
            f"{path} cannot be read: {error.strerror}",
            hint="check the permissions of the folder, or give another with --home",
        ) from error


def refuse_no_folder(home: Path) -> None:
    """A home is a folder that can be looked into; one that is not there yet is nobody's fault.

    Raises:
        BadUsage: a file stands there. NoRoom: it may not be read.
    """
    found = stat_of(home)
    if found is None:
        return
    if not stat.S_ISDIR(found.st_mode):
        raise BadUsage(f"the home {home} is a file, not a folder", hint="give another with --home")
    if not os.access(home, os.R_OK | os.X_OK):
        raise NoRoom(
            f"the home {home} cannot be read: permission denied",
            hint="check the permissions of the folder, or give another with --home",
        )


def refuse_foreign(home: Path) -> None:
    """A folder with the database of Hermes, and no log, is its home and never ours.

    Raises:
        BadUsage: it is one.
    """
    if stat_of(home / EVENTS) is None and _is_of_hermes(home / STATE):
        raise BadUsage(
            f"{home} is a Hermes home, not a Retold home",
            hint="give another folder with --home",
        )


def refuse_inside_foreign(home: Path) -> None:
    """No home is begun inside a Hermes home: nothing is written there.

    Raises:
        BadUsage: it would be.
    """
    if stat_of(home / EVENTS) is not None:
        return
    for above in Path(os.path.realpath(home)).parents:
        if _is_of_hermes(above / STATE):
            raise BadUsage(
                f"{home} lies inside the Hermes home {above}, where nothing is written",
                hint="give a folder outside of it with --home",
            )


def refuse_lost_log(log: Path) -> None:
    """A new log beside projections that were told from another would pass the loss over in silence.

    Raises:
        LogDamaged: the log is missing or emptied, and projections stand beside it.
    """
    found = stat_of(log)
    if found is not None and (found.st_size or not stat.S_ISREG(found.st_mode)):
        return
    state = log.with_name(STATE)
    if not os.path.lexists(state):
        return
    what = "missing" if found is None else "empty"
    raise LogDamaged(
        f"{log} is {what}, and the projections beside it were told from it",
        hint=f"restore a backup of it; to begin anew, move {state} away as well",
    )


def refuse_no_log(log: Path) -> None:
    """What a reader needs: a log is there, and it is a file.

    Raises:
        NoSuchHome: there is none. BadUsage, LogDamaged, NoRoom: why it cannot be one.
    """
    refuse_no_folder(log.parent)
    refuse_foreign(log.parent)
    refuse_lost_log(log)
    refuse_no_file(log)
    if stat_of(log) is None:
        raise NoSuchHome(
            f"{log.parent} is no Retold home: it holds no {log.name}",
            hint="take in a Hermes home with: retold import hermes",
        )


def refuse_no_file(log: Path) -> None:
    """Something else than a file at the log's place.

    Raises:
        LogDamaged: it is so.
    """
    found = stat_of(log)
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise LogDamaged(
            f"{log} is a folder or a device, not a file",
            hint="move it away and restore a backup of the log, or give another folder with --home",
        )


def _is_of_hermes(state: Path) -> bool:
    """Whether it holds the tables of Hermes, and is none of ours. Touches nothing beside it."""
    try:
        if not state.is_file():
            return False
        db = connect(state, flags=READ_ONLY, immutable="1")
        try:
            if one(db, "PRAGMA application_id") == STATE_APPLICATION_ID:
                return False
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        finally:
            db.close()
    except (apsw.Error, OSError, RetoldError):
        return False
    # What was created last may still be in its WAL, which is not looked into here.
    return tables >= _HERMES_TABLES or (not tables and state.with_name(f"{STATE}-wal").exists())
