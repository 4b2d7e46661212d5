"""Reads the log for people: filtered in SQL, event by event, past what cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..domain.errors import Ambiguous, BadUsage, LogDamaged, NoSuchThing
from ..domain.events import BY_TOPIC, Recorded
from .log import Log, recorded
from .sqlite import one, translated
from .when import Point

_ROWS = """
SELECT e.position, s.name, e.version, e.topic, e.at_us, e.at_kind, e.recorded_at_us, e.actor,
       e.caused_by, e.save, e.source_ref, e.payload
FROM events e JOIN streams s ON s.id = e.stream
"""
_LAST = "\U0010ffff"
_SHOWN = 10


class Unreadable(msgspec.Struct, frozen=True):
    """What the log says in place of a payload that cannot be decoded."""

    why: str


class Selection(msgspec.Struct, frozen=True):
    """Which events to show. Times are microseconds since the epoch; positions are inclusive."""

    stream: str | None = None
    topics: tuple[str, ...] = ()
    since_position: int = 0
    since_us: int | None = None
    upto_position: int | None = None
    upto_us: int | None = None


def select(
    log: Log, *, stream: str | None, types: Sequence[str], since: Point | None, at: Point | None
) -> Selection:
    """What the options of `retold log` mean here.

    Raises:
        NoSuchThing, Ambiguous: no stream, or several. BadUsage: no such type of event; a position
            that the log has not reached.
    """
    head = log.head().position
    for point in (since, at):
        if point is not None and point.position is not None and point.position > head + 1:
            raise BadUsage(
                f"the log ends at #{head}; there is no #{point.position} yet", hint="give a lower position"
            )
    return Selection(
        stream=None if stream is None else find_stream(log, stream),
        topics=tuple(topic for each in types for topic in _topics(log, each)),
        since_position=since.position or 0 if since else 0,
        since_us=since.at_us if since else None,
        upto_position=at.position if at else None,
        upto_us=at.at_us if at else None,
    )


def upto(chosen: Selection, position: int) -> Selection:
    """The same, and nothing after `position`."""
    limit = position if chosen.upto_position is None else min(position, chosen.upto_position)
    return msgspec.structs.replace(chosen, upto_position=limit)


def find_stream(log: Log, name: str) -> str:
    """The stream of that name; else of that session; else the one that begins so.

    Raises:
        NoSuchThing: there is none. Ambiguous: several begin so.
    """
    with translated(str(log.path)):
        db = log.reader()
        for exact in (name, f"session:{name}"):
            if one(db, "SELECT 1 FROM streams WHERE name = ?", (exact,)):
                return exact
        begun: list[str] = []
        for prefix in (f"session:{name}", name):
            rows = db.execute(
                "SELECT name FROM streams WHERE name >= ? AND name < ? ORDER BY name LIMIT ?",
                (prefix, prefix + _LAST, _SHOWN),
            )
            begun = [row[0] for row in rows]
            if begun:
                break
    if not begun:
        raise NoSuchThing(
            f"no stream and no session is called '{name}'",
            hint="give a stream as `retold log` prints it, or the id of a session",
        )
    if len(begun) > 1:
        raise Ambiguous(
            f"more than one stream begins with '{name}'", candidates=begun, hint="give more of the name"
        )
    return begun[0]


def _topics(log: Log, name: str) -> list[str]:
    """The topics that a name stands for: a topic with or without its version, or an event's name."""
    for topic, payload in BY_TOPIC.items():
        if payload.__name__ == name:
            return [topic]
    if name in BY_TOPIC:
        return [name]
    known = [topic for topic in BY_TOPIC if topic.rpartition(".")[0] == name]
    with translated(str(log.path)):
        here = [row[0] for row in log.reader().execute("SELECT DISTINCT topic FROM events")]
    found = {*known, *(topic for topic in here if name in (topic, topic.rpartition(".")[0]))}
    if found:
        return sorted(found)
    from difflib import get_close_matches

    near = get_close_matches(name, [topic.rpartition(".")[0] for topic in BY_TOPIC], n=3, cutoff=0.5)
    raise BadUsage(
        f"no event is of type '{name}'",
        hint=f"did you mean {' or '.join(near)}?" if near else "give a type as `retold log` prints it",
    )


def entries(
    log: Log, chosen: Selection, *, after: int = 0, limit: int | None = None, newest: bool = False
) -> Iterator[Recorded]:
    """Events in order, read one by one; `newest` takes the last `limit` of them.

    An event whose payload cannot be decoded is there with an `Unreadable` payload: damage never
    hides what follows it (FIELD_CASES B21).
    """
    where, values = _where(chosen, after)
    if newest and limit is not None:
        with translated(str(log.path)):
            found = log.reader().execute(
                f"SELECT e.position FROM events e WHERE {where} ORDER BY e.position DESC LIMIT ?",
                (*values, limit),
            )
            first = min((row[0] for row in found), default=None)
        if first is None:
            return
        where, values = _where(chosen, first - 1)
    with translated(str(log.path)):
        rows = log.reader().execute(
            f"{_ROWS} WHERE {where} ORDER BY e.position LIMIT ?", (*values, -1 if limit is None else limit)
        )
        for row in rows:
            yield _event(row)


def _where(chosen: Selection, after: int) -> tuple[str, tuple[Any, ...]]:
    # The unary plus keeps SQLite on the order of positions, where it would sort a whole stream.
    where, values = ["e.position > ?"], [max(after, chosen.since_position - 1)]
    bound: list[Any] = list(values)
    if chosen.stream is not None:
        where.append("e.stream = (SELECT id FROM streams WHERE name = ?)")
        bound.append(chosen.stream)
    if chosen.topics:
        where.append(f"e.topic IN ({','.join('?' * len(chosen.topics))})")
        bound += chosen.topics
    if chosen.since_us is not None:
        where.append("e.at_us >= ?")
        bound.append(chosen.since_us)
    if chosen.upto_position is not None:
        where.append("e.position <= ?")
        bound.append(chosen.upto_position)
    if chosen.upto_us is not None:
        where.append("(e.at_us <= ? OR e.version = 1)")
        bound.append(chosen.upto_us)
    return " AND ".join(where), tuple(bound)


def _event(row: Sequence[Any]) -> Recorded:
    try:
        return recorded(row)
    except LogDamaged as error:
        bare = recorded((*row[:5], min(row[5], 2), *row[6:11], None))
        return msgspec.structs.replace(bare, payload=Unreadable(error.message))
