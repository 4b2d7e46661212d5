"""Where a chat's next message goes, on real files: found, begun, led on, and what that costs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retold.domain import events as e
from retold.domain.errors import BadIdentifier, BadUsage, NoSuchSession
from retold.domain.session_source import SessionSource
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.streams import route_stream
from retold.tests.infrastructure.processes import run_together
from retold.tests.infrastructure.routing import (
    BOAT,
    DAY,
    MINUTE,
    NOON,
    Clock,
    K,
    chat,
    findings,
    opened,
    payloads,
    rows,
    saves,
)

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


# --- A: routing ------------------------------------------------------------------------------------


def test_what_waits_in_a_chat_waits_on_in_the_session_that_it_goes_to(engine: SessionEngine) -> None:
    first = chat(engine)
    second = engine.reset(K).session_id
    queued = [engine.enqueue(second, text, lane="overflow").turn for text in ("one", "two")]

    engine.resume(K, first)

    assert [each.text for each in engine.queue_of(first).waiting] == ["one", "two"]
    assert [each.turn for each in engine.queue_of(first).waiting] == queued
    assert engine.queue_of(second).waiting == ()
    assert engine.waiting_sessions() == [first]


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


# --- identity --------------------------------------------------------------------------------------


def test_the_next_turn_repairs_the_identity_that_a_crash_left_out(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="bare")
    engine.reroute(K, "bare", "first_message")

    engine.resolve(BOAT)

    state = engine.session("bare")
    assert (state.key, state.chat_id, state.chat_type, state.user_id) == (K, "1001", "dm", "501")
    assert state.display_name == "Boat"
    assert rows(engine, "SELECT session_key, chat_id, user_id FROM sessions") == [(K, "1001", "501")]


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
