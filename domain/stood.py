"""What a session was at a point of the log, and where a key led, as far as an undo puts it back."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from . import events as e
from .ends import COMPRESSION, SESSION_RESET, SUPERSEDED
from .events import Recorded
from .marks import Marks
from .marks import evolve as marked


class End(msgspec.Struct, frozen=True):
    """How a session had ended; None for open. `at_us` is when, `ended_at` as its row says it."""

    reason: str | None = None
    hard: bool = False
    at_us: int = 0
    ended_at: float | None = None
    successor: str | None = None
    stands: bool = False


class Was(msgspec.Struct, frozen=True):
    """What a session was at a point, as far as a save may change it."""

    title: e.SessionTitled = e.SessionTitled(None)
    archived: bool = False
    pinned: bool = False
    end: End = End()
    key: str | None = None
    lost_key: str | None = None
    marks: Marks = Marks()


class Led(msgspec.Struct, frozen=True):
    """Where a key led, and the source's own entry."""

    session_id: str | None = None
    entry: str | None = None
    entry_created_us: int | None = None
    entry_updated_us: int | None = None


def was_after(events: Iterable[Recorded]) -> Was:
    """What a session is after these events of it."""
    state = Was()
    for each in events:
        state = after(state, each)
    return state


def after(state: Was, event: Recorded) -> Was:
    """What a session is after one more event."""
    told = _changed(state, event)
    return msgspec.structs.replace(told, marks=marked(told.marks, event.payload, event.at_us))


def _changed(state: Was, event: Recorded) -> Was:
    match event.payload:
        case e.SessionCreated() as p:
            return Was(
                archived=bool(p.columns.get("archived")),
                pinned=bool(p.columns.get("pinned")),
                key=p.session_key,
            )
        case e.SessionTitled() as p:
            return msgspec.structs.replace(state, title=p)
        case e.SessionArchived() | e.SessionUnarchived():
            return msgspec.structs.replace(state, archived=isinstance(event.payload, e.SessionArchived))
        case e.SessionPinned() | e.SessionUnpinned():
            return msgspec.structs.replace(state, pinned=isinstance(event.payload, e.SessionPinned))
        case e.IdentityLost(now=now) | e.IdentityRestored(now=now) if "session_key" in now:
            return _identified(state, event.payload, now["session_key"])
        case e.SessionReopened() | e.SessionEnded() | e.SessionReset() | e.SessionCompressed():
            return msgspec.structs.replace(state, end=_ended(state.end, event))
        case _:
            return state


def _identified(state: Was, payload: e.IdentityLost | e.IdentityRestored, key: e.Scalar) -> Was:
    lost = state.lost_key
    if key is None and isinstance(payload, e.IdentityLost) and state.key is not None:
        lost = state.key
    known = key if isinstance(key, str) else None
    return msgspec.structs.replace(state, key=known, lost_key=lost if known is None else None)


def _ended(end: End, event: Recorded) -> End:
    match event.payload:
        case e.SessionReopened():
            return End()
        case e.SessionReset():
            return End(SESSION_RESET, True, event.at_us, None, end.successor, stands=True)
        case e.SessionCompressed() as p:
            if end.hard:
                return msgspec.structs.replace(end, successor=p.continuation)
            return End(COMPRESSION, False, event.at_us, p.ended_at, p.continuation, stands=True)
        case e.SessionEnded() as p:
            superseded = p.reason == SUPERSEDED
            if end.hard and not p.hard and not superseded:
                return end
            if superseded and end.stands:
                return msgspec.structs.replace(end, reason=p.reason, hard=p.hard)
            return End(p.reason, p.hard, event.at_us, p.ended_at, end.successor, stands=True)
        case _:
            return end


def led_after(led: Led, payload: object) -> Led:
    """Where a key leads after one more event."""
    match payload:
        case e.SessionRerouted() as p:
            return Led(p.session_id, p.entry, p.entry_created_us, p.entry_updated_us)
        case e.RouteClosed() | e.ErasedEvent(topic=e.SessionRerouted.topic):
            return Led()
        case _:
            return led
