"""`retold verify`: whether the log is what was written, and whether all else is what it tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import home_option, json_option
from .output import emit_json, plural, visible

if TYPE_CHECKING:
    from ..infrastructure.verify import Verified
    from ..infrastructure.verify_log import Problem


@click.command()
@click.option(
    "--expect",
    metavar="#POS:HASH",
    help="Also ask whether the log holds this value there: a head that was printed before.",
)
@home_option
@json_option
def verify(expect: str | None, home: Path, as_json: bool) -> int:
    """Check the log and everything told from it.

    Every event is held against the one before it and its payload against its hash; the search index
    against the messages; every projection against a fold from nothing. Nothing is changed. Exits with 5
    where the log is damaged, 1 where anything else is. Quote '#POS:HASH' in a shell, or leave the #
    out: there it begins a comment.
    """
    from ..infrastructure.verify import verify as run
    from ..infrastructure.verify_log import Expected
    from .progress import progress_bar

    expected = None if expect is None else Expected.parse(expect)
    with progress_bar() as report:
        found = run(home, expect=expected, progress=report)
    if as_json:
        emit_json(_json(found))
    else:
        click.echo("\n".join(_lines(found)))
    return found.exit_code


def _json(found: Verified) -> dict[str, Any]:
    expect = found.expected
    return {
        "log": {
            "ok": found.log.ok,
            "events": found.log.events,
            "head": str(found.log.head),
            "problems": found.log.problems,
            "unknown_topics": found.log.unknown_topics,
        },
        "projections": {
            "ok": not found.problems,
            "position": found.position,
            "lag": found.lag,
            "compared": found.compared,
            "problems": found.problems,
        },
        "expect": None
        if expect is None
        else {"position": expect.position, "hash": expect.hash, "ok": found.as_expected},
    }


def _lines(found: Verified) -> Iterator[str]:
    log = found.log
    yield f"log          {plural(log.events, 'event')}, {'sound' if log.ok else 'DAMAGED'}"
    yield from _told(log.problems)
    if log.unknown_topics:
        yield f"  of a newer Retold, not decoded: {visible(', '.join(log.unknown_topics))}"
    yield f"head         {log.head}"
    if found.expected is not None and found.as_expected:
        yield f"expected     #{found.expected.position}:{found.expected.hash} is there"
    behind = f", {plural(found.lag, 'event')} behind the log when this began" if found.lag else ""
    if found.problems:
        state = "DAMAGED"
    elif not found.compared:
        state = "not held against a fold from nothing: the log is damaged"
    elif found.position:
        state = f"equal to a fold from nothing at #{found.position}"
    else:
        state = "nothing is told yet"
    yield f"projections  {state}{behind}"
    yield from _told(found.problems)


def _told(problems: list[Problem]) -> Iterator[str]:
    for problem in problems:
        where = _where(problem.positions)
        yield f"  {problem.kind}{': ' + where if where else ''}"
        yield f"    {visible(problem.detail)}"
        yield f"    cure: {problem.cure}"


def _where(positions: list[list[int]], most: int = 12) -> str:
    shown = [f"#{first}" if first == last else f"#{first}-{last}" for first, last in positions[:most]]
    more = len(positions) - most
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
