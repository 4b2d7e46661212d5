"""`retold forget`: a message, or a text wherever it stands."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from ..domain.errors import Ambiguous, BadUsage, NoSuchMessage
from ..domain.shell import shell_word
from .asking import ask
from .options import home_option, json_option
from .output import emit_json, fit, local_time, plural
from .removal import copies_fields, pending_words, unreached
from .stream import put, say
from .writing import writing

if TYPE_CHECKING:
    from ..infrastructure.commands.erasure import Forgotten
    from ..infrastructure.engine import SessionEngine
    from ..infrastructure.held import Held
    from ..projections.sessions import Message

SHOWN_CELLS = 200
"""So much of a message its question shows."""
NAMED = 3
"""So many sessions the question about a text names."""
NOWHERE = "It stands nowhere here; nothing was written."


@click.command()
@click.argument("session", required=False)
@click.argument("message", required=False)
@click.option("--text", metavar="TEXT", help="Forget this text wherever it stands; - reads it from stdin.")
@click.option(
    "--exports", is_flag=True, help="Delete the pages in the home's session-exports that hold it, too."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--reason", default="forgotten", show_default=True, metavar="TEXT", help="Why; kept on record.")
@home_option
@json_option
def forget(
    session: str | None,
    message: str | None,
    text: str | None,
    exports: bool,
    yes: bool,
    reason: str,
    home: Path,
    as_json: bool,
) -> None:
    """Forget a message, or a text wherever it stands.

    MESSAGE is a message's number, as `retold sessions show` prints it (#42), the id that an export gives
    it, or the id that its platform gave it; one that means two messages is refused with both, and #42 is
    always the number. The question shows the message. What is forgotten is gone for good from the log
    and from all that is told of it; `[forgotten]` stands in its place. Backups and exports made before
    are not reached: those that are known are looked through, and named where they hold it. A text on a
    command line stays in the shell's history: `--text -` reads it from standard input.
    """
    if (text is None) == (session is None) or (text is None and message is None):
        raise BadUsage("give a session and a message, or --text", hint="see: retold forget --help")
    secret = text
    if text == "-":
        secret = sys.stdin.readline().rstrip("\r\n") if not yes else sys.stdin.read().strip("\r\n")
    named: tuple[str, Message] | None = None
    with writing(home) as engine:
        if secret is not None:
            if not yes and not as_json:
                say(_standing(engine, secret))
            ask("Forget this text wherever it stands, for good?", yes=yes, as_json=as_json)
            done, held = _forget_text(engine, home, secret, reason)
        else:
            named = _message(engine, session or "", message or "")
            if not yes and not as_json:
                say(_shown(*named))
            ask("Forget this message, for good?", yes=yes, as_json=as_json)
            done, held = _forget_message(engine, home, *named, reason)
    removed: list[Path] = []
    if exports and held is not None:
        removed, held = _removed(home, held)
    if as_json:
        emit_json(
            {
                "positions": done.positions,
                "events": done.events,
                "sessions": done.sessions,
                "pending": done.pending,
                "message": None if named is None else named[1].id,
                **copies_fields(held),
                "removed": [str(each) for each in removed],
            }
        )
        return
    if not done.events:
        put(NOWHERE if named is None else f"{_where(*named)} is forgotten already; nothing was written.")
    else:
        where = f" of {plural(len(done.sessions), 'session')}" if done.sessions else ""
        put(f"Forgotten in {plural(done.events, 'event')}{where}.")
        say(pending_words(done.pending))
    if done.events or held is not None:
        say([*(f"Deleted: {each}" for each in removed), *unreached(held)])


def _standing(engine: SessionEngine, secret: str) -> list[str]:
    """Where a text stands, before it is asked about; exits where it stands nowhere."""
    from ..infrastructure.forgetting import find, to_forget

    found = find(engine.event_log, to_forget(secret), after=0, upto=engine.head().position)
    if not found:
        put(NOWHERE)
        raise Exit(0)
    sessions = list(dict.fromkeys(each.event.session_id for each in found if each.event.session_id))
    more = f" and {len(sessions) - NAMED} more" if len(sessions) > NAMED else ""
    where = f" of {plural(len(sessions), 'session')}: {', '.join(sessions[:NAMED])}{more}" if sessions else ""
    return [f"It stands in {plural(len(found), 'event')}{where}."]


def _forget_text(
    engine: SessionEngine, home: Path, secret: str, reason: str
) -> tuple[Forgotten, Held | None]:
    from ..infrastructure.held import still_held

    done = engine.forget_text(secret, reason=reason)
    return done, still_held(home, engine.state.reader(), [secret]) if done.events else None


def _forget_message(
    engine: SessionEngine, home: Path, session_id: str, message: Message, reason: str
) -> tuple[Forgotten, Held | None]:
    from ..infrastructure.held import pieces_of, still_held

    pieces = pieces_of(message.content, message.tool_calls)
    done = engine.forget_message(session_id, message.id, reason=reason)
    return done, still_held(home, engine.state.reader(), pieces) if done.events else None


def _message(engine: SessionEngine, session: str, name: str) -> tuple[str, Message]:
    """The message that is meant, and whose it is.

    Raises:
        NoSuchMessage: none is. Ambiguous: two are; it shows both.
    """
    from ..projections.find import find_session
    from ..projections.pointing import pointed

    db = engine.state.reader()
    session_id = find_session(db, session, exact=True)
    found = pointed(db, session_id, name)
    if not found:
        raise NoSuchMessage(
            f"session {session_id} has no message {name}", hint="retold sessions show prints their numbers"
        )
    if len(found) > 1:
        sure = f"retold forget {shell_word(session_id)} '#{found[0].message.id}'"
        raise Ambiguous(
            f"'{name}' means {len(found)} messages of session {session_id}",
            candidates=[
                f"{' '.join(_head(each.message))}: {' and '.join(each.by)}: {_said(each.message, 60)}"
                for each in found
            ],
            hint=f"give the number with its sign: {sure}",
        )
    return session_id, found[0].message


def _where(session_id: str, message: Message) -> str:
    return f"Message #{message.id} of session '{session_id}'"


def _shown(session_id: str, message: Message) -> list[str]:
    """The message as its question shows it."""
    number, role, when = _head(message)
    return [f"{number} of session '{session_id}': {role}, {when}", f"  {_said(message, SHOWN_CELLS)}"]


def _head(message: Message) -> tuple[str, str, str]:
    return f"#{message.id}", message.role, local_time(message.at_us)


def _said(message: Message, cells: int) -> str:
    from .transcript import calls, readable

    said = " ".join([readable(message.content), *(f"→ {each}" for each in calls(message.tool_calls))])
    return fit(said.strip() or "(no text)", cells).rstrip()


def _removed(home: Path, held: Held) -> tuple[list[Path], Held]:
    """Delete the pages of the home's own that hold it: those that could be, and what holds it still."""
    from ..infrastructure.held import Held, exported_pages

    removed = []
    for page in exported_pages(home, held):
        with contextlib.suppress(OSError):
            page.unlink()
            removed.append(page)
    return removed, Held(tuple(each for each in held.files if each not in removed), held.unread)
