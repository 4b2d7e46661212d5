"""A plan of repairs: written, edited by a person, applied, and never half understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.tests.cli.repaired import LINEAGE, REPAIR, TWICE, UNDECIDED, backups, head

if TYPE_CHECKING:
    from retold.tests.conftest import Run


@pytest.mark.parametrize("name", ["plan.yaml", "plan.json"])
def test_a_plan_is_written_edited_and_applied(run: Run, imported: Path, tmp_path: Path, name: str) -> None:
    plan = tmp_path / name
    written = run(*REPAIR, "--plan", plan)
    text = plan.read_text("utf-8")

    assert written.exit_code == 0
    assert f"Wrote 3 to adopt and 4 undecided to {plan}\n" in written.stdout
    assert str(plan) in written.stdout.split("--apply --plan ")[1]
    for each in (LINEAGE["orphan"], UNDECIDED["orphan"], *UNDECIDED["candidates"]):
        assert each in text
    still_open = run(*REPAIR, "--apply", "--yes", "--plan", plan)
    assert still_open.exit_code == 2
    assert "leaves open which session goes on" in still_open.stderr
    choice = f'"{TWICE["orphan"]}"'
    plan.write_text(
        text.replace("'?'", choice).replace('"?"', choice).replace("choose: ?", f"choose: {choice}")
    )
    done = run(*REPAIR, "--apply", "--yes", "--plan", plan)
    assert (done.exit_code, done.stdout[-28:]) == (0, "Repaired 3 of 3 session(s).\n")
    position = head(imported)
    again = run(*REPAIR, "--apply", "--yes", "--plan", plan)
    assert again.exit_code == 0
    assert again.stdout.endswith("\nRepaired 0 of 3 session(s); 3 had their key already.\n")
    assert again.stdout.count(" already\n") == 3
    assert (head(imported), len(backups(imported))) == (position, 1)


def test_a_plan_that_came_half_way_goes_on_from_there(run: Run, imported: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    run(*REPAIR, "--plan", plan)
    told = json.loads(plan.read_text())
    told["adopt"] = [each for each in told["adopt"] if "choose" not in each]
    plan.write_text(json.dumps(told))
    orphans = [each["orphan"] for each in told["adopt"]]
    run(*REPAIR, "--apply", "--yes", orphans[0])
    done = run(*REPAIR, "--apply", "--yes", "--json", "--plan", plan)

    assert done.exit_code == 0
    assert [(each["session_id"], bool(each["positions"])) for each in done.json["adopted"]] == [
        (orphans[0], False),
        *((each, True) for each in orphans[1:]),
    ]


def test_a_person_may_add_to_a_plan_what_no_rule_decides(run: Run, imported: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    own = {"orphan": UNDECIDED["orphan"], "from": UNDECIDED["candidates"][1]}
    plan.write_text(json.dumps({"adopt": [own]}))
    done = run(*REPAIR, "--apply", "--yes", "--json", "--plan", plan).json

    assert done["adopted"][0]["donor_id"] == UNDECIDED["candidates"][1]


def test_a_plan_that_is_out_of_date_adopts_nothing_else(run: Run, imported: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    run(*REPAIR, "--plan", plan)
    told = json.loads(plan.read_text())
    told["adopt"] = [each for each in told["adopt"] if each["orphan"] == LINEAGE["orphan"]]
    told["adopt"][0]["from"] = TWICE["predecessor"]
    plan.write_text(json.dumps(told))
    done = run(*REPAIR, "--apply", "--yes", "--plan", plan)

    assert done.exit_code == 3
    said = f"✗ {LINEAGE['orphan']} was not adopted (the row changed since it was reported)\n"
    assert said in done.stdout


@pytest.mark.parametrize(
    "text", ["", "[", "adopt: 5", '{"adopt":[{"orphan":"x"}]}', "adopt: [{what: 1}]", "\0"]
)
def test_a_file_that_is_no_plan_is_refused(run: Run, imported: Path, tmp_path: Path, text: str) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(text)
    done = run(*REPAIR, "--apply", "--yes", "--plan", plan)

    assert done.exit_code == 2
    assert f"{plan} is no plan" in done.stderr


def test_no_file_is_written_over_by_a_plan(run: Run, imported: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("mine")
    done = run(*REPAIR, "--plan", tmp_path / "plan.yaml")

    assert (done.exit_code, (tmp_path / "plan.yaml").read_text()) == (2, "mine")
    assert run(*REPAIR, "--apply", "--plan", tmp_path / "none.yaml").exit_code == 2
