"""Tells projections again beside the live ones, compares, and swaps them in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from ..domain.errors import NeedsUpgrade, NoSuchProjection
from .checkpoints import Checkpoint, is_newer, load, store, why_tell_again
from .sqlite import translated
from .state_file import damaged

if TYPE_CHECKING:
    from .projector import Progress, Projector

BATCH = 4_000


class Difference(msgspec.Struct, frozen=True):
    """What the rows told again did not have in common with those that were there."""

    table: str
    only_before: int
    only_now: int
    changed: int
    first: str
    """The first such row's key, for a person to look at."""


class Rebuilt(msgspec.Struct, frozen=True):
    """One projection, told again."""

    name: str
    events: int
    rows: dict[str, int]
    compared: bool
    differences: tuple[Difference, ...] = ()
    resumed_at: int = 0
    """From which position an interrupted rebuild went on, or 0."""

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
    interrupted rebuild goes on where it was. The swap is by rename, in one IMMEDIATE transaction.

    Raises:
        NoSuchProjection, NeedsUpgrade, StoreBusy, NoRoom.
    """
    for name in names:
        if name not in projector.projections:
            raise NoSuchProjection(
                f"there is no projection '{name}'", hint=f"one of: {', '.join(projector.projections)}"
            )
    with projector.telling_again():
        resumed = {name: _begin(projector, name) for name in names}
        _fill(projector, names, progress)
        _index(projector, names)
        differences: dict[str, tuple[Difference, ...]] | None = None
        if compare:
            differences = _compare(projector, names)
        return [
            _swap(
                projector,
                name,
                None if differences is None else differences.get(name),
                resumed[name],
            )
            for name in names
        ]


def _new(name: str) -> str:
    return f"new_{name}"


def _begin(projector: Projector, name: str) -> int:
    """Make the new tables, or take up those an interrupted rebuild left; where it goes on from."""
    projection = projector.projections[name]
    head = projector.log.head()
    with projector.transaction() as db:
        known = load(db)
        live, new = known.get(name), known.get(_new(name))
        for each in (live, new):
            if each is not None and is_newer(each, projection):
                raise NeedsUpgrade(
                    f"the projection {name} was folded by a newer Retold", hint="upgrade retold"
                )
        if new is not None and why_tell_again(new, projection, projector.log, head) is None:
            return new.position
        instance = projection("new_")
        instance.drop(db)
        instance.create(db)
        store(
            db,
            Checkpoint(
                _new(name),
                (live.generation if live else 0) + 1,
                projection.version,
                projector.log.identity.log_id,
                0,
                projector.log.identity.genesis,
            ),
        )
    return 0


def _fill(projector: Projector, names: Sequence[str], progress: Callable[[Progress], None] | None) -> None:
    from .projector import Progress

    while True:
        with projector.transaction() as db:
            known = load(db)
            waiting = {name: known[_new(name)] for name in names}
            first = min(each.position for each in waiting.values())
            events = projector.log.read(first, limit=BATCH)
            for name, checkpoint in waiting.items():
                mine = [event for event in events if event.position > checkpoint.position]
                if mine:
                    projector.projections[name]("new_").fold(mine, db)
                    store(db, projector.moved(checkpoint, mine))
        if not events:
            return
        if progress is not None:
            progress(Progress(events[-1].position, projector.log.head().position))


def _index(projector: Projector, names: Sequence[str]) -> None:
    with projector.transaction() as db:
        known = load(db)
        for name in names:
            instance = projector.projections[name]("new_")
            instance.settle(db)
            have = db.execute(
                "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name LIKE ?",
                (f"%_g{known[_new(name)].generation}",),
            ).fetchone()[0]
            wanted = set(projector.projections[name].indexes)
            there = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
            generation = known[_new(name)].generation
            if not have or not all(f"{each}_g{generation}" in there for each in wanted):
                instance.create_indexes(db, generation)


def _compare(projector: Projector, names: Sequence[str]) -> dict[str, tuple[Difference, ...]]:
    """Hold new rows against live ones, both at one position, in a snapshot that blocks nobody."""
    for _ in range(5):
        with projector.transaction() as db:
            _bring_level(projector, db, names)
        with translated(str(projector.state.link), damaged):
            db = projector.state.reader()
            db.execute("BEGIN")
            try:
                known = load(db)
                comparable = [
                    name
                    for name in names
                    if name in known
                    and not known[name].detached
                    and known[name].position == known[_new(name)].position
                    and known[name].fold_version == known[_new(name)].fold_version
                ]
                level = all(name not in known or known[name].detached or name in comparable for name in names)
                if level:
                    return {name: _differences(projector, name, db) for name in comparable}
            finally:
                db.execute("COMMIT")
    return {}


def _bring_level(projector: Projector, db: apsw.Connection, names: Sequence[str]) -> None:
    """Fold live and new to the head, in the caller's transaction."""
    head = projector.log.head()
    known = load(db)
    for name in names:
        for prefix in ("new_", ""):
            checkpoint = known.get(prefix + name)
            if checkpoint is None or checkpoint.detached:
                continue
            if not prefix and why_tell_again(checkpoint, projector.projections[name], projector.log, head):
                continue
            instance = projector.projections[name](prefix)
            while checkpoint.position < head.position:
                events = projector.log.read(checkpoint.position, limit=BATCH, upto=head.position)
                if not events:
                    break
                instance.fold(events, db)
                checkpoint = projector.moved(checkpoint, events)
                store(db, checkpoint)
            instance.settle(db)


def _differences(projector: Projector, name: str, db: apsw.Connection) -> tuple[Difference, ...]:
    found = []
    for table, sql in projector.projections[name]().ordered().items():
        try:
            difference = difference_of(
                table, db.execute(sql.format(p="")), db.cursor().execute(sql.format(p="new_"))
            )
        except (apsw.CorruptError, apsw.SQLError) as error:
            difference = Difference(table, 0, 0, 0, f"the old rows cannot be read: {error}")
        if difference is not None:
            found.append(difference)
    return tuple(found)


def difference_of(table: str, before: Any, now: Any) -> Difference | None:
    """Walk two ordered row sets side by side; their first column is the key. None where equal."""
    only_before: dict[Any, Any] = {}
    only_now: dict[Any, Any] = {}
    changed = dropped = added = 0
    first: Any = None
    for old, new in zip_longest(before, now):
        if old == new:
            continue
        if old is not None:
            only_before[old[0]] = old
        if new is not None:
            only_now[new[0]] = new
        if first is None:
            first = (old or new)[0]
        if len(only_before) + len(only_now) > 100_000:
            break  # they differ beyond counting
    for key, row in only_before.items():
        if key not in only_now:
            dropped += 1
        elif only_now[key] != row:
            changed += 1
    added = sum(1 for key in only_now if key not in only_before)
    if not (changed or dropped or added):
        return None
    return Difference(table, dropped, added, changed, str(first))


def _swap(
    projector: Projector, name: str, differences: tuple[Difference, ...] | None, resumed_at: int
) -> Rebuilt:
    projection = projector.projections[name]
    with projector.transaction() as db:
        # A table that others read is not dropped under them: they go on in their snapshot.
        checkpoint = load(db)[_new(name)]
        head = projector.log.head()
        instance = projection("new_")
        while checkpoint.position < head.position:
            events = projector.log.read(checkpoint.position, limit=BATCH, upto=head.position)
            if not events:
                break
            instance.fold(events, db)
            checkpoint = projector.moved(checkpoint, events)
        rows = {
            table: db.execute(f"SELECT count(*) FROM new_{table}").fetchone()[0]  # noqa: S608
            for table in projection.tables
        }
        projection("").drop(db)
        for table in (*projection.tables, *projection.virtual):
            db.execute(f"ALTER TABLE new_{table} RENAME TO {table}")
        db.execute("DELETE FROM checkpoints WHERE projection = ?", (_new(name),))
        store(db, msgspec.structs.replace(checkpoint, projection=name))
    return Rebuilt(name, checkpoint.position, rows, differences is not None, differences or (), resumed_at)
