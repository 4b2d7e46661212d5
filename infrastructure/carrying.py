"""That a carry into a Hermes home has begun: what a process that dies between the two homes leaves unsaid.

The Hermes home is written first, and noted here after. In between stands a file of ours, by the store's
name: which saves are carried, and what they write there, without the values. Whoever carries next finds
it, looks at what that home holds, and notes it or takes it back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ..domain.errors import NoRoom

_NAME: Final = "carrying."


class Begun(msgspec.Struct, frozen=True):
    """A save that is carried: the columns of sessions and the streams of routes that it changes there."""

    position: int
    sessions: dict[str, list[str]] = {}
    routes: list[str] = []


def begin(home: Path, store: str, begun: Sequence[Begun]) -> None:
    """Note what is about to be written into a Hermes home.

    Raises:
        NoRoom: the home here cannot be written; nothing was changed anywhere.
    """
    aside = home / f".{_NAME}{store}"
    try:
        with open(os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            file.write(msgspec.json.encode(begun))
            file.flush()
            os.fsync(file.fileno())
        aside.rename(home / f"{_NAME}{store}")
    except OSError as error:
        raise NoRoom(
            f"{home} cannot be written: {error.strerror}", hint="nothing was changed; make room and try again"
        ) from error


def left_of(home: Path, store: str) -> list[Begun]:
    """What a carry that came to no end had begun."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode((home / f"{_NAME}{store}").read_bytes(), type=list[Begun])
    return []


def end(home: Path, store: str) -> None:
    """All of it is noted here."""
    (home / f"{_NAME}{store}").unlink(missing_ok=True)


def left_with(home: Path, position: int) -> set[str]:
    """The stores into which a save may have been carried without a note of it."""
    stores = [each.name.removeprefix(_NAME) for each in home.glob(f"{_NAME}*")]
    return {store for store in stores if any(each.position == position for each in left_of(home, store))}
