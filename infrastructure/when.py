"""Reading a point to look from: a position (#120), an instant (ISO 8601) or an age (2d)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from ..domain.errors import BadUsage

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_POSITION = re.compile(r"#?(\d{1,18})(?::[0-9a-f]+)?", re.ASCII)
_UNITS_S = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
    **dict.fromkeys(("w", "week", "weeks"), 604800),
}
_MINUTE_US = 60_000_000
FORMS = "give a position like #120, a time like 2026-05-08T14:30, or an age like 2d"


class Point(msgspec.Struct, frozen=True):
    """A point to look from: what this log said at a position, or what had happened by a time."""

    position: int | None = None
    at_us: int | None = None


def parse_point(text: str, *, now_us: int, zone: tzinfo | None = None, whole_minutes: bool = False) -> Point:
    """Read `#120`, an ISO 8601 instant (without an offset: in `zone`, else local time), or `2d`.

    Args:
        whole_minutes: an age of a minute or more is taken from the minute that it falls in, so that who
            asks twice is given one answer.

    Raises:
        BadUsage: it is none of them.
    """
    given = text.strip()
    if given.startswith("#"):
        match = _POSITION.fullmatch(given)
        if match:
            return Point(position=int(match[1]))
        raise BadUsage(f"'{text}' is no position", hint=FORMS)
    match = _AGE.fullmatch(given)
    if match and match[2].lower() in _UNITS_S:
        try:
            age = timedelta(seconds=float(match[1]) * _UNITS_S[match[2].lower()])
            at_us = now_us - round(age.total_seconds() * 1e6)
            if whole_minutes and age >= timedelta(minutes=1):
                at_us -= at_us % _MINUTE_US
            return Point(at_us=at_us)
        except OverflowError:
            pass
    try:
        when = datetime.fromisoformat(given)
        if when.tzinfo is None:
            when = when.replace(tzinfo=zone) if zone is not None else when.astimezone()
        return Point(at_us=(when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
    except (ValueError, OverflowError, OSError):
        raise BadUsage(f"'{text}' is neither a position nor a time", hint=FORMS) from None
