"""A handoff through the engine: one gateway takes it, the chat leads to the session, or nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain import events as e
from retold.domain.errors import (
    BadUsage,
    HandoffRefused,
    NoHomeChannel,
    RuleBroken,
    SessionOver,
    TurnRunning,
)
from retold.domain.gateway import HomeChannel
from retold.infrastructure.commands.base import following
from retold.infrastructure.commands.handoffs import HandedOff
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.verify import verify
from retold.tests.conftest import Run
from retold.tests.infrastructure.clocks import Clock
from retold.tests.infrastructure.processes import run_together

K = "agent:main:telegram:dm:1001"
HOME = HomeChannel("telegram", "1001", name="Åsa 山田")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(home: Path, clock: Clock) -> Iterator[SessionEngine]:
    """A CLI session, and a home channel whose chat has a session of its own."""
    with SessionEngine(home, clock=clock) as opened:
        opened.set_home_channel("telegram", "1001", name="Åsa 山田")
        opened.create_session("telegram", session_id="chat", key=K, chat_id="1001", chat_type="dm")
        opened.append_message("chat", "user", "an older talk")
        opened.create_session("cli", session_id="cli1", title="boat repair", cwd="/srv/boat")
        opened.append_message("cli1", "user", "the keel leaks")
        yield opened


def hand_over(engine: SessionEngine, session_id: str = "cli1") -> HandedOff:
    engine.request_handoff(session_id, "telegram")
    engine.claim_handoff(session_id)
    return arrive(engine, session_id)


def arrive(engine: SessionEngine, session_id: str = "cli1") -> HandedOff:
    return engine.complete_handoff(
        session_id, key=K, chat_id="1001", chat_type="dm", user_id="501", display_name="Åsa 山田"
    )


def test_home_channels_are_set_changed_and_taken_away(engine: SessionEngine) -> None:
    assert engine.home_channels() == [HOME]
    assert engine.set_home_channel("telegram", "1001", name="Åsa 山田").positions == ()
    engine.set_home_channel("slack", "C1", thread_id="7", chat_type="group")
    engine.set_home_channel("telegram", None)

    assert engine.home_channels() == [HomeChannel("slack", "C1", "7", chat_type="group")]
    with pytest.raises(BadUsage):
        engine.set_home_channel(" ", "1")


def test_i6_all_later_messages_of_the_chat_land_in_the_session_that_was_handed_over(
    engine: SessionEngine, home: Path, run: Run
) -> None:
    handed = hand_over(engine)
    assert engine.route_of(K) == "cli1"
    engine.append_message(str(engine.route_of(K)), "user", "and now from the phone about the rudder")

    state = engine.session("cli1")
    assert (state.source, state.key, state.chat_id, state.user_id) == ("telegram", K, "1001", "501")
    assert (state.cwd, state.title) == ("/srv/boat", "boat repair")
    assert (handed.key, handed.previous) == (K, "chat")
    assert engine.session("chat").end_reason == "session_switch"
    hits = run("search", "rudder", "--json").json["hits"]
    assert [each["session_id"] for each in hits] == ["cli1"]
    shown = run("sessions", "show", "cli1", "--json").json
    assert [each["content"] for each in shown["messages"]] == [
        "the keel leaks",
        "and now from the phone about the rudder",
    ]
    assert shown["handoff"] == {"state": "completed", "platform": "telegram", "error": None}
    assert (shown["route"], shown["source"]) == (K, "telegram")
    assert run("audit").exit_code == 0
    assert verify(home).problems == []


def test_a_completed_handoff_is_one_save(engine: SessionEngine) -> None:
    positions = hand_over(engine).positions
    saves = {event.save for event in engine.event_log.read(positions[0] - 1, upto=positions[-1])}

    assert len(saves) == 1
    assert positions == tuple(range(positions[0], positions[-1] + 1))


def test_a_session_that_had_ended_is_opened_again_and_what_waited_in_the_chat_moves_along(
    engine: SessionEngine,
) -> None:
    engine.enqueue("chat", "q1", turn="q1", lane="overflow")
    engine.request_handoff("cli1", "telegram")
    engine.end_session("cli1", "cli_close")
    engine.claim_handoff("cli1")
    arrive(engine)

    assert engine.session("cli1").end_reason is None
    assert engine.queue_of("chat").waiting == ()
    begun = engine.next_turn("cli1")
    assert begun is not None
    assert (begun.turn, begun.text) == ("q1", "q1")


def test_a_session_that_changes_its_place_leaves_its_old_key(engine: SessionEngine) -> None:
    engine.create_session("discord", session_id="d1", key="agent:main:discord:dm:9", thread_id="t")
    hand_over(engine, "d1")

    assert engine.route_of("agent:main:discord:dm:9") is None
    assert engine.route_of(K) == "d1"
    assert engine.session("d1").thread_id is None


def test_no_chat_leads_to_a_session_any_more_that_was_handed_over_to_another(engine: SessionEngine) -> None:
    elsewhere = "agent:main:discord:dm:7"
    engine.resume(elsewhere, "cli1")
    hand_over(engine)

    assert (engine.route_of(elsewhere), engine.route_of(K)) == (None, "cli1")


def test_what_stands_in_the_way_of_a_handoff_is_said(engine: SessionEngine) -> None:
    with pytest.raises(BadUsage, match="no platform 'pigeon'"):
        engine.request_handoff("cli1", "pigeon")
    with pytest.raises(NoHomeChannel) as refused:
        engine.request_handoff("cli1", "slack")
    assert "/sethome" in refused.value.hint
    engine.begin_turn("cli1", turn="t1")
    with pytest.raises(TurnRunning):
        engine.request_handoff("cli1", "telegram")
    engine.finish_turn("cli1", "t1")
    engine.request_handoff("cli1", "telegram")
    with pytest.raises(HandoffRefused):
        engine.request_handoff("cli1", "telegram")
    with pytest.raises(HandoffRefused):
        engine.complete_handoff("cli1", key=K)
    engine.claim_handoff("cli1")
    with pytest.raises(BadUsage, match="mood"):
        engine.complete_handoff("cli1", key=K, mood="fair")
    with pytest.raises(BadUsage, match="blank key"):
        engine.complete_handoff("cli1", key=" ")
    engine.compress_session("cli1", "so far", continuation_id="cli2")
    with pytest.raises(SessionOver):
        engine.complete_handoff("cli1", key=K)


@pytest.mark.parametrize("key", ["agent:main:discord:dm:1001", "agent:main:cli:dm", "a key of no chat"])
def test_a_handoff_goes_to_no_chat_of_another_platform_than_was_asked(
    engine: SessionEngine, key: str
) -> None:
    engine.request_handoff("cli1", "telegram")
    engine.claim_handoff("cli1")
    head = engine.head()
    with pytest.raises(HandoffRefused, match="asked for to telegram") as refused:
        engine.complete_handoff("cli1", key=key, chat_id="1001")

    assert "a key of telegram" in refused.value.hint
    assert (engine.head(), engine.route_of(key)) == (head, None)
    assert engine.handoff_of("cli1").state == "running"
    assert arrive(engine).previous == "chat"


def test_a_failure_leaves_the_session_as_it_was(engine: SessionEngine) -> None:
    before = engine.session("cli1")
    engine.request_handoff("cli1", "telegram")
    engine.claim_handoff("cli1")
    engine.fail_handoff("cli1", "blocked, " * 100, gateway="main")
    after = engine.session("cli1")

    assert (after.handoff.state, len(after.handoff.error or "")) == ("failed", 500)
    assert (after.source, after.key, after.ended, engine.route_of(K)) == (
        before.source,
        None,
        False,
        "chat",
    )
    engine.request_handoff("cli1", "telegram")  # and it may be tried again
    engine.append_message("cli1", "user", "the session goes on meanwhile")


def test_deadlines_that_pass_free_the_session(engine: SessionEngine, clock: Clock) -> None:
    engine.request_handoff("cli1", "telegram")
    clock.turn(59)
    assert engine.pending_handoffs() == ["cli1"]
    assert engine.expire_handoffs() == []
    clock.turn(1)
    assert engine.pending_handoffs() == []
    with pytest.raises(HandoffRefused):
        engine.claim_handoff("cli1")
    assert engine.expire_handoffs() == ["cli1"]
    assert engine.handoff_of("cli1").error == "timed out waiting for gateway"
    engine.request_handoff("cli1", "telegram")
    engine.claim_handoff("cli1")
    heard_until_s = 0
    while heard_of(engine):
        clock.turn(50)
        heard_until_s += 50

    assert heard_until_s == 15 * 60
    assert engine.expire_handoffs() == ["cli1"]
    assert engine.handoff_of("cli1").error == "the gateway took longer than 15 minutes"


def heard_of(engine: SessionEngine) -> bool:
    try:
        engine.heartbeat_handoff("cli1")
    except HandoffRefused:
        return False
    return True


def test_pending_handoffs_come_in_the_order_in_which_their_sessions_began(
    engine: SessionEngine, clock: Clock
) -> None:
    for number in (3, 1, 2):
        engine.create_session("cli", session_id=f"c{number}", at_us=clock.now_us + number)
        engine.request_handoff(f"c{number}", "telegram")

    assert engine.pending_handoffs() == ["c1", "c2", "c3"]


def test_of_gateways_in_several_processes_one_claims_a_handoff(home: Path) -> None:
    with SessionEngine(home) as engine:
        engine.set_home_channel("telegram", "1001")
        for number in range(5):
            engine.create_session("cli", session_id=f"c{number}")
            engine.request_handoff(f"c{number}", "telegram")
    code = """
        for number in range(5):
            try:
                engine.claim_handoff(f"c{{number}}", {name!r})
            except RetoldError as refused:
                print(refused.kind)
            else:
                print("won")
    """
    answers = run_together(home, [code.format(name=name) for name in ("one", "two", "three", "four")])
    words = [word for answer in answers for word in answer]

    assert (words.count("won"), words.count("handoff_refused")) == (5, 15)
    with SessionEngine(home) as engine:
        claimed = engine.event_log.read(topics=[e.HandoffClaimed.topic])
    assert len(claimed) == 5


RUNS: dict[str, dict[str, str]] = {
    "a scheduled job": {"source": "cron"},
    "a subagent": {"source": "subagent"},
    "a tool": {"source": "tool"},
    "a delegate": {"source": "cli", "parent": "cli1", "parent_kind": "delegate"},
}


@pytest.mark.parametrize("run", RUNS)
def test_a18_no_chat_is_handed_to_a_run_of_its_own(engine: SessionEngine, run: str) -> None:
    made: dict[str, Any] = RUNS[run]
    engine.create_session(session_id="run", **made)

    hands: list[Callable[[], object]] = [
        lambda: engine.request_handoff("run", "telegram"),
        lambda: engine.reroute(K, "run", "resume"),
        lambda: engine.reroute(K, "run", "repair"),
        lambda: engine.create_session(session_id="keyed", key=K, **made),
    ]
    for hand in hands:
        with pytest.raises(RuleBroken, match="no person's message goes there"):
            hand()
    assert engine.route_of(K) == "chat"
    assert engine.handoff_of("run").state is None


def test_a18_a_handoff_that_was_claimed_of_a_run_of_its_own_is_not_completed(engine: SessionEngine) -> None:
    engine.create_session("cron", session_id="run")
    asked = e.HandoffRequested("telegram", engine.at() + 60_000_000)
    engine.save_events(following(engine.session("run"), [asked], engine.at()))
    engine.claim_handoff("run")

    with pytest.raises(RuleBroken, match="no person's message goes there"):
        arrive(engine, "run")

    assert engine.route_of(K) == "chat"
