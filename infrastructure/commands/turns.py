"""Turns: one runs, others wait their turn; each that was acknowledged runs once, whatever crashes.

A runner's loop: `begin_turn` for what just came, or `enqueue` where another turn is under way; the
messages by `append`; `finish_turn`; then `next_turn` until nothing waits. `renew_turn` keeps a long turn
from counting as cut off.

Over 400 lines because a turn begins, waits, goes on and ends by rules that hold one another up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from ...domain import events as e
from ...domain import inbound, restarts, session, turns
from ...domain.errors import BadUsage, NoSuchSession, RuleBroken, Suspended, TurnOver
from ...domain.events import Event, Payload, Recorded, session_stream
from ...domain.gateway import stream as gateway_stream
from ...domain.inbound import Update
from ...domain.recovery import takes_messages
from ...domain.route import Route
from ...domain.session import Session
from ...domain.text import is_blank, scrub
from ...domain.turns import Lane, Outcome, Turns
from ..decisions import Saved, event
from ..streams import inbox_stream, route_stream
from .base import Closed, Commands, following

LEASE_S = 120.0
"""So long a turn counts as under way without being renewed."""
_ATTEMPTS = 2
"""How often an update may begin something: once, and once more where that got stuck (FIELD_CASES I5)."""


class Begun(Saved, frozen=True):
    """A turn was started.

    Attributes:
        turn: its id, for `renew_turn` and `finish_turn`.
        text, about: what it was queued with; None and {} where it was not.
        repeated: the platform's update had been taken before; nothing was started now, and `turn` is
            what it began then (None where it began none).
        lost: the turn before, where its lease had lapsed: it was finished as lost in the same save.
        note: what to tell the model in this turn, in its context and never as a person's message: that a
            restart had cut the one before off, and what to do about it. None where none had.
    """

    turn: str | None = None
    text: str | None = None
    about: dict[str, e.Scalar] = msgspec.field(default_factory=dict[str, e.Scalar])
    repeated: bool = False
    lost: str | None = None
    note: str | None = None


class Queued(Saved, frozen=True):
    """A turn waits in `session_id`: the session that was named, or the one that its chat went on to since.

    Attributes:
        waiting: how many wait now, this one included: the N of "(N queued)".
        replaced: the turn that stood in the slot before and will not run.
        repeated: it had been queued before, by its id or its update; nothing was written.
    """

    turn: str | None = None
    waiting: int = 0
    replaced: str | None = None
    repeated: bool = False


class Finished(Saved, frozen=True):
    """A turn is over; `resumed` where a mark that a restart had left is gone with it."""

    resumed: bool = False


class Seen(Saved, frozen=True):
    """An update of a platform was taken; `repeated` where it had been before."""

    repeated: bool = False


class TurnCommands(Commands):
    """What runs in a session, and what waits."""

    def begin_turn(
        self,
        session_id: str,
        turn: str | None = None,
        *,
        text: str | None = None,
        about: Mapping[str, e.Scalar] | None = None,
        update: Update | None = None,
        gateway: str | None = None,
        lease_s: float = LEASE_S,
        at_us: int | None = None,
    ) -> Begun:
        """Start a turn: a new one, or one that waits.

        Args:
            turn: its id; of one that waits, it leaves the queue. A new id by default.
            text, about: what it is about. Kept with the turn, so that a restart which cuts it off can
                offer it again even where no message was appended yet.
            update: what the platform delivered; delivered again, it starts nothing.
            gateway: the gateway that runs it. Its next start knows at once that the turn was cut off.
            lease_s: seconds until it counts as cut off, unless it is renewed.

        Raises:
            TurnRunning: another turn is under way; the error says who runs it.
            TurnOver: a turn of this id was started before.
            SessionOver, Suspended, Draining, EditBeginsNothing, NoSuchSession, …
        """
        inbound.refuse_edit(update)
        chosen = _turn_id(turn)
        lease_us = _micros(lease_s)

        def decision() -> Begun:
            delivered = self._delivery(update, session_id)
            if isinstance(delivered, Recorded):
                return _begun_before(delivered)
            state = self._taking_turns(session_id)
            at = self.at(at_us)
            self._refuse_started(state, chosen, at)
            before: list[Payload] = []
            now = state.turns
            if text is not None:
                if any(each.turn == chosen for each in now.waiting):
                    raise BadUsage(f"turn {chosen} waits with a text of its own", hint="give no text")
                before.append(
                    turns.queue(Turns(), chosen, text, session_id=session_id, lane="slot", cap=1, about=about)
                )
                now = turns.evolve(now, before[0], at)
            return self._start(state, now, chosen, before, at, lease_us, gateway, update, delivered)

        return self.decide(decision)

    def next_turn(
        self,
        session_id: str,
        *,
        gateway: str | None = None,
        lease_s: float = LEASE_S,
        at_us: int | None = None,
    ) -> Begun | None:
        """Start what waits longest, a plain message first; None where nothing waits.

        Raises:
            TurnRunning: a turn is under way. SessionOver, Suspended, Draining, NoSuchSession, …
        """
        lease_us = _micros(lease_s)

        def decision() -> Begun | None:
            state = self.session(session_id)
            following = turns.following(state.turns)
            if following is None:
                return None
            _refuse_closed(state)
            at = self.at(at_us)
            return self._start(state, state.turns, following.turn, [], at, lease_us, gateway, None, None)

        return self.decide(decision)

    def renew_turn(
        self, session_id: str, turn: str, *, lease_s: float = LEASE_S, at_us: int | None = None
    ) -> Saved:
        """Say that a turn is still under way: its lease begins anew.

        Raises:
            RuleBroken: it does not run: finished, or counted as cut off by whoever came after.
        """
        lease_us = _micros(lease_s)

        def decision() -> Saved:
            state = self._running(session_id, turn)
            at = self.at(at_us)
            payload = turns.renew(state.turns, turn, session_id=state.id, at_us=at, lease_us=lease_us)
            renewed = event(session_stream(state.id), state.version + 1, payload, at)
            return Saved(state.id, self._save(state, [renewed], at))

        return self.decide(decision)

    def finish_turn(
        self,
        session_id: str,
        turn: str,
        outcome: Outcome = "done",
        *,
        detail: str | None = None,
        at_us: int | None = None,
    ) -> Finished:
        """End a turn, once and for all; one that is done takes a restart's mark off its session.

        Where the conversation was compressed meanwhile, the turn is ended where it runs on. The same
        outcome again is answered with the first position.

        Raises:
            TurnOver: it ended otherwise before: counted as lost, or stopped. RuleBroken: never started.
        """

        def decision() -> Finished:
            state = self._running(session_id, turn)
            before = self._turn_event(state.id, "finished", turn)
            if before is not None:
                ended = before.payload.outcome if isinstance(before.payload, e.TurnFinished) else "erased"
                if ended != outcome:
                    raise TurnOver(state.id, turn, ended)
                return Finished(state.id, (before.position,))
            if state.turns.running != turn and self._turn_event(state.id, "started", turn) is None:
                raise RuleBroken(
                    f"session {state.id}: there is no turn {scrub(turn)[0]} to finish", hint="begin it first"
                )
            said = None if detail is None else scrub(detail)[0]
            payloads: list[Payload] = [e.TurnFinished(turn, outcome, said)]
            resumed = outcome == "done" and state.marks.resume is not None
            if resumed:
                payloads.append(e.ResumeCleared("turn_succeeded"))
            at = self.at(at_us)
            return Finished(state.id, self._save(state, self.turn_events(state, payloads, at), at), resumed)

        return self.decide(decision)

    def enqueue(
        self,
        session_id: str,
        text: str,
        *,
        lane: Lane = "slot",
        turn: str | None = None,
        about: Mapping[str, e.Scalar] | None = None,
        update: Update | None = None,
        at_us: int | None = None,
    ) -> Queued:
        """Let a turn wait until those before it are over; once this returns, it will run, and once.

        Where the chat has left the session for another since, it waits there, and the answer names it.

        Args:
            lane: "slot" for a plain message, which a newer one replaces and which runs first;
                "overflow" for what was queued on purpose (/queue), each a turn of its own, in order.
            turn: its id; the same id is queued once. A new one by default.
            about: whatever the runner wants back with it: the sender, a platform's message id.
            update: what the platform delivered; delivered again, it queues nothing.

        Raises:
            QueueFull: as many wait as may (`queue.cap`). BadUsage: nothing to be said.
            SessionOver: names the continuation. Suspended, EditBeginsNothing, NoSuchSession, …
        """
        inbound.refuse_edit(update)
        chosen = _turn_id(turn)

        def decision() -> Queued:
            delivered = self._delivery(update, session_id)
            if isinstance(delivered, Recorded):
                return self._queued_before(delivered)
            state = self._where_its_chat_is(session_id)
            before = self._turn_event(session_id, "queued", chosen)
            before = before or self._turn_event(state.id, "queued", chosen)
            waits = any(each.turn == chosen for each in state.turns.waiting)
            if before is not None or waits:
                at_position = () if before is None else (before.position,)
                waiting = len(state.turns.waiting)
                return Queued(state.id, at_position, turn=chosen, waiting=waiting, repeated=True)
            at = self.at(at_us)
            self._refuse_started(state, chosen, at)
            payload = turns.queue(
                state.turns,
                chosen,
                text,
                session_id=state.id,
                lane=lane,
                cap=self.config.queue.cap,
                about=about,
            )
            events = self.turn_events(state, [payload], at)
            events += self._taken(update, delivered, state.id, chosen, at)
            waiting = len(turns.evolve(state.turns, payload, at).waiting)
            return Queued(state.id, self._save(state, events, at), chosen, waiting, payload.replaces)

        return self.decide(decision)

    def clear_queue(self, session_id: str, *, at_us: int | None = None) -> Closed:
        """Nothing of what waits will run, and the answer names it; the running turn is not touched."""

        def decision() -> Closed:
            state = self.session(session_id)
            cleared = turns.cleared(state.turns, "person")
            if cleared is None:
                return Closed(session_id, ())
            saved = self.save_events(following(state, [cleared], self.at(at_us)))
            return Closed(session_id, saved, tuple(cleared.turns))

        return self.decide(decision)

    def queue_of(self, session_id: str) -> Turns:
        """What runs in a session and what waits there, in the order in which it will run."""
        return self.session(session_id).turns

    def seen_update(
        self,
        update: Update,
        *,
        session_id: str | None = None,
        at_us: int | None = None,
    ) -> Seen:
        """Take an update that begins no turn (a command, an edit): done before it is acted upon.

        `repeated` says that it was taken before, and is to be passed over (FIELD_CASES B24).
        """

        def decision() -> Seen:
            delivered = self._delivery(update, None)
            if isinstance(delivered, Recorded):
                return Seen(session_id or "", (delivered.position,), repeated=True)
            events = self._taken(update, delivered, session_id, None, self.at(at_us))
            return Seen(session_id or "", self.save_events(events))

        return self.decide(decision)

    # --- what these share ---------------------------------------------------------------------------

    def turn_events(self, state: Session, payloads: Sequence[Payload], at_us: int) -> list[Event]:
        """The next events of a session; what may happen to a turn once only bears a key that says so."""
        stream = session_stream(state.id)
        events = []
        for version, payload in enumerate(payloads, state.version + 1):
            key = None
            match payload:
                case e.TurnQueued():
                    key = self._turn_key(state.id, "queued", payload.turn)
                case e.TurnStarted():
                    key = self._turn_key(state.id, "started", payload.turn)
                case e.TurnFinished():
                    key = self._turn_key(state.id, "finished", payload.turn)
                case _:
                    pass
            events.append(event(stream, version, payload, at_us, idempotency_key=key))
        return events

    def _turn_key(self, session_id: str, what: str, turn: str) -> bytes:
        return self.identity.keyed_hash("turn", what, session_id, turn)

    def _turn_event(self, session_id: str, what: str, turn: str) -> Recorded | None:
        key = self._turn_key(session_id, what, scrub(turn)[0])
        return self.event_log.by_idempotency_key(session_stream(session_id), key)

    def _start(
        self,
        state: Session,
        now: Turns,
        turn: str,
        before: list[Payload],
        at_us: int,
        lease_us: int,
        gateway: str | None,
        update: Update | None,
        delivered: bytes | None,
    ) -> Begun:
        """One save: the start, what must be said before it, and the update that it answers."""
        begun = turns.begin(now, turn, session_id=state.id, at_us=at_us, lease_us=lease_us, gateway=gateway)
        events = self.turn_events(state, [*before, *begun], at_us)
        events += self._taken(update, delivered, state.id, turn, at_us)
        if gateway is not None:
            runs = self.gateway(gateway)
            lapsed = runs.takes_turns(at_us)
            if lapsed is not None:
                events.append(event(gateway_stream(gateway), runs.version + 1, lapsed, at_us))
        asked = next((each for each in now.waiting if each.turn == turn), None)
        return Begun(
            state.id,
            self._save(state, events, at_us),
            turn,
            None if asked is None else asked.text,
            {} if asked is None else asked.about,
            lost=now.running,
            note=restarts.note_for(state, asked),
        )

    def _save(self, state: Session, events: list[Event], at_us: int) -> tuple[int, ...]:
        """Save, and keep the session's state as it is now: a chat of many turns is not read again."""
        positions = self.save_events(events)
        stream = session_stream(state.id)
        now: Session | None = state
        for each in events:
            if each.originator_id == stream:
                now = session.evolve(now, state.id, each.originator_version, each.payload, at_us)
        if now is not None:
            self.remember(now)
        return positions

    def _taking_turns(self, session_id: str) -> Session:
        state = self.session(session_id)
        _refuse_closed(state)
        return state

    def _where_its_chat_is(self, session_id: str) -> Session:
        """The session in which a turn is to wait: the one that is named, or where its chat has gone since."""
        state = self.session(session_id)
        if state.successor is None and state.key is not None:
            led = self.route(state.key)
            if led.session_id not in (None, state.id) and self._led_before(led, state.id):
                state = self._taking_over(led.session_id) or state
        _refuse_closed(state)
        return state

    def _led_before(self, led: Route, session_id: str) -> bool:
        """Whether a key ever led to a session; it never did to a branch beside the chat."""
        told = self.event_log.stream_events(route_stream(self.identity, led.key))
        moves = (each.payload for each in told)
        return any(isinstance(each, e.SessionRerouted) and each.session_id == session_id for each in moves)

    def _taking_over(self, session_id: str | None) -> Session | None:
        """Where a session goes on; None where what is said there is said to nobody."""
        seen: set[str] = set()
        state: Session | None = None
        while session_id is not None and session_id not in seen:
            seen.add(session_id)
            try:
                state = self.session(session_id)
            except NoSuchSession:
                return None
            session_id = state.successor
        if state is None or state.over or not takes_messages(state.source, state.parent_kind):
            return None
        return state

    def _refuse_started(self, state: Session, turn: str, at_us: int) -> None:
        """A turn is started once."""
        if state.turns.running == turn:
            turns.refuse_running(state.turns, session_id=state.id, at_us=at_us)
        finished = self._turn_event(state.id, "finished", turn)
        if finished is None and self._turn_event(state.id, "started", turn) is None:
            return
        ended = None if finished is None else finished.payload
        raise TurnOver(state.id, turn, ended.outcome if isinstance(ended, e.TurnFinished) else "lost")

    def _running(self, session_id: str, turn: str) -> Session:
        """The session where a turn runs: this one, or the one that it was compressed into since."""
        asked = state = self.session(session_id)
        passed = {session_id}
        while state.turns.running != turn:
            if state.successor is None or state.successor in passed:
                return asked
            passed.add(state.successor)
            state = self.session(state.successor)
        return state

    # --- what a platform delivered ------------------------------------------------------------------

    def _delivery(self, update: Update | None, session_id: str | None) -> Recorded | bytes | None:
        """The event that took this update before; else the key to take it under, None where there is none.

        What began a turn in which its session got stuck may begin one more, in another session.
        """
        if update is None:
            return None
        named = inbound.usable(update)
        stream = inbox_stream(self.identity, named.platform, named.chat_id)
        found: Recorded | None = None
        for attempt in range(_ATTEMPTS):
            if found is not None and (session_id is None or not self._got_stuck(found, session_id)):
                break
            key = self.identity.keyed_hash("update", named.id, attempt)
            again = self.event_log.by_idempotency_key(stream, key)
            if again is None:
                return key
            found = again
        return found

    def _got_stuck(self, seen: Recorded, session_id: str) -> bool:
        payload = seen.payload
        if not isinstance(payload, e.UpdateSeen) or payload.session_id is None or payload.turn is None:
            return False
        if payload.session_id == session_id or not self.exists(payload.session_id):
            return False
        if self.session(payload.session_id).marks.suspended != "stuck":
            return False
        finished = self._turn_event(payload.session_id, "finished", payload.turn)
        return finished is not None and finished.payload == e.TurnFinished(
            payload.turn, "lost", turns.CUT_OFF
        )

    def _taken(
        self,
        update: Update | None,
        key: Recorded | bytes | None,
        session_id: str | None,
        turn: str | None,
        at_us: int,
    ) -> list[Event]:
        """The event that says an update was taken, and what it began."""
        if update is None or not isinstance(key, bytes):
            return []
        named = inbound.usable(update)
        stream = inbox_stream(self.identity, named.platform, named.chat_id)
        seen = e.UpdateSeen(named.platform, named.id, session_id, turn)
        version = self.event_log.stream_version(stream) + 1
        return [event(stream, version, seen, at_us, idempotency_key=key)]

    def _queued_before(self, seen: Recorded) -> Queued:
        begun = _begun_before(seen)
        waiting = len(self.session(begun.session_id).turns.waiting) if begun.session_id else 0
        return Queued(begun.session_id, begun.positions, begun.turn, waiting, repeated=True)


def _begun_before(seen: Recorded) -> Begun:
    payload = seen.payload
    if not isinstance(payload, e.UpdateSeen):
        return Begun("", (seen.position,), repeated=True)
    return Begun(payload.session_id or "", (seen.position,), payload.turn, repeated=True)


def _refuse_closed(state: Session) -> None:
    state.refuse_over()
    if state.marks.suspended is not None:
        raise Suspended(state.id, state.marks.suspended)


def _turn_id(turn: str | None) -> str:
    if turn is None:
        return os.urandom(8).hex()
    if is_blank(turn):
        raise BadUsage("a turn's id cannot be blank", hint="give another, or none")
    return scrub(turn)[0]


def _micros(lease_s: float) -> int:
    if not 0 < lease_s <= 86_400:
        raise BadUsage(
            f"a lease of {lease_s} seconds is none", hint="more than 0 and at most a day; renew it"
        )
    return int(lease_s * 1_000_000)
