"""A row of the log as an event: the query for its envelope, and decoding what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from ..domain.errors import LogDamaged
from ..domain.events import Recorded
from . import codec
from .log_schema import AT_NO_LATER

ENVELOPE = """
SELECT e.position, s.name, e.version, e.topic, e.at_us, e.at_kind, e.recorded_at_us, e.actor,
       e.caused_by, e.save, e.source_ref, e.payload
FROM events e JOIN streams s ON s.id = e.stream
"""
KINDS = ("exact", "no_later_than", "exact")


def recorded(row: Sequence[Any]) -> Recorded:
    """A row of the envelope query as an event.

    Raises:
        LogDamaged: it cannot be decoded.
    """
    return enveloped(row, codec.decode(row[3], row[11], position=row[0]))


def all_recorded(rows: Sequence[Sequence[Any]]) -> list[Recorded]:
    """Rows of the envelope query as events.

    Raises:
        LogDamaged: one cannot be decoded.
    """
    make = cast("Callable[..., Recorded]", Recorded)
    decode = codec.decode
    try:
        return [
            make(*row[:5], KINDS[row[5]], *row[6:11], decode(row[3], row[11], position=row[0]))
            for row in rows
        ]
    except (IndexError, TypeError):  # a column that holds what none should: said of which event
        return [recorded(row) for row in rows]


def enveloped(row: Sequence[Any], payload: object) -> Recorded:
    """A row of the envelope query as an event, whose payload is known already."""
    position, stream, version, topic, at_us, kind, recorded_at_us, actor, caused_by, save, ref, _ = row
    if kind > AT_NO_LATER + 1:
        raise LogDamaged(f"event #{position} has an unknown kind of time: {kind}", hint="upgrade retold")
    return Recorded(
        position,
        stream,
        version,
        topic,
        at_us,
        KINDS[kind],  # type: ignore[arg-type]  # one of AtKind's words
        recorded_at_us,
        actor,
        caused_by,
        save,
        ref,
        payload,
    )
