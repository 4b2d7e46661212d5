"""Settling what was changed both here and in a source: a person says whose values stand."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...domain import events as e
from ...domain.built_on import UNDOABLE
from ...domain.errors import NoSuchThing
from ...domain.events import Payload, Recorded
from ...domain.source_rows import here_after, session_payloads, settled
from ..decisions import Saved, event
from ..log import Condition
from ..streams import title_stream
from .remedies import RemedyCommands
from .repairs import Batch


class Settled(Saved, frozen=True):
    """A conflict with a source that is settled: `columns`, and whose values stand.

    Attributes:
        can_be_undone: false where the source's value was taken over for what has no reverse (a model, …).
    """

    columns: tuple[str, ...] = ()
    keep: Literal["ours", "theirs"] = "ours"
    can_be_undone: bool = True


class ConflictCommands(RemedyCommands):
    """Conflicts with a source."""

    def resolve_conflict(
        self, position: int, keep: Literal["ours", "theirs"], *, at_us: int | None = None
    ) -> Settled:
        """Settle what was changed both here and in a source: `position` is the event that found it.

        Where a key is led to the source's session, what waits in ours waits on there.

        Raises:
            NoSuchThing: no conflict stands at this position. TitleTaken, …: their value cannot stand here.
        """

        def decision() -> Settled:
            read_at = self.projector.catch_up().position
            found = self.event_log.read(position - 1, limit=1, upto=position)
            standing = self.state.reader().execute(
                "SELECT 1 FROM source_conflicts WHERE position = ?", (position,)
            )
            if standing.fetchone() is None or not isinstance(found[0].payload, e.SourceRowChanged):
                raise NoSuchThing(f"#{position} is no conflict with a source", hint="retold audit names them")
            conflict, told = found[0], found[0].payload
            batch = Batch(self.at(at_us))
            version = self.event_log.stream_version(conflict.stream)
            if keep == "theirs":
                for payload in self._their_values(conflict, told):
                    batch.add(conflict.stream, version, payload)
                if told.kind == "route":
                    self._takes_along(batch, told)
            settled_now = e.SourceRowChanged(told.kind, told.row, {})
            batch.add(conflict.stream, version, settled_now)
            events = [*self._taken_titles(conflict, batch), *batch.events]
            events = [msgspec.structs.replace(each, caused_by=position) for each in events]
            moved = Condition(read_at, (conflict.stream,))
            positions = self.save_events(events, condition=moved)
            about = conflict.session_id if conflict.stream.startswith("session:") else ""
            undoable = all(
                each.payload == settled_now
                or isinstance(each.payload, UNDOABLE)
                or (isinstance(each.payload, e.TurnQueued) and each.payload.moved_from is not None)
                for each in events
            )
            return Settled(about, positions, tuple(told.conflicts), keep, undoable)

        return self.decide(decision)

    def _takes_along(self, batch: Batch, told: e.SourceRowChanged) -> None:
        """What waits where a key led goes along to where the source leads it, if anything runs there."""
        led = self.route(told.row)
        left = self.known_session(led.session_id)
        to = self.known_session(str(told.changes.get("session_id")))
        if left is not None and to is not None and left.id != to.id and not to.over:
            batch.queue(left, to)

    def _their_values(self, conflict: Recorded, told: e.SourceRowChanged) -> list[Payload]:
        """The source's values, as events of their kinds."""
        changes = {name: told.changes.get(name) for name in told.conflicts}
        odd = {name: value for name, value in told.odd.items() if name in told.conflicts}
        if told.kind == "route":
            wanted = changes.get("session_id")
            led = self.route(told.row)
            moved = led.lead_to(str(wanted), "repair", evidence=["a person took the source's word"])
            return [] if moved is None or wanted is None else [moved]
        if told.kind == "message":
            columns = {n: v for n, v in changes.items() if n not in ("active", "compacted")}
            edited = [e.MessageEdited(told.messages[0], columns, odd=odd)] if columns else []
            return [*edited, *_shown(told.messages, changes)]
        here: Any = {}
        for each in self.event_log.stream_events(conflict.stream, without_messages=True):
            if isinstance(each.payload, e.Payload):
                here = here_after(here, each.payload, each.at_us)
        return session_payloads(here, settled({**here, **changes, **odd}))

    def _taken_titles(self, conflict: Recorded, batch: Batch) -> list[e.Event]:
        """The claim of a title that is taken over, and the release of ours."""
        titles = [each.payload for each in batch.events if isinstance(each.payload, e.SessionTitled)]
        if not titles:
            return []
        state = self.session(conflict.session_id)
        wanted, ours = titles[0].title, state.title
        events: list[e.Event] = []
        for title in (wanted, ours):
            if title is None or wanted == ours:
                continue
            claim = self.claim(title)
            payload = claim.claim(state.id) if title == wanted else claim.release(state.id)
            if payload is not None:
                stream = title_stream(self.identity, title)
                events.append(event(stream, claim.version + 1, payload, batch.at_us))
        return events


def _shown(messages: list[int], changes: dict[str, Any]) -> list[Payload]:
    if "active" not in changes:
        return []
    if changes["active"]:
        return [e.MessagesRestored(messages)]
    return [e.MessagesCompacted(messages) if changes.get("compacted") else e.MessagesRewound(messages)]
