"""A conflict with a source: that it stands, that it is settled, and each again once the other is undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from . import events as e
from .events import Recorded


class Told(NamedTuple):
    """An event that says so; `caused_by` is the conflict that it settles, None where it stands again."""

    payload: e.SourceRowChanged
    caused_by: int | None


def is_settling(event: Recorded) -> bool:
    """Whether an event settles a conflict by a person's word, or says that it stands again."""
    payload = event.payload
    if event.source_ref is not None or not isinstance(payload, e.SourceRowChanged):
        return False
    return bool(payload.conflicts) or not (payload.changes or payload.odd or payload.messages)


def is_same_row(first: object, second: object) -> bool:
    """Whether two events tell of the same row of a source."""
    rows = (e.SourceRowChanged, e.SourceRowGone)
    if not (isinstance(first, rows) and isinstance(second, rows)):
        return False
    return (first.kind, first.row) == (second.kind, second.row)


def put_back(saved: Sequence[Recorded], before: Sequence[Recorded]) -> Iterator[Told]:
    """What says the opposite of what a save said of conflicts.

    Args:
        before: what the stream held before.
    """
    for each in saved:
        payload = each.payload
        if not is_settling(each) or not isinstance(payload, e.SourceRowChanged):
            continue
        if payload.conflicts:
            yield Told(e.SourceRowChanged(payload.kind, payload.row, {}), each.position)
            continue
        found = next((earlier for earlier in before if earlier.position == each.caused_by), None)
        if found is not None and isinstance(found.payload, e.SourceRowChanged):
            yield Told(_standing(found.payload), None)


def _standing(conflict: e.SourceRowChanged) -> e.SourceRowChanged:
    """The conflict alone, without what the source said beside it and was taken as it came."""
    return msgspec.structs.replace(
        conflict,
        changes={name: value for name, value in conflict.changes.items() if name in conflict.conflicts},
        odd={name: value for name, value in conflict.odd.items() if name in conflict.conflicts},
        seen=None,
    )
