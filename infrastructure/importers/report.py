"""What an import did, line by line, and how far it has come."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from ...domain.text import scrub

MOST_LINES = 1_000
"""So many lines of a kind go into the log; the report itself holds all of them."""


class Progress(msgspec.Struct, frozen=True):
    """How far the phase has come; `total` is None where it is not known."""

    phase: str
    done: int
    total: int | None


class ImportReport(msgspec.Struct, frozen=True):
    """One run over a store.

    Attributes:
        position: of the ImportRan that says all this.
        taken: events by what they tell ("sessions", "messages", "routes", "titles", …).
        unchanged: rows that the source has as they were, by kind.
        conflicts: changed in the source and here; ours stays.
        lost, damage: what could not be read; what is damaged though all could be read.
        skipped: what was left out, each with the reason.
        differences: where the routing mirror says otherwise than the table, which wins.
    """

    path: str
    schema_version: int | None
    position: int
    duration_s: float
    taken: dict[str, int]
    unchanged: dict[str, int]
    conflicts: list[str]
    lost: list[str]
    damage: list[str]
    skipped: list[str]
    notes: list[str]
    differences: list[str]

    @property
    def exit_code(self) -> int:
        """1 where something was lost to damage or damage was found, else 0."""
        return 1 if self.lost or self.damage else 0


class Findings:
    """What a run finds on its way; a line said twice (the run may start over) is one.

    A line may quote whatever the source holds, and must be storable itself.
    """

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.unchanged: Counter[str] = Counter()
        self.conflicts: dict[str, None] = {}
        self.skipped: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.differences: dict[str, None] = {}

    def begin_again(self) -> None:
        """The run plans anew: what it only looked at is looked at again; what it wrote stands."""
        self.unchanged.clear()
        self.skipped.clear()
        self.differences.clear()

    def report(
        self,
        path: str,
        position: int,
        started_s: float,
        *,
        lost: list[str],
        damage: Sequence[str] = (),
        schema_version: int | None = None,
    ) -> ImportReport:
        """All of it, for a run that began at `started_s` of the monotonic clock and is said at `position`."""
        return ImportReport(
            path=path,
            schema_version=schema_version,
            position=position,
            duration_s=time.monotonic() - started_s,
            taken=dict(self.taken),
            unchanged=dict(self.unchanged),
            conflicts=list(self.conflicts),
            lost=lost,
            damage=list(damage),
            skipped=list(self.skipped),
            notes=list(self.notes),
            differences=list(self.differences),
        )

    def conflict(self, line: str) -> None:
        self.conflicts[scrub(line)[0]] = None

    def skip(self, line: str) -> None:
        self.skipped[scrub(line)[0]] = None

    def note(self, line: str) -> None:
        self.notes[scrub(line)[0]] = None

    def differs(self, line: str) -> None:
        self.differences[scrub(line)[0]] = None


def at_most(lines: list[str]) -> list[str]:
    """`lines`, cut where there are too many for one event."""
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES:,} more"]
