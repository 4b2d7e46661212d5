"""`retold import hermes`: takes in a Hermes home, or what changed in it since, and says what came of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import home_option, json_option
from .output import emit_json, plural, visible

if TYPE_CHECKING:
    from ..infrastructure.importers.report import ImportReport, Progress

_LABEL_CELLS = 13
_FIRST = ("sessions", "messages", "routes")


@click.command()
@click.argument("source", metavar="[HOME]", required=False)
@click.option(
    "--moved-from",
    metavar="PATH",
    help="Where this Hermes home was when it was imported before; it goes on as the same one.",
)
@home_option
@json_option
def hermes(source: str | None, moved_from: str | None, home: Path, as_json: bool) -> int:
    """Take in a Hermes home, or what changed in it since.

    HOME is $HERMES_HOME or ~/.hermes where none is given. It is only read. Run it as often as you
    like: a second run takes in what is new, and what you changed here stays. Exits with 1 where
    something in HOME was lost to damage.
    """
    from ..infrastructure.engine import open_home
    from ..infrastructure.importers.hermes import import_opened, opened
    from .progress import progress_bar

    path = _folder(source or os.environ.get("HERMES_HOME") or "~/.hermes")
    with (
        opened(path, home) as there,
        open_home(home, actor="import") as engine,
        progress_bar("rows") as report,
    ):

        def advance(at: Progress) -> None:
            if report is not None:
                report(at.phase, at.done, at.done if at.total is None else at.total)

        done = import_opened(
            engine,
            there,
            progress=advance,
            moved_from=None if moved_from is None else _folder(moved_from),
        )
    if as_json:
        emit_json(done)
    else:
        click.echo("\n".join(lines(done)))
    return done.exit_code


def _folder(text: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(text)))


def lines(done: ImportReport) -> list[str]:
    """The report for a person."""
    told = [_headline(done)]
    rest = [f"{count:,} {word}" for word, count in done.taken.items() if word not in _FIRST]
    if rest:
        told.append(_line("also taken", ", ".join(rest)))
    unchanged = [f"{count:,} {word}" for word, count in done.unchanged.items() if count]
    if unchanged and done.taken:
        told.append(_line("unchanged", ", ".join(unchanged)))
    for label, found in (
        ("in conflict", done.conflicts),
        ("lost", done.lost),
        ("damaged", done.damage),
        ("skipped", done.skipped),
        ("differs", done.differences),
        ("note", done.notes),
    ):
        told += [_line(label, each) for each in found]
    told.append(_line("recorded as", f"#{done.position}; nothing in {visible(done.path)} was written"))
    return told


def _headline(done: ImportReport) -> str:
    if not done.taken:
        known = ", ".join(_counted(done.unchanged.get(word, 0), word) for word in _FIRST)
        return f"nothing has changed since the last import ({known})"
    taken = ", ".join(_counted(done.taken.get(word, 0), word) for word in _FIRST)
    version = "" if done.schema_version is None else f", schema {done.schema_version}"
    return f"{taken} taken in {done.duration_s:.1f} s from {visible(done.path)}{version}"


def _counted(count: int, words: str) -> str:
    return plural(count, words.removesuffix("s"))


def _line(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_CELLS}}{visible(text)}"
