"""What happened in a chat, moment by moment, told from the events of its sessions and its key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...domain import events as e
from ...domain.audit import Finding
from ...domain.ends import COMPRESSION, SUPERSEDED, SWITCH, is_hard
from ...domain.events import Recorded, session_stream
from ...domain.facts import RouteFacts, SessionFacts, World
from ...infrastructure.reading import View
from ...infrastructure.streams import route_stream
from ...projections.world import message_at
from ..paragraphs import clock, same_day
from .identities import changed, netted

_SECOND_US = 1_000_000
_QUARTER_US = 15 * 60 * _SECOND_US
_WIDEST_ZONE_US = 14 * 60 * 60 * _SECOND_US
_BEGINS = {
    "first_message": "begins with the first message",
    "reset": "begins after a reset",
    "idle": "begins, as the chat had been idle",
    "daily": "begins, as a new day had",
    "suspended": "begins, as the one before had been stopped",
    "resume_expired": "begins, as the one before was cut off too long ago",
}
_MOVES = {
    "first_message": "the chat leads to {0}",
    "reset": "a reset leads the chat to {0}",
    "idle": "the chat had been idle; it leads to {0}",
    "daily": "a new day; the chat leads to {0}",
    "suspended": "the one before had been stopped; the chat leads to {0}",
    "resume_expired": "the one before was cut off too long ago; the chat leads to {0}",
    "compression": "the chat follows the compression to {0}",
    "resume": "a /resume leads the chat to {0}",
    "branch": "a branch: the chat leads to {0}",
    "handoff": "a handoff leads the chat to {0}",
    "recovery": "a recovery leads the chat to {0}",
    "repair": "a repair leads the chat to {0}",
    "import": "an import finds the chat leading to {0}",
    "undo": "an undo leads the chat to {0}",
}
_ENDS = {
    "session_reset": "is closed by a reset",
    "new_session": "is closed by a new session",
    "idle": "is closed, as it had been idle",
    "daily": "is closed by the daily reset",
    SWITCH: "is left by a /resume or a handoff",
    SUPERSEDED: "is put aside by a repair",
    COMPRESSION: "is compressed",
}

_RESETS = {
    "person": "a reset",
    "idle": "the reset of a chat that is idle",
    "daily": "the daily reset",
    "daily_and_idle": "the daily reset of a chat that is idle",
    "suspended": "a reset, as it had been stopped",
    "resume_expired": "a reset, as it was cut off too long ago",
}

_MARK = "\0"
_MARKED = re.compile(r"\0([^\0]*)\0")
_SURELY_AN_ID = 8


class Moment(Struct, frozen=True, kw_only=True):
    """One line of a timeline; `upto` is the last position where it stands for several events.

    In `text` sessions stand by their marked ids; `named` puts names in their place.
    """

    position: int
    at_us: int
    text: str
    session_id: str | None = None
    upto: int | None = None


def named(text: str, names: Mapping[str, str]) -> str:
    """`text` with each session called by its name, also where a rule's own words bear its id."""
    found = _MARKED.sub(lambda match: names.get(match[1], match[1]), text)
    ids = [each for each, name in names.items() if name != each and len(each) >= _SURELY_AN_ID]
    if not ids:
        return found
    whole = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, ids))})(?![\w-])")
    return whole.sub(lambda match: names[match[0]], found)


class Told(Struct, frozen=True):
    """The moments in order, and how many messages of each session the log holds."""

    moments: list[Moment]
    messages_in_log: dict[str, int]
    routes: dict[int, Recorded]
    """The decisions about the key by position."""


def tell(
    view: View,
    world: World,
    key: str | None,
    sessions: Sequence[SessionFacts],
    findings: Sequence[Finding] = (),
) -> Told:
    """The moments of these sessions and of the key, oldest first."""
    by_session = {each.id: _events(view, session_stream(each.id)) for each in sessions}
    decisions = [] if key is None else _events(view, route_stream(view.log.identity, key))
    undoes = _undoes(view, [event for events in (*by_session.values(), decisions) for event in events])
    told = _Teller(world, key, by_session, decisions, undoes)
    moments = [moment for session in sessions for moment in told.of_session(session)]
    moments += told.of_key()
    moments += [moment for each in findings for moment in _second_history(view, each)]
    versions = dict(
        view.db.execute(
            f"SELECT id, version FROM sessions WHERE id IN ({','.join('?' * len(sessions))})",
            [each.id for each in sessions],
        )
    )
    return Told(
        sorted(moments, key=lambda moment: (moment.at_us, moment.position)),
        {session_id: versions.get(session_id, 0) - len(events) for session_id, events in by_session.items()},
        {event.position: event for event in decisions},
    )


def _events(view: View, stream: str) -> list[Recorded]:
    """What the stream held at the point that the answer is for; messages left out."""
    return [
        event
        for event in view.log.stream_events(stream, without_messages=True)
        if event.position <= view.known_at and (view.as_of is None or view.as_of.had_happened(event))
    ]


def _undoes(view: View, events: Sequence[Recorded]) -> dict[int, Undone]:
    """Of each event that an undo wrote, by position: what it took back, and when."""
    causes: dict[int, Recorded | None] = {}
    latest: dict[int, int] = {}
    found = {}
    for event in events:
        latest[event.save] = max(latest.get(event.save, 0), event.at_us)
        if event.caused_by is not None and event.source_ref is None and event.caused_by not in causes:
            told = view.log.read(event.caused_by - 1, limit=1, upto=event.caused_by)
            causes[event.caused_by] = next(iter(told), None)
    for event in events:
        undone = None if event.source_ref is not None else causes.get(event.caused_by or 0)
        if undone is not None and undone.source_ref is None:  # else a conflict with a source was settled
            at_us = latest[event.save]
            known = at_us if at_us > undone.at_us else max(undone.at_us, event.recorded_at_us)
            found[event.position] = Undone(undone.position, known)
    return found


def _second_history(view: View, finding: Finding) -> Iterator[Moment]:
    """Where the old session had ended, and where it was written to again after the jump."""
    facts = finding.facts
    if "second_history_us" not in facts:
        return
    target = str(facts["leads_to"])
    name = _marked(target)
    for fact, text in (
        ("leads_to_last_us", f"{name}: last message before the jump"),
        ("second_history_us", f"{name} is written to again: a second history"),
    ):
        at_us = facts.get(fact)
        position = message_at(view.db, target, at_us) if isinstance(at_us, int) else None
        if position is not None and isinstance(at_us, int):
            yield Moment(position=position, at_us=at_us, text=text, session_id=target)


def _marked(session_id: str) -> str:
    return f"{_MARK}{session_id}{_MARK}"


class Undone(NamedTuple):
    """Which save was taken back, and when: the reverse itself may tell of a time before that."""

    position: int
    at_us: int


class _Teller:
    def __init__(
        self,
        world: World,
        key: str | None,
        by_session: Mapping[str, Sequence[Recorded]],
        decisions: Sequence[Recorded],
        undoes: Mapping[int, Undone],
    ) -> None:
        self.world = world
        self.by_session = by_session
        self.undoes = undoes
        self.decisions = decisions
        self.continuations = {
            event.payload.continuation
            for events in by_session.values()
            for event in events
            if isinstance(event.payload, e.SessionCompressed)
        }
        self.began_with = {
            (event.save, event.payload.session_id): event.payload.cause
            for event in decisions
            if isinstance(event.payload, e.SessionRerouted) and event.payload.cause != "import"
        }
        self.created_in = {(events[0].save, name) for name, events in by_session.items() if events}
        route = None if key is None else world.route_of(key)
        self.entry_dates = _entry_dates(route, [world.sessions[each] for each in by_session])

    def of_session(self, session: SessionFacts) -> Iterator[Moment]:
        """How a session began, went on and ended."""
        name, events = _marked(session.id), self.by_session[session.id]
        moments = list(self._changes(session.id, name, events[1:]))
        compressed = any(isinstance(event.payload, e.SessionCompressed) for event in events)
        began = Moment(
            position=session.created_position,
            at_us=session.started_us,
            text=self._began(session, name, events),
            session_id=session.id,
        )
        last = self._last(session, name)
        if session.id in self.continuations:
            yield from (last,) if last is not None and not compressed else ()
        elif last is None:
            yield began if session.has_messages else replace(began, text=f"{began.text}; no messages")
        elif compressed or self._at_once(session, last, moments):
            merged = began.text if compressed else f"{began.text}; last message {clock(last.at_us)}"
            yield replace(began, text=merged + _without(session, self.world), upto=last.position)
        else:
            yield from (began, last)
        yield from moments

    def _changes(self, session_id: str, name: str, events: Sequence[Recorded]) -> Iterator[Moment]:
        """What changed; an undo is told when it was done, also where it tells of a time before that."""
        for event in netted(events, self.undoes):
            text, undone = self._text(event, name), self.undoes.get(event.position)
            if text is None:
                continue
            at_us = event.at_us if undone is None else undone.at_us
            text += "" if undone is None else f" (undo of #{undone.position})"
            yield Moment(position=event.position, at_us=at_us, text=text, session_id=session_id)

    def _at_once(self, session: SessionFacts, last: Moment, moments: Iterable[Moment]) -> bool:
        """Whether the beginning and the last message fit one line: one day, and nothing in between."""
        between = any(session.started_us < moment.at_us < last.at_us for moment in moments)
        return same_day(session.started_us, last.at_us) and not between

    def _last(self, session: SessionFacts, name: str) -> Moment | None:
        at_us = session.last_active_us if session.last_active_us is not None else session.last_message_us
        if at_us is None or session.last_message_position is None:
            return None
        return Moment(
            position=session.last_message_position,
            at_us=at_us,
            text=f"{name}: last message{_without(session, self.world)}",
            session_id=session.id,
        )

    def _began(self, session: SessionFacts, name: str, events: Sequence[Recorded]) -> str:
        save = events[0].save if events else 0
        cause = self.began_with.get((save, session.id), "")
        text = f"{name} {_BEGINS.get(cause, 'begins')}"
        if session.parent_id is not None and session.parent_kind not in (None, "reset"):
            words = {"continuation": "going on from", "branch": "branching off from"}
            text += f", {words.get(str(session.parent_kind), 'from')} {_marked(session.parent_id)}"
        return text + self.entry_dates.get(session.id, "")

    def _text(self, event: Recorded, name: str) -> str | None:
        match event.payload:
            case e.SessionCompressed(continuation=child):
                return f"{name} is compressed, goes on as {_marked(child)}"
            case e.SessionReset(rule=rule) as reset:
                put_off = ", put off until a turn was over" if reset.deferred else ""
                return f"{name} is closed by {_RESETS.get(rule, 'a reset')}{put_off}"
            case e.SessionEnded(reason=reason, hard=hard):
                how = _ENDS.get(reason or "")
                if how is None:
                    how = f"ends ({reason})" if reason else "ends"
                    how += " for good" if hard or is_hard(reason) else "; it may go on"
                return f"{name} {how}"
            case e.SessionReopened():
                return f"{name} is opened again"
            case e.IdentityLost() | e.IdentityRestored():
                return f"{name} {changed(event.payload, _marked)}"
            case e.SessionDeleted():
                return f"{name} is deleted"
            case e.SessionUndeleted():
                return f"{name} is brought back"
            case e.SourceRowGone(kind="session"):
                return f"{name} is gone from the store it was imported from"
            case _:
                return None

    def of_key(self) -> Iterator[Moment]:
        """Every time that the key was led elsewhere, but for those that began a session."""
        for event in self.decisions:
            session_id: str | None = None
            match event.payload:
                case e.SessionRerouted(session_id=session_id, cause=cause, previous=previous):
                    if (event.save, session_id) in self.created_in and cause in (*_BEGINS, "compression"):
                        continue
                    text = _MOVES.get(cause, "the chat leads to {0}").format(_marked(session_id))
                    if previous == session_id:
                        text = f"a person says that the chat goes on in {_marked(session_id)}"
                    elif previous is not None and cause not in _BEGINS:
                        text += f", away from {_marked(previous)}"
                case e.RouteClosed(cause=cause):
                    begins = cause in _BEGINS or cause == "delete"
                    text = "the chat leads nowhere from here on"
                    text += "; its next message begins a new session" if begins else ""
                    text = "an undo lets the chat lead nowhere, as before" if cause == "undo" else text
                case e.SourceRowGone():
                    text = "the entry is gone from the store it was imported from"
                case _:
                    continue
            yield Moment(position=event.position, at_us=event.at_us, text=text, session_id=session_id)


def _without(session: SessionFacts, world: World) -> str:
    """ "; no key, chat or user", of a session whose source has keys."""
    if session.key is not None or session.source not in world.keyed_sources:
        return ""
    facts = (("key", session.key), ("chat", session.chat_id), ("user", session.user_id))
    missing = [word for word, value in facts if value is None]
    return f"; no {' or '.join([', '.join(missing[:-1]), missing[-1]] if missing[1:] else missing)}"


def _entry_dates(route: RouteFacts | None, sessions: Sequence[SessionFacts]) -> dict[str, str]:
    """Which session an imported entry was made with, by its own words.

    Hermes writes local time of its host and names no zone, so an entry may be off by whole quarters
    of an hour; that is said only where one session alone fits.
    """
    made_us = None if route is None else route.entry_created_us
    if made_us is None:
        return {}
    apart = {session.id: made_us - session.started_us for session in sessions}
    exact = [name for name, us in apart.items() if abs(us) < _SECOND_US]
    if exact:
        return dict.fromkeys(exact, "; the entry dates from this second")
    shifted = [
        name
        for name, us in apart.items()
        if abs(us) <= _WIDEST_ZONE_US and abs(us - round(us / _QUARTER_US) * _QUARTER_US) < _SECOND_US
    ]
    return {shifted[0]: "; the entry seems to date from this second"} if len(shifted) == 1 else {}
