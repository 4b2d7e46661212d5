"""`retold undo`: what it says, and how it refuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.infrastructure.engine import SessionEngine, open_home

if TYPE_CHECKING:
    from retold.tests.conftest import Run

K = "agent:main:telegram:dm:77"


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        opened.create_session("telegram", session_id="a", key=K, title="plan")
        yield opened


def test_a_rename_is_undone_and_the_undo_named_undoes_that(run: Run, engine: SessionEngine) -> None:
    first = engine.title_session("a", "other").positions[0]
    done = run("undo", f"#{first}")
    back = done.stderr.split("retold undo ")[1].strip()

    assert (done.exit_code, done.stdout) == (0, f"Undone: #{first}-{first + 2} (3 events), by #{back}.\n")
    assert engine.session("a").title == "plan"
    assert run("undo", back).exit_code == 0
    assert engine.session("a").title == "other"


def test_json_tells_what_was_undone_by_which_events(run: Run, engine: SessionEngine) -> None:
    archived = engine.archive_session("a").position
    told = run("undo", str(archived), "--json").json

    assert told == {
        "undone": [archived],
        "positions": [archived + 1],
        "sessions": ["a"],
        "keys": [],
        "left": [],
        "carried_into": [],
    }


def test_what_builds_on_it_is_named(run: Run, engine: SessionEngine) -> None:
    reset = engine.reset(K)
    said = engine.append_message(reset.session_id, "user", "hi").position
    done = run("undo", str(reset.position))
    told = run("undo", str(reset.position), "--json")

    assert done.exit_code == 3
    assert f"#{said} message_appended" in done.stderr
    assert (told.exit_code, told.json["error"]["kind"]) == (3, "built_on")


@pytest.mark.parametrize("position", ["0", "-1", "x", "", "#", "99999", "9" * 40, "١"])
def test_what_is_no_position_is_said(run: Run, engine: SessionEngine, position: str) -> None:
    done = run("undo", "--", position)

    assert done.exit_code == 2
    assert done.stderr.startswith("retold: ")


def test_a_home_that_is_not_there_is_not_made(run: Run, home: Path) -> None:
    assert run("undo", "1").exit_code == 2
    assert not home.exists()


def test_why_says_that_a_route_was_put_back(run: Run, engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="b", key=K)
    run("undo", str(engine.lead_key(K, "a").position))

    assert run("why", K, "--json").json["decision"]["cause"] == "undo"
    assert "undo" in run("why", K).stdout


def test_a_repair_that_was_carried_names_the_home_and_the_way_back_there(
    run: Run, tmp_path: Path, hermes_home: Path
) -> None:
    at = ("--home", tmp_path / "imported")
    repair = ("sessions", "repair-routing")
    run("import", "hermes", hermes_home, *at)
    run(*repair, "--apply", "--yes", "--into", hermes_home, *at)
    led = [json.loads(line) for line in run("log", "--json", *at).stdout.splitlines()]
    repaired = next(each["position"] for each in led if each["payload"].get("cause") == "repair")
    done = run("undo", str(repaired), *at)
    way = done.stderr.split("takes it back there, too: retold ")[1].splitlines()[0]

    assert (done.exit_code, f"It was carried into {hermes_home}" in done.stderr) == (0, True)
    back = run(*shlex.split(way), "--yes")
    assert back.exit_code == 0
    assert "is as it was before #" in back.stdout
    assert "Nothing was to be changed" in run(*shlex.split(way)).stdout
