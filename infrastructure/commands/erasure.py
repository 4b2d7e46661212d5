"""Erasing: a text leaves the log for good, and that it did stays on record."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.text import scrub
from ..clock import now_us
from ..decisions import Saved, as_conflict, event
from ..erasing import erased, messages_at, sweep, with_what_quotes
from ..log import Condition
from .base import Commands


class Erased(Saved, frozen=True):
    """What was emptied; `pending` names files that hold the text until their readers leave."""

    pending: tuple[str, ...] = ()


class ErasureCommands(Commands):
    """What is to be gone for good."""

    def erase_messages(self, positions: Sequence[int], *, reason: str) -> Erased:
        """Empty the payloads of messages for good, and of their edits and copies.

        That they were, and when, stays on record. Backups and exports made before are not reached.

        Raises:
            RuleBroken: a position that is no message.
        """

        def decision() -> Erased:
            read_at = self.head().position
            events = with_what_quotes(self.event_log, messages_at(self.event_log, positions))
            if not events:
                return Erased("", ())
            stream = events[0].stream
            version = self.event_log.stream_version(stream) + 1
            record = event(stream, version, erased(events, scrub(reason)[0]), now_us())
            moved = Condition(read_at, streams=tuple({each.stream for each in events}))
            with as_conflict():
                position = self.event_log.erase(
                    [each.position for each in events], self.draft(record), condition=moved
                )
            pending = sweep(self.event_log, self.projector, self.home)
            return Erased(events[0].session_id, (position,), pending)

        return self.decide(decision)
