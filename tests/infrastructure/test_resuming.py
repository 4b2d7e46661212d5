"""Going back to an earlier conversation, which is a person's own choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from retold.domain import events as e
from retold.domain.audit import audit
from retold.domain.errors import NoSuchSession, SessionOver
from retold.domain.message import Message
from retold.domain.session_source import conversation
from retold.infrastructure.engine import SessionEngine
from retold.projections.find import find_session
from retold.projections.listing import list_sessions
from retold.projections.world import world
from retold.tests.infrastructure.routing import BOAT, DAY, Clock, K, chat, findings, opened, rows


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


# --- what a resume opens again ---------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["session_reset", "session_switch", "idle", "agent_close"])
def test_a_resume_opens_the_session_again_in_the_same_save(engine: SessionEngine, reason: str) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.append_message("s1", "user", "first")
    engine.create_session("telegram", session_id="s2", key=K)
    engine.end_session("s1", reason)
    saved = engine.reroute(K, "s1", "resume")

    opened, led = (event for event in engine.event_log.read(saved.positions[0] - 1))
    assert [type(each.payload) for each in (opened, led)] == [e.SessionReopened, e.SessionRerouted]
    assert opened.save == led.save
    assert engine.append_message("s1", "user", "again").position
    assert rows(engine, "SELECT ended_at, end_reason, hard_end FROM sessions WHERE id = 's1'") == [
        (None, None, 0)
    ]
    found = audit(world(engine.state.reader()))
    assert "routed_to_ended" not in [each.kind for each in found]


def test_a_resume_of_where_the_key_leads_opens_it_too(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.end_session("s1", "session_reset")

    assert len(engine.reroute(K, "s1", "resume").positions) == 1
    assert engine.reroute(K, "s1", "resume").positions == ()


@pytest.mark.parametrize("cause", ["recovery", "repair", "handoff"])
def test_nothing_but_a_resume_opens_a_session_again(engine: SessionEngine, cause: e.Cause) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.create_session("telegram", session_id="s2", key=K, cause="reset")
    engine.reroute(K, "s1", cause)

    with pytest.raises(SessionOver):
        engine.append_message("s1", "user", "again")


def test_a_resume_leaves_a_compressed_session_to_its_continuation(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.append_message("s1", "user", "first")
    engine.compress_session("s1", "so far", continuation_id="s2")

    assert len(engine.reroute(K, "s1", "resume").positions) == 1
    with pytest.raises(SessionOver, match="s2"):
        engine.append_message("s1", "user", "again")
