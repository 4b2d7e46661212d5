"""Compression: a long conversation goes on in a session of its own, with all that was under way in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from ...domain import marks, turns
from ...domain.context import summarised
from ...domain.errors import ProjectionDamaged
from ...domain.events import Event, Payload, session_stream
from ...domain.removal import beside
from ...domain.session import Session, Why
from ...projections.tree import continuations
from ..decisions import Saved, event
from .base import following, new_session_id, usable
from .told import ToldCommands


class CompressionCommands(ToldCommands):
    """How a conversation goes on when its context is full."""

    def compress_session(
        self,
        session_id: str,
        summary: str,
        *,
        keep_last: int = 0,
        tail: Iterable[int] | None = None,
        upto: int | None = None,
        why: Why = "context_full",
        continuation_id: str | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Let a session go on as a new one that begins with `summary`; returns the continuation.

        One save: the parent's SessionCompressed; the child with the whole identity and its title
        (`name #2`); the summary and, verbatim, what is kept; the turn that runs and those that wait; the
        chat's key led to it. What the continuation is called without a title of its parent is nothing.
        What a repair had made a continuation of it before is a branch: a session goes on as one.

        Args:
            keep_last, tail, upto: what is kept, as `compress` says.
            why: what made it necessary: a full context, or a cap on turns (FIELD_CASES C11).

        Raises:
            SessionOver: a continuation exists already, and the error names it; or it ended for good.
            NothingToDo, NoSuchMessage, RuleBroken, BadUsage.
        """
        first = summarised(summary, where=f"session {session_id}")
        keeping = self.keeping(keep_last=keep_last, tail=tail, upto=upto, or_nothing=True)

        def decision() -> Saved:
            state = self.session(session_id)
            at = self.at(at_us)
            child = usable(new_session_id(at) if continuation_id is None else continuation_id)
            compressed = state.compress(child, why)
            self.refuse_existing(child)
            kept = keeping(state)
            events = [event(session_stream(session_id), state.version + 1, compressed, at)]
            events += self._continuation(state, child, at)
            going: list[tuple[Payload, int]] = [(first, at), *kept.copies]
            going += [(each, at) for each in turns.carried(state.turns, session_id)]
            going += [(each, at) for each in marks.carried(state.marks)]
            stream = session_stream(child)
            version = sum(each.originator_id == stream for each in events)
            events += [event(stream, version + n, each, when) for n, (each, when) in enumerate(going, 1)]
            events += [*self._led_on(state, child, at), *self._beside(state, at)]
            return Saved(child, self.save_events(events))

        return self.decide(decision)

    def _continuation(self, state: Session, child: str, at_us: int) -> list[Event]:
        """The continuation, born with the whole identity and the next title of its line."""
        events = [event(session_stream(child), 1, state.continuation(), at_us)]
        if state.title is not None:
            fresh = Session(id=child, version=1, source=state.source)
            events += self.titling(fresh, self.next_title(state.title), at_us, by="lineage")
        return events

    def _led_on(self, state: Session, child: str, at_us: int) -> list[Event]:
        """The chat's key, where it led to what was compressed."""
        if state.key is None:
            return []
        led = self.route(state.key)
        on = led.lead_to(child, "compression") if led.session_id == state.id else None
        return [] if on is None else [self.rerouted(led, on, at_us)]

    def _beside(self, state: Session, at_us: int) -> list[Event]:
        """What took its key over in a repair, before a person went back to it, is a branch of it now."""
        with contextlib.suppress(ProjectionDamaged):
            taken = continuations(self.caught_up("transcripts"), state.id)
            return [each for name in taken for each in following(self.session(name), [beside()], at_us)]
        return []
