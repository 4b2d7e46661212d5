"""What audit and repair are told of a store: read from the tables, message times only on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import retold
from retold.domain.audit import audit
from retold.infrastructure.engine import SessionEngine
from retold.projections.lineage import Lineage
from retold.projections.routing import Routing
from retold.projections.sources import Sources
from retold.projections.transcripts import Transcripts
from retold.projections.world import chat_sources, count_messages, message_at, world
from retold.tests.conftest import FIXTURES
from retold.tests.hermes_log import told_from

MINUTE = 60 * 1_000_000
T = 1_778_000_000 * 1_000_000
K = "agent:main:telegram:dm:77"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SessionEngine]:
    with retold.open_home(tmp_path / "home") as engine:
        yield engine


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionEngine]:
    with told_from(FIXTURES / "hermes-home", tmp_path_factory.mktemp("imported") / "home") as engine:
        yield engine


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    return dict(json.loads((FIXTURES / "hermes-home" / "truth.json").read_text())["incident"])


def test_a_session_is_told_with_all_that_the_rules_ask_for(engine: SessionEngine) -> None:
    engine.create_session(
        "telegram", session_id="a", key=K, title="plan", at_us=T, chat_id="77", chat_type="dm", user_id="9"
    )
    engine.append_message("a", "user", "hi", at_us=T + MINUTE)
    engine.append_message("a", "tool", "found", at_us=T + 2 * MINUTE)
    engine.compress_session("a", "summary", continuation_id="b", at_us=T + 3 * MINUTE)

    told = world(engine.state.reader())
    a, b = told.sessions["a"], told.sessions["b"]

    assert (a.key, a.chat_id, a.chat_type, a.user_id, a.title) == (K, "77", "dm", "9", "plan")
    assert (a.started_us, a.last_active_us, a.last_message_us) == (T, T + MINUTE, T + 2 * MINUTE)
    assert (a.message_count, a.end_reason, a.ended_us) == (2, "compression", T + 3 * MINUTE)
    assert (b.parent_id, b.parent_kind, b.key) == ("a", "continuation", K)
    assert [(route.session_id, route.cause) for route in told.routes[K]] == [
        ("a", "first_message"),
        ("b", "compression"),
    ]


def test_activity_is_of_user_and_assistant_alone(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, at_us=T)
    for minute, role in enumerate(("user", "assistant", "tool", "user"), start=1):
        engine.append_message("a", role, "x", at_us=T + minute * MINUTE)
    activity = world(engine.state.reader()).activity

    assert activity.last_before("a", T + 3 * MINUTE) == T + 2 * MINUTE
    assert activity.first_after("a", T + 2 * MINUTE) == T + 4 * MINUTE
    assert activity.last_before("a", T) is None
    assert activity.first_after("a", T + 4 * MINUTE) is None
    assert activity.last_before("nobody", T) is None


def test_a_message_that_claims_the_future_counts_as_when_it_was_recorded(engine: SessionEngine) -> None:
    future_us = 4_000_000_000 * 1_000_000
    engine.create_session("telegram", session_id="a", key=K, at_us=T)
    engine.append_message("a", "user", "from the future", at_us=future_us)
    told = world(engine.state.reader())
    last_us = told.sessions["a"].last_active_us

    assert last_us is not None
    assert last_us < future_us
    assert told.activity.last_before("a", future_us) == last_us


def test_an_erased_message_stays_activity(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, at_us=T)
    said = engine.append_message("a", "user", "secret", at_us=T + MINUTE)
    engine.erase_messages([said.position], reason="asked for")

    assert world(engine.state.reader()).activity.last_before("a", T + 2 * MINUTE) == T + MINUTE


def test_a_key_that_was_led_elsewhere_is_told_route_by_route(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, at_us=T)
    engine.create_session("telegram", session_id="b", key=K, cause="reset", at_us=T + MINUTE)
    engine.reroute(K, "a", "recovery", at_us=T + 2 * MINUTE)
    routes = world(engine.state.reader()).routes[K]

    assert [(each.session_id, each.previous_id, each.cause) for each in routes] == [
        ("a", None, "first_message"),
        ("b", "a", "reset"),
        ("a", "b", "recovery"),
    ]


def test_an_imported_route_bears_the_times_of_its_entry(imported: SessionEngine, truth: Any) -> None:
    told = world(imported.state.reader())
    route = told.route_of(truth["lineage"]["adopts_key"])

    assert route is not None
    assert (route.cause, route.at_kind) == ("import", "no_later_than")
    assert route.entry_created_us == told.sessions[truth["lineage"]["predecessor"]].started_us


def test_every_incident_is_found_and_nothing_else(imported: SessionEngine, truth: Any) -> None:
    found = audit(world(imported.state.reader()))
    named = {
        (finding.kind, session)
        for finding in found
        for session in (finding.session_id, *(each.session_id for each in finding.candidates))
    }
    expected = set()
    for incident in truth.values():
        if "kind" in incident:
            about = [
                incident[name] for name in ("orphan", "parent", "fence", "last_known") if name in incident
            ]
            about += incident.get("orphans", [])
            about += incident.get("continuations", [])
            if "orphan" not in incident and "orphans" not in incident and "parent" not in incident:
                about.append(incident["routed_to_now"])
            expected |= {(incident["kind"], each) for each in about}
    about_whom = {(finding.kind, finding.session_id) for finding in found}
    orphans = {orphan for kind, orphan in expected if kind in ("stranded", "jumped_back")}

    assert expected <= named
    assert about_whom <= expected | {("stranded", orphan) for orphan in orphans}


@pytest.mark.parametrize("name", ["lineage", "contiguity", "reset_undone", "two_continuations", "slept"])
def test_the_sources_of_one_chat_tell_the_same_of_it(imported: SessionEngine, truth: Any, name: str) -> None:
    db = imported.state.reader()
    key = truth[name].get("key") or truth[name]["adopts_key"]
    whole, part = world(db), world(db, sources=chat_sources(db, key=key))

    assert len(part.sessions) < len(whole.sessions)
    assert [each for each in audit(part) if each.key == key] == [
        each for each in audit(whole) if each.key == key
    ]


def test_messages_are_counted_and_found_by_time(imported: SessionEngine, truth: Any) -> None:
    db = imported.state.reader()
    shapes = truth["shapes"]
    told = world(db)
    rewound = told.sessions[shapes["rewound"]]
    last_us = told.sessions[truth["slept"]["routed_to_now"]].last_active_us

    assert count_messages(db, rewound.id) > rewound.message_count
    assert last_us is not None
    assert message_at(db, truth["slept"]["routed_to_now"], last_us) == (
        told.sessions[truth["slept"]["routed_to_now"]].last_message_position
    )


def test_conflicts_with_a_source_are_facts_too() -> None:
    db = apsw.Connection(":memory:")
    for projection in (Transcripts(), Routing(), Lineage(), Sources()):
        projection.create(db)
    insert = "INSERT INTO source_conflicts VALUES (?, ?, ?, ?, ?, ?, ?, NULL)"
    db.execute(insert, (7, "session", "a", "a", "title", "ours", "theirs"))
    db.execute(insert, (9, "route", None, K, "session_id", "a", "b"))
    found = world(db).conflicts

    assert [(each.position, each.session_id, each.key, each.column) for each in found] == [
        (7, "a", None, "title"),
        (9, None, K, "session_id"),
    ]
    assert [finding.kind for finding in audit(world(db))] == ["source_conflict", "source_conflict"]
