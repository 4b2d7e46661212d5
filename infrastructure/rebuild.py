"""Tells projections again beside the live ones, compares, and puts them in their place in one step.

All of them are told in a file of their own, which then becomes state.db: nothing has to be dropped,
and nothing of what is new passes through a WAL. One alone, or what was not there before, is told in
new tables of the same file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from ..domain.errors import LogDamaged, NoSuchProjection, ProjectionDamaged, RetoldError
from .checkpoints import Checkpoint, load, store, why_tell_again
from .differences import NO_ROWS
from .differences import Difference as Difference
from .differences import difference_of as difference_of
from .new_tables import BATCHES, NEW, advance, begin, fill, make_indexes, new_name
from .sqlite import one, translated
from .state_file import damaged, detail_of

if TYPE_CHECKING:
    from .projector import Progress, Projector

SHOWN = 160
"""Characters of what SQLite says of a damaged file."""
GIVEN_BACK = 1_000
"""Free pages that a transaction gives back to the file system."""


class Rebuilt(msgspec.Struct, frozen=True):
    """One projection, told again."""

    name: str
    events: int
    rows: dict[str, int]
    compared: bool
    differences: tuple[Difference, ...] = ()
    resumed_at: int = 0
    """From which position an interrupted rebuild went on, or 0."""
    failed: str | None = None
    """Why the fold failed again; the rows that were there stay, set aside."""
    file_damaged: str | None = None
    """What was wrong with state.db, if it had to be begun anew."""

    @property
    def equal(self) -> bool:
        """Whether the rows told again are those that were there."""
        return self.compared and not self.differences


def rebuild(
    projector: Projector,
    names: Sequence[str],
    *,
    compare: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> list[Rebuilt]:
    """Tell `names` again while others read and write; killed at any point, the old ones stay.

    New tables fill up beside the live ones in batches of a transaction each, indexes last. An
    interrupted rebuild goes on where it was. The swap is by rename: of the tables in one IMMEDIATE
    transaction, or of the link to a file that holds them all. Where the file itself is damaged, a new
    one is begun and every projection told in that.

    Raises:
        NoSuchProjection, NeedsUpgrade, StoreBusy, NoRoom.
    """
    for name in names:
        if name not in projector.projections:
            raise NoSuchProjection(
                f"there is no projection '{name}'", hint=f"one of: {', '.join(projector.projections)}"
            )
    with projector.telling_again():
        try:
            _sound(projector)
            return rebuild_alone(projector, names, compare=compare, progress=progress)
        except ProjectionDamaged as error:
            projector.supersede(error)
            why = detail_of(error)
            return [
                msgspec.structs.replace(each, file_damaged=why)
                for each in rebuild_alone(
                    projector, list(projector.projections), compare=False, progress=progress
                )
            ]


def _sound(projector: Projector) -> None:
    """A page that is damaged anywhere may be handed out again; better a new file.

    Not asked of the search index, which would be read whole: whoever meets damage there begins a
    new file all the same.
    """
    with (
        contextlib.closing(projector.state.open_reader()) as db,
        translated(str(projector.state.link), damaged),
    ):
        tables = [
            row[0]
            for row in db.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB '*search_*'"
                " AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
            )
        ]
        for table in tables:
            checked = str(one(db, f"PRAGMA quick_check('{table}')"))
            if checked != "ok":
                raise damaged(f"{table}: {_shortened(checked)}")


def _shortened(said: str) -> str:
    """What SQLite says first; it names every page and row of a damaged tree."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip("* ")]
    lines = [line for line in lines if not line.startswith("***")] or lines
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return f"{lines[0][:SHOWN]}{more}"


def rebuild_alone(
    projector: Projector,
    names: Sequence[str],
    *,
    compare: bool,
    progress: Callable[[Progress], None] | None = None,
) -> list[Rebuilt]:
    """`rebuild` for one who holds the lock that `Projector.telling_again` takes."""
    live = projector.checkpoints()
    if _in_a_file_of_their_own(projector, names, live):
        told = _told_beside(projector, names, compare=compare, progress=progress)
        if told is not None:
            return told
    resumed = {name: begin(projector, name, live.get(name)) for name in names}
    failed = fill(projector, names, progress, batches=1)
    names = [name for name in names if name not in failed]
    differences = _completed(projector, projector, names, compare=compare)
    told = [_swap(projector, name, differences.get(name), resumed[name]) for name in names]
    _give_back(projector)
    return told + [Rebuilt(name, 0, {}, compared=False, failed=why) for name, why in failed.items()]


def _in_a_file_of_their_own(
    projector: Projector, names: Sequence[str], live: Mapping[str, Checkpoint]
) -> bool:
    """Whether all are told again. A file in which nothing was told yet is filled itself."""
    return projector.projections.keys() == set(names) and live.keys() >= set(names)


def _told_beside(
    projector: Projector,
    names: Sequence[str],
    *,
    compare: bool,
    progress: Callable[[Progress], None] | None,
) -> list[Rebuilt] | None:
    """Tell all of them in a file of their own; None where one fails, whose old rows are to stay."""
    old = projector.state.path
    live = projector.checkpoints()
    with contextlib.closing(projector.state.beside()) as state:
        new = projector.over(state)
        try:
            resumed = {name: begin(new, name, live[name]) for name in names}
            if fill(new, names, progress, batches=BATCHES):
                state.drop_beside()
                return None
            differences = _completed(projector, new, names, compare=compare)
            told = [_swap(new, name, differences.get(name), resumed[name]) for name in names]
        except ProjectionDamaged:  # of whichever file; what is done in its place finds out
            state.drop_beside()
            return None
        except LogDamaged:
            state.drop_beside()
            raise
        with projector.transaction():  # nobody folds what the new file would lack
            with new.transaction() as db:
                for name in names:
                    advance(new, db, name, "", new.log.head().position)
            state.go_over()
    projector.state.leave(old)
    return told


def _completed(
    projector: Projector, new: Projector, names: Sequence[str], *, compare: bool
) -> dict[str, tuple[Difference, ...]]:
    """Make the indexes of what was filled in `new`, and hold it against what is live."""
    if compare:
        _keep_what_is_lost(projector, new, names)
    make_indexes(new, names)
    return _compare(projector, new, names) if compare else {}


def fill_while(projector: Projector, names: Sequence[str], more: Callable[[], bool]) -> None:
    """Fill new tables as the log grows, until `more` says no. Swaps nothing: a rebuild goes on from there.

    Raises:
        NeedsUpgrade, StoreBusy, NoRoom, ProjectionDamaged: what was filled so far stays.
    """
    with projector.telling_again(), contextlib.ExitStack() as stack:
        live = projector.checkpoints()
        filled = projector
        if _in_a_file_of_their_own(projector, names, live):
            filled = projector.over(stack.enter_context(contextlib.closing(projector.state.beside())))
        for name in names:
            begin(filled, name, live.get(name))
        go_on = True
        while go_on:
            go_on = more()  # asked first: what came until the end is filled in as well
            if fill(filled, names, None, batches=1 if filled is projector else BATCHES):
                return


def _keep_what_is_lost(projector: Projector, new: Projector, names: Sequence[str]) -> None:
    """Refuse to drop rows told from events that the log has lost since: they may be the only copy."""
    known, filled = projector.checkpoints(), new.checkpoints()
    for name in names:
        live, told = known.get(name), filled[new_name(name)]
        if live is None or live.detached or not _comparable(projector, name, live):
            continue
        lost = [run for run in told.passed_over if run not in live.passed_over and run[0] <= live.position]
        if lost:
            where = ", ".join(f"#{first}" if first == last else f"#{first}-{last}" for first, last in lost)
            raise LogDamaged(
                f"the log is damaged at {where}; what was told of it stays as it is, since it may be all"
                " that is left",
                hint="restore a backup of events.db, then tell again",
            )


def _compare(projector: Projector, new: Projector, names: Sequence[str]) -> dict[str, tuple[Difference, ...]]:
    """Hold the rows in `new` against live ones, both at one position, in snapshots that block nobody.

    The live rows are brought to where the new ones are or beyond, and a snapshot of them is taken;
    the new ones, which nobody else moves, follow to exactly that position.
    """
    with projector.transaction() as db:
        for name in names:
            checkpoint = load(db).get(name)
            if checkpoint is not None and _comparable(projector, name, checkpoint):
                advance(projector, db, name, "", projector.log.head().position)
    with contextlib.closing(projector.state.open_reader()) as live_db:
        live_db.execute("BEGIN")
        live = {n: each for n, each in load(live_db).items() if n in names}
        live = {n: each for n, each in live.items() if _comparable(projector, n, each)}
        with new.transaction() as db:
            for name, checkpoint in live.items():
                advance(new, db, name, NEW, checkpoint.position)
        with contextlib.closing(new.state.open_reader()) as new_db:
            new_db.execute("BEGIN")
            told = load(new_db)
            return {
                name: _differences(projector, name, live_db, new_db)
                for name, checkpoint in live.items()
                if told[new_name(name)].position == checkpoint.position
            }


def _comparable(projector: Projector, name: str, live: Checkpoint) -> bool:
    """Whether the live rows ought to be those that are told again."""
    projection = projector.projections[name]
    return (
        not live.detached
        and live.fold_version == projection.version
        and why_tell_again(live, projection, projector.log, projector.log.head()) is None
    )


def _differences(
    projector: Projector, name: str, live_db: apsw.Connection, new_db: apsw.Connection
) -> tuple[Difference, ...]:
    found = []
    for table, sql in projector.projections[name]().ordered().items():
        try:
            before: Iterable[Any] = live_db.execute(sql.format(p=""))
            now: Iterable[Any] = new_db.execute(sql.format(p=NEW))
            if table == "search":  # it trails; what waits in the live one is no difference
                upto = one(live_db, "SELECT indexed_upto FROM search_state") or 0
                now = (row for row in now if row[0] <= upto)
            difference = difference_of(table, before, now)
        except NO_ROWS as error:
            difference = Difference(table, 0, 0, 0, f"the old rows cannot be read: {error}")
        if difference is not None:
            found.append(difference)
    return tuple(found)


def _swap(
    projector: Projector, name: str, differences: tuple[Difference, ...] | None, resumed_at: int
) -> Rebuilt:
    projection = projector.projections[name]
    with projector.transaction() as db:
        # A table that others read is not dropped under them: they go on in their snapshot.
        advance(projector, db, name, NEW, projector.log.head().position)
        checkpoint = load(db)[new_name(name)]
        rows = {table: one(db, f"SELECT count(*) FROM new_{table}") for table in projection.tables}
        projection("").drop(db)
        for table in (*projection.tables, *projection.virtual):
            db.execute(f"ALTER TABLE new_{table} RENAME TO {table}")
        db.execute("DELETE FROM checkpoints WHERE projection = ?", (new_name(name),))
        store(db, msgspec.structs.replace(checkpoint, projection=name))
    return Rebuilt(name, checkpoint.position, rows, differences is not None, differences or (), resumed_at)


def _give_back(projector: Projector) -> None:
    """Give the file system what the old tables took, in small steps, so that others get their turn.

    Then what the new ones took in the WAL, unless somebody reads or writes just now.
    """
    with contextlib.suppress(RetoldError, apsw.Error):
        left = 1
        while left:
            with projector.transaction() as db:
                db.execute(f"PRAGMA incremental_vacuum({GIVEN_BACK})").fetchall()
                before, left = left, int(one(db, "PRAGMA freelist_count"))
            if left == before:  # a file that was begun before it could be
                break
    with contextlib.suppress(RetoldError, apsw.Error), projector.exclusively() as db:
        db.set_busy_timeout(0)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
