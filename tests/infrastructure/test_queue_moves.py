"""What waits in a chat goes along wherever the chat's key is led: it was acknowledged, and runs once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retold.domain.errors import BuiltOn, SessionOver, Suspended
from retold.domain.events import QueueCleared
from retold.domain.inbound import Update
from retold.infrastructure.engine import SessionEngine
from retold.tests.histories import DAY_US, T0_US
from retold.tests.infrastructure.clocks import Clock
from retold.tests.infrastructure.routing import continued

K = "agent:main:telegram:dm:1001"
WAITING = ("a follow-up", "one", "two")
Move = Callable[[SessionEngine], object]


@pytest.fixture
def clock() -> Clock:
    return Clock(T0_US + 2 * DAY_US)


@pytest.fixture
def chat(home: Path, clock: Clock) -> Iterator[SessionEngine]:
    """A chat whose key leads to `now`, after `before`; in `now` three turns wait."""
    with SessionEngine(home, clock=clock) as engine:
        engine.create_session("telegram", session_id="before", key=K, chat_id="1001", at_us=T0_US)
        engine.append("before", "user", "hello", at_us=T0_US)
        engine.create_session("telegram", session_id="now", key=K, chat_id="1001", at_us=T0_US + DAY_US)
        for text in ("hi", "and?"):
            engine.append("now", "user", text, at_us=T0_US + DAY_US)
            engine.append("now", "assistant", f"to {text}", at_us=T0_US + DAY_US)
        engine.enqueue("now", WAITING[0])
        for text in WAITING[1:]:
            engine.enqueue("now", text, lane="overflow")
        yield engine


def handed_over(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="terminal")
    engine.set_home_channel("telegram", "1001")
    engine.request_handoff("terminal", "telegram")
    engine.claim_handoff("terminal")
    engine.complete_handoff("terminal", key=K, chat_id="1001")


def repaired(engine: SessionEngine) -> None:
    """The key goes to a session that was continued from `before` and lost it."""
    lost_us = T0_US + DAY_US + 60_000_000
    continued(engine, "before", "lost", at_us=lost_us)
    engine.append("lost", "user", "later", at_us=lost_us)
    engine.repair("lost")


def twins(engine: SessionEngine) -> None:
    """Two sessions continue `before`; the key leads to one, and a person says the other."""
    engine.end_session("before", "compression")
    engine.clear_queue("now")
    for name in ("first", "second"):
        continued(engine, "before", name, session_key=K)
        engine.reroute(K, name, "compression")
        engine.append(name, "user", "so far")
    engine.enqueue("second", WAITING[0])
    for text in WAITING[1:]:
        engine.enqueue("second", text, lane="overflow")
    engine.choose_continuation("first")


MOVES: dict[str, Move] = {
    "a resume": lambda engine: engine.resume(K, "before"),
    "a handoff": handed_over,
    "a branch": lambda engine: engine.branch_session("now"),
    "a compression": lambda engine: engine.compress_session("now", "so far", keep_last=1),
    "a timed reset": lambda engine: engine.reset(K, rule="idle"),
    "a route by hand": lambda engine: engine.lead_key(K, "before"),
    "a repair": repaired,
    "a choice of two continuations": twins,
    "a route plainly": lambda engine: engine.reroute(K, "before", "repair"),
    "a session made for the key": lambda engine: engine.create_session("telegram", session_id="new", key=K),
    "a branch from another session of the chat": lambda engine: engine.branch_session("before"),
}


@pytest.mark.parametrize("move", MOVES)
def test_what_waits_goes_along_with_the_chat(chat: SessionEngine, move: str) -> None:
    MOVES[move](chat)
    led = str(chat.route_of(K))

    assert led != "now"
    assert [each.text for each in chat.queue_of(led).waiting] == list(WAITING)
    assert chat.waiting_sessions() == [led]
    assert chat.queue_of("now").waiting == ()
    ran = []
    while begun := chat.next_turn(led):
        ran.append(begun.text)
        chat.finish_turn(led, str(begun.turn))
    assert ran == list(WAITING)


# --- what comes once the chat has gone ---------------------------------------------------------------


def left_by_a_reset(engine: SessionEngine) -> None:
    engine.reset(K, session_id="anew")


LEAVINGS: dict[str, Move] = {
    **{n: m for n, m in MOVES.items() if n != "a compression"},
    "/new": left_by_a_reset,
}


@pytest.mark.parametrize("move", LEAVINGS)
def test_what_is_queued_where_the_chat_was_waits_where_it_went(chat: SessionEngine, move: str) -> None:
    LEAVINGS[move](chat)
    led = str(chat.route_of(K))
    update = Update("telegram", "77", "1001")

    queued = chat.enqueue(
        "second" if move == "a choice of two continuations" else "now", "late", update=update
    )

    assert queued.session_id == led
    assert [each.text for each in chat.queue_of(led).waiting if each.turn == queued.turn] == ["late"]
    again = chat.enqueue("now", "late", update=update)
    assert (again.repeated, again.session_id, again.turn) == (True, led, queued.turn)


def test_a_turn_that_was_queued_before_the_chat_went_is_not_queued_again(chat: SessionEngine) -> None:
    first = chat.enqueue("now", "three", turn="t3", lane="overflow")
    chat.branch_session("now", branch_id="way")

    again = chat.enqueue("now", "three", turn="t3", lane="overflow")

    assert (again.repeated, again.position, again.session_id) == (True, first.position, "way")
    assert [each.turn for each in chat.queue_of("way").waiting].count("t3") == 1


def test_a_branch_beside_the_chat_has_a_queue_of_its_own(chat: SessionEngine) -> None:
    chat.branch_session("now", branch_id="aside", lead=False)

    assert chat.enqueue("aside", "another way").session_id == "aside"
    assert sorted(chat.waiting_sessions()) == ["aside", "now"]


def test_what_is_queued_where_the_chat_was_is_refused_where_the_chat_is_stopped(chat: SessionEngine) -> None:
    chat.lead_key(K, "before")
    chat.stop_session("before")

    with pytest.raises(Suspended, match="before"):
        chat.enqueue("now", "late")


def test_a_chat_that_leads_nowhere_takes_nothing_where_it_ended(chat: SessionEngine) -> None:
    chat.end_session("now", "new_session")
    chat.close_key(K)

    with pytest.raises(SessionOver):
        chat.enqueue("now", "late")


# --- what no chat leads to ---------------------------------------------------------------------------


def test_what_waits_in_a_session_without_a_chat_is_listed_and_runs(chat: SessionEngine) -> None:
    chat.create_session("cli", session_id="terminal")
    chat.enqueue("terminal", "go on")

    assert "terminal" in chat.waiting_sessions()
    assert chat.waiting_sessions(["cli"]) == ["terminal"]
    begun = chat.next_turn("terminal")
    assert begun is not None
    assert begun.text == "go on"


def test_what_waits_in_a_terminal_goes_along_with_it(chat: SessionEngine) -> None:
    chat.create_session("cli", session_id="terminal")
    chat.append("terminal", "user", "hello")
    chat.enqueue("terminal", "go on")

    chat.branch_session("terminal", branch_id="way")

    assert chat.waiting_sessions(["cli"]) == ["way"]


def test_a_stopped_session_without_a_chat_goes_on_once_it_is_opened(chat: SessionEngine) -> None:
    chat.create_session("cli", session_id="terminal")
    chat.enqueue("terminal", "go on")
    chat.stop_session("terminal")
    assert chat.waiting_sessions(["cli"]) == []

    chat.reopen_session("terminal")

    assert chat.waiting_sessions(["cli"]) == ["terminal"]


# --- what is cleared ---------------------------------------------------------------------------------


def cleared(engine: SessionEngine, positions: tuple[int, ...]) -> list[QueueCleared]:
    found = engine.event_log.read(min(positions) - 1, upto=max(positions))
    return [each.payload for each in found if isinstance(each.payload, QueueCleared)]


@pytest.mark.parametrize("reason", ["new_session", "session_switch"])
def test_an_end_for_good_clears_what_waits_and_says_so(chat: SessionEngine, reason: str) -> None:
    turns = tuple(each.turn for each in chat.queue_of("now").waiting)

    ended = chat.end_session("now", reason)

    assert ended.cleared == turns
    assert cleared(chat, ended.positions) == [QueueCleared(list(turns), "person")]
    assert chat.waiting_sessions() == []
    assert chat.end_session("now", reason).cleared == ()


def test_a_soft_end_keeps_what_waits(chat: SessionEngine) -> None:
    assert chat.end_session("now", "timeout").cleared == ()
    assert chat.waiting_sessions() == ["now"]


def test_closing_a_key_clears_what_waits_and_says_so(chat: SessionEngine) -> None:
    turns = tuple(each.turn for each in chat.queue_of("now").waiting)

    closed = chat.close_key(K)

    assert closed.cleared == turns
    assert cleared(chat, closed.positions) == [QueueCleared(list(turns), "person")]
    assert chat.waiting_sessions() == []


# --- what is undone ----------------------------------------------------------------------------------


@pytest.mark.parametrize("move", ["a resume", "a route by hand", "a route plainly"])
def test_what_was_queued_where_a_chat_went_stands_in_the_way_of_an_undo(
    chat: SessionEngine, move: str
) -> None:
    MOVES[move](chat)
    moved = chat.head().position
    queued = chat.enqueue(str(chat.route_of(K)), "since")

    with pytest.raises(BuiltOn) as refused:
        chat.undo(moved)

    assert queued.position in refused.value.positions


@pytest.mark.parametrize("move", ["a resume", "a route by hand", "a route plainly"])
def test_what_went_along_comes_back_with_an_undo(chat: SessionEngine, move: str) -> None:
    MOVES[move](chat)

    chat.undo(chat.head().position)

    assert chat.route_of(K) == "now"
    assert [each.text for each in chat.queue_of("now").waiting] == list(WAITING)
    assert chat.waiting_sessions() == ["now"]


def test_what_an_undo_took_back_waits_in_one_place_only(chat: SessionEngine) -> None:
    made = chat.reset(K, rule="idle", session_id="anew")
    undone = chat.undo(made.position)

    again = chat.undo(undone.position)
    assert [each.text for each in chat.queue_of("anew").waiting] == list(WAITING)
    assert chat.waiting_sessions() == ["anew"]

    chat.undo(again.position)
    chat.undelete_session("anew")
    assert chat.waiting_sessions() == ["now"]


@pytest.mark.parametrize("end", ["reset", "delete_session", "end_session"])
def test_an_end_for_good_names_what_it_cleared(chat: SessionEngine, end: str) -> None:
    waited = tuple(each.turn for each in chat.queue_of("now").waiting)
    ends = {
        "reset": lambda: chat.reset(K).cleared,
        "delete_session": lambda: chat.delete_session("now").cleared,
        "end_session": lambda: chat.end_session("now", "session_reset").cleared,
    }

    assert ends[end]() == waited != ()


def test_a_timed_reset_clears_nothing_and_names_nothing(chat: SessionEngine) -> None:
    waited = [each.text for each in chat.queue_of("now").waiting]
    found = chat.reset(K, rule="idle")

    assert found.cleared == ()
    assert [each.text for each in chat.queue_of(found.session_id).waiting] == waited
