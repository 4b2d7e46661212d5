"""One repair, or the reverse of one, as changes of a Hermes home: whole, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ...domain import events as e
from ...domain.ends import SUPERSEDED
from ...domain.events import Recorded
from ..sqlite import one
from ..streams import route_stream
from .carried import Carry, Note, here_of
from .hermes_home import HermesWriter, object_of
from .hermes_since import Chat, chats_of

if TYPE_CHECKING:
    from ..engine import SessionEngine

_MARKS: dict[str, Any] = {
    "expiry_finalized": False,
    "suspended": False,
    "resume_pending": False,
    "resume_reason": None,
    "last_resume_marked_at": None,
    "is_fresh_reset": False,
    "was_auto_reset": False,
    "auto_reset_reason": None,
}
"""What an entry said of the session that it led to, and does not hold of another."""


class Repair(msgspec.Struct, frozen=True):
    """A repair of sessions of this home.

    Attributes:
        saved: the events of its save.
        undo: the save that took it back here; None where it stands.
        notes: what it wrote in the home when it was carried.
    """

    saved: tuple[Recorded, ...]
    undo: int | None
    notes: tuple[Note, ...]

    @property
    def position(self) -> int:
        """The save that is carried: the repair's own, or the one that took it back."""
        return self.saved[0].position if self.undo is None else self.undo


class Held(Exception):
    """The home is not as the repair expects it; why."""


def make(
    engine: SessionEngine,
    writer: HermesWriter,
    repairs: list[Repair],
    refused: list[str],
    mirror: dict[str, Any] | None,
    store: str,
) -> list[Carry]:
    """All repairs, inside a transaction that is open; what each came to, where it changed anything."""
    carries: list[Carry] = []
    moves = [
        each.payload
        for repair in repairs
        for each in repair.saved
        if isinstance(each.payload, (e.SessionRerouted, e.RouteClosed))
    ]
    chats = chats_of(engine, writer, store, moves, mirror)
    for number, each in enumerate(repairs):
        writer.db.execute(f"SAVEPOINT repair_{number}")
        writer.wrote()
        try:
            if each.undo is None:
                done = _one(engine, writer, each, mirror, chats)
            else:
                done = _back(engine, writer, each, mirror)
            if done:
                carries.append(Carry(each.position, tuple(done), writer.wrote()))
        except Held as why:
            writer.db.execute(f"ROLLBACK TO repair_{number}")
            refused.append(f"#{each.position} was left out: {why}")
        writer.db.execute(f"RELEASE repair_{number}")
    return carries


def _back(
    engine: SessionEngine, writer: HermesWriter, repair: Repair, mirror: dict[str, Any] | None
) -> list[str]:
    """Put back what a repair had written there and what stands there still; it was undone here."""
    done: list[str] = []
    for note in repair.notes:
        if note.key is not None:
            entry = writer.entry(writer.scope(), note.key) or (mirror or {}).get(note.key)
            leads_to = entry.get("session_id") if isinstance(entry, dict) else None
            here = engine.route(note.key).session_id
            if leads_to == note.leads_to != here:
                was = None if here is None else _entry_before(engine, note.key, here, repair)
                theirs = mirror if _leads_to(mirror, note.key) == note.leads_to else None
                done += _lead(engine, writer, note.key, here, theirs, was)
                _mirror_back(writer, note, theirs)
            continue
        row, ours = writer.session(note.session_id), here_of(engine, note.session_id)
        if row is None or ours is None:
            continue
        back = {n: ours[n] for n, v in note.columns.items() if row.get(n) == v != ours.get(n) and n in ours}
        if back:
            writer.set(note.session_id, back)
            done.append(f"{note.session_id} is as it was before #{repair.saved[0].position}")
    return done


def _mirror_back(writer: HermesWriter, note: Note, mirror: dict[str, Any] | None) -> None:
    """What a mirror said of its own before it was set along with the table, where a copy of it tells that."""
    copy = None if mirror is None or not writer.has_routes else writer.mirror_before(note.noted_us)
    if mirror is not None and copy is not None and note.key is not None:
        mirror.pop(note.key, None)
        mirror |= {note.key: copy[note.key]} if note.key in copy else {}


def _leads_to(mirror: Mapping[str, Any] | None, key: str) -> object:
    entry = None if mirror is None else mirror.get(key)
    return entry.get("session_id") if isinstance(entry, dict) else None


def _entry_before(engine: SessionEngine, key: str, session_id: str, repair: Repair) -> dict[str, Any] | None:
    """The home's own entry from before a repair, where the key led to that session then."""
    text: object = None
    for event in engine.event_log.stream_events(route_stream(engine.identity, key)):
        if event.position >= repair.saved[0].position:
            break
        match event.payload:
            case e.SessionRerouted(session_id=led_to, entry=entry):
                text = entry if led_to == session_id else None
            case e.RouteClosed():
                text = None
            case e.SourceRowChanged(kind="route", changes=changes) if changes.get("session_id") == session_id:
                text = changes.get("entry_json")
            case _:
                pass
    found = object_of(text)
    return found if found is not None and found.get("session_id") == session_id else None


def _one(
    engine: SessionEngine,
    writer: HermesWriter,
    repair: Repair,
    mirror: dict[str, Any] | None,
    chats: Mapping[str, Chat],
) -> list[str]:
    """A repair as it stands here: all of it, or nothing.

    Raises:
        Held: part of it does not stand here any more, or its chat went on there, unseen by it; and the home
        does not hold the rest already.
    """
    gone = _gone(engine, repair) or _went_on(repair, chats)
    tried = mirror if gone is None or mirror is None else dict(mirror)
    done = _made(engine, writer, repair, tried)
    if done and gone is not None:
        raise Held(gone)
    return done


def _gone(engine: SessionEngine, repair: Repair) -> str | None:
    """What of a repair does not stand here any more, in words."""
    ends: dict[str, str | None] = {}
    for event in repair.saved:
        match event.payload:
            case e.IdentityRestored(now={"session_key": str(key)}):
                here = here_of(engine, event.session_id) or {}
                if here.get("session_key") != key:
                    return f"{event.session_id} does not bear the key {key} here any more"
            case e.SessionReopened():
                ends[event.session_id] = None
            case e.SessionEnded(reason=reason) if reason == SUPERSEDED:
                ends[event.session_id] = reason
            case e.SessionRerouted() | e.RouteClosed() as move:
                leads_to = engine.route(move.key).session_id
                if leads_to != (move.session_id if isinstance(move, e.SessionRerouted) else None):
                    return f"{move.key} leads {f'to {leads_to}' if leads_to else 'nowhere'} here by now"
            case _:
                pass
    for session_id, reason in ends.items():
        here = here_of(engine, session_id) or {}
        if (here.get("ended_at") is None) != (reason is None):
            return f"{session_id} {'is open' if reason else 'has ended'} here by now"
    return None


def _went_on(repair: Repair, chats: Mapping[str, Chat]) -> str | None:
    """What a repair's chat became in the home that the repair did not see, in words."""
    for event in repair.saved:
        match event.payload:
            case e.SessionRerouted(key=key, session_id=session_id):
                why = chats[key].against(session_id, repair.position)
            case e.RouteClosed(key=key):
                why = chats[key].against(None, repair.position)
            case _:
                why = None
        if why is not None:
            return why
    return None


def _made(
    engine: SessionEngine, writer: HermesWriter, repair: Repair, mirror: dict[str, Any] | None
) -> list[str]:
    done: list[str] = []
    donors: set[str] = set()
    moves: list[e.SessionRerouted | e.RouteClosed] = []
    for event in repair.saved:
        match event.payload:
            case e.IdentityRestored(now=now):
                done += _identify(writer, event.session_id, now, donors)
            case e.SessionReopened():
                done += _changed(writer, event.session_id, {"ended_at": None, "end_reason": None})
            case e.SessionEnded(reason=reason) if reason == SUPERSEDED:
                done += _end(engine, writer, event.session_id, event.session_id in donors)
            case e.SessionRerouted() | e.RouteClosed():
                moves.append(event.payload)
            case _:
                pass
    for move in moves:
        wanted = move.session_id if isinstance(move, e.SessionRerouted) else None
        done += _lead(engine, writer, move.key, wanted, mirror)
    return done


def _identify(writer: HermesWriter, session_id: str, now: Mapping[str, Any], donors: set[str]) -> list[str]:
    row = writer.session(session_id)
    if row is None:
        raise Held(f"there is no session {session_id} any more")
    key = now.get("session_key")
    if key is not None and row.get("session_key") not in (None, key):
        raise Held(f"{session_id} bears the key {row['session_key']} there")
    parent = now.get("parent_session_id", row.get("parent_session_id"))
    if key is not None and isinstance(parent, str):
        donor = writer.session(parent)
        if donor is not None and donor.get("session_key") == key:
            if donor.get("source") != row.get("source"):
                raise Held(f"{parent} is of another source there")
            donors.add(parent)
        elif "parent_session_id" in now:
            raise Held(f"{parent}, which gave the key, bears it no more")
    filled = {n: v for n, v in now.items() if n in writer.columns and row.get(n) is None and v is not None}
    if not filled:
        return []
    writer.set(session_id, filled)
    return [f"{session_id} bears {key}" if "session_key" in filled else f"{session_id} has its identity"]


def _end(engine: SessionEngine, writer: HermesWriter, session_id: str, is_donor: bool) -> list[str]:
    row = writer.session(session_id)
    if row is None:
        raise Held(f"there is no session {session_id} any more")
    if row.get("end_reason") == SUPERSEDED or (row.get("ended_at") is not None and not is_donor):
        return []
    ours = one(engine.state.reader(), "SELECT ended_at FROM sessions WHERE id = ?", (session_id,))
    ended_at = row.get("ended_at") if row.get("ended_at") is not None else ours
    writer.set(session_id, {"ended_at": ended_at, "end_reason": SUPERSEDED})
    return [f"{session_id} ended as {SUPERSEDED}"]


def _changed(writer: HermesWriter, session_id: str, values: Mapping[str, Any]) -> list[str]:
    row = writer.session(session_id)
    if row is None:
        raise Held(f"there is no session {session_id} any more")
    if all(row.get(name) == value for name, value in values.items()):
        return []
    writer.set(session_id, values)
    return [f"{session_id} is open again"]


def _lead(
    engine: SessionEngine,
    writer: HermesWriter,
    key: str,
    session_id: str | None,
    mirror: dict[str, Any] | None,
    was: Mapping[str, Any] | None = None,
) -> list[str]:
    """Let a key lead to a session; `was` is the entry by which it did before, where it is put back."""
    scope = writer.scope()
    in_table = writer.entry(scope, key)
    in_mirror = None if mirror is None else mirror.get(key)
    known = in_table or (in_mirror if isinstance(in_mirror, dict) else None)
    if session_id is None:
        if known is None:
            return []
        writer.set_entry(scope, key, None)
        if mirror is not None:
            mirror.pop(key, None)
        return [f"{key} leads nowhere"]
    row = writer.session(session_id)
    if row is None:
        raise Held(f"there is no session {session_id} any more")
    led = [each.get("session_id") for each in (in_table, in_mirror) if isinstance(each, dict)]
    if led and all(each == session_id for each in led):
        return []
    entry = dict(was) if was is not None else _entry(engine, key, session_id, row, known)
    writer.set_entry(scope, key, entry)
    if mirror is not None:
        mirror[key] = entry
    return [f"{key} leads to {session_id}"]


def _entry(
    engine: SessionEngine,
    key: str,
    session_id: str,
    row: Mapping[str, Any],
    known: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The routing entry as Hermes writes it: times are local and name no zone."""
    found = engine.state.reader().execute(
        "SELECT coalesce(last_active_us, started_us), started_us FROM sessions WHERE id = ?", (session_id,)
    )
    last_us, began_us = found.fetchone() or (0, 0)
    began = {"created_at": _local(began_us), "platform": row.get("source"), "chat_type": row.get("chat_type")}
    own: dict[str, Any] = {"display_name": row.get("display_name")}
    origin = row.get("origin_json")
    if isinstance(origin, str):
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            own["origin"] = msgspec.json.decode(origin)
    return {
        **{name: value for name, value in {**began, **own}.items() if value is not None},
        **(known or {}),
        "session_key": key,
        "session_id": session_id,
        "updated_at": _local(last_us),
        **_MARKS,
    }


def _local(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).astimezone().replace(tzinfo=None).isoformat()
