"""What a gateway's start and stop do to a session: the table of REFERENCE.md 8.2 and 8.3, row by row."""

from __future__ import annotations

import msgspec
import pytest

from retold.domain import events as e
from retold.domain import restarts
from retold.domain.marks import Marks
from retold.domain.restarts import ACTIVE_WITHIN_US, STRIKES
from retold.domain.session import Session
from retold.domain.turns import CUT_OFF, Turns, Waiting
from retold.tests.histories import HOUR_US, MINUTE_US, T0_US

RUNNING = Turns(running="t1", lease_until_us=T0_US + MINUTE_US, since_us=T0_US, gateway="main")
PENDING = Marks(resume="restart_interrupted", marked_us=T0_US, restarts=1)
LOST = e.TurnFinished("t1", "lost", CUT_OFF)


def session(**fields: object) -> Session:
    return msgspec.structs.replace(Session("s1", 5, "telegram", key="K"), **fields)


def started(
    state: Session, *, clean: bool = False, last_active_us: int | None = None, gateway: str = "main"
) -> list[e.Payload]:
    return restarts.after_start(
        state, gateway=gateway, clean=clean, last_active_us=last_active_us, at_us=T0_US
    )


def test_after_a_crash_whoever_was_active_within_120_seconds_is_marked() -> None:
    marked = [e.ResumeMarked("restart_interrupted", 0)]

    assert started(session(), last_active_us=T0_US - ACTIVE_WITHIN_US) == marked
    assert started(session(), last_active_us=T0_US - ACTIVE_WITHIN_US - 1) == []
    assert started(session(), last_active_us=None) == []
    assert started(session(), clean=True, last_active_us=T0_US) == []


def test_a_turn_that_was_cut_off_is_lost_and_its_session_marked_with_a_strike() -> None:
    expected = [LOST, e.ResumeMarked("restart_interrupted", 1)]

    assert started(session(turns=RUNNING)) == expected
    assert started(session(turns=RUNNING), clean=True) == expected


def test_a_turn_of_another_gateway_is_left_alone_while_its_lease_lasts() -> None:
    assert started(session(turns=RUNNING), gateway="other") == []
    lapsed = msgspec.structs.replace(RUNNING, lease_until_us=T0_US)
    assert started(session(turns=lapsed), gateway="other") == [LOST, e.ResumeMarked("restart_interrupted", 1)]


def test_who_waits_to_be_resumed_is_not_marked_again_unless_cut_off_again() -> None:
    assert started(session(marks=PENDING), last_active_us=T0_US) == []
    assert started(session(marks=PENDING, turns=RUNNING)) == [LOST, e.ResumeMarked("restart_interrupted", 2)]


def test_i5_the_third_restart_in_a_row_that_cuts_its_turn_off_suspends_a_session() -> None:
    twice = Marks(resume="restart_interrupted", marked_us=T0_US, restarts=STRIKES - 1)

    assert started(session(marks=twice, turns=RUNNING)) == [LOST, e.SessionSuspended("stuck", STRIKES)]


def test_strikes_of_stops_are_judged_also_after_a_clean_start() -> None:
    thrice = Marks(resume="restart_timeout", marked_us=T0_US, restarts=STRIKES)

    assert started(session(marks=thrice), clean=True) == [e.SessionSuspended("stuck", STRIKES)]


@pytest.mark.parametrize("over", [{"end_reason": "agent_close"}, {"deleted": True}, {"successor": "s2"}])
def test_a_session_that_is_over_is_not_marked(over: dict[str, object]) -> None:
    assert started(session(**over), last_active_us=T0_US) == []


def test_suspended_beats_every_mark() -> None:
    assert started(session(marks=Marks(suspended="stop"), turns=RUNNING), last_active_us=T0_US) == [LOST]


def test_a_drain_marks_what_runs_and_nothing_else() -> None:
    def mark(state: Session) -> e.ResumeMarked | None:
        return restarts.before_drain(state, gateway="main", why="restart")

    assert mark(session(turns=RUNNING)) == e.ResumeMarked("restart_timeout", 0)
    assert mark(session(turns=RUNNING, marks=PENDING)) is None
    assert mark(session(turns=RUNNING, marks=Marks(suspended="stop"))) is None
    assert mark(session(turns=msgspec.structs.replace(RUNNING, gateway="other"))) is None
    assert mark(session()) is None


def stopped(state: Session, since_us: int | None = T0_US) -> list[e.Payload]:
    return restarts.at_stop(state, gateway="main", why="shutdown", draining_since_us=since_us)


def test_what_a_stop_did_not_wait_for_is_interrupted_marked_and_counted() -> None:
    once = Marks(resume="shutdown_timeout", marked_us=T0_US, restarts=1)

    assert stopped(session(turns=RUNNING, marks=once)) == [
        e.TurnFinished("t1", "interrupted", "the shutdown did not wait for its end"),
        e.ResumeMarked("shutdown_timeout", 2),
    ]


def test_what_ended_within_the_drain_is_unmarked_and_older_marks_stay() -> None:
    idle = Turns(gateway="main")
    drained = Marks(resume="shutdown_timeout", marked_us=T0_US)

    assert stopped(session(turns=idle, marks=drained)) == [e.ResumeCleared("drained")]
    assert stopped(session(turns=idle, marks=drained), since_us=T0_US + 1) == []
    assert stopped(session(turns=idle, marks=drained), since_us=None) == []
    assert stopped(session(turns=idle, marks=PENDING)) == []
    assert stopped(session(turns=Turns(gateway="other"), marks=drained)) == []


def passed_over(state: Session, *, platforms: tuple[str, ...] = (), window_us: int = HOUR_US) -> str | None:
    at_us = T0_US + HOUR_US
    return restarts.passed_over(state, state.marks, platforms=platforms, window_us=window_us, at_us=at_us)


def test_a_mark_within_the_window_is_resumed_and_an_older_one_is_not() -> None:
    assert passed_over(session(marks=PENDING)) is None
    assert passed_over(session(marks=PENDING), platforms=("telegram",)) is None
    assert "freshness" in str(passed_over(session(marks=PENDING), window_us=HOUR_US - 1))
    assert "switched off" in str(passed_over(session(marks=PENDING), window_us=0))
    assert "not served" in str(passed_over(session(marks=PENDING), platforms=("discord",)))
    assert passed_over(session(marks=PENDING, end_reason="cli_close")) == "it is over"
    assert passed_over(session(marks=Marks(suspended="stuck"))) == "suspended (stuck)"


def test_a6_a_mark_older_than_the_window_expires_but_with_no_reset_policy_it_never_does() -> None:
    def expired(marks: Marks, mode: str, window_us: int = HOUR_US, later_us: int = HOUR_US + 1) -> bool:
        return restarts.expired(marks, window_us=window_us, mode=mode, at_us=T0_US + later_us)

    assert expired(PENDING, "idle")
    assert not expired(PENDING, "idle", later_us=HOUR_US)
    assert not expired(PENDING, "none")
    assert not expired(PENDING, "idle", window_us=0)
    assert not expired(Marks(), "idle")


def test_what_is_offered_holds_the_turn_that_was_cut_off_and_its_words() -> None:
    asked = Waiting("t1", "and the oven?", "slot", {"sender": "501"})
    before = msgspec.structs.replace(RUNNING, asked=asked)
    offered = restarts.resume_of(session(), before, "K", "restart_interrupted")

    assert (offered.turn, offered.text, offered.about) == ("t1", "and the oven?", {"sender": "501"})
    assert (offered.session_id, offered.key, offered.kind) == ("s1", "K", "ask")
    earlier = Turns(cut_off="t0", asked=asked)
    assert restarts.resume_of(session(), earlier, "K", "restart_timeout").turn == "t0"


def test_the_note_tells_the_agent_what_to_do_with_its_cut_off_turn() -> None:
    assert restarts.note_kind("telegram", new_message=True) == "new_message"
    assert restarts.note_kind("telegram", new_message=False) == "ask"
    assert restarts.note_kind("webhook", new_message=False) == "go_on"
    notes = {
        restarts.recovery_note(reason, kind)
        for reason in ("restart_interrupted", "restart_timeout", "shutdown_timeout")
        for kind in ("new_message", "ask", "go_on")
    }
    assert len(notes) == 9
    assert "answer that first" in restarts.recovery_note("restart_interrupted", "new_message")
