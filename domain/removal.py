"""Deleting a session and taking that back: what is decided on the session alone."""

from __future__ import annotations

from . import events as e
from .errors import RuleBroken, TurnRunning
from .session import Session
from .text import in_one_line

DAY_US = 86_400_000_000
DELETED = "deleted"
"""The reason of a deletion where none is given."""


def delete(
    state: Session,
    *,
    reason: str,
    at_us: int,
    erase_after_us: int,
    messages: int,
    with_parent: str | None = None,
) -> e.SessionDeleted:
    """Delete it; it can be taken back until `erase_after_us`.

    Raises:
        TurnRunning: a turn is under way, whose answer would be lost.
    """
    if state.turns.runs_at(at_us):
        raise TurnRunning(
            state.id,
            turn=state.turns.running or "",
            gateway=state.turns.gateway,
            since_us=state.turns.since_us,
            lease_until_us=state.turns.lease_until_us,
        )
    return e.SessionDeleted(in_one_line(reason) or DELETED, erase_after_us, messages, with_parent)


def undelete(state: Session) -> e.SessionUndeleted:
    """Take the deletion back.

    Raises:
        RuleBroken: it is not deleted.
    """
    if not state.deleted:
        raise RuleBroken(f"session {state.id} is not deleted", hint="nothing was written")
    return e.SessionUndeleted()


def beside() -> e.IdentityRestored:
    """A continuation of what went on without it while it was deleted is a branch of that from now on."""
    return e.IdentityRestored({"parent_kind": "continuation"}, {"parent_kind": "branch"})
