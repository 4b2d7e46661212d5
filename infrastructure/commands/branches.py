"""Branches: a conversation goes another way, and the first way stays."""

from __future__ import annotations

import contextlib

from ...domain import turns
from ...domain.context import copied
from ...domain.errors import NoSuchMessage
from ...domain.events import Event, Payload, TitledBy, TurnQueued, session_stream
from ...domain.session import Session
from ...domain.titles import clean_title
from ...projections.context import appended, lines
from ..decisions import Saved, event
from ..history import past_at
from ..log import Condition
from ..when import Point
from .base import following, new_session_id, usable
from .told import ToldCommands

_UNNAMED = "branch"


class BranchCommands(ToldCommands):
    """Another way from here."""

    def branch_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        upto: int | None = None,
        as_of: int | None = None,
        as_of_us: int | None = None,
        lead: bool = True,
        branch_id: str | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Begin a session with what is in another's context, and the whole identity of that one.

        The copies name what they are copies of; search finds the originals. The session that it branches
        off stays as it is; one without a key ends softly as branched, since its terminal goes on here.

        Args:
            title: by default the next of the first session's line, or `branch`.
            upto: the last message, by id, that goes along; all by default.
            as_of, as_of_us: a position, or a time: what was in the context then goes along, as it was said
                then, whatever was undone, compressed or edited since.
            lead: whether the chat's key leads to the branch from now on, and what waits goes there, as it
                does from a terminal.

        Raises:
            NoSuchSession, SessionExists, TitleTaken, BadTitle.
            NoSuchMessage: no message of the context is `upto` or before it; or there was none then.
            BadUsage: the log has not reached `as_of`.
        """
        wanted = None if title is None else clean_title(title)
        then = Point(as_of, as_of_us) if as_of is not None or as_of_us is not None else None

        def decision() -> Saved:
            read_at = self.head().position
            state = self.session(session_id)
            at = self.at(at_us)
            made = usable(new_session_id(at) if branch_id is None else branch_id)
            self.refuse_existing(made)
            stream = session_stream(made)
            events = [event(stream, 1, state.branch(), at)]
            name = wanted or self.next_title(state.title or _UNNAMED)
            by: TitledBy = "lineage" if wanted is None else "person"
            events += self.titling(Session(id=made, version=1, source=state.source), name, at, by=by)
            version = sum(each.originator_id == stream for each in events)
            going = self._context(state, upto) if then is None else self._past(state, then, upto)
            left, waiting = self._left(state, at) if lead else ([], [])
            going += [(each, at) for each in waiting]
            for n, (payload, said_us) in enumerate(going, 1):
                events.append(event(stream, version + n, payload, said_us))
            events += [*left, *self._parted(state, made, lead, at)]
            copied_from = Condition(read_at, (session_stream(session_id),))
            return Saved(made, self.save_events(events, condition=copied_from))

        return self.decide(decision)

    def _context(self, state: Session, upto: int | None) -> list[tuple[Payload, int]]:
        """What is in a session's context, as copies, each with when it was said."""
        db = self.told(state)
        live = [
            each
            for each in lines(db, state.id)
            if each.visibility == "live" and (upto is None or each.id <= upto)
        ]
        if upto is not None and not live:
            raise NoSuchMessage(
                f"session {state.id} has no message up to #{upto} in its context", hint="nothing was written"
            )
        said = self.said(db, [each.id for each in live])
        return [(copied(said[each.id][0], each), said[each.id][1]) for each in live]

    def _past(self, state: Session, then: Point, upto: int | None) -> list[tuple[Payload, int]]:
        """What was in a session's context at a point, as it was said then."""
        past = past_at(self.event_log, self.home, then)
        with contextlib.closing(past.db):
            live = [each for each in lines(past.db, state.id) if each.visibility == "live"]
            live = [each for each in live if upto is None or each.id <= upto]
            said = appended(past.db, [each.id for each in live])
        if not said:
            raise NoSuchMessage(
                f"session {state.id} had no message in its context then", hint="nothing was written"
            )
        return [(copied(said[each.id][0], each), said[each.id][1]) for each in live if each.id in said]

    def _left(self, state: Session, at_us: int) -> tuple[list[Event], list[TurnQueued]]:
        """What waits where the chat was, if that is not the session that it branches off."""
        led = None if state.key is None else self.route(state.key).session_id
        events, waiting = ([], []) if led in (None, state.id) else self.leaving(led, at_us, ends_it=False)
        return events, [*waiting, *turns.moved(state.turns, state.id)]

    def _parted(self, state: Session, branch: str, lead: bool, at_us: int) -> list[Event]:
        """What becomes of the session that is left, of what waits there, and of the key that led to it."""
        cleared = turns.cleared(state.turns, "moved") if lead else None
        ended = state.end("branched") if state.key is None else None
        events = following(state, [each for each in (cleared, ended) if each is not None], at_us)
        if state.key is None or not lead:
            return events
        led = self.route(state.key)
        on = led.lead_to(branch, "branch")
        return events if on is None else [*events, self.rerouted(led, on, at_us)]
