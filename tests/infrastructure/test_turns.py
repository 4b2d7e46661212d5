"""Turns and the queue through the engine: durable, once each, whatever crashes and whoever delivers twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retold.domain import events as e
from retold.domain.errors import (
    BadUsage,
    EditBeginsNothing,
    QueueFull,
    RuleBroken,
    SessionOver,
    Suspended,
    TurnOver,
    TurnRunning,
)
from retold.domain.events import session_stream
from retold.domain.inbound import Update
from retold.infrastructure.engine import SessionEngine
from retold.tests.infrastructure.clocks import Clock
from retold.tests.infrastructure.processes import run_together

K = "agent:main:telegram:dm:1001"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(home: Path, clock: Clock) -> Iterator[SessionEngine]:
    with SessionEngine(home, clock=clock) as opened:
        opened.create_session("telegram", session_id="s1", key=K)
        yield opened


def update(number: int, *, edit: bool = False) -> Update:
    return Update("telegram", "1001", str(number), edit=edit)


def turn_events(engine: SessionEngine, session_id: str = "s1") -> list[e.Payload]:
    return [
        event.payload
        for event in engine.event_log.stream_events(session_stream(session_id))
        if isinstance(event.payload, (e.TurnQueued, e.TurnStarted, e.TurnFinished, e.QueueCleared))
    ]


def test_a_turn_runs_and_those_that_wait_follow_each_in_a_save_of_its_own(engine: SessionEngine) -> None:
    first = engine.begin_turn("s1")
    engine.enqueue("s1", "q1", lane="overflow", turn="q1", about={"sender": "501"})
    engine.enqueue("s1", "p1", turn="p1")
    engine.finish_turn("s1", str(first.turn))
    ran = []
    while (begun := engine.next_turn("s1")) is not None:
        ran.append((begun.turn, begun.text, begun.about))
        engine.finish_turn("s1", str(begun.turn))

    assert ran == [("p1", "p1", {}), ("q1", "q1", {"sender": "501"})]
    assert engine.queue_of("s1").waiting == ()


def test_queued_says_how_many_wait_the_slot_and_the_overflow(engine: SessionEngine) -> None:
    numbers = [
        engine.enqueue("s1", "q1", lane="overflow").waiting,
        engine.enqueue("s1", "p1").waiting,
        engine.enqueue("s1", "q2", lane="overflow").waiting,
    ]
    again = engine.enqueue("s1", "p2")

    assert numbers == [1, 2, 3]
    assert again.waiting == 3
    assert again.replaced is not None


def test_a_full_queue_refuses_and_the_cap_is_a_setting(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("queue: {cap: 2}\n")
    with SessionEngine(home) as engine:
        engine.create_session("cli", session_id="s1")
        engine.enqueue("s1", "q1", lane="overflow")
        engine.enqueue("s1", "q2", lane="overflow")
        with pytest.raises(QueueFull, match="queue is full"):
            engine.enqueue("s1", "q3", lane="overflow")

        assert len(engine.queue_of("s1").waiting) == 2


def test_who_runs_the_turn_is_said_to_whoever_wants_to_begin_another(
    engine: SessionEngine, clock: Clock
) -> None:
    begun = engine.begin_turn("s1", gateway="main", lease_s=30)
    clock.turn(29)
    with pytest.raises(TurnRunning) as refused:
        engine.begin_turn("s1")
    engine.renew_turn("s1", str(begun.turn), lease_s=30)
    clock.turn(29)
    with pytest.raises(TurnRunning):
        engine.begin_turn("s1")

    assert (refused.value.turn, refused.value.gateway) == (begun.turn, "main")
    assert refused.value.exit_code == 4


def test_i16_a_turn_whose_runner_is_gone_holds_its_chat_no_longer_than_its_lease(
    engine: SessionEngine, clock: Clock
) -> None:
    lost = engine.begin_turn("s1", turn="t1", lease_s=30)
    queued = engine.enqueue("s1", "are you there?", update=update(7))
    clock.turn(30)
    begun = engine.next_turn("s1")
    assert begun is not None
    engine.finish_turn("s1", str(begun.turn))

    assert (begun.lost, begun.turn, begun.text) == (lost.turn, queued.turn, "are you there?")
    assert engine.next_turn("s1") is None
    with pytest.raises(TurnOver) as refused:
        engine.finish_turn("s1", "t1")
    assert refused.value.outcome == "lost"


def test_i16_a_session_that_was_reaped_in_a_turn_takes_the_next_message_once(engine: SessionEngine) -> None:
    engine.begin_turn("s1", turn="t1", lease_s=3600)
    engine.end_session("s1", "agent_close")
    engine.reopen_session("s1")
    first = engine.begin_turn("s1", text="hello?", update=update(8))
    again = engine.begin_turn("s1", text="hello?", update=update(8))

    assert (first.repeated, again.repeated) == (False, True)
    assert first.turn == again.turn
    started = [each.turn for each in turn_events(engine) if isinstance(each, e.TurnStarted)]
    assert started == ["t1", first.turn]


def test_a_turn_ends_once_and_the_same_end_again_is_the_same_answer(engine: SessionEngine) -> None:
    engine.begin_turn("s1", turn="t1")
    done = engine.finish_turn("s1", "t1")

    assert engine.finish_turn("s1", "t1") == done
    with pytest.raises(TurnOver):
        engine.finish_turn("s1", "t1", "failed")
    with pytest.raises(TurnOver):
        engine.begin_turn("s1", turn="t1")
    with pytest.raises(TurnOver):
        engine.enqueue("s1", "again", turn="t1")
    with pytest.raises(RuleBroken, match="no turn t9"):
        engine.finish_turn("s1", "t9")
    with pytest.raises(RuleBroken):
        engine.renew_turn("s1", "t1")


def test_an_id_is_queued_once_also_after_it_has_run(engine: SessionEngine) -> None:
    first = engine.enqueue("s1", "q", turn="q1", lane="overflow")
    again = engine.enqueue("s1", "q", turn="q1", lane="overflow")

    assert (first.positions, first.repeated) == (again.positions, False)
    assert (again.repeated, again.waiting) == (True, 1)
    engine.next_turn("s1")
    assert engine.enqueue("s1", "q", turn="q1", lane="overflow").repeated
    assert engine.queue_of("s1").waiting == ()


def test_what_was_acknowledged_as_queued_is_there_for_the_next_process(home: Path, clock: Clock) -> None:
    with SessionEngine(home, clock=clock) as engine:
        engine.create_session("telegram", session_id="s1")
        engine.begin_turn("s1", turn="t1")
        engine.enqueue("s1", "q1 ünïcode 山\ud800", lane="overflow", about={"n": 1, "who": "x\udfff"})
    with SessionEngine(home, clock=clock) as engine:
        (waiting,) = engine.queue_of("s1").waiting

    assert (waiting.text, waiting.about) == ("q1 ünïcode 山\ufffd", {"n": 1, "who": "x\ufffd"})


def test_a_session_that_takes_no_turns_says_why(engine: SessionEngine) -> None:
    engine.stop_session("s1")
    for refused in (engine.begin_turn, lambda s: engine.enqueue(s, "x")):
        with pytest.raises(Suspended, match="stop"):
            refused("s1")
    engine.create_session("cli", session_id="s2")
    engine.end_session("s2", "session_reset")
    with pytest.raises(SessionOver):
        engine.begin_turn("s2")
    engine.create_session("cli", session_id="s3")
    engine.compress_session("s3", "so far", continuation_id="s4")
    with pytest.raises(SessionOver) as over:
        engine.enqueue("s3", "x")
    assert over.value.successor == "s4"


@pytest.mark.parametrize("lease_s", [0, -1, 90_000, float("nan")])
def test_a_lease_is_more_than_nothing_and_at_most_a_day(engine: SessionEngine, lease_s: float) -> None:
    with pytest.raises(BadUsage, match="lease"):
        engine.begin_turn("s1", lease_s=lease_s)


def test_a_cleared_queue_runs_nothing_and_leaves_the_running_turn(engine: SessionEngine) -> None:
    engine.begin_turn("s1", turn="t1")
    engine.enqueue("s1", "q1", turn="q1", lane="overflow")
    engine.clear_queue("s1")

    assert engine.queue_of("s1").running == "t1"
    assert engine.next_turn("s1") is None
    assert engine.clear_queue("s1").positions == ()


def test_a_conversation_that_is_compressed_in_a_turn_goes_on_with_it_and_with_what_waits(
    engine: SessionEngine,
) -> None:
    engine.begin_turn("s1", turn="t1", text="a long one", gateway="main")
    engine.enqueue("s1", "q1", turn="q1", lane="overflow")
    engine.compress_session("s1", "so far", continuation_id="s2")

    assert (engine.queue_of("s1").running, engine.queue_of("s1").waiting) == (None, ())
    with pytest.raises(TurnRunning):
        engine.next_turn("s2")
    assert engine.renew_turn("s1", "t1").session_id == "s2"
    assert engine.finish_turn("s1", "t1").session_id == "s2"  # by the id that its runner knows
    with pytest.raises(TurnOver):
        engine.begin_turn("s2", turn="t1")
    begun = engine.next_turn("s2")
    assert begun is not None
    assert (begun.turn, begun.text) == ("q1", "q1")


# --- what platforms deliver ------------------------------------------------------------------------


def test_b24_an_update_delivered_again_begins_no_second_turn_also_after_a_restart(
    home: Path, clock: Clock
) -> None:
    with SessionEngine(home, clock=clock) as engine:
        engine.create_session("telegram", session_id="s1")
        first = engine.begin_turn("s1", text="hello", update=update(42))
        queued = engine.enqueue("s1", "and?", update=update(43))
    with SessionEngine(home, clock=clock) as engine:
        again = engine.begin_turn("s1", text="hello", update=update(42))
        waits = engine.enqueue("s1", "and?", update=update(43))
        other = engine.enqueue("s1", "elsewhere", update=Update("telegram", "2002", "42"), lane="overflow")
        started = [each for each in turn_events(engine) if isinstance(each, e.TurnStarted)]

    assert (again.turn, again.repeated) == (first.turn, True)
    assert (waits.turn, waits.repeated, waits.waiting) == (queued.turn, True, 1)
    assert not other.repeated  # the same number in another chat is another update
    assert len(started) == 1


def test_b24_an_edit_of_an_old_command_is_no_command(engine: SessionEngine) -> None:
    command = engine.seen_update(update(1))
    with pytest.raises(EditBeginsNothing):
        engine.begin_turn("s1", text="/restart", update=update(2, edit=True))
    with pytest.raises(EditBeginsNothing):
        engine.enqueue("s1", "/restart", update=update(2, edit=True))
    edited = engine.seen_update(update(2, edit=True), session_id="s1")

    assert (command.repeated, edited.repeated) == (False, False)
    assert engine.seen_update(update(1)).repeated
    assert turn_events(engine) == []


def test_i3_the_mark_of_what_was_seen_outlives_a_restart_and_the_rest_is_asked_for(
    home: Path, clock: Clock
) -> None:
    platform = range(1, 12)
    with SessionEngine(home, clock=clock) as engine:
        engine.create_session("telegram", session_id="s1")
        assert engine.highest_update("telegram") is None
        for number in range(1, 6):
            engine.seen_update(update(number))
    with SessionEngine(home, clock=clock) as engine:
        mark = engine.highest_update("telegram")
        assert mark == 5
        for number in (each for each in platform if each > mark):
            begun = engine.begin_turn("s1", text=f"m{number}", update=update(number))
            engine.finish_turn("s1", str(begun.turn))
        started = [each for each in turn_events(engine) if isinstance(each, e.TurnStarted)]

        assert len(started) == 6
        assert engine.highest_update("telegram") == engine.highest_update("telegram", "1001") == 11
        assert engine.highest_update("telegram", "2002") is None
        assert engine.highest_update("slack") is None


def test_an_update_names_no_chat_in_the_log(engine: SessionEngine) -> None:
    engine.seen_update(Update("telegram", "secret-chat", "1"))
    (event,) = engine.event_log.read(topics=[e.UpdateSeen.topic])

    assert "secret-chat" not in f"{event.stream} {event.payload}"


# --- several processes -----------------------------------------------------------------------------


def test_of_processes_that_take_the_next_turn_each_is_run_by_one(home: Path) -> None:
    with SessionEngine(home) as engine:
        engine.create_session("telegram", session_id="s1")
        for number in range(20):
            engine.enqueue("s1", f"q{number}", turn=f"q{number}", lane="overflow")
    code = """
        while True:
            try:
                begun = engine.next_turn("s1")
            except RetoldError as refused:
                assert refused.kind in ("turn_running", "version_conflict"), refused
                continue
            if begun is None:
                break
            print(begun.turn)
            engine.finish_turn("s1", begun.turn)
    """
    answers = run_together(home, [code] * 3)
    with SessionEngine(home) as engine:
        started = [each.turn for each in turn_events(engine) if isinstance(each, e.TurnStarted)]

    assert sorted(word for answer in answers for word in answer) == sorted(f"q{n}" for n in range(20))
    assert started == [f"q{n}" for n in range(20)]


def test_of_processes_that_are_handed_one_update_one_begins_its_turn(home: Path) -> None:
    with SessionEngine(home) as engine:
        engine.create_session("telegram", session_id="s1")
    code = """
        from retold.domain.inbound import Update
        for number in range(5):
            begun = engine.enqueue(
                "s1", f"m{number}", update=Update("telegram", "1", str(number)), lane="overflow"
            )
            print(number, begun.repeated)
    """
    answers = run_together(home, [code] * 3)
    with SessionEngine(home) as engine:
        waiting = [each.text for each in engine.queue_of("s1").waiting]

    assert waiting == [f"m{number}" for number in range(5)]
    assert sum(answer[1::2].count("False") for answer in answers) == 5
