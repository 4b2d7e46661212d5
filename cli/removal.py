"""`retold sessions delete` and `undelete`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..domain.errors import DeletedSession
from ..domain.shell import shell_word
from .asking import ask
from .options import home_option, json_option, with_home
from .output import emit_json, iso_us, plural
from .stream import put, say
from .writing import writing

if TYPE_CHECKING:
    from ..infrastructure.commands.removal import Deleted, Undeleted


@click.command()
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--now", is_flag=True, help="Erase it at once; nothing brings it back.")
@click.option("--reason", default="deleted", show_default=True, metavar="TEXT", help="Why; kept on record.")
@home_option
@json_option
def delete(session: str, yes: bool, now: bool, reason: str, home: Path, as_json: bool) -> None:
    """Delete a session and its delegates.

    SESSION is an id, the beginning of one, or a title. It is gone from every view at once, and can be
    brought back with `retold sessions undelete` for seven days (sessions.erase_after); then it is erased.
    Branches and continuations stay.
    """
    from ..infrastructure.copies import copies_of
    from ..projections.deletions import delegates_of
    from ..projections.find import find_deleted, find_session

    with writing(home) as engine:
        db = engine.state.reader()
        try:
            found = find_session(db, session)
        except DeletedSession:
            if not now:
                raise
            found = find_deleted(db, session)
        along = len(delegates_of(db, found))
        its = f", its {plural(along, 'delegate')}" if along else ""
        question = f"Delete session '{found}'{its} and all its messages{', for good' if now else ''}?"
        ask(question, yes=yes, as_json=as_json)
        done = engine.delete_session(found, reason, now=now)
        copies = copies_of(home, engine.state.reader()) if done.erased else []
    if as_json:
        emit_json(_deleted(done, copies))
        return
    put(f"Deleted session '{done.session_id}'.", *_also(done))
    if done.erased:
        say([*(pending_words(done.pending) or ["It is erased."]), *unreached(copies)])
    else:
        back = f"retold sessions undelete {shell_word(done.session_id)}{with_home(home)}"
        say([f"Until {iso_us(done.erase_after_us)} this brings it back: {back}"])


@click.command()
@click.argument("session")
@home_option
@json_option
def undelete(session: str, home: Path, as_json: bool) -> None:
    """Bring a deleted session back.

    SESSION is its id, or the beginning of it. It is as it was, with the delegates that went with it;
    its chat leads to it again, unless it leads elsewhere by now.
    """
    from ..projections.find import find_deleted

    with writing(home) as engine:
        done = engine.undelete_session(find_deleted(engine.state.reader(), session))
    if as_json:
        emit_json(
            {
                "session_id": done.session_id,
                "positions": done.positions,
                "sessions": done.sessions,
                "keys": done.keys,
                "moved_on": done.moved_on,
                "unclaimed": done.unclaimed,
            }
        )
        return
    put(f"Session '{done.session_id}' is back.", *_back(done))
    again = f"retold sessions delete {shell_word(done.session_id)}{with_home(home)}"
    say([f"This takes it back: {again}"])


def _also(done: Deleted) -> list[str]:
    lines = []
    if len(done.sessions) > 1:
        lines.append(f"  with {plural(len(done.sessions) - 1, 'delegate')}: {', '.join(done.sessions[1:])}")
    lines += [f"  {key} leads nowhere now; its next message begins a new session" for key in done.keys]
    return lines


def _back(done: Undeleted) -> list[str]:
    lines = []
    if len(done.sessions) > 1:
        lines.append(f"  with {plural(len(done.sessions) - 1, 'delegate')}: {', '.join(done.sessions[1:])}")
    lines += [f"  {key} leads to it again" for key in done.keys]
    lines += [f"  {key} leads elsewhere by now, and stays so" for key in done.moved_on]
    lines += [f"  the title '{title}' belongs to another session by now" for title in done.unclaimed]
    return lines


def pending_words(files: tuple[str, ...]) -> list[str]:
    """What a person must know of an erasure that has not reached every file."""
    if not files:
        return []
    return [f"Pending: {', '.join(files)} hold it until other readers leave; the next command finishes it."]


def unreached(copies: Sequence[Path]) -> list[str]:
    """Where what was erased here may still stand, by name as far as it is known."""
    lines = ["Backups and exports made before are not reached."]
    if copies:
        lines += ["These may hold it still:", *(f"  {each}" for each in copies)]
    return lines


def _deleted(done: Deleted, copies: Sequence[Path]) -> dict[str, object]:
    return {
        "session_id": done.session_id,
        "positions": done.positions,
        "sessions": done.sessions,
        "messages": done.messages,
        "keys": done.keys,
        "erase_after_at": iso_us(done.erase_after_us),
        "erased": done.erased,
        "pending": done.pending,
        "copies": [str(each) for each in copies],
    }
