"""Whether an event had happened by a time: one rule for folded pasts and for the list of events."""

from __future__ import annotations

from collections.abc import Callable

from ..domain.errors import LogDamaged
from ..domain.events import Recorded, SessionRerouted, session_stream
from .log import Log
from .past_damage import Row, last_position, rows
from .sqlite import translated


def had_happened_by(log: Log, at_us: int) -> Callable[[Recorded], bool]:
    """Whether an event had happened by `at_us`.

    A stream's first event counts as well where only "no later than" is known of it (a title or a
    route that an import found), or where something else of its stream had happened (a clock went
    back): without it nothing after it could be told. What is known to have begun later had not
    begun: neither a session with a later start, nor an imported route that says it is younger or
    that leads to such a session.
    """
    try:
        begun, later = _streams(log, at_us)
    except LogDamaged:
        begun, later = _streams_past_damage(log, at_us)

    def had_happened(event: Recorded) -> bool:
        if event.at_us <= at_us:
            return True
        if event.version != 1:
            return False
        if event.at_kind == "exact":
            return event.stream in begun
        match event.payload:
            case SessionRerouted(session_id=leads_to, entry_created_us=since_us):
                young = since_us is not None and since_us > at_us
                return not young and session_stream(leads_to) not in later
            case _:
                return True

    return had_happened


def _streams(log: Log, at_us: int) -> tuple[set[str], set[str]]:
    """Streams of which something had happened, and those of which all came later."""
    sql = (
        "SELECT s.name FROM streams s WHERE EXISTS"
        " (SELECT 1 FROM events e WHERE e.stream = s.id AND e.at_us {} ?)"
    )
    with translated(str(log.path)):
        begun = {name for (name,) in log.reader().execute(sql.format("<="), (at_us,))}
        later = {name for (name,) in log.reader().execute(sql.format(">"), (at_us,))} - begun
    return begun, later


def _streams_past_damage(log: Log, at_us: int) -> tuple[set[str], set[str]]:
    with translated(str(log.path)):
        db = log.reader()
        names = dict(db.execute("SELECT id, name FROM streams"))
        begun: set[str] = set()
        every: set[str] = set()
        for row in rows(db, last_position(db)):
            if isinstance(row, Row) and row.stream in names:
                every.add(names[row.stream])
                if row.at_us <= at_us:
                    begun.add(names[row.stream])
    return begun, every - begun
