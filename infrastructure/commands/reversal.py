"""Undo: the reverse of a save, as a save of its own."""

from __future__ import annotations

import msgspec

from ...domain import events as e
from ...domain import removal
from ...domain.built_on import ROUTES, Told
from ...domain.errors import NoSuchThing
from ...domain.events import Recorded, session_stream
from ...domain.removal import DAY_US
from ...domain.reversal import Step, left_as_it_is, reverse
from ...domain.shell import shell_word
from ..carrying import left_with
from ..decisions import Saved
from ..log import Condition
from ..undos import cancelled, standing_undo, undos
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
            BuiltOn: later events rest on it; the error names them. Those that were undone since do not.
        """

        unsure = self._note_carried(self.save_of(position)[0].position)

        def decision() -> Undone:
            read_at = self.head().position
            saved = self.save_of(position)
            streams = list(dict.fromkeys(each.stream for each in saved))
            led_to = [
                session_stream(each.payload.session_id)
                for each in saved
                if isinstance(each.payload, e.SessionRerouted)
            ]
            told = self._told_of(saved, streams, {*streams, *led_to})
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
            keys = [each.payload.key for each in saved if isinstance(each.payload, ROUTES)]
            return Undone(
                sessions[0] if sessions else "",
                self.save_events(events, condition=moved),
                undone=tuple(each.position for each in saved),
                sessions=tuple(sessions),
                keys=tuple(dict.fromkeys(keys)),
                left=(*left_as_it_is(told), *unsure),
                carried=self._carried(told),
            )

        return self.decide(decision)

    def _note_carried(self, position: int) -> list[str]:
        """Note what a carry that was killed wrote of a save, before its undo; what is to be said of it."""
        if not left_with(self.home, position):
            return []
        from ..exporters.hermes_repair import note_left  # few saves were ever carried

        return [
            f"whether it was carried into {home} cannot be looked at now; before the next import, which may"
            f" bring it back: retold sessions repair-routing --into {shell_word(str(home))}"
            for home in note_left(self, position)  # type: ignore[arg-type]  # these are commands of an engine
        ]

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

    def _told_of(self, saved: list[Recorded], streams: list[str], later: set[str]) -> Told:
        """A save with what came before and after it; what was undone since is left out."""
        first, last = saved[0].position, saved[-1].position
        by_stream = {each: self._without_messages(each) for each in {*streams, *later}}
        after = {each: [it for it in by_stream[each] if it.position > last] for each in later}
        taken_back = undos(self.event_log, last) if any(map(_may_undo, after.values())) else {}
        gone = cancelled(taken_back, last)
        return Told(
            saved,
            {each: [it for it in by_stream[each] if it.position < first] for each in streams},
            {
                each: [*(it for it in events if it.save not in gone), *self._said(each, last, gone)]
                for each, events in after.items()
            },
            standing_undo(taken_back, first),
        )

    def _without_messages(self, stream: str) -> list[Recorded]:
        return list(self.event_log.stream_events(stream, without_messages=True))

    def _said(self, stream: str, position: int, gone: frozenset[int]) -> list[Recorded]:
        """Messages of a stream after a position, as many as are looked at."""
        said: list[Recorded] = []
        topics = (e.MessageAppended.topic,)
        while len(said) < ENOUGH:
            found = self.event_log.read(position, limit=ENOUGH, stream=stream, topics=topics)
            said += [each for each in found if each.save not in gone]
            if len(found) < ENOUGH:
                break
            position = found[-1].position
        return said


def _may_undo(events: list[Recorded]) -> bool:
    return any(each.caused_by is not None and each.source_ref is None for each in events)
