"""What of a session, and of what quotes it, is emptied when its time is up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..domain import events as e
from ..domain.events import Recorded, session_stream
from ..domain.masking import MASK
from ..projections.base import Connection
from .log import Log
from .streams import route_stream, title_stream

STAYS = (e.SessionDeleted, e.SessionUndeleted, e.PayloadsErased, e.ErasedEvent)
"""Of a session's stream: that it was, who deleted it, and that it was erased."""


def is_of_the_session(payload: object) -> bool:
    """Whether it goes with its session. A newer program's event goes too: nobody here knows what it says."""
    return not isinstance(payload, STAYS)


class Remains(msgspec.Struct, frozen=True):
    """What is to be emptied of a session.

    Attributes:
        events: of its own stream.
        titles: claims of the titles it bore, in the titles' streams.
        quoting: events of routes and of imports that say more of it than its id, with what is left of them.
        prompts: hashes of system prompts that nobody else has.
        only_its: the streams of titles that nobody else ever bore.
    """

    events: list[Recorded]
    titles: list[Recorded]
    quoting: list[tuple[Recorded, e.Payload]]
    prompts: list[str]
    only_its: list[str]


def remains(log: Log, db: Connection, session_id: str) -> Remains:
    """All that is left of a session and is not emptied yet."""
    everything = [
        event for event in log.stream_events(session_stream(session_id)) if is_of_the_session(event.payload)
    ]
    shared, own, left = _prompts(log, db, session_id, everything)
    claims, others = _claims(log, session_id, everything)
    return Remains(
        [
            *(
                event
                for event in everything
                if not (isinstance(event.payload, e.PromptChanged) and event.payload.prompt_hash in shared)
            ),
            *left,
        ],
        claims,
        [*_entries(log, db, session_id), *_notes(log, session_id)],
        sorted(own),
        sorted({event.stream for event in claims} - others),
    )


def _prompts(
    log: Log, db: Connection, session_id: str, events: Sequence[Recorded]
) -> tuple[set[str], set[str], list[Recorded]]:
    """Hashes of the session's prompts: those that others have too, and those that only it has.

    And what was left of sessions that were erased before, since this one had their prompt too.
    """
    mine = {
        event.payload.prompt_hash
        for event in events
        if isinstance(event.payload, e.PromptChanged) and event.payload.prompt_hash is not None
    }
    if not mine:
        return set(), set(), []
    erased = {row[0] for row in db.execute("SELECT session_id FROM deletions WHERE erased_position > 0")}
    others: set[str] = set()
    left: list[Recorded] = []
    for event in every(log, e.PromptChanged.topic):
        named = getattr(event.payload, "prompt_hash", None)
        if named in mine and event.session_id in erased:
            left.append(event)
        elif named in mine and event.session_id != session_id:
            others.add(str(named))
    own = mine - others
    return mine & others, own, [each for each in left if each.payload.prompt_hash in own]


def every(log: Log, *topics: str) -> Iterable[Recorded]:
    """All events of some kinds."""
    after = 0
    while found := log.read(after, topics=topics):
        yield from found
        after = found[-1].position


def _claims(log: Log, session_id: str, events: Sequence[Recorded]) -> tuple[list[Recorded], set[str]]:
    """The session's claims of titles, and the streams where others have claims, too."""
    titles = {
        event.payload.title: None
        for event in events
        if isinstance(event.payload, e.SessionTitled) and event.payload.title is not None
    }
    claims: list[Recorded] = []
    others: set[str] = set()
    for title in titles:
        for event in log.stream_events(title_stream(log.identity, title)):
            payload = event.payload
            if isinstance(payload, e.TitleClaimed | e.TitleReleased):
                if payload.session_id == session_id:
                    claims.append(event)
                else:
                    others.add(event.stream)
    return claims, others


def _entries(log: Log, db: Connection, session_id: str) -> Iterable[tuple[Recorded, e.Payload]]:
    """What a source's routing table said of the session beyond that the key led to it."""
    keys = db.execute("SELECT DISTINCT key FROM route_history WHERE session_id = ?", (session_id,)).fetchall()
    for (key,) in keys:
        theirs: str | None = None
        for event in log.stream_events(route_stream(log.identity, key)):
            payload = event.payload
            if isinstance(payload, e.SessionRerouted):
                if payload.store is not None:
                    theirs = payload.session_id
                if payload.session_id == session_id and payload.entry is not None:
                    yield event, msgspec.structs.replace(payload, entry=None)
            elif isinstance(payload, e.SourceRowChanged):
                theirs = str(payload.changes.get("session_id", theirs))
                if theirs == session_id and payload.changes.get("entry_json") is not None:
                    changes = {k: v for k, v in payload.changes.items() if k != "entry_json"}
                    yield event, msgspec.structs.replace(payload, changes=changes)


def _notes(log: Log, session_id: str) -> Iterable[tuple[Recorded, e.Payload]]:
    """Lines of import reports about the session: they may quote its title."""
    for event in every(log, e.ImportRan.topic):
        payload = event.payload
        if not isinstance(payload, e.ImportRan):
            continue
        lists = {name: getattr(payload, name) for name in payload.__struct_fields__}
        changed = {
            name: [MASK if session_id in line else line for line in lines]
            for name, lines in lists.items()
            if isinstance(lines, list) and any(session_id in line for line in lines)
        }
        if changed:
            yield event, msgspec.structs.replace(payload, **changed)
