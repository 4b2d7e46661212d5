"""New tables of a projection, filled from the log beside the live ones, in batches of a transaction each.

Two threads share the work: one writes what the folds left while the other reads and decodes what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import apsw
import msgspec

from ..domain.errors import NeedsUpgrade, RetoldError
from ..projections.base import Projection
from .checkpoints import Checkpoint, is_newer, load, store, why_tell_again
from .masks import first_mask
from .past_damage import Stretch, events_past
from .sqlite import NOT_THE_FOLDS

if TYPE_CHECKING:
    from .projector import Progress, Projector

BATCH = 4_000
BATCHES = 4
"""How many a transaction, where nobody else wants the file."""
NEW = "new_"


def new_name(name: str) -> str:
    return f"{NEW}{name}"


def begin(projector: Projector, name: str, live: Checkpoint | None) -> int:
    """Make the new tables, or take up those an interrupted rebuild left; where it goes on from."""
    projection = projector.projections[name]
    with projector.transaction() as db:
        known = load(db)
        head = projector.log.head()
        live, new = known.get(name, live), known.get(new_name(name))
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


def fill(
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
    return {name: known[new_name(name)] for name in names}


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


def _set_aside(projector: Projector, db: apsw.Connection, name: str, why: str) -> None:
    """The fold failed: away with the new tables; the old rows stay, and are said to be behind."""
    projector.projections[name](NEW).drop(db)
    db.execute("DELETE FROM checkpoints WHERE projection = ?", (new_name(name),))
    live = load(db).get(name) or projector.begin(db, projector.projections[name]())
    store(db, msgspec.structs.replace(live, detached=why))


def make_indexes(projector: Projector, names: Sequence[str]) -> None:
    with projector.transaction() as db:
        known = load(db)
        there = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
        for name in names:
            instance = projector.projections[name](NEW)
            instance.settle(db)
            generation = known[new_name(name)].generation
            if not all(f"{each}_g{generation}" in there for each in instance.indexes):
                instance.create_indexes(db, generation)


def advance(projector: Projector, db: apsw.Connection, name: str, prefix: str, upto: int) -> None:
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
