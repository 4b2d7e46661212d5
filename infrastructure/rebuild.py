"""Tells projections again beside the live ones, compares, and puts them in their place in one step.

All of them are told in a file of their own, which then becomes state.db: nothing has to be dropped,
and nothing of what is new passes through a WAL. One alone, or what was not there before, is told in
new tables of the same file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from ..domain.errors import LogDamaged, NeedsUpgrade, NoSuchProjection, ProjectionDamaged, RetoldError
from ..projections.base import Projection
from .checkpoints import Checkpoint, is_newer, load, store, why_tell_again
from .differences import NO_ROWS
from .differences import Difference as Difference
from .differences import difference_of as difference_of
from .masks import first_mask
from .past_damage import Stretch, events_past
from .sqlite import NOT_THE_FOLDS, one, translated
from .state_file import damaged, detail_of

if TYPE_CHECKING:
    from .projector import Progress, Projector

BATCH = 4_000
BATCHES = 4
"""How many a transaction, where nobody else wants the file."""
NEW = "new_"
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
    resumed = {name: _begin(projector, name, live.get(name)) for name in names}
    failed = _fill(projector, names, progress, batches=1)
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
            resumed = {name: _begin(new, name, live[name]) for name in names}
            if _fill(new, names, progress, batches=BATCHES):
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
                    _advance(new, db, name, "", new.log.head().position)
            state.go_over()
    projector.state.leave(old)
    return told


def _completed(
    projector: Projector, new: Projector, names: Sequence[str], *, compare: bool
) -> dict[str, tuple[Difference, ...]]:
    """Make the indexes of what was filled in `new`, and hold it against what is live."""
    if compare:
        _keep_what_is_lost(projector, new, names)
    _index(new, names)
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
            _begin(filled, name, live.get(name))
        go_on = True
        while go_on:
            go_on = more()  # asked first: what came until the end is filled in as well
            if _fill(filled, names, None, batches=1 if filled is projector else BATCHES):
                return


def _new(name: str) -> str:
    return f"{NEW}{name}"


def _begin(projector: Projector, name: str, live: Checkpoint | None) -> int:
    """Make the new tables, or take up those an interrupted rebuild left; where it goes on from."""
    projection = projector.projections[name]
    with projector.transaction() as db:
        known = load(db)
        head = projector.log.head()
        live, new = known.get(name, live), known.get(_new(name))
        for each in (live, new):
            if each is not None and is_newer(each, projection):
                raise NeedsUpgrade(
                    f"the projection {name} was folded by a newer Retold", hint="upgrade retold"
                )
        if (
            new is not None
            and why_tell_again(new, projection, projector.log, head) is None
            and _complete(db, projection)
        ):
            return new.position
        projector.begin(db, projection(NEW), indexes=False, generation=(live.generation if live else 0) + 1)
    return 0


def _complete(db: apsw.Connection, projection: type[Projection]) -> bool:
    """Whether every new table is there; the checkpoint's word alone is not taken."""
    there = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return all(NEW + table in there for table in (*projection.tables, *projection.virtual))


def _fill(
    projector: Projector,
    names: Sequence[str],
    progress: Callable[[Progress], None] | None,
    *,
    batches: int,
) -> dict[str, str]:
    """Fold the whole log into the new tables, so many batches a transaction; what failed, and why."""
    from .projector import Progress

    failed: dict[str, str] = {}
    ahead: _Ahead | None = None
    sure = projector.log.head().position
    began: int | None = None
    with ThreadPoolExecutor(1) as beside:
        while True:
            with projector.transaction() as db:
                waiting = {name: each for name, each in _filled(db, names).items() if name not in failed}
                if not waiting:
                    return failed
                done = min(each.position for each in waiting.values())
                if began is None:
                    began = max(each.position for each in waiting.values())
                head = projector.log.head().position
                enough = done + batches * BATCH
                while waiting and done < min(head, enough):
                    now, ahead = ahead or _Ahead(projector, waiting, done, head), None
                    if _is_cut(now.stretch, done, sure, began):
                        return failed
                    done = now.stretch.done
                    for name, checkpoint in list(waiting.items()):
                        waiting[name] = projector.fold_one(db, now.told_by[name], checkpoint, now.stretch)
                    written = beside.submit(_settle, now.told_by, db)
                    try:
                        if done < head:
                            ahead = _Ahead(projector, waiting, done, head)
                    finally:  # whatever happens, what is being written is finished first
                        wait([written])
                    for name, why in written.result().items():
                        waiting[name] = msgspec.structs.replace(waiting[name], detached=why)
                    for name, checkpoint in list(waiting.items()):
                        if checkpoint.detached:
                            failed[name] = checkpoint.detached
                            _set_aside(projector, db, name, checkpoint.detached)
                            del waiting[name]
                        else:
                            store(db, checkpoint)
            if progress is not None:
                progress(Progress(done, head))
            if done >= head:
                return failed


def _filled(db: apsw.Connection, names: Sequence[str]) -> dict[str, Checkpoint]:
    known = load(db)
    return {name: known[_new(name)] for name in names}


class _Ahead:
    """Part of the log that is read, and what each projection makes of it without its tables."""

    def __init__(self, projector: Projector, names: Iterable[str], after: int, upto: int) -> None:
        self.stretch = events_past(projector.log, after, limit=BATCH, upto=upto)
        self.told_by = {name: projector.projections[name](NEW) for name in names}
        for each in self.told_by.values():
            each.prepare(self.stretch.events)


def _settle(told_by: Mapping[str, Projection], db: apsw.Connection) -> dict[str, str]:
    """Let them write what they left; which failed, and why.

    It runs beside the reading of what comes next, which leaves `db` alone: SQLite needs no Python while
    it writes and indexes a batch, and takes about as long as Python does to read the next one.
    """
    failed = {}
    for name, each in told_by.items():
        try:
            each.settle(db)
        except (RetoldError, *NOT_THE_FOLDS):
            raise  # the file's trouble
        except Exception as error:  # noqa: BLE001  # the log never waits for a projection
            failed[name] = f"{type(error).__name__}: {error}"
    return failed


def _is_cut(stretch: Stretch, done: int, sure: int, began: int) -> bool:
    """Whether a mask came over what is filled already, while it was being filled or before it went on.

    What is filled so far is put in its place, and told again by whoever comes next.
    """
    while_filling = first_mask(stretch.but_messages, done, sure_upto=sure)
    return while_filling is not None or first_mask(stretch.but_messages, began) is not None


def _keep_what_is_lost(projector: Projector, new: Projector, names: Sequence[str]) -> None:
    """Refuse to drop rows told from events that the log has lost since: they may be the only copy."""
    known, filled = projector.checkpoints(), new.checkpoints()
    for name in names:
        live, told = known.get(name), filled[_new(name)]
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


def _set_aside(projector: Projector, db: apsw.Connection, name: str, why: str) -> None:
    """The fold failed: away with the new tables; the old rows stay, and are said to be behind."""
    projector.projections[name](NEW).drop(db)
    db.execute("DELETE FROM checkpoints WHERE projection = ?", (_new(name),))
    live = load(db).get(name) or projector.begin(db, projector.projections[name]())
    store(db, msgspec.structs.replace(live, detached=why))


def _index(projector: Projector, names: Sequence[str]) -> None:
    with projector.transaction() as db:
        known = load(db)
        there = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
        for name in names:
            instance = projector.projections[name](NEW)
            instance.settle(db)
            generation = known[_new(name)].generation
            if not all(f"{each}_g{generation}" in there for each in instance.indexes):
                instance.create_indexes(db, generation)


def _compare(projector: Projector, new: Projector, names: Sequence[str]) -> dict[str, tuple[Difference, ...]]:
    """Hold the rows in `new` against live ones, both at one position, in snapshots that block nobody.

    The live rows are brought to where the new ones are or beyond, and a snapshot of them is taken;
    the new ones, which nobody else moves, follow to exactly that position.
    """
    with projector.transaction() as db:
        for name in names:
            checkpoint = load(db).get(name)
            if checkpoint is not None and _comparable(projector, name, checkpoint):
                _advance(projector, db, name, "", projector.log.head().position)
    with contextlib.closing(projector.state.open_reader()) as live_db:
        live_db.execute("BEGIN")
        live = {n: each for n, each in load(live_db).items() if n in names}
        live = {n: each for n, each in live.items() if _comparable(projector, n, each)}
        with new.transaction() as db:
            for name, checkpoint in live.items():
                _advance(new, db, name, NEW, checkpoint.position)
        with contextlib.closing(new.state.open_reader()) as new_db:
            new_db.execute("BEGIN")
            told = load(new_db)
            return {
                name: _differences(projector, name, live_db, new_db)
                for name, checkpoint in live.items()
                if told[_new(name)].position == checkpoint.position
            }


def _comparable(projector: Projector, name: str, live: Checkpoint) -> bool:
    """Whether the live rows ought to be those that are told again."""
    projection = projector.projections[name]
    return (
        not live.detached
        and live.fold_version == projection.version
        and why_tell_again(live, projection, projector.log, projector.log.head()) is None
    )


def _advance(projector: Projector, db: apsw.Connection, name: str, prefix: str, upto: int) -> None:
    """Fold one projection up to `upto` and let its index catch up, in the caller's transaction."""
    instance = projector.projections[name](prefix)
    checkpoint = load(db)[prefix + name]
    done = checkpoint.position
    while done < upto:
        stretch = events_past(projector.log, done, limit=BATCH, upto=upto)
        if first_mask(stretch.but_messages, checkpoint.position) is not None:
            break  # what was filled is told again by whoever comes next
        done = stretch.done
        checkpoint = projector.fold_one(db, instance, checkpoint, stretch)
        store(db, checkpoint)
        if checkpoint.detached:
            return
    db.execute("SAVEPOINT settle")
    try:
        instance.settle(db)
    except apsw.SQLError:  # tables that were changed by hand; the comparison will say so
        db.execute("ROLLBACK TO settle")
    db.execute("RELEASE settle")


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
        _advance(projector, db, name, NEW, projector.log.head().position)
        checkpoint = load(db)[_new(name)]
        rows = {table: one(db, f"SELECT count(*) FROM new_{table}") for table in projection.tables}
        projection("").drop(db)
        for table in (*projection.tables, *projection.virtual):
            db.execute(f"ALTER TABLE new_{table} RENAME TO {table}")
        db.execute("DELETE FROM checkpoints WHERE projection = ?", (_new(name),))
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
