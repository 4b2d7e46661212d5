"""Marks that a restart leaves on a session, and what takes them off."""

from __future__ import annotations

from typing import Literal

import pytest

from retold.domain import events as e
from retold.domain import marks
from retold.domain.marks import Marks
from retold.tests.histories import T0_US


def told(state: Marks, *payloads: e.Payload) -> Marks:
    for each in payloads:
        state = marks.evolve(state, each, T0_US)
    return state


def test_a_mark_says_why_and_since_when_and_a_success_ends_the_row() -> None:
    marked = told(Marks(), e.ResumeMarked("restart_interrupted", 2))

    assert marked == Marks("restart_interrupted", T0_US, 2)
    assert told(marked, e.TurnFinished("t1", "failed")) == marked
    assert told(marked, e.TurnFinished("t1", "done"), e.ResumeCleared("turn_succeeded")) == Marks()
    assert told(marked, e.ResumeCleared("drained")) == Marks(restarts=2)


def test_suspended_takes_the_place_of_every_mark_until_a_person_reopens_the_session() -> None:
    stuck = told(Marks("restart_interrupted", T0_US, 2), e.SessionSuspended("stuck", 3))

    assert stuck == Marks(restarts=3, suspended="stuck")
    assert told(stuck, e.SessionReopened()).suspended is None


def test_a_compressed_conversation_takes_its_mark_and_its_strikes_along() -> None:
    parent = Marks("restart_timeout", T0_US, 2)

    assert told(Marks(), *marks.carried(parent)) == parent
    assert told(parent, e.SessionCompressed("s2")) == Marks()
    assert marks.carried(Marks(restarts=2)) == []


def test_a_session_that_ended_for_good_is_not_to_be_resumed() -> None:
    marked = Marks("restart_interrupted", T0_US, 1)

    assert told(marked, e.SessionReset("idle")) == Marks(restarts=1)
    assert told(marked, e.SessionEnded("session_switch", hard=True)) == Marks(restarts=1)
    assert told(marked, e.SessionEnded("agent_close", hard=False)) == marked
    assert told(Marks(suspended="stuck"), e.SessionReset("suspended")) == Marks(suspended="stuck")


@pytest.mark.parametrize("why", ["stop", "stuck"])
def test_a_stop_goes_along_with_a_compression(why: Literal["stop", "stuck"]) -> None:
    parent = told(Marks(), e.SessionSuspended(why, 3))

    assert told(Marks(), *marks.carried(parent)) == parent
