"""The reverse of a save: what every stream of it was before, and whether later events build on it.

A save is undone as a whole or not at all. Its reverse is one save of its own, so it can be undone, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from . import events as e
from .context import taken_back
from .ends import COMPRESSION, SESSION_RESET, SUPERSEDED
from .errors import BuiltOn, NotUndoable
from .events import Payload, Recorded
from .marks import Marks
from .marks import evolve as marked
from .requeuing import again, given_up, given_up_as, queued_again, takes
from .settling import is_same_row, is_settling, put_back
from .undoable import why_not

_TITLES: Final = (e.TitleClaimed, e.TitleReleased)
_ARCHIVES: Final = (e.SessionArchived, e.SessionUnarchived)
_PINS: Final = (e.SessionPinned, e.SessionUnpinned)
_ENDS: Final = (e.SessionEnded, e.SessionReset, e.SessionReopened)
_ROUTES: Final = (e.SessionRerouted, e.RouteClosed)
_IDENTITIES: Final = (e.IdentityLost, e.IdentityRestored)
_SHOWN: Final = (e.MessagesRewound, e.MessagesRestored, e.MessagesCompacted)
_DELETIONS: Final = (e.SessionDeleted, e.SessionUndeleted)
_RESUMES: Final = (e.ResumeMarked, e.ResumeCleared)
_BUILDS: Final[dict[tuple[type[Payload], ...], tuple[type[Payload], ...]]] = {
    _TITLES: _TITLES,
    (e.SessionTitled,): (e.SessionTitled,),
    _ARCHIVES: _ARCHIVES,
    _PINS: _PINS,
    (e.SessionEnded, e.SessionReset): (*_ENDS, e.SessionCompressed, e.SessionSuspended),
    (e.SessionReopened,): (*_ENDS, e.SessionCompressed, e.MessageAppended),
    (e.SessionCompressed,): (*_ENDS, e.SessionCompressed),
    _ROUTES: _ROUTES,
    _IDENTITIES: (*_IDENTITIES, e.SessionCompressed),
    _SHOWN: (*_SHOWN, e.MessageAppended, e.SessionCompressed),
    _DELETIONS: (*_DELETIONS, e.PayloadsErased),
    (e.SessionSuspended,): (e.SessionSuspended, e.SessionReopened, e.SessionCompressed),
    _RESUMES: (*_RESUMES, e.SessionSuspended),
    (e.SessionCreated,): (
        e.MessageAppended,
        e.SessionTitled,
        e.SessionCompressed,
        e.TurnStarted,
        e.TurnQueued,
        *_ENDS,
        *_IDENTITIES,
        *_DELETIONS,
    ),
}
"""For each kind of event, which later ones of its stream build on it."""
UNDOABLE: Final[tuple[type[Payload], ...]] = (e.QueueCleared, *(kind for kinds in _BUILDS for kind in kinds))
"""Kinds of events that have a reverse wherever they stand; of some others it depends on their save."""


class End(msgspec.Struct, frozen=True):
    """How a session had ended; None for open. `at_us` is when, `ended_at` as its row says it."""

    reason: str | None = None
    hard: bool = False
    at_us: int = 0
    ended_at: float | None = None
    successor: str | None = None
    stands: bool = False


class Was(msgspec.Struct, frozen=True):
    """What a session was at a point, as far as a save may change it."""

    title: e.SessionTitled = e.SessionTitled(None)
    archived: bool = False
    pinned: bool = False
    end: End = End()
    key: str | None = None
    lost_key: str | None = None
    marks: Marks = Marks()


class Led(msgspec.Struct, frozen=True):
    """Where a key led, and the source's own entry."""

    session_id: str | None = None
    entry: str | None = None
    entry_created_us: int | None = None
    entry_updated_us: int | None = None


class Step(msgspec.Struct, frozen=True):
    """One event of the reverse; `at_us` where it tells of a time that had been, `caused_by` where that is
    not the save that is undone."""

    stream: str
    payload: Payload
    at_us: int | None = None
    caused_by: int | None = None


class Told(msgspec.Struct, frozen=True):
    """A save, and what came before and after it.

    Attributes:
        saved: its events in order.
        before: by stream, what it held before, messages left out.
        after: by stream, what came later, messages among it; also of sessions that a key was led to.
    """

    saved: Sequence[Recorded]
    before: Mapping[str, Sequence[Recorded]]
    after: Mapping[str, Sequence[Recorded]]

    @property
    def position(self) -> int:
        """The save's first position: its name."""
        return self.saved[0].position


def reverse(told: Told, *, erase_after_us: int) -> list[Step]:
    """The events that put everything back to what it was before the save.

    Args:
        erase_after_us: when a session that the save began is erased for good.

    Raises:
        NotUndoable: the save holds what cannot be taken back. BuiltOn: later events rest on it.
    """
    _refuse(told)
    _refuse_built_on(told)
    streams = dict.fromkeys(each.stream for each in reversed(told.saved))
    steps: list[Step] = []
    for stream in streams:
        saved = [each for each in told.saved if each.stream == stream]
        before = told.before.get(stream, ())
        if stream.startswith("session:"):
            steps += (Step(stream, each) for each in queued_again(saved, told.before))
            steps += _session(stream, saved, before, erase_after_us)
        elif stream.startswith("route:"):
            steps += _route(stream, saved, before, told.position)
        else:
            steps += _title(stream, saved)
        steps += (Step(stream, each.payload, caused_by=each.caused_by) for each in put_back(saved, before))
    return [*steps, *_queued(told)]


def left_as_it_is(told: Told) -> Iterator[str]:
    """What of a save its reverse does not put back."""
    for each in given_up(told.saved, told.before):
        if each.erased:
            yield (
                f"what waited in {each.session_id} is not queued again, since its text was erased:"
                f" {', '.join(each.erased)}"
            )


# --- what cannot be undone ---------------------------------------------------------------------------


def _refuse(told: Told) -> None:
    name = f"the save of #{told.position}"
    compacted = {each.stream for each in told.saved if isinstance(each.payload, e.MessagesCompacted)}
    reason = why_not(name, told.saved)
    if reason is not None:
        raise NotUndoable(reason.message, hint=reason.hint)
    for each in told.saved:
        payload = each.payload
        known = is_settling(each) or isinstance(payload, UNDOABLE)
        if isinstance(payload, e.MessageAppended) and each.stream in compacted:
            known = True
        if isinstance(payload, e.TurnQueued):
            moved = payload.moved_from is not None
            known = moved or given_up_as(payload.turn, told.before[each.stream]) is not None
        if isinstance(payload, e.SessionCompressed) and _was(told.before[each.stream]).end.successor is None:
            known = False
        if not known:
            raise NotUndoable(
                f"{name} holds what cannot be undone: #{each.position} {each.topic.partition('.')[0]}",
                hint="titles, archive, pins, ends, stops, resets, routes, rewinds, repairs and deletions can",
            )


def _refuse_built_on(told: Told) -> None:
    _refuse_erased(told)
    built: dict[int, str] = {}
    for each in told.saved:
        kinds = next((later for kinds, later in _BUILDS.items() if isinstance(each.payload, kinds)), ())
        for later in told.after.get(each.stream, ()):
            if isinstance(later.payload, kinds) or (kinds and isinstance(later.payload, e.UnknownEvent)):
                built[later.position] = later.topic
            if isinstance(each.payload, e.TurnQueued) and takes(later.payload, each.payload.turn):
                built[later.position] = later.topic
            if is_settling(each) and is_same_row(each.payload, later.payload):
                built[later.position] = later.topic
            if _is_given_up(each.payload) and isinstance(later.payload, e.TurnQueued):
                built[later.position] = later.topic
        if isinstance(each.payload, e.SessionRerouted):
            for later in told.after.get(e.session_stream(each.payload.session_id), ()):
                if isinstance(later.payload, (e.MessageAppended, e.TurnQueued)):
                    built[later.position] = later.topic
    if built:
        named = [f"#{position} {built[position].partition('.')[0]}" for position in sorted(built)]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        raise BuiltOn(
            f"the save of #{told.position} is built on by {', '.join(named[:_NAMED])}{more}",
            positions=tuple(sorted(built)),
            hint="undo those first, where they can be undone; nothing was written",
        )


def _refuse_erased(told: Told) -> None:
    for each in told.saved:
        for later in told.after.get(each.stream, ()):
            if isinstance(each.payload, _DELETIONS) and isinstance(later.payload, e.PayloadsErased):
                raise NotUndoable(
                    f"what the save of #{told.position} is about was erased since (#{later.position}):"
                    " nothing is left to be put back",
                    hint="a backup from before may hold it: retold restore DIR",
                )


_NAMED: Final = 5


def _is_given_up(payload: object) -> bool:
    return isinstance(payload, e.QueueCleared) and payload.why != "moved"


# --- sessions ----------------------------------------------------------------------------------------


def _was(events: Iterable[Recorded]) -> Was:
    state = Was()
    for each in events:
        state = _told(state, each)
    return state


def _told(state: Was, event: Recorded) -> Was:
    told = _changed(state, event)
    return msgspec.structs.replace(told, marks=marked(told.marks, event.payload, event.at_us))


def _changed(state: Was, event: Recorded) -> Was:
    match event.payload:
        case e.SessionCreated() as p:
            return Was(
                archived=bool(p.columns.get("archived")),
                pinned=bool(p.columns.get("pinned")),
                key=p.session_key,
            )
        case e.SessionTitled() as p:
            return msgspec.structs.replace(state, title=p)
        case e.SessionArchived() | e.SessionUnarchived():
            return msgspec.structs.replace(state, archived=isinstance(event.payload, e.SessionArchived))
        case e.SessionPinned() | e.SessionUnpinned():
            return msgspec.structs.replace(state, pinned=isinstance(event.payload, e.SessionPinned))
        case e.IdentityLost(now=now) | e.IdentityRestored(now=now) if "session_key" in now:
            return _identified(state, event.payload, now["session_key"])
        case e.SessionReopened() | e.SessionEnded() | e.SessionReset() | e.SessionCompressed():
            return msgspec.structs.replace(state, end=_ended(state.end, event))
        case _:
            return state


def _identified(state: Was, payload: e.IdentityLost | e.IdentityRestored, key: e.Scalar) -> Was:
    lost = state.lost_key
    if key is None and isinstance(payload, e.IdentityLost) and state.key is not None:
        lost = state.key
    known = key if isinstance(key, str) else None
    return msgspec.structs.replace(state, key=known, lost_key=lost if known is None else None)


def _ended(end: End, event: Recorded) -> End:
    match event.payload:
        case e.SessionReopened():
            return End()
        case e.SessionReset():
            return End(SESSION_RESET, True, event.at_us, None, end.successor, stands=True)
        case e.SessionCompressed() as p:
            if end.hard:
                return msgspec.structs.replace(end, successor=p.continuation)
            return End(COMPRESSION, False, event.at_us, p.ended_at, p.continuation, stands=True)
        case e.SessionEnded() as p:
            superseded = p.reason == SUPERSEDED
            if end.hard and not p.hard and not superseded:
                return end
            if superseded and end.stands:
                return msgspec.structs.replace(end, reason=p.reason, hard=p.hard)
            return End(p.reason, p.hard, event.at_us, p.ended_at, end.successor, stands=True)
        case _:
            return end


def _session(
    stream: str, saved: Sequence[Recorded], before: Sequence[Recorded], erase_after_us: int
) -> Iterable[Step]:
    if isinstance(saved[0].payload, e.SessionCreated):
        yield Step(stream, e.SessionDeleted("undo", erase_after_us))
        return
    was = _was(before)
    now = was
    for each in saved:
        now = _told(now, each)
    yield from _messages(stream, saved, before)
    for each in reversed(saved):
        match each.payload:
            case e.IdentityLost() | e.IdentityRestored() as p:
                yield from _identity(stream, p, was)
            case e.SessionDeleted():
                yield Step(stream, e.SessionUndeleted())
            case e.SessionUndeleted():
                yield _deleted_again(stream, before, erase_after_us)
            case _:
                pass
    marks = now.marks
    stopped = marks.suspended is not None and was.marks.suspended is None
    for step in _end(stream, now.end, was.end, stopped=stopped):
        yield step
        marks = marked(marks, step.payload, 0)
    yield from _marks(stream, marks, was.marks)
    if now.title != was.title:
        yield Step(stream, was.title)
    if now.archived != was.archived:
        yield Step(stream, e.SessionArchived() if was.archived else e.SessionUnarchived())
    if now.pinned != was.pinned:
        yield Step(stream, e.SessionPinned() if was.pinned else e.SessionUnpinned())


def _rewound(events: Iterable[Recorded]) -> set[int]:
    """Messages that stand as undone after those events."""
    hidden: set[int] = set()
    for each in events:
        match each.payload:
            case e.MessagesRewound() as p:
                hidden = (hidden | set(p.messages)) - set(p.restored)
            case e.MessagesRestored() as p:
                hidden -= {*p.messages, *p.compacted}
            case e.MessagesCompacted() as p:
                hidden -= set(p.messages)
            case _:
                pass
    return hidden


def _messages(stream: str, saved: Sequence[Recorded], before: Sequence[Recorded]) -> Iterable[Step]:
    said = [each.position for each in saved if isinstance(each.payload, e.MessageAppended)]
    for each in reversed(saved):
        match each.payload:
            case e.MessagesRewound() as p:
                yield Step(stream, taken_back(p))
            case e.MessagesRestored(messages=live, compacted=compacted):
                rewound = _rewound(before)
                back = [each for each in compacted if each in rewound]
                was_live = [each for each in compacted if each not in rewound]
                yield Step(stream, e.MessagesRewound([*live, *back], compacted=back, restored=was_live))
            case e.MessagesCompacted(messages=messages) if said:
                yield Step(stream, e.MessagesRewound(said, restored=list(messages)))
                said = []
            case e.MessagesCompacted(messages=messages):
                yield Step(stream, e.MessagesRestored(list(messages)))
            case _:
                pass


def _identity(stream: str, payload: e.IdentityLost | e.IdentityRestored, was: Was) -> Iterable[Step]:
    now: dict[str, Any] = {column: payload.was.get(column) for column in payload.now}
    had: dict[str, Any] = dict(payload.now)
    if "session_key" in now and was.key is None and was.lost_key is not None:
        lost: dict[str, Any] = {"session_key": was.lost_key}
        if had["session_key"] != was.lost_key:
            yield Step(stream, e.IdentityRestored({"session_key": had["session_key"]}, lost))
        yield Step(stream, e.IdentityLost(had | lost, now))
    else:
        yield Step(stream, e.IdentityRestored(had, now))


def _marks(stream: str, now: Marks, was: Marks) -> Iterable[Step]:
    """The marks that stood before; a stop that did not stand is gone by now."""
    if was.suspended is not None and now.suspended is None:
        stop = e.SessionSuspended("stuck" if was.suspended == "stuck" else "stop", was.restarts)
        yield Step(stream, stop)
        now = marked(now, stop, 0)
    if was.resume is None and now.resume is not None:
        yield Step(stream, e.ResumeCleared("undo"))
    elif was.resume is not None and (now.resume, now.marked_us) != (was.resume, was.marked_us):
        yield Step(stream, e.ResumeMarked(was.resume, was.restarts), was.marked_us)


def _end(stream: str, now: End, was: End, *, stopped: bool) -> Iterable[Step]:
    """The end that stood before, at its own time.

    Args:
        stopped: a stop stands that did not stand before: only an opening takes it back.
    """
    if now == was and not stopped:
        return
    if not was.stands:
        yield Step(stream, e.SessionReopened())
        return
    renamed = now.successor != was.successor
    if stopped or (now.hard and not was.hard and not renamed):
        yield Step(stream, e.SessionReopened())
    if was.reason == COMPRESSION and was.successor is not None and (stopped or renamed):
        yield Step(stream, e.SessionCompressed(was.successor, was.ended_at), was.at_us)
        return
    yield Step(stream, e.SessionEnded(was.reason, was.hard, was.ended_at), was.at_us)


def _deleted_again(stream: str, before: Sequence[Recorded], erase_after_us: int) -> Step:
    deletions = [each.payload for each in before if isinstance(each.payload, e.SessionDeleted)]
    known = deletions[-1] if deletions else e.SessionDeleted("undo", erase_after_us)
    return Step(stream, msgspec.structs.replace(known, erase_after_us=erase_after_us))


def _queued(told: Told) -> Iterable[Step]:
    """What the save cleared waits again; what it moved waits again where it was, and there only."""
    for gone in given_up(told.saved, told.before):
        for was in gone.turns:
            yield Step(gone.stream, again(was))
    moved: dict[str, list[e.TurnQueued]] = {}
    for each in told.saved:
        if isinstance(each.payload, e.TurnQueued) and each.payload.moved_from is not None:
            moved.setdefault(each.stream, []).append(each.payload)
    for stream, queued in moved.items():
        yield Step(stream, e.QueueCleared([each.turn for each in queued], "moved"))
        for payload in queued:
            back = msgspec.structs.replace(payload, moved_from=stream.removeprefix("session:"))
            yield Step(e.session_stream(payload.moved_from or ""), back)


# --- routes and titles -------------------------------------------------------------------------------


def _route(
    stream: str, saved: Sequence[Recorded], before: Sequence[Recorded], position: int
) -> Iterable[Step]:
    was = Led()
    for each in before:
        was = _led(was, each.payload)
    now = was
    for each in saved:
        now = _led(now, each.payload)
    moves = [each.payload for each in saved if isinstance(each.payload, _ROUTES)]
    if not moves:
        return
    key = moves[0].key
    if was.session_id is None:
        if now.session_id is not None:
            yield Step(stream, e.RouteClosed(key, now.session_id, "undo"))
        return
    yield Step(
        stream,
        e.SessionRerouted(
            key,
            was.session_id,
            now.session_id,
            "undo",
            evidence=[f"undoes #{position}"],
            entry=was.entry,
            entry_created_us=was.entry_created_us,
            entry_updated_us=was.entry_updated_us,
        ),
    )


def _led(led: Led, payload: object) -> Led:
    match payload:
        case e.SessionRerouted() as p:
            return Led(p.session_id, p.entry, p.entry_created_us, p.entry_updated_us)
        case e.RouteClosed() | e.ErasedEvent(topic=e.SessionRerouted.topic):
            return Led()
        case _:
            return led


def _title(stream: str, saved: Sequence[Recorded]) -> Iterable[Step]:
    for each in reversed(saved):
        match each.payload:
            case e.TitleClaimed(title=title, session_id=session_id):
                yield Step(stream, e.TitleReleased(title, session_id))
            case e.TitleReleased(title=title, session_id=session_id):
                yield Step(stream, e.TitleClaimed(title, session_id))
            case _:
                pass
