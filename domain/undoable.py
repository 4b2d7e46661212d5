"""Which saves can be undone at all: why one cannot, in a sentence, and what can be done instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from . import events as e
from .events import Recorded
from .shell import shell_word

_HANDOFFS = (e.HandoffRequested, e.HandoffClaimed, e.HandoffCompleted, e.HandoffFailed)


class Reason(NamedTuple):
    """Why a save cannot be undone."""

    message: str
    hint: str


def why_not(name: str, saved: Sequence[Recorded]) -> Reason | None:
    """What of the kind of its events stands in the way of undoing a save; None where nothing does.

    Args:
        name: what the save is called.
    """
    copied = {each.stream for each in saved if isinstance(each.payload, e.MessageAppended)}
    for each in saved:
        payload = each.payload
        if each.source_ref is not None or isinstance(payload, e.ImportRan):
            return Reason(
                f"{name} came from an import, which cannot be undone",
                "change it in the store that it came from, and import again",
            )
        if isinstance(payload, e.ErasedEvent):
            return Reason(f"{name} was erased (#{each.position}): nothing is left to be put back", "")
        if isinstance(payload, e.UnknownEvent):
            return Reason(f"{name} holds an event of a newer program (#{each.position})", "upgrade retold")
        if (
            isinstance(payload, e.SessionCreated)
            and payload.parent_kind == "branch"
            and each.stream in copied
        ):
            branch = shell_word(each.session_id)
            return Reason(
                f"{name} made the branch {each.session_id}, which cannot be undone",
                f"the branch can be deleted: retold sessions delete {branch}; and the chat led elsewhere:"
                " retold sessions route CHAT SESSION",
            )
        if isinstance(payload, _HANDOFFS):
            return Reason(
                f"{name} handed a conversation over, which cannot be undone (#{each.position})",
                "the chat can be led elsewhere: retold sessions route CHAT SESSION",
            )
    return None
