"""Which ends of a session are final, and which one holds when two arrive."""

from __future__ import annotations

from typing import Final

RESET: Final = frozenset(
    {
        "session_reset",
        "session_switch",
        "idle",
        "daily",
        "suspended",
        "resume_pending_expired",
    }
)
"""Ends that a reset or a switch of the chat writes; each fences off what came before it."""

SWITCH: Final = "session_switch"
"""A person went to another session of the chat (/resume, or a handoff took the chat)."""

SESSION_RESET: Final = "session_reset"
"""The chat began anew, by a person's word or a policy's; which one, the SessionReset event says."""

COMPRESSION: Final = "compression"

HARD: Final = RESET | {"new_session"}
"""Boundaries: only a person's own resume or undo opens such a session again."""

SUPERSEDED: Final = "superseded_by_repair"
"""A repair gave what the session had led the chat to, its key, to another: it takes the place of any end."""

SETTLED: Final = frozenset({SUPERSEDED, "orphaned_compression", "cron_complete", "webhook_complete"})
"""Ends of what was done, or taken over by another: soft, yet no message brings such a session back."""


def is_hard(reason: str | None) -> bool:
    """Whether an end is final. Not ended, and every reason not known here, is soft."""
    return reason in HARD


def is_compression(reason: str | None) -> bool:
    """Whether the session goes on in a continuation."""
    return reason == COMPRESSION


def is_reset(reason: str | None) -> bool:
    """Whether the end is a reset proper: hard, and not merely a switch to another session."""
    return is_hard(reason) and reason != SWITCH


def stronger(first: str | None, second: str | None) -> str | None:
    """The reason that holds when a session that ended by `first` is ended by `second` again.

    Hard beats soft whichever comes first; of two of a kind the first wins. A compressed session is
    neither: its continuation exists, so no later end takes its place, and it takes a soft one's.
    """
    if first is None or second is None:
        return second if first is None else first
    if is_hard(first) or is_compression(first):
        return first
    return second if is_hard(second) or is_compression(second) else first
