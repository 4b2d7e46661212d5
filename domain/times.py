"""What a caller may give for a time: microseconds since the Unix epoch, UTC, and no other unit of it."""

from __future__ import annotations

from typing import Final

from .errors import BadTime

FIRST_US: Final = 978_307_200_000_000
"""The beginning of 2001. Whatever is later in seconds or milliseconds is earlier if taken for microseconds.

A command is refused older times; an import keeps what its source says."""
LAST_US: Final = 253_000_000_000_000_000
"""In the year 9987, near the end of what calendars have."""
_SOON_US: Final = 4_102_444_800_000_000
"""The beginning of 2100: what a number in another unit is guessed by."""
_UNITS: Final = {"seconds": 1_000_000.0, "milliseconds": 1_000.0, "nanoseconds": 0.001}
_THEY_ARE: Final = "times are whole microseconds since the Unix epoch, UTC"
_HOW: Final = {"seconds": "* 1_000_000", "milliseconds": "* 1_000", "nanoseconds": "// 1_000"}


def time_us(at_us: object) -> int:
    """A time that a caller gave.

    Raises:
        BadTime: it cannot be in microseconds; names the unit that it looks to be in.
    """
    if type(at_us) is int and FIRST_US <= at_us <= LAST_US:
        return at_us
    unit = _looks_like(at_us)
    if unit is not None:
        raise BadTime(
            f"{at_us!r} is a time in {unit}, as it seems: {_THEY_ARE}",
            hint=f"give int({at_us!r} {_HOW[unit]}); nothing was written",
        )
    raise BadTime(
        f"{at_us!r} is no time: {_THEY_ARE}, from 2001 on",
        hint="int(datetime.timestamp() * 1_000_000) of a datetime with its zone; nothing was written",
    )


def _looks_like(at_us: object) -> str | None:
    if isinstance(at_us, bool) or not isinstance(at_us, (int, float)):
        return None
    return next((unit for unit, times in _UNITS.items() if FIRST_US <= at_us * times <= _SOON_US), None)
