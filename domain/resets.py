"""When a chat begins anew by itself: the policy, the moment from which it is due, and what is said of it.

Judged on recorded activity alone (what a user or the assistant said), never on when a program was
started or an index told again: whoever asks, however often, gets the same answer (FIELD_CASES H1, H11).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, Literal, TypeAlias

import msgspec

from . import events as e
from .session import Session

Mode: TypeAlias = Literal["none", "idle", "daily", "both", "daily_and_idle", "daily-and-idle"]
MINUTE_US: Final = 60_000_000
_DAY: Final = timedelta(days=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Policy(msgspec.Struct, frozen=True):
    """A reset policy, every value settled.

    Attributes:
        mode: none; idle; daily; both (whichever comes first); daily_and_idle (once both have come).
        at_hour: the hour of the daily reset in the configured zone, 0 to 23.
        idle_minutes: how long a chat must have been silent.
        notify: whether the people in the chat are told.
        notify_exclude_platforms: platforms where nobody is told.
        bg_process_max_age_hours: how long work in the background holds a reset up.
    """

    mode: Mode = "none"
    at_hour: int = 4
    idle_minutes: float = 1440
    notify: bool = True
    notify_exclude_platforms: tuple[str, ...] = ("api_server", "webhook")
    bg_process_max_age_hours: float = 24


def settled(*levels: Mapping[str, object] | None) -> Policy:
    """The policy of a chat from its levels, the strongest first; what one leaves open the next one says."""
    values: dict[str, object] = {}
    for level in reversed(levels):
        values |= level or {}
    return msgspec.convert(values, Policy)


class Due(msgspec.Struct, frozen=True):
    """A reset that is due, with the numbers that say why.

    Attributes:
        last_active_us: the activity that was judged.
        boundary_us: from when it was due; None where no clock decided.
        deferred: a turn was running at that moment, so that it had to wait.
    """

    rule: e.ResetRule
    last_active_us: int | None = None
    boundary_us: int | None = None
    idle_minutes: float | None = None
    at_hour: int | None = None
    zone: str | None = None
    deferred: bool = False


class Zone(msgspec.Struct, frozen=True):
    """The zone that days are counted in: its IANA name, None for the machine's own."""

    name: str | None = None
    of: tzinfo | None = None


def due(
    policy: Policy,
    *,
    last_active_us: int,
    now_us: int,
    zone: Zone,
    turn: tuple[int, int] | None = None,
) -> Due | None:
    """Which reset is due now, None where none is (REFERENCE.md 7.4).

    Idle: more than `idle_minutes` have passed since the last activity. Daily: the last activity was
    before the latest boundary. Both bounds are strict.

    Args:
        last_active_us: the latest message of a user or the assistant, else the session's beginning.
        turn: when the latest turn that is over began and ended. What it said counts as said when it
            began: a turn that ran through the boundary only put the daily reset off.
    """
    if policy.mode == "none":
        return None
    idle_us = last_active_us + round(policy.idle_minutes * MINUTE_US)
    counted_us = last_active_us
    if turn is not None and turn[0] <= last_active_us <= turn[1]:
        counted_us = turn[0]
    daily_us = now_us
    if policy.mode != "idle":
        daily_us = next_boundary(counted_us, policy.at_hour, zone.of)
    is_idle, is_daily = now_us > idle_us, daily_us <= now_us and policy.mode != "idle"
    rule: e.ResetRule
    if policy.mode in ("daily_and_idle", "daily-and-idle"):
        rule, boundary_us, holds = "daily_and_idle", max(idle_us, daily_us), is_idle and is_daily
    elif policy.mode in ("idle", "both") and is_idle:
        rule, boundary_us, holds = "idle", idle_us, True
    else:
        rule, boundary_us, holds = "daily", daily_us, is_daily
    if not holds:
        return None
    return Due(
        rule=rule,
        last_active_us=last_active_us,
        boundary_us=boundary_us,
        idle_minutes=None if rule == "daily" else float(policy.idle_minutes),
        at_hour=None if rule == "idle" else policy.at_hour,
        zone=None if rule == "idle" else zone.name,
        deferred=turn is not None and turn[0] < boundary_us <= turn[1],
    )


def next_boundary(after_us: int, at_hour: int, zone: tzinfo | None) -> int:
    """The first daily boundary after a moment: once each local day, when its clock first shows the hour.

    On the day that skips the hour it is the first moment after the gap; on the day that has the hour
    twice, the first of the two. A day that a zone left out altogether has none.

    Args:
        zone: None for the machine's own.
    """
    day = _local(after_us, zone).date() - _DAY
    while True:
        boundary_us = _boundary(day, at_hour, zone)
        if boundary_us > after_us and _local(boundary_us, zone).date() == day:
            return boundary_us
        day += _DAY


def _boundary(day: date, at_hour: int, zone: tzinfo | None) -> int:
    wall = datetime(day.year, day.month, day.day, at_hour)  # noqa: DTZ001  # its zone comes next
    early, late = (_instant(wall, zone, fold) for fold in (1, 0))
    if _local(late, zone) == wall:
        return late  # of an hour that comes twice, fold 0 is the first
    while late - early > 1:  # the hour is skipped: the clock jumps over it between the two
        middle = (early + late) // 2
        if _local(middle, zone) >= wall:
            late = middle
        else:
            early = middle
    return late


def _instant(wall: datetime, zone: tzinfo | None, fold: int) -> int:
    return int(wall.replace(tzinfo=zone, fold=fold).timestamp()) * 1_000_000


def _local(at_us: int, zone: tzinfo | None) -> datetime:
    """What a clock shows, without its zone and fold."""
    shown = (_EPOCH + at_us * _MICROSECOND).astimezone(zone)
    return shown.replace(tzinfo=None, fold=0)


# --- what becomes of it --------------------------------------------------------------------------

CAUSES: Final[dict[e.ResetRule, e.Cause]] = {
    "person": "reset",
    "idle": "idle",
    "daily": "daily",
    "daily_and_idle": "daily",
    "suspended": "suspended",
    "resume_expired": "resume_expired",
}
"""Why a key leads elsewhere after a reset by this rule."""

RESETS: Final = frozenset(CAUSES.values())
"""Causes of a route that a reset wrote."""


def reset_of(state: Session, due: Due, *, successor: str | None, had_activity: bool) -> e.SessionReset | None:
    """The end for good that a reset writes; None where one stands, or a continuation took over."""
    if state.hard_end or state.successor is not None:
        return None
    return e.SessionReset(
        rule=due.rule,
        successor=successor,
        last_active_us=due.last_active_us,
        boundary_us=due.boundary_us,
        idle_minutes=due.idle_minutes,
        at_hour=due.at_hour,
        zone=due.zone,
        had_activity=had_activity,
        deferred=due.deferred,
    )


def notice(policy: Policy, platform: str, reset: e.SessionReset) -> str | None:
    """What the people in the chat are told with the next answer; None where nothing is to be said.

    Nothing of a reset that a person asked for. Of a timed one where the policy says so, the platform
    is not left out and there was something to clear. Of a session that was stopped, always.
    """
    if reset.rule == "person":
        return None
    if reset.rule not in ("suspended", "resume_expired"):
        wanted = policy.notify and platform not in policy.notify_exclude_platforms
        if not wanted or not reset.had_activity:
            return None
    return (
        f"◐ Session automatically reset ({reason(reset)}). Conversation history cleared.\n"
        "Earlier sessions are kept: /resume lists them and goes back to one.\n"
        "When this happens is set under session_reset in config.yaml."
    )


def note(reset: e.SessionReset) -> str | None:
    """What the model is told of a reset that nobody asked for, with the first message after it."""
    if reset.rule == "person":
        return None
    return f"[System note: this conversation is new; the one before it was reset ({reason(reset)}).]"


def reason(reset: e.SessionReset) -> str:
    """Why a chat was reset, with the numbers of the rule that did it."""
    match reset.rule:
        case "idle":
            return _idle(reset)
        case "daily":
            return _daily(reset)
        case "daily_and_idle":
            return f"{_daily(reset)}, {_idle(reset)}"
        case "suspended":
            return "previous session was stopped or interrupted"
        case "resume_expired":
            return "gateway restart recovery timed out"
        case "person":
            return "somebody in the chat asked for it"


def _idle(reset: e.SessionReset) -> str:
    hours, minutes = divmod(reset.idle_minutes or 0, 60)
    words = [f"{hours:g}h"] if hours else []
    words += [f"{minutes:g}m"] if minutes or not hours else []
    return f"inactive for {' '.join(words)}"


def _daily(reset: e.SessionReset) -> str:
    return f"daily schedule at {reset.at_hour}:00"
