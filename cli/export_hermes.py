"""`retold export hermes`: a whole Hermes home, made of what is told here."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..domain.shell import shell_word
from .options import at_option, home_option, json_option
from .output import emit_json, plural, visible
from .stream import put, say


@click.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--for",
    "place",
    metavar="PATH",
    help="The Hermes home that it is to be put into, where that is not DIR: its routes are then found there.",
)
@click.option("--force", is_flag=True, help="Write over an export that nobody has written to since.")
@home_option
@at_option
@json_option
def hermes(folder: str, place: str | None, force: bool, home: Path, at: str | None, as_json: bool) -> None:
    """Write all sessions as a home of Hermes 0.19.

    DIR is made, and must hold nothing. state.db and sessions/sessions.json are as Hermes makes them:
    sessions and messages keep the ids that they came with, what was not changed here is as it was. What
    was deleted or erased stays out. docs/hermes.md says how to put it in place, and what has no place there.
    """
    from ..infrastructure.exporters.hermes_export import export_home
    from ..infrastructure.reading import reading
    from .progress import progress_bar

    to = _folder(folder, "DIR")
    with reading(home, at) as view, progress_bar("rows") as report:
        remarks = view.remarks()
        done = export_home(
            home,
            view.db,
            view.log,
            to,
            position=view.known_at,
            place=None if place is None else _folder(place, "--for"),
            force=force,
            progress=report,
        )
    say(remarks)
    if as_json:
        emit_json(done)
        return
    rows = ", ".join(
        (
            plural(done.sessions, "session"),
            plural(done.messages, "message"),
            plural(done.routes, "route"),
            plural(done.usage, "usage row"),
        )
    )
    put(f"Exported {rows} to {visible(done.path)}, as of #{done.position}")
    say(f"note: {visible(each)}" for each in done.notes)
    say([f"Look at it with: HERMES_HOME={shell_word(done.path)} hermes sessions list"])


def _folder(name: str, what: str) -> Path:
    from ..domain.errors import BadUsage

    if not name.strip():
        raise BadUsage(f"{what}: an empty name is no folder", hint="name one")
    return Path(os.path.abspath(os.path.expanduser(name)))
