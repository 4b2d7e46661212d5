"""What a bulk command takes: each filter by itself, whole conversations, and what stays and why."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.projections.selection import Filters, Selection, Verb, matching, named, select
from retold.tests.histories import DAY_US, HOUR_US, T0_US
from retold.tests.infrastructure.importing import edit
from retold.tests.peer import peer_python

SOON_US = T0_US + DAY_US


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as engine:
        yield engine


def begun(engine: SessionEngine, name: str, *, at_us: int = T0_US, end: bool = True, **more: Any) -> str:
    """A session of one message; it ends, unless `end` says otherwise."""
    engine.create_session(more.pop("source", "cli"), session_id=name, at_us=at_us, **more)
    engine.append_message(name, "user", "hello", at_us=at_us)
    if end:
        engine.end_session(name, "cli_close", at_us=at_us)
    return name


def goes_on(engine: SessionEngine, name: str, *, end: bool = True, at_us: int = T0_US) -> str:
    """The continuation of an open session."""
    child = engine.compress_session(name, "so far", at_us=at_us).session_id
    if end:
        engine.end_session(child, "cli_close", at_us=at_us)
    return child


def selected(engine: SessionEngine, verb: Verb, *include: Any, **filters: Any) -> Selection:
    return select(engine.state.reader(), verb, Filters(**filters), include=include)


def taken(engine: SessionEngine, verb: Verb, *include: Any, **filters: Any) -> set[str]:
    return {each.id for each in selected(engine, verb, *include, **filters).sessions}


# --- filters ---------------------------------------------------------------------------------------

IDENTITY: dict[str, Any] = {
    "title": "Résumé of 100% work",
    "cwd": "/home/you/code",
    "model": "vendor/Opus-9",
    "user_id": "501",
    "chat_id": "1001",
    "chat_type": "dm",
    "git_branch": "Feature/Bulk",
}


@pytest.mark.parametrize(
    ("passes", "fails"),
    [
        ({"source": "cli"}, {"source": "CLI"}),
        ({"title": "résumé"}, {"title": "resume"}),
        ({"title": "RÉSUMÉ"}, {"title": "100_"}),
        ({"title": "100%"}, {"title": "1%k"}),
        ({"end_reason": "cli_close"}, {"end_reason": "cli"}),
        ({"cwd": "/home/you/code"}, {"cwd": "/home/you/cod"}),
        ({"cwd": "/home/you/"}, {"cwd": "/home/you/code/deeper"}),
        ({"cwd": "/"}, {"cwd": "/home/you_code"}),
        ({"model": "opus"}, {"model": "sonnet"}),
        ({"user": "501"}, {"user": "50"}),
        ({"chat_id": "1001"}, {"chat_id": "100"}),
        ({"chat_type": "dm"}, {"chat_type": "DM"}),
        ({"branch": "feature/b"}, {"branch": "main"}),
        ({"min_messages": 1}, {"min_messages": 2}),
        ({"max_messages": 1}, {"max_messages": 0}),
        ({"min_tool_calls": 0}, {"min_tool_calls": 1}),
        ({"max_tool_calls": 0}, {"provider": "anthropic"}),
        ({"min_tokens": 0, "max_tokens": 0}, {"min_tokens": 1}),
        ({"max_cost": 0.0}, {"min_cost": 0.001}),
        ({"started_before_us": T0_US + 1}, {"started_before_us": T0_US}),
        ({"started_since_us": T0_US}, {"started_since_us": T0_US + 1}),
        ({"active_before_us": T0_US + 1}, {"active_before_us": T0_US}),
        ({"active_since_us": T0_US}, {"active_since_us": T0_US + 1}),
        ({"source": "cli", "user": "501"}, {"source": "cli", "user": "502"}),
    ],
)
def test_a_session_passes_a_filter_or_does_not(
    engine: SessionEngine, passes: dict[str, Any], fails: dict[str, Any]
) -> None:
    begun(engine, "s1", **IDENTITY)
    db = engine.state.reader()

    assert [each.id for each in matching(db, Filters(**passes))] == ["s1"]
    assert matching(db, Filters(**fails)) == []


def test_a_talk_begun_long_ago_and_used_today_is_as_young_as_its_last_message(engine: SessionEngine) -> None:
    begun(engine, "old", end=False)
    engine.append_message("old", "user", "again", at_us=T0_US + 95 * DAY_US)
    engine.end_session("old", "cli_close", at_us=T0_US + 95 * DAY_US)
    cut_us = T0_US + 6 * DAY_US

    assert taken(engine, "prune", active_before_us=cut_us) == set()
    assert taken(engine, "prune", started_before_us=cut_us) == {"old"}


def test_an_open_session_is_never_put_away_by_filters(engine: SessionEngine) -> None:
    begun(engine, "open", end=False)

    assert taken(engine, "prune", source="cli") == taken(engine, "archive", source="cli") == set()
    assert taken(engine, "pin", source="cli") == {"open"}


# --- conversations ---------------------------------------------------------------------------------


def test_a_compressed_conversation_is_pruned_whole_or_not_at_all(engine: SessionEngine) -> None:
    begun(engine, "a", end=False)
    last = goes_on(engine, "a", end=False, at_us=T0_US + HOUR_US)
    opened = selected(engine, "prune", source="cli")
    engine.end_session(last, "cli_close")
    part = selected(engine, "prune", started_before_us=T0_US + 1)

    assert (opened.units, opened.skipped) == ([], {"a": f"one conversation with {last}, which is open"})
    assert (part.units, part.skipped) == ([], {"a": f"one conversation with {last}, which does not match"})
    assert [unit.ids for unit in selected(engine, "prune", source="cli").units] == [("a", last)]


def test_a_conversation_is_archived_whole_where_its_last_segment_matches(engine: SessionEngine) -> None:
    begun(engine, "a", end=False)
    last = goes_on(engine, "a", at_us=T0_US + HOUR_US)

    assert taken(engine, "archive", started_since_us=T0_US + HOUR_US) == {"a", last}
    assert taken(engine, "archive", started_before_us=T0_US + 1) == set()


def test_delegates_go_with_their_parent_and_so_does_what_they_went_on_as(engine: SessionEngine) -> None:
    begun(engine, "p")
    begun(engine, "d", source="subagent", parent="p", parent_kind="delegate", end=False)
    further = goes_on(engine, "d")
    begun(engine, "branch", parent="p", parent_kind="branch", at_us=SOON_US)
    found = selected(engine, "prune", started_before_us=SOON_US)

    assert [(unit.ids, unit.along) for unit in found.units] == [(("p",), ("d", further))]
    assert found.skipped == {}


def test_a_delegate_goes_alone_only_where_its_source_is_asked_for(engine: SessionEngine) -> None:
    begun(engine, "p", at_us=SOON_US)
    begun(engine, "d", source="subagent", parent="p", parent_kind="delegate")

    assert selected(engine, "prune", started_before_us=SOON_US) == Selection([], {"d": "delegate of p"})
    assert taken(engine, "prune", source="subagent") == {"d"}


def test_a_pin_keeps_a_conversation_and_its_delegates(engine: SessionEngine) -> None:
    begun(engine, "p")
    begun(engine, "d", source="subagent", parent="p", parent_kind="delegate")
    engine.pin_session("p")

    assert selected(engine, "prune", active_before_us=SOON_US).skipped == {
        "p": "pinned",
        "d": "delegate of p, which is pinned",
    }
    assert selected(engine, "archive", source="cli") == Selection([], {"p": "pinned"})
    assert taken(engine, "prune", source="subagent") == set()
    assert taken(engine, "prune", "pinned", active_before_us=SOON_US) == {"p"}
    engine.unpin_session("p")
    engine.pin_session("d")
    assert selected(engine, "prune", source="cli").skipped == {"p": "its delegate d is pinned"}


def test_archived_ones_are_pruned_only_where_they_are_included(engine: SessionEngine) -> None:
    engine.archive_session(begun(engine, "s"))

    assert selected(engine, "prune", source="cli") == Selection([], {"s": "archived"})
    assert taken(engine, "prune", "archived", source="cli") == {"s"}
    assert selected(engine, "archive", source="cli") == Selection([], {})
    assert taken(engine, "unarchive", source="cli") == {"s"}


def test_sessions_named_one_by_one_are_taken_with_their_conversation_once(engine: SessionEngine) -> None:
    begun(engine, "a", end=False)
    last = goes_on(engine, "a", end=False)
    begun(engine, "b", end=False)

    chosen = named(engine.state.reader(), [last, "b", "a"])

    assert [unit.ids for unit in chosen.units] == [("a", last), ("b",)]


# --- held against the peer ------------------------------------------------------------------------

_CANDIDATES = """
import json, sys
from types import SimpleNamespace
from hermes_cli.session_filters import build_prune_filters
from hermes_state import SessionDB

db = SessionDB()
found = []
for given in json.loads(sys.argv[1]):
    filters = build_prune_filters(SimpleNamespace(**given))
    found.append([row["id"] for row in db.list_prune_candidates(**filters)])
print(json.dumps(found))
"""
ASKED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    *[
        (same, same)
        for same in (
            {"source": "cron"},
            {"source": "telegram", "min_messages": 10},
            {"title": "TRIP"},
            {"title": "认证"},
            {"end_reason": "compression"},
            {"cwd": "/home/you/code"},
            {"cwd": "/home/you/"},
            {"min_messages": 10, "max_messages": 14},
            {"model": "SONNET"},
            {"provider": "OpenRouter"},
            {"user": "501"},
            {"chat_id": "1001"},
            {"chat_type": "dm"},
            {"branch": "fix/"},
            {"min_tokens": 20_000},
            {"max_tokens": 20_000},
            {"min_cost": 0.5},
            {"max_cost": 0.5},
            {"min_tool_calls": 3},
            {"max_tool_calls": 0},
        )
    ],
    ({"before": "2026-06-01T00:00+00:00"}, {"started_before_us": 1_780_272_000_000_000}),
    ({"after": "2026-06-01T00:00+00:00"}, {"started_since_us": 1_780_272_000_000_000}),
]
"""What the peer is asked, and what is asked here. By activity it asks otherwise (REFERENCE.md D2)."""


@pytest.mark.slow
def test_each_filter_passes_the_sessions_that_hermes_would_prune(
    engine: SessionEngine, hermes_home: Path
) -> None:
    ended = "UPDATE sessions SET {} WHERE rowid % {} = 0 AND ended_at IS NOT NULL"
    edit(hermes_home, ended.format("billing_provider = 'openrouter', actual_cost_usd = 0.75", 2))
    edit(hermes_home, ended.format("git_branch = 'Fix/' || id, cwd = '/home/you/code/' || id", 3))
    edit(hermes_home, ended.format("cwd = '/home/you/code'", 5))
    done = subprocess.run(
        [str(peer_python()), "-c", _CANDIDATES, json.dumps([theirs for theirs, _ in ASKED])],
        env=os.environ | {"HERMES_HOME": str(hermes_home), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    import_hermes(engine, hermes_home)
    db = engine.state.reader()
    ours = [[each.id for each in matching(db, Filters(**asked))] for _, asked in ASKED]

    for (asked, _), there, here in zip(ASKED, theirs, ours, strict=True):
        assert sorted(here) == sorted(there), asked
    assert [asked for (asked, _), there in zip(ASKED, theirs, strict=True) if not there] == []
