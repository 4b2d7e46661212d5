"""`retold resume`: goes on with a conversation, and shows it to a person or to an agent."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click
import msgspec

from ..domain.errors import BadUsage, NoSuchSession, RuleBroken
from ..domain.shell import shell_word
from .options import COUNT, home_option, json_option, with_home
from .output import emit_json, visible
from .resumed import Chosen, counts, facts_of, fields, given, place, put_view, remarks, tell
from .stream import answering, put, put_dressed, say

if TYPE_CHECKING:
    from ..infrastructure.config import Config
    from ..infrastructure.engine import SessionEngine
    from ..infrastructure.when import Point
    from ..projections.base import Connection
    from ..projections.latest import Scope

MOST: Final = 20_000
"""Messages that are given to a model at once; no model reads more, and they are held in memory."""
LATEST: Final = "latest"


class Asked(msgspec.Struct, frozen=True):
    """What is to be gone on with."""

    name: str
    titled: bool
    folder: Path | None

    @property
    def latest(self) -> bool:
        """Whether the session used last is meant."""
        return not self.name or (not self.titled and self.name.strip().lower() == LATEST)


@click.command()
@click.argument("session", nargs=-1)
@click.option("--in", "folder", metavar="DIR", help="Go on in this folder, with what was last used there.")
@click.option("--at", metavar="#POS|TIME", help="Go on from how it stood then, as a branch of it.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["openai", "anthropic", "text"]),
    help="Print what a model should see of it, and change nothing.",
)
@click.option("--last", type=COUNT, metavar="N", help="With --format: only the last N messages.")
@click.option("--reopen", is_flag=True, help="With --format: open it again (or begin the branch), too.")
@click.option("--run", "command", metavar="COMMAND", help="Then run a command where the session works.")
@click.option("--no-restore-cwd", is_flag=True, help="Stay in this folder.")
@click.option("--titled", is_flag=True, hidden=True)
@click.option("--named", is_flag=True, hidden=True)
@home_option
@json_option
def resume(
    session: tuple[str, ...],
    folder: str | None,
    at: str | None,
    form: str | None,
    last: int | None,
    reopen: bool,
    command: str | None,
    no_restore_cwd: bool,
    titled: bool,
    named: bool,
    home: Path,
    as_json: bool,
) -> None:
    """Go on with a conversation.

    SESSION is an id, the beginning of one, a title (its words need no quotes), or latest, which is meant
    where nothing is given: the last session of this terminal, else of this project's folder, else of all
    terminals. It is opened again, however it ended, and its end is shown. With --format nothing is
    changed: what a model should see of it is printed, and words about it go to standard error.

    `retold -c [TITLE]` and `retold -r SESSION` are short for this.
    """
    asked = Asked(" ".join(session), titled, None if folder is None else _folder(folder))
    if named and not asked.name:
        raise BadUsage("-r names no session", hint="give an id, the beginning of one, a title, or latest")
    if form is None and (last is not None or reopen):
        raise BadUsage("--last and --reopen go with --format", hint="see: retold resume --help")
    if command is not None and (form is not None or as_json):
        raise BadUsage("--run goes with neither --format nor --json", hint="leave one of them out")
    if form is not None and not reopen:
        _print_view(home, asked, at, form, last, as_json=as_json)
        return
    cwd = _go_on(home, asked, at, form, last, as_json=as_json, stay=no_restore_cwd, runs=command is not None)
    if command is not None:
        _run(command, home, *cwd)


def _folder(given: str) -> Path:
    folder = Path(os.path.abspath(os.path.expanduser(given)))
    if not given.strip() or not folder.is_dir():
        raise BadUsage(f"--in directory not found: {given}", hint="give a folder that is there")
    return folder


# --- which one ------------------------------------------------------------------------------------


def find(db: Connection, asked: Asked) -> tuple[str, Scope | None]:
    """The session that is meant, and of what it is the last, where it was not named.

    Raises:
        NoSuchSession, Ambiguous (with the candidates), BadUsage.
    """
    from ..infrastructure.terminal import terminal_id, workspaces
    from ..projections.find import find_session
    from ..projections.latest import latest

    if not asked.latest:
        return find_session(db, asked.name), None
    if asked.folder is not None:
        found = latest(db, workspaces=workspaces(asked.folder), only=True)
        if found is None:
            raise NoSuchSession(
                f"no session of a terminal is of {asked.folder}",
                hint=f"see: retold sessions list --workspace {shell_word(asked.folder.name)}",
            )
        return found.line.id, found.scope
    found = latest(db, terminal=terminal_id(), workspaces=workspaces(Path.cwd()))
    if found is None:
        raise NoSuchSession(
            "no previous session of a terminal was found to go on with", hint="see: retold sessions list"
        )
    return found.line.id, found.scope


def find_then(db: Connection, past: Connection, asked: Asked, at: str) -> tuple[str, str, Scope | None]:
    """The session that was meant, the segment that was its conversation's last then, and the scope.

    A name is first taken as it was then, since a title may have gone to another session meanwhile.
    """
    from ..projections.find import find_session
    from ..projections.tree import chain, tip

    if not asked.latest:
        with contextlib.suppress(NoSuchSession):
            named = find_session(past, asked.name)
            return named, tip(past, named), None
    named, scope = find(db, asked)
    for each in reversed(chain(db, named)):
        if past.execute("SELECT 1 FROM sessions WHERE id = ?", (each.session_id,)).fetchone():
            return named, tip(past, each.session_id), scope
    raise NoSuchSession(f"session {named} had not begun at {at}", hint="give a later point")


# --- going on -------------------------------------------------------------------------------------


def _go_on(
    home: Path,
    asked: Asked,
    at: str | None,
    form: str | None,
    last: int | None,
    *,
    as_json: bool,
    stay: bool,
    runs: bool,
) -> tuple[str, str | None]:
    """Open it again, or begin a branch; show it. Returns the session, and its folder, if that is there."""
    from ..projections.context import active_view
    from ..projections.recap import recap
    from ..projections.tree import tip
    from .recap import limits_of, panel
    from .writing import writing

    with writing(home) as engine:
        db = engine.state.reader()
        if at is None:
            named, scope = find(db, asked)
            if form is not None:
                _refuse_endless(db, tip(db, named), last)
            chosen = _opened(engine, named, scope)
        else:
            chosen = _branched(engine, asked, at)
        engine.projector.catch_up()
        db = engine.state.reader()
        facts = facts_of(db, chosen.session_id)
        seen = recap(db, chosen.session_id, limits_of(engine.config.display))
        view = None if form is None else active_view(db, chosen.session_id, last=last)
        warnings = [*(view.warnings if view is not None else _missing(db, chosen.session_id))]
    where = None if stay or asked.folder is not None else facts.cwd
    there = where if where is not None and os.path.isdir(where) else None
    if as_json:
        emit_json(
            {
                **fields(chosen, facts),
                "message_count": seen.messages,
                "user_messages": seen.user_messages,
                "earlier": seen.earlier,
                "recap": [{"role": each.role, "text": each.text} for each in seen.entries],
                **given(view, form),
                "warnings": warnings,
            }
        )
        return chosen.session_id, there
    if view is not None and form is not None:
        put_view(view, form)
    tell(chosen, facts, err=view is not None)
    said = counts(seen.user_messages, seen.messages)
    name = f' "{visible(facts.title)}"' if facts.title else ""
    if seen.messages:
        put(f"↻ Resumed session {visible(chosen.session_id)}{name} ({said})", err=view is not None)
    else:
        line = f"Session {visible(chosen.session_id)}{name} found but has no messages. Starting fresh."
        put(line, err=view is not None)
    if view is None and engine.config.display.resume_display == "full":
        shown = panel(seen)
        if shown:
            put_dressed(["", *shown])
    say([*warnings, *remarks(chosen, facts), *place(where, there, runs=runs)])
    if not runs and view is None:
        sees = f"retold resume {shell_word(chosen.session_id)} --format openai{with_home(home)}"
        say([f"What a model should see of it: {sees}"])
    return chosen.session_id, there


def _opened(engine: SessionEngine, named: str, scope: Scope | None) -> Chosen:
    from ..projections.tree import tip

    last = tip(engine.state.reader(), named)
    was = engine.session(last).end_reason
    done = engine.resume_session(named)
    return Chosen(
        done.session_id, named, scope, was=was if done.positions else None, positions=done.positions
    )


def _branched(engine: SessionEngine, asked: Asked, at: str) -> Chosen:
    from ..infrastructure.history import past_at

    point = _point(at, engine.config)
    past = past_at(engine.event_log, engine.home, point)
    with contextlib.closing(past.db):
        named, then, scope = find_then(engine.state.reader(), past.db, asked, at)
    done = engine.branch_session(then, as_of=point.position, as_of_us=point.at_us, lead=False)
    return Chosen(done.session_id, named, scope, branch_of=then, positions=done.positions)


def _point(at: str, config: Config) -> Point:
    from ..infrastructure.clock import now_us
    from ..infrastructure.when import parse_point

    return parse_point(at, now_us=now_us(), zone=config.zone, whole_minutes=True)


def _missing(db: Connection, session_id: str) -> list[str]:
    """Where fewer messages are here than were counted (FIELD_CASES I10); by indexes alone."""
    counted, held, hidden = db.execute(
        "SELECT message_count, (SELECT count(*) FROM messages WHERE session_id = s.id),"
        " (SELECT count(*) FROM messages WHERE session_id = s.id AND active = 0)"
        " FROM sessions s WHERE id = ?",
        (session_id,),
    ).fetchone()
    if held - hidden == (counted or 0):
        return []
    return [f"session {session_id} has {held - hidden} messages where {counted} were counted: retold verify"]


# --- for a model ----------------------------------------------------------------------------------


def _print_view(
    home: Path, asked: Asked, at: str | None, form: str, last: int | None, *, as_json: bool
) -> None:
    """What a model should see, and nothing else on standard output; nothing is changed."""
    from ..projections.context import active_view
    from ..projections.tree import tip

    with answering(home, None) as now:
        if at is None:
            named, scope = find(now.db, asked)
            session_id = tip(now.db, named)
            _refuse_endless(now.db, session_id, last)
            view, facts = active_view(now.db, session_id, last=last), facts_of(now.db, session_id)
        else:
            with answering(home, at) as past:
                named, session_id, scope = find_then(now.db, past.db, asked, at)
                _refuse_endless(past.db, session_id, last)
                view, facts = active_view(past.db, session_id, last=last), facts_of(past.db, session_id)
    chosen = Chosen(session_id, named, scope)
    shown = given(view, form)
    if as_json:
        emit_json({**fields(chosen, facts), "message_count": len(view.messages), **shown})
        return
    put_view(view, form)
    tell(chosen, facts, err=True)
    said = [*shown["warnings"], *remarks(chosen, facts)]
    more = f"{with_home(home)}{f' --at {shell_word(at)}' if at is not None else ''}"
    if at is not None:
        said.append(f"To go on from there, as a branch: retold resume {shell_word(named)}{more}")
    elif facts.end_reason is not None:
        ended = f"It has ended ({facts.end_reason}); to go on with it"
        said.append(f"{ended}: retold resume {shell_word(session_id)}{more}")
    say(said)


def _refuse_endless(db: Connection, session_id: str, last: int | None) -> None:
    from ..projections.context import live_count

    count = live_count(db, session_id)
    if min(count, count if last is None else last) > MOST:
        raise RuleBroken(
            f"session {session_id} has {count:,} messages in its context; {MOST:,} are given at most",
            hint="compress it, or give --last 1000 for the end of it",
        )


# --- a command --------------------------------------------------------------------------------------


def _run(command: str, home: Path, session_id: str, cwd: str | None) -> NoReturn:
    """Become the command, in the session's folder; it is told which session that is."""
    import sys

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadUsage(f"--run cannot be read: {error}", hint="quote it as a shell would have it") from None
    if not words:
        raise BadUsage("--run names no command", hint="as in: --run 'my-agent --fast'")
    if cwd is not None:
        os.chdir(cwd)
    sys.stdout.flush()
    sys.stderr.flush()
    env = os.environ | {"RETOLD_SESSION_ID": session_id, "RETOLD_HOME": str(home)}
    try:
        os.execvpe(words[0], words, env)  # noqa: S606 # a shell would read what was already split
    except OSError as error:
        raise BadUsage(f"{words[0]} cannot be run: {error.strerror}", hint="nothing else was done") from error
