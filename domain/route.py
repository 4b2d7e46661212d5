"""Where a key leads, and moving it."""

from __future__ import annotations

import msgspec

from . import events as e
from .text import scrub


class Route(msgspec.Struct, frozen=True):
    """One key's stream. `session_id` is None where it leads nowhere."""

    key: str
    version: int = 0
    session_id: str | None = None

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


def _clean(candidate: e.RouteCandidate) -> e.RouteCandidate:
    verdict, broken = scrub(candidate.verdict)
    return msgspec.structs.replace(candidate, verdict=verdict) if broken else candidate


def evolve(state: Route, version: int, payload: object) -> Route:
    """The state after an event."""
    match payload:
        case e.SessionRerouted():
            return Route(payload.key, version, payload.session_id)
        case e.RouteClosed():
            return Route(payload.key, version, None)
        case _:
            return msgspec.structs.replace(state, version=version)
