"""`retold import jsonl`: takes exported sessions back, ours or Hermes'."""

from __future__ import annotations

import os
from pathlib import Path

import click

from .import_ import lines
from .options import home_option, json_option
from .output import emit_json
from .stream import is_terminal, put, terminal_width


@click.command()
@click.argument("file")
@home_option
@json_option
def jsonl(file: str, home: Path, as_json: bool) -> int:
    """Take in sessions that were exported as JSONL.

    FILE is what `retold sessions export` or `hermes sessions export` wrote. Ids stay; a session that
    is here already is left as it is, and named where the file says otherwise. A line that cannot be
    read is named and passed over; then it exits with 1.
    """
    from ..infrastructure.engine import open_home
    from ..infrastructure.importers.jsonl import import_jsonl, refuse_no_file

    path = Path(os.path.abspath(os.path.expanduser(file)))
    refuse_no_file(path)
    with open_home(home, actor="import") as engine:
        done = import_jsonl(engine, path)
    if as_json:
        emit_json(done)
    else:
        put(*lines(done, terminal_width() if is_terminal() else None))
    return done.exit_code
