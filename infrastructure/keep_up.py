"""The short way to fold what an append has just saved: every projection stands at one sound checkpoint.

Anything else, and anything in doubt, is left to the projector's long way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from ..domain.errors import NoRoom, RetoldError, StoreBusy
from ..domain.events import UnknownEvent
from ..projections.versions import other_tables
from .checkpoints import Checkpoint, load, move
from .lag import Lag
from .log import Head
from .masks import first_mask
from .past_damage import UNREADABLE
from .sqlite import NOT_THE_FOLDS

if TYPE_CHECKING:
    from .projector import Projector

FEW = 100
"""Events that are folded the short way."""


def keep_up(projector: Projector, wait_ms: int) -> Lag | None:
    """Fold the few events since the last fold; None where anything else is to be done, or not sure.

    This is what an append waits for. All that the long way looks at is looked at, but once, since
    the projections stand at one checkpoint (tests/bench: a third of the long way's time).
    """
    try:
        with projector.transaction(wait_ms) as db:
            known = load(db)
            projector.note_damage(known)
            at = _all_at(projector, known)
            head = projector.log.head()
            if at is None or not head.chain or not at.position <= head.position <= at.position + FEW:
                return None
            if projector.log.chain_at(at.position) != at.chain:
                return None
            if at.position < head.position and not _fold_few(projector, db, at.position, head):
                return None
    except (StoreBusy, NoRoom):
        return None
    return Lag(head.position, head.position)


def _all_at(projector: Projector, known: dict[str, Checkpoint]) -> Checkpoint | None:
    """The one checkpoint where every projection stands, if it is of this program, log and sound."""
    at: Checkpoint | None = None
    for name, projection in projector.projections.items():
        each = known.get(name)
        if each is None or each.fold_version != projection.version or other_tables(name, each.unicode):
            return None
        if each.detached or each.unknown_topics or each.passed_over:
            return None
        if at is not None and (each.position, each.chain) != (at.position, at.chain):
            return None
        if each.log_id != projector.log.identity.log_id:
            return None
        at = each
    return at


def _fold_few(projector: Projector, db: apsw.Connection, after: int, head: Head) -> bool:
    """Fold what comes after `after` into all; False, with nothing folded, where that is not plain."""
    try:
        events = projector.log.read(after, limit=FEW, upto=head.position)
    except UNREADABLE:
        return False
    if not events or events[-1].position != head.position:
        return False
    if any(isinstance(event.payload, UnknownEvent) for event in events):
        return False
    if first_mask(events, after) is not None:
        return False
    db.execute("SAVEPOINT few")
    try:
        for projection in projector.projections.values():
            projection().fold(events, db)
    except (RetoldError, *NOT_THE_FOLDS):
        raise
    except Exception:  # noqa: BLE001  # the long way finds out which one, and sets it aside
        db.execute("ROLLBACK TO few")
        db.execute("RELEASE few")
        return False
    db.execute("RELEASE few")
    move(db, projector.projections, head)
    return True
