"""Where a key leads, and moving it."""

from __future__ import annotations

from typing import Final

import msgspec

from . import events as e
from . import holds
from .holds import Hold
from .text import scrub

_MOST_CLOSINGS: Final = 32
"""So far back can undos go: a chat may begin anew every day for years."""


class Closing(msgspec.Struct, frozen=True):
    """`Route.closed` and `Route.left` as they were before an event that led the key somewhere again."""

    position: int
    closed: e.Cause | None
    left: str | None


class Route(msgspec.Struct, frozen=True):
    """One key's stream.

    Attributes:
        session_id: where it leads; None where nowhere.
        closed: why it leads nowhere; None where it leads somewhere, or never did.
        left: the session that it led to when it was closed.
        holds: work in the background of the chat.
        closings: as what it had been closed when it was led somewhere again: an undo puts that back.
    """

    key: str
    version: int = 0
    session_id: str | None = None
    closed: e.Cause | None = None
    left: str | None = None
    holds: tuple[Hold, ...] = ()
    closings: tuple[Closing, ...] = ()

    def lead_to(
        self,
        session_id: str,
        cause: e.Cause,
        *,
        candidates: list[e.RouteCandidate] | None = None,
        evidence: list[str] | None = None,
    ) -> e.SessionRerouted | None:
        """Lead to a session from now on. None where it leads there already."""
        if self.session_id == session_id:
            return None
        return e.SessionRerouted(
            key=self.key,
            session_id=session_id,
            previous=self.session_id,
            cause=cause,
            candidates=[_clean(each) for each in candidates or []],
            evidence=[scrub(each)[0] for each in evidence or []],
        )

    def settle(
        self,
        session_id: str,
        cause: e.Cause,
        candidates: list[e.RouteCandidate],
        evidence: list[str],
    ) -> e.SessionRerouted:
        """Lead to a session by somebody's own word; that it led there already says that it is to stay so."""
        moved = self.lead_to(session_id, cause, candidates=candidates, evidence=evidence)
        if moved is None:
            moved = Route(self.key).lead_to(session_id, cause, candidates=candidates, evidence=evidence)
            assert moved is not None
            moved = msgspec.structs.replace(moved, previous=session_id)
        return moved

    def close(self, cause: e.Cause) -> e.RouteClosed | None:
        """Lead nowhere from now on. None where it leads nowhere."""
        if self.session_id is None:
            return None
        return e.RouteClosed(key=self.key, previous=self.session_id, cause=cause)

    def hold(
        self, name: str, what: str = "", *, gateway: str | None = None, deaths: int = 0
    ) -> e.ActivityHeld | None:
        """Note work in the background. None where work of this name is noted: its age counts from then.

        Args:
            gateway, deaths: who watches over it, and how often that one has died; work of this name that
                it noted before its last death, or another did, is noted anew.
        """
        mine = (name, gateway, deaths)
        if any((each.name, each.gateway, each.deaths) == mine for each in self.holds):
            return None
        return e.ActivityHeld(self.key, name, what, gateway, deaths)

    def release(self, name: str) -> e.ActivityReleased | None:
        """That work is over. None where none of this name is noted."""
        if all(each.name != name for each in self.holds):
            return None
        return e.ActivityReleased(self.key, name)


def _clean(candidate: e.RouteCandidate) -> e.RouteCandidate:
    verdict, broken = scrub(candidate.verdict)
    return msgspec.structs.replace(candidate, verdict=verdict) if broken else candidate


def evolve(
    state: Route,
    version: int,
    payload: object,
    at_us: int = 0,
    *,
    position: int = 0,
    caused_by: int | None = None,
) -> Route:
    """The state after an event.

    Args:
        position, caused_by: the event's, for what an undo of one of several changes puts back.
    """
    match payload:
        case e.SessionRerouted():
            closings = state.closings
            if state.session_id is None:
                before = Closing(position, state.closed, state.left)
                closings = (*closings, before)[-_MOST_CLOSINGS:]
            return Route(payload.key, version, payload.session_id, holds=state.holds, closings=closings)
        case e.RouteClosed():
            closed, left = payload.cause, payload.previous or state.session_id
            back = _put_back(state, caused_by) if payload.cause == "undo" else None
            if back is not None and back.closed is not None:
                closed, left = back.closed, back.left
            return Route(
                payload.key, version, closed=closed, left=left, holds=state.holds, closings=state.closings
            )
        case e.ErasedEvent(topic=e.SessionRerouted.topic):  # where it led to is not known any more
            return Route(state.key, version, holds=state.holds)
        case _:
            held = holds.evolve(state.holds, payload, at_us)
            return msgspec.structs.replace(state, version=version, holds=held)


def _put_back(state: Route, undone: int | None) -> Closing | None:
    """What an undo of a save puts back; of one that is not known, what was closed last."""
    later = [each for each in state.closings if undone is not None and each.position >= undone]
    return later[0] if later else next(reversed(state.closings), None)
