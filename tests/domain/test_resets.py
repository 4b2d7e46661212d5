"""When a chat begins anew by itself, held against a clock that is watched minute by minute."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retold.domain import events as e
from retold.domain.holds import Hold, blocking
from retold.domain.resets import (
    CAUSES,
    Due,
    Mode,
    Policy,
    Zone,
    due,
    next_boundary,
    note,
    notice,
    reason,
    reset_of,
    settled,
)
from retold.domain.session import Session

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
BANGKOK = Zone("Asia/Bangkok", ZoneInfo("Asia/Bangkok"))
NIGHTS = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2024-03-10", "2024-11-03"),
    "Australia/Lord_Howe": ("2026-10-04", "2026-04-05"),  # by half an hour
    "Africa/Cairo": ("2026-04-24", "2026-10-30"),  # at midnight
    "America/Santiago": ("2026-09-06", "2026-04-05"),  # back into the day before
    "Antarctica/Troll": ("2026-03-29", "2026-10-25"),  # by two hours
    "Asia/Bangkok": ("2026-01-01",),
    "UTC": ("2026-07-01",),
}
"""Nights on which clocks are changed, by zone."""


def us(text: str, zone: str = "UTC", fold: int = 0) -> int:
    """A moment in microseconds, by what a clock of the zone shows."""
    wall = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return round(wall.timestamp()) * 1_000_000


nights = st.sampled_from([(zone, night) for zone, found in NIGHTS.items() for night in found])


def watched(zone: str, at_hour: int, from_us: int, to_us: int) -> list[int]:
    """Every boundary in a stretch of time: the first minute of a day at which its clock shows the hour."""
    of = ZoneInfo(zone)
    seen: set[date] = set()
    found = []
    at = datetime.fromtimestamp(from_us // 1_000_000, UTC) - timedelta(days=2)
    at = at.replace(second=0)
    while round(at.timestamp()) * 1_000_000 <= to_us:
        local = at.astimezone(of)
        if local.hour >= at_hour and local.date() not in seen:
            seen.add(local.date())
            found.append(round(at.timestamp()) * 1_000_000)
        at += timedelta(minutes=1)
    return [each for each in found[1:] if each > from_us]  # the first may have begun before the watch


@given(nights, st.integers(0, 23), st.integers(-30 * 60, 30 * 60), st.integers(0, 59))
@example(("Antarctica/Troll", "2026-03-29"), 2, -600, 0)
@example(("Africa/Cairo", "2026-04-24"), 0, -600, 0)
@example(("America/Santiago", "2026-04-05"), 23, -600, 0)
def test_a_boundary_is_the_first_moment_of_a_day_at_which_its_clock_shows_the_hour(
    night: tuple[str, str], at_hour: int, minutes: int, seconds: int
) -> None:
    zone, day = night
    after_us = us(day, zone) + minutes * MINUTE + seconds * 1_000_000

    expected = watched(zone, at_hour, after_us, after_us + 2 * DAY)[0]

    assert next_boundary(after_us, at_hour, ZoneInfo(zone)) == expected


@given(
    nights,
    st.sampled_from(["idle", "daily", "both", "daily_and_idle"]),
    st.integers(0, 23),
    st.integers(1, 2000),
    st.integers(-26 * 60, 26 * 60),
    st.integers(0, 30 * 60),
    st.integers(-1, 1),
)
def test_the_policy_is_that_of_a_clock_that_is_watched(
    night: tuple[str, str], mode: Mode, at_hour: int, idle: int, last: int, silent: int, off_us: int
) -> None:
    zone, day = night
    last_us = us(day, zone) + last * MINUTE
    now_us = last_us + silent * MINUTE + off_us
    boundaries = [each for each in watched(zone, at_hour, last_us, now_us) if each <= now_us]
    is_idle, is_daily = now_us > last_us + idle * MINUTE, bool(boundaries)

    found = due(
        Policy(mode, at_hour=at_hour, idle_minutes=idle),
        last_active_us=last_us,
        now_us=now_us,
        zone=Zone(zone, ZoneInfo(zone)),
    )

    expected = {
        "idle": "idle" if is_idle else None,
        "daily": "daily" if is_daily else None,
        "both": "idle" if is_idle else "daily" if is_daily else None,
        "daily_and_idle": "daily_and_idle" if is_idle and is_daily else None,
    }[mode]
    assert (found.rule if found else None) == expected
    if found is not None:
        moments = {"idle": last_us + idle * MINUTE, "daily": boundaries[0] if boundaries else 0}
        moments["daily_and_idle"] = max(moments.values())
        assert found.boundary_us == moments[found.rule]
        assert last_us < moments[found.rule] <= now_us
        assert not found.deferred


@pytest.mark.parametrize(
    ("day", "at_hour", "boundary"),
    [
        ("2024-03-10", 2, "2024-03-10T07:00"),  # 02:00 does not exist: 03:00 EDT
        ("2024-03-10", 3, "2024-03-10T07:00"),
        ("2024-11-03", 1, "2024-11-03T05:00"),  # 01:00 comes twice: the first, EDT
        ("2024-11-03", 2, "2024-11-03T07:00"),
    ],
)
def test_the_hour_that_does_not_exist_and_the_hour_that_comes_twice_reset_once_each(
    day: str, at_hour: int, boundary: str
) -> None:
    zone = ZoneInfo("America/New_York")
    midnight = us(day, "America/New_York")

    first = next_boundary(midnight - 1, at_hour, zone)

    assert first == us(boundary)
    assert next_boundary(first, at_hour, zone) > first + 22 * HOUR


def test_a_day_that_a_zone_left_out_has_no_boundary() -> None:
    """Samoa went from 29 to 31 December 2011."""
    samoa = ZoneInfo("Pacific/Apia")

    assert next_boundary(us("2011-12-29T05:00", "Pacific/Apia"), 4, samoa) == us(
        "2011-12-31T04:00", "Pacific/Apia"
    )


def test_h4_the_boundary_is_in_the_configured_zone_and_stands_in_the_event() -> None:
    policy = Policy("daily", at_hour=4)
    before, after = us("2026-05-05T03:59", "Asia/Bangkok"), us("2026-05-05T04:01", "Asia/Bangkok")

    found = due(policy, last_active_us=before, now_us=after, zone=BANGKOK)

    assert found == Due(
        "daily", before, us("2026-05-05T04:00", "Asia/Bangkok"), at_hour=4, zone="Asia/Bangkok"
    )
    assert due(policy, last_active_us=after, now_us=us("2026-05-05T04:01"), zone=BANGKOK) is None


def test_both_bounds_are_strict() -> None:
    idle, daily = Policy("idle", idle_minutes=60), Policy("daily", at_hour=4)
    four = us("2026-05-05T04:00")
    utc = Zone("UTC", UTC)

    assert due(idle, last_active_us=0, now_us=60 * MINUTE, zone=utc) is None
    assert due(idle, last_active_us=0, now_us=60 * MINUTE + 1, zone=utc) is not None
    assert due(daily, last_active_us=four, now_us=four, zone=utc) is None
    assert due(daily, last_active_us=four - 1, now_us=four - 1, zone=utc) is None
    assert due(daily, last_active_us=four - 1, now_us=four, zone=utc) is not None


@given(st.integers(0, 10**17), st.integers(0, 10**17))
def test_h3_mode_none_never_resets(last_us: int, now_us: int) -> None:
    assert due(Policy("none"), last_active_us=last_us, now_us=now_us, zone=BANGKOK) is None


def test_the_machines_own_zone_counts_days_where_none_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    import time

    time.tzset()
    try:
        found = [next_boundary(us(day, "America/New_York"), 2, None) for day in ("2024-03-10", "2024-11-03")]
    finally:
        monkeypatch.undo()
        time.tzset()

    assert found == [us("2024-03-10T07:00"), us("2024-11-03T07:00")]


# --- a turn at the boundary ------------------------------------------------------------------------


def test_h8_a_turn_that_ran_through_the_boundary_put_the_daily_reset_off() -> None:
    policy, zone = Policy("daily", at_hour=4), Zone("UTC", UTC)
    began, answered, over = us("2026-05-05T03:59"), us("2026-05-05T04:01"), us("2026-05-05T04:02")

    found = due(policy, last_active_us=answered, now_us=over, zone=zone, turn=(began, over))

    assert found is not None
    assert (found.rule, found.deferred, found.boundary_us) == ("daily", True, us("2026-05-05T04:00"))
    assert due(policy, last_active_us=over + 1, now_us=over + 2, zone=zone, turn=(began, over)) is None


def test_what_a_long_turn_says_at_its_end_is_activity_and_keeps_the_chat_from_being_idle() -> None:
    policy, zone = Policy("idle", idle_minutes=60), Zone("UTC", UTC)

    assert due(policy, last_active_us=3 * HOUR, now_us=3 * HOUR + 1, zone=zone, turn=(0, 3 * HOUR)) is None
    silent = due(policy, last_active_us=0, now_us=3 * HOUR, zone=zone, turn=(0, 2 * HOUR))
    assert silent is not None
    assert silent.deferred


# --- levels ----------------------------------------------------------------------------------------


def test_what_a_level_leaves_open_the_next_one_says() -> None:
    policy = settled({"mode": "daily"}, None, {"mode": "idle", "at_hour": 6, "notify": False})

    assert policy == Policy("daily", at_hour=6, notify=False)
    assert settled(None, None, {}) == Policy()


# --- work in the background --------------------------------------------------------------------------


def test_h7_work_in_the_background_blocks_until_it_is_a_day_old() -> None:
    holds = [Hold("old", 0), Hold("young", 5 * HOUR)]

    def never(gateway: str) -> int:
        raise AssertionError(gateway)

    assert blocking(holds, 24 * HOUR, 24, never) == Hold("young", 5 * HOUR)
    assert blocking(holds, 29 * HOUR - 1, 24, never) is not None
    assert blocking(holds, 29 * HOUR, 24, never) is None
    assert blocking([], 0, 24, never) is None


def test_work_holds_a_reset_up_while_the_gateway_that_watches_over_it_lives() -> None:
    held = Hold("process 7", 0, gateway="main", deaths=2)

    assert blocking([held], HOUR, 24, {"main": 2}.__getitem__) == held
    assert blocking([held], HOUR, 24, {"main": 3}.__getitem__) is None


# --- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset", "words"),
    [
        (e.SessionReset("idle", idle_minutes=1440), "inactive for 24h"),
        (e.SessionReset("idle", idle_minutes=90), "inactive for 1h 30m"),
        (e.SessionReset("idle", idle_minutes=45), "inactive for 45m"),
        (e.SessionReset("idle", idle_minutes=0.5), "inactive for 0.5m"),
        (e.SessionReset("daily", at_hour=4), "daily schedule at 4:00"),
        (
            e.SessionReset("daily_and_idle", at_hour=4, idle_minutes=60),
            "daily schedule at 4:00, inactive for 1h",
        ),
        (e.SessionReset("suspended"), "previous session was stopped or interrupted"),
        (e.SessionReset("resume_expired"), "gateway restart recovery timed out"),
        (e.SessionReset("person"), "somebody in the chat asked for it"),
    ],
)
def test_h3_the_reason_is_that_of_the_rule_with_its_numbers(reset: e.SessionReset, words: str) -> None:
    assert reason(reset) == words


def test_the_notice_is_what_the_policy_wants_and_only_of_what_was_cleared() -> None:
    said = e.SessionReset("idle", idle_minutes=60, had_activity=True)
    silent = e.SessionReset("idle", idle_minutes=60)
    stopped = e.SessionReset("suspended")

    told = notice(Policy(), "telegram", said)
    assert told is not None
    assert told.splitlines()[0] == (
        "◐ Session automatically reset (inactive for 1h). Conversation history cleared."
    )
    assert len(told.splitlines()) == 3
    assert notice(Policy(), "telegram", silent) is None
    assert notice(Policy(), "api_server", said) is None
    assert notice(Policy(notify=False), "telegram", said) is None
    assert notice(Policy(notify=False), "api_server", stopped) is not None
    assert notice(Policy(), "telegram", e.SessionReset("person", had_activity=True)) is None
    assert note(e.SessionReset("person")) is None
    assert "inactive for 1h" in (note(silent) or "")


def test_every_rule_has_a_cause() -> None:
    from typing import get_args

    assert set(CAUSES) == set(get_args(e.ResetRule))


def test_a_session_that_ended_for_good_or_was_compressed_is_not_reset_again() -> None:
    over = Session("s", 2, "telegram", end_reason="session_reset", hard_end=True)
    compressed = Session("s", 2, "telegram", end_reason="compression", successor="s2")
    soft = Session("s", 2, "telegram", end_reason="agent_close")

    assert reset_of(over, Due("idle"), successor="n", had_activity=True) is None
    assert reset_of(compressed, Due("idle"), successor="n", had_activity=True) is None
    assert reset_of(soft, Due("idle"), successor="n", had_activity=True) == e.SessionReset(
        "idle", "n", had_activity=True
    )


@pytest.mark.parametrize("mode", ["daily_and_idle", "daily-and-idle"])
def test_both_ways_to_write_that_both_must_have_come(mode: Mode) -> None:
    policy = Policy(mode, idle_minutes=30)
    at = us("2026-05-02 03:50")
    before, idle = us("2026-05-02 04:00"), us("2026-05-02 04:21")

    assert due(policy, last_active_us=at, now_us=before, zone=Zone("UTC", UTC)) is None
    found = due(policy, last_active_us=at, now_us=idle, zone=Zone("UTC", UTC))
    assert found == Due("daily_and_idle", at, us("2026-05-02 04:20"), 30.0, 4, "UTC")


def test_each_rule_names_its_own_numbers_and_no_other() -> None:
    at = us("2026-05-02 03:50")
    idle = due(
        Policy("idle", idle_minutes=30), last_active_us=at, now_us=at + DAY, zone=Zone("Asia/Bangkok", UTC)
    )
    daily = due(Policy("daily"), last_active_us=at, now_us=at + DAY, zone=Zone("UTC", UTC))

    assert idle == Due("idle", at, at + 30 * MINUTE, 30.0, None, None)
    assert daily == Due("daily", at, us("2026-05-02 04:00"), None, 4, "UTC")


@pytest.mark.parametrize(
    ("began", "ended", "deferred"),
    [
        ("03:50", "04:10", True),
        ("03:50", "04:00", True),  # it ended at the very boundary, which had come
        ("04:00", "04:10", False),
        ("03:40", "03:50", False),
    ],
)
def test_a_turn_that_ran_through_the_boundary_put_it_off(began: str, ended: str, deferred: bool) -> None:
    turn = us(f"2026-05-02 {began}"), us(f"2026-05-02 {ended}")
    for last in turn:  # what is said as it begins and as it ends counts as said when it began
        found = due(
            Policy("daily"), last_active_us=last, now_us=turn[1] + DAY, zone=Zone("UTC", UTC), turn=turn
        )
        assert found is not None
        assert found.boundary_us == us("2026-05-03 04:00" if began == "04:00" else "2026-05-02 04:00")
        assert found.deferred is deferred


def test_a_reset_keeps_every_number_of_its_rule() -> None:
    seen = Due("daily_and_idle", 1, 2, 3.0, 4, "UTC", deferred=True)

    assert reset_of(Session("s1", 1, "telegram"), seen, successor="s2", had_activity=True) == e.SessionReset(
        "daily_and_idle", "s2", 1, 2, 3.0, 4, "UTC", had_activity=True, deferred=True
    )


@pytest.mark.parametrize("rule", ["suspended", "resume_expired"])
def test_of_a_session_that_was_cut_off_people_are_told_whatever_the_policy_says(rule: e.ResetRule) -> None:
    told = notice(Policy("none", notify=False), "api_server", e.SessionReset(rule, "s2"))

    assert told is not None
    assert reason(e.SessionReset(rule, "s2")) in told
