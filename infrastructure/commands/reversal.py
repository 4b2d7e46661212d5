"""Undo: the reverse of a save, as a save of its own."""

from __future__ import annotations

import msgspec

from ...domain import events as e
from ...domain import removal
from ...domain.errors import NoSuchThing
from ...domain.events import Recorded, session_stream
from ...domain.removal import DAY_US
from ...domain.reversal import Step, Told, left_as_it_is, reverse
from ..carrying import left_with
from ..decisions import Saved
from ..log import Condition
from .base import Commands
from .repairs import Batch

ENOUGH = 100
"""So many later messages of a stream are looked at: each builds on the same."""


class Undone(Saved, frozen=True):
    """A save that was taken back.

    Attributes:
        undone: its positions; `positions` are those of its reverse, which can be undone in turn.
        sessions, keys: what it was about.
        left: what of it is not back, a sentence each.
        carried: Hermes homes that it was carried into, where it stands still.
    """

    undone: tuple[int, ...] = ()
    sessions: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()


class ReversalCommands(Commands):
    """Taking back what was done here."""

    def undo(self, position: int, *, at_us: int | None = None) -> Undone:
        """Undo the save that an event belongs to: any of its positions names it.

        One save that puts back what was before: titles, archive, pins, ends, stops, resets, routes,
        identities, rewinds, deletions, conflicts; what waited where it cleared a queue waits again, and
        a mark to be gone on with stands again. Each of its events names the undone save's first as its cause.

        Raises:
            NoSuchThing: there is no such event. NotUndoable: it is of no kind that can be undone.
            BuiltOn: later events rest on it; the error names them.
        """

        def decision() -> Undone:
            read_at = self.head().position
            saved = self.save_of(position)
            streams = list(dict.fromkeys(each.stream for each in saved))
            led_to = [
                session_stream(each.payload.session_id)
                for each in saved
                if isinstance(each.payload, e.SessionRerouted)
            ]
            told = Told(
                saved,
                {each: self._told_before(each, saved[0].position) for each in streams},
                {each: self._told_after(each, saved[-1].position) for each in {*streams, *led_to}},
            )
            at = self.at(at_us)
            steps, parents = self._steps(told, at)
            batch = Batch(at)
            for step in steps:
                version = self.event_log.stream_version(step.stream)
                batch.add(step.stream, version, step.payload, at_us=step.at_us)
            events = [
                msgspec.structs.replace(each, caused_by=step.caused_by or told.position)
                for each, step in zip(batch.events, steps, strict=True)
            ]
            moved = Condition(read_at, tuple(sorted({*streams, *led_to, *parents})))
            sessions = [each.removeprefix("session:") for each in streams if each.startswith("session:")]
            keys = [each.payload.key for each in saved if isinstance(each.payload, _ROUTES)]
            return Undone(
                sessions[0] if sessions else "",
                self.save_events(events, condition=moved),
                undone=tuple(each.position for each in saved),
                sessions=tuple(sessions),
                keys=tuple(dict.fromkeys(keys)),
                left=tuple(left_as_it_is(told)),
                carried=self._carried(told),
            )

        return self.decide(decision)

    def _steps(self, told: Told, at_us: int) -> tuple[list[Step], set[str]]:
        """The reverse, and streams of what comes back's parents, which it was decided on, too."""
        keep_us = int(self.config.sessions.erase_after * DAY_US)
        steps: list[Step] = []
        parents: set[str] = set()
        for step in reverse(told, erase_after_us=max(at_us, self.clock()) + keep_us):
            steps.append(step)
            if isinstance(step.payload, e.SessionUndeleted):
                back = self.session(step.stream.removeprefix("session:"), deleted=True)
                if back.parent_id is not None:
                    parents.add(session_stream(back.parent_id))
                if self.went_on_without(back):
                    steps.append(Step(step.stream, removal.beside()))
        return steps, parents

    def save_of(self, position: int) -> list[Recorded]:
        """The events that were saved together with one, in order.

        Raises:
            NoSuchThing: there is no such event.
        """
        found = self.event_log.read(position - 1, limit=1, upto=position) if position > 0 else []
        if not found:
            raise NoSuchThing(f"there is no event #{position}", hint="retold log shows them")
        events: list[Recorded] = []
        after = found[0].save - 1
        while told := self.event_log.read(after, limit=256):
            events += [each for each in told if each.save == found[0].save]
            if told[-1].save != found[0].save:
                break
            after = told[-1].position
        return events

    def _carried(self, told: Told) -> tuple[str, ...]:
        """The homes that a save was carried into; each note of that names the save as its cause."""
        stores = {
            getattr(each.payload, "store", None)
            for later in told.after.values()
            for each in later
            if each.caused_by == told.position and each.source_ref is not None
        }
        stores |= left_with(self.home, told.position)  # by a carry that was killed before it was noted
        homes = self.state.reader().execute("SELECT store, path FROM source_homes ORDER BY path")
        return tuple(str(path) for store, path in homes.fetchall() if store in stores)

    def _told_before(self, stream: str, position: int) -> list[Recorded]:
        told = self.event_log.stream_events(stream, without_messages=True)
        return [each for each in told if each.position < position]

    def _told_after(self, stream: str, position: int) -> list[Recorded]:
        told = self.event_log.stream_events(stream, without_messages=True)
        topics = (e.MessageAppended.topic,)
        said = self.event_log.read(position, limit=ENOUGH, stream=stream, topics=topics)
        return [*(each for each in told if each.position > position), *said]


_ROUTES = (e.SessionRerouted, e.RouteClosed)
