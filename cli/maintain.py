"""`retold maintain`: what a home needs now and then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..domain.shell import shell_word
from .options import home_option, json_option, with_home
from .output import emit_json, plural
from .removal import copies_fields, unreached
from .stream import put, say, size
from .writing import writing

if TYPE_CHECKING:
    from ..infrastructure.commands.maintenance import Maintained


@click.command()
@click.option(
    "--prune/--no-prune",
    default=None,
    help="Delete conversations unused for sessions.retention_days; by default as sessions.auto_prune says.",
)
@click.option("--if-due", is_flag=True, help="Only if the last run is sessions.min_interval_hours ago.")
@home_option
@json_option
def maintain(prune: bool | None, if_due: bool, home: Path, as_json: bool) -> None:
    """Erase what is due, and tidy up.

    Deleted sessions whose time is up are erased, sessions that a crash left open are ended, the search
    index is made one piece, and space is given back where there is much of it. Pinned and open sessions
    are never pruned, archived ones are, and a compressed conversation only as a whole. What was pruned can
    be brought back with `retold sessions undelete`, as after `retold sessions prune`.
    """
    from ..infrastructure.held import still_held

    with writing(home, upkeep=False) as engine:
        done = engine.maintain_if_due() if if_due else engine.maintain(prune=prune)
        held = still_held(home, engine.state.reader(), done.erased, names=True) if done.erased else None
    if as_json:
        emit_json(
            {
                "skipped": done.skipped,
                "pruned": done.pruned,
                "named": done.named,
                "ended": done.ended,
                "empty": done.empty,
                "erased": done.erased,
                "optimised": done.optimised,
                "vacuumed_bytes": done.vacuumed_bytes,
                "left": done.left,
                "position": done.position or None,
                **copies_fields(held),
            }
        )
        return
    put(*_lines(done, home))
    if done.erased:
        say(unreached(held))


def _lines(done: Maintained, home: Path) -> list[str]:
    if done.skipped:
        return ["Nothing to do: the last run is too recent."]
    did = (
        f"Pruned {plural(len(done.pruned), 'conversation')}, ended {plural(len(done.ended), 'session')}"
        f" left open, erased {plural(len(done.erased), 'deleted session')}."
    )
    lines = [did]
    if done.vacuumed_bytes is not None:
        lines.append(f"Gave back {size(done.vacuumed_bytes)}.")
    if not done.optimised:
        lines.append("The search index could not be tidied: another process writes it.")
    lines += [f"  pruned: {name}" for name in done.pruned]
    if done.named:
        names = " ".join(map(shell_word, done.named))
        lines.append(f"This brings back what was pruned: retold sessions undelete {names}{with_home(home)}")
    return lines + [f"  left alone: {name} ({why})" for name, why in done.left.items()]
