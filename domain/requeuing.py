"""What a save took out of a queue for good, and what waits again once that save is undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from . import events as e
from . import turns
from .events import Recorded
from .turns import Turns, Waiting

Why = Literal["reset", "person", "deleted"]


class GivenUp(NamedTuple):
    """What a save cleared in one session: the turns that waited, in order, and ids whose words are gone."""

    stream: str
    session_id: str
    turns: tuple[Waiting, ...]
    erased: tuple[str, ...]


def given_up(saved: Sequence[Recorded], before: Mapping[str, Sequence[Recorded]]) -> Iterator[GivenUp]:
    """What the events of a save cleared; what they moved to another session is not given up.

    Args:
        before: by stream, what it held before the save, messages left out.
    """
    for each in saved:
        if isinstance(each.payload, e.QueueCleared) and each.payload.why != "moved":
            state = Turns()
            for earlier in (*before[each.stream], *saved):
                if earlier.stream == each.stream and earlier.position < each.position:
                    state = turns.evolve(state, earlier.payload, earlier.at_us)
            gone = set(each.payload.turns)
            waited = tuple(turn for turn in state.waiting if turn.turn in gone)
            erased = sorted(gone - {turn.turn for turn in waited})
            yield GivenUp(each.stream, each.session_id, waited, tuple(erased))


def again(waited: Waiting) -> e.TurnQueued:
    """What had waited and was given up, queued again where it was."""
    return e.TurnQueued(waited.turn, waited.text, waited.lane, about=waited.about)


def given_up_as(turn: str, before: Sequence[Recorded]) -> Why | None:
    """Why a turn had been given up in a session before; None where it had not: it is no turn of an undo."""
    for each in reversed(before):
        payload = each.payload
        if isinstance(payload, e.QueueCleared) and turn in payload.turns and payload.why != "moved":
            return payload.why
    return None


def queued_again(saved: Sequence[Recorded], before: Mapping[str, Sequence[Recorded]]) -> list[e.QueueCleared]:
    """Nothing of what an undo queued again waits once that undo is undone."""
    found: dict[Why, list[str]] = {}
    for each in saved:
        if isinstance(each.payload, e.TurnQueued) and each.payload.moved_from is None:
            why = given_up_as(each.payload.turn, before[each.stream])
            if why is not None:
                found.setdefault(why, []).append(each.payload.turn)
    return [e.QueueCleared(gone, why) for why, gone in found.items()]


def takes(later: object, turn: str) -> bool:
    """Whether an event took a turn out of the queue."""
    match later:
        case e.TurnStarted():
            return later.turn == turn
        case e.QueueCleared():
            return turn in later.turns
        case e.SessionCompressed():
            return True
        case _:
            return False
