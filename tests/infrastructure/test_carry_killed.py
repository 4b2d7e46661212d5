"""A carry that was killed between the two homes: what it left unsaid is said, or taken back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.exporters.hermes_repair import Carried, carry_repairs
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.verify import verify
from retold.tests.conftest import Run
from retold.tests.infrastructure.carrying import (
    CARRIER,
    DONOR,
    KEY,
    ORPHAN,
    WRONG,
    entries,
    repair_of,
    save_of_repair,
    session,
)
from retold.tests.infrastructure.importing import edit


@pytest.fixture
def engine(home: Path, hermes_home: Path) -> Iterator[SessionEngine]:
    """The imported home, its jump back mended."""
    with open_home(home) as opened:
        import_hermes(opened, hermes_home)
        opened.repair(ORPHAN)
        yield opened


@pytest.fixture
def killed(engine: SessionEngine, hermes_home: Path) -> Path:
    """The Hermes home after a carry that was killed between its commit there and its note here."""
    code = (
        "import os, retold.infrastructure.exporters.hermes_repair as carry\n"
        "carry.record = lambda *_: os.kill(os.getpid(), 9)\n" + CARRIER
    )
    ran = subprocess.run([sys.executable, "-c", code, str(engine.event_log.path.parent), str(hermes_home)])
    assert ran.returncode == -9
    assert session(hermes_home, ORPHAN)["session_key"] == KEY
    return hermes_home


def left_over(engine: SessionEngine) -> list[str]:
    return sorted(each.name for each in engine.home.iterdir() if "carrying" in each.name)


def test_what_was_carried_and_not_noted_is_noted_by_the_next_run(engine: SessionEngine, killed: Path) -> None:
    before = engine.head().position
    again = carry_repairs(engine, killed)
    notes = engine.event_log.read(before)
    third = carry_repairs(engine, killed)

    assert again.done == (f"{KEY} leads to {ORPHAN}",)  # in the mirror, which had not been reached
    assert third == Carried(str(killed))
    assert {each.caused_by for each in notes} == {save_of_repair(engine)}
    assert {each.session_id for each in notes if each.stream.startswith("session:")} == {ORPHAN, DONOR, WRONG}
    assert engine.head().position == notes[-1].position
    assert import_hermes(engine, killed).taken == {}
    assert engine.undo(repair_of(engine)).carried == (str(killed),)
    assert (left_over(engine), verify(engine.home).problems) == ([], [])


def test_audit_and_why_say_the_same_before_what_was_carried_is_noted(
    engine: SessionEngine, hermes_home: Path, killed: Path, run: Run
) -> None:
    audited, why = run("audit", "--json"), run("why", KEY, "--json")
    carry_repairs(engine, killed)
    noted = run("audit", "--json"), run("why", KEY, "--json")

    assert [(each.exit_code, each.json["findings"]) for each in noted] == [
        (each.exit_code, each.json["findings"]) for each in (audited, why)
    ]
    assert why.json["session_id"] == ORPHAN


def test_what_was_carried_and_not_noted_is_taken_back_there_once_it_was_undone_here(
    engine: SessionEngine, hermes_home: Path, killed: Path
) -> None:
    undone = engine.undo(repair_of(engine))
    back = carry_repairs(engine, killed)

    assert undone.carried == (str(killed),)
    assert len(back.done) == 4
    assert session(killed, ORPHAN)["session_key"] is None
    assert session(killed, DONOR)["end_reason"] == "compression"
    assert [each["session_id"] for each in entries(killed)] == [WRONG, WRONG]
    assert import_hermes(engine, killed).conflicts == []
    assert (engine.route_of(KEY), engine.session(ORPHAN).key) == (WRONG, None)
    assert carry_repairs(engine, killed).done == ()
    assert left_over(engine) == []


def test_an_import_brings_no_repair_back_that_was_undone_before_it_was_noted(
    engine: SessionEngine, hermes_home: Path, killed: Path
) -> None:
    undone = engine.undo(repair_of(engine))
    report = import_hermes(engine, killed)

    assert (undone.left, report.taken, report.conflicts) == ((), {}, [])
    assert (engine.route_of(KEY), engine.session(ORPHAN).key) == (WRONG, None)
    carry_repairs(engine, killed)
    assert session(killed, ORPHAN)["session_key"] is None
    assert [each["session_id"] for each in entries(killed)] == [WRONG, WRONG]
    assert import_hermes(engine, killed).taken == {}
    assert (left_over(engine), verify(engine.home).problems) == ([], [])


def test_an_undo_says_where_it_could_not_look_whether_the_repair_was_carried(
    engine: SessionEngine, hermes_home: Path, killed: Path
) -> None:
    (killed / "state.db").rename(killed / "elsewhere.db")
    undone = engine.undo(repair_of(engine))

    assert undone.carried == (str(killed),)
    (said,) = undone.left
    assert said.startswith(f"whether it was carried into {killed} cannot be looked at now")
    assert said.endswith(f"retold sessions repair-routing --into {killed}")


def test_a_taking_back_that_was_not_noted_is_noted_by_the_next_run(
    engine: SessionEngine, hermes_home: Path
) -> None:
    carry_repairs(engine, hermes_home)
    engine.undo(repair_of(engine))
    code = (
        "import os, retold.infrastructure.exporters.hermes_repair as carry\n"
        "carry.record = lambda *_: os.kill(os.getpid(), 9)\n" + CARRIER
    )
    ran = subprocess.run([sys.executable, "-c", code, str(engine.home), str(hermes_home)])
    assert ran.returncode == -9
    assert session(hermes_home, ORPHAN)["session_key"] is None
    again = carry_repairs(engine, hermes_home)

    assert again.done == ()
    assert import_hermes(engine, hermes_home).taken == {}
    assert (engine.route_of(KEY), left_over(engine)) == (WRONG, [])


def test_a_carry_that_was_killed_before_it_was_committed_leaves_nothing_to_be_noted(
    engine: SessionEngine, hermes_home: Path
) -> None:
    code = (
        "import os, retold.infrastructure.exporters.hermes_repair as carry\n"
        "begin = carry.begin\n"
        "carry.begin = lambda *given: (begin(*given), os.kill(os.getpid(), 9))\n" + CARRIER
    )
    ran = subprocess.run([sys.executable, "-c", code, str(engine.home), str(hermes_home)])
    assert ran.returncode == -9
    assert session(hermes_home, ORPHAN)["session_key"] is None
    engine.undo(repair_of(engine))
    edit(hermes_home, "UPDATE sessions SET display_name = 'by Hermes' WHERE id = ?", ORPHAN)

    assert carry_repairs(engine, hermes_home) == Carried(str(hermes_home))
    assert left_over(engine) == []
