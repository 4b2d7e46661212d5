"""What maintenance may delete or end by itself: conversations that have been silent for long enough."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from .errors import BadUsage

DAY_US: Final = 86_400_000_000
SWEPT: Final = frozenset({"cli", "cron", "kanban", "acp", "api", "api_server", "subagent", "tool", "webhook"})
"""Sources whose sessions end with their process; one that is open and silent was left so by a crash."""
SWEPT_REASON: Final = "startup_orphan_reap"
MAX_DAYS: Final = 36_500


class Segment(msgspec.Struct, frozen=True):
    """One session of a conversation.

    Attributes:
        ended: an end stands, or it goes on in another segment.
        last_us: the newest of its start, its messages, its turns and its end.
    """

    session_id: str
    ended: bool
    pinned: bool
    last_us: int


def refuse_no_retention(days: float) -> None:
    """What was used a moment ago is never due: a conversation is kept for some time, and not for ever.

    Raises:
        BadUsage: it is no number of days above 0, or more than a hundred years.
    """
    if not 0 < days <= MAX_DAYS:
        raise BadUsage(
            f"retention_days may be a number of days above 0 and up to {MAX_DAYS}, not {days}",
            hint="nothing was deleted",
        )


def is_stale(end_reason: str | None, last_us: int, now_us: int, after_days: float) -> bool:
    """Whether an open session is silent for longer than that: nobody may ever end it (FIELD_CASES F7)."""
    return end_reason is None and now_us - last_us > after_days * DAY_US


def why_kept(conversation: Iterable[Segment], cut_us: int, *, include_pinned: bool = False) -> str | None:
    """Why a conversation is not pruned; None where it is.

    It goes as a whole or not at all (FIELD_CASES F1), by its newest activity (F2). Activity at exactly
    `cut_us` keeps it. A pin keeps it unless pinned ones are asked for (F4); a segment that is open does in
    any case.
    """
    segments = list(conversation)
    if max(each.last_us for each in segments) >= cut_us:
        return "active since"
    if not include_pinned and any(each.pinned for each in segments):
        return "pinned"
    if not all(each.ended for each in segments):
        return "open"
    return None


def is_due(last_us: int | None, now_us: int, interval_us: float) -> bool:
    """Whether something is to run again. What never ran is due, and so is what is said to have run later
    than now: such a stamp is worth nothing."""
    return last_us is None or last_us > now_us or now_us - last_us >= interval_us


def is_worth_a_vacuum(free_pages: int, pages: int, *, least: float = 0.25) -> bool:
    """Whether more than a quarter of a file is free."""
    return pages > 0 and free_pages / pages > least
