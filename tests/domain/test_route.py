"""Where a key leads: moved, closed, settled on, and the work that is noted on it."""

from __future__ import annotations

import pytest

from retold.domain import events as e
from retold.domain.holds import Hold
from retold.domain.route import Route, evolve

K = "agent:main:telegram:dm:1001"


def after(*payloads: object, at_us: int = 5) -> Route:
    state = Route(K)
    for version, payload in enumerate(payloads, 1):
        state = evolve(state, version, payload, at_us)
    return state


def test_it_leads_where_it_was_led_last_and_says_where_it_led_before() -> None:
    first = Route(K).lead_to("s1", "first_message")
    assert first == e.SessionRerouted(K, "s1", None, "first_message")
    led = after(first)
    assert (led.session_id, led.version, led.closed, led.left) == ("s1", 1, None, None)
    assert led.lead_to("s1", "reset") is None
    assert led.lead_to("s2", "reset") == e.SessionRerouted(K, "s2", "s1", "reset")


def test_what_was_weighed_goes_on_record_without_broken_text() -> None:
    weighed = [e.RouteCandidate("s1", "older \ud800", 5), e.RouteCandidate("s2", "newest", None)]
    moved = Route(K).lead_to("s2", "recovery", candidates=weighed, evidence=["seen \udfff", "so"])

    assert moved is not None
    assert moved.candidates == [e.RouteCandidate("s1", "older \ufffd", 5), weighed[1]]
    assert moved.evidence == ["seen \ufffd", "so"]


def test_settled_on_by_a_persons_word_it_says_so_also_where_it_led_there() -> None:
    led = after(Route(K).lead_to("s1", "first_message"))
    stays = led.settle("s1", "repair", [e.RouteCandidate("s1", "goes on", 1)], ["a person said so"])
    moves = led.settle("s2", "repair", [e.RouteCandidate("s2", "goes on", 1)], ["a person said so"])

    assert (stays.key, stays.session_id, stays.previous, stays.cause) == (K, "s1", "s1", "repair")
    assert stays.candidates == [e.RouteCandidate("s1", "goes on", 1)]
    assert stays.evidence == ["a person said so"]
    assert (moves.session_id, moves.previous, moves.cause) == ("s2", "s1", "repair")
    assert (moves.candidates, moves.evidence) == ([e.RouteCandidate("s2", "goes on", 1)], stays.evidence)


def test_closed_it_leads_nowhere_and_knows_why_and_what_it_left() -> None:
    led = after(Route(K).lead_to("s1", "first_message"))
    closed = led.close("idle")
    assert closed == e.RouteClosed(K, "s1", "idle")
    state = after(Route(K).lead_to("s1", "first_message"), closed)
    assert (state.session_id, state.closed, state.left, state.version) == (None, "idle", "s1", 2)
    assert state.close("delete") is None
    assert Route(K).close("delete") is None
    # A source's own entry may name nothing that it led to.
    unnamed = after(Route(K).lead_to("s1", "first_message"), e.RouteClosed(K, None, "import"))
    assert unnamed.left == "s1"


@pytest.mark.parametrize("cause", ["delete", "idle", "repair"])
def test_closed_by_an_undo_it_is_closed_as_it_was_before(cause: e.Cause) -> None:
    led = Route(K).lead_to("s1", "first_message")
    closed = e.RouteClosed(K, "s1", cause)
    moved = e.SessionRerouted(K, "s2", None, "repair")
    further = e.SessionRerouted(K, "s3", "s2", "repair")
    undone = e.RouteClosed(K, "s2", "undo")
    again = e.SessionRerouted(K, "s2", None, "undo")

    for events in ((moved, undone), (moved, undone, again, undone), (moved, further, undone)):
        state = after(led, closed, *events)
        assert (state.session_id, state.closed, state.left) == (None, cause, "s1")
    never = after(moved, undone)
    assert (never.session_id, never.closed, never.left) == (None, "undo", "s2")


def test_what_was_erased_of_it_leads_nowhere() -> None:
    erased = e.ErasedEvent(topic=e.SessionRerouted.topic)
    state = after(Route(K).lead_to("s1", "first_message"), erased)

    assert (state.key, state.session_id, state.version) == (K, None, 2)


def test_work_is_noted_once_by_its_name_and_stays_through_every_move() -> None:
    noted = Route(K).hold("build", "make")
    assert noted == e.ActivityHeld(K, "build", "make")
    moved = Route(K).lead_to("s1", "first_message")
    state = after(noted, moved)
    assert state.holds == (Hold("build", 5, "make"),)
    assert state.hold("build", "again") is None
    assert state.hold("test") == e.ActivityHeld(K, "test", "")
    assert state.release("test") is None
    over = state.release("build")
    assert over == e.ActivityReleased(K, "build")
    assert after(noted, moved, e.RouteClosed(K, "s1", "daily")).holds == state.holds
    assert after(noted, moved, e.ErasedEvent(topic=e.SessionRerouted.topic)).holds == state.holds
    last = after(noted, moved, over)
    assert (last.holds, last.session_id, last.version) == ((), "s1", 3)


def test_of_several_closings_an_undo_puts_back_that_of_the_save_that_it_names() -> None:
    told: list[tuple[int, object, int | None]] = [
        (1, e.RouteClosed(K, "s0", "idle"), None),
        (2, e.SessionRerouted(K, "s1", None, "first_message"), None),
        (3, e.RouteClosed(K, "s1", "repair"), None),
        (5, e.SessionRerouted(K, "s1", None, "undo"), 3),
    ]
    state = Route(K)
    for version, (position, payload, caused_by) in enumerate(told, 1):
        state = evolve(state, version, payload, position=position, caused_by=caused_by)
    undo = e.RouteClosed(K, "s1", "undo")
    first = evolve(state, 5, undo, position=6, caused_by=2)
    again = evolve(state, 5, undo, position=6, caused_by=5)
    within = evolve(state, 5, undo, position=6, caused_by=4)  # a save's first event may be another stream's

    assert (first.session_id, first.closed, first.left) == (None, "idle", "s0")
    assert (again.closed, again.left) == (within.closed, within.left) == ("repair", "s1")
    assert (evolve(state, 5, undo).closed, evolve(state, 5, undo, caused_by=9).closed) == ("repair", "repair")
    assert (first.version, first.closings) == (5, state.closings)


def test_closings_of_long_ago_are_let_go() -> None:
    state, version = Route(K), 0
    for day in range(40):
        for payload in (
            e.SessionRerouted(K, f"s{day}", None, "daily"),
            e.RouteClosed(K, f"s{day}", "daily"),
        ):
            version += 1
            state = evolve(state, version, payload, position=version)

    assert [each.left for each in state.closings] == [f"s{day}" for day in range(7, 39)]
    assert [each.position for each in state.closings] == list(range(17, 80, 2))


def test_work_is_noted_with_who_watches_over_it_and_how_often_that_one_died() -> None:
    noted = Route(K).hold("build", "a build", gateway="main", deaths=2)

    assert noted == e.ActivityHeld(K, "build", "a build", "main", 2)


def test_closed_by_an_undo_of_what_is_not_on_record_it_was_closed_by_that() -> None:
    state = after(Route(K).lead_to("s1", "first_message"), e.RouteClosed(K, "s1", "undo"))
    never = evolve(Route(K), 1, e.RouteClosed(K, "s1", "undo"), 5)

    for each in (state, never):
        assert (each.key, each.session_id, each.closed, each.left) == (K, None, "undo", "s1")
