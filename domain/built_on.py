"""What stands in the way of an undo: what no reverse takes back, and later events that build on the save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from . import events as e
from .errors import BuiltOn, NotUndoable
from .events import Payload, Recorded
from .requeuing import given_up_as, takes
from .settling import is_same_row, is_settling
from .stood import was_after
from .undoable import why_not

_TITLES: Final = (e.TitleClaimed, e.TitleReleased)
_ARCHIVES: Final = (e.SessionArchived, e.SessionUnarchived)
_PINS: Final = (e.SessionPinned, e.SessionUnpinned)
_ENDS: Final = (e.SessionEnded, e.SessionReset, e.SessionReopened)
ROUTES: Final = (e.SessionRerouted, e.RouteClosed)
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
    (e.SessionReopened,): (*_ENDS, e.SessionCompressed, e.MessageAppended, e.SessionSuspended),
    (e.SessionCompressed,): (*_ENDS, e.SessionCompressed),
    ROUTES: ROUTES,
    _IDENTITIES: (*_IDENTITIES, e.SessionCompressed),
    _SHOWN: (*_SHOWN, e.MessageAppended, e.SessionCompressed),
    _DELETIONS: (*_DELETIONS, e.PayloadsErased),
    (e.SessionSuspended,): (e.SessionSuspended, *_ENDS, e.SessionCompressed),
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
_NAMED: Final = 5


class Told(msgspec.Struct, frozen=True):
    """A save, and what came before and after it.

    Attributes:
        saved: its events in order.
        before: by stream, what it held before, messages left out.
        after: by stream, what came later, messages among it; also of sessions that a key was led to. Of
            saves that were undone since it holds nothing, nor of their undos: nothing of them stands.
        undo: the save that took this one back, and stands; None where none does.
    """

    saved: Sequence[Recorded]
    before: Mapping[str, Sequence[Recorded]]
    after: Mapping[str, Sequence[Recorded]]
    undo: int | None = None

    @property
    def position(self) -> int:
        """The save's first position: its name."""
        return self.saved[0].position


def refuse(told: Told) -> None:
    """Refuse what cannot be undone.

    Raises:
        NotUndoable: the save holds what cannot be taken back. BuiltOn: later events rest on it.
    """
    _refuse_kinds(told)
    _refuse_erased(told)
    _refuse_built_on(told)


def _refuse_kinds(told: Told) -> None:
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
        if (
            isinstance(payload, e.SessionCompressed)
            and was_after(told.before[each.stream]).end.successor is None
        ):
            known = False
        if not known:
            raise NotUndoable(
                f"{name} holds what cannot be undone: #{each.position} {each.topic.partition('.')[0]}",
                hint="titles, archive, pins, ends, stops, resets, routes, rewinds, repairs and deletions can",
            )


def _refuse_built_on(told: Told) -> None:
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
    if told.undo is not None:
        raise BuiltOn(
            f"the save of #{told.position} was undone already, by #{told.undo}",
            positions=tuple(sorted(built)) or (told.undo,),
            hint=f"nothing was written; this takes that undo back: retold undo {told.undo}",
        )
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


def _is_given_up(payload: object) -> bool:
    return isinstance(payload, e.QueueCleared) and payload.why != "moved"
