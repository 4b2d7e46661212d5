"""What every command needs that ends a session so that its chat begins anew."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import apsw
import msgspec

from ...domain import events as e
from ...domain import turns
from ...domain.errors import NoSuchSession, ProjectionDamaged
from ...domain.events import Event, MessageAppended, PayloadsErased, session_stream
from ...domain.resets import Due, reset_of
from ...domain.session import Session
from ...projections.chat_facts import Activity, activity
from ..decisions import event
from .base import Commands, queued_in

_SPOKEN = ("user", "assistant")


class Ending(NamedTuple):
    """What a reset writes: the old session's events, the reset among them, and what waits in the new one."""

    events: list[Event]
    reset: e.SessionReset | None
    waiting: list[e.TurnQueued]


class Resetting(Commands):
    """Ending for good, with what the rule saw."""

    def activity_of(self, state: Session) -> Activity:
        """When a session began and was last in use, as of its version.

        Told by the projections; where they cannot keep up, by the log itself.
        """
        for behind in (True, False):
            with contextlib.suppress(apsw.Error):  # not told yet, or damaged: catching up finds out
                found = activity(self.state.reader(), state.id)
                if found is not None and found.version == state.version:
                    return found
            if behind:
                with contextlib.suppress(ProjectionDamaged):
                    self.projector.catch_up()
        return self._activity_in_log(state)

    def _activity_in_log(self, state: Session) -> Activity:
        found = self.event_log.stream_events(session_stream(state.id))
        times: list[int] = []
        for each in found:
            match each.payload:
                case MessageAppended(role=role) if role in _SPOKEN:
                    times.append(min(each.at_us, each.recorded_at_us))
                case PayloadsErased(marks=marks):
                    times += [mark.active_us for mark in marks if mark.active_us and mark.role in _SPOKEN]
                case _:
                    pass
        return Activity(found[0].at_us, max(times, default=None), state.version)

    def ending_for(self, state: Session, due: Due, successor: str | None, at_us: int) -> Ending:
        """End a session for good, so that its chat goes on as `successor`; no reset where it is over.

        A turn that runs is over with its session. What waits was acknowledged: a person's own reset
        clears it, after any other it waits in the successor.
        """
        last_us = self.activity_of(state).last_us
        if due.last_active_us is None:
            due = msgspec.structs.replace(due, last_active_us=last_us)
        reset = reset_of(state, due, successor=successor, had_activity=last_us is not None)
        moves = due.rule != "person" and successor is not None
        cleared = turns.cleared(state.turns, "moved" if moves else "reset")
        payloads = [each for each in (reset, cleared) if each is not None]
        stream = session_stream(state.id)
        events = [event(stream, state.version + n, each, at_us) for n, each in enumerate(payloads, 1)]
        return Ending(events, reset, turns.moved(state.turns, state.id) if moves else [])

    def reset_by(
        self, rule: e.ResetRule, session_id: str, successor: str, at_us: int, *, after: list[Event]
    ) -> list[Event]:
        """Reset a session that a key led to; nothing where it is not there or is over.

        Args:
            after: the events that begin `successor`, in which what waits goes on waiting.
        """
        try:
            state = self.session(session_id)
        except NoSuchSession:
            return []
        ending = self.ending_for(state, Due(rule), successor, at_us)
        return [*ending.events, *queued_in(successor, ending.waiting, at_us, after=after)]
