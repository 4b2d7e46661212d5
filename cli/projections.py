"""`retold projections`: how far everything told from the log is, and telling it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import home_option, json_option
from .output import Column, emit_json, plural, table, visible
from .stream import put, size

if TYPE_CHECKING:
    from ..infrastructure.rebuild import Difference, Rebuilt
    from ..infrastructure.status import ProjectionStatus, Status

EXIT_DAMAGED = 5


@click.command()
@home_option
@json_option
def status(home: Path, as_json: bool) -> None:
    """Show how far each projection has been told.

    Shown as it is found: nothing is folded. A projection that is behind is folded by the next command
    that reads or writes.
    """
    from ..infrastructure.home import Home
    from ..infrastructure.status import status_of

    with Home(home, read_only=True) as opened:
        found = status_of(opened)
    if as_json:
        emit_json(found)
    else:
        _show(found)


def _show(found: Status) -> None:
    columns = [
        Column("projection"),
        Column("fold"),
        Column("checkpoint", right=True),
        Column("lag", right=True),
        Column("rows", right=True),
        Column("health"),
    ]
    rows = [
        [
            each.name,
            f"v{each.fold_version}",
            f"#{each.position}",
            f"{each.lag:,}",
            f"{sum(count or 0 for count in each.rows.values()):,}",
            _health(each),
        ]
        for each in found.projections
    ]
    put(*table(rows, columns))
    put("", f"log          #{found.head}, {size(found.log_bytes)}, WAL {size(found.log_wal_bytes)}")
    put(f"projections  {size(found.state_bytes)}, WAL {size(found.state_wal_bytes)}")
    if found.superseded is not None:
        put(f"state.db was damaged and is begun anew: {visible(found.superseded)}", err=True)


def _health(each: ProjectionStatus) -> str:
    return each.health if each.detail is None else f"{each.health}: {visible(each.detail)}"


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@home_option
@json_option
def rebuild(names: tuple[str, ...], home: Path, as_json: bool) -> int:
    """Tell projections again from the log.

    All of them where none is named.

    Others go on reading and writing meanwhile. Says whether what is told now is equal to what was
    there, or what differed; either way it is right afterwards, and the exit code is 0. Killed half
    way, the old stays, and the next rebuild goes on from there. Exits with 5 where the log is known
    to be damaged: then what can be read of it is told.
    """
    from ..infrastructure.home import Home
    from ..infrastructure.known_damage import known, where
    from ..infrastructure.rebuild import rebuild as tell_again
    from .progress import progress_bar

    with Home(home, read_only=True) as opened, progress_bar() as report:
        chosen = list(dict.fromkeys(names)) or list(opened.projector.projections)
        told = tell_again(
            opened.projector,
            chosen,
            progress=None if report is None else lambda at: report("telling again", at.done, at.total),
        )
        found, passed_over = known(opened.log), opened.projector.lag().damaged
    if as_json:
        emit_json(
            {
                "projections": [
                    {
                        "name": each.name,
                        "events": each.events,
                        "rows": each.rows,
                        "compared": each.compared,
                        "equal": each.equal,
                        "differences": each.differences,
                        "resumed_at": each.resumed_at,
                        "failed": each.failed,
                        "file_damaged": each.file_damaged,
                    }
                    for each in told
                ]
            }
        )
    else:
        for why in dict.fromkeys(each.file_damaged for each in told if each.file_damaged is not None):
            put(f"state.db was damaged, and a new file is begun: {visible(why)}")
        for each in told:
            _tell(each)
    if found or passed_over:
        put(f"the log is damaged{where(found, passed_over)}: what can be read of it is told", err=True)
        put("see what is lost with: retold verify; then restore a backup of events.db", err=True)
        return EXIT_DAMAGED
    return 1 if any(each.failed for each in told) else 0


def _tell(each: Rebuilt) -> None:
    if each.failed is not None:
        put(f"{each.name}: NOT told again, its fold failed: {visible(each.failed)}")
        put("  it is set aside; what was there stays, and the log is untouched")
        return
    resumed = f", going on from #{each.resumed_at}" if each.resumed_at else ""
    rows = sum(each.rows.values())
    if each.file_damaged is not None:
        verdict = "told in the new file"
    elif not each.compared:
        verdict = "told again; what was there before was no fold of this log to compare with"
    elif each.equal:
        verdict = "equal to what was there"
    else:
        verdict = "differed from what was there, and is right now"
    put(f"{each.name}: {plural(each.events, 'event')}, {plural(rows, 'row')}{resumed}: {verdict}")
    for difference in each.differences:
        put(f"  {_difference(difference)}")


def _difference(found: Difference) -> str:
    counted = [
        plural(count, f"row {what}", f"rows {what}")
        for count, what in (
            (found.only_before, "too many"),
            (found.only_now, "missing"),
            (found.changed, "other than told"),
        )
        if count
    ]
    if not counted:
        return f"{found.table}: {visible(found.first)}"
    return f"{found.table}: {', '.join(counted)}; the first is {visible(found.first)}"
