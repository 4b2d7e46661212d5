"""`retold sessions browse`: choose a session, and go on with it."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.exceptions import Exit

from ...domain.shell import shell_word
from ..asking import EXIT_DECLINED
from ..options import COUNT, home_option, json_option, with_home
from ..output import cell_width, emit_json, fit, relative_time
from ..stream import answering, put, say

if TYPE_CHECKING:
    from ...projections.browsing import Pick

_MISSING: Final = "the full screen needs the package 'textual', which is not installed here"
_HINT: Final = "install Retold with its extra, from the checkout: pip install '.[tui]'"
_LABEL: Final = 50
_CUT: Final = 47
_SOURCE: Final = 10
_NO: Final = ("", "q", "quit", "exit")


@click.command()
@click.option("--source", metavar="S", help="Only sessions of this source (telegram, cli, tool, …).")
@click.option("--limit", type=COUNT, metavar="N", help="Only the N that were active last.")
@click.option("--workspace", metavar="W", help="Only sessions whose project folder has W in its path.")
@home_option
@json_option
def browse(home: Path, as_json: bool, source: str | None, limit: int | None, workspace: str | None) -> int:
    """Choose a session on a full screen, and resume it.

    Type to filter by title, preview, id, source and what was said; Enter resumes, Tab leads to the
    list, where single keys archive, pin, rename, export and explain. Without a terminal, or where
    TERM is dumb, it is a numbered list. With --json the choice is printed and nothing is resumed.
    """
    chosen = _full_screen(home, source, limit, workspace) if _has_screen(as_json) else None
    if chosen is None:
        chosen = _numbered(home, source, limit, workspace, err=as_json)
    if as_json:
        emit_json({"session_id": chosen or None})
        return 0 if chosen else EXIT_DECLINED
    if not chosen:
        put("Cancelled.")
        return EXIT_DECLINED
    put(f"Resuming session: {chosen}")
    sys.stdout.flush()
    return resume(home, chosen)


def _has_screen(as_json: bool) -> bool:
    """Whether a person can be shown a full screen; where textual is missing, what to do is said."""
    if not _on_terminals(as_json) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    if find_spec("textual") is None:
        say([f"{_MISSING}; {_HINT}"])
        return False
    return True


def _on_terminals(as_json: bool) -> bool:
    """The screen is drawn on standard error, so with --json standard output may go anywhere."""
    ours = (sys.stdin, sys.stderr) if as_json else (sys.stdin, sys.stdout, sys.stderr)
    return all(each.isatty() for each in ours)


def _full_screen(home: Path, source: str | None, limit: int | None, workspace: str | None) -> str | None:
    """The id that was chosen, "" for none; None where there is nothing to choose from."""
    from ...infrastructure.standing import StandingHome
    from ...projections.browsing import picks

    with StandingHome(home) as standing:
        if not standing.ask(lambda db: picks(db, limit=1, source=source, workspace=workspace)):
            return None
    from .app import Browser

    no_color = os.environ.get("NO_COLOR")
    browser = Browser(home, _option(home), source=source, limit=limit, workspace=workspace)
    chosen = browser.run()
    if no_color is not None:  # textual takes it out of the environment; what comes after needs it
        os.environ["NO_COLOR"] = no_color
    if browser.failure is not None:
        raise browser.failure
    return chosen or ""


def _numbered(home: Path, source: str | None, limit: int | None, workspace: str | None, *, err: bool) -> str:
    """The id that was chosen from a numbered list, "" for none.

    Raises:
        Exit: there is nothing to choose from.
    """
    from ...projections.browsing import picks
    from ...projections.listing import nothing_there

    with answering(home, None) as view:
        found = picks(view.db, limit=limit, source=source, workspace=workspace)
        if not found:
            put("No sessions found.", err=err)
            say(nothing_there(view.db, source=source, workspace=workspace))
            if err:
                emit_json({"session_id": None})
            raise Exit(0)
        now_us = view.now_us
    put(*_lines(found, now_us), err=err)
    return _asked(found)


def _lines(found: list[Pick], now_us: int) -> list[str]:
    """A line a conversation, under its number."""
    digits = len(str(len(found)))
    lines = ["Browse sessions (enter a number to resume, q to cancel)", ""]
    for number, each in enumerate(found, 1):
        when = relative_time(each.line.last_active_us or each.line.started_us, now_us)
        pinned = "  (pinned)" if each.line.pinned else ""
        label = fit(_label(each), _LABEL)
        lines.append(
            f"{number:>{digits + 2}}. {label}  {when:<10}  {fit(each.line.source, _SOURCE).rstrip()}{pinned}"
        )
    return lines


def _label(pick: Pick) -> str:
    """Title or preview or id in 50 cells: REFERENCE.md 4.2."""
    label = (pick.line.title or "").strip() or (pick.line.preview or "").strip() or pick.line.id
    if cell_width(label) <= _LABEL:
        return label
    return fit(label, _CUT + 1).rstrip().removesuffix("…") + "..."


def _asked(found: list[Pick]) -> str:
    """Ask until there is an answer; the end of what is typed is a no."""
    print(file=sys.stderr)
    while True:
        print(f"Select [1-{len(found)}]: ", end="", file=sys.stderr, flush=True)
        try:
            typed = sys.stdin.readline()
        except OSError:  # nobody can answer
            typed = ""
        if not typed.endswith("\n"):  # what is said next begins a line of its own
            print(file=sys.stderr)
        answer = typed.strip()
        if answer.lower() in _NO:
            return ""
        if answer.isascii() and answer.isdigit() and 1 <= int(answer[:9]) <= len(found):
            return found[int(answer[:9]) - 1].line.id
        print(f"That is no number from 1 to {len(found)}; q cancels.", file=sys.stderr)


def _option(home: Path) -> list[str]:
    """What leads another command to this home, as it was typed."""
    return ["--home", str(home)] if with_home(home) else []


def resume(home: Path, session_id: str) -> int:
    """What `retold resume` does with this session; its exit code."""
    from ..lazy import Lazy
    from ..main import RETOLD, main

    if not isinstance(RETOLD.table.get("resume"), Lazy):
        say([f"This shows it: retold sessions show {shell_word(session_id)}{with_home(home)}"])
        return 0
    return main(["resume", *_option(home), "--", session_id])
