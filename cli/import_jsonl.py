"""`retold import jsonl`: takes exported sessions back, ours or Hermes'."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from .import_ import lines
from .options import home_option, json_option
from .output import emit_json
from .stream import is_terminal, put, terminal_width


@contextlib.contextmanager
def _at_hand(file: str) -> Iterator[tuple[Path, str | None]]:
    """The file, or a copy of standard input that is gone afterwards, with a name for it."""
    if file != "-":
        yield Path(os.path.abspath(os.path.expanduser(file))), None
        return
    import shutil
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="retold-", suffix=".jsonl") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Path(copy.name), "standard input"


@click.command()
@click.argument("file")
@home_option
@json_option
def jsonl(file: str, home: Path, as_json: bool) -> int:
    """Take in sessions that were exported as JSONL.

    FILE is what `retold sessions export` or `hermes sessions export` wrote, or - for standard input.
    Ids stay; a session that is here already is left as it is, and named where the file says otherwise.
    A line that cannot be read is named and passed over; then it exits with 1.
    """
    from ..infrastructure.engine import open_home
    from ..infrastructure.importers.jsonl import import_jsonl, refuse_no_file

    with _at_hand(file) as (path, name):
        refuse_no_file(path)
        with open_home(home, actor="import") as engine:
            done = import_jsonl(engine, path, name=name)
    if as_json:
        emit_json(done)
    else:
        put(*lines(done, terminal_width() if is_terminal() else None))
    return done.exit_code
