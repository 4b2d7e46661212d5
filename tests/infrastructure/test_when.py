"""A point to look from is read as a person means it, or refused with the forms there are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from retold.domain.errors import BadUsage
from retold.infrastructure.when import Point, parse_point

NOW_US = 1_778_250_600_000_000  # 2026-05-08T14:30:00Z
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | timezone | None = None) -> Point:
    return parse_point(text, now_us=NOW_US, zone=zone)


def us(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc,arg-type]  # year, month, day, …


@pytest.mark.parametrize(("text", "position"), [("#1", 1), (" #120 ", 120), ("#0", 0), ("#91:00ff", 91)])
def test_a_position(text: str, position: int) -> None:
    assert at(text) == Point(position=position)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2d", 172_800),
        ("90 min", 5_400),
        ("1.5h", 5_400),
        ("0s", 0),
        ("3w", 1_814_400),
        ("1 Day", 86_400),
        ("30 seconds", 30),
    ],
)
def test_an_age_counts_back_from_now(text: str, seconds: int) -> None:
    assert at(text) == Point(at_us=NOW_US - seconds * 1_000_000)


@pytest.mark.parametrize(
    "text", ["2026-05-08T14:30:00Z", "2026-05-08T16:30:00+02:00", "2026-05-08 14:30Z", "20260508T143000Z"]
)
def test_an_instant_with_its_offset_is_that_instant_in_every_zone(text: str) -> None:
    assert at(text) == at(text, BERLIN) == Point(at_us=NOW_US)


def test_a_time_without_an_offset_is_of_the_zone_that_is_configured_else_local() -> None:
    assert at("2026-05-08T16:30", BERLIN) == Point(at_us=NOW_US)
    assert at("2026-05-08T14:30") == Point(at_us=NOW_US)  # tests run in UTC
    assert at("2026-05-08", BERLIN) == Point(at_us=us(2026, 5, 7, 22))


def test_microseconds_are_kept() -> None:
    assert at("2026-05-08T14:30:00.000001Z") == Point(at_us=NOW_US + 1)
    assert at("1969-12-31T23:59:59.999999Z") == Point(at_us=-1)


def test_a_time_that_happens_twice_is_the_first_and_one_that_never_happens_is_read_on() -> None:
    assert at("2026-10-25T02:30", BERLIN) == Point(at_us=us(2026, 10, 25, 0, 30))
    assert at("2026-03-29T02:30", BERLIN) == Point(at_us=us(2026, 3, 29, 1, 30))


@pytest.mark.parametrize("zone", [timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))])
def test_the_ends_of_the_calendar_are_no_traceback(zone: timezone) -> None:
    for text in ("0001-01-01", "9999-12-31T23:59:59"):
        try:
            found = at(text, zone)
        except BadUsage:
            continue
        assert found.at_us is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#",
        "#x",
        "#-1",
        "# 5",
        "#1234567890123456789012",
        "yesterday",
        "2 fortnights",
        "5",
        "d",
        "-2d",
        "1e3d",
        "9" * 400 + "d",
        "99999999999999999d",
        "2026-13-01",
        "2026-02-30",
        "25:00",
        "٢d",
        "\0",
        "2d\n3d",
    ],
)
def test_anything_else_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(BadUsage) as refused:
        at(text)

    assert "like #120" in refused.value.hint


def test_an_age_in_whole_minutes_is_the_same_for_a_minute() -> None:
    minute = 60_000_000
    now = 1_778_000_000_000_000 // minute * minute
    early = parse_point("2d", now_us=now + 1, whole_minutes=True)
    late = parse_point("2d", now_us=now + minute - 1, whole_minutes=True)

    assert early == late == parse_point("2d", now_us=now)
    assert parse_point("30s", now_us=now + 7, whole_minutes=True) == parse_point("30s", now_us=now + 7)
