"""`retold verify`: whether the log is what was written, and whether all else is what it tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import home_option, json_option
from .output import cell_width, emit_json, plural, visible
from .stream import is_terminal, terminal_width

if TYPE_CHECKING:
    from ..infrastructure.commands.remedies import Detached
    from ..infrastructure.verify import Verified
    from ..infrastructure.verify_log import Problem


@click.command()
@click.option(
    "--expect",
    metavar="#POS:HASH",
    help="Also ask whether the log holds this value there: a head that was printed before.",
)
@click.option("--fix", is_flag=True, help="Let sessions whose parent was never here stand alone.")
@home_option
@json_option
def verify(expect: str | None, fix: bool, home: Path, as_json: bool) -> int:
    """Check the log and everything told from it.

    Every event is held against the one before it and its payload against its hash; the search index
    against the messages; every projection against a fold from nothing. Nothing is changed; what is
    found wrong with the log is noted, and nothing is written to it until it is restored. Exits with 5
    where the log is damaged, 1 where anything else is. Quote '#POS:HASH' in a shell, or leave the #
    out: there it begins a comment. Only --fix changes something, where the log is sound: it takes
    references to parents that no import brought, and says which; `retold undo` takes that back.
    """
    from ..infrastructure.verify import verify as run
    from ..infrastructure.verify_log import Expected
    from .progress import progress_bar

    expected = None if expect is None else Expected.parse(expect)
    with progress_bar() as report:
        found = run(home, expect=expected, progress=report)
    fixed = _fixed(home) if fix and found.log.ok else None
    if as_json:
        emit_json(_json(found) | ({} if fixed is None else {"detached": fixed.former}))
    else:
        told = [*_lines(found), *_fixed_lines(fixed)]
        click.echo("\n".join(_fitted(told, terminal_width()) if is_terminal() else told))
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
    if found.stops_writes:
        yield "  nothing is written to it from now on, until it is mended or restored"
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


def _fixed(home: Path) -> Detached:
    from .writing import writing

    with writing(home) as engine:
        return engine.detach_children()


def _fixed_lines(fixed: Detached | None) -> Iterator[str]:
    if fixed is None:
        return
    if not fixed.former:
        yield "lineage      every parent that is named is here"
        return
    yield f"lineage      {plural(len(fixed.former), 'session')} detached from a parent that was never here"
    for child, parent in fixed.former.items():
        yield f"  {visible(child)} (from {visible(parent)})"
    yield f"  take it back with: retold undo {fixed.positions[0]}"


def _fitted(lines: Iterable[str], width: int) -> Iterator[str]:
    """As a terminal has room for them; the head is to be copied, so it is never broken in the middle."""
    from .paragraphs import fold

    for line in lines:
        label, _, rest = line.partition(" ")
        if label and cell_width(line) > width:
            yield label
            line = f"  {rest.strip()}"
        yield from fold(line, width, indent=4)


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
