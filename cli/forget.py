"""`retold forget`: a message, or a text wherever it stands."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .asking import ask
from .options import home_option, json_option
from .output import emit_json, plural
from .removal import pending_words, unreached
from .stream import put, say
from .writing import writing


@click.command()
@click.argument("session", required=False)
@click.argument("message", required=False)
@click.option("--text", metavar="TEXT", help="Forget this text wherever it stands; - reads it from stdin.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--reason", default="forgotten", show_default=True, metavar="TEXT", help="Why; kept on record.")
@home_option
@json_option
def forget(
    session: str | None,
    message: str | None,
    text: str | None,
    yes: bool,
    reason: str,
    home: Path,
    as_json: bool,
) -> None:
    """Forget a message, or a text wherever it stands.

    MESSAGE is a message's number, as `retold sessions show` prints it, or the id that its platform gave
    it. What is forgotten is gone for good from the log and from all that is told of it; `[forgotten]`
    stands in its place. Backups and exports made before are not reached. A text on a command line stays
    in the shell's history: `--text -` reads it from standard input.
    """
    from ..domain.errors import BadUsage
    from ..infrastructure.copies import copies_of

    if (text is None) == (session is None) or (text is None and message is None):
        raise BadUsage("give a session and a message, or --text", hint="see: retold forget --help")
    secret = text
    if text == "-":
        secret = sys.stdin.readline().rstrip("\r\n") if not yes else sys.stdin.read().strip("\r\n")
    what = "this text wherever it stands" if session is None else f"message {message} of session '{session}'"
    with writing(home) as engine:
        ask(f"Forget {what}, for good?", yes=yes, as_json=as_json)
        if secret is not None:
            done = engine.forget_text(secret, reason=reason)
        else:
            from ..projections.find import find_session

            found = find_session(engine.state.reader(), session or "", exact=True)
            name = message or ""
            done = engine.forget_message(
                found, int(name.lstrip("#")) if name.lstrip("#").isdecimal() else name, reason=reason
            )
        copies = copies_of(home, engine.state.reader()) if done.events else []
    if as_json:
        emit_json(
            {
                "positions": done.positions,
                "events": done.events,
                "sessions": done.sessions,
                "pending": done.pending,
                "copies": [str(each) for each in copies],
            }
        )
        return
    if not done.events:
        put("It stands nowhere here; nothing was written.")
        return
    where = f" of {plural(len(done.sessions), 'session')}" if done.sessions else ""
    put(f"Forgotten in {plural(done.events, 'event')}{where}.")
    say([*pending_words(done.pending), *unreached(copies)])
