"""Verify: whether the log is what was written, and everything else what is told from it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..domain.errors import LogDamaged, ProjectionDamaged
from ..domain.events import PayloadsErased
from .home import Home
from .known_damage import damage_of, keep, print_of
from .verify_log import Expected, LogReport, Problem, Progress, verify_log
from .verify_projections import REBUILD_ALL, lag_as_found, verify_projections

_ROUNDS = 3


class Verified(msgspec.Struct, frozen=True):
    """What a verification found."""

    log: LogReport
    lag: int
    """Events that were not folded when it began."""
    position: int
    """Where the projections were held against a fold from nothing."""
    problems: list[Problem]
    """Of the projections; the log's stand in its report."""
    compared: bool
    """False where the log is too damaged to fold from."""
    expected: Expected | None
    as_expected: bool

    @property
    def stops_writes(self) -> bool:
        """Whether the log itself is damaged, and no other than was expected."""
        return bool(damage_of(self.log.problems))

    @property
    def exit_code(self) -> int:
        """5 where the log is damaged, 1 where a projection is."""
        if not self.log.ok:
            return 5
        return 1 if self.problems else 0


def verify(path: Path, *, expect: Expected | None = None, progress: Progress | None = None) -> Verified:
    """Check the home at `path`, as it is found: nothing is folded, mended or told again.

    What it finds wrong with the log is noted beside it, and nothing is written to the log from then on.

    Raises:
        NoSuchHome: there is no log. LogDamaged: it cannot even be opened. NeedsUpgrade.
    """
    with Home(path, read_only=True, as_found=True) as home:
        problems: list[Problem] = []
        told = home.state.there()
        damaged = home.state.problem() if told else None
        if damaged is not None:
            problems.append(Problem("file", [], f"state.db is damaged: {damaged}", REBUILD_ALL))
        try:
            head = home.log.head().position
            lag = lag_as_found(home.projector, head) if told else head
        except (ProjectionDamaged, LogDamaged):
            lag = 0  # named below
        files = print_of(home.log)
        report = verify_log(home.log, expect, progress)
        keep(home.log, files, report.problems)
        position = 0
        found: list[Problem] = []
        try:
            for _ in range(_ROUNDS if told and damaged is None else 0):
                found, position = verify_projections(home.projector, told=report.readable, progress=progress)
                only_rows = {problem.kind for problem in found} == {"rows"}
                if not only_rows or not position or not _erased_since(home, position):
                    break
                with Home(path, read_only=True) as other:
                    other.catch_up()  # what was erased meanwhile can be folded from nothing no more
        except ProjectionDamaged as error:
            problems.append(Problem("file", [], error.message, REBUILD_ALL))
        except LogDamaged as error:
            problems.append(
                Problem("not_compared", [], f"the log cannot be read: {error.message}", "restore it")
            )
        problems += found
    missed = any(problem.kind == "expected" for problem in report.problems)
    return Verified(report, lag, position, problems, report.readable, expect, not missed)


def _erased_since(home: Home, position: int) -> bool:
    return bool(home.log.read(position, limit=1, topics=[PayloadsErased.topic]))
