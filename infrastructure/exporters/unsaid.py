"""What a carry that was killed had written into a Hermes home and not noted here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...domain import events as e
from ...domain.ends import COMPRESSION
from ...domain.events import Recorded
from ..carrying import Begun
from ..log_schema import LogIdentity
from ..streams import route_stream
from .carried import Carry, Note
from .hermes_home import HermesWriter, Wrote

if TYPE_CHECKING:
    from ..engine import SessionEngine


def begun(carries: Iterable[Carry], identity: LogIdentity) -> list[Begun]:
    """What carries are about to write."""
    return [
        Begun(
            each.position,
            {session_id: list(columns) for session_id, columns in each.wrote.sessions.items()},
            [route_stream(identity, key) for key in each.wrote.routes],
        )
        for each in carries
    ]


def held_there(
    engine: SessionEngine, writer: HermesWriter, left: Begun, mirror: Mapping[str, Any] | None
) -> Wrote:
    """What of it the Hermes home holds: nothing where it was not committed, less where Hermes went on."""
    saved = engine.save_of(left.position)
    wrote = Wrote()
    for session_id, names in left.sessions.items():
        row = writer.session(session_id) or {}
        wanted = _wanted(saved, session_id)
        if "ended_at" in names and "end_reason" in wanted and row.get("end_reason") == wanted["end_reason"]:
            wanted["ended_at"] = row.get("ended_at")
        columns = {n: row[n] for n in names if n in wanted and n in row and row[n] == wanted[n]}
        if columns:
            wrote.sessions[session_id] = columns
    for each in saved:
        move = each.payload
        if each.stream in left.routes and isinstance(move, (e.SessionRerouted, e.RouteClosed)):
            entry = writer.entry(writer.scope(), move.key) or (mirror or {}).get(move.key)
            leads_to = entry.get("session_id") if isinstance(entry, dict) else None
            if leads_to == (move.session_id if isinstance(move, e.SessionRerouted) else None):
                wrote.routes[move.key] = entry
    return wrote


def as_notes(wrote: Wrote) -> tuple[Note, ...]:
    """What a home holds, as if it had been noted."""
    sessions = [Note(session_id, columns) for session_id, columns in wrote.sessions.items()]
    routes = [
        Note(key=key, leads_to=None if entry is None else str(entry.get("session_id")))
        for key, entry in wrote.routes.items()
    ]
    return (*sessions, *routes)


def _wanted(saved: Iterable[Recorded], session_id: str) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    for each in saved:
        if each.stream.startswith("session:") and each.session_id == session_id:
            match each.payload:
                case e.IdentityRestored(now=now) | e.IdentityLost(now=now):
                    wanted |= now
                case e.SessionReopened():
                    wanted |= {"ended_at": None, "end_reason": None}
                case e.SessionEnded(reason=reason):
                    wanted |= {"end_reason": reason}
                case e.SessionCompressed():
                    wanted |= {"end_reason": COMPRESSION}
                case _:
                    pass
    return wanted
