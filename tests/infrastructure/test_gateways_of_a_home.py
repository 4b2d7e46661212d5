"""Several gateways of one home: none takes what another sees to (REFERENCE.md 8.1 to 8.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from retold.domain import events as e
from retold.domain.restarts import StopReason
from retold.infrastructure.commands.gateway import Started
from retold.infrastructure.engine import SessionEngine
from retold.tests.infrastructure.clocks import Clock
from retold.tests.infrastructure.gateways import PLACE, chat, crash_in_turn
from retold.tests.infrastructure.processes import run_together


def test_starts_of_two_gateways_at_once_mark_each_session_once(home: Path) -> None:
    with SessionEngine(home) as engine:
        for number in range(10):
            chat(engine, f"s{number}", number)
    code = """
        started = engine.start_gateway({name!r})
        print(*started.marked)
    """
    answers = run_together(home, [code.format(name=name) for name in ("main", "second")])
    with SessionEngine(home) as engine:
        marked = engine.event_log.read(topics=[e.ResumeMarked.topic])

    assert sorted(word for answer in answers for word in answer) == sorted(f"s{n}" for n in range(10))
    assert len(marked) == 10


# --- several gateways of a home ---------------------------------------------------------------------


def had_a_turn(engine: SessionEngine, session_id: str = "s1", gateway: str | None = "main") -> None:
    begun = engine.begin_turn(session_id, gateway=gateway)
    engine.append(session_id, "assistant", "yes")
    engine.finish_turn(session_id, str(begun.turn))


def nothing_was_found(started: Started) -> bool:
    return not (started.marked or started.resume or started.passed_over or started.suspended)


def test_a_start_leaves_the_chats_of_another_living_gateway_alone(
    engine: SessionEngine, clock: Clock
) -> None:
    engine.start_gateway("main")
    chat(engine)
    had_a_turn(engine)
    clock.turn(1)

    assert nothing_was_found(engine.start_gateway("second", ["discord"]))
    clock.turn(1)
    assert nothing_was_found(engine.start_gateway("third"))
    clock.turn(1)
    assert nothing_was_found(engine.start_gateway("third"))  # unclean, but that of its own
    assert engine.session("s1").marks.resume is None
    assert engine.resolve(PLACE).note is None


def test_a_start_does_not_offer_what_another_gateway_has_in_hand(engine: SessionEngine, clock: Clock) -> None:
    engine.start_gateway("main")
    chat(engine)
    had_a_turn(engine)
    crash_in_turn(engine, clock)
    clock.turn(1)

    assert nothing_was_found(engine.start_gateway("second"))  # main was given it
    begun = engine.begin_turn("s1", gateway="main")
    clock.turn(1)
    assert nothing_was_found(engine.start_gateway("second"))  # main is at it
    assert engine.queue_of("s1").running == begun.turn
    engine.finish_turn("s1", str(begun.turn), "failed")
    clock.turn(1)
    assert nothing_was_found(engine.start_gateway("second"))
    assert [each.session_id for each in engine.start_gateway("main").resume] == ["s1"]


def test_a_turn_that_no_gateway_runs_is_left_alone_while_its_lease_lasts(
    engine: SessionEngine, clock: Clock
) -> None:
    chat(engine)
    begun = engine.begin_turn("s1")
    clock.turn(1)

    assert nothing_was_found(engine.start_gateway())
    assert engine.queue_of("s1").running == begun.turn


@pytest.mark.parametrize("reason", ["restart", "shutdown"])
def test_what_a_stop_of_one_gateway_cut_off_is_offered_by_the_start_of_another(
    engine: SessionEngine, clock: Clock, reason: StopReason
) -> None:
    engine.start_gateway("main")
    chat(engine)
    engine.begin_turn("s1", gateway="main")
    engine.stop_gateway("main", reason)
    clock.turn(1)
    offered = engine.start_gateway("second").resume

    assert [(each.session_id, each.reason) for each in offered] == [("s1", f"{reason}_timeout")]
    clock.turn(1)
    assert nothing_was_found(engine.start_gateway("third"))  # second was given it


def test_what_one_gateway_took_over_is_not_offered_to_the_one_that_had_it(
    engine: SessionEngine, clock: Clock
) -> None:
    engine.start_gateway("main")
    chat(engine)
    engine.begin_turn("s1", gateway="main")
    engine.stop_gateway("main")
    clock.turn(1)
    assert len(engine.start_gateway("second").resume) == 1
    clock.turn(1)

    assert nothing_was_found(engine.start_gateway("main"))
    engine.stop_gateway("second")  # without having gone on with it
    assert len(engine.start_gateway("main").resume) == 1


def test_chats_of_a_gateway_that_was_stopped_cleanly_were_not_cut_off(
    engine: SessionEngine, clock: Clock
) -> None:
    engine.start_gateway("main")
    chat(engine)
    had_a_turn(engine)
    chat(engine, "s2", 1002)  # without a turn
    engine.stop_gateway("main")
    clock.turn(1)

    assert nothing_was_found(engine.start_gateway("second"))


def test_chats_of_a_gateway_that_nobody_ever_started_may_have_been_cut_off(
    engine: SessionEngine, clock: Clock
) -> None:
    chat(engine)
    had_a_turn(engine, gateway="other")
    clock.turn(1)

    assert engine.start_gateway().marked == ("s1",)


def test_chats_of_a_gateway_whose_turn_lapsed_in_silence_were_cut_off(
    engine: SessionEngine, clock: Clock
) -> None:
    engine.start_gateway("main")
    chat(engine)
    chat(engine, "s2", 1002)
    engine.begin_turn("s1", gateway="main", lease_s=10)
    had_a_turn(engine, "s2")
    clock.turn(11)
    started = engine.start_gateway("second")

    assert started.marked == ("s1", "s2")


def test_a_turn_begun_and_ended_without_a_word_after_one_lapsed_is_a_sign_of_life(
    engine: SessionEngine, clock: Clock
) -> None:
    engine.start_gateway("main")
    chat(engine)
    chat(engine, "s2", 1002)
    engine.begin_turn("s1", gateway="main", lease_s=10)
    clock.turn(20)
    quiet = engine.begin_turn("s2", gateway="main", lease_s=10)
    engine.finish_turn("s2", str(quiet.turn))
    clock.turn(20)

    assert engine.start_gateway("second").marked == ("s1",)


def test_a_gateway_that_was_heard_of_after_a_turn_lapsed_lives(engine: SessionEngine, clock: Clock) -> None:
    engine.start_gateway("main")
    chat(engine)
    chat(engine, "s2", 1002)
    engine.begin_turn("s1", gateway="main", lease_s=10)
    clock.turn(11)
    had_a_turn(engine, "s2")
    clock.turn(1)

    assert engine.start_gateway("second").marked == ("s1",)


def test_a_first_start_beside_a_living_gateway_is_no_crash_of_what_no_gateway_ran(
    engine: SessionEngine, clock: Clock
) -> None:
    engine.start_gateway("main")
    chat(engine)
    clock.turn(1)

    assert nothing_was_found(engine.start_gateway("second"))
    clock.turn(1)
    assert engine.start_gateway("second").marked == ("s1",)
    assert nothing_was_found(engine.start_gateway("third", ["discord"]))
