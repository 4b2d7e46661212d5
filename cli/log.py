"""`retold log`: the events, one a line however their text looks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from ..domain.errors import BadUsage, FileReplaced
from ..domain.events import Recorded
from ..infrastructure.home import EVENTS
from ..infrastructure.log import Log
from ..infrastructure.log_lines import Hole, Selection, Unreadable, entries, select, upto
from .event_lines import Page, as_json, line
from .options import at_option, home_option, json_option
from .output import visible
from .stream import encode, is_terminal, terminal_width, write_bytes

POLL_S = 0.05
EXIT_DAMAGED = 5


@click.command()
@click.option(
    "--stream",
    metavar="S",
    help="Only one stream: its name as printed, a session's id or its beginning, or a routing key.",
)
@click.option("--type", "types", multiple=True, metavar="T", help="Only events of this type; repeatable.")
@click.option("--since", metavar="#POS|TIME", help="Only from a position (#120) or a time (or 2d) on.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="The last N; with --since the first N from there.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on printing events as they are appended.")
@home_option
@at_option
@json_option
def log(
    home: Path,
    at: str | None,
    as_json: bool,
    stream: str | None,
    types: tuple[str, ...],
    since: str | None,
    limit: int | None,
    follow: bool,
) -> int:
    """Print the events, one a line.

    Position, when it happened (≤: not after), stream, who wrote it, type, and what it says; on a
    terminal the day stands above its events, and a long id is told by its end. With --json each line
    is an object. Exit code 5 if an event could not be read.
    """
    from ..infrastructure.clock import now_us
    from ..infrastructure.when import parse_point

    if follow and at is not None:
        raise BadUsage("--follow looks ahead, and --at looks back", hint="give one of them")
    if limit is not None:
        limit = min(limit, sys.maxsize)  # no log is longer
    now = now_us()
    opened = Log(home / EVENTS, read_only=True)
    file = _file(opened.path)
    try:
        chosen = select(
            opened,
            stream=stream,
            types=types,
            since=None if since is None else parse_point(since, now_us=now),
            at=None if at is None else parse_point(at, now_us=now, whole_minutes=True),
        )
        put = _put_json if as_json else _line_putter()
        damaged = False
        last = opened.head().position
        for event in entries(opened, chosen, limit=limit, newest=since is None):
            put(event)
            if isinstance(event, Hole):
                last, damaged = max(last, event.last), True
                continue
            last = max(last, event.position)
            damaged = damaged or isinstance(event.payload, Unreadable)
        if follow:
            for event in _following(opened, file, chosen, last):
                put(event)
    finally:
        opened.close()
    return EXIT_DAMAGED if damaged else 0


def _put_json(event: Recorded | Hole) -> None:
    if isinstance(event, Hole):
        told = {"position": event.first, "last": event.last, "payload_state": "unreadable", "why": event.why}
        write_bytes(encode(told) + b"\n")
        return
    write_bytes(encode(as_json(event)) + b"\n")


def _line_putter() -> Callable[[Recorded | Hole], None]:
    """Prints events as lines: whole ones, or as a terminal has room for them."""
    page = Page(terminal_width()) if is_terminal() else None

    def put(event: Recorded | Hole) -> None:
        if isinstance(event, Hole):
            where = f"#{event.first}" if event.first == event.last else f"#{event.first} to #{event.last}"
            click.echo(f"{where} cannot be read (damaged: {visible(event.why)}); see: retold verify")
            return
        for each in (line(event),) if page is None else page.lines(event):
            click.echo(each)

    return put


def _file(path: Path) -> tuple[int, int] | None:
    """Which file stands there."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _following(
    opened: Log, file: tuple[int, int] | None, chosen: Selection, last: int
) -> Iterator[Recorded | Hole]:
    """What is appended after `last`, by whichever process, until somebody interrupts.

    Raises:
        FileReplaced: another file stands where this log was opened.
    """
    seen = None
    while True:
        sys.stdout.flush()
        if _file(opened.path) != file:
            raise FileReplaced(
                f"{opened.path} was moved, removed or replaced while it was followed",
                hint="start the command again on the file that is there now",
            )
        # Another connection's commit changes this number, and asking for it costs next to nothing.
        version = opened.reader().pragma("data_version")
        if version != seen:
            seen = version
            head = opened.head().position
            yield from entries(opened, upto(chosen, head), after=last)
            last = max(last, head)
            continue
        time.sleep(POLL_S)
