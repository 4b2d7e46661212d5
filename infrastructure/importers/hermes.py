"""Takes in a Hermes home, or what changed in it since; runs it as often as one likes."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from ...domain import events as e
from ...domain.errors import NotAStore
from ...domain.events import Event
from ...domain.text import scrub
from ..blame import blaming
from ..clock import now_us
from ..drafts import draft_of
from ..fold_ahead import folding_ahead
from ..foreign import EVENTS, STATE
from ..log import Log
from ..projector import Projector
from ..retry import decide_again
from ..streams import source_stream
from .hermes_home import HermesHome
from .hermes_known import tell_known
from .hermes_new import tell_new
from .hermes_plan import Plan
from .hermes_routes import tell_routes
from .hermes_run import Run, readable, store_of
from .hermes_told import tell_sessions, tell_usage
from .hermes_waiting import tell_waiting
from .report import Findings, ImportReport, Progress, at_most
from .salvage import Lost
from .turn import my_turn

__all__ = ["import_hermes", "import_opened", "opened", "opened_as", "take_in"]

WAIT_S = 600.0
"""So long an import waits for one that is running."""


class Target(Protocol):
    """An open Retold home."""

    @property
    def projector(self) -> Projector: ...


Opened = TypeVar("Opened", bound=HermesHome)


def opened(path: Path, home: Path) -> contextlib.AbstractContextManager[HermesHome]:
    """The Hermes home at `path`, to be read into the Retold home at `home`, which need not exist.

    Raises:
        NotAStore: it is no Hermes home; nothing was made anywhere.
    """
    return opened_as(HermesHome, path, home)


@contextlib.contextmanager
def opened_as(kind: type[Opened], path: Path, home: Path) -> Iterator[Opened]:
    """`opened`, as a reader of another kind."""
    try:
        ours = (path / EVENTS).is_file() and (path / STATE).is_symlink()
    except OSError as error:
        raise NotAStore(f"{path} cannot be read: {error.strerror or error}") from error
    if ours:
        raise NotAStore(f"{path} is a Retold home itself", hint="name the Hermes home that it was taken from")
    # A home is made 0700 by whoever opens it, so nothing is made in one that is not there.
    parent = home if home.is_dir() else Path(tempfile.gettempdir())
    scratch = parent / f"import-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        with kind.open(path, scratch) as there:
            yield there
    finally:
        with contextlib.suppress(OSError):
            scratch.rmdir()


def import_hermes(
    target: Target,
    path: Path,
    *,
    progress: Callable[[Progress], None] | None = None,
    moved_from: Path | None = None,
) -> ImportReport:
    """Take in the Hermes home at `path`; it is never written, and nothing is left in it.

    Raises:
        NotAStore: it is no Hermes home. BadUsage: `moved_from` was never imported.
        SourceChanged: it was written while it was read; what was taken so far stands.
        VersionConflict, StoreBusy, NoRoom: what was taken so far stands; run it again.
    """
    with opened(path, target.projector.log.path.parent) as home:
        return import_opened(target, home, progress=progress, moved_from=moved_from)


def import_opened(
    target: Target,
    home: HermesHome,
    *,
    progress: Callable[[Progress], None] | None = None,
    moved_from: Path | None = None,
) -> ImportReport:
    """`import_hermes` for a home that is open. Closes it.

    Where another import into the same Retold home is running, this one waits, and reads anew.
    """
    folder = target.projector.log.path.parent

    def waiting() -> None:
        if progress is not None:
            progress(Progress("waiting for another import", 0, None))

    projector = target.projector
    with (
        my_turn(folder, waiting=waiting, timeout_s=WAIT_S) as waited,
        blaming(projector.log, lambda: projector),  # the plan reads what was seen before
    ):
        if not waited:
            return take_in(target, home, progress, moved_from)
        # What was open while another import read on may be older than what that one has taken in.
        with opened(home.path, folder) as as_it_is_now:
            return take_in(target, as_it_is_now, progress, moved_from)


def take_in(
    target: Target,
    home: HermesHome,
    progress: Callable[[Progress], None] | None,
    moved_from: Path | None,
    *,
    checked: bool = True,
    quiet: bool = False,
) -> ImportReport:
    """One run, from the plan to the report.

    Args:
        checked: look for damage, too, by which nothing is lost.
        quiet: say nothing in the log where nothing was taken in or lost; the report's position is 0 then.
    """
    started_s = time.monotonic()
    log = target.projector.log
    if checked:
        home.check_in_background()
    findings = Findings()
    observed_us = _observed_us(home.path)
    read_path = readable(home.path)
    store = decide_again(lambda: _take(target.projector, home, observed_us, findings, progress, moved_from))
    damage = [scrub(each)[0] for each in (home.damage_found() if checked else home.damage)]
    schema_version = home.schema_version
    home.finish()
    lost = [scrub(_line(each))[0] for each in home.lost]
    payload = e.ImportRan(
        read_path,
        schema_version,
        dict(findings.taken),
        dict(findings.unchanged),
        at_most(list(findings.conflicts)),
        at_most([*lost, *damage]),
        at_most(list(findings.skipped)),
        at_most([*findings.notes, *findings.differences]),
    )
    position = _append_ran(log, store, payload) if findings.taken or lost or not quiet else 0
    target.projector.catch_up(
        progress=None
        if progress is None
        else lambda at: progress(Progress("telling what can be read", at.done, at.total))
    )
    return findings.report(
        read_path, position, started_s, schema_version=schema_version, lost=lost, damage=damage
    )


def _take(
    projector: Projector,
    home: HermesHome,
    observed_us: int,
    findings: Findings,
    progress: Callable[[Progress], None] | None,
    moved_from: Path | None,
) -> str:
    """Plan from fresh state and write; the order is a function of the source alone."""
    log = projector.log
    planned_at = log.head().position
    projector.catch_up()
    findings.begin_again()
    db = projector.state.reader()
    db.execute("BEGIN")  # what was seen stays as it was, whoever folds meanwhile
    try:
        store = store_of(log, db, home.path, None if moved_from is None else moved_from.resolve())
        run = Run(
            home,
            log,
            db,
            store,
            planned_at=planned_at,
            observed_us=observed_us,
            now_us=now_us(),
            findings=findings,
            progress=progress,
        )
        plan = Plan(run, home.system_prompts())
        plan.make()
        with folding_ahead(projector, len(plan.timeline)):
            if not planned_at:
                db.execute("ROLLBACK")  # nothing was seen before; a snapshot would only hold up the WAL
            tell_known(run, plan)
            tell_new(run, plan)
            tell_sessions(run, plan)
            tell_usage(run, plan)
            tell_routes(run)
            tell_waiting(run)
            run.writer.flush()
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    return store


def _append_ran(log: Log, store: str, payload: e.ImportRan) -> int:
    stream = source_stream(store)

    def decide() -> int:
        version = log.stream_version(stream) + 1
        return log.append([draft_of(Event(stream, version, payload, now_us()))])[0]

    return decide_again(decide)


def _observed_us(path: Path) -> int:
    """By when everything in the home was so: when its database was last written."""
    latest = 0
    for name in ("state.db", "state.db-wal"):
        try:
            latest = max(latest, (path / name).stat().st_mtime_ns // 1000)
        except OSError:
            continue
    return latest or now_us()


def _line(lost: Lost) -> str:
    """One sentence for rows that could not be read."""
    if lost.first is None:
        where = lost.table
    elif lost.last in (None, lost.first):
        where = f"{lost.table} {lost.first}"
    else:
        where = f"{lost.table} {lost.first} to {lost.last}"
    of = f" of session {lost.session_id}" if lost.session_id else ""
    return f"{where}{of}: {lost.detail}"
