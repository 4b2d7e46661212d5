"""Routes: which session a chat's key leads to."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain import events as e
from ...domain.events import Event, session_stream
from ..clock import now_us
from ..decisions import Saved, event
from ..log import Condition
from .base import Commands


class RouteCommands(Commands):
    """Where a chat goes on."""

    def route_of(self, key: str) -> str | None:
        """The session that a key leads to."""
        return self.route(key).session_id

    def reroute(
        self,
        key: str,
        session_id: str,
        cause: e.Cause,
        *,
        candidates: Sequence[e.RouteCandidate] = (),
        evidence: Sequence[str] = (),
        condition: Condition | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Lead a key to a session, with the cause and what was weighed.

        A resume is a person's own choice: it opens the session again, in the same save, however it ended.

        Args:
            condition: what was read to choose that session. If any of it has moved since, nothing is
                written, and it is not decided again here: the choice is the caller's.

        Raises:
            NoSuchSession: there is none of this id. VersionConflict: `condition` does not hold.
        """

        def decision() -> Saved:
            state = self.session(session_id)
            led = self.route(key)
            at = now_us() if at_us is None else at_us
            reopened = state.resume() if cause == "resume" else None
            moved = led.lead_to(session_id, cause, candidates=list(candidates), evidence=list(evidence))
            events: list[Event] = []
            if reopened is not None:
                events.append(event(session_stream(session_id), state.version + 1, reopened, at))
            if moved is not None:
                events.append(self.rerouted(led, moved, at))
            return Saved(session_id, self.save_events(events, condition=condition))

        return self.decide(decision, again=condition is None)
