"""Carrying a repair into a Hermes home and back: what is shown first, and what the mirror said of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain.errors import BadUsage, StoreBusy
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.exporters.hermes_repair import carry_repairs, plan_carry
from retold.infrastructure.importers.hermes import import_hermes
from retold.tests.infrastructure.importing import ask
from retold.tests.infrastructure.repairing import TRUTH

ORPHAN = TRUTH["lineage"]["orphan"]
DIFFERS = "agent:main:telegram:dm:1002"
"""Of this key table and mirror lead to two sessions."""


@pytest.fixture
def engine(home: Path, hermes_home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        import_hermes(opened, hermes_home)
        yield opened


def files(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


def entries(hermes: Path, key: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The key's entry in the table, and in the mirror."""
    ((text,),) = ask(hermes, "SELECT entry_json FROM gateway_routing WHERE session_key = ?", key)
    return json.loads(text), json.loads((hermes / "sessions" / "sessions.json").read_text()).get(key)


def test_a_plan_writes_nothing_and_says_what_a_carry_does(engine: SessionEngine, hermes_home: Path) -> None:
    engine.repair(ORPHAN)
    head, before = engine.head(), files(hermes_home)
    planned = plan_carry(engine, hermes_home)

    assert (engine.head(), files(hermes_home)) == (head, before)
    assert (planned.backup, planned.back, len(planned.done)) == (None, (), 4)
    done = carry_repairs(engine, hermes_home, shown=planned.done)
    assert (done.done, done.refused) == (planned.done, planned.refused)
    assert plan_carry(engine, hermes_home).done == ()


def test_what_is_not_as_it_was_shown_is_not_carried(engine: SessionEngine, hermes_home: Path) -> None:
    engine.repair(ORPHAN)
    planned = plan_carry(engine, hermes_home)
    engine.repair(TRUTH["contiguity"]["orphan"])
    before = files(hermes_home)
    with pytest.raises(StoreBusy, match="is not what was shown"):
        carry_repairs(engine, hermes_home, shown=planned.done)

    assert files(hermes_home) == before


def test_a_plan_for_a_home_that_was_never_imported_is_refused(engine: SessionEngine, tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="was never imported here"):
        plan_carry(engine, tmp_path)


def test_a_mirror_that_differed_from_the_table_differs_again_once_it_is_taken_back(
    engine: SessionEngine, hermes_home: Path
) -> None:
    before = entries(hermes_home, DIFFERS)
    assert before[1] is not None
    assert before[0]["session_id"] != before[1]["session_id"]
    led = engine.lead_key(DIFFERS, before[1]["session_id"])
    other = engine.close_key(TRUTH["routed_to_ended"]["key"])
    carry_repairs(engine, hermes_home)
    assert [each and each["session_id"] for each in entries(hermes_home, DIFFERS)] == [led.leads_to] * 2
    engine.undo(led.position)
    carry_repairs(engine, hermes_home)

    assert entries(hermes_home, DIFFERS) == before
    assert other.position
    assert carry_repairs(engine, hermes_home).done == ()


def test_a_key_that_was_in_the_table_only_is_in_the_table_only_again(home: Path, hermes_home: Path) -> None:
    mirror = hermes_home / "sessions" / "sessions.json"
    told = json.loads(mirror.read_text())
    wanted = told.pop(DIFFERS)["session_id"]
    mirror.write_text(json.dumps(told))
    with open_home(home) as engine:
        import_hermes(engine, hermes_home)
        before = entries(hermes_home, DIFFERS)
        led = engine.lead_key(DIFFERS, wanted)
        carry_repairs(engine, hermes_home)
        engine.undo(led.position)
        carry_repairs(engine, hermes_home)

        assert before[1] is None
        assert entries(hermes_home, DIFFERS) == before


def test_a_mirror_that_hermes_set_otherwise_since_is_left_as_it_is(
    engine: SessionEngine, hermes_home: Path
) -> None:
    mirror = hermes_home / "sessions" / "sessions.json"
    wanted = entries(hermes_home, DIFFERS)[1]
    assert wanted is not None
    led = engine.lead_key(DIFFERS, wanted["session_id"])
    carry_repairs(engine, hermes_home)
    engine.undo(led.position)
    told = json.loads(mirror.read_text())
    told[DIFFERS]["session_id"] = ORPHAN
    mirror.write_text(json.dumps(told))
    carry_repairs(engine, hermes_home)

    assert entries(hermes_home, DIFFERS)[1] == told[DIFFERS]
