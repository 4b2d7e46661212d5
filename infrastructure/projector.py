"""Keeps every projection a fold of the log: catching up, telling again, setting aside what fails."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import apsw
import msgspec

from ..domain.errors import NeedsUpgrade, ProjectionDamaged, RetoldError, StoreBusy
from ..domain.events import Recorded, UnknownEvent
from ..projections.base import Projection
from ..projections.lineage import Lineage
from ..projections.routing import Routing
from ..projections.transcripts import Transcripts
from ..projections.usage import Usage
from .checkpoints import Checkpoint, is_newer, load, store, why_tell_again
from .log import Head, Log
from .sqlite import BUSY_TIMEOUT_MS, translated
from .state_file import StateFile, damaged

PROJECTIONS: tuple[type[Projection], ...] = (Transcripts, Routing, Lineage, Usage)
READER_WAIT_MS = 50
"""How long a reader or an inline fold waits for the lock before it goes on with what is folded."""
BATCH = 2_000
TRANSACTION = 10_000
"""Events a transaction, so that others get the lock in between."""
BULK_FROM = 20_000
"""From so many events on, an empty projection is filled by a rebuild: indexes last."""
NEW = "new_"


class Lag(msgspec.Struct, frozen=True):
    """Where the projections stand."""

    head: int
    position: int
    """Of the projection that is furthest behind."""
    detached: dict[str, str] = {}
    told_again: dict[str, str] = {}
    """What had to be told again just now, and why."""

    @property
    def events(self) -> int:
        """How many events are not folded yet."""
        return self.head - self.position


class Progress(msgspec.Struct, frozen=True):
    """How far a rebuild or a catching up has come."""

    done: int
    total: int


class Projector:
    """The projections of one home."""

    def __init__(
        self, log: Log, state: StateFile, projections: Sequence[type[Projection]] = PROJECTIONS
    ) -> None:
        self.log = log
        self.state = state
        self.projections = {each.name: each for each in projections}
        self._lock = threading.RLock()
        self._retried: set[str] = set()

    # --- catching up -------------------------------------------------------------------------------

    def catch_up(
        self, *, wait_ms: int = BUSY_TIMEOUT_MS, progress: Callable[[Progress], None] | None = None
    ) -> Lag:
        """Fold what is missing, telling again what is no fold of this log.

        Returns what is behind if the lock could not be had within `wait_ms`.

        Raises:
            ProjectionDamaged: state.db is damaged in a way that a new generation did not cure.
            NeedsUpgrade: a newer program folded here.
        """
        if self.state.read_only:
            return self.lag()
        try:
            return self._catch_up(wait_ms, progress)
        except ProjectionDamaged as error:
            self.state.supersede(error.message)
            return self._catch_up(BUSY_TIMEOUT_MS, progress)

    def _catch_up(self, wait_ms: int, progress: Callable[[Progress], None] | None) -> Lag:
        told_again: dict[str, str] = {}
        while True:
            stale = self._stale()
            if stale:
                from .rebuild import rebuild  # only where it is needed: start-up is imports

                rebuild(self, sorted(stale), compare=False, progress=progress)
                told_again.update(stale)
            try:
                if self._fold_some(wait_ms, progress):
                    break
            except StoreBusy:
                if wait_ms > READER_WAIT_MS:
                    raise
                break
        lag = self.lag()
        return msgspec.structs.replace(lag, told_again=told_again)

    def _stale(self) -> dict[str, str]:
        """What must be told from nothing, and why."""
        head = self.log.head()
        with translated(str(self.state.link), damaged):
            known = load(self.state.reader())
        stale = {}
        for name, projection in self.projections.items():
            checkpoint = known.get(name)
            if checkpoint is None:
                if head.position >= BULK_FROM:
                    stale[name] = "it was not there"
            elif is_newer(checkpoint, projection):
                raise NeedsUpgrade(
                    f"the projection {name} was folded by a newer Retold"
                    f" (version {checkpoint.fold_version}, this one knows {projection.version})",
                    hint="upgrade retold, or use another home",
                )
            else:
                why = why_tell_again(checkpoint, projection, self.log, head)
                if why is None and checkpoint.detached and name not in self._retried:
                    self._retried.add(name)
                    why = f"it had failed: {checkpoint.detached}"
                if why is not None:
                    stale[name] = why
        return stale

    def _fold_some(self, wait_ms: int, progress: Callable[[Progress], None] | None) -> bool:
        """Fold one transaction's worth; True when the head is reached (or the rows must be told again)."""
        with self.transaction(wait_ms) as db:
            known = load(db)
            head = self.log.head()
            for name, projection in self.projections.items():
                if name not in known:
                    instance = projection()
                    instance.create(db)
                    instance.create_indexes(db, 1)
                    known[name] = Checkpoint(
                        name, 1, projection.version, self.log.identity.log_id, 0, self.log.identity.genesis
                    )
                    store(db, known[name])
            live = {n: known[n] for n in self.projections if not known[n].detached}
            if not live:
                return True
            first = min(each.position for each in live.values())
            if first >= head.position:
                return True
            for each in live.values():
                if why_tell_again(each, self.projections[each.projection], self.log, head):
                    return False
            done = first
            while done < head.position and done - first < TRANSACTION:
                events = self.log.read(done, limit=BATCH, upto=head.position)
                if not events:
                    break
                done = events[-1].position
                for name, checkpoint in list(live.items()):
                    folded = self._fold_one(db, self.projections[name](), checkpoint, events)
                    store(db, folded)
                    if folded.detached:
                        del live[name]
                    else:
                        live[name] = folded
            if progress is not None:
                progress(Progress(done, head.position))
        return done >= head.position

    def _fold_one(
        self, db: apsw.Connection, projection: Projection, checkpoint: Checkpoint, events: list[Recorded]
    ) -> Checkpoint:
        """Fold those of `events` that come after the checkpoint; a failing projection is detached."""
        if events[0].position <= checkpoint.position:
            events = [event for event in events if event.position > checkpoint.position]
        if not events:
            return checkpoint
        db.execute("SAVEPOINT fold")
        try:
            projection.fold(events, db)
        except (
            RetoldError,
            apsw.BusyError,
            apsw.FullError,
            apsw.IOError,
            apsw.CorruptError,
            apsw.NotADBError,
        ):
            raise  # the file's or the log's trouble, not the fold's
        except Exception as error:  # noqa: BLE001  # the log never waits for a projection
            db.execute("ROLLBACK TO fold")
            db.execute("RELEASE fold")
            return msgspec.structs.replace(checkpoint, detached=f"{type(error).__name__}: {error}")
        db.execute("RELEASE fold")
        return self.moved(checkpoint, events)

    def moved(self, checkpoint: Checkpoint, events: list[Recorded]) -> Checkpoint:
        """The checkpoint after `events`."""
        last = events[-1].position
        chain = self.log.chain_at(last)
        if chain is None:
            raise ProjectionDamaged(f"event #{last} is gone from the log while it was folded")
        unknown = {event.topic for event in events if isinstance(event.payload, UnknownEvent)}
        return msgspec.structs.replace(
            checkpoint,
            position=last,
            chain=chain,
            unknown_topics=tuple(sorted({*checkpoint.unknown_topics, *unknown})),
        )

    def settle(self, *, wait_ms: int = READER_WAIT_MS) -> bool:
        """Let the search index catch up with the messages; False where the lock could not be had."""
        if self.state.read_only:
            return False
        try:
            with self.transaction(wait_ms) as db:
                for projection in self.projections.values():
                    projection().settle(db)
        except StoreBusy:
            return False
        return True

    # --- where things stand ------------------------------------------------------------------------

    def lag(self) -> Lag:
        """How far behind the projections are."""
        head = self.log.head().position
        with translated(str(self.state.link), damaged):
            known = load(self.state.reader())
        ours = [known[name] for name in self.projections if name in known]
        missing = len(ours) < len(self.projections)
        return Lag(
            head,
            0 if missing else min(each.position for each in ours),
            {each.projection: each.detached for each in ours if each.detached},
        )

    def checkpoints(self) -> dict[str, Checkpoint]:
        """Every checkpoint by projection."""
        with translated(str(self.state.link), damaged):
            return load(self.state.reader())

    # --- writing -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, wait_ms: int = BUSY_TIMEOUT_MS) -> Iterator[apsw.Connection]:
        """An IMMEDIATE transaction on state.db.

        Raises:
            StoreBusy: the lock could not be had within `wait_ms`. ProjectionDamaged, NoRoom.
        """
        if not self._lock.acquire(timeout=wait_ms / 1000):
            raise StoreBusy("the projections are being written by another thread", hint="try again")
        try:
            with translated(str(self.state.link), damaged):
                db = self.state.writer()
                db.set_busy_timeout(wait_ms)
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(apsw.Error):
                        if db.in_transaction:
                            db.execute("ROLLBACK")
                    raise
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def telling_again(self, timeout_s: float = 600.0) -> Iterator[None]:
        """Only one process rebuilds at a time; the lock dies with its process.

        Raises:
            StoreBusy: another process is at it for longer than `timeout_s`.
        """
        handle = os.open(self.state.home / "rebuild.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            deadline = time.monotonic() + timeout_s
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise StoreBusy(
                            "another process is telling the projections again", hint="try again later"
                        ) from None
                    time.sleep(0.02)
            yield
        finally:
            os.close(handle)

    def head(self) -> Head:
        """The log's head."""
        return self.log.head()
