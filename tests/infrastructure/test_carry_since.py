"""Carrying a repair into a Hermes home in which its chat has gone on: what the repair did not see stays."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from retold.domain.errors import RepairRefused
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.exporters.hermes_repair import carry_repairs, plan_carry
from retold.infrastructure.importers.hermes import import_hermes
from retold.tests.infrastructure.carrying import DONOR, KEY, ORPHAN, WRONG, entries, save_of_repair, session
from retold.tests.infrastructure.importing import edit
from retold.tests.infrastructure.repairing import TRUTH

OTHER = TRUTH["resumed_on_purpose"]["left"]


@pytest.fixture
def engine(home: Path, hermes_home: Path) -> Iterator[SessionEngine]:
    """The imported home, its jump back mended."""
    with open_home(home) as opened:
        import_hermes(opened, hermes_home)
        opened.repair(ORPHAN)
        yield opened


def say(hermes: Path, session_id: str, role: str = "user") -> None:
    """Somebody writes in the chat while Hermes runs."""
    edit(
        hermes,
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, 'and now?', ?)",
        session_id,
        role,
        time.time(),
    )


def lead(hermes: Path, session_id: str) -> None:
    """Hermes leads the chat to another session."""
    entry = {**entries(hermes)[0], "session_id": session_id}
    edit(hermes, "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?", json.dumps(entry), KEY)


def untouched(hermes: Path, leads_to: str) -> None:
    assert entries(hermes)[0]["session_id"] == leads_to
    assert session(hermes, ORPHAN)["session_key"] is None
    assert session(hermes, DONOR)["end_reason"] == "compression"


def test_a_chat_that_was_led_elsewhere_there_since_is_left_and_named(
    engine: SessionEngine, hermes_home: Path
) -> None:
    lead(hermes_home, OTHER)
    (refused,) = carry_repairs(engine, hermes_home).refused

    assert plan_carry(engine, hermes_home).done == ()
    assert f"#{save_of_repair(engine)} was left out: {KEY} leads to {OTHER} there since" in refused
    assert f"retold import hermes {hermes_home}" in refused
    untouched(hermes_home, OTHER)


def test_a_chat_that_was_written_to_there_since_is_left_until_a_person_says_which_goes_on(
    engine: SessionEngine, hermes_home: Path
) -> None:
    say(hermes_home, WRONG)
    (refused,) = carry_repairs(engine, hermes_home).refused
    assert f"{WRONG}, which {KEY} leads to there, was written to since it was imported" in refused
    assert f"retold import hermes {hermes_home}" in refused

    import_hermes(engine, hermes_home)
    (refused,) = carry_repairs(engine, hermes_home).refused
    assert f"retold undo {save_of_repair(engine)}, then say anew which session goes on" in refused
    untouched(hermes_home, WRONG)

    engine.undo(save_of_repair(engine))
    with pytest.raises(RepairRefused, match="two histories"):
        engine.repair(ORPHAN)
    engine.repair(ORPHAN, choose=ORPHAN)
    done = carry_repairs(engine, hermes_home)
    assert done.refused == ()
    assert entries(hermes_home)[0]["session_id"] == ORPHAN
    assert session(hermes_home, ORPHAN)["session_key"] == KEY


def test_a_chat_of_which_the_person_chose_the_one_that_was_written_to_stays_there(
    engine: SessionEngine, hermes_home: Path
) -> None:
    say(hermes_home, WRONG)
    import_hermes(engine, hermes_home)
    engine.lead_key(KEY, WRONG)
    carry_repairs(engine, hermes_home)

    assert entries(hermes_home)[0]["session_id"] == WRONG
    assert session(hermes_home, WRONG)["ended_at"] is None


def test_what_was_written_elsewhere_or_by_a_tool_holds_no_repair_up(
    engine: SessionEngine, hermes_home: Path
) -> None:
    say(hermes_home, OTHER)
    say(hermes_home, WRONG, "tool")

    assert carry_repairs(engine, hermes_home).refused == ()
    assert entries(hermes_home)[0]["session_id"] == ORPHAN


def test_what_was_forgotten_here_holds_no_repair_up(engine: SessionEngine, hermes_home: Path) -> None:
    view = engine.view(WRONG)
    engine.forget_message(WRONG, view.messages[-1].id)

    assert carry_repairs(engine, hermes_home).refused == ()


def test_a_chat_to_be_closed_that_was_written_to_there_since_is_left(
    engine: SessionEngine, hermes_home: Path
) -> None:
    key, led_to = TRUTH["reset_undone"]["key"], TRUTH["reset_undone"]["routed_to_now"]
    engine.close_key(key)
    say(hermes_home, led_to)
    (refused,) = carry_repairs(engine, hermes_home).refused

    assert led_to in refused
    assert entries(hermes_home, key)[0]["session_id"] == led_to
