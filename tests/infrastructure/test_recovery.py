"""Which session a chat goes on with where its key leads nowhere: after a crash, an end, a loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retold.domain import events as e
from retold.domain.errors import DeletedSession
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.rebuild import rebuild
from retold.tests.infrastructure.routing import (
    BOAT,
    DAY,
    HOUR,
    Clock,
    K,
    chat,
    continued,
    findings,
    forget_routes,
    opened,
    payloads,
    rows,
)


@pytest.mark.parametrize("reopened", [True, False])
def test_a1_a_reset_session_is_never_brought_back(home: Path, clock: Clock, reopened: bool) -> None:
    with opened(home, clock) as engine:
        first = chat(engine)
        engine.append_message(first, "user", "third")
        engine.end_session(first, "session_reset")
        if reopened:
            rebuild(engine.projector, list(engine.projector.projections), compare=False)
        else:
            assert engine.resolve(BOAT).created
    with opened(home, clock) as engine:
        second = engine.resolve(BOAT)

        assert second.created == reopened
        assert second.session_id != first
        assert engine.session(first).end_reason == "session_reset"
        assert rows(engine, "SELECT count(*) FROM messages WHERE session_id = ?", first) == [(3,)]
        assert findings(engine) == []


@pytest.mark.parametrize("old_starts_on_day", [1, 4], ids=["older", "started later but idle"])
def test_a2_recovery_goes_by_the_most_recent_activity_and_never_by_the_start(
    engine: SessionEngine, clock: Clock, old_starts_on_day: int
) -> None:
    start = clock.now_us
    for name, began, last in (("old", old_starts_on_day, old_starts_on_day), ("new", 2, 5)):
        at = start + began * DAY
        engine.create_session("telegram", session_id=name, key=K, cause="resume", at_us=at)
        engine.append_message(name, "user", "hello", at_us=start + last * DAY)
    forget_routes(engine, K)
    clock.pass_by(6 * DAY)

    found = engine.resolve(BOAT)

    assert (found.session_id, found.cause, found.created) == ("new", "recovery", False)
    led = next(each for each in payloads(engine)[::-1] if isinstance(each, e.SessionRerouted))
    assert [(each.session_id, each.verdict) for each in led.candidates] == [
        ("new", "most recent activity"),
        ("old", "in use before that"),
    ]
    assert led.candidates[0].last_active_us == start + 5 * DAY


def test_a4_a_reset_fences_off_what_was_last_in_use_before_it(engine: SessionEngine, clock: Clock) -> None:
    start = clock.now_us
    engine.create_session("telegram", session_id="s1", key=K)
    engine.append_message("s1", "user", "hello")
    engine.create_session("telegram", session_id="s2", key=K, cause="resume", at_us=start + 25 * DAY)
    engine.append_message("s2", "user", "hello", at_us=start + 25 * DAY)
    engine.end_session("s2", "session_reset", at_us=start + 26 * DAY)
    forget_routes(engine, K)
    clock.pass_by(27 * DAY)
    before = engine.session("s1")

    found = engine.resolve(BOAT)

    assert found.created
    assert engine.session("s1") == before
    led = next(each for each in payloads(engine)[::-1] if isinstance(each, e.SessionRerouted))
    assert led.candidates[0].session_id == "s2"
    assert "s2 ended for good" in led.candidates[1].verdict
    assert findings(engine) == []


@pytest.mark.parametrize("reason", ["agent_close", "ws_orphan_reap", "cli_close", "tui_shutdown", "done"])
def test_a6_a_soft_end_is_opened_again_by_the_next_message(engine: SessionEngine, reason: str) -> None:
    first = chat(engine)
    engine.end_session(first, reason)
    head = engine.head().position

    found = engine.resolve(BOAT)
    engine.append_message(found.session_id, "user", "again")

    assert (found.session_id, found.resumed) == (first, True)
    assert [type(each) for each in payloads(engine, head)] == [e.SessionReopened, e.MessageAppended]


def test_a6_a_hard_end_begins_a_new_session_by_one_routing_event(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.end_session(first, "session_reset")
    head = engine.head().position

    found = engine.resolve(BOAT)

    assert [type(each) for each in payloads(engine, head)] == [e.SessionCreated, e.SessionRerouted]
    assert found.session_id != first


@pytest.mark.parametrize("reason", ["superseded_by_repair", "webhook_complete", "orphaned_compression"])
def test_what_is_done_or_was_taken_over_is_not_brought_back(engine: SessionEngine, reason: str) -> None:
    first = chat(engine)
    engine.end_session(first, reason)

    assert engine.resolve(BOAT).created


@pytest.mark.parametrize("order", [("agent_close", "session_reset"), ("session_reset", "agent_close")])
def test_a8_the_boundary_of_a_new_session_holds_in_either_order(
    engine: SessionEngine, order: tuple[str, str]
) -> None:
    first = chat(engine)
    for reason in order:
        engine.end_session(first, reason)

    assert engine.session(first).end_reason == "session_reset"
    assert engine.resolve(BOAT).created


def test_a16_a_deleted_chat_does_not_come_back(home: Path, clock: Clock) -> None:
    with opened(home, clock) as engine:
        engine.create_session("telegram", session_id="older", key=K)
        engine.append_message("older", "user", "hello")
        engine.create_session("telegram", session_id="s1", key=K, cause="resume")
        engine.append_message("s1", "user", "the secret boat")
        engine.delete_session("s1")

        found = engine.resolve(BOAT)

        assert found.created
        assert found.session_id not in ("s1", "older")
        rebuild(engine.projector, list(engine.projector.projections), compare=False)
        assert rows(engine, "SELECT id FROM sessions ORDER BY id") == sorted(
            [("older",), (found.session_id,)]
        )
        with pytest.raises(DeletedSession):
            engine.resume(K, "s1")


def test_without_a_keyed_session_the_same_place_and_person_is_found(engine: SessionEngine) -> None:
    place: dict[str, Any] = {"chat_id": "1001", "chat_type": "dm", "user_id": "501"}
    engine.create_session("telegram", session_id="lost", **place)
    engine.append_message("lost", "user", "hello")
    engine.create_session("telegram", session_id="empty", **place)
    engine.create_session("telegram", session_id="other", **{**place, "user_id": "502"})
    engine.append_message("other", "user", "hello")

    found = engine.resolve(BOAT)

    assert (found.session_id, found.cause) == ("lost", "recovery")
    assert engine.session("lost").key == K
    led = next(each for each in payloads(engine)[::-1] if isinstance(each, e.SessionRerouted))
    assert {each.session_id: each.verdict for each in led.candidates} == {
        "lost": "most recent activity",
        "empty": "no key and no messages",
    }


def test_a_session_of_another_profile_is_not_taken(engine: SessionEngine) -> None:
    engine.create_session(
        "telegram", session_id="theirs", chat_id="1001", chat_type="dm", user_id="501", profile_name="coder"
    )
    engine.append_message("theirs", "user", "hello")

    assert engine.resolve(BOAT).created


def test_an_empty_session_that_bears_the_key_is_gone_on_with(engine: SessionEngine) -> None:
    first = engine.resolve(BOAT).session_id
    forget_routes(engine, K)

    assert engine.resolve(BOAT).session_id == first


def test_what_was_chosen_must_not_have_moved_meanwhile(
    engine: SessionEngine, home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = chat(engine)
    forget_routes(engine, K)
    chosen = SessionEngine._chosen
    moves = iter([True])

    with opened(home, clock) as other:

        def meanwhile(self: SessionEngine, session_id: str) -> Any:
            found = chosen(self, session_id)
            if next(moves, False):
                other.end_session(session_id, "session_reset", at_us=clock.now_us + 1)
            return found

        monkeypatch.setattr(SessionEngine, "_chosen", meanwhile)
        found = engine.resolve(BOAT)

    assert found.created
    assert engine.session(first).hard_end


def test_where_the_projections_cannot_be_told_a_new_session_begins_and_says_so(
    engine: SessionEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retold.projections.transcripts import Transcripts

    def broken(self: object, *_: object) -> None:
        raise ValueError("out of paint")

    monkeypatch.setattr(Transcripts, "fold", broken)
    engine.create_session("cli")

    found = engine.resolve(BOAT)
    engine.append_message(found.session_id, "user", "hello")

    led = next(each for each in payloads(engine) if isinstance(each, e.SessionRerouted))
    assert isinstance(led, e.SessionRerouted)
    assert "out of paint" in led.evidence[0]
    assert engine.resolve(BOAT).session_id == found.session_id


def test_a_route_to_a_session_that_is_not_there_is_recovered(engine: SessionEngine) -> None:
    first = chat(engine)
    led = engine.route(K)
    engine.save_events([engine.rerouted(led, e.SessionRerouted(K, "gone", first, "import"), engine.at())])

    assert engine.resolve(BOAT).session_id == first


# --- continuations ---------------------------------------------------------------------------------


def test_c14_a_live_continuation_goes_before_siblings_that_ended_for_good(
    engine: SessionEngine, clock: Clock
) -> None:
    first = chat(engine)
    engine.end_session(first, "compression")
    for name in ("x", "y"):
        clock.pass_by(HOUR)
        continued(engine, first, name)
    engine.append_message("y", "user", "live")
    engine.append_message("x", "user", "later", at_us=clock.now_us + HOUR)
    engine.end_session("x", "session_reset")

    found = engine.resolve(BOAT)

    assert (found.session_id, found.cause, found.previous) == ("y", "compression", first)
    assert engine.session("y").key == K  # what the crash had left out


def test_a_compressed_session_without_a_continuation_is_opened_again(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.end_session(first, "compression")

    assert engine.resolve(BOAT).session_id == first
    engine.append_message(first, "user", "on we go")


def test_recovery_finds_the_continuation_that_a_crash_left_without_its_key(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.end_session(first, "compression")
    engine.create_session("telegram", session_id="tip", parent=first, parent_kind="continuation")
    engine.append_message("tip", "user", "goes on")
    forget_routes(engine, K)

    found = engine.resolve(BOAT)

    assert (found.session_id, found.cause) == ("tip", "recovery")
    assert engine.session("tip").key == K
    assert engine.session("tip").chat_id == "1001"
    assert findings(engine) == []
