"""Where the projections stand to the log, found without loading a fold where they stand at its head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..domain.errors import ProjectionDamaged
from ..projections.versions import FOLDS, other_tables
from .checkpoints import load

if TYPE_CHECKING:
    from .log import Log
    from .state_file import StateFile

READER_WAIT_MS = 50
"""How long a reader or an inline fold waits for the lock before it goes on with what is folded."""

ANOTHER = "another process holds it"
NOT_THERE = "it was not there"
"""Why a projection that had nothing, or hardly anything, is told: nothing a reader need hear of."""


class Lag(msgspec.Struct, frozen=True):
    """Where the projections stand."""

    head: int
    position: int
    """Of the projection that is furthest behind, those set aside not counted."""
    detached: dict[str, str] = {}
    """What is set aside, and why."""
    told_again: dict[str, str] = {}
    """What had to be told again just now, and why."""
    damaged: list[tuple[int, int]] = []
    """Events that cannot be read and were passed over, first to last of each run."""
    held_up: str = ANOTHER
    """What kept the rest from being folded, where something is behind."""

    @property
    def events(self) -> int:
        """How many events are not folded yet."""
        return max(self.head - self.position, 0)

    @property
    def waiting(self) -> int:
        """How many of them can be read, so that somebody will fold them."""
        at_the_end = (
            self.damaged and self.damaged[-1][1] >= self.head and self.damaged[-1][0] <= self.position + 1
        )
        return 0 if at_the_end else self.events


def none_behind(log: Log, state: StateFile) -> Lag | None:
    """The lag where every projection is this program's fold of the whole log; None where that is not
    certain, and the projector has to look.

    Most reads find it so, and then need no fold: start-up is imports.
    """
    if state.superseded is not None:
        return None
    try:
        known = load(state.reader())
    except ProjectionDamaged:
        return None
    head = log.head()
    for name, version in FOLDS.items():
        each = known.get(name)
        if each is None or each.fold_version != version or each.log_id != log.identity.log_id:
            return None
        if other_tables(name, each.unicode):
            return None
        if (each.position, each.chain) != (head.position, head.chain):
            return None
        if each.detached or each.unknown_topics or each.passed_over:
            return None
    return Lag(head.position, head.position)
