"""A handoff from its request to its end: one claim, deadlines that move, failures that change nothing."""

from __future__ import annotations

import pytest

from retold.domain import events as e
from retold.domain import handoff
from retold.domain.errors import HandoffRefused
from retold.domain.handoff import LONGEST_US, UNCLAIMED_US, Handoff
from retold.domain.source_rows import HANDOFF, here_after, session_changes
from retold.domain.source_values import Row
from retold.tests.histories import SECOND_US, T0_US

K = "agent:main:telegram:dm:1001"
PENDING = Handoff("pending", "telegram", deadline_us=T0_US + UNCLAIMED_US)
CLAIMED = Handoff("running", "telegram", gateway="main", deadline_us=T0_US + UNCLAIMED_US, claimed_us=T0_US)


@pytest.mark.parametrize("before", [Handoff(), Handoff("completed", "slack"), Handoff("failed", "slack")])
def test_a_handoff_is_asked_for_where_none_is_under_way(before: Handoff) -> None:
    asked = handoff.request(before, "telegram", session_id="s1", at_us=T0_US)

    assert asked == [e.HandoffRequested("telegram", T0_US + UNCLAIMED_US)]
    assert handoff.evolve(before, asked[0], T0_US) == PENDING


@pytest.mark.parametrize("before", [PENDING, CLAIMED])
def test_one_under_way_refuses_another_until_it_is_overdue(before: Handoff) -> None:
    with pytest.raises(HandoffRefused, match="under way") as refused:
        handoff.request(before, "slack", session_id="s1", at_us=T0_US + UNCLAIMED_US - 1)
    late = handoff.request(before, "slack", session_id="s1", at_us=T0_US + UNCLAIMED_US)

    assert refused.value.state == before.state
    assert [type(each) for each in late] == [e.HandoffFailed, e.HandoffRequested]


def test_only_a_pending_one_is_claimed_and_in_time() -> None:
    claimed = handoff.claim(PENDING, "main", session_id="s1", at_us=T0_US)

    assert handoff.evolve(PENDING, claimed, T0_US) == CLAIMED
    for state, at_us in ((CLAIMED, T0_US), (Handoff(), T0_US), (PENDING, T0_US + UNCLAIMED_US)):
        with pytest.raises(HandoffRefused):
            handoff.claim(state, "other", session_id="s1", at_us=at_us)


def test_who_is_heard_of_keeps_it_for_15_minutes_and_no_longer() -> None:
    state, at_us = CLAIMED, T0_US
    while True:
        at_us += UNCLAIMED_US - SECOND_US
        if at_us >= T0_US + LONGEST_US:
            break
        beat = handoff.heartbeat(state, "main", session_id="s1", at_us=at_us)
        state = handoff.evolve(state, beat, at_us)
        assert state.deadline_us == min(at_us + UNCLAIMED_US, T0_US + LONGEST_US)

    assert handoff.expire(state, at_us=at_us) == e.HandoffFailed("the gateway took longer than 15 minutes")
    with pytest.raises(HandoffRefused):
        handoff.heartbeat(state, "main", session_id="s1", at_us=at_us)


def test_deadlines_that_pass_say_who_was_not_heard_of() -> None:
    late_us = T0_US + UNCLAIMED_US

    assert handoff.expire(PENDING, at_us=late_us) == e.HandoffFailed("timed out waiting for gateway")
    assert handoff.expire(CLAIMED, at_us=late_us) == e.HandoffFailed("the gateway fell silent")
    assert handoff.expire(PENDING, at_us=late_us - 1) is None
    assert handoff.expire(Handoff("completed"), at_us=late_us) is None


def test_only_who_claimed_it_completes_it() -> None:
    done = handoff.complete(CLAIMED, "main", K, "s0", session_id="s1", at_us=T0_US)

    assert done == e.HandoffCompleted(K, "telegram", "s0")
    assert handoff.evolve(CLAIMED, done) == Handoff("completed", "telegram")
    for state, gateway, at_us in (
        (CLAIMED, "other", T0_US),
        (PENDING, "main", T0_US),
        (CLAIMED, "main", T0_US + UNCLAIMED_US),
    ):
        with pytest.raises(HandoffRefused):
            handoff.complete(state, gateway, K, None, session_id="s1", at_us=at_us)


def test_of_the_reason_of_a_failure_500_characters_are_kept() -> None:
    failed = handoff.fail(CLAIMED, "é" * 600, gateway="main", session_id="s1")

    assert failed.reason == "é" * 500
    assert handoff.evolve(CLAIMED, failed) == Handoff("failed", "telegram", error="é" * 500)
    assert handoff.fail(PENDING, " \n", gateway=None, session_id="s1").reason == "no reason given"
    with pytest.raises(HandoffRefused):
        handoff.fail(CLAIMED, "no", gateway="other", session_id="s1")
    with pytest.raises(HandoffRefused):
        handoff.fail(Handoff("completed"), "no", gateway=None, session_id="s1")


def test_a_handoff_here_and_another_in_the_source_are_a_conflict_and_ours_stays() -> None:
    seen: Row = {"source": "cli", "started_at": 1.0}
    here = seen
    for payload in (
        e.HandoffRequested("telegram", T0_US),
        e.HandoffClaimed("main", T0_US),
        e.HandoffFailed("the bot was blocked"),
    ):
        here = here_after(here, payload, T0_US)
    assert {name: here.get(name) for name in HANDOFF} == {
        "handoff_state": "failed",
        "handoff_platform": "telegram",
        "handoff_error": "the bot was blocked",
    }
    there: Row = {**seen, "handoff_state": "pending", "handoff_platform": "slack"}
    (told,) = session_changes(seen, here, there, row_id="s1")

    assert isinstance(told, e.SourceRowChanged)
    assert "handoff_state" in told.conflicts
