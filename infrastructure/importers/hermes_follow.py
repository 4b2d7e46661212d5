"""Keeps taking in a Hermes home while Hermes runs: what changed, as soon as it stands in the file."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ...domain.errors import (
    FileReplaced,
    NoRoom,
    NotAStore,
    RetoldError,
    SourceChanged,
    StoreBusy,
    TryAgain,
)
from ..blame import blaming
from .hermes import WAIT_S, Target, opened_as, take_in
from .hermes_glance import FollowedHome, Glance
from .report import ImportReport, Progress
from .turn import my_turn

POLL_S = 0.25
"""So often the files are looked at; that opens nothing."""
MOST_S = 1.0
"""In a large home the pause is as long as it took to look and to take in, but no longer than this."""
FRESH_S = 0.1
"""A file that was written so shortly before it was read may have been written again in the same tick."""
AGAIN_S = 1.0
"""After a failure it is tried again so soon."""
IDLE_S = 60.0
QUIET_S, BUSY_S = 300.0, 900.0
"""All is read again so long after the last time: where nothing has come for IDLE_S, and where always comes
something."""
RESTS = 10
"""Where a home can only be read whole, the pause after that is so many times as long as it took."""
GAP_S = 60.0
"""Who was not here for so long, as in a machine that slept, reads all again."""

Stamp = tuple[tuple[int, ...], ...]


class Followed(msgspec.Struct):
    """What came of it: imports that took something in, and events by what they tell."""

    path: str
    imports: int = 0
    taken: dict[str, int] = {}
    duration_s: float = 0.0


class _Stopped(Exception):
    """Somebody wants it to end."""


class Follower:
    """One process that follows one home.

    Args:
        imported: called after each import that took something in, and after the first.
        said: called with a sentence where something stands in the way, and when it does no longer.
        stop: set by whoever wants it to end; an import of what changed is brought to its end before.
        clock: seconds of the wall's time, which goes on while a machine sleeps.
    """

    def __init__(
        self,
        target: Target,
        path: Path,
        *,
        imported: Callable[[ImportReport], None],
        said: Callable[[str], None],
        stop: threading.Event,
        moved_from: Path | None = None,
        progress: Callable[[Progress], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._clock = clock
        self._path = path
        self._home = target.projector.log.path.parent
        self._imported = imported
        self._said = said
        self._stop = stop
        self._moved_from = moved_from
        self._progress = progress
        self._taken: Counter[str] = Counter()
        self._imports = 0
        self._glance: Glance | None = None
        self._full_s = self._changed_s = self._looked_s = 0.0
        self._unread = False
        """Whether anything has changed since all was read."""
        self._file: tuple[int, ...] = ()
        self._failed: list[str] = []
        self._rest_s = 0.0

    def run(self) -> Followed:
        """Take in all of it, then what changes, until `stop` is set.

        Raises:
            StoreBusy: another process follows this home into ours. NotAStore, BadUsage: it is no home to
            begin with. What is wrong with our own home, as any import does.
        """
        began_s = self._clock()
        with _alone(self._home, self._path), contextlib.suppress(_Stopped):
            self._begin()
            pause_s = POLL_S
            while not self._stop.wait(pause_s):
                looked_s = time.monotonic()
                self.look()
                pause_s = min(max(POLL_S, time.monotonic() - looked_s), MOST_S)
        return Followed(str(self._path), self._imports, dict(self._taken), self._clock() - began_s)

    def _begin(self) -> None:
        """The first import; one that was written under its hands is made again."""
        while True:
            try:
                self.take_all(first=True)
            except SourceChanged as error:
                self._fail(error)
                if self._stop.wait(AGAIN_S):
                    raise _Stopped from None
            else:
                self._failed = []
                return

    def look(self) -> None:
        """Look once, and take in what there is; trouble with the home is waited out."""
        now_s, stamp = self._clock(), stamps(self._path)
        slept = now_s - self._looked_s > GAP_S
        self._looked_s = now_s
        try:
            if self._failed or slept or stamp[0][:1] != self._file or self._is_due(now_s):
                self.take_all()
            elif stamp != self._stamp and (self._glance is not None or now_s > self._rest_s):
                self.take_changes()
        except (TryAgain, NotAStore) as error:
            if isinstance(error, (NoRoom, FileReplaced)):
                raise
            self._fail(error)
            self._stop.wait(AGAIN_S)
        else:
            if len(self._failed) > 1:
                self._said(f"{self._path} is followed again")
            self._failed = []

    def _is_due(self, now_s: float) -> bool:
        """Whether all is to be read again, for what no glance sees."""
        if not self._unread:
            return False
        idle = now_s - self._changed_s > IDLE_S and now_s - self._full_s > QUIET_S
        return idle or now_s - self._full_s > BUSY_S

    def _fail(self, error: RetoldError) -> None:
        """Say what stands in the way, once, and at the second time: who opens or closes it is soon done."""
        told = self._failed[1:]
        self._failed.append(error.message)
        if len(self._failed) > 1 and error.message not in told:
            self._said(f"{error.message}; it is tried again until it can be read")

    # --- imports -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _there(self) -> Iterator[FollowedHome]:
        """The home as it is now, while no other import is at it."""
        projector = self._target.projector
        with (
            my_turn(self._home, timeout_s=WAIT_S),
            blaming(projector.log, lambda: projector),
        ):
            stamp = self._settled_stamp()
            with opened_as(FollowedHome, self._path, self._home) as there:
                yield there
            self._stamp: Stamp = stamp
            self._file = stamp[0][:1]

    def _settled_stamp(self) -> Stamp:
        """What the files look like before they are read; nothing known where they are being written."""
        stamp = stamps(self._path)
        latest_s = max((each[-1] / 1e9 for each in stamp if each), default=0.0)
        return stamp if abs(self._clock() - latest_s) > FRESH_S else (stamp[0], (-1,))

    def take_all(self, *, first: bool = False) -> None:
        """Take in everything."""
        began_s = self._clock()
        with self._there() as there:
            glance = there.glance()
            report = take_in(
                self._target, there, self._advance, self._moved_from, checked=first, quiet=not first
            )
        self._glance = glance
        self._moved_from = None
        self._full_s = self._looked_s = self._clock()
        if glance is None:
            self._rest_s = self._full_s + RESTS * (self._full_s - began_s)
        self._unread = False
        self._took(report, first=first)

    def take_changes(self) -> None:
        """Take in what changed since the last glance."""
        if self._glance is None:
            self.take_all()
            return
        with self._there() as there:
            glance = there.glance()
            if glance is not None:
                there.scope = there.scope_since(self._glance, glance)
                if not there.scope:
                    there.finish()
                    self._glance = glance
                    return
            # A home that can no longer be looked at is read whole.
            report = take_in(self._target, there, None, None, checked=False, quiet=True)
        self._glance = glance if glance is not None and not report.lost else None
        self._unread, self._changed_s = True, self._clock()
        self._took(report)

    def _advance(self, at: Progress) -> None:
        if self._stop.is_set():
            raise _Stopped
        if self._progress is not None:
            self._progress(at)

    def _took(self, report: ImportReport, *, first: bool = False) -> None:
        if report.position or first:
            self._imports += 1
            self._taken.update(report.taken)
            self._imported(report)


def stamps(path: Path) -> Stamp:
    """What moves when anybody writes the home's files; none is opened. The first begins with the inode."""
    found: list[tuple[int, ...]] = []
    database = os.path.realpath(path / "state.db")  # what lies beside it lies beside the file itself
    mirror = path / "sessions" / "sessions.json"
    for each in (database, f"{database}-wal", f"{database}-journal", mirror):
        try:
            stat = os.stat(each)
        except OSError:
            found.append(())
        else:
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


@contextlib.contextmanager
def _alone(home: Path, path: Path) -> Iterator[None]:
    """Hold this: of two processes that follow one home into ours, one does.

    Raises:
        StoreBusy: another does already. NoRoom: the home cannot be written.
    """
    name = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=6).hexdigest()
    try:
        handle = os.open(home / f"follow.{name}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise NoRoom(f"{home} cannot be written: {error.strerror}", hint="check the folder") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
            raise StoreBusy(
                f"{path} is followed already" + (f", by process {pid}" if pid.isdigit() else ""),
                hint="leave it to that one, or stop it first",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)
