"""A home that stays open for reading: for whoever asks it again and again while others write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import tzinfo
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import apsw

from ..domain.errors import FileReplaced, ProjectionDamaged, ProjectionsBegunAnew
from .blame import MET, blaming
from .config import Config, load_config
from .foreign import EVENTS, refuse_no_folder
from .home import Home

Answer = TypeVar("Answer")


class StandingHome:
    """The projections of a home, caught up before each question; from any thread, one at a time.

    A home that was restored or told again meanwhile is opened again by itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        """What the last answer rests on."""
        self._opened: Home | None = None
        self._log: tuple[int, int] | None = None
        self._config: Config | None = None
        self._lock = threading.Lock()

    @property
    def zone(self) -> tzinfo | None:
        """The configured one, as it was when the home was opened."""
        return None if self._config is None else self._config.zone

    def ask(self, question: Callable[[apsw.Connection], Answer], *, settle: bool = False) -> Answer:
        """The answer of `question`, which only reads, and may be asked twice.

        Args:
            settle: let the search index catch up as well.

        Raises:
            NoSuchHome, BadUsage, LogDamaged, … as every command that reads.
        """
        with self._lock:
            try:
                return self._asked(question, settle=settle)
            except (ProjectionsBegunAnew, FileReplaced):
                self._close()
            return self._asked(question, settle=settle)

    def _asked(self, question: Callable[[apsw.Connection], Answer], *, settle: bool) -> Answer:
        log = _inode(self.path / EVENTS)
        if log != self._log:  # another home was put in its place
            self._close()
        if self._opened is None:
            refuse_no_folder(self.path)
            self._config = load_config(self.path)
            self._opened, self._log = Home(self.path, read_only=True), log
        opened = self._opened
        with blaming(opened.log, lambda: opened.projector, sure=(*MET, ProjectionDamaged)):
            self.position = opened.catch_up().position
            if settle:
                opened.projector.settle()
            return question(opened.state.reader())

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def close(self) -> None:
        """Close the home; the next question opens it again."""
        with self._lock:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
