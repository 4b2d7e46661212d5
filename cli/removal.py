"""`retold sessions delete` and `undelete`: sessions by name; by filters, it is done in `bulk_run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..domain.errors import BadUsage, DeletedSession
from ..domain.shell import shell_word
from .asking import ask
from .filters import filter_options, is_bare
from .options import home_option, json_option, with_home
from .output import emit_json, iso_us, local_time, plural
from .stream import put, say
from .writing import writing

if TYPE_CHECKING:
    from ..infrastructure.commands.removal import Deleted, Undeleted
    from ..infrastructure.held import Held


@click.command()
@click.argument("session", required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--now", is_flag=True, help="Erase it at once; nothing brings it back.")
@click.option("--reason", default="deleted", show_default=True, metavar="TEXT", help="Why; kept on record.")
@click.option("--include-archived", is_flag=True, help="With filters: archived ones, too.")
@click.option("--include-pinned", is_flag=True, help="With filters: pinned ones, too.")
@filter_options
@home_option
@json_option
def delete(
    session: str | None,
    dry_run: bool,
    yes: bool,
    now: bool,
    reason: str,
    include_archived: bool,
    include_pinned: bool,
    home: Path,
    as_json: bool,
    **given: Any,
) -> int:
    """Delete a session and its delegates.

    SESSION is an id, the beginning of one, or a title. It is gone from every view at once, and can be
    brought back with `retold sessions undelete` for seven days (sessions.erase_after); then it is erased.
    Branches and continuations stay.

    With filters instead of SESSION, the ended conversations that pass all of them go, as with
    `retold sessions prune`.
    """
    if session is None:
        from .bulk_run import Wish, carry_out, included

        include = included(archived=include_archived, pinned=include_pinned)
        wish = Wish("delete", given, (), include, reason, now, dry_run, yes)
        return carry_out(home, wish, as_json=as_json)
    if include_archived or include_pinned or not is_bare(given):
        raise BadUsage("a session and filters exclude each other", hint="name a session, or give filters")
    if dry_run:
        from .bulk_run import Wish, carry_out

        return carry_out(home, Wish("delete", names=(session,), dry_run=True), as_json=as_json)
    _delete_one(home, session, yes=yes, now=now, reason=reason, as_json=as_json)
    return 0


def _delete_one(home: Path, session: str, *, yes: bool, now: bool, reason: str, as_json: bool) -> None:
    from ..infrastructure.held import Held, still_held
    from ..projections.deletions import delegates_of
    from ..projections.find import find_deleted, find_session

    with writing(home) as engine:
        db = engine.state.reader()
        try:
            found = find_session(db, session, exact=True)
        except DeletedSession:
            if not now:
                raise
            found = find_deleted(db, session)
        along = len(delegates_of(db, found))
        its = f", its {plural(along, 'delegate')}" if along else ""
        question = f"Delete session '{found}'{its} and all its messages{', for good' if now else ''}?"
        ask(question, yes=yes, as_json=as_json)
        done = engine.delete_session(found, reason, now=now)
        held = still_held(home, engine.state.reader(), done.sessions, names=True) if done.erased else Held()
    if as_json:
        emit_json(_deleted(done, held))
        return
    put(f"Deleted session '{done.session_id}'.", *_also(done))
    if done.erased:
        say([*(pending_words(done.pending) or ["It is erased."]), *unreached(held)])
    else:
        back = f"retold sessions undelete {shell_word(done.session_id)}{with_home(home)}"
        say([f"Until {local_time(done.erase_after_us)} this brings it back: {back}"])


@click.command()
@click.argument("session", nargs=-1, required=True)
@home_option
@json_option
def undelete(session: tuple[str, ...], home: Path, as_json: bool) -> None:
    """Bring deleted sessions back.

    SESSION is an id, or the beginning of one. It is as it was, with the delegates that went with it;
    its chat leads to it again, unless it leads elsewhere by now. Of several, the first one that is not
    deleted stops it before any is brought back.
    """
    from ..projections.find import find_deleted

    with writing(home) as engine:
        found = list(dict.fromkeys(find_deleted(engine.state.reader(), each) for each in session))
        back = [engine.undelete_session(each) for each in found]
    if as_json:
        objects = [_undeleted(each) for each in back]
        emit_json(objects[0] if len(session) == 1 else {"undeleted": objects})
        return
    for done in back:
        put(f"Session '{done.session_id}' is back.", *_back(done))
        again = f"retold sessions delete {shell_word(done.session_id)}{with_home(home)}"
        say([f"This takes it back: {again}"])


def _undeleted(done: Undeleted) -> dict[str, object]:
    return {
        "session_id": done.session_id,
        "positions": done.positions,
        "sessions": done.sessions,
        "keys": done.keys,
        "moved_on": done.moved_on,
        "unclaimed": done.unclaimed,
    }


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


def copies_fields(held: Held | None) -> dict[str, object]:
    """The copies in JSON: all that hold it or may, and those of them that were not looked through."""
    known = ([], []) if held is None else (held.all, held.unread)
    return {"copies": [str(each) for each in known[0]], "copies_unread": [str(each) for each in known[1]]}


def pending_words(files: tuple[str, ...]) -> list[str]:
    """What a person must know of an erasure that has not reached every file."""
    if not files:
        return []
    return [f"Pending: {', '.join(files)} hold it until other readers leave; the next command finishes it."]


def unreached(held: Held | None) -> list[str]:
    """Where what was erased here still stands, by name as far as it is known."""
    lines = ["Backups and exports made before are not reached."]
    if held is not None and held.files:
        lines += ["These hold it still:", *(f"  {each}" for each in held.files)]
    if held is not None and held.unread:
        lines += ["These were not looked through and may:", *(f"  {each}" for each in held.unread)]
    return lines


def _deleted(done: Deleted, held: Held) -> dict[str, object]:
    return {
        "session_id": done.session_id,
        "positions": done.positions,
        "sessions": done.sessions,
        "messages": done.messages,
        "keys": done.keys,
        "erase_after_at": iso_us(done.erase_after_us),
        "erased": done.erased,
        "pending": done.pending,
        **copies_fields(held),
    }
