"""Carries what was repaired here into the Hermes home that it was imported from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from ...domain import events as e
from ...domain.ends import SUPERSEDED
from ...domain.errors import BadUsage, NoRoom
from ...domain.events import Recorded
from ..carrying import Begun, begin, end, left_of
from ..importers.hermes_run import readable
from ..sqlite import one, words
from ..streams import route_stream
from .carried import Carry, Note, here_of, notes_of, record
from .hermes_home import Copies, HermesWriter, copied, held, object_of
from .unsaid import as_notes, begun, held_there

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
_TOPICS = (
    e.IdentityRestored.topic,
    e.SessionRerouted.topic,
    e.RouteClosed.topic,
    e.SessionEnded.topic,
)


class Carried(msgspec.Struct, frozen=True):
    """What came of it.

    Attributes:
        done, refused: a sentence each.
        backup: the copy of the database from before; None where nothing was to be changed.
        back: commands that put everything back.
    """

    path: str
    done: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    backup: str | None = None
    back: tuple[str, ...] = ()


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


def refuse_unready(engine: SessionEngine, home: Path) -> None:
    """Look whether repairs could be carried into `home` at all, before anything is done here.

    Raises:
        NotAStore, BadUsage, StoreBusy, NoRoom: as `carry_repairs` would.
    """
    home = home.resolve()
    _store_of(engine, home)
    with held(home):
        pass


def carry_repairs(engine: SessionEngine, home: Path) -> Carried:
    """Make every repair that stands here in `home`, too: one transaction, each repair verified again.

    One that was carried before and was undone here since is taken back there. What is written is noted
    here as last seen in the home, so that the next import finds no change in it.

    What a process that was killed had carried and not noted is noted first, or taken back there where it was
    undone here. A copy of the database, and of the mirror, is made first. A repair that the home has already
    is passed over; one that it contradicts is left out and named.

    Raises:
        NotAStore: it is no Hermes home. BadUsage: it was never imported here. StoreBusy: a process
        holds it. NoRoom: it, or the copy, cannot be written. Nothing was changed in any of these cases.
    """
    home = home.resolve()
    engine.projector.catch_up()
    store = _store_of(engine, home)
    with held(home) as writer:
        refused: list[str] = []
        left, unsaid = _settled(engine, writer, store)
        repairs = sorted(_repairs(engine, store, unsaid), key=lambda each: each.undo is None)
        writer.db.execute("BEGIN IMMEDIATE")
        try:
            mirrored = writer.mirror()
            mirror = None if mirrored is None else dict(mirrored)
            planned = _make(engine, writer, repairs, refused, mirror)
            done = [line for each in planned for line in each.done]
            writer.db.execute("ROLLBACK")
            if not done:
                end(engine.home, store)
                return Carried(str(home), refused=tuple(refused))
            copies = copied(writer)
            begin(engine.home, store, [*left, *begun(planned, engine.identity)])
            writer.db.execute("BEGIN IMMEDIATE")
            mirror = None if mirrored is None else dict(mirrored)
            carries = _make(engine, writer, repairs, [], mirror)
            writer.db.execute("COMMIT")
        except apsw.Error as error:
            if writer.db.in_transaction:
                writer.db.execute("ROLLBACK")
            raise NoRoom(
                f"{home} cannot be written: {words(error)}", hint="nothing was changed there; try again"
            ) from error
        except BaseException:
            if writer.db.in_transaction:
                writer.db.execute("ROLLBACK")
            raise
        if writer.has_routes:
            record(engine, store, carries)
        if mirror is not None and mirror != mirrored:
            _mirrored(writer, mirror, copies)
        if not writer.has_routes:  # then the mirror alone says where a key leads
            record(engine, store, carries)
        end(engine.home, store)
    return Carried(str(home), tuple(done), tuple(refused), str(copies.database), copies.back)


def _mirrored(writer: HermesWriter, mirror: Mapping[str, Any], copies: Copies) -> None:
    try:
        writer.write_mirror(mirror)
    except OSError as error:
        raise NoRoom(
            f"{writer.mirror_path} cannot be written ({error.strerror}); the database holds the repair, and"
            f" wins over it. A copy from before: {copies.database}",
            hint="remove that file, or make it writable and run this again",
        ) from error


# --- which repairs -----------------------------------------------------------------------------------


def _settled(
    engine: SessionEngine, writer: HermesWriter, store: str
) -> tuple[list[Begun], dict[int, tuple[Note, ...]]]:
    """Note what a killed process had carried and not noted, where it stands here still.

    Returns what it had begun, and by save what the home holds of those that were undone here since.
    """
    left, mirror = left_of(engine.home, store), writer.mirror()
    unsaid: dict[int, tuple[Note, ...]] = {}
    for each in left:
        there = held_there(engine, writer, each, mirror)
        if not (there.sessions or there.routes):
            continue
        if _undo_of(engine, each.position) is None:
            record(engine, store, [Carry(each.position, (), there)])
        else:
            unsaid[each.position] = as_notes(there)
    engine.projector.catch_up()
    return left, unsaid


def _store_of(engine: SessionEngine, home: Path) -> str:
    name = readable(home)
    homes = engine.state.reader().execute("SELECT store, path FROM source_homes ORDER BY last_run DESC")
    known = {str(path): str(store) for store, path in homes.fetchall() if path is not None}
    if name not in known:
        raise BadUsage(
            f"{home} was never imported here",
            hint=f"imported homes: {', '.join(sorted(known)) or 'none'}",
        )
    return known[name]


def _repairs(engine: SessionEngine, store: str, unsaid: Mapping[int, tuple[Note, ...]]) -> Iterator[Repair]:
    """The repairs of this store that stand, and those that were carried and undone since, oldest first."""
    log, after = engine.event_log, 0
    saves: dict[int, None] = {}
    while found := log.read(after, topics=_TOPICS):
        saves.update({each.save: None for each in found if _is_repair(each)})
        after = found[-1].position
    ours = {
        session_id
        for (session_id,) in engine.state.reader().execute(
            "SELECT s.session_id FROM source_sessions s JOIN source_homes h ON h.id = s.source"
            " WHERE h.store = ?",
            (store,),
        )
    }
    for save in saves:
        saved = tuple(engine.save_of(save))
        if not {each.session_id for each in saved if each.stream.startswith("session:")} <= ours:
            continue
        undo = _undo_of(engine, save)
        notes = () if undo is None else unsaid.get(save) or tuple(notes_of(engine, saved, store))
        if undo is None or notes:
            yield Repair(saved, undo, notes)


def _is_repair(event: Recorded) -> bool:
    match event.payload:
        case e.SessionRerouted(cause="repair") | e.RouteClosed(cause="repair"):
            return True
        case e.IdentityRestored() | e.SessionEnded(reason="superseded_by_repair"):
            return event.source_ref is None and event.caused_by is None
        case _:
            return False


def _undo_of(engine: SessionEngine, save: int) -> int | None:
    """The save that took another back, and stands."""
    rows = engine.event_log.reader().execute(
        "SELECT DISTINCT save FROM events WHERE caused_by = ? AND save > ? AND source_ref IS NULL",
        (save, save),
    )
    undos: list[Any] = rows.fetchall()
    return next((undo for (undo,) in undos if _undo_of(engine, undo) is None), None)


# --- one repair --------------------------------------------------------------------------------------


def _make(
    engine: SessionEngine,
    writer: HermesWriter,
    repairs: list[Repair],
    refused: list[str],
    mirror: dict[str, Any] | None,
) -> list[Carry]:
    """All repairs, inside a transaction that is open; what each came to, where it changed anything."""
    carries: list[Carry] = []
    for number, each in enumerate(repairs):
        writer.db.execute(f"SAVEPOINT repair_{number}")
        writer.wrote()
        try:
            done = (_one if each.undo is None else _back)(engine, writer, each, mirror)
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
                done += _lead(engine, writer, note.key, here, mirror, was)
            continue
        row, ours = writer.session(note.session_id), here_of(engine, note.session_id)
        if row is None or ours is None:
            continue
        back = {n: ours[n] for n, v in note.columns.items() if row.get(n) == v != ours.get(n) and n in ours}
        if back:
            writer.set(note.session_id, back)
            done.append(f"{note.session_id} is as it was before #{repair.saved[0].position}")
    return done


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
    engine: SessionEngine, writer: HermesWriter, repair: Repair, mirror: dict[str, Any] | None
) -> list[str]:
    """A repair as it stands here: all of it, or nothing.

    Raises:
        Held: part of it does not stand here any more, and the home does not hold the rest already.
    """
    gone = _gone(engine, repair)
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
    return [f"{session_id} owns {key}" if "session_key" in filled else f"{session_id} has its identity"]


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
