"""Keeps every projection a fold of the log: catching up, telling again, setting aside what fails.

Over 400 lines because who may fold when is one protocol, and its parts are wrong without one another.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import apsw
import msgspec

from ..domain.errors import NeedsUpgrade, NoRoom, ProjectionDamaged, RetoldError, StoreBusy
from ..domain.events import Payload
from ..projections.base import Projection
from ..projections.gateway import Gateways
from ..projections.lineage import Lineage
from ..projections.routing import Routing
from ..projections.sources import Sources
from ..projections.transcripts import Transcripts
from ..projections.usage import Usage
from .checkpoints import Checkpoint, is_newer, load, store, why_tell_again
from .fold_saved import fold_saved
from .keep_up import keep_up
from .lag import ANOTHER, NOT_THERE
from .lag import READER_WAIT_MS as READER_WAIT_MS
from .lag import Lag as Lag
from .log import Head, Log, Written
from .masks import WHY as MASKED
from .masks import first_mask, masked_since
from .past_damage import Stretch, damage_at_the_end, events_past, merged, ranges, readable
from .sqlite import BUSY_TIMEOUT_MS, NOT_THE_FOLDS, translated
from .state_file import StateFile, damaged

PROJECTIONS: tuple[type[Projection], ...] = (Transcripts, Routing, Lineage, Usage, Sources, Gateways)
BATCH = 2_000
TRANSACTION = 10_000
"""Events a transaction, so that others get the lock in between."""
BULK_FROM = 20_000
"""From so many events on, a projection that holds little of them is filled by a rebuild: indexes last."""
_PATIENCE = 100_000
"""Rounds of catching up after which even a log that grows faster than it is folded is left behind."""


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
        if not log.read_only:
            self._look_for_damage()

    def over(self, state: StateFile) -> Projector:
        """The same projections of the same log, in another file."""
        return Projector(self.log, state, tuple(self.projections.values()))

    def _look_for_damage(self) -> None:
        """Who writes must know what was found unreadable before, and whether the last event is so."""
        with contextlib.suppress(ProjectionDamaged):
            self.note_damage(self.checkpoints())
        head = self.log.head()
        if head.position and not readable(self.log, head.position):
            self.log.note_damage([(head.position, head.position)])

    def note_damage(self, known: dict[str, Checkpoint]) -> None:
        """Tell the log what was passed over, so that nothing is written to it."""
        for each in known.values():
            if each.passed_over and each.log_id == self.log.identity.log_id:
                self.log.note_damage(each.passed_over)

    # --- catching up -------------------------------------------------------------------------------

    def follow(self, written: Written | None = None, payloads: Sequence[Payload] = ()) -> None:
        """Fold what this process has just saved, if nothing stands in the way.

        A save is done when it is in the log. Whatever else is wrong here is left to the next reader:
        another's lock, a projection that must be told again, damage, a newer program's fold.
        """
        with contextlib.suppress(RetoldError, apsw.Error, OSError):
            if self.state.read_only or self.state.superseded is not None:
                return
            if written is not None and fold_saved(self, written, payloads, READER_WAIT_MS):
                return
            if keep_up(self, READER_WAIT_MS) is None and not self._stale():
                self._fold_some(READER_WAIT_MS, None)

    def catch_up(
        self, *, wait_ms: int = BUSY_TIMEOUT_MS, progress: Callable[[Progress], None] | None = None
    ) -> Lag:
        """Fold what is missing, telling again what is no fold of this log.

        Returns what is behind if the lock could not be had within `wait_ms`. A damaged state.db is
        superseded by a new generation and told again.

        Raises:
            NeedsUpgrade: a newer program folded here. ProjectionDamaged: a new generation did not help.
        """
        if self.state.read_only:
            return msgspec.structs.replace(self.lag(), held_up=f"{self.state.home} cannot be written")
        begun_anew: dict[str, str] = {}
        if self.state.superseded is not None:
            begun_anew = dict.fromkeys(self.projections, f"its file was damaged: {self.state.superseded}")
            self.state.superseded = None
        try:
            lag = self._catch_up(wait_ms, progress)
        except ProjectionDamaged as error:
            self.supersede(error)
            begun_anew = dict.fromkeys(self.projections, f"its file was damaged: {error.__cause__ or error}")
            self.state.superseded = None
            lag = self._catch_up(BUSY_TIMEOUT_MS, progress)
        return msgspec.structs.replace(lag, told_again={**begun_anew, **lag.told_again})

    def supersede(self, error: ProjectionDamaged) -> None:
        """Begin a new generation of the file, while no thread of this process is in a transaction."""
        with self._lock:
            self.state.supersede(str(error.__cause__ or error.message))

    def _catch_up(self, wait_ms: int, progress: Callable[[Progress], None] | None) -> Lag:
        kept_up = keep_up(self, wait_ms)
        if kept_up is not None:
            return kept_up
        told_again: dict[str, str] = {}
        held_up = ANOTHER
        for _ in range(_PATIENCE):
            if self._stale():
                told_again.update(self._tell_again(progress))
            try:
                if self._fold_some(wait_ms, progress):
                    break
            except NoRoom as error:
                if wait_ms > READER_WAIT_MS or not self.projections.keys() <= self.checkpoints().keys():
                    raise
                held_up = error.message
                break  # what is folded can be read all the same
            except StoreBusy:
                if wait_ms > READER_WAIT_MS:
                    raise
                if self.projections.keys() <= self.checkpoints().keys():
                    break
                wait_ms = BUSY_TIMEOUT_MS  # nothing is there yet to answer from
        return msgspec.structs.replace(self.lag(), told_again=told_again, held_up=held_up)

    def _tell_again(self, progress: Callable[[Progress], None] | None) -> dict[str, str]:
        """Rebuild what is stale, unless another process did so while this one waited for its turn."""
        from .rebuild import rebuild_alone  # only where it is needed: start-up is imports

        with self.telling_again():
            stale = self._stale()
            if any(each.log_id != self.log.identity.log_id for each in self.checkpoints().values()):
                # Where the log was lost and begun anew, these rows may be all that is left of it.
                self.supersede(damaged("it was told from another log"))
                self.state.superseded = None
                rebuild_alone(self, sorted(self._stale()), compare=False, progress=progress)
            elif stale:
                rebuild_alone(self, sorted(stale), compare=False, progress=progress)
                self._retried.update(stale)
        return stale

    def _stale(self) -> dict[str, str]:
        """What must be told from nothing, and why."""
        known = self.checkpoints()
        head = (
            self.log.head()
        )  # after the checkpoints: else another's append in between looks like a lost end
        stale = {}
        for name, projection in self.projections.items():
            checkpoint = known.get(name)
            if checkpoint is None:
                if head.position >= BULK_FROM:
                    stale[name] = NOT_THERE
            elif is_newer(checkpoint, projection):
                raise NeedsUpgrade(
                    f"the projection {name} was folded by a newer Retold"
                    f" (version {checkpoint.fold_version}, this one knows {projection.version})",
                    hint="upgrade retold, or use another home",
                )
            else:
                why = why_tell_again(checkpoint, projection, self.log, head)
                if why is None and checkpoint.detached and name not in self._retried:
                    why = f"it had failed: {checkpoint.detached}"
                if why is None and _hardly_begun(checkpoint, head):
                    why = NOT_THERE
                if why is None and self._masked_since(checkpoint):
                    why = MASKED
                if why is not None:
                    stale[name] = why
        return stale

    def _masked_since(self, checkpoint: Checkpoint) -> bool:
        """Looked for as far as one transaction folds."""
        return masked_since(self.log, checkpoint.position, checkpoint.position + TRANSACTION + BATCH)

    def _fold_some(self, wait_ms: int, progress: Callable[[Progress], None] | None) -> bool:
        """Fold one transaction's worth; False where there is more, or rows must be told again first."""
        with self.transaction(wait_ms) as db:
            known = load(db)
            self.note_damage(known)
            head = self.log.head()
            for name, projection in self.projections.items():
                if name not in known:
                    known[name] = self.begin(db, projection())
            live = {n: known[n] for n in self.projections if not known[n].detached}
            for name, each in live.items():
                if is_newer(each, self.projections[name]) or why_tell_again(
                    each, self.projections[name], self.log, head
                ):
                    return False  # another process was here since `_stale` looked
            if not live:
                return True
            first = done = min(each.position for each in live.values())
            while done < head.position and done - first < TRANSACTION:
                stretch = events_past(self.log, done, limit=BATCH, upto=head.position)
                if first_mask(stretch.but_messages, first) is not None:
                    return False
                done = stretch.done
                if stretch.damaged:
                    self.log.note_damage([(first, last) for first, last in ranges(stretch.damaged)])
                for name, checkpoint in list(live.items()):
                    folded = self.fold_one(db, self.projections[name](), checkpoint, stretch)
                    store(db, folded)
                    if folded.detached:
                        del live[name]
                    else:
                        live[name] = folded
                if not live:
                    return True
        if progress is not None:
            progress(Progress(done, head.position))
        return done >= head.position

    def begin(
        self, db: apsw.Connection, projection: Projection, *, indexes: bool = True, generation: int = 1
    ) -> Checkpoint:
        """Make a projection's tables, empty, and its checkpoint at the genesis."""
        projection.drop(db)  # tables without a checkpoint are nobody's
        projection.create(db)
        if indexes:
            projection.create_indexes(db, generation)
        identity = self.log.identity
        checkpoint = Checkpoint(
            projection.prefix + projection.name,
            generation,
            projection.version,
            identity.log_id,
            0,
            identity.genesis,
        )
        store(db, checkpoint)
        return checkpoint

    def fold_one(
        self, db: apsw.Connection, projection: Projection, checkpoint: Checkpoint, stretch: Stretch
    ) -> Checkpoint:
        """Fold those events that come after the checkpoint; a failing projection is detached."""
        if not stretch.events or stretch.events[-1].position <= checkpoint.position:
            return checkpoint
        events = stretch.events if projection.of_messages != "none" else stretch.but_messages
        if events and events[0].position <= checkpoint.position:
            events = [event for event in events if event.position > checkpoint.position]
        db.execute("SAVEPOINT fold")
        try:
            if events:
                projection.fold(events, db)
        except (RetoldError, *NOT_THE_FOLDS):
            raise  # the file's or the log's trouble, not the fold's
        except Exception as error:  # noqa: BLE001  # the log never waits for a projection
            db.execute("ROLLBACK TO fold")
            db.execute("RELEASE fold")
            return msgspec.structs.replace(checkpoint, detached=f"{type(error).__name__}: {error}")
        db.execute("RELEASE fold")
        return self._moved(checkpoint, stretch)

    def _moved(self, checkpoint: Checkpoint, stretch: Stretch) -> Checkpoint:
        """The checkpoint after the events of `stretch`, with those passed over that are damaged.

        Damage at the very end is met again next time.
        """
        last = stretch.events[-1].position
        chain = self.log.chain_at(last)
        if chain is None:
            raise StoreBusy(f"event #{last} is gone from the log since it was read", hint="run retold verify")
        unknown = {topic for position, topic in stretch.unknown if position > checkpoint.position}
        passed = [n for n in stretch.damaged if checkpoint.position < n < last]
        return msgspec.structs.replace(
            checkpoint,
            position=last,
            chain=chain,
            unknown_topics=tuple(sorted({*checkpoint.unknown_topics, *unknown})),
            passed_over=merged(checkpoint.passed_over, passed),
        )

    def settle(self, *, wait_ms: int = READER_WAIT_MS) -> bool:
        """Let the search index catch up with the messages; False where the lock could not be had."""
        if self.state.read_only:
            return False
        try:
            with self.transaction(wait_ms) as db:
                known = load(db)
                for name, projection in self.projections.items():
                    checkpoint = known.get(name)
                    if checkpoint is None or checkpoint.detached or is_newer(checkpoint, projection):
                        continue
                    projection().settle(db)
        except (StoreBusy, NoRoom):
            return False
        return True

    # --- where things stand ------------------------------------------------------------------------

    def lag(self) -> Lag:
        """How far behind the projections are."""
        known = self.checkpoints()
        head = self.log.head()
        ours = [known[name] for name in self.projections if name in known]
        aside = {each.projection: each.detached for each in ours if each.detached}
        if self.state.read_only:  # nobody here can tell it again
            for each in ours:
                why = why_tell_again(each, self.projections[each.projection], self.log, head)
                if why is not None:
                    aside[each.projection] = why
        positions = [each.position for each in ours if each.projection not in aside]
        missing = len(ours) < len(self.projections)
        position = 0 if missing else min(positions, default=head.position)
        return Lag(
            head.position,
            position,
            aside,
            damaged=list(
                merged(
                    [
                        *(run for each in ours for run in each.passed_over),
                        *damage_at_the_end(self.log, position, head.position),
                    ],
                    (),
                )
            ),
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
        self._keep_others_out(wait_ms)
        try:
            with translated(self.state.named, damaged):
                db = self.state.writer_at_hand()
                self.state.patience.limit_ms = wait_ms
                db.execute("BEGIN IMMEDIATE")
                while self.state.writes_elsewhere():  # all was told again in another file meanwhile
                    db.execute("ROLLBACK")
                    db = self.state.writer()
                    self.state.patience.limit_ms = wait_ms
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
    def exclusively(self, wait_ms: int = BUSY_TIMEOUT_MS) -> Iterator[apsw.Connection]:
        """The writing connection, for this thread alone.

        Raises:
            StoreBusy: another thread has it for longer than `wait_ms`.
        """
        self._keep_others_out(wait_ms)
        try:
            with translated(self.state.named, damaged):
                db = self.state.writer()
            yield db
        finally:
            self._lock.release()

    def _keep_others_out(self, wait_ms: int) -> None:
        """Take the lock of this process's threads."""
        if not self._lock.acquire(timeout=wait_ms / 1000):
            raise StoreBusy("the projections are being written by another thread", hint="try again")

    @contextlib.contextmanager
    def telling_again(self, timeout_s: float = 600.0) -> Iterator[None]:
        """Only one process rebuilds at a time; the lock dies with its process.

        Raises:
            StoreBusy: another process is at it for longer than `timeout_s`.
        """
        try:
            handle = os.open(self.state.home / "rebuild.lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise NoRoom(
                f"the projections cannot be told again in {self.state.home}: {error.strerror}",
                hint="make room or mend the folder's permissions, then try again",
            ) from error
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


def _hardly_begun(checkpoint: Checkpoint, head: Head) -> bool:
    """Whether so much is missing that filling new tables is quicker than going on with these."""
    behind = head.position - checkpoint.position
    return behind >= BULK_FROM and behind > 2 * checkpoint.position
