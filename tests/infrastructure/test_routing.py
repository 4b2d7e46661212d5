"""Where a chat's next message goes, on real files.

Over 400 lines because each test plays one chat through the same few helpers; to be read case by case.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retold.domain import events as e
from retold.domain import session
from retold.domain.errors import BadIdentifier, BadUsage, DeletedSession, NoSuchSession, RuleBroken
from retold.domain.events import session_stream
from retold.domain.message import Message
from retold.domain.session_source import SessionSource, conversation
from retold.infrastructure.decisions import event
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.streams import route_stream
from retold.projections.find import find_session
from retold.projections.listing import list_sessions
from retold.tests.infrastructure.processes import run_together
from retold.tests.infrastructure.routing import (
    BOAT,
    DAY,
    HOUR,
    MINUTE,
    NOON,
    Clock,
    K,
    chat,
    findings,
    forget_routes,
    opened,
    payloads,
    rows,
    saves,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(home: Path, clock: Clock) -> Iterator[SessionEngine]:
    with opened(home, clock) as found:
        yield found


# --- the first message, and every one after it -----------------------------------------------------


def test_the_first_message_begins_a_session_with_its_whole_identity_in_one_save(
    engine: SessionEngine,
) -> None:
    found = engine.resolve(BOAT)

    created, led = payloads(engine)
    assert isinstance(created, e.SessionCreated)
    assert (created.source, created.session_key, created.chat_id, created.chat_type) == (
        "telegram",
        K,
        "1001",
        "dm",
    )
    assert (created.user_id, created.display_name) == ("501", "Boat")
    assert SessionSource.from_json(created.origin_json or "") == BOAT
    assert led == e.SessionRerouted(K, found.session_id, None, "first_message")
    assert saves(engine, found.positions) == {1}
    assert (found.created, found.cause, found.notice) == (True, "first_message", None)


def test_the_next_message_finds_it_and_writes_nothing(engine: SessionEngine) -> None:
    first = chat(engine)
    head = engine.head()

    again = engine.resolve(BOAT)

    assert (again.session_id, again.positions, again.cause, again.created) == (first, (), None, False)
    assert engine.head() == head


def test_another_message_id_is_no_change_and_another_chat_name_is(engine: SessionEngine) -> None:
    first = chat(engine)
    head = engine.head().position

    engine.resolve(msgspec.structs.replace(BOAT, message_id="m2"))
    assert engine.head().position == head
    engine.resolve(msgspec.structs.replace(BOAT, chat_name="Hull", chat_topic="epoxy"))

    (change,) = payloads(engine, head)
    assert isinstance(change, e.IdentityRestored)
    assert change.was["display_name"] == "Boat"
    assert change.now["display_name"] == "Hull"
    origin = SessionSource.from_json(engine.session(first).origin_json or "")
    assert (origin.chat_topic, origin.chat_name, origin.user_name) == ("epoxy", "Hull", "Åsa")
    engine.resolve(BOAT.__class__("telegram", "1001", "Hull"))  # knows less, and takes nothing back
    assert engine.head().position == head + 1


def test_in_a_shared_room_the_speaker_is_no_part_of_the_chat(engine: SessionEngine) -> None:
    room = SessionSource("telegram", "-9", "Crew", "group", "501", "Åsa", thread_id="42")
    first = chat(engine, room)
    head = engine.head().position

    other = engine.resolve(msgspec.structs.replace(room, user_id="502", user_name="Bo"))

    assert other.session_id == first
    assert engine.head().position == head


# --- A: routing ------------------------------------------------------------------------------------


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


def test_a11_chats_and_topics_have_sessions_of_their_own(engine: SessionEngine) -> None:
    people = [SessionSource("telegram", each, user_id=each) for each in ("1", "2")]
    topics = [SessionSource("telegram", "-9", chat_type="group", thread_id=each) for each in ("1", "2", "1")]

    assert len({chat(engine, each) for each in people}) == 2
    first, second, again = (chat(engine, each) for each in topics)
    assert first == again != second


def test_a12_what_two_threads_say_stays_in_its_own_chat(engine: SessionEngine) -> None:
    sources = [SessionSource("telegram", each, user_id=each) for each in ("1", "2")]

    def talk(source: SessionSource) -> None:
        for _ in range(50):
            found = engine.resolve(source)
            engine.append_message(found.session_id, "user", f"from {source.chat_id}")

    threads = [threading.Thread(target=talk, args=(each,)) for each in sources]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    said = rows(
        engine,
        "SELECT DISTINCT s.chat_id, m.content FROM messages m JOIN sessions s ON s.id = m.session_id"
        " ORDER BY 1",
    )
    assert said == [("1", "from 1"), ("2", "from 2")]
    assert rows(engine, "SELECT count(*) FROM sessions") == [(2,)]


def test_a14_a_resume_follows_no_reset(engine: SessionEngine) -> None:
    first = chat(engine)
    second = engine.reset(K).session_id
    chat(engine)
    third = engine.reset(K).session_id
    chat(engine)
    assert engine.session(second).parent_id == first
    assert engine.session(third).parent_kind == "reset"

    found = engine.resume(K, first)

    assert (found.session_id, found.previous) == (first, third)
    assert engine.session(third).end_reason == "session_switch"
    assert not engine.session(first).ended
    assert engine.route_of(K) == first
    assert engine.resolve(BOAT).session_id == first
    assert findings(engine) == []


def test_a14_a_resume_follows_a_continuation(engine: SessionEngine) -> None:
    first = chat(engine)
    continued = engine.compress_session(first, "what was said").session_id
    other = engine.reset(K).session_id

    found = engine.resume(K, first)

    assert (found.asked, found.session_id, found.previous) == (first, continued, other)
    assert engine.route_of(K) == continued
    assert engine.resume(K, continued).positions == ()


def test_what_waits_in_a_chat_waits_on_in_the_session_that_it_goes_to(engine: SessionEngine) -> None:
    first = chat(engine)
    second = engine.reset(K).session_id
    queued = [engine.enqueue(second, text, lane="overflow").turn for text in ("one", "two")]

    engine.resume(K, first)

    assert [each.text for each in engine.queue_of(first).waiting] == ["one", "two"]
    assert [each.turn for each in engine.queue_of(first).waiting] == queued
    assert engine.queue_of(second).waiting == ()
    assert engine.waiting_sessions() == [first]


@pytest.mark.parametrize("name", ["p", "agent:main"])
def test_a15_a_conversations_name_is_bound_for_good(home: Path, clock: Clock, name: str) -> None:
    source = conversation("api_server", name, "ann")
    found = set()
    for _ in range(5):
        with opened(home, clock) as engine:
            found.add(chat(engine, source))
            clock.pass_by(DAY)
    with opened(home, clock) as engine:
        other = chat(engine, conversation("api_server", name, "ben"))

        assert len(found) == 1
        assert other not in found
        assert rows(engine, "SELECT count(*) FROM sessions WHERE parent_session_id IS NULL") == [(2,)]


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


def test_a17_a_reset_session_is_still_listed_with_its_reason(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.reset(K)

    assert rows(engine, "SELECT end_reason, archived, message_count FROM sessions WHERE id = ?", first) == [
        ("session_reset", 0, 2)
    ]


def test_a17_a_reset_session_is_listed_found_and_resumed(engine: SessionEngine) -> None:
    first = chat(engine)
    second = engine.reset(K).session_id
    chat(engine)
    engine.end_session(second, "agent_close")

    engine.projector.catch_up()
    listed = list_sessions(engine.state.reader()).rows
    assert {(each.id, each.end_reason) for each in listed} == {
        (second, "agent_close"),
        (first, "session_reset"),
    }
    assert find_session(engine.state.reader(), first) == first
    assert engine.resume(K, first).session_id == first


def led_to_a_run(engine: SessionEngine, session_id: str, created: e.SessionCreated) -> None:
    """As an older store left it: a chat's key leads to a session that runs by itself."""
    moved = engine.route(K).lead_to(session_id, "import")
    assert moved is not None
    begun = event(session_stream(session_id), 1, created, engine.at())
    engine.save_events([begun, engine.rerouted(engine.route(K), moved, engine.at())])


@pytest.mark.parametrize("source", ["cron", "subagent", "tool"])
@pytest.mark.parametrize("routed", [True, False])
def test_a18_a_persons_message_never_lands_in_a_run_of_its_own(
    engine: SessionEngine, source: str, routed: bool
) -> None:
    created = session.created(source, key=K, chat_id="1001", chat_type="dm", user_id="501")
    led_to_a_run(engine, "run", created)
    engine.append_message("run", "user", "the job")
    if not routed:
        forget_routes(engine, K)
    before = engine.session("run")

    found = engine.resolve(BOAT)

    assert found.created
    assert engine.session("run") == before
    with pytest.raises(RuleBroken, match=source):
        engine.resume(K, "run")


def test_a18_nor_in_a_delegates_session(engine: SessionEngine) -> None:
    first = chat(engine)
    created = session.created("telegram", key=K, parent=first, parent_kind="delegate")
    led_to_a_run(engine, "delegate", created)

    assert engine.resolve(BOAT).session_id != "delegate"
    with pytest.raises(RuleBroken, match="delegate"):
        engine.resume(K, "delegate")


def test_a21_a_route_that_another_process_added_stays(home: Path, clock: Clock) -> None:
    other = SessionSource("telegram", "2002")
    with opened(home, clock) as one, opened(home, clock) as two:
        one.resolve(SessionSource("telegram", "3003"))
        there = two.resolve(other).session_id
        here = one.resolve(BOAT).session_id

        for engine in (one, two):
            assert engine.route_of(K) == here
            assert engine.route_of("agent:main:telegram:dm:2002") == there
            assert len(rows(engine, "SELECT key FROM routes")) == 3


def test_a22_two_people_with_the_same_opening_have_sessions_of_their_own(engine: SessionEngine) -> None:
    found = {chat(engine, SessionSource("api_server", each), "hi") for each in ("ann", "ben")}

    assert len(found) == 2


def test_a22_the_same_opening_under_the_same_prompt_is_two_sessions(engine: SessionEngine) -> None:
    found = []
    for _ in range(2):
        found.append(engine.create_session("api_server", model="m").session_id)
        engine.set_prompt(found[-1], "You are kind.")
        engine.append_message(found[-1], "user", "hi")

    assert len(set(found)) == 2
    assert rows(engine, "SELECT count(*) FROM messages GROUP BY session_id") == [(1,), (1,)]


def test_a23_after_a_reset_what_is_said_lands_under_the_new_id_alone(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.reset(K)
    version = engine.session(first).version

    second = chat(engine)

    assert second != first
    assert engine.session(first).version == version
    assert rows(engine, "SELECT count(*) FROM messages WHERE session_id = ?", second) == [(2,)]


# --- what a message costs --------------------------------------------------------------------------


def test_k1_a_message_writes_as_much_at_one_route_as_at_10_000(home: Path, clock: Clock) -> None:
    written = {}
    for routes in (1, 10_000):
        there = home / str(routes)
        with opened(there, clock) as engine:
            chat(engine)
            engine.save_events([each for number in range(1, routes) for each in begun(engine, number)])
        with opened(there, clock) as engine:
            assert rows(engine, "SELECT count(*) FROM routes") == [(routes,)]
            chat(engine)
            mirror = (there / "sessions" / "sessions.json").stat().st_mtime_ns
            before = wal_bytes(there)
            for number in range(20):
                chat(engine, text=f"message {number}")
            written[routes] = wal_bytes(there) - before

            assert (there / "sessions" / "sessions.json").stat().st_mtime_ns == mirror
    assert 0 < written[1] <= written[10_000] * 2
    assert written[10_000] <= written[1] * 2


def begun(engine: SessionEngine, number: int) -> list[e.Event]:
    """A session and the route to it, as one more chat's first message leaves them."""
    key = f"agent:main:telegram:dm:{2_000 + number}"
    created = e.SessionCreated("telegram", session_key=key, chat_id=str(2_000 + number))
    led = e.SessionRerouted(key, f"s{number}", None, "first_message")
    return [
        e.Event(f"session:s{number}", 1, created, NOON),
        e.Event(route_stream(engine.identity, key), 1, led, NOON),
    ]


def wal_bytes(home: Path) -> int:
    """What was written since the home was opened: neither WAL was folded into its file in the meantime."""
    return sum(each.stat().st_size for each in home.glob("*-wal"))


# --- resumes ---------------------------------------------------------------------------------------


def test_i8_what_is_resumed_once_is_what_is_written_to(home: Path, clock: Clock) -> None:
    with opened(home, clock) as engine:
        engine.create_session("cli", session_id="s1", title="boat repair")
        engine.append_message("s1", "user", "hello")
        engine.end_session("s1", "cli_close")
    with opened(home, clock) as engine:
        engine.projector.catch_up()
        found = find_session(engine.state.reader(), "boat repair")
        engine.reopen_session(found)
        read = engine.view(found)
        engine.append_messages(
            found, [Message("user", "and?"), Message("assistant", "dry")], expected_version=read.version
        )

        assert [each.content for each in read.messages] == ["hello"]
        assert rows(engine, "SELECT id, message_count, end_reason FROM sessions") == [("s1", 3, None)]


def test_i8_a_chat_that_was_resumed_writes_to_what_it_reads(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.reset(K)
    chat(engine)
    engine.resume(K, first)

    assert chat(engine) == first
    assert rows(engine, "SELECT message_count FROM sessions WHERE id = ?", first) == [(4,)]
    assert rows(engine, "SELECT count(*) FROM sessions") == [(2,)]


def test_i8_a_session_that_cannot_be_resumed_is_refused_and_none_is_begun(engine: SessionEngine) -> None:
    first = chat(engine)
    engine.reset(K)
    engine.delete_session(first)
    head = engine.head()
    for name in (first, "nobody"):
        with pytest.raises(NoSuchSession):
            engine.resume(K, name)

    assert engine.head() == head


# --- continuations ---------------------------------------------------------------------------------


def test_c14_a_live_continuation_goes_before_siblings_that_ended_for_good(
    engine: SessionEngine, clock: Clock
) -> None:
    first = chat(engine)
    engine.end_session(first, "compression")
    for name in ("x", "y"):
        clock.pass_by(HOUR)
        engine.create_session(
            "telegram", session_id=name, parent=first, parent_kind="continuation", cause="compression"
        )
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


# --- recovery --------------------------------------------------------------------------------------


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


# --- identity --------------------------------------------------------------------------------------


def test_the_next_turn_repairs_the_identity_that_a_crash_left_out(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="bare")
    engine.reroute(K, "bare", "first_message")

    engine.resolve(BOAT)

    state = engine.session("bare")
    assert (state.key, state.chat_id, state.chat_type, state.user_id) == (K, "1001", "dm", "501")
    assert state.display_name == "Boat"
    assert rows(engine, "SELECT session_key, chat_id, user_id FROM sessions") == [(K, "1001", "501")]


def test_a_session_of_another_chat_keeps_its_own_identity(engine: SessionEngine) -> None:
    other = chat(engine, SessionSource("telegram", "2002", user_id="502"))
    engine.resume(K, other)
    before = engine.session(other)

    found = engine.resolve(BOAT)

    assert found.session_id == other
    assert engine.session(other) == before


# --- two at once -----------------------------------------------------------------------------------


def test_two_processes_on_one_key_make_one_session(home: Path, clock: Clock) -> None:
    with opened(home, clock):
        pass
    code = """
    from retold.domain.session_source import SessionSource
    for number in range(20):
        found = engine.resolve(SessionSource("telegram", str(number), user_id="501"))
        engine.append_message(found.session_id, "user", "hello")
        print(found.session_id)
    """

    one, two = run_together(home, [code, code])

    assert one == two
    with opened(home, clock) as engine:
        assert rows(engine, "SELECT count(*), min(message_count), max(message_count) FROM sessions") == [
            (20, 2, 2)
        ]


def test_two_processes_that_reset_one_chat_leave_one_open_session(home: Path, clock: Clock) -> None:
    with opened(home, clock) as engine:
        chat(engine)
    code = f"""
    for _ in range(10):
        print(engine.reset({K!r}).session_id)
    """

    one, two = run_together(home, [code, code])

    with opened(home, clock) as engine:
        assert len({*one, *two}) == 20
        assert rows(engine, "SELECT count(*) FROM sessions WHERE end_reason IS NULL") == [(1,)]
        assert rows(engine, "SELECT count(DISTINCT parent_session_id) FROM sessions") == [(20,)]
        assert findings(engine) == []


# --- configuration and refusals --------------------------------------------------------------------


def test_who_shares_a_session_is_as_the_configuration_says(home: Path, clock: Clock) -> None:
    group = SessionSource("telegram", "-9", chat_type="group", user_id="501")
    thread = msgspec.structs.replace(group, thread_id="42")
    config = """
group_sessions_per_user: false
platforms:
  telegram: {group_sessions_per_user: true, thread_sessions_per_user: true}
"""
    with opened(home, clock, config) as engine:
        assert engine.key_of(group) == "agent:main:telegram:group:-9:501"
        assert engine.key_of(thread) == "agent:main:telegram:group:-9:42:501"
        slack = msgspec.structs.replace(group, platform="slack")
        assert engine.key_of(slack) == "agent:main:slack:group:-9"


def test_the_files_of_whatsapps_bridge_tell_who_is_who(home: Path, clock: Clock) -> None:
    with opened(home, clock, "platforms: {whatsapp: {session_dir: bridge}}\n") as engine:
        bridge = home / "bridge"
        bridge.mkdir()
        (bridge / "lid-mapping-49155.json").write_text(json.dumps("999999@lid"))
        (bridge / "lid-mapping-999999_reverse.json").write_text(json.dumps("49155@s.whatsapp.net"))
        (bridge / "lid-mapping-777.json").write_text("{")

        phone = chat(engine, SessionSource("whatsapp", "+49155@s.whatsapp.net"))
        lid = chat(engine, SessionSource("whatsapp", "999999@lid"))
        damaged = engine.key_of(SessionSource("whatsapp", "777@lid"))

        assert phone == lid
        assert damaged == "agent:main:whatsapp:dm:777"


def test_a_path_is_refused_and_nothing_is_written(engine: SessionEngine) -> None:
    with pytest.raises(BadIdentifier):
        engine.resolve(SessionSource("telegram", "../../x"))
    with pytest.raises(BadIdentifier):
        engine.create_session("cli", session_id="../x")
    with pytest.raises(NoSuchSession):
        engine.resume(K, "nobody")

    assert engine.head().position == 0


@pytest.mark.parametrize(
    "at_us",
    [
        1.5,
        "2026-05-01",
        10**30,
        -(10**30),
        True,
        datetime.fromisoformat("2026-05-01T12:00"),
        datetime(2026, 5, 1, tzinfo=UTC),
    ],
)
def test_h5_a_time_that_is_none_is_refused_in_words(engine: SessionEngine, at_us: Any) -> None:
    with pytest.raises(BadUsage, match="no time"):
        engine.resolve(BOAT, at_us=at_us)

    assert engine.head().position == 0


def test_a_known_key_is_answered_at_once(engine: SessionEngine) -> None:
    """The bar is 0.2 ms (bench); here only that no table of all chats is read for it."""
    chat(engine)
    reads: list[str] = []

    def traced(_cursor: object, sql: str, _values: object) -> bool:
        reads.append(sql)
        return True

    engine.state.reader().exec_trace = traced
    engine.resolve(BOAT)
    engine.state.reader().exec_trace = None

    assert reads == []


def test_minutes_of_silence_are_no_reset_by_default(engine: SessionEngine, clock: Clock) -> None:
    first = chat(engine)
    clock.pass_by(400 * DAY + MINUTE)

    assert engine.resolve(BOAT).session_id == first
