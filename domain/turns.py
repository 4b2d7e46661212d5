"""Turns of a session: what runs now, what waits, and in which order it runs (REFERENCE.md 9).

One plain message waits in the slot; a newer one takes its place, and it runs before all else. What was
queued on purpose waits in the overflow, in order, each a turn of its own that nothing replaces; with no
plain message waiting, the first of them has the slot's place and runs next. Both are events, so what
was acknowledged as queued is there after any restart.

A turn is started once: its start takes it out of the queue. What was started and cut off is never
started again by itself; it is finished as "lost", and a restart offers its session to be resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Literal

import msgspec

from . import events as e
from .errors import BadUsage, QueueFull, RuleBroken, TurnRunning
from .message import refuse_encoded
from .text import is_blank, scrub

Lane = Literal["slot", "overflow"]
Outcome = Literal["done", "failed", "interrupted", "lost"]
LEASE_LAPSED = "its lease had lapsed"
CUT_OFF = "cut off by a restart"
STOPPED = "stopped by a person"


class Waiting(msgspec.Struct, frozen=True):
    """One turn that waits: its id, and what it was queued with."""

    turn: str
    text: str
    lane: Lane
    about: dict[str, e.Scalar] = {}


class Turns(msgspec.Struct, frozen=True):
    """What runs in a session and what waits there.

    Attributes:
        running: the turn under way, None where there is none.
        lease_until_us: past it the running turn counts as cut off.
        since_us: when it began.
        waiting: the slot's turn first, if there is one, then the overflow in order.
        gateway: who runs the turn, or ran the one before; None for no gateway.
        cut_off: the turn before, where it was cut off and none has begun since.
        asked: what the running turn, or the one that was cut off, was queued with; None where it was not.
    """

    running: str | None = None
    lease_until_us: int = 0
    since_us: int = 0
    waiting: tuple[Waiting, ...] = ()
    gateway: str | None = None
    cut_off: str | None = None
    asked: Waiting | None = None
    before: tuple[int, int] | None = None
    """When the turn before began and ended."""

    def runs_at(self, at_us: int) -> bool:
        """Whether a turn is under way at a time: started, not finished, its lease not lapsed."""
        return self.running is not None and at_us < self.lease_until_us

    def cut_off_at(self, at_us: int, *, gateway: str | None = None) -> bool:
        """Whether a turn was started and its runner is gone.

        Args:
            gateway: one that starts now: whatever it ran before is cut off, however long its lease.
        """
        if self.running is None:
            return False
        return not self.runs_at(at_us) or (gateway is not None and self.gateway == gateway)


def begin(
    state: Turns,
    turn: str,
    *,
    session_id: str,
    at_us: int,
    lease_us: int,
    gateway: str | None = None,
) -> list[e.Payload]:
    """Start a turn, one that waits or a new one; one whose lease has lapsed is finished as lost first.

    Raises:
        TurnRunning: another turn is under way, or this one; the error says who runs it.
    """
    refuse_running(state, session_id=session_id, at_us=at_us)
    events: list[e.Payload] = []
    if state.running is not None:
        events.append(e.TurnFinished(state.running, "lost", LEASE_LAPSED))
    queued = any(each.turn == turn for each in state.waiting)
    events.append(e.TurnStarted(turn, at_us + lease_us, queued, gateway))
    return events


def refuse_running(state: Turns, *, session_id: str, at_us: int) -> None:
    """Nothing where no turn is under way.

    Raises:
        TurnRunning: one is; the error says who runs it, since when and for how long yet.
    """
    if state.running is not None and state.runs_at(at_us):
        raise TurnRunning(
            session_id,
            turn=state.running,
            gateway=state.gateway,
            since_us=state.since_us,
            lease_until_us=state.lease_until_us,
        )


def renew(state: Turns, turn: str, *, session_id: str, at_us: int, lease_us: int) -> e.TurnStarted:
    """Move the lease of the running turn on; also one that has lapsed, as long as nobody took its place.

    Raises:
        RuleBroken: it does not run (any more).
    """
    if state.running != turn:
        raise RuleBroken(
            f"session {session_id}: turn {turn} does not run (any more)",
            hint="it was finished, or counted as cut off once its lease had lapsed",
        )
    return e.TurnStarted(turn, at_us + lease_us, gateway=state.gateway)


def queue(
    state: Turns,
    turn: str,
    text: str,
    *,
    session_id: str,
    lane: Lane,
    cap: int,
    about: Mapping[str, e.Scalar] | None = None,
) -> e.TurnQueued:
    """Let a turn wait: in the slot, where it takes the place of a plain message before it, or last of all.

    Raises:
        QueueFull: as many wait as may. BadUsage: there is nothing to be said, or it is no text.
        BytesRefused: it is a file's bytes.
    """
    if _says_nothing(text):
        raise BadUsage(f"session {session_id}: a turn that is queued needs a text", hint="/queue <prompt>")
    refuse_encoded(text, "a turn's text", f"session {session_id}")
    before = slot(state) if lane == "slot" else None
    if before is None and len(state.waiting) >= cap:
        raise QueueFull(session_id, cap)
    return e.TurnQueued(
        turn,
        scrub(text)[0],
        lane,
        replaces=None if before is None else before.turn,
        about=_kept(about or {}),
    )


def _kept(about: Mapping[Any, Any]) -> dict[str, e.Scalar]:
    """What a runner wants back with a turn, fit for the log: a text or a number to a name, nothing nested.

    Raises:
        BadUsage: a name that is no text, or another value.
    """
    kept: dict[str, e.Scalar] = {}
    for name, value in about.items():
        is_one = value is None or isinstance(value, (bool, int, str, bytes))
        if not isinstance(name, str) or not (is_one or (isinstance(value, float) and isfinite(value))):
            raise BadUsage(
                f"about may hold texts and numbers by name, not {name!r}: {str(value)[:60]}",
                hint="nothing was written; what is nested can be given as JSON text",
            )
        kept[scrub(name)[0]] = scrub(value)[0] if isinstance(value, str) else value
    return kept


def _says_nothing(text: object) -> bool:
    return not isinstance(text, str) or is_blank(text)


def slot(state: Turns) -> Waiting | None:
    """The plain message that waits, if one does: the only kind that a newer one replaces."""
    return next((each for each in state.waiting if each.lane == "slot"), None)


def following(state: Turns) -> Waiting | None:
    """What runs next."""
    return state.waiting[0] if state.waiting else None


def cleared(state: Turns, why: Literal["reset", "person", "moved", "deleted"]) -> e.QueueCleared | None:
    """All that waits will not run here; None where nothing waits."""
    if not state.waiting:
        return None
    return e.QueueCleared([each.turn for each in state.waiting], why)


def moved(state: Turns, session_id: str) -> list[e.TurnQueued]:
    """What waits, queued again in the session that goes on from `session_id`, ids and order kept."""
    return [_again(each, session_id) for each in state.waiting]


def carried(state: Turns, session_id: str) -> list[e.Payload]:
    """What runs and what waits, for the continuation that compression makes of `session_id`.

    A conversation is compressed in the middle of a turn: that turn runs on there, with its lease.
    """
    events: list[e.Payload] = []
    if state.running is not None:
        if state.asked is not None:
            events.append(_again(state.asked, session_id))
        events.append(
            e.TurnStarted(state.running, state.lease_until_us, state.asked is not None, state.gateway)
        )
    return [*events, *moved(state, session_id)]


def _again(waiting: Waiting, session_id: str) -> e.TurnQueued:
    return e.TurnQueued(waiting.turn, waiting.text, waiting.lane, about=waiting.about, moved_from=session_id)


def evolve(state: Turns, payload: object, at_us: int) -> Turns:
    """The state after an event of the session."""
    match payload:
        case e.TurnQueued():
            kept = [each for each in state.waiting if each.turn != payload.replaces]
            queued = Waiting(payload.turn, payload.text, payload.lane, payload.about)
            if payload.lane == "slot":
                return msgspec.structs.replace(state, waiting=(queued, *kept))
            return msgspec.structs.replace(state, waiting=(*kept, queued))
        case e.TurnStarted():
            renewed = state.running == payload.turn
            asked = next((each for each in state.waiting if each.turn == payload.turn), None)
            return Turns(
                running=payload.turn,
                lease_until_us=payload.lease_until_us,
                since_us=state.since_us if renewed else at_us,
                waiting=tuple(each for each in state.waiting if each.turn != payload.turn),
                gateway=payload.gateway,
                asked=state.asked if renewed else asked,
                before=state.before,
            )
        case e.TurnFinished():
            if state.running != payload.turn:
                return state
            if payload.outcome in ("lost", "interrupted"):
                return msgspec.structs.replace(_idle(state, at_us), cut_off=payload.turn, asked=state.asked)
            return _idle(state, at_us)
        case e.SessionEnded() | e.SessionReset():
            return _over(state, at_us)
        case e.SessionCompressed():  # all of it goes on in the continuation
            return msgspec.structs.replace(_over(state, at_us), waiting=())
        case e.QueueCleared():
            gone = set(payload.turns)
            return msgspec.structs.replace(
                state, waiting=tuple(each for each in state.waiting if each.turn not in gone)
            )
        case _:
            return state


def _over(state: Turns, at_us: int) -> Turns:
    return _idle(state, at_us) if state.running is not None else state


def _idle(state: Turns, at_us: int) -> Turns:
    """Nothing runs: the turn is over, or its session is (FIELD_CASES I16)."""
    return Turns(waiting=state.waiting, gateway=state.gateway, before=(state.since_us, at_us))
