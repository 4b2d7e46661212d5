"""A Retold home: where its files are, and opening them for reading or writing."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..domain.errors import NoRoom
from .foreign import EVENTS as EVENTS
from .foreign import refuse_foreign as refuse_foreign
from .foreign import refuse_inside_foreign, refuse_no_folder
from .lag import READER_WAIT_MS, Lag, none_behind
from .log import Log
from .state_file import StateFile

if TYPE_CHECKING:
    from .projector import Projector


def default_home() -> Path:
    """`RETOLD_HOME`, or ~/.retold."""
    return Path(os.environ.get("RETOLD_HOME") or "~/.retold").expanduser()


def make_home(path: Path) -> None:
    """Make the folder, 0700, where it is not there.

    Raises:
        BadUsage: it is a file, or a Hermes home, or to be in one. NoRoom: it cannot be made or read.
    """
    refuse_no_folder(path)
    refuse_foreign(path)
    refuse_inside_foreign(path)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise NoRoom(
            f"the home {path} cannot be made: {error.strerror}", hint="choose another with --home"
        ) from error


class Home:
    """An open home: its log, its projections' file and what keeps them equal."""

    def __init__(
        self, path: Path, *, read_only: bool = False, actor: str = "cli", as_found: bool = False
    ) -> None:
        """Open `path`; made (0700) where it is not there, unless `read_only`.

        Args:
            as_found: the projections are only looked at, however they are.

        Raises:
            NoSuchHome: `read_only`, and there is no log. LogDamaged, NeedsUpgrade, NoRoom, StoreBusy.
        """
        self.path = path
        if not read_only:
            make_home(path)
        self.log = Log(path / EVENTS, read_only=read_only, actor=actor)
        self.state = StateFile(path, as_found=as_found)
        self._projector: Projector | None = None

    @property
    def projector(self) -> Projector:
        """What folds the log into the projections; its folds are loaded when it is first needed."""
        if self._projector is None:
            from .projector import Projector

            self._projector = Projector(self.log, self.state)
        return self._projector

    def catch_up(self, *, wait_ms: int = READER_WAIT_MS) -> Lag:
        """Fold what is missing if the lock can be had soon; how far behind the answer will be."""
        return none_behind(self.log, self.state) or self.projector.catch_up(wait_ms=wait_ms)

    def close(self) -> None:
        """Close every connection."""
        self.state.close()
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
