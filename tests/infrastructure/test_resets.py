"""Chats that begin anew, by a person's word and by policy, on real files under a clock that is turned.

Over 400 lines because one turned clock carries every rule of resets, told side by side.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from retold.domain import events as e
from retold.domain.errors import NoSuchChat, RuleBroken, TitleTaken
from retold.domain.session_source import SessionSource
from retold.infrastructure import asking
from retold.infrastructure.commands.resets import TOO_LATE
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.rebuild import rebuild
from retold.tests.infrastructure.processes import run_together
from retold.tests.infrastructure.routing import (
    BOAT,
    DAY,
    HOUR,
    MINUTE,
    NOON,
    Clock,
    K,
    chat,
    contents,
    findings,
    opened,
    payloads,
    rows,
    saves,
)

IDLE = "session_reset: {mode: idle, idle_minutes: 60}\n"
DAILY = "timezone: Asia/Bangkok\nsession_reset: {mode: daily, at_hour: 4}\n"


def reset_of(engine: SessionEngine, session_id: str) -> e.SessionReset:
    """The one reset of a session."""
    found = [each.payload for each in engine.event_log.read() if each.stream == f"session:{session_id}"]
    (reset,) = [each for each in found if isinstance(each, e.SessionReset)]
    return reset


# --- a person's ------------------------------------------------------------------------------------


def test_a_persons_reset_is_one_save_and_leaves_the_whole_identity(engine: SessionEngine) -> None:
    first = chat(engine)

    found = engine.reset(K, title="hull")

    new = engine.session(found.session_id)
    old = engine.session(first)
    for name in ("key", "chat_id", "chat_type", "user_id", "thread_id", "display_name", "origin_json"):
        assert getattr(new, name) == getattr(old, name), name
    assert (new.parent_id, new.parent_kind, new.title) == (first, "reset", "hull")
    assert (old.end_reason, old.hard_end) == ("session_reset", True)
    assert len(saves(engine, found.positions)) == 1
    assert reset_of(engine, first) == e.SessionReset(
        "person", found.session_id, last_active_us=NOON, had_activity=True
    )
    assert engine.resolve(BOAT).session_id == found.session_id
    assert rows(engine, "SELECT end_reason, hard_end, ended_us FROM sessions WHERE id = ?", first) == [
        ("session_reset", 1, NOON)
    ]


def test_a_reset_with_a_title_that_is_taken_changes_nothing(engine: SessionEngine) -> None:
    engine.create_session("cli", title="hull")
    first = chat(engine)
    head = engine.head()

    with pytest.raises(TitleTaken):
        engine.reset(K, title="hull")

    assert engine.head() == head
    assert engine.resolve(BOAT).session_id == first


def test_the_very_first_message_may_be_a_reset(engine: SessionEngine) -> None:
    found = engine.reset(K, source=BOAT)

    assert found.previous is None
    state = engine.session(found.session_id)
    assert (state.chat_id, state.user_id, state.parent_id) == ("1001", "501", None)
    assert engine.resolve(BOAT).positions == ()
    with pytest.raises(NoSuchChat):
        engine.reset("no key")


def test_a_reset_after_a_reset_ends_nothing_twice(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.end_session(first, "session_reset")
    head = engine.head().position

    engine.reset(K)

    assert [type(each) for each in payloads(engine, head)] == [e.SessionCreated, e.SessionRerouted]


def test_a_persons_reset_clears_what_waits(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.begin_turn(first, "t1")
    engine.enqueue(first, "and the mast?")

    engine.reset(K)

    assert engine.session(first).turns.waiting == ()
    assert engine.session(first).turns.running is None
    cleared = [each for each in payloads(engine) if isinstance(each, e.QueueCleared)]
    assert [each.why for each in cleared] == ["reset"]


def test_after_a_stop_what_was_acknowledged_waits_in_the_new_session(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.begin_turn(first, "t1")
    engine.enqueue(first, "and the mast?", turn="t2")
    engine.save_events(
        [
            msgspec.structs.replace(each, payload=e.SessionSuspended("stuck", 3))
            for each in [_next(engine, first)]
        ]
    )

    found = engine.resolve(BOAT)

    assert found.reset == "suspended"
    assert [each.turn for each in engine.session(found.session_id).turns.waiting] == ["t2"]
    assert engine.session(first).turns.waiting == ()


def _next(engine: SessionEngine, session_id: str) -> Any:
    from retold.infrastructure.decisions import event

    state = engine.session(session_id)
    return event(f"session:{session_id}", state.version + 1, e.SessionPinned(), engine.at())


# --- by policy -------------------------------------------------------------------------------------


def test_an_idle_chat_begins_anew_with_the_rule_its_numbers_and_a_notice(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        first = chat(engine)
        clock.pass_by(60 * MINUTE)
        assert engine.resolve(BOAT).session_id == first
        clock.pass_by(1)

        found = engine.resolve(BOAT)

        assert (found.created, found.cause, found.reset, found.previous) == (True, "idle", "idle", first)
        assert (found.notice or "").startswith("◐ Session automatically reset (inactive for 1h).")
        assert reset_of(engine, first) == e.SessionReset(
            "idle",
            found.session_id,
            last_active_us=NOON,
            boundary_us=NOON + HOUR,
            idle_minutes=60,
            had_activity=True,
        )
        assert len(saves(engine, found.positions)) == 1
        assert engine.session(first).end_reason == "session_reset"
        assert engine.resolve(BOAT).notice is None
        assert findings(engine) == []


def test_the_platform_goes_before_the_kind_of_chat_and_that_before_the_default(
    home: Path, clock: Clock
) -> None:
    config = """
session_reset:
  mode: idle
  idle_minutes: 600
  notify: false
  chat_types: {group: {idle_minutes: 60}}
platforms:
  discord: {session_reset: {mode: none}}
  slack: {session_reset: {idle_minutes: 30, notify: true}}
"""
    chats = {
        "default": SessionSource("telegram", "1"),
        "kind": SessionSource("telegram", "2", chat_type="group"),
        "off": SessionSource("discord", "3", chat_type="group"),
        "platform": SessionSource("slack", "4", chat_type="group"),
    }
    with opened(home, clock, config) as engine:
        for each in chats.values():
            chat(engine, each)
        found = {}
        for minutes in (31, 30, 540):
            clock.pass_by(minutes * MINUTE)
            for name, each in chats.items():
                resolved = engine.resolve(each)
                if resolved.created and name not in found:
                    found[name] = (clock.now_us - NOON) // MINUTE
                    assert (resolved.notice is None) == (name != "platform")

        assert found == {"platform": 31, "kind": 61, "default": 601}


@pytest.mark.parametrize("platform", ["telegram", "api_server"])
def test_h12_every_platform_has_its_policy_from_the_engine(home: Path, clock: Clock, platform: str) -> None:
    source = msgspec.structs.replace(BOAT, platform=platform)
    with opened(home, clock, IDLE) as engine:
        chat(engine, source)
        clock.pass_by(3 * HOUR)
        found = engine.resolve(source)

        assert [type(each).__name__ for each in payloads(engine)][4:] == [
            "SessionReset",
            "SessionCreated",
            "SessionRerouted",
        ]
        assert (found.notice is None) == (platform == "api_server")


def test_h1_restarts_do_not_extend_a_sessions_life(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        first = chat(engine)
    for _ in range(5):
        clock.pass_by(20 * MINUTE)
        with opened(home, clock, IDLE) as engine:
            rebuild(engine.projector, list(engine.projector.projections), compare=False)
            engine.route_of(K)
    with opened(home, clock, IDLE) as engine:
        assert engine.resolve(BOAT).session_id != first
        assert reset_of(engine, first).last_active_us == NOON


def test_h1_a_recovered_session_keeps_its_idle_time(home: Path, clock: Clock) -> None:
    from retold.tests.infrastructure.routing import forget_routes

    with opened(home, clock, IDLE) as engine:
        first = chat(engine)
        forget_routes(engine, K)
        clock.pass_by(3 * HOUR)

        found = engine.resolve(BOAT)

        assert (found.created, found.reset) == (True, "idle")
        assert reset_of(engine, first).boundary_us == NOON + HOUR
        led = next(each for each in payloads(engine)[::-1] if isinstance(each, e.SessionRerouted))
        assert (led.cause, [each.session_id for each in led.candidates]) == ("idle", [first])


@pytest.mark.parametrize("config", ["", "session_reset: {mode: none}\n"])
def test_h3_without_a_policy_nothing_is_reset_on_any_path(home: Path, clock: Clock, config: str) -> None:
    with opened(home, clock, config) as engine:
        first = chat(engine)
        for days in (1, 30, 400):
            clock.pass_by(days * DAY)
            assert engine.expire_due() == []
            assert engine.resolve(BOAT).session_id == first


def test_h4_the_daily_reset_is_at_the_users_hour(home: Path, clock: Clock) -> None:
    clock.show("2026-05-05T03:59", "Asia/Bangkok")
    with opened(home, clock, DAILY) as engine:
        first = chat(engine)
        clock.show("2026-05-05T04:01", "Asia/Bangkok")
        second = engine.resolve(BOAT)
        chat(engine)
        clock.show("2026-05-05T04:30", "UTC")
        third = engine.resolve(BOAT)

        assert (second.session_id != first, second.reset) == (True, "daily")
        assert third.session_id == second.session_id
        assert reset_of(engine, first).zone == "Asia/Bangkok"
        assert (second.notice or "").startswith("◐ Session automatically reset (daily schedule at 4:00).")


def test_daily_and_idle_waits_for_both(home: Path, clock: Clock) -> None:
    config = "timezone: UTC\nsession_reset: {mode: daily-and-idle, at_hour: 4, idle_minutes: 600}\n"
    clock.show("2026-05-05T03:00", "UTC")
    with opened(home, clock, config) as engine:
        first = chat(engine)
        clock.show("2026-05-05T05:00", "UTC")
        assert engine.resolve(BOAT).session_id == first
        clock.show("2026-05-05T13:01", "UTC")

        found = engine.resolve(BOAT)

        assert (found.reset, found.cause) == ("daily_and_idle", "daily")
        reset = reset_of(engine, first)
        assert (reset.idle_minutes, reset.at_hour) == (600, 4)
        assert reset.boundary_us == reset.last_active_us + 600 * MINUTE  # type: ignore[operator] # is set


def test_h7_work_in_the_background_holds_a_reset_up_for_a_day_at_most(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        first = chat(engine)
        engine.hold(K, "process 7", what="a preview server")
        engine.hold(K, "process 7")  # its age counts from the first time
        clock.pass_by(3 * HOUR)
        waiting = engine.resolve(BOAT)
        assert engine.expire_due() == []
        clock.pass_by(21 * HOUR)
        found = engine.resolve(BOAT)

        assert (waiting.session_id, waiting.due) == (first, "idle")
        assert found.reset == "idle"
        assert rows(engine, "SELECT version FROM routes") == [(3,)]


def test_h7_a_hold_that_is_let_go_holds_nothing(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        chat(engine)
        engine.hold(K, "process 7")
        continued = engine.compress_session(engine.resolve(BOAT).session_id, "so far").session_id
        clock.pass_by(3 * HOUR)
        assert engine.resolve(BOAT).session_id == continued  # it is the chat's, not the session's
        engine.let_go(K, "process 7")
        engine.let_go(K, "process 7")

        assert engine.resolve(BOAT).reset == "idle"
        with pytest.raises(RuleBroken):
            engine.hold("agent:main:telegram:dm:9", "x")


@pytest.mark.parametrize(
    ("stop", "again", "holds"),
    [
        ("crash", None, False),
        ("clean", None, True),
        ("clean then crash", None, False),
        ("crash of another", None, True),
        ("crash", "main", True),
    ],
)
def test_work_that_a_gateway_watched_over_holds_no_reset_up_once_it_has_died(
    home: Path, clock: Clock, stop: str, again: str | None, holds: bool
) -> None:
    with opened(home, clock, IDLE) as engine:
        engine.start_gateway()
        engine.start_gateway("other")
        first = chat(engine)
        engine.hold(K, "process 7")
    clock.pass_by(5 * MINUTE)  # nothing that a start would resume
    for how in stop.split(" then "):
        with opened(home, clock, IDLE) as engine:
            if how == "clean":
                engine.stop_gateway()
            engine.start_gateway("other" if how == "crash of another" else "main")
    with opened(home, clock, IDLE) as engine:
        if again is not None:
            assert engine.hold(K, "process 7", gateway=again).positions
        clock.pass_by(3 * HOUR)
        found = engine.resolve(BOAT)

    assert (found.session_id == first) == holds
    assert (found.due, found.reset) == (("idle", None) if holds else (None, "idle"))


def test_work_that_no_gateway_watches_over_holds_through_every_start(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        engine.start_gateway()
        first = chat(engine)
        engine.hold(K, "process 7", gateway=None)
        clock.pass_by(5 * MINUTE)
        engine.start_gateway()
        clock.pass_by(3 * HOUR)

        assert engine.resolve(BOAT).session_id == first


def test_work_that_was_noted_before_any_start_of_its_gateway_holds_through_the_first(
    home: Path, clock: Clock
) -> None:
    with opened(home, clock, IDLE) as engine:
        first = chat(engine)
        engine.hold(K, "process 7")
        clock.pass_by(5 * MINUTE)
        engine.start_gateway()
        clock.pass_by(3 * HOUR)

        assert engine.resolve(BOAT).session_id == first


def test_h8_a_reset_waits_for_the_turn_and_says_so(home: Path, clock: Clock) -> None:
    clock.show("2026-05-05T03:59", "Asia/Bangkok")
    with opened(home, clock, DAILY) as engine:
        first = engine.resolve(BOAT).session_id
        engine.begin_turn(first, "t1", lease_s=600)
        engine.append_message(first, "user", "hello")
        clock.show("2026-05-05T04:01", "Asia/Bangkok")
        during = engine.resolve(BOAT)
        assert engine.expire_due() == []
        engine.append_message(first, "assistant", "to hello")
        engine.finish_turn(first, "t1")
        clock.pass_by(MINUTE)

        (expired,) = engine.expire_due()

        assert (during.session_id, during.due) == (first, "daily")
        assert (expired.session_id, expired.rule, expired.key) == (first, "daily", K)
        assert reset_of(engine, first).deferred


def test_h10_an_old_log_replays_its_resets_under_any_configuration(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        first = chat(engine)
        clock.pass_by(3 * HOUR)
        second = chat(engine)
        before = rows(engine, "SELECT * FROM sessions ORDER BY id")
    with opened(home, clock, "session_reset: {mode: none}\n") as engine:
        rebuild(engine.projector, list(engine.projector.projections), compare=False)

        assert rows(engine, "SELECT * FROM sessions ORDER BY id") == before
        assert engine.session(first).hard_end
        assert engine.resolve(BOAT).session_id == second


def test_h11_only_what_people_and_the_assistant_say_moves_the_clock(home: Path, clock: Clock) -> None:
    with opened(home, clock, "session_reset: {mode: idle, idle_minutes: 960}\n") as engine:
        first = chat(engine)
        for _ in range(17 * 4):
            clock.pass_by(15 * MINUTE)
            engine.append_message(first, "system", "heartbeat")
            engine.record_usage(first, "delta", input_tokens=1)

        assert engine.resolve(BOAT).reset == "idle"


def test_where_the_projections_cannot_be_told_activity_is_read_from_the_log(
    home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retold.projections.transcripts import Transcripts

    with opened(home, clock, IDLE) as engine:
        first = chat(engine)

        def broken(self: object, *_: object) -> None:
            raise ValueError("out of paint")

        monkeypatch.setattr(Transcripts, "fold", broken)
        clock.pass_by(30 * MINUTE)
        engine.append_message(first, "user", "still here")
        engine.append_message(first, "system", "heartbeat", at_us=clock.now_us + 40 * MINUTE)
        clock.pass_by(40 * MINUTE)
        assert engine.resolve(BOAT).session_id == first
        clock.pass_by(30 * MINUTE)

        assert engine.resolve(BOAT).reset == "idle"
        assert reset_of(engine, first).last_active_us == NOON + 30 * MINUTE


# --- nobody writes ---------------------------------------------------------------------------------


def test_what_is_due_ends_though_nobody_writes_and_the_next_message_is_told(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        first = chat(engine)
        other = chat(engine, SessionSource("telegram", "2002"))
        clock.pass_by(30 * MINUTE)
        engine.append_message(other, "user", "still here")
        clock.pass_by(40 * MINUTE)

        (expired,) = engine.expire_due()

        assert (expired.session_id, engine.route_of(K)) == (first, None)
        assert len(saves(engine, expired.positions)) == 1
        assert engine.expire_due() == []
        assert findings(engine) == []
        clock.pass_by(DAY)
        found = engine.resolve(BOAT)
        assert (found.created, found.cause, found.reset, found.previous) == (True, "idle", "idle", first)
        assert found.notice is not None
        assert engine.session(found.session_id).parent_id == first
        assert findings(engine) == []


@pytest.mark.parametrize("closed_first", [True, False])
def test_a7_an_expired_session_stays_so_whatever_ends_it_as_well(
    home: Path, clock: Clock, closed_first: bool
) -> None:
    with opened(home, clock, IDLE) as engine:
        first = chat(engine)
        clock.pass_by(3 * HOUR)
        if closed_first:
            engine.end_session(first, "agent_close")
        engine.expire_due()
        if not closed_first:
            engine.end_session(first, "agent_close")

        assert engine.session(first).end_reason == "session_reset"
        assert engine.resolve(BOAT).session_id != first


def test_a7_a_session_that_its_source_marked_as_expired_is_so_without_a_reason(
    engine: SessionEngine,
) -> None:
    from retold.infrastructure.decisions import event
    from retold.infrastructure.streams import route_stream

    created = e.SessionCreated("telegram", session_key=K, chat_id="1001", columns={"expiry_finalized": 1})
    engine.save_events(
        [
            event("session:s1", 1, created, NOON),
            event(route_stream(engine.identity, K), 1, e.SessionRerouted(K, "s1", None, "import"), NOON),
        ]
    )
    engine.append_message("s1", "user", "hello")

    found = engine.resolve(BOAT)

    assert (found.created, found.cause, found.previous) == (True, "reset", "s1")


def test_a_message_that_waits_is_not_expired_over(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        first = chat(engine)
        engine.begin_turn(first, "t1", lease_s=60)
        engine.enqueue(first, "and the mast?", turn="t2")
        clock.pass_by(3 * HOUR)

        assert engine.expire_due() == []
        found = engine.resolve(BOAT)
        assert [each.turn for each in engine.session(found.session_id).turns.waiting] == ["t2"]


def test_two_watchers_expire_each_chat_once(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        for number in range(20):
            chat(engine, SessionSource("telegram", str(number)))
    code = f"""
    for each in engine.expire_due(at_us={NOON + 3 * HOUR}):
        print(each.session_id)
    """

    one, two = run_together(home, [code, code])

    assert len(one) + len(two) == len({*one, *two}) == 20


# --- the turn before -------------------------------------------------------------------------------


def test_the_agent_gets_a_turn_before_its_session_is_reset(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        first = chat(engine)
        asked: list[tuple[str, str]] = []

        def remember(session_id: str, rule: str) -> None:
            asked.append((session_id, rule))
            engine.append_message(session_id, "user", "save what is to be remembered")
            assert engine.resolve(BOAT).session_id == session_id
            clock.pass_by(MINUTE)
            engine.append_message(session_id, "assistant", "saved")

        engine.before_reset = remember
        clock.pass_by(3 * HOUR)
        found = engine.resolve(BOAT)
        person = engine.reset(K)

        assert asked == [(first, "idle"), (found.session_id, "person")]
        assert found.session_id != first
        assert person.previous == found.session_id
        said = rows(engine, "SELECT content FROM messages WHERE session_id = ? ORDER BY id", first)
        assert said[-1] == ("saved",)
        assert reset_of(engine, first).last_active_us == NOON


def test_an_error_in_the_agents_turn_is_told_and_stops_nothing(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine:
        chat(engine)

        def fails(session_id: str, rule: str) -> None:
            raise TimeoutError("the model did not answer")

        engine.before_reset = fails
        clock.pass_by(3 * HOUR)
        found = engine.resolve(BOAT)
        (expired,) = engine.expire_due(at_us=clock.now_us + 3 * HOUR)

        assert found.hook_error == expired.hook_error == "TimeoutError: the model did not answer"
        assert found.created


def test_where_another_was_first_while_the_agent_had_its_turn_nothing_is_reset_twice(
    home: Path, clock: Clock
) -> None:
    with opened(home, clock, IDLE) as engine, opened(home, clock, IDLE) as other:
        first = chat(engine)
        engine.before_reset = lambda _session, _rule: other.reset(K)
        clock.pass_by(3 * HOUR)

        found = engine.resolve(BOAT)

        assert found.previous is None
        assert engine.session(found.session_id).parent_id == first
        assert rows(engine, "SELECT count(*) FROM sessions") == [(2,)]


def test_of_two_processes_one_at_a_time_asks_the_agent_and_what_it_saves_is_kept(
    home: Path, clock: Clock
) -> None:
    with opened(home, clock, IDLE) as engine, opened(home, clock, IDLE) as other:
        first = chat(engine)
        during: list[object] = []

        def remember(session_id: str, rule: str) -> None:
            found = other.resolve(BOAT)
            during.extend((found.session_id, found.due, found.created, other.expire_due()))
            engine.append(session_id, "assistant", "saved")

        engine.before_reset = remember
        other.before_reset = lambda *_: pytest.fail("the agent is at it already")
        clock.pass_by(3 * HOUR)
        (expired,) = engine.expire_due()

        assert during == [first, "idle", False, []]
        assert (expired.session_id, expired.hook_error) == (first, None)
        assert contents(engine, first)[-1] == "saved"
        assert engine.session(first).hard_end
        assert not list(home.glob("before-reset.*"))


def test_an_agent_whose_session_a_person_reset_meanwhile_is_told(home: Path, clock: Clock) -> None:
    with opened(home, clock, IDLE) as engine, opened(home, clock, IDLE) as other:
        first = chat(engine)
        engine.before_reset = lambda _session, _rule: other.reset(K)
        clock.pass_by(3 * HOUR)
        (expired,) = engine.expire_due()

        assert (expired.session_id, expired.key, expired.rule) == (first, K, "idle")
        assert (expired.positions, expired.hook_error) == ((), TOO_LATE)
        second = engine.resolve(BOAT).session_id
        engine.before_reset = lambda session_id, _rule: other.delete_session(session_id)
        found = engine.reset(K)
        assert (found.previous, found.hook_error) == (None, TOO_LATE)
        assert found.session_id != second


def test_a_turn_before_a_reset_that_nobody_gives_any_more_holds_nothing_up(
    home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(home, clock, IDLE) as engine, opened(home, clock, IDLE) as other:
        chat(engine)
        clock.pass_by(3 * HOUR)
        code = """
            import os
            from retold.infrastructure.asking import claim
            with claim(engine.home, engine.route_of("agent:main:telegram:dm:1001")) as mine:
                print(mine, flush=True)
                os._exit(0)
        """
        assert run_together(home, [code]) == [["True"]]
        assert len(list(home.glob("before-reset.*"))) == 1  # of one that was killed

        def hangs(session_id: str, rule: str) -> None:
            assert other.resolve(BOAT).due == "idle"
            monkeypatch.setattr(asking, "AT_MOST_S", 0.0)
            assert other.resolve(BOAT).created

        engine.before_reset = hangs
        engine.expire_due()


def test_a_stuck_session_gets_no_turn(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.before_reset = lambda *_: pytest.fail("it would be stuck again")
    engine.save_events([msgspec.structs.replace(_next(engine, first), payload=e.SessionSuspended("stop"))])

    found = engine.resolve(BOAT)

    assert (found.reset, found.cause) == ("suspended", "suspended")
    assert "previous session was stopped or interrupted" in (found.notice or "")
    assert findings(engine) == []


def test_a_session_that_was_to_be_resumed_too_long_ago_begins_anew_under_a_policy_alone(
    home: Path, clock: Clock
) -> None:
    for number, config in enumerate(("", "session_reset: {mode: idle}\n")):
        with opened(home / str(number), clock, config) as engine:
            first = chat(engine)
            marked = e.ResumeMarked("restart_interrupted")
            engine.save_events([msgspec.structs.replace(_next(engine, first), payload=marked)])
            assert engine.resolve(BOAT).resume == "restart_interrupted"
            clock.pass_by(HOUR + 1)
            found = engine.resolve(BOAT)

            assert found.reset == ("resume_expired" if config else None)
            assert (found.notice is None) == (not config)


# --- why -------------------------------------------------------------------------------------------


def test_why_and_the_log_tell_of_resets(home: Path, clock: Clock, run: Any) -> None:
    with opened(home, clock, DAILY) as engine:
        chat(engine)
        clock.pass_by(DAY)
        chat(engine)
        clock.pass_by(DAY)
        engine.expire_due()

    why, log = run("why", "1001"), run("log")

    assert why.exit_code == 0, why.stdout
    assert "is closed by the daily reset" in why.stdout
    assert "its next message begins a new session" in why.stdout
    assert "daily: daily schedule at 4:00, due since" in log.stdout
