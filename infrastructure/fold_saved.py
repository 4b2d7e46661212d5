"""The shortest way to fold: what a save has written, right after it, where nothing can have come between.

The save's own transaction read the head that it came after. Where every projection stands at exactly that
head, which one UPDATE finds out as it moves them on, no checkpoint need be loaded, the log not be looked at,
and nothing be read back: what was written is decoded from its bytes. Plain messages are told, the short way
(said.py), to those projections only that say anything of messages.

It does not look for masks, unknown topics or damage: a checkpoint that bears any of it is not moved, and
neither is one of another log, fold or Unicode. Then, and where a fold fails, keep_up.py or the projector's
long way does it all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import apsw

from ..domain.errors import RetoldError
from ..domain.events import MessageAppended, Payload, PayloadsErased, Recorded, UnknownEvent
from ..projections.base import Connection, Projection
from ..projections.said import are_plain, fold_said
from ..projections.transcripts import Transcripts
from ..projections.versions import NORMALIZED, UNICODE
from .envelope import enveloped, recorded
from .log import Written
from .sqlite import NOT_THE_FOLDS

if TYPE_CHECKING:
    from .projector import Projector


class _TheLongWay(Exception):
    """Something is not plain; what was written here is taken back."""


def fold_saved(projector: Projector, written: Written, said: Sequence[Payload], wait_ms: int) -> bool:
    """Fold a save into every projection; False, with nothing changed, where it is not plain.

    Args:
        said: the payloads that were written.

    Raises:
        StoreBusy, NoRoom, ProjectionDamaged: as `Projector.transaction`.
    """
    if any(isinstance(payload, PayloadsErased | UnknownEvent) for payload in said):
        return False
    events = [
        # A message is what comes of its bytes (tests/laws/test_codec.py); another payload may hold a tuple.
        enveloped(row, payload) if type(payload) is MessageAppended else recorded(row)
        for row, payload in zip(written.rows, said, strict=True)
    ]
    try:
        with projector.transaction(wait_ms) as db:
            if _move(projector, written, db):
                _fold(projector.projections, events, db)
            elif not _are_past(projector, written, db):
                raise _TheLongWay
    except _TheLongWay:
        return False
    return True


def _move(projector: Projector, written: Written, db: apsw.Connection) -> bool:
    """Move every checkpoint from the head before the save to the one after; whether all stood there."""
    before, after = written.before, written.head
    moving = _moving(tuple(projector.projections.values()))
    log_id = projector.log.identity.log_id
    db.execute(moving, (after.position, after.chain, before.position, before.chain, log_id))
    return db.changes() == len(projector.projections)


def _are_past(projector: Projector, written: Written, db: apsw.Connection) -> bool:
    """Whether another writer has folded this save with its own, as the next one to hold the lock does."""
    if db.changes():
        return False
    past = db.execute(
        "SELECT projection FROM checkpoints WHERE position >= ?", (written.head.position,)
    ).fetchall()
    return projector.projections.keys() <= {name for (name,) in past}


@cache
def _moving(projections: tuple[type[Projection], ...]) -> str:
    folds = " ".join(
        f"WHEN '{each.name}' THEN fold_version = {each.version}"
        + (f" AND unicode = '{UNICODE}'" if each.name in NORMALIZED else "")
        for each in projections
    )
    return (
        "UPDATE checkpoints SET position = ?1, chain = ?2 WHERE position = ?3 AND chain = ?4 AND log_id = ?5"
        " AND detached IS NULL AND unknown_topics = '[]' AND passed_over = '[]'"
        f" AND CASE projection {folds} END"
    )


def _fold(projections: Mapping[str, type[Projection]], events: list[Recorded], db: Connection) -> None:
    try:
        plain = are_plain(events)
        for projection in projections.values():
            if plain and projection.of_messages != "all":
                continue
            if not (plain and projection is Transcripts):
                projection().fold(events, db)
            elif not fold_said(events, db):
                raise _TheLongWay
    except (_TheLongWay, RetoldError, *NOT_THE_FOLDS):
        raise
    except Exception as error:  # the long way finds out which fold it was, and sets it aside
        raise _TheLongWay from error
