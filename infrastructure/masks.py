"""Rows that were told before a payload was masked are told again: no fold knows what it made of the old text.

An emptied payload needs no such thing: what was told of it leaves by position or with its session. Nor
does a message of which nothing but its row was told, since the record says what stands in that now.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..domain.events import PayloadsErased, Recorded
from .log import Log
from .past_damage import UNREADABLE, events_past

WHY = "a text that it was told from was forgotten"


def first_mask(events: Sequence[Recorded], told_upto: int, *, sure_upto: int = 0) -> int | None:
    """The first record among `events` of masks at or before `told_upto`: what was told may hold the text.

    Args:
        sure_upto: of records up to here it is known that they were saved before anything was read.
    """
    for event in events:
        payload = event.payload
        if not isinstance(payload, PayloadsErased) or payload.session is not None:
            continue
        told = payload.masked.keys() - payload.edits.keys()
        if told and min(told) <= told_upto and event.position > sure_upto:
            return event.position
    return None


def masked_since(log: Log, after: int, upto: int) -> bool:
    """Whether something at or before `after` was masked by a record after it."""
    records: Sequence[Recorded]
    try:
        records = log.read(after, upto=upto, topics=[PayloadsErased.topic])
    except UNREADABLE:
        records = events_past(log, after, limit=upto, upto=min(upto, log.head().position)).events
    return first_mask(records, after) is not None
