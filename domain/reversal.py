"""The reverse of a save: what every stream of it was before, and whether later events build on it.

A save is undone as a whole or not at all. Its reverse is one save of its own, so it can be undone, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from . import events as e
from .built_on import ROUTES, Told, refuse
from .context import taken_back
from .ends import COMPRESSION
from .events import Payload, Recorded
from .marks import Marks
from .marks import evolve as marked
from .requeuing import again, given_up, queued_again
from .settling import put_back
from .stood import End, Led, Was, after, led_after, was_after


class Step(msgspec.Struct, frozen=True):
    """One event of the reverse; `at_us` where it tells of a time that had been, `caused_by` where that is
    not the save that is undone."""

    stream: str
    payload: Payload
    at_us: int | None = None
    caused_by: int | None = None


def reverse(told: Told, *, erase_after_us: int) -> list[Step]:
    """The events that put everything back to what it was before the save.

    Args:
        erase_after_us: when a session that the save began is erased for good.

    Raises:
        NotUndoable: the save holds what cannot be taken back. BuiltOn: later events rest on it.
    """
    refuse(told)
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


# --- sessions ----------------------------------------------------------------------------------------


def _session(
    stream: str, saved: Sequence[Recorded], before: Sequence[Recorded], erase_after_us: int
) -> Iterable[Step]:
    if isinstance(saved[0].payload, e.SessionCreated):
        yield Step(stream, e.SessionDeleted("undo", erase_after_us))
        return
    was = was_after(before)
    now = was
    for each in saved:
        now = after(now, each)
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
        was = led_after(was, each.payload)
    now = was
    for each in saved:
        now = led_after(now, each.payload)
    moves = [each.payload for each in saved if isinstance(each.payload, ROUTES)]
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


def _title(stream: str, saved: Sequence[Recorded]) -> Iterable[Step]:
    for each in reversed(saved):
        match each.payload:
            case e.TitleClaimed(title=title, session_id=session_id):
                yield Step(stream, e.TitleReleased(title, session_id))
            case e.TitleReleased(title=title, session_id=session_id):
                yield Step(stream, e.TitleClaimed(title, session_id))
            case _:
                pass
