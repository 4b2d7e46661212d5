"""Which saves of a log take back others, and so which of them stand."""

from __future__ import annotations

from collections.abc import Mapping

from ..domain import events as e
from .log import Log


def undos(log: Log, after: int = 0) -> dict[int, int]:
    """By save that came after a position: the save that it takes back.

    An undo names the first position of what it undoes as the cause of each of its events. Two others name a
    cause: what was carried into a source, which its reference to that tells, and the settling of a conflict
    with one, whose cause came from an import, or is an undo that let the conflict stand again.
    """
    found: dict[int, int] = {}
    others = set()
    rows = log.reader().execute(
        "SELECT e.save, e.caused_by, e.topic, c.topic FROM events e JOIN events c ON c.position = e.caused_by"
        " WHERE e.position > ? AND e.source_ref IS NULL AND c.save = c.position AND c.source_ref IS NULL",
        (after,),
    )
    conflict = e.SourceRowChanged.topic
    for save, undone, topic, topic_undone in rows:
        if topic_undone == conflict != topic:
            others.add(save)  # the source's values were taken over
        found[save] = undone
    return {save: undone for save, undone in found.items() if save not in others}


def standing_undo(taken_back: Mapping[int, int], save: int) -> int | None:
    """Of `undos`: the save that took another back, and was not taken back itself."""
    return next((undo for undo, undone in _standing(taken_back) if undone == save), None)


def cancelled(taken_back: Mapping[int, int], after: int) -> frozenset[int]:
    """Of `undos`: saves after a position of which nothing stands, each with the undo that took it back.

    An undo of what came before that position has changed something since, and is none of them.
    """
    pairs = [pair for pair in _standing(taken_back) if min(pair) > after]
    return frozenset(save for pair in pairs for save in pair)


def _standing(taken_back: Mapping[int, int]) -> list[tuple[int, int]]:
    """(undo, what it took back), of undos that were not taken back."""
    gone: set[int] = set()
    stands = []
    for undo in sorted(taken_back, reverse=True):  # what takes an undo back comes after it
        if undo not in gone:
            gone.add(taken_back[undo])
            stands.append((undo, taken_back[undo]))
    return stands
