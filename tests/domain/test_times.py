"""Times are microseconds: what is in another unit is refused with the unit named."""

from __future__ import annotations

import math

import pytest

from retold.domain.errors import BadTime
from retold.domain.times import FIRST_US, LAST_US, time_us


@pytest.mark.parametrize("at_us", [FIRST_US, 1_777_593_600_000_000, LAST_US])
def test_a_time_in_microseconds_is_taken(at_us: int) -> None:
    assert time_us(at_us) == at_us


@pytest.mark.parametrize(
    ("at_us", "unit", "hint"),
    [
        (1_777_593_600, "seconds", "int(1777593600 * 1_000_000)"),
        (1_777_593_600.5, "seconds", "int(1777593600.5 * 1_000_000)"),
        (1_777_593_600_000, "milliseconds", "int(1777593600000 * 1_000)"),
        (1_777_593_600_000_000_000, "nanoseconds", "int(1777593600000000000 // 1_000)"),
    ],
)
def test_a_time_in_another_unit_is_refused_and_the_unit_named(at_us: float, unit: str, hint: str) -> None:
    with pytest.raises(BadTime, match=f"is a time in {unit}, as it seems: times are whole") as told:
        time_us(at_us)

    assert hint in told.value.hint


@pytest.mark.parametrize(
    "at_us",
    [
        *(FIRST_US - 1, LAST_US + 1, 0, 1, -1, 1 << 80),
        *(1_777_593_600_000_000.0, math.nan, math.inf, True, "2026-05-01"),
    ],
)
def test_what_is_no_time_in_any_unit_is_refused(at_us: object) -> None:
    with pytest.raises(BadTime, match="is no time: times are whole microseconds"):
        time_us(at_us)
