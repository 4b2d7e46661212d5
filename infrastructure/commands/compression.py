"""Compression: a long conversation goes on shorter."""

from __future__ import annotations

from ...domain.events import session_stream
from ...domain.session import Session
from ..clock import now_us
from ..decisions import Saved, event
from .base import Commands, moved, new_session_id, usable


class CompressionCommands(Commands):
    """How a conversation goes on when its context is full."""

    def compress_session(
        self, session_id: str, summary: str, *, continuation_id: str | None = None, at_us: int | None = None
    ) -> Saved:
        """Let a session go on as a new one that begins with `summary`; returns the continuation.

        One save: the parent's SessionCompressed, the child with the whole identity, its title
        (`name #2`), the summary, and the chat's key led to it.

        Raises:
            SessionOver: a continuation exists already; the error names it.
        """

        def decision() -> Saved:
            state = self.session(session_id)
            at = now_us() if at_us is None else at_us
            child = usable(continuation_id or new_session_id(at))
            compressed = state.compress(child)
            self.refuse_existing(child)
            stream = session_stream(child)
            events = [
                event(session_stream(session_id), state.version + 1, compressed, at),
                event(stream, 1, state.continuation(), at),
            ]
            fresh = Session(id=child, version=1, source=state.source)
            if state.title is not None:
                events += self.titling(fresh, self.next_title(state.title), at)
                fresh = moved(fresh, sum(each.originator_id == stream for each in events) - 1)
            events.append(event(stream, fresh.version + 1, fresh.append_message("user", summary), at))
            if state.key is not None:
                led = self.route(state.key)
                again = led.lead_to(child, "compression") if led.session_id == session_id else None
                if again is not None:
                    events.append(self.rerouted(led, again, at))
            return Saved(child, self.save_events(events))

        return self.decide(decision)
