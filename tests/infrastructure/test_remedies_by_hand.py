"""Remedies that a person chooses: a key led by hand, one of several continuations, an identity given back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retold.domain import events as e
from retold.domain.audit import Finding, audit
from retold.domain.ends import SUPERSEDED
from retold.domain.errors import (
    RepairRefused,
    SessionOver,
)
from retold.domain.session_source import SessionSource
from retold.infrastructure.engine import SessionEngine, open_home
from retold.projections.world import world
from retold.tests.histories import DAY_US, T0_US
from retold.tests.infrastructure.repairing import K2, K, findings, row, twins


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


# --- leading a key by hand ---------------------------------------------------------------------------


def test_a_key_is_led_to_an_older_talk_and_that_is_no_jump_back(engine: SessionEngine) -> None:
    for day, name in enumerate(("old", "new")):
        engine.create_session("telegram", session_id=name, key=K, at_us=T0_US + day * DAY_US)
        engine.append_message(name, "user", "hi", at_us=T0_US + day * DAY_US + 1)
    done = engine.lead_key(K, "old")

    assert (done.leads_to, done.left, row(engine, "new")["end_reason"]) == ("old", "new", SUPERSEDED)
    assert findings(engine) == []
    assert engine.lead_key(K, "old").positions == ()


def test_a_session_that_ended_for_good_is_opened_by_a_persons_word(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, at_us=T0_US)
    engine.end_session("a", "session_reset", at_us=T0_US + 1)
    engine.lead_key(K, "a")

    assert not engine.session("a").ended


def test_a_key_is_not_led_where_it_may_not(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, at_us=T0_US)
    engine.create_session("telegram", session_id="b", key=K2, at_us=T0_US)
    engine.create_session("cron", session_id="job", at_us=T0_US)
    engine.compress_session("a", "so far", continuation_id="a2")
    with pytest.raises(RepairRefused, match="bears the key"):
        engine.lead_key(K, "b")
    with pytest.raises(RepairRefused, match="runs by itself"):
        engine.lead_key(K, "job")
    with pytest.raises(SessionOver, match="goes on as a2"):
        engine.lead_key(K, "a")


def test_a_key_that_leads_nowhere_begins_anew(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, at_us=T0_US)
    done = engine.close_key(K)

    assert (done.left, engine.route_of(K), row(engine, "a")["end_reason"]) == ("a", None, SUPERSEDED)
    assert engine.close_key(K).positions == ()


# --- continuations -----------------------------------------------------------------------------------


def two_continuations(engine: SessionEngine) -> Finding:
    return next(each for each in findings(engine) if each.kind == "two_continuations")


def test_c7_of_several_continuations_the_one_in_use_last_is_named_and_chosen(engine: SessionEngine) -> None:
    twins(engine)
    engine.end_session("s3", "agent_close")
    finding = two_continuations(engine)

    assert finding.facts["most_recent"] == "s3"
    assert finding.remedy == "retold sessions continuation s3"
    engine.choose_continuation("s3")
    assert (engine.route_of(K), engine.session("p").successor) == ("s3", "s3")
    assert [row(engine, each)["parent_kind"] for each in ("s1", "s2", "s3")] == [
        "branch",
        "branch",
        "continuation",
    ]
    assert findings(engine) == []
    with pytest.raises(SessionOver):
        engine.compress_session("p", "again")


def test_c14_a_live_continuation_is_preferred_to_one_that_was_closed(engine: SessionEngine) -> None:
    twins(engine)
    engine.end_session("s3", "session_reset")

    assert two_continuations(engine).facts["most_recent"] == "s2"


@pytest.mark.parametrize("reason", ["session_reset", "session_switch", "new_session"])
def test_a1_an_end_for_good_that_leaves_the_key_is_set_right_by_the_next_message(
    engine: SessionEngine, reason: str
) -> None:
    source = SessionSource("telegram", "1", user_id="5")
    first = engine.resolve(source).session_id
    engine.append(first, "user", "hi")
    engine.end_session(first, reason)
    engine.projector.catch_up()

    assert audit(world(engine.state.reader())) == []
    assert engine.resolve(source).session_id != first


def test_only_a_continuation_can_be_chosen(engine: SessionEngine) -> None:
    twins(engine)
    with pytest.raises(RepairRefused, match="continues no session"):
        engine.choose_continuation("p")


# --- identity ----------------------------------------------------------------------------------------


def test_a_continuation_under_a_wrong_key_gets_its_parents(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="p", key=K, chat_id="1", user_id="7", at_us=T0_US)
    engine.append_message("p", "user", "hi", at_us=T0_US)
    crossed = e.SessionCreated(
        "telegram", K2, "2", user_id="8", parent_session_id="p", parent_kind="continuation"
    )
    engine.event_log.append([engine.draft(e.Event("session:c", 1, crossed, T0_US + 5))])
    engine.reroute(K2, "c", "recovery", at_us=T0_US + 5)

    assert [each.kind for each in findings(engine)] == ["crossed_key"]
    engine.restore_identity("c")
    assert (row(engine, "c")["session_key"], row(engine, "c")["user_id"]) == (K, "7")
    assert (engine.route_of(K2), engine.route_of(K)) == (None, "c")
    assert findings(engine) == []
    with pytest.raises(RepairRefused, match="the identity that it should"):
        engine.restore_identity("c")


# --- a fence -----------------------------------------------------------------------------------------


def test_a4_a_reset_fences_off_what_is_older_and_the_audit_names_it(engine: SessionEngine) -> None:
    source = SessionSource("telegram", chat_id="1001", user_id="501")
    engine.create_session("telegram", session_id="s1", key=K, chat_id="1001", at_us=T0_US)
    engine.append_message("s1", "user", "hi", at_us=T0_US)
    engine.create_session("telegram", session_id="s2", key=K, chat_id="1001", at_us=T0_US + 25 * DAY_US)
    engine.append_message("s2", "user", "hi", at_us=T0_US + 25 * DAY_US)
    engine.end_session("s2", "session_reset", at_us=T0_US + 26 * DAY_US)
    engine.reroute(K, "s1", "recovery", at_us=T0_US + 27 * DAY_US)
    (finding,) = (each for each in findings(engine) if each.kind == "reset_undone")

    assert (finding.facts["fence"], finding.remedy) == ("s2", f"retold sessions unroute {K}")
    engine.close_key(K)
    s3 = engine.resolve(source, at_us=T0_US + 28 * DAY_US).session_id
    assert s3 not in ("s1", "s2")
    assert engine.route_of(K) == s3
    assert row(engine, "s1")["message_count"] == 1
    assert findings(engine) == []
