"""Reads the log for people: filtered in SQL, event by event, past what cannot be decoded."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import msgspec

from ..domain.errors import Ambiguous, BadUsage, LogDamaged, NoSuchThing
from ..domain.events import BY_TOPIC, Recorded
from .envelope import ENVELOPE, recorded
from .happened import AsOf
from .log import Log
from .log_schema import AT_NO_LATER
from .past_damage import DAMAGED, UNREADABLE, end_of_table
from .sqlite import one, translated
from .streams import route_stream
from .when import Point

_LAST = "\U0010ffff"
_CUT = "…"
_LEAST_END = 4
"""Characters of a stream's end that are taken for one without an ellipsis before them."""
_SHOWN = 10


class Unreadable(msgspec.Struct, frozen=True):
    """What the log says in place of a payload that cannot be decoded."""

    why: str


class Hole(msgspec.Struct, frozen=True):
    """A run of positions whose rows cannot be read, or are not there."""

    first: int
    last: int
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
    """The stream of that name; else of that session or routing key; else the one that begins or ends so.

    A name may be cut as a line of the log cuts it: with an ellipsis before its end or after its beginning.

    Raises:
        NoSuchThing: there is none. Ambiguous: several begin, or end, so.
    """
    with translated(str(log.path)):
        db = log.reader()
        for exact in (name, f"session:{name}", route_stream(log.identity, name)):
            if one(db, "SELECT 1 FROM streams WHERE name = ?", (exact,)):
                return exact
        found, how = _cut_off(db, name)
    if not found:
        raise NoSuchThing(
            f"no stream, session or routing key is called '{name}'",
            hint="give a stream as `retold log` prints it, the id of a session, or a routing key",
        )
    if len(found) > 1:
        raise Ambiguous(
            f"more than one stream {how} '{name.strip(_CUT)}'",
            candidates=found[:_SHOWN],
            hint="give more of the name",
        )
    return found[0]


def _cut_off(db: apsw.Connection, name: str) -> tuple[list[str], str]:
    """The streams of which `name` is the beginning or, without one, the end."""
    beginning, end = name.removesuffix(_CUT), name.removeprefix(_CUT)
    if beginning and not beginning.startswith(_CUT):
        for prefix in (f"session:{beginning}", beginning):
            begun = _names(db, "name >= ? AND name < ?", prefix, prefix + _LAST)
            if begun:
                return begun, "begins with"
    if end and (end != name or len(end) >= _LEAST_END):
        return _names(db, "substr(name, -?) = ?", len(end), end), "ends with"
    return [], ""


def _names(db: apsw.Connection, where: str, *values: str | int) -> list[str]:
    """The names of streams, as far as they can be read."""
    sql = f"SELECT CAST(name AS BLOB) FROM streams WHERE {where} ORDER BY name LIMIT ?"
    rows: list[Any] = db.execute(sql, (*values, _SHOWN)).fetchall()
    return [bytes(name).decode(errors="replace") for (name,) in rows]


def _topics(log: Log, name: str) -> list[str]:
    """The topics that a name stands for: a topic with or without its version, or an event's name."""
    for topic, payload in BY_TOPIC.items():
        if payload.__name__ == name:
            return [topic]
    if name in BY_TOPIC:
        return [name]
    known = [topic for topic in BY_TOPIC if topic.rpartition(".")[0] in (name, f"session_{name}")]
    here: list[str] = []
    with contextlib.suppress(*DAMAGED):  # of what can be read, then
        here.extend(row[0] for row in log.reader().execute("SELECT DISTINCT topic FROM events"))
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
) -> Iterator[Recorded | Hole]:
    """Events in order, read one by one; `newest` takes the last `limit` of them.

    An event whose payload cannot be decoded is there with an `Unreadable` payload, and a run that
    cannot be read at all as a `Hole`, whatever was asked for: damage never hides what follows it
    (FIELD_CASES B21).
    """
    if limit == 0:
        return
    found = _chosen(log, chosen, after)
    if limit is None:
        yield from found
    elif newest:
        first = None if chosen.upto_us is not None else _first_of_the_last(log, chosen, after, limit)
        if first is not None:
            yield from _chosen(log, chosen, first - 1)
            return
        last: deque[Recorded | Hole] = deque()
        events = 0
        for each in found:
            last.append(each)
            events += isinstance(each, Recorded)
            while events > limit:
                events -= isinstance(last.popleft(), Recorded)
        yield from last
    else:
        for each in found:
            yield each
            limit -= isinstance(each, Recorded)
            if not limit:
                return


def _first_of_the_last(log: Log, chosen: Selection, after: int, limit: int) -> int | None:
    """Where the last `limit` events begin; None where damage hides it."""
    where, values = _where(chosen, after)
    sql = f"SELECT e.position FROM events e WHERE {where} ORDER BY e.position DESC LIMIT ?"
    try:
        rows: list[Any] = log.reader().execute(sql, (*values, limit)).fetchall()
    except DAMAGED:
        return None
    return min((int(row[0]) for row in rows), default=log.head().position + 1)


def _chosen(log: Log, chosen: Selection, after: int) -> Iterator[Recorded | Hole]:
    """What was chosen, oldest first, past damage."""
    happened = None if chosen.upto_us is None else AsOf(log, chosen.upto_us).had_happened
    after = max(after, chosen.since_position - 1)
    head = log.head().position
    upto = head if chosen.upto_position is None else min(chosen.upto_position, head)
    cut_off = upto == head and end_of_table(log.reader()) is None
    while after < upto:
        where, values = _where(chosen, after)
        try:
            with translated(str(log.path)):
                for row in log.reader().execute(f"{ENVELOPE} WHERE {where} ORDER BY e.position", values):
                    if row[0] <= after:  # garbage that passes for a row
                        continue
                    after = row[0]
                    event = _event(row)
                    if isinstance(event, Hole) or happened is None or happened(event):
                        yield event
            after = upto
        except LogDamaged:
            for position, found in _past_the_hole(log, chosen, after, upto):
                after = position
                if found is not None and (isinstance(found, Hole) or happened is None or happened(found)):
                    yield found
                cut_off = cut_off and not (isinstance(found, Hole) and found.last == head)
    if cut_off:
        yield Hole(head + 1, head + 1, "nothing from here on can be read")


def _past_the_hole(
    log: Log, chosen: Selection, after: int, upto: int
) -> Iterator[tuple[int, Recorded | Hole | None]]:
    """One by one until the first row behind the next hole; what was not chosen is None."""
    first: int | None = None
    why = ""
    for position in range(after + 1, upto + 1):
        try:
            there = _one(log, chosen, position)
        except DAMAGED as error:
            first = position if first is None else first
            why = str(error)
            continue
        if first is not None:
            yield position - 1, Hole(first, position - 1, why)
            yield position, there
            return
        yield position, there
    if first is not None:
        yield upto, Hole(first, upto, why)


def _one(log: Log, chosen: Selection, position: int) -> Recorded | Hole | None:
    where, values = _where(chosen, position - 1)
    sql = f"{ENVELOPE} WHERE {where} AND e.position = ?"
    row = log.reader().execute(sql, (*values, position)).fetchone()
    return None if row is None else _event(row)


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
        where.append(f"(e.at_us <= ? OR e.version = 1 OR e.at_kind = {AT_NO_LATER})")
        bound.append(chosen.upto_us)
    return " AND ".join(where), tuple(bound)


def _event(row: Sequence[Any]) -> Recorded | Hole:
    try:
        return recorded(row)
    except UNREADABLE as error:
        why = error.message if isinstance(error, LogDamaged) else str(error)
    try:
        bare = recorded((*row[:5], min(row[5], 2), *row[6:11], None))
    except UNREADABLE:
        return Hole(int(row[0]), int(row[0]), why)
    return msgspec.structs.replace(bare, payload=Unreadable(why))
