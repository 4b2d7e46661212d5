"""Where keys lead in a Hermes home: its routing table, and the mirror for what the table lacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from ...domain import events as e
from ...domain import route
from ...domain.source_values import as_text, time_us
from ...projections.sources import entry_digest
from ..streams import route_stream
from .hermes_rows import plain
from .hermes_run import Run, rows

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Entry(msgspec.Struct, frozen=True):
    """A routing entry: its text as it is in the source, and what it says."""

    key: str
    session_id: str
    text: str
    at_us: int | None
    created_us: int | None
    updated_us: int | None


class Seen(msgspec.Struct, frozen=True):
    """A key's entry as last seen."""

    session_id: str | None
    entry: bytes | None
    gone: int


def tell_routes(run: Run) -> None:
    """Tell each key whose entry is new, leads elsewhere, says something else, or has gone."""
    if run.home.scope is not None and not run.home.scope.routes:
        return
    entries, doubtful = _entries(run)
    seen = {
        key: Seen(session_id, None if entry is None else bytes(entry), gone)
        for key, session_id, entry, gone in run.db.execute(
            "SELECT key, session_id, entry, gone FROM source_routes WHERE source = ?", (run.source,)
        )
    }
    of_others = "SELECT key, session_id FROM source_routes WHERE source <> ? AND gone = 0"
    elsewhere = set(run.db.execute(of_others, (run.source,)))
    run.begin("routes", len(entries))
    for key in sorted(entries):
        if not _is_refused(run, entries[key], elsewhere):
            _tell(run, entries[key], seen.get(key))
        run.advance(1)
    for key, before in sorted(seen.items()):
        if key not in entries and key not in doubtful and not before.gone:
            _tell_gone(run, key, before)


def _is_refused(run: Run, entry: Entry, elsewhere: set[tuple[str, str | None]]) -> bool:
    """Whether it leads to a session that is not this home's: then nothing here hears of it."""
    session = run.plans.get(entry.session_id)
    if session.refused if session is not None else _is_refused_unread(run, entry.session_id):
        run.findings.skip(
            f"route {entry.key}: leads to session {entry.session_id}, which did not come from this home"
        )
        return True
    unread = session is None and run.home.scope is not None and run.home.has_session(entry.session_id)
    if session is None and not unread and (entry.key, entry.session_id) in elsewhere:
        run.findings.skip(
            f"route {entry.key}: leads to session {entry.session_id}, which is not in this home,"
            " and came from another one already"
        )
        return True
    return False


def _is_refused_unread(run: Run, session_id: str) -> bool:
    """Whether a session that this import does not read is in the home, and did not come from it."""
    if run.home.scope is None or not run.home.has_session(session_id):
        return False
    sources = rows(run.db, "SELECT source FROM source_sessions WHERE session_id = ?", session_id)
    return [source for (source,) in sources] != [run.source] and not run.is_erased("session", session_id)


def _is_erased(run: Run, session_id: str | None) -> bool:
    """Whether all of a session was erased here."""
    if session_id is None or not run.is_erased("session", session_id):
        return False
    plan = run.plans.get(session_id)
    return plan is None or plan.left_out


def _tell(run: Run, entry: Entry, before: Seen | None) -> None:
    if before is not None and not before.gone and before.entry == entry_digest(entry.text):
        run.findings.unchanged["routes"] += 1
        return
    stream = route_stream(run.identity, entry.key)
    if run.is_erased(e.SessionRerouted.topic, entry.key) or _is_erased(run, entry.session_id):
        run.findings.unchanged["routes erased here"] += 1
        return
    run.writer.version(stream)  # refuses what came after the plan
    here = _here(run, stream, entry.key)
    was_led_to = None if before is None or before.gone else before.session_id
    moved_there = was_led_to != entry.session_id
    moved_here = here != was_led_to
    if here == entry.session_id or not moved_there:
        payload: e.Payload = entry_changed(run.store, entry, [])
    elif moved_here:
        payload = msgspec.structs.replace(
            entry_changed(run.store, entry, ["session_id", "entry_json"]), ours={"session_id": here}
        )
        run.findings.conflict(
            f"route {entry.key}: leads to {entry.session_id} in the source, and here to"
            f" {here or 'nothing'}; ours stays"
        )
    else:
        if here is not None and here in run.waiting:
            run.led_away.add(here)
        payload = e.SessionRerouted(
            entry.key,
            entry.session_id,
            here,
            "import",
            entry=entry.text,
            entry_created_us=entry.created_us,
            entry_updated_us=entry.updated_us,
            store=run.store,
        )
    at_us = entry.at_us if entry.at_us is not None and entry.at_us <= run.observed_us else None
    run.writer.add(run.told(stream, payload, entry.key, at_us=at_us))


def entry_changed(store: str, entry: Entry, conflicts: list[str]) -> e.SourceRowChanged:
    """What a store says of a key now, where that leads it nowhere else here."""
    changes: dict[str, Any] = {"session_id": entry.session_id, "entry_json": entry.text}
    for column in ("created", "updated"):
        if (value := getattr(entry, f"{column}_us")) is not None:
            changes[f"entry_{column}_us"] = value
    return e.SourceRowChanged("route", entry.key, changes, conflicts, store=store)


def _tell_gone(run: Run, key: str, before: Seen) -> None:
    stream = route_stream(run.identity, key)
    run.writer.version(stream)
    here = _here(run, stream, key)
    if here is not None and here == before.session_id:
        payload: e.Payload = e.RouteClosed(key, here, "import", store=run.store)
    else:
        payload = e.SourceRowGone("route", key, store=run.store)
    run.writer.add(run.told(stream, payload, key))


def _here(run: Run, stream: str, key: str) -> str | None:
    state = route.Route(key)
    for event in run.log.stream_events(stream):
        state = route.evolve(state, event.version, event.payload)
    return state.session_id


# --- reading -----------------------------------------------------------------------------------------


def _entries(run: Run) -> tuple[dict[str, Entry], set[str]]:
    """Entries by key, and keys that are there but cannot be read."""
    found: dict[str, Entry] = {}
    doubtful: set[str] = set()
    for row in _own_scope(run):
        key, text = row.get("session_key"), row.get("entry_json")
        name = as_text(key) or repr(key)
        entry = entry_of(key, text, time_us(row.get("updated_at")))
        if isinstance(entry, Entry):
            found[entry.key] = entry
        else:
            doubtful.add(name)
            run.findings.skip(f"route {name}: {entry}")
    if any(lost.table == "gateway_routing" for lost in run.home.lost):
        doubtful |= {row[0] for row in rows(run.db, "SELECT key FROM source_routes")}
    _fill_from_mirror(run, found, doubtful)
    return found, doubtful


def _fill_from_mirror(run: Run, found: dict[str, Entry], doubtful: set[str]) -> None:
    mirror = run.home.mirror()
    for problem in mirror.problems:
        run.findings.skip(f"mirror {problem}")
    if not mirror.present:
        return
    in_table = set(found)
    for key, value in mirror.entries.items():
        if key in found:
            there = value.get("session_id")
            if there != found[key].session_id:
                run.findings.differs(
                    f"{key}: the table leads to {found[key].session_id}, sessions.json to {there};"
                    " the table wins"
                )
            continue
        entry = entry_of(key, _text_of(key, value), None)
        if isinstance(entry, Entry):
            found[key] = entry
            run.findings.differs(f"{key}: only in sessions.json, taken from there")
        else:
            doubtful.add(key)
            run.findings.skip(f"route {key} in sessions.json: {entry}")
    if mirror.problems and not mirror.entries:
        return  # it could not be read, so nothing is known of what it holds
    for key in sorted(in_table - set(mirror.entries)):
        run.findings.differs(f"{key}: only in the table, not in sessions.json")


def _text_of(key: str, value: object) -> str | None:
    """The entry as text that can be stored, or None where it holds what has no such form."""
    try:
        key.encode()
        return _encode(value).decode()
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None  # half a surrogate (JSON escapes may spell one), or a number beyond 64 bits


def entry_of(key: object, text: object, at_us: int | None) -> Entry | str:
    """The entry, or why it is none."""
    if not isinstance(key, str):
        return "its key is no valid text"
    if not isinstance(text, str):
        return "its entry is no valid text"
    try:
        said = _decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"its entry is no JSON: {error}"
    session_id = said.get("session_id") if isinstance(said, dict) else None
    if not isinstance(session_id, str) or not session_id:
        return "its entry names no session"
    updated_us = _iso_us(said.get("updated_at"))
    return Entry(
        key,
        session_id,
        text,
        updated_us if at_us is None else at_us,
        _iso_us(said.get("created_at")),
        updated_us,
    )


def _iso_us(value: object) -> int | None:
    """An entry's own time: ISO 8601, in the zone of this machine where it names none, as Hermes does."""
    if not isinstance(value, str):
        return None
    try:
        return round(datetime.fromisoformat(value).timestamp() * 1e6)
    except (ValueError, OverflowError, OSError):
        return None


def _own_scope(run: Run) -> list[Mapping[str, Any]]:
    """The rows of the home's own scope, or else of the one that was written last."""
    scopes: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for raw in run.home.routes():
        row = plain(raw)
        scopes[as_text(row.get("scope")) or ""].append(row)
    if not scopes:
        return []
    own = str((run.home.path / "sessions").resolve())
    chosen = own if own in scopes else max(scopes, key=lambda scope: (_newest(scopes[scope]), scope))
    for scope in sorted(set(scopes) - {chosen}):
        run.findings.note(
            f"routing scope {scope or '(none)'}: {len(scopes[scope])} entries of another folder were left out"
        )
    return scopes[chosen]


def _newest(entries: list[Mapping[str, Any]]) -> float:
    times = [entry.get("updated_at") for entry in entries]
    return max((float(at) for at in times if isinstance(at, (int, float))), default=0.0)
