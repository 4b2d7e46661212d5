"""`retold backup` and `retold restore`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..domain.shell import shell_word
from .options import home_option, json_option
from .output import emit_json, plural
from .stream import put, say, size


def _folder(name: str) -> Path:
    from ..domain.errors import BadUsage

    if not name.strip():
        raise BadUsage("an empty name is no folder", hint="name one")
    return Path(os.path.abspath(os.path.expanduser(name)))


@click.command()
@click.argument("folder", metavar="DIR")
@home_option
@json_option
def backup(folder: str, home: Path, as_json: bool) -> None:
    """Copy the home into a folder, while others write.

    DIR is made, and must hold nothing. The log, the settings, memories and jobs are copied; all else is
    told again from the log. It is done when the copy was checked from its first event to its last.
    """
    from ..infrastructure.backup import back_up
    from .progress import progress_bar

    with progress_bar() as report:
        done = back_up(home, _folder(folder), progress=report)
    if as_json:
        emit_json(
            {
                "path": done.path,
                "head": str(done.head),
                "events": done.events,
                "size_bytes": done.size_bytes,
                "files": done.files,
            }
        )
        return
    put(
        f"Backed up {plural(done.events, 'event')} ({size(done.size_bytes)}) to {done.path}",
        f"head  {done.head}",
    )
    say([f"Put it in place with: retold restore {shell_word(done.path)}"])


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--replace", is_flag=True, help="Move aside the home that is there, whole.")
@home_option
@json_option
def restore(folder: str, replace: bool, home: Path, as_json: bool) -> None:
    """Put a backup in place as the home.

    DIR is what `retold backup` made. It is checked before anything is touched, and what was restored is
    checked before it is in place. Programs that have the home open go on with the one moved aside, and
    must be started again.
    """
    from ..infrastructure.backup import restore as put_back
    from .progress import progress_bar

    with progress_bar() as report:
        done = put_back(_folder(folder), home, replace=replace, progress=report)
    if as_json:
        emit_json(
            {
                "path": done.path,
                "head": str(done.head),
                "events": done.events,
                "files": done.files,
                "kept": done.kept,
            }
        )
        return
    put(f"Restored {plural(done.events, 'event')} to {done.path}", f"head  {done.head}")
    if done.kept is not None:
        say([f"What was there before lies in {done.kept}"])
