"""Who shares a session and who has one of their own: people, rooms, topics, runs, delegates."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import msgspec
import pytest

from retold.domain import events as e
from retold.domain import session
from retold.domain.errors import RuleBroken
from retold.domain.events import session_stream
from retold.domain.session_source import SessionSource
from retold.infrastructure.decisions import event
from retold.infrastructure.engine import SessionEngine
from retold.tests.infrastructure.routing import BOAT, Clock, K, chat, forget_routes, opened, rows


def test_in_a_shared_room_the_speaker_is_no_part_of_the_chat(engine: SessionEngine) -> None:
    room = SessionSource("telegram", "-9", "Crew", "group", "501", "Åsa", thread_id="42")
    first = chat(engine, room)
    head = engine.head().position

    other = engine.resolve(msgspec.structs.replace(room, user_id="502", user_name="Bo"))

    assert other.session_id == first
    assert engine.head().position == head


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


def test_a_session_of_another_chat_keeps_its_own_identity(engine: SessionEngine) -> None:
    other = chat(engine, SessionSource("telegram", "2002", user_id="502"))
    engine.resume(K, other)
    before = engine.session(other)

    found = engine.resolve(BOAT)

    assert found.session_id == other
    assert engine.session(other) == before


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
