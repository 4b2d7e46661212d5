"""`retold import`: takes in a Hermes home or the logs of coding agents, and says what came of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import home_option, json_option
from .output import cell_width, emit_json, plural, visible
from .paragraphs import fold, hanging
from .stream import is_terminal, put, terminal_width

if TYPE_CHECKING:
    from ..infrastructure.importers.agent_logs import LogKind
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
@click.option("--follow", "-f", is_flag=True, help="Go on taking in what changes, while Hermes runs.")
@home_option
@json_option
def hermes(source: str | None, moved_from: str | None, follow: bool, home: Path, as_json: bool) -> int:
    """Take in a Hermes home, or what changed in it since.

    HOME is $HERMES_HOME or ~/.hermes where none is given. It is only read. Run it as often as you
    like: a second run takes in what is new, and what you changed here stays. Exits with 1 where
    something in HOME was lost to damage. With --follow it goes on until Ctrl-C or SIGTERM, a line an
    import, and exits with 0.
    """
    from ..infrastructure.engine import open_home
    from ..infrastructure.importers.hermes import import_opened, opened
    from .progress import progress_bar

    path = _folder(
        (os.environ.get("HERMES_HOME") or "~/.hermes") if source is None else source, "the Hermes home"
    )
    before = None if moved_from is None else _folder(moved_from, "--moved-from")
    if follow:
        return _follow(path, before, home, as_json=as_json)
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
            moved_from=before,
        )
    return _answer(done, as_json=as_json)


def _follow(path: Path, moved_from: Path | None, home: Path, *, as_json: bool) -> int:
    from ..infrastructure.engine import open_home
    from ..infrastructure.importers.hermes import opened
    from .import_follow import follow

    with opened(path, home):
        pass  # no home is made for what is none
    with open_home(home, actor="import") as engine:
        return follow(engine, path, moved_from=moved_from, as_json=as_json)


@click.command()
@click.argument("source", metavar="[PATH]", required=False)
@home_option
@json_option
def claude(source: str | None, home: Path, as_json: bool) -> int:
    """Take in the session logs of Claude Code, or what is new in them.

    PATH is a folder with logs or one of them; $CLAUDE_CONFIG_DIR/projects or ~/.claude/projects where
    none is given. It is only read. Run it as often as you like: only new lines are taken in. Exits with 1
    where a line could not be read; it is named and passed over.
    """
    from ..infrastructure.importers.claude import CLAUDE

    config = os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude"
    return _logs(CLAUDE, f"{config}/projects" if source is None else source, home, as_json=as_json)


@click.command()
@click.argument("source", metavar="[PATH]", required=False)
@home_option
@json_option
def codex(source: str | None, home: Path, as_json: bool) -> int:
    """Take in the session logs of Codex CLI, or what is new in them.

    PATH is a folder with logs or one of them; $CODEX_HOME/sessions or ~/.codex/sessions where none is
    given. It is only read. Run it as often as you like: only new lines are taken in. Exits with 1 where a
    line could not be read; it is named and passed over.
    """
    from ..infrastructure.importers.codex import CODEX

    config = os.environ.get("CODEX_HOME") or "~/.codex"
    return _logs(CODEX, f"{config}/sessions" if source is None else source, home, as_json=as_json)


def _logs(kind: LogKind, source: str, home: Path, *, as_json: bool) -> int:
    from ..infrastructure.engine import open_home
    from ..infrastructure.importers.agent_logs import import_logs, logs_at
    from .progress import progress_bar

    path = _folder(source, "the path of the logs")
    logs_at(kind, path)  # no home is made for what is none
    with open_home(home, actor="import") as engine, progress_bar("files") as report:

        def advance(at: Progress) -> None:
            if report is not None:
                report(at.phase, at.done, at.done if at.total is None else at.total)

        done = import_logs(engine, kind, path, progress=advance)
    return _answer(done, as_json=as_json)


def _answer(done: ImportReport, *, as_json: bool) -> int:
    if as_json:
        emit_json(done)
    else:
        put(*lines(done, terminal_width() if is_terminal() else None))
    return done.exit_code


def _folder(text: str, what: str) -> Path:
    if not text.strip():
        from ..domain.errors import BadUsage

        raise BadUsage(f"{what} is empty and names no folder", hint="name a folder, or leave it out")
    return Path(os.path.abspath(os.path.expanduser(text)))


def lines(done: ImportReport, width: int | None = None) -> list[str]:
    """The report for a person; wrapped at `width` cells where that is given."""
    head, rest = _headline(done)
    told = [head] if width is None else fold(head, width, indent=2)
    unchanged = [counted(count, words) for words, count in done.unchanged.items() if count]
    for label, found in (
        ("note", done.notes),
        ("also taken", [", ".join(rest)] if rest else []),
        ("unchanged", [", ".join(unchanged)] if unchanged and done.taken else []),
        ("in conflict", grouped(done.conflicts)),
        ("lost", grouped(done.lost)),
        ("damaged", done.damage),
        ("skipped", grouped(done.skipped)),
        ("differs", grouped(done.differences)),
        ("recorded as", [f"#{done.position}; nothing in {done.path} was written"]),
    ):
        told += [line for each in found for line in _labelled(label, visible(each), width)]
    return told


def grouped(lines: list[str]) -> list[str]:
    """Lines that say one thing of many as one line each; --json has every one.

    A line is "session s1: why", or begins with the name alone; a session that the reason names is not
    what makes two reasons different.
    """
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for line in lines:
        subject, _, reason = line.partition(": ")
        kind = subject.split(" ", 1)[0] if " " in subject else ""
        groups.setdefault((kind, _A_SESSION.sub("a session", reason)), []).append((subject, line))
    told = []
    for (kind, reason), found in groups.items():
        if len(found) < _MANY or not reason:
            told += [line for _, line in found]
            continue
        names = ", ".join(subject.removeprefix(kind).strip() for subject, _ in found[:_NAMED])
        told.append(
            f"{plural(len(found), kind or 'thing')}: {reason} ({names} and {len(found) - _NAMED:,} more)"
        )
    return told


_MANY, _NAMED = 4, 2
_A_SESSION = re.compile(r"\bsession (?=\S*\d)[^\s,;:]+")


def _headline(done: ImportReport) -> tuple[str, list[str]]:
    """What was taken in, or that nothing was; and what else was, where that is more than the first line."""
    if not done.taken:
        known = [counted(done.unchanged[word], word) for word in _FIRST if done.unchanged.get(word)]
        if not known and done.skipped:
            return f"nothing was taken in from {visible(done.path)}", []
        there = f" ({', '.join(known)})" if known else ""
        return f"nothing has changed since the last import{there}", []
    taken = [counted(done.taken[word], word) for word in _FIRST if done.taken.get(word)]
    rest = [counted(count, words) for words, count in done.taken.items() if count and words not in _FIRST]
    version = "" if done.schema_version is None else f", schema {done.schema_version}"
    said = ", ".join(taken or rest)
    head = f"{said} taken in {done.duration_s:.1f} s from {visible(done.path)}{version}"
    return head, rest if taken else []


_PLURAL = re.compile(r"(ie)?s\b")


def counted(count: int, words: str) -> str:
    """ "12 titles", "1 title", "1 message erased here"."""
    many = "usage rows" if words == "usage" else words
    one = _PLURAL.sub(lambda found: "y" if found[1] else "", many, count=1)
    return plural(count, one, many)


def _labelled(label: str, text: str, width: int | None) -> Iterator[str]:
    indent = _LABEL_CELLS + 2
    if width is None or cell_width(text) <= width - indent:
        yield f"  {label:<{_LABEL_CELLS}}{text}"
    else:
        yield from hanging(label, [text], indent=indent, width=width)
