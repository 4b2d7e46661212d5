"""What a repair wrote into a Hermes home: noted here as last seen there, as the repair's consequence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...domain import events as e
from ...domain.events import Event, Payload, Recorded, session_stream
from ...domain.source_rows import END, IDENTITY
from ..clock import now_us
from ..importers.hermes_routes import Entry, entry_changed, entry_of
from ..streams import route_stream
from .hermes_home import Wrote

if TYPE_CHECKING:
    from ..engine import SessionEngine

_COLUMNS = (*IDENTITY, "parent_session_id", *END)
"""What a repair may change of a session."""


class Carry(msgspec.Struct, frozen=True):
    """A repair, or the reverse of one, that was made in a home.

    Attributes:
        position: the save that was carried. done: a sentence each. wrote: what it came to there.
    """

    position: int
    done: tuple[str, ...]
    wrote: Wrote


class Note(msgspec.Struct, frozen=True):
    """What a carried repair left in a home: columns of a session, or where a key leads (`key` is set).

    Attributes:
        noted_us: when that was noted here; 0 where it was not yet.
    """

    session_id: str = ""
    columns: dict[str, Any] = {}
    key: str | None = None
    leads_to: str | None = None
    noted_us: int = 0


def record(engine: SessionEngine, store: str, carries: Sequence[Carry]) -> None:
    """Note what was written as what the store says now; each note is caused by the save that was carried."""

    def decision() -> None:
        log, events = engine.event_log, list[Event]()
        versions: dict[str, int] = {}
        for carry in carries:
            for stream, row, payload in _told(engine, store, carry.wrote):
                versions[stream] = versions.get(stream) or log.stream_version(stream)
                versions[stream] += 1
                ref = engine.identity.keyed_hash(store, payload.topic, row)
                noted = Event(stream, versions[stream], payload, now_us(), source_ref=ref)
                events.append(msgspec.structs.replace(noted, caused_by=carry.position))
        engine.save_events(events)

    engine.decide(decision)


def _told(engine: SessionEngine, store: str, wrote: Wrote) -> Iterator[tuple[str, str, Payload]]:
    """(stream, row, what the store says of it)."""
    for session_id, columns in wrote.sessions.items():
        ours = here_of(engine, session_id) or {}
        same = {name: value for name, value in columns.items() if name in ours and ours[name] == value}
        if same:  # what has moved on here since is left for the next import to judge
            told = e.SourceRowChanged("session", session_id, same, store=store)
            yield session_stream(session_id), session_id, told
    for key, entry in wrote.routes.items():
        stream = route_stream(engine.identity, key)
        said = None if entry is None else entry_of(key, json.dumps(entry), None)
        if isinstance(said, Entry):
            yield stream, key, entry_changed(store, said, [])
        elif entry is None:
            yield stream, key, e.SourceRowGone("route", key, store=store)


def notes_of(engine: SessionEngine, saved: Sequence[Recorded], store: str) -> Iterator[Note]:
    """What a save left in the store when it was carried last, as far as it was noted."""
    for stream in dict.fromkeys(each.stream for each in saved):
        found, at_us = None, 0
        for event in engine.event_log.stream_events(stream, without_messages=True):
            if event.caused_by == saved[0].position and carried_into(event) == store:
                found, at_us = event.payload, event.recorded_at_us
        match found:
            case e.SourceRowChanged(kind="session", row=session_id, changes=columns):
                yield Note(session_id, columns)
            case e.SourceRowChanged(kind="route", row=key, changes=changes):
                yield Note(key=key, leads_to=str(changes["session_id"]), noted_us=at_us)
            case e.SourceRowGone(kind="route", row=key):
                yield Note(key=key, noted_us=at_us)
            case _:
                pass


def carried_into(event: Recorded) -> str | None:
    """The store that an event was written into by a carry, if it is the note of one."""
    if event.source_ref is None or event.caused_by is None:
        return None
    return getattr(event.payload, "store", None)


def here_of(engine: SessionEngine, session_id: str) -> dict[str, Any] | None:
    """A session's columns as they are here; None where it is not."""
    found = engine.state.reader().execute(
        f"SELECT {', '.join(_COLUMNS)} FROM sessions WHERE id = ?", (session_id,)
    )
    row = found.fetchone()
    return None if row is None else dict(zip(_COLUMNS, row, strict=True))
