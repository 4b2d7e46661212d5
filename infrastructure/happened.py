"""Whether an event had happened by a time: one rule for folded pasts and for the list of events."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import apsw
import msgspec

from ..domain import events as e
from ..domain.errors import LogDamaged
from ..domain.events import Recorded, session_stream
from .log import Log
from .log_schema import AT_NO_LATER
from .past_damage import Row, events_past, last_position, rows
from .sqlite import translated

RULE = 2
"""Raised where the rule changes: what was folded by an older one is folded again."""
AS_FOUND = (e.SessionTitled.topic, e.SessionArchived.topic)
"""What an import finds of a session without a time, and what it is known by: the first of each counts
from the session's beginning on."""


class UndatedRoute(msgspec.Struct, frozen=True):
    """A route that an import found; where the key led before `touched_us` is not on record.

    Attributes:
        found_us: when it was found, at the latest.
        touched_us: when its entry was last touched, by its own words.
    """

    key: str
    position: int
    found_us: int
    touched_us: int | None


class Undated(msgspec.Struct, frozen=True):
    """What is known to have come about by some later time, and not when.

    Attributes:
        shown: positions of what is shown of sessions that had begun.
        routes: what is not shown, since it may have been otherwise.
    """

    shown: frozenset[int] = frozenset()
    routes: tuple[UndatedRoute, ...] = ()


class AsOf:
    """What had happened by a time, as the log knows it now.

    A stream's first event counts as well where something else of its stream had happened (a clock
    went back): without it nothing after it could be told. Of what is only known by when at the latest
    (an import found it), these count: the title and the archived mark of a session that had begun, the
    claim of such a session's title, and a route whose entry was, by its own words, not touched since.
    What is known to have begun later had not begun.
    """

    def __init__(self, log: Log, at_us: int) -> None:
        self._log = log
        self._at_us = at_us
        self._when = _when(log, at_us)

    def had_happened(self, event: Recorded) -> bool:
        """Whether it had."""
        when = self._when
        if event.at_us <= self._at_us or event.position in when.shown:
            return True
        if event.version != 1:
            return False
        if event.stream in when.begun or event.at_kind == "exact":
            return event.stream in when.begun
        match event.payload:
            case e.SessionRerouted() as route:
                return _stood(route, self._at_us) and session_stream(route.session_id) not in when.later
            case e.TitleClaimed() as claim:
                return session_stream(claim.session_id) not in when.later
            case _:
                return True

    @cached_property
    def undated(self) -> Undated:
        """What could not be told of that time, and what was taken for granted."""
        routes = []
        for position in sorted(self._when.routes):
            for event in events_past(self._log, position - 1, limit=1, upto=position).events:
                match event.payload:
                    case e.SessionRerouted() as route if not _stood(route, self._at_us):
                        routes.append(
                            UndatedRoute(route.key, event.position, event.at_us, route.entry_updated_us)
                        )
        return Undated(self._when.shown, tuple(routes))


def _stood(route: e.SessionRerouted, at_us: int) -> bool:
    """Whether a route that was found later stood so: its entry was not touched since."""
    made_us, touched_us = route.entry_created_us, route.entry_updated_us
    return touched_us is not None and touched_us <= at_us and (made_us is None or made_us <= at_us)


class _When(NamedTuple):
    """Streams of which something had happened, and those of which all came later; undated positions."""

    begun: frozenset[str]
    later: frozenset[str]
    shown: frozenset[int]
    routes: frozenset[int]


class _Seen(NamedTuple):
    position: int
    stream: str
    topic: str
    at_us: int
    at_kind: int


def _when(log: Log, at_us: int) -> _When:
    try:
        begun, later = _streams(log, at_us)
        firsts = list(_firsts(log))
    except LogDamaged:
        begun, later, firsts = _past_damage(log, at_us)
    undated = [each for each in firsts if each.at_kind == AT_NO_LATER and each.at_us > at_us]
    return _When(
        begun,
        later,
        frozenset(each.position for each in undated if each.topic in AS_FOUND and each.stream not in later),
        frozenset(
            each.position
            for each in undated
            if each.topic == e.SessionRerouted.topic and each.stream not in begun
        ),
    )


def _streams(log: Log, at_us: int) -> tuple[frozenset[str], frozenset[str]]:
    sql = (
        "SELECT s.name FROM streams s WHERE EXISTS"
        " (SELECT 1 FROM events e WHERE e.stream = s.id AND e.at_us {} ?)"
    )
    with translated(str(log.path)):
        begun = frozenset(name for (name,) in log.reader().execute(sql.format("<="), (at_us,)))
        later = frozenset(name for (name,) in log.reader().execute(sql.format(">"), (at_us,))) - begun
    return begun, later


_FIRST_TOLD = (*AS_FOUND, e.SessionRerouted.topic)


def _firsts(log: Log) -> Iterator[_Seen]:
    """The first event of each of these topics in each stream."""
    # With min() SQLite takes the other columns from the row that holds it; the first condition is
    # the one of a partial index.
    sql = (
        "SELECT min(e.position), s.name, e.topic, e.at_us, e.at_kind FROM events e"
        " JOIN streams s ON s.id = e.stream WHERE e.topic <> 'message_appended.1'"
        f" AND e.topic IN ({','.join('?' * len(_FIRST_TOLD))}) GROUP BY e.stream, e.topic"
    )
    with translated(str(log.path)):
        for row in log.reader().execute(sql, _FIRST_TOLD):
            yield _Seen(*row)


def _names(db: apsw.Connection) -> Iterator[tuple[int, str]]:
    """Streams by id, but for those whose names are damaged."""
    for number, name in db.execute("SELECT id, CAST(name AS BLOB) FROM streams"):
        with contextlib.suppress(UnicodeDecodeError):
            yield int(str(number)), bytes(name).decode()


def _past_damage(log: Log, at_us: int) -> tuple[frozenset[str], frozenset[str], list[_Seen]]:
    with translated(str(log.path)):
        db = log.reader()
        names = dict(_names(db))
        begun: set[str] = set()
        every: set[str] = set()
        firsts: dict[tuple[str, str], _Seen] = {}
        for row in rows(db, last_position(db)):
            if isinstance(row, Row) and row.stream in names:
                name = names[row.stream]
                every.add(name)
                if row.at_us <= at_us:
                    begun.add(name)
                if row.topic in _FIRST_TOLD:
                    seen = _Seen(row.position, name, row.topic, row.at_us, row.at_kind)
                    firsts.setdefault((name, row.topic), seen)
    return frozenset(begun), frozenset(every - begun), list(firsts.values())
