"""A session's identity is born with it, goes on with its continuation, and leads its chat there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retold.domain import events as e
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.rebuild import rebuild
from retold.tests.infrastructure.routing import K, payloads, rows

DAY_US = 86_400_000_000
MAY_US = 1_777_593_600_000_000


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


@pytest.mark.parametrize("old_starts_on_day", [1, 4], ids=["older", "started later but idle"])
def test_a2_the_key_leads_to_whom_it_was_last_led_to_also_after_the_index_is_lost(
    engine: SessionEngine, old_starts_on_day: int
) -> None:
    identity: dict[str, Any] = {
        "chat_id": "1001",
        "chat_type": "dm",
        "user_id": "501",
        "origin_json": '{"platform":"telegram"}',
    }
    starts = {"s_old": old_starts_on_day, "s_new": 2}
    for session_id, last_day in (("s_old", old_starts_on_day), ("s_new", 5)):
        at_us = MAY_US + starts[session_id] * DAY_US
        engine.create_session(
            "telegram", session_id=session_id, key=K, cause="resume", at_us=at_us, **identity
        )
        engine.append_message(session_id, "user", "hello", at_us=MAY_US + last_day * DAY_US)
    before = rows(engine, "SELECT * FROM routes")

    with engine.projector.transaction() as db:
        db.execute("DELETE FROM routes")
    rebuild(engine.projector, list(engine.projector.projections), compare=False)

    assert engine.route_of(K) == "s_new"
    assert rows(engine, "SELECT * FROM routes") == before
    assert rows(engine, "SELECT key, session_id FROM routes") == [(K, "s_new")]
    assert rows(engine, "SELECT DISTINCT session_key, chat_id, user_id, origin_json FROM sessions") == [
        (K, "1001", "501", '{"platform":"telegram"}')
    ]
    assert rows(engine, "SELECT id FROM sessions ORDER BY last_active_us DESC LIMIT 1") == [("s_new",)]


def test_a2_identity_is_in_the_event_that_creates_the_session(engine: SessionEngine) -> None:
    engine.create_session(
        "telegram", session_id="s1", key=K, chat_id="1001", thread_id="7", display_name="Åsa"
    )

    assert payloads(engine)[0] == e.SessionCreated(
        "telegram", session_key=K, chat_id="1001", thread_id="7", display_name="Åsa"
    )


def test_a_continuation_inherits_the_whole_identity_and_the_key(engine: SessionEngine) -> None:
    fields: dict[str, Any] = {
        each.name: f"the {each.name}"
        for each in msgspec.structs.fields(e.SessionCreated)
        if each.name.startswith(("chat", "thread", "user", "display", "origin", "cwd", "git", "profile"))
    }
    engine.create_session("telegram", session_id="s1", key=K, title="plan", model="m-1", **fields)
    child = engine.compress_session("s1", "what was said", continuation_id="s2")

    assert engine.session("s2") == msgspec.structs.replace(
        engine.session("s1"),
        id="s2",
        title="plan #2",
        titled_by="lineage",
        version=3,
        end_reason=None,
        successor=None,
        parent_id="s1",
        parent_kind="continuation",
    )
    assert engine.route_of(K) == "s2"
    assert len({event.save for event in engine.event_log.read(child.positions[0] - 1)}) == 1


def test_a_continuation_does_not_take_a_key_that_leads_elsewhere(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.create_session("telegram", session_id="s2", key=K, cause="resume")
    engine.compress_session("s1", "what was said")

    assert engine.route_of(K) == "s2"


@pytest.mark.parametrize(
    ("cause", "reason"),
    [("reset", "session_reset"), ("idle", "session_reset"), ("daily", "session_reset"), ("resume", None)],
)
def test_a_reset_ends_the_session_before_hard_in_the_same_save(
    engine: SessionEngine, cause: e.Cause, reason: str | None
) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.create_session("telegram", session_id="s2", key=K, cause=cause)

    assert rows(engine, "SELECT end_reason, hard_end FROM sessions WHERE id = 's1'") == [
        (reason, int(reason is not None))
    ]
    assert engine.session("s1").hard_end == (reason is not None)
