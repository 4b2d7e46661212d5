"""Reads the log around damage: what cannot be read is named, and never hides what follows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw
import msgspec

from ..domain.errors import LogDamaged
from ..domain.events import MessageAppended, Recorded, UnknownEvent
from .envelope import ENVELOPE, recorded
from .log import Log
from .sqlite import one, translated

COLUMNS = (
    "position, stream, version, topic, at_us, at_kind, recorded_at_us, actor, caused_by, save,"
    " source_ref, idempotency_key, salt, payload_hash, chain, payload"
)


DAMAGED = (apsw.CorruptError, apsw.IOError, UnicodeDecodeError)
"""What reading a row meets that lies on a damaged page, or whose text is no UTF-8."""
UNREADABLE = (LogDamaged, TypeError, ValueError, IndexError)
"""How reading a damaged row ends: a page may be garbage in ways that SQLite does not see."""


class Row(NamedTuple):
    """A row of the log as it lies there."""

    position: int
    stream: int
    version: int
    topic: str
    at_us: int
    at_kind: int
    recorded_at_us: int
    actor: str
    caused_by: int | None
    save: int
    source_ref: bytes | None
    idempotency_key: bytes | None
    salt: bytes | None
    payload_hash: bytes
    chain: bytes
    payload: bytes | None


class Unreadable(msgspec.Struct, frozen=True):
    """A position whose row SQLite cannot read."""

    position: int
    detail: str


class Stretch(msgspec.Struct, frozen=True):
    """Part of the log."""

    events: list[Recorded]
    damaged: list[int]
    """Positions in between whose event is missing, or cannot be read or decoded."""
    done: int
    """The last position that was looked at."""
    but_messages: list[Recorded] = []
    """Those events that are no messages."""
    unknown: list[tuple[int, str]] = []
    """Position and topic of those that this program does not know."""


def rows(db: apsw.Connection, upto: int) -> Iterator[Row | Unreadable]:
    """Every row of the log up to `upto`, by position; a position that is not there is left out."""
    last = 0
    while last < upto:
        try:
            for found in db.execute(
                f"SELECT {COLUMNS} FROM events WHERE position > ? AND position <= ? ORDER BY position",
                (last, upto),
            ):
                yield Row(*found)
                last = max(last, int(found[0]))
            return
        except DAMAGED:
            pass
        readable = False
        while last < upto and not readable:  # one by one, until a page that can be read begins
            last += 1
            try:
                found = db.execute(f"SELECT {COLUMNS} FROM events WHERE position = ?", (last,)).fetchone()
            except DAMAGED as error:
                yield Unreadable(last, str(error))
            else:
                if found is not None:
                    yield Row(*found)
                    readable = True


def end_of_table(db: apsw.Connection) -> int | None:
    """The last position, or None where the table's end cannot be read."""
    try:
        found = one(db, "SELECT max(position) FROM events")
    except DAMAGED:
        return None
    return int(found or 0)


def last_position(db: apsw.Connection) -> int:
    """The last position; where the table's end cannot be read, the last that an index or a page shows."""
    found = end_of_table(db)
    if found is not None:
        return found
    last = 0
    with contextlib.suppress(*DAMAGED):
        for (position,) in db.execute("SELECT position FROM events INDEXED BY events_by_stream"):
            last = max(last, position)
    low, high = last, 1 << 62
    while low < high:  # damage before the end may hide what is between, which an index then shows
        middle = (low + high + 1) // 2
        try:
            there = one(db, "SELECT position FROM events WHERE position >= ? LIMIT 1", (middle,))
        except DAMAGED:
            there = None
        low, high = (low, middle - 1) if there is None else (max(there, middle), high)
    return low


def events_past(log: Log, after: int, *, limit: int, upto: int) -> Stretch:
    """At most `limit` events after `after`, and the positions among them that hold none that can be read.

    It ends with an event, unless there is none up to `upto`: damage of any length is passed over in
    one go.
    """
    damaged: list[int] = []
    while True:
        try:
            events = log.read(after, limit=limit, upto=upto)
            done = events[-1].position if len(events) == limit else upto
        except UNREADABLE:
            done = min(after + limit, upto)
            events = _one_by_one(log, after, done)
        last = events[-1].position if events else done
        if last - after != len(events):
            there = {event.position for event in events}
            damaged += [position for position in range(after + 1, last + 1) if position not in there]
        if events or done >= upto:
            others = [event for event in events if type(event.payload) is not MessageAppended]
            unknown = [(e.position, e.topic) for e in others if isinstance(e.payload, UnknownEvent)]
            return Stretch(events, damaged, last, others, unknown)
        after = done


def _one_by_one(log: Log, after: int, upto: int) -> list[Recorded]:
    events: list[Recorded] = []
    for position in range(after + 1, upto + 1):
        try:
            event = event_at(log, position)
        except UNREADABLE:
            continue
        if event is not None:
            events.append(event)
    return events


def event_at(log: Log, position: int) -> Recorded | None:
    """The event at `position`, touching no other page than its own.

    Raises:
        LogDamaged: it cannot be read or decoded.
    """
    with translated(str(log.path)):
        row: Any = log.reader().execute(f"{ENVELOPE} WHERE e.position = ?", (position,)).fetchone()
    return None if row is None else recorded(row)


def ranges(positions: Iterable[int]) -> list[list[int]]:
    """Positions as [first, last] of each unbroken run."""
    found: list[list[int]] = []
    for position in sorted(positions):
        if found and position <= found[-1][1] + 1:
            found[-1][1] = position
        else:
            found.append([position, position])
    return found


def readable(log: Log, position: int) -> bool:
    """Whether the event at `position` can be read and decoded."""
    try:
        return event_at(log, position) is not None
    except UNREADABLE:
        return False


def told(runs: Iterable[Sequence[int]], most: int = 12) -> str:
    """Runs of positions for a person: #60, #71-75."""
    every = [f"#{first}" if first == last else f"#{first}-{last}" for first, last in runs]
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more} more" if more > 0 else "")


def damage_at_the_end(log: Log, after: int, head: int) -> list[tuple[int, int]]:
    """The rest of the log after `after`, where none of it can be read; else nothing."""
    if after >= head:
        return []
    stretch = events_past(log, after, limit=1, upto=head)
    return [] if stretch.events else [(first, last) for first, last in ranges(stretch.damaged)]


def stream_at(log: Log, position: int) -> str | None:
    """The stream of a damaged event, by its row or else by the index; None where neither tells it."""
    for source in ("events e", "events e INDEXED BY events_by_stream"):
        sql = f"SELECT s.name FROM {source} JOIN streams s ON s.id = e.stream WHERE e.position = ?"
        with contextlib.suppress(*DAMAGED):
            found = one(log.reader(), sql, (position,))
            if found is not None:
                return str(found)
    return None


def merged(runs: Iterable[tuple[int, int]], positions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """`runs` with `positions` added to them."""
    added = [(first, last) for first, last in ranges(positions)]
    found: list[tuple[int, int]] = []
    for first, last in sorted({*runs, *added}):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)
