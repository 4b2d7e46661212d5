"""What waits in a chat goes along wherever the chat's key is led: it was acknowledged, and runs once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retold.infrastructure.engine import SessionEngine
from retold.tests.histories import DAY_US, T0_US
from retold.tests.infrastructure.clocks import Clock

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
    engine.create_session(
        "telegram", session_id="lost", parent="before", parent_kind="continuation", at_us=lost_us
    )
    engine.append("lost", "user", "later", at_us=lost_us)
    engine.repair("lost")


def twins(engine: SessionEngine) -> None:
    """Two sessions continue `before`; the key leads to one, and a person says the other."""
    engine.end_session("before", "compression")
    for name in ("first", "second"):
        engine.create_session(
            "telegram",
            session_id=name,
            key=K,
            cause="compression",
            parent="before",
            parent_kind="continuation",
        )
        engine.append(name, "user", "so far")
    engine.enqueue("second", WAITING[0])
    for text in WAITING[1:]:
        engine.enqueue("second", text, lane="overflow")
    engine.clear_queue("now")
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
