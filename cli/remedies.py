"""Commands that a finding names as its remedy: `retold sessions route`, `unroute`, `continuation`, …"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ..infrastructure.decisions import Saved
from ..projections.base import Connection
from .options import home_option, json_option, with_home
from .output import emit_json
from .stream import put, say
from .writing import writing

if TYPE_CHECKING:
    from ..infrastructure.commands.remedies import Led


@click.command()
@click.argument("chat")
@click.argument("session")
@home_option
@json_option
def route(chat: str, session: str, home: Path, as_json: bool) -> None:
    """Lead a chat to a session.

    CHAT is a routing key, or a unique part of one; SESSION an id, the beginning of one, or a title. The
    session is opened again however it ended, and what the chat led to before ends softly. Where the
    chat leads there already, that it is to stay so goes on record.
    """
    with writing(home, upkeep=False) as engine:
        db = engine.state.reader()
        done = engine.lead_key(_key(db, chat), _session(db, session))
    _answer(done, _led(done), as_json=as_json)
    if not as_json:
        put(f"{done.key} leads to {done.leads_to}.")
        _undo(done, home)


@click.command()
@click.argument("chat")
@home_option
@json_option
def unroute(chat: str, home: Path, as_json: bool) -> None:
    """Let a chat lead nowhere.

    CHAT is a routing key, or a unique part of one. Its next message begins a new session; the one that
    it led to ends softly, and what waits there will not run.
    """
    with writing(home, upkeep=False) as engine:
        done = engine.close_key(_key(engine.state.reader(), chat))
    _answer(done, _led(done), as_json=as_json)
    if not as_json:
        put(f"{done.key} leads nowhere; its next message begins a new session.")
        if done.cleared:
            put(f"What waited in {done.left} will not run: {', '.join(done.cleared)}.")
        _undo(done, home)


@click.command()
@click.argument("session")
@home_option
@json_option
def continuation(session: str, home: Path, as_json: bool) -> None:
    """Say which of several continuations goes on.

    SESSION is the one that does: an id, the beginning of one, or a title. The others stay, as branches;
    the chat follows.
    """
    with writing(home, upkeep=False) as engine:
        done = engine.choose_continuation(_session(engine.state.reader(), session))
    _answer(done, {}, as_json=as_json)
    if not as_json:
        put(f"{done.session_id} is the continuation; what else continued the same session is a branch of it.")
        _undo(done, home)


@click.command("restore-identity")
@click.argument("session")
@home_option
@json_option
def restore_identity(session: str, home: Path, as_json: bool) -> None:
    """Give a session its key and chat back.

    SESSION is an id, the beginning of one, or a title. What it lost is on record; a continuation bears
    what the session bears that it continues.
    """
    with writing(home, upkeep=False) as engine:
        done = engine.restore_identity(_session(engine.state.reader(), session))
        key = engine.session(done.session_id).key
    _answer(done, {"session_key": key}, as_json=as_json)
    if not as_json:
        put(f"{done.session_id} bears {key} again.")
        _undo(done, home)


@click.command("resolve-conflict")
@click.argument("position", metavar="POSITION", type=str)
@click.option("--keep", type=click.Choice(["ours", "theirs"]), required=True, help="Whose value stands here.")
@home_option
@json_option
def resolve_conflict(position: str, keep: Literal["ours", "theirs"], home: Path, as_json: bool) -> None:
    """Settle what a source changed, too.

    What was changed both here and in the store that it came from stays as it is here until then.
    POSITION is the event that found it, as `retold audit` names it. The other store is not written.
    """
    from .undo import position_of

    with writing(home, upkeep=False) as engine:
        done = engine.resolve_conflict(position_of(position), keep)
    _answer(done, {"columns": done.columns, "keep": done.keep}, as_json=as_json)
    if not as_json:
        whose = "what stood here" if keep == "ours" else "what the source says"
        put(f"{', '.join(done.columns)}: {whose} stands (#{done.position}).")
        if done.can_be_undone:
            _undo(done, home)


def _key(db: Connection, text: str) -> str:
    from ..domain.errors import NoSuchChat
    from ..projections.chat_names import find_chat

    key = find_chat(db, text).key
    if key is None:
        raise NoSuchChat(f"'{text}' has no routing key", hint="name a key; retold audit shows them")
    return key


def _session(db: Connection, text: str) -> str:
    from ..projections.find import find_session

    return find_session(db, text, exact=True)


def _answer(done: Saved, more: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        emit_json({"session_id": done.session_id, "positions": done.positions, **more})


def _led(done: Led) -> dict[str, object]:
    return {
        "session_key": done.key,
        "leads_to": done.leads_to,
        "led_to": done.left,
        "cleared": list(done.cleared),
    }


def _undo(done: Saved, home: Path) -> None:
    if done.positions:
        say([f"This takes it back: retold undo {done.positions[0]}{with_home(home)}"])
    else:
        say(["Nothing had to be changed."])
