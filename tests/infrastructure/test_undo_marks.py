"""Undo and the marks of a session: they come back, and whatever an undo writes can be undone."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retold.domain import events as e
from retold.domain import removal, requeuing, reversal
from retold.domain.built_on import UNDOABLE
from retold.domain.errors import BuiltOn, NotUndoable
from retold.infrastructure.engine import SessionEngine, open_home
from retold.tests.infrastructure.standing import standing

K = "agent:main:telegram:dm:1001"
Do = Callable[[SessionEngine], tuple[int, ...]]


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        opened.create_session("telegram", session_id="a", key=K)
        opened.append("a", "user", "hi")
        yield opened


def cut_off(engine: SessionEngine) -> None:
    """A turn that a restart cut off: the session bears a mark to be gone on with."""
    engine.start_gateway()
    engine.begin_turn("a", text="do it", gateway="main")
    engine.start_gateway()
    assert engine.session("a").marks.resume == "restart_interrupted"


CHANGES: dict[str, Do] = {
    "a reset": lambda engine: engine.reset(K).positions,
    "a hard end": lambda engine: engine.end_session("a", "session_reset").positions,
    "a soft end": lambda engine: engine.end_session("a", "agent_close").positions,
    "a key closed": lambda engine: engine.close_key(K).positions,
    "a key led": lambda engine: engine.lead_key(K, "a").positions,
    "a deletion": lambda engine: engine.delete_session("a").positions,
    "a stop": lambda engine: engine.stop_session("a").positions,
}
STOPPED = {name: change for name, change in CHANGES.items() if name != "a stop"}
STOPPED["an opening"] = lambda engine: engine.reopen_session("a").positions


def undone_often(engine: SessionEngine, change: Do) -> None:
    before = standing(engine)
    done = change(engine)
    after = standing(engine)
    for _ in range(2):
        back = engine.undo(done[0])
        assert standing(engine) == before
        done = engine.undo(back.positions[0]).positions
        assert standing(engine) == after


@pytest.mark.parametrize("change", STOPPED)
def test_what_is_undone_of_a_chat_that_was_stopped_is_undone_however_often(
    engine: SessionEngine, change: str
) -> None:
    engine.stop_session("a")
    undone_often(engine, STOPPED[change])

    assert engine.session("a", deleted=True).marks.suspended == (None if change == "an opening" else "stop")


@pytest.mark.parametrize("change", CHANGES)
def test_a_mark_to_be_gone_on_with_comes_back_with_its_time(engine: SessionEngine, change: str) -> None:
    cut_off(engine)
    marked = engine.session("a").marks
    undone_often(engine, CHANGES[change])
    back = engine.undo(engine.event_log.head().position)

    assert engine.session("a").marks == marked
    assert back.left == ()


def test_a_stop_of_an_ended_chat_is_undone_and_the_end_stays(engine: SessionEngine) -> None:
    engine.end_session("a", "agent_close")
    undone_often(engine, lambda engine: engine.stop_session("a").positions)


def test_a_stop_since_is_built_on_the_end_before(engine: SessionEngine) -> None:
    ended = engine.end_session("a", "agent_close")
    stopped = engine.stop_session("a")
    with pytest.raises(BuiltOn) as refused:
        engine.undo(ended.position)

    assert refused.value.positions == stopped.positions


@pytest.mark.parametrize("change", ["a reset", "a hard end", "a soft end"])
def test_an_end_since_is_built_on_the_stop_before(engine: SessionEngine, change: str) -> None:
    stopped = engine.stop_session("a")
    CHANGES[change](engine)
    after = standing(engine)
    with pytest.raises(BuiltOn):
        engine.undo(stopped.position)

    assert standing(engine) == after


def test_an_end_since_is_built_on_the_stop_that_an_undo_put_back(engine: SessionEngine) -> None:
    stopped = engine.stop_session("a")
    lifted = engine.undo(stopped.position)
    put_back = engine.undo(lifted.position)
    reset = engine.reset(K)
    after = standing(engine)
    with pytest.raises(BuiltOn) as refused:
        engine.undo(put_back.position)

    assert set(refused.value.positions) <= set(reset.positions)
    assert standing(engine) == after


def test_a_stop_since_is_built_on_the_opening_before(engine: SessionEngine) -> None:
    engine.end_session("a", "agent_close")
    opened = engine.reopen_session("a")
    stopped = engine.stop_session("a")
    with pytest.raises(BuiltOn) as refused:
        engine.undo(opened.position)

    assert refused.value.positions == stopped.positions


@pytest.mark.parametrize("change", [*CHANGES, "an opening"])
def test_what_is_undone_already_is_not_undone_again(engine: SessionEngine, change: str) -> None:
    """Neither the change nor its undo, whatever there is to be changed back."""
    if change == "an opening":
        engine.end_session("a", "agent_close")
    done = (CHANGES | STOPPED)[change](engine)
    undone = engine.undo(done[0])
    with pytest.raises(BuiltOn, match="undone already"):
        engine.undo(done[0])
    again = engine.undo(undone.position)
    head = engine.head()
    with pytest.raises(BuiltOn, match=f"undone already, by #{again.positions[0]}"):
        engine.undo(undone.position)

    assert engine.head() == head


def test_every_event_that_an_undo_writes_can_be_undone() -> None:
    """Kinds that a save must hold beside others are known where they stand: a turn that waits again is."""
    written = {name for module in (reversal, requeuing, removal) for name in _made_in(module)}
    made = {kind for name in written if isinstance(kind := getattr(e, name), type)}
    beside = {e.TurnQueued, e.SourceRowChanged}

    assert {e.SessionSuspended, e.ResumeMarked, e.SessionDeleted, e.SessionReopened} <= made
    assert {kind for kind in made if issubclass(kind, e.Payload)} - beside <= set(UNDOABLE)


def _made_in(module: object) -> Iterator[str]:
    """Names of the events that a module makes."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):  # type: ignore[arg-type]  # a module
        call = node.func if isinstance(node, ast.Call) else None
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name) and call.value.id == "e":
            yield call.attr


def test_what_was_erased_since_is_not_said_to_be_undone_first(engine: SessionEngine) -> None:
    deleted = engine.delete_session("a", now=True)
    with pytest.raises(NotUndoable, match="erased since") as refused:
        engine.undo(deleted.positions[0])

    assert not isinstance(refused.value, BuiltOn)
    assert "undo those first" not in refused.value.hint
