"""The file that says that a gateway's last stop was clean: left by the stop, taken away by the next start."""

from __future__ import annotations

import os
from pathlib import Path

from ..domain.errors import NoRoom
from ..domain.gateway import MAIN

MARKER = ".clean_shutdown"


def marker_of(home: Path, name: str) -> Path:
    """Hermes' name for the file; a second gateway of a home has its own."""
    return home / (MARKER if name == MAIN else f"{MARKER}.{name}")


def remove(path: Path) -> bool:
    """Take the marker away; False where there was none.

    Raises:
        NoRoom.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise NoRoom(f"{path} cannot be removed: {error.strerror}", hint="check the folder") from error
    return True


def leave(path: Path) -> None:
    """Say that a stop was clean.

    Raises:
        NoRoom.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise NoRoom(
            f"the stop is on record, but {path} cannot be written: {error.strerror}",
            hint="the next start will take it for an unclean one",
        ) from error
