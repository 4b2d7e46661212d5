"""Times as exports write them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(value: object) -> str:
    """Seconds since the epoch in UTC, with a fraction where there is one; "" for what is no time."""
    when = _moment(value)
    return "" if when is None else when.isoformat().replace("+00:00", "Z")


def seconds_iso(value: object) -> str | None:
    """The same in whole seconds; None for what is no time."""
    when = _moment(value)
    return None if when is None else when.isoformat(timespec="seconds").replace("+00:00", "Z")


def _moment(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
