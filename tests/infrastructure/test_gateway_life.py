"""A gateway's life: starts after crashes and after clean stops, drains, strikes, loops (REFERENCE.md 8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from retold.domain import events as e
from retold.domain.errors import BadUsage, Draining, TurnOver
from retold.domain.inbound import Update
from retold.domain.session_source import SessionSource
from retold.infrastructure.clean_stop import MARKER
from retold.infrastructure.engine import SessionEngine
from retold.projections.listing import list_sessions
from retold.tests.infrastructure.clocks import Clock
from retold.tests.infrastructure.gateways import PLACE, chat, crash_in_turn, recoveries

# --- after a crash, after a clean stop --------------------------------------------------------------


def test_a_start_after_a_crash_marks_who_was_active_and_offers_them(
    engine: SessionEngine, clock: Clock
) -> None:
    chat(engine, "old", 1)
    clock.turn(121)
    key = chat(engine, "new", 2)
    started = engine.start_gateway()

    assert (started.clean, started.marked) == (False, ("new",))
    assert [(each.session_id, each.key, each.reason) for each in started.resume] == [
        ("new", key, "restart_interrupted")
    ]
    assert engine.session("new").marks.resume == "restart_interrupted"
    assert engine.session("old").marks.resume is None
    assert recoveries(engine) == [e.RecoveryRan(["new"], [], ["new"], {}, loop=False)]


def test_a_clean_stop_leaves_a_marker_that_the_next_start_takes_away(
    home: Path, engine: SessionEngine
) -> None:
    chat(engine)
    engine.start_gateway()
    engine.finish_turn("s1", str(engine.begin_turn("s1").turn))
    stopped = engine.stop_gateway()

    assert stopped.clean
    assert (home / MARKER).read_bytes() == b""
    started = engine.start_gateway()
    assert (started.clean, started.marked, started.resume) == (True, (), ())
    assert not (home / MARKER).exists()
    assert engine.start_gateway().clean is False


def test_a_stop_that_leaves_work_undone_takes_away_what_a_clean_one_had_left(
    engine: SessionEngine, home: Path
) -> None:
    chat(engine)
    engine.start_gateway()
    engine.stop_gateway()
    engine.begin_turn("s1", gateway="main")

    stopped = engine.stop_gateway()

    assert (stopped.clean, stopped.running) == (False, ("s1",))
    assert not (home / MARKER).exists()
    assert engine.start_gateway().clean is False


def test_two_gateways_of_a_home_do_not_take_each_others_marker(home: Path, engine: SessionEngine) -> None:
    engine.start_gateway("main")
    engine.start_gateway("second")
    engine.stop_gateway("second")

    assert not engine.start_gateway("main").clean
    assert engine.start_gateway("second").clean
    for name in ("", "../up", "a b", "x" * 65):
        with pytest.raises(BadUsage):
            engine.start_gateway(name)


def test_a_start_that_fails_leaves_the_marker_for_the_next_one(
    home: Path, engine: SessionEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.stop_gateway()
    with monkeypatch.context() as broken:
        broken.setattr(engine, "save_events", lambda *_, **__: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            engine.start_gateway()

    assert engine.start_gateway().clean


def test_a_turn_that_a_crash_cut_off_is_lost_and_offered_with_its_words(
    engine: SessionEngine, clock: Clock
) -> None:
    chat(engine)
    begun = engine.begin_turn(
        "s1",
        text="and the oven?",
        about={"message": "77"},
        gateway="main",
        update=Update("telegram", "1", "9"),
    )
    clock.turn(5)
    (offered,) = engine.start_gateway().resume

    assert (offered.turn, offered.text, offered.about) == (begun.turn, "and the oven?", {"message": "77"})
    with pytest.raises(TurnOver):
        engine.finish_turn("s1", str(begun.turn))
    # Killed before it could act on the answer, it is told the same again.
    clock.turn(90)
    assert engine.start_gateway().resume == (offered,)
    assert engine.session("s1").marks.restarts == 1


def test_what_to_tell_the_model_after_a_restart_stands_in_each_answer_until_a_turn_succeeds(
    engine: SessionEngine, clock: Clock
) -> None:
    chat(engine)
    before = engine.resolve(PLACE)
    engine.enqueue("s1", "and the oven?", about={"message": "77"})
    first = engine.next_turn("s1", gateway="main")
    clock.turn(5)
    (offered,) = engine.start_gateway().resume
    resolved = engine.resolve(PLACE)
    engine.enqueue("s1", offered.text or "", about=offered.about)
    again = engine.next_turn("s1", gateway="main")
    assert first is not None
    assert again is not None
    engine.finish_turn("s1", str(again.turn), "failed")
    new = engine.begin_turn("s1", text="are you there?")
    engine.finish_turn("s1", str(new.turn))
    after = engine.begin_turn("s1", text="good")

    assert (before.note, first.note, after.note) == (None, None, None)
    assert offered.note.startswith("Your last turn here was cut off: the program that runs you stopped")
    assert "ask how to go on" in offered.note
    assert again.note == offered.note
    assert resolved.note == new.note
    assert "A new message has come since: answer that first." in str(new.note)
    assert engine.resolve(PLACE).note is None


def test_nobody_is_asked_where_nobody_writes(engine: SessionEngine, clock: Clock) -> None:
    engine.create_session("webhook", session_id="w", key="agent:main:webhook:dm:1", at_us=clock.now_us)
    engine.begin_turn("w", text="build it", gateway="main")
    clock.turn(5)
    (offered,) = engine.start_gateway().resume
    again = engine.begin_turn("w", text="build it", gateway="main")

    assert "go on with the task" in offered.note
    assert again.note == offered.note


def test_a_mark_goes_with_the_next_turn_that_succeeds_and_not_before(
    engine: SessionEngine, clock: Clock
) -> None:
    chat(engine)
    crash_in_turn(engine, clock)
    engine.append_message("s1", "user", "are you there?")
    for outcome in ("failed", "interrupted"):
        turn = str(engine.begin_turn("s1").turn)
        assert not engine.finish_turn("s1", turn, outcome).resumed
        assert engine.session("s1").marks.resume == "restart_interrupted"
    finished = engine.finish_turn("s1", str(engine.begin_turn("s1").turn))

    assert finished.resumed
    assert len(finished.positions) == 2
    marks = engine.session("s1").marks
    assert (marks.resume, marks.restarts) == (None, 0)


def test_what_is_older_than_the_window_is_passed_over_and_named(home: Path, clock: Clock) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("agent: {gateway_auto_continue_freshness: 600}\n")
    with SessionEngine(home, clock=clock) as engine:
        chat(engine)
        crash_in_turn(engine, clock)
        clock.turn(601)
        started = engine.start_gateway()

    assert started.resume == ()
    assert "freshness" in started.passed_over["s1"]


def test_sessions_of_platforms_that_are_not_served_keep_their_marks(
    engine: SessionEngine, clock: Clock
) -> None:
    chat(engine)
    crash_in_turn(engine, clock)
    elsewhere = engine.start_gateway(platforms=["discord"])
    here = engine.start_gateway(platforms=["telegram"])

    assert elsewhere.passed_over == {"s1": "telegram is not served here"}
    assert [each.session_id for each in here.resume] == ["s1"]


def test_a_session_that_no_chat_leads_to_is_marked_and_not_resumed(
    engine: SessionEngine, clock: Clock
) -> None:
    engine.create_session("telegram", session_id="s1")
    started = crash_in_turn(engine, clock)

    assert (started.marked, started.resume) == (("s1",), ())
    assert started.passed_over == {"s1": "no chat leads to it"}


# --- strikes, loops, /stop -------------------------------------------------------------------------


def test_i5_three_restarts_in_a_turn_suspend_a_session_and_its_chat_begins_anew(
    engine: SessionEngine, clock: Clock
) -> None:
    source = SessionSource("telegram", chat_id="1001", user_id="501")
    update = Update("telegram", "1001", "42")
    stuck = engine.resolve(source).session_id
    engine.begin_turn(stuck, text="the one that hangs", update=update, gateway="main")
    engine.enqueue(stuck, "and another", lane="overflow", turn="q1")
    clock.turn(100)
    engine.start_gateway()
    assert crash_in_turn(engine, clock, stuck).suspended == ()
    started = crash_in_turn(engine, clock, stuck)

    assert (started.suspended, started.resume) == ((stuck,), ())
    marks = engine.session(stuck).marks
    assert (marks.suspended, marks.restarts, marks.resume) == ("stuck", 3, None)
    assert recoveries(engine)[-1].suspended == [stuck]
    engine.projector.catch_up()
    assert [each.id for each in list_sessions(engine.state.reader()).rows] == [stuck]
    clean = engine.resolve(source)
    assert (clean.previous, clean.reset, clean.created) == (stuck, "suspended", True)
    # What the platform delivers again is kept: it begins one turn more, in the clean session.
    kept = engine.begin_turn(clean.session_id, text="the one that hangs", update=update)
    again = engine.begin_turn(clean.session_id, text="the one that hangs", update=update)
    assert (kept.repeated, kept.session_id) == (False, clean.session_id)
    assert (again.repeated, again.turn) == (True, kept.turn)
    assert [each.turn for each in engine.queue_of(clean.session_id).waiting] == ["q1"]


def test_a_turn_that_succeeds_ends_the_row_of_strikes(engine: SessionEngine, clock: Clock) -> None:
    chat(engine)
    crash_in_turn(engine, clock)
    crash_in_turn(engine, clock)
    engine.finish_turn("s1", str(engine.begin_turn("s1", gateway="main").turn))

    assert crash_in_turn(engine, clock).suspended == ()
    assert engine.session("s1").marks.restarts == 1


def test_too_many_starts_in_too_short_a_time_resume_nothing_and_keep_the_marks(
    engine: SessionEngine, clock: Clock
) -> None:
    chat(engine)
    engine.begin_turn("s1", gateway="main")
    loops = []
    for _ in range(3):
        clock.turn(20)
        loops.append(engine.start_gateway())

    assert [(each.loop, len(each.resume)) for each in loops] == [(False, 1), (False, 1), (True, 0)]
    assert loops[-1].passed_over == {"s1": "too many starts in too short a time"}
    assert engine.session("s1").marks.resume == "restart_interrupted"
    clock.turn(61)
    assert [each.session_id for each in engine.start_gateway().resume] == ["s1"]


def test_the_loop_guard_is_a_setting_and_can_be_switched_off(home: Path, clock: Clock) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("gateway: {restart_loop_guard: {max_restarts: 0}}\n")
    with SessionEngine(home, clock=clock) as engine:
        chat(engine)
        engine.begin_turn("s1", gateway="main")
        loops = [engine.start_gateway().loop for _ in range(5)]

    assert loops == [False] * 5


def test_stop_interrupts_the_turn_and_suspends_the_session(engine: SessionEngine) -> None:
    chat(engine)
    begun = engine.begin_turn("s1")
    engine.enqueue("s1", "later", lane="overflow")
    engine.stop_session("s1")

    state = engine.session("s1")
    assert (state.marks.suspended, state.turns.running) == ("stop", None)
    assert len(state.turns.waiting) == 1
    assert engine.finish_turn("s1", str(begun.turn), "interrupted").positions  # the runner's own word for it
    assert engine.stop_session("s1").positions == ()
    assert engine.start_gateway().marked == ()


def test_what_waits_after_a_clean_stop_is_found_by_the_next_start(
    engine: SessionEngine, clock: Clock
) -> None:
    for number, name in enumerate(("asleep", "awake", "idle", "stopped")):
        clock.turn(100)
        chat(engine, name, number, "discord" if name == "asleep" else "telegram")
    engine.create_session("cli", session_id="terminal")
    for name in ("awake", "asleep", "stopped", "terminal"):
        engine.enqueue(name, "later")
    engine.stop_session("stopped")
    clock.turn(1000)
    engine.stop_gateway()

    assert engine.start_gateway().clean
    assert engine.waiting_sessions() == ["terminal", "asleep", "awake"]
    assert engine.waiting_sessions(["telegram"]) == ["awake"]
    engine.next_turn("awake", gateway="main")
    assert engine.waiting_sessions() == ["terminal", "asleep"]


# --- drains ----------------------------------------------------------------------------------------


def test_a_drain_marks_what_runs_and_unmarks_what_ends_in_time(engine: SessionEngine, clock: Clock) -> None:
    chat(engine, "s1", 1)
    chat(engine, "s2", 2)
    turns = {name: str(engine.begin_turn(name, gateway="main").turn) for name in ("s1", "s2")}
    clock.turn(1)
    engine.drain_gateway("main", "restart")
    during = [engine.session(name).marks.resume for name in ("s1", "s2")]
    clock.turn(1)
    engine.finish_turn("s1", turns["s1"])
    engine.finish_turn("s2", turns["s2"], "failed")
    stopped = engine.stop_gateway("main", "restart")

    assert during == ["restart_timeout", "restart_timeout"]
    assert (stopped.clean, stopped.running) == (True, ())
    assert [engine.session(name).marks.resume for name in ("s1", "s2")] == [None, None]


def test_a_drain_that_times_out_is_no_clean_stop(home: Path, engine: SessionEngine, clock: Clock) -> None:
    key = chat(engine)
    engine.begin_turn("s1", text="a long one", gateway="main")
    engine.drain_gateway("main", "shutdown")
    clock.turn(1)
    stopped = engine.stop_gateway("main", "shutdown")
    started = engine.start_gateway()

    assert (stopped.clean, stopped.running) == (False, ("s1",))
    assert not (home / MARKER).exists()
    (offered,) = started.resume
    assert (offered.key, offered.reason, offered.text) == (key, "shutdown_timeout", "a long one")
    assert engine.session("s1").marks.restarts == 1
    assert [event.payload for event in engine.event_log.read(topics=[e.GatewayStopped.topic])] == [
        e.GatewayStopped(False, "shutdown", ["s1"])
    ]


def test_strikes_of_drains_that_time_out_are_counted_too(engine: SessionEngine, clock: Clock) -> None:
    chat(engine)
    suspended = []
    for _ in range(3):
        clock.turn(300)
        engine.begin_turn("s1", gateway="main")
        engine.drain_gateway("main", "restart")
        engine.stop_gateway("main", "restart")
        suspended.append(engine.start_gateway().suspended)

    assert suspended == [(), (), ("s1",)]


def test_i4_a_forgotten_drain_lapses_and_that_is_on_record(engine: SessionEngine, clock: Clock) -> None:
    chat(engine)
    engine.drain_gateway("main", owner="deploy script", for_s=600)
    clock.turn(599)
    with pytest.raises(Draining, match="deploy script") as refused:
        engine.begin_turn("s1", gateway="main")
    queued = engine.enqueue("s1", "meanwhile")
    clock.turn(61)
    assert engine.draining() is None
    begun = engine.next_turn("s1", gateway="main")

    assert begun is not None
    assert (begun.turn, begun.text) == (queued.turn, "meanwhile")
    assert refused.value.exit_code == 4
    settings = [event.payload for event in engine.event_log.read(topics=[e.SettingChanged.topic])]
    assert settings[-1] == e.SettingChanged("drain", None, lapsed=True)


def test_a_drain_on_anothers_word_outlives_a_restart_and_the_gateways_own_does_not(
    engine: SessionEngine,
) -> None:
    engine.drain_gateway("main")
    engine.start_gateway()
    assert engine.draining() is None
    engine.drain_gateway("main", owner="admin", for_s=600)
    engine.start_gateway()
    found = engine.draining()

    assert found is not None
    assert found.owner == "admin"
    engine.lift_drain()
    assert engine.draining() is None
    assert engine.lift_drain().positions == ()
