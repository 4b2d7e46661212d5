"""Undo of what took turns out of a queue: what waited waits again where it was, and runs once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from retold.domain import events as e
from retold.domain.built_on import Told
from retold.domain.errors import BuiltOn
from retold.domain.reversal import left_as_it_is, reverse
from retold.domain.turns import Waiting
from retold.infrastructure.engine import SessionEngine, open_home
from retold.tests.infrastructure.repairing import K
from retold.tests.infrastructure.standing import standing
from retold.tests.infrastructure.test_undo import built_on
from retold.tests.infrastructure.undoing import TITLES, Do, with_a_past


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


@pytest.fixture
def chat(engine: SessionEngine) -> SessionEngine:
    return with_a_past(engine)


CLEARS: dict[str, Do] = {
    "a person's reset": lambda engine: engine.reset(K).positions,
    "a hard end": lambda engine: engine.end_session("b", "session_reset").positions,
    "a key closed": lambda engine: engine.close_key(K).positions,
    "a queue cleared": lambda engine: engine.clear_queue("b").positions,
    "a deletion": lambda engine: engine.delete_session("b").positions,
}


def queue_in_b(engine: SessionEngine) -> tuple[Waiting, ...]:
    for text, turn in (("one", "t1"), ("two", "t2")):
        engine.enqueue("b", text, lane="overflow", turn=turn, about={"id": turn})
    engine.enqueue("b", "a follow-up", turn="t3")
    return engine.queue_of("b").waiting


@pytest.mark.parametrize("change", CLEARS)
def test_what_waited_where_a_save_cleared_the_queue_waits_again_after_its_undo(
    chat: SessionEngine, change: str
) -> None:
    waited, before = queue_in_b(chat), standing(chat, TITLES)
    positions = CLEARS[change](chat)
    after = standing(chat, TITLES)
    undone = chat.undo(positions[0])

    assert [each.text for each in waited] == ["a follow-up", "one", "two"]
    assert chat.queue_of("b").waiting == waited
    assert (standing(chat, TITLES), undone.left) == (before, ())
    again = chat.undo(undone.positions[0])
    assert standing(chat, TITLES) == after
    chat.undo(again.positions[0])
    assert chat.queue_of("b").waiting == waited


def test_what_is_queued_again_runs_exactly_once(chat: SessionEngine) -> None:
    queue_in_b(chat)
    undone = chat.undo(chat.reset(K).position)
    ran = []
    while begun := chat.next_turn("b"):
        ran.append(begun.turn)
        chat.finish_turn("b", begun.turn or "")

    assert ran == ["t3", "t1", "t2"]
    assert chat.enqueue("b", "one", turn="t1").repeated
    assert chat.next_turn("b") is None
    with pytest.raises(BuiltOn):
        chat.undo(undone.positions[0])


def test_what_was_queued_since_a_queue_was_cleared_is_built_on_it(chat: SessionEngine) -> None:
    queue_in_b(chat)
    cleared = chat.clear_queue("b")
    later = chat.enqueue("b", "instead")

    assert built_on(chat, cleared.position) == later.positions


def test_a_text_that_was_forgotten_since_is_not_queued_again(chat: SessionEngine) -> None:
    chat.enqueue("b", "the code is 123456", turn="t1")
    reset = chat.reset(K)
    chat.forget_text("123456")
    chat.undo(reset.position)
    (waits,) = chat.queue_of("b").waiting

    assert waits.turn == "t1"
    assert waits.text.startswith("the code is ")
    assert "123456" not in waits.text


def test_a_turn_whose_words_are_gone_is_not_queued_again_and_that_is_said(chat: SessionEngine) -> None:
    queue_in_b(chat)
    saved = chat.save_of(chat.clear_queue("b").position)
    before = [
        msgspec.structs.replace(each, payload=e.ErasedEvent(each.topic))
        if isinstance(each.payload, e.TurnQueued) and each.payload.turn == "t1"
        else each
        for each in chat.event_log.stream_events("session:b")
        if each.position < saved[0].position
    ]
    told = Told(saved, {"session:b": before}, {})

    assert list(left_as_it_is(told)) == [
        "what waited in b is not queued again, since its text was erased: t1"
    ]
    again = [each.payload for each in reverse(told, erase_after_us=0)]
    assert [each.turn for each in again if isinstance(each, e.TurnQueued)] == ["t3", "t2"]


def waits_in(engine: SessionEngine) -> dict[str, list[str]]:
    return {each: [turn.text for turn in engine.queue_of(each).waiting] for each in ("a", "b")}


def test_what_a_resume_moved_along_waits_again_where_it_was(chat: SessionEngine) -> None:
    for text, lane in (("a follow-up", "slot"), ("one", "overflow"), ("two", "overflow")):
        chat.enqueue("b", text, lane="slot" if lane == "slot" else "overflow")
    before, waiting = standing(chat, TITLES), waits_in(chat)
    resumed = chat.resume(K, "a")
    after, moved = standing(chat, TITLES), waits_in(chat)
    undone = chat.undo(resumed.positions[0])

    assert moved == {"a": ["a follow-up", "one", "two"], "b": []}
    assert (standing(chat, TITLES), waits_in(chat)) == (before, waiting)
    assert undone.left == ()
    chat.undo(undone.positions[0])
    assert (standing(chat, TITLES), waits_in(chat)) == (after, moved)


def test_what_a_resume_moved_along_and_was_begun_since_is_built_on(chat: SessionEngine) -> None:
    chat.enqueue("b", "one")
    resumed = chat.resume(K, "a")
    begun = chat.next_turn("a")

    assert begun is not None
    with pytest.raises(BuiltOn) as refused:
        chat.undo(resumed.positions[0])
    assert refused.value.positions == begun.positions


def test_what_a_timed_reset_moved_along_waits_again_where_it_was(chat: SessionEngine) -> None:
    chat.enqueue("b", "one", lane="overflow")
    reset = chat.reset(K, rule="idle")
    moved = [each.text for each in chat.queue_of(reset.session_id).waiting]
    chat.undo(reset.positions[0])

    assert moved == ["one"]
    assert waits_in(chat) == {"a": [], "b": ["one"]}
    assert chat.route_of(K) == "b"


@pytest.mark.parametrize("way", ["there", "and back"])
def test_a_chat_that_was_stopped_begins_anew_also_after_its_resume_was_undone(
    engine: SessionEngine, way: str
) -> None:
    for name in ("stopped", "other"):
        engine.create_session("telegram", session_id=name)
    engine.resume(K, "stopped")
    engine.stop_session("stopped")
    if way == "and back":
        engine.resume(K, "other")
    resumed = engine.resume(K, "other" if way == "there" else "stopped")
    engine.undo(resumed.position)

    assert engine.session("stopped").marks.suspended == "stop"
