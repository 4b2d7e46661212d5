"""A gateway's life: it starts and recovers what was cut off, runs dry, stops; and /stop, and what it saw.

Around it: `start_gateway`, the turns of `waiting_sessions`, the loop of turns, `drain_gateway` where a stop
is to wait for running turns, `stop_gateway`. A start goes through what a crash or a stop left, in one save
(REFERENCE.md 8.2).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from ...domain import events as e
from ...domain import gateway, restarts, turns
from ...domain.errors import BadUsage
from ...domain.events import Event, Payload
from ...domain.gateway import DRAIN, MAIN, Drain, Gateway
from ...domain.marks import Marks
from ...domain.restarts import Others, Resume, StopReason
from ...domain.session import Session
from ...domain.session import evolve as follow
from ...domain.text import is_blank, scrub
from ...projections import gateway as told
from ...projections.base import Connection
from ..clean_stop import leave, marker_of, remove
from ..decisions import Saved, event
from ..log import Condition
from ..streams import inbox_stream
from .maintenance import MaintenanceCommands
from .turns import TurnCommands

_SETTLED = (
    e.SessionRerouted.topic,
    e.RouteClosed.topic,
    e.GatewayStarted.topic,
    e.GatewayStopped.topic,
    e.RecoveryRan.topic,
)
"""What must not move while a start decides: where chats lead, and which gateways live."""


class Started(Saved, frozen=True):
    """A gateway's start.

    Attributes:
        clean: its last stop had been one that it chose, and nothing was left running.
        resume: what is to be gone on with now, each by a turn of its own.
        marked, suspended: sessions that this start marked to be resumed, or gave up as stuck.
        passed_over: marked sessions that are not resumed this time, with the reason.
        loop: so many starts in so short a time that nothing is resumed; the marks stay.
    """

    clean: bool = False
    resume: tuple[Resume, ...] = ()
    marked: tuple[str, ...] = ()
    suspended: tuple[str, ...] = ()
    passed_over: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    loop: bool = False


class Stopped(Saved, frozen=True):
    """A gateway's stop: `running` are the sessions whose turns it did not wait for."""

    clean: bool = False
    running: tuple[str, ...] = ()


class GatewayCommands(TurnCommands, MaintenanceCommands):
    """What happens to a gateway as a whole."""

    def start_gateway(
        self, name: str = MAIN, platforms: Sequence[str] = (), *, at_us: int | None = None
    ) -> Started:
        """Begin to serve chats: find what was cut off, mark it, and say what is to be gone on with.

        A gateway's name is run by one process at a time: whatever it ran before counts as cut off, and
        after an unclean stop what it held (`hold`) holds no reset up any more. What another gateway ran
        is looked at only where that one does not live: it was stopped, never started, or let the lease of
        a turn lapse and was not heard of since. Upkeep that is due is done first; what it could not do
        stops no start.

        Args:
            platforms: those that are served; sessions of others keep their marks for another start.
                None given: all.

        Raises:
            BadUsage: a name that is none. StoreBusy: the projections could not be caught up.
        """
        stream = gateway.stream(name)
        self.maintain_if_due(at_us=at_us)
        with self._marker_taken(name) as clean:
            return self.decide(lambda: self._start_over(name, stream, list(platforms), clean, self.at(at_us)))

    def drain_gateway(
        self,
        name: str = MAIN,
        reason: StopReason = "restart",
        *,
        owner: str | None = None,
        for_s: float | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Begin no more turns, and mark what runs, so that nothing is lost if the stop does not wait.

        The marks are taken back by `stop_gateway` where the turns ended in time. The drain lapses by
        itself, whoever forgets it (FIELD_CASES I4).

        Args:
            owner: on whose word; the gateway's own by default.
            for_s: how long; by default as long as a stop waits (agent.restart_drain_timeout), at least
                a minute.
        """
        stream = gateway.stream(name)
        said = scrub(owner or name)[0]
        seconds = max(60.0, self.config.agent.restart_drain_timeout) if for_s is None else for_s
        if not 0 < seconds <= 30 * 86_400 or is_blank(said):
            raise BadUsage("a drain needs an owner, and more than 0 seconds", hint="at most 30 days")

        def decision() -> Saved:
            at = self.at(at_us)
            db = self.caught_up("transcripts", "routing")
            runs = self.gateway(name)
            until = at + int(seconds * 1_000_000)
            events = [event(stream, runs.version + 1, e.SettingChanged(DRAIN, said, until_us=until), at)]
            for session_id in told.run_by(db, name):
                state = self.session(session_id)
                mark = restarts.before_drain(state, gateway=name, why=reason)
                if mark is not None:
                    events += self.turn_events(state, [mark], at)
            return Saved("", self.save_events(events))

        return self.decide(decision)

    def lift_drain(self, name: str = MAIN, *, at_us: int | None = None) -> Saved:
        """Begin turns again; nothing where the gateway does."""
        stream = gateway.stream(name)

        def decision() -> Saved:
            runs = self.gateway(name)
            if runs.drain is None:
                return Saved("", ())
            lifted = e.SettingChanged(DRAIN, None)
            return Saved("", self.save_events([event(stream, runs.version + 1, lifted, self.at(at_us))]))

        return self.decide(decision)

    def draining(self, name: str = MAIN, *, at_us: int | None = None) -> Drain | None:
        """On whose word and until when no turns begin; None where they do."""
        drain = self.gateway(name).drain
        return drain if drain is not None and self.at(at_us) < drain.until_us else None

    def stop_gateway(
        self,
        name: str = MAIN,
        reason: StopReason = "shutdown",
        *,
        clean: bool = True,
        at_us: int | None = None,
    ) -> Stopped:
        """Stop serving chats. What still runs is interrupted and marked; what ended in time is unmarked.

        A stop is clean where nothing still ran: then `.clean_shutdown` says so to the next start. One that
        is not takes away what a stop before it left.

        Args:
            clean: False where the caller knows of work that was left undone.

        Raises:
            NoRoom: the stop is on record, but the marker could not be written, or taken away.
        """
        stream = gateway.stream(name)

        def decision() -> Stopped:
            at = self.at(at_us)
            db = self.caught_up("transcripts", "routing")
            runs = self.gateway(name)
            events: list[Event] = []
            running: list[str] = []
            since_us = None if runs.drain is None else runs.drain.since_us
            for session_id in told.run_by(db, name):
                state = self.session(session_id)
                if state.turns.running is not None and state.turns.gateway == name:
                    running.append(session_id)
                said = restarts.at_stop(state, gateway=name, why=reason, draining_since_us=since_us)
                events += self.turn_events(state, said, at)
            sound = clean and not running
            mine: list[Payload] = [e.GatewayStopped(sound, reason, running)]
            if runs.drain is not None and runs.drain.owner == name:
                mine.append(e.SettingChanged(DRAIN, None))
            events += [event(stream, n, each, at) for n, each in enumerate(mine, runs.version + 1)]
            return Stopped("", self.save_events(events), sound, tuple(running))

        stopped = self.decide(decision)
        marker = marker_of(self.home, name)
        if stopped.clean:
            leave(marker)
        else:
            remove(marker)
        return stopped

    def stop_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """A person's /stop: the turn is interrupted, and the chat's next message begins a new session.

        What waits is neither run nor lost: whoever resets the chat moves or clears it.
        """

        def decision() -> Saved:
            state = self.session(session_id)
            at = self.at(at_us)
            payloads: list[Payload] = []
            if state.turns.running is not None:
                payloads.append(e.TurnFinished(state.turns.running, "interrupted", turns.STOPPED))
            if state.marks.suspended is None and not state.hard_end and state.successor is None:
                payloads.append(e.SessionSuspended("stop", state.marks.restarts))
            return Saved(session_id, self.save_events(self.turn_events(state, payloads, at)))

        return self.decide(decision)

    def waiting_sessions(self, platforms: Sequence[str] = ()) -> list[str]:
        """Sessions in which turns wait, the one that was silent longest first: `next_turn` begins them.

        A stop and a crash leave what waits where it is; after a start somebody has to begin it, whether a
        chat leads to the session or not. In one that is suspended nothing runs: its chat's next message
        takes what waits along into a new one, and `reopen_session` lets it run where it is.

        Args:
            platforms: those that are served; all by default.

        Raises:
            ProjectionDamaged, StoreBusy.
        """
        found = told.waiting(self.caught_up("transcripts", "routing"))
        return [session_id for session_id, source in found if not platforms or source in platforms]

    def highest_update(self, platform: str, chat_id: str | None = None) -> int | None:
        """The highest update of a platform (of one of its chats) that was taken: ask for those after it.

        None where none was, or where its ids are no numbers (FIELD_CASES I3).
        """
        whose = scrub(platform)[0]
        stream = None if chat_id is None else inbox_stream(self.identity, whose, scrub(chat_id)[0])
        return told.highest_update(self.caught_up("gateway"), whose, stream)

    # --- a start ------------------------------------------------------------------------------------

    def _start_over(self, name: str, stream: str, platforms: list[str], clean: bool, at_us: int) -> Started:
        read_at = self.head().position
        db = self.caught_up("transcripts", "routing", "gateway")
        runs = self.gateway(name)
        others = self._others(db, name, at_us)
        window_us = int(self.config.agent.gateway_auto_continue_freshness * 1_000_000)
        found = _Found()
        events: list[Event] = []
        for chat in told.to_recover(db, name, at_us - restarts.ACTIVE_WITHIN_US):
            if chat.session_id in found.looked_at:
                continue
            found.looked_at.add(chat.session_id)
            state = self.session(chat.session_id)
            served = not platforms or state.source in platforms
            if restarts.left_to_others(state, gateway=name, served=served, others=others, at_us=at_us):
                continue
            sound = restarts.left_clean(
                state, gateway=name, clean=clean, first=not runs.started, others=others
            )
            said = restarts.after_start(
                state, gateway=name, clean=sound, last_active_us=chat.last_active_us, at_us=at_us
            )
            events += self.turn_events(state, said, at_us)
            found.add(state, _after(state, said, at_us), chat.key, platforms, window_us, at_us)
        guard = self.config.gateway.restart_loop_guard
        loop = bool(found.resume) and runs.in_loop(
            at_us, most=guard.max_restarts, window_us=int(guard.window_seconds * 1_000_000)
        )
        if loop:
            for each in found.resume:
                found.passed_over[each.session_id] = "too many starts in too short a time"
            found.resume.clear()
        mine = [e.GatewayStarted(clean, platforms), *found.recovery(loop), *_own_drain_lifted(runs)]
        events = [event(stream, n, each, at_us) for n, each in enumerate(mine, runs.version + 1)] + events
        positions = self.save_events(events, condition=Condition(read_at, topics=_SETTLED))
        return Started(
            "",
            positions,
            clean,
            tuple(found.resume),
            tuple(found.marked),
            tuple(found.suspended),
            found.passed_over,
            loop,
        )

    def _others(self, db: Connection, name: str, at_us: int) -> Others:
        """How the other gateways of the home stand."""
        living: list[Gateway] = []
        cut_off: list[str] = []
        stopped: list[str] = []
        for other in map(self.gateway, told.started_besides(db, name)):
            if other.running and not self._fell_silent(db, other.name, at_us):
                living.append(other)
            elif not other.running and other.left_clean:
                stopped.append(other.name)
            else:
                cut_off.append(other.name)
        return Others(
            frozenset(each.name for each in living),
            frozenset(cut_off),
            frozenset(stopped),
            {session_id: each.offered_us for each in living for session_id in each.offered},
        )

    def _fell_silent(self, db: Connection, name: str, at_us: int) -> bool:
        """Whether a gateway let the lease of a turn lapse, and gave no sign of life since."""
        lapsed_us = told.silent_since(db, name, at_us)
        if lapsed_us is None:
            return False
        after = told.run_began(db, name)
        while begun := self.event_log.read(after, topics=[e.TurnStarted.topic]):
            if any(
                getattr(each.payload, "gateway", None) == name and each.at_us > lapsed_us for each in begun
            ):
                return False
            after = begun[-1].position
        return True

    @contextlib.contextmanager
    def _marker_taken(self, name: str) -> Iterator[bool]:
        """Whether the last stop was clean. The marker is gone first: a start that dies was none."""
        marker = marker_of(self.home, name)
        if not remove(marker):
            yield False
            return
        try:
            yield True
        except BaseException:
            leave(marker)
            raise


class _Found:
    """What a start finds, session by session."""

    def __init__(self) -> None:
        self.looked_at: set[str] = set()
        self.marked: list[str] = []
        self.suspended: list[str] = []
        self.resume: list[Resume] = []
        self.passed_over: dict[str, str] = {}

    def add(
        self,
        before: Session,
        now: Session,
        key: str | None,
        platforms: list[str],
        window_us: int,
        at_us: int,
    ) -> None:
        """One session, as it was and as it is now."""
        marks: Marks = now.marks
        if marks.suspended is not None and before.marks.suspended is None:
            self.suspended.append(now.id)
            return
        if marks.resume is None:
            return
        if (marks.resume, marks.marked_us) != (before.marks.resume, before.marks.marked_us):
            self.marked.append(now.id)
        why = restarts.passed_over(now, marks, platforms=platforms, window_us=window_us, at_us=at_us)
        if key is None:
            why = why or "no chat leads to it"
        if why is not None:
            self.passed_over[now.id] = why
        elif key is not None:
            self.resume.append(restarts.resume_of(now, before.turns, key, marks.resume))

    def recovery(self, loop: bool) -> list[Payload]:
        """The event that lists all of it; none where there is nothing to list."""
        if not (self.marked or self.suspended or self.resume or self.passed_over):
            return []
        resumed = [each.session_id for each in self.resume]
        return [e.RecoveryRan(self.marked, self.suspended, resumed, self.passed_over, loop)]


def _after(state: Session, payloads: list[Payload], at_us: int) -> Session:
    now: Session | None = state
    for version, payload in enumerate(payloads, state.version + 1):
        now = follow(now, state.id, version, payload, at_us)
    return now or state


def _own_drain_lifted(runs: Gateway) -> list[Payload]:
    """A drain that the gateway ordered for its own stop is over; another's word stands until its deadline."""
    if runs.drain is None or runs.drain.owner != runs.name:
        return []
    return [e.SettingChanged(DRAIN, None)]
