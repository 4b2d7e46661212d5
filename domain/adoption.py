"""Giving a session its chat's key back: what is decided on the sessions alone, once one is to be adopted.

What may be adopted, and from whom, domain/repair.py says; here it is verified again on fresh state, and
put into events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, Protocol

import msgspec

from . import events as e
from .ends import SUPERSEDED, is_reset
from .errors import OrphanChanged
from .events import Recorded
from .session import Session
from .titles import base_of, lineage_number

Evidence = Literal["lineage", "contiguity", "choice"]

_INHERITED: Final = ("chat_id", "chat_type", "thread_id", "user_id", "origin_json", "display_name")
_CONTINUES: Final = 10
"""So far apart may a platform's message ids be and still be one talk: what a bot sends counts, too."""
_BECAUSE: Final[dict[Evidence, str]] = {
    "lineage": "lineage: it names {0} as its parent",
    "contiguity": "contiguity: only {0} had fallen quiet when it began",
    "choice": "a person named {0} as what it goes on from",
}


def is_repair(event: Recorded) -> bool:
    """Whether an event is of the save of a repair, of a route that a person led, or of another remedy."""
    match event.payload:
        case e.SessionRerouted(cause="repair") | e.RouteClosed(cause="repair"):
            return True
        case e.IdentityRestored() | e.SessionEnded(reason="superseded_by_repair"):
            return event.source_ref is None and event.caused_by is None
        case _:
            return False


class Placed(Protocol):
    """What a session says of where it was."""

    @property
    def chat_id(self) -> str | None: ...
    @property
    def user_id(self) -> str | None: ...
    @property
    def origin_json(self) -> str | None: ...
    @property
    def title(self) -> str | None: ...


class Sides(msgspec.Struct, frozen=True):
    """The first message's platform id of a session, and the last one's of what it may go on from."""

    last_of_donor: str | None = None
    first_of_orphan: str | None = None


def verify(orphan: Session, donor: Session, key: str, *, own_profile: str | None = None) -> None:
    """Hold two sessions against what was reported of them (REFERENCE.md 8.6).

    Raises:
        OrphanChanged: it bears a key by now, or what it would take its key from has none, or another one.
    """
    profiles = {each.profile_name or own_profile for each in (orphan, donor)}
    if (
        orphan.id == donor.id
        or orphan.key is not None
        or donor.key != key
        or orphan.source != donor.source
        or len(profiles) > 1
    ):
        raise OrphanChanged(orphan.id)


def restored(orphan: Session, donor: Session, *, continued: bool) -> e.IdentityRestored:
    """The orphan takes the donor's key, and of its chat and user what it lacks.

    Args:
        continued: the donor has a continuation already, or is the parent of one.
    """
    now: dict[str, Any] = {"session_key": donor.key}
    for column in _INHERITED:
        ours, theirs = getattr(orphan, column), getattr(donor, column)
        if ours is None and theirs is not None:
            now[column] = theirs
    if orphan.parent_id is None:
        now["parent_session_id"] = donor.id
        now["parent_kind"] = _kind(donor, continued=continued)
    return e.IdentityRestored(dict.fromkeys(now), now)


def _kind(donor: Session, *, continued: bool) -> e.ParentKind:
    if donor.hard_end and is_reset(donor.end_reason):
        return "reset"
    return "child" if continued else "continuation"


def retired(state: Session) -> e.SessionEnded | None:
    """The end of what gave its key away: it takes the place of any other. None where it stands already."""
    if state.end_reason == SUPERSEDED:
        return None
    return e.SessionEnded(SUPERSEDED, hard=False)


def put_aside(state: Session) -> e.SessionEnded | None:
    """The soft end of what a key led to by mistake. None where it has ended somehow."""
    return None if state.ended else e.SessionEnded(SUPERSEDED, hard=False)


def because(
    orphan: Session, donor: Session, evidence: Evidence, sides: Sides, chosen: str | None
) -> list[str]:
    """All that speaks for it, every line a fact on record."""
    said = [_BECAUSE[evidence].format(donor.id), *backing(orphan, donor, sides)]
    if chosen is not None:
        said.append(f"a person chose {chosen} of two histories")
    return said


def backing(orphan: Placed, donor: Placed, sides: Sides) -> Iterator[str]:
    """What else is on record of two sessions being one talk: it is named, and decides nothing."""
    ours, theirs = _origin(orphan), _origin(donor)
    same = [name for name in ("chat", "user") if ours.get(name) and ours.get(name) == theirs.get(name)]
    if same:
        yield f"origin: the same {' and '.join(same)}"
    if orphan.title and donor.title and base_of(orphan.title) == base_of(donor.title):
        numbers = lineage_number(donor.title), lineage_number(orphan.title)
        if numbers[0] < numbers[1]:
            yield f"title: #{numbers[1]} of the lineage that it was #{numbers[0]} of"
    last, first = _number(sides.last_of_donor), _number(sides.first_of_orphan)
    if last is not None and first is not None and 0 < first - last <= _CONTINUES:
        yield f"platform message ids: {first} after {last}"


def _origin(state: Placed) -> dict[str, str]:
    """The chat and the user that a session names, by its columns or by what its origin says."""
    said: dict[str, Any] = {}
    if state.origin_json is not None:
        try:
            decoded = msgspec.json.decode(state.origin_json)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            decoded = None
        said = decoded if isinstance(decoded, dict) else {}
    found = {"chat": state.chat_id or said.get("chat_id"), "user": state.user_id or said.get("user_id")}
    return {name: str(value) for name, value in found.items() if value}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else None
