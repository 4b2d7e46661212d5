"""`retold sessions repair-routing --apply`: asks, backs up, adopts, says how to take it back."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.infrastructure.engine import open_home
from retold.tests.cli.repaired import LINEAGE, REPAIR, TRUTH, TWICE, UNDECIDED, answer, backups, head

if TYPE_CHECKING:
    from retold.tests.conftest import Run


# --- asking ------------------------------------------------------------------------------------------


def test_it_asks_and_does_nothing_without_a_yes(
    run: Run, imported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = head(imported)
    for said in ("", "\n", "n\n", "no\n", "what?\n"):
        answer(monkeypatch, said)
        done = run(*REPAIR, "--apply")

        assert (done.exit_code, done.stdout) == (1, "Aborted — nothing was changed.\n")
        assert done.stderr.splitlines()[:3] == [
            f"{LINEAGE['orphan']} → {LINEAGE['adopts_key']}",
            f"{TRUTH['contiguity']['orphan']} → {TRUTH['contiguity']['adopts_key']}",
            "Adopt 2 orphaned session(s)? [y/N] ",
        ]
    assert (head(imported), backups(imported)) == (before, [])


def test_the_question_names_what_a_person_chose(
    run: Run, imported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "n\n")
    done = run(*REPAIR, "--apply", UNDECIDED["orphan"], "--from", UNDECIDED["candidates"][0])

    assert done.stderr.splitlines()[0] == f"{UNDECIDED['orphan']}, from {UNDECIDED['candidates'][0]}"


def test_with_a_yes_each_is_adopted_and_the_second_time_none_is_left(
    run: Run, imported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "y\n")
    done = run(*REPAIR, "--apply")

    assert done.exit_code == 0
    assert f"✓ {LINEAGE['orphan']} now owns {LINEAGE['adopts_key']}\n" in done.stdout
    assert "    by lineage: it names " in done.stdout
    assert done.stdout.endswith("\n\nRepaired 2 of 2 session(s).\n")
    (backup,) = backups(imported)
    assert str(backup) in done.stderr
    before = head(imported)
    again = run(*REPAIR, "--apply", "--yes")
    assert again.exit_code == 0
    assert "1 of 5 orphaned session(s) can be repaired, once a person chooses.\n" in again.stdout
    assert (head(imported), backups(imported)) == (before, [backup])


def test_the_backup_is_the_home_as_it_was(run: Run, imported: Path) -> None:
    before = run("audit", "--json").json
    run(*REPAIR, "--apply", "--yes")
    (backup,) = backups(imported)

    assert run("audit", "--json", "--home", backup).json == before


def test_json_asks_nothing_and_tells_all(run: Run, imported: Path) -> None:
    refused = run(*REPAIR, "--apply", "--json")
    done = run(*REPAIR, "--apply", "--json", "--yes", LINEAGE["orphan"], TWICE["orphan"])

    assert (refused.exit_code, refused.json["error"]["kind"]) == (2, "bad_usage")
    assert done.exit_code == 3
    told = done.json
    (adopted,), (left,) = told["adopted"], told["refused"]
    assert adopted["session_id"] == adopted["leads_to"] == LINEAGE["orphan"]
    assert (adopted["donor_id"], adopted["session_key"]) == (LINEAGE["predecessor"], LINEAGE["adopts_key"])
    assert adopted["led_to"] == LINEAGE["routed_to_now"]
    assert adopted["positions"]
    assert (left["session_id"], left["kind"]) == (TWICE["orphan"], "two_histories")
    assert (told["repaired"], told["asked"], told["into"]) == (1, 2, None)
    assert Path(told["backup"]).is_dir()


def test_the_command_that_is_named_takes_it_back(run: Run, imported: Path) -> None:
    before = run("audit", "--json").json["findings"]
    done = run(*REPAIR, "--apply", "--yes", LINEAGE["orphan"])
    position = done.stdout.split("retold undo ")[1].split()[0]

    assert run("undo", position).exit_code == 0
    after = run("audit", "--json").json["findings"]
    assert [each["kind"] for each in after] == [each["kind"] for each in before]


# --- one session -------------------------------------------------------------------------------------


def test_two_histories_are_refused_until_one_is_chosen(run: Run, imported: Path) -> None:
    refused = run(*REPAIR, "--apply", "--yes", TWICE["orphan"])
    chosen = run(*REPAIR, "--apply", "--yes", TWICE["orphan"], "--choose", TWICE["routed_to_now"])

    assert refused.exit_code == 3
    assert f"✗ {TWICE['orphan']} was not adopted: its chat has two histories" in refused.stdout
    assert "--choose" in refused.stdout
    assert refused.stdout.endswith("Repaired 0 of 1 session(s).\n")
    assert chosen.exit_code == 0
    assert f"    its chat goes on in {TWICE['routed_to_now']}\n" in chosen.stdout


def test_each_choice_is_a_command_that_can_be_pasted(run: Run, imported: Path) -> None:
    refused = run(*REPAIR, "--apply", "--yes", TWICE["orphan"], "--home", imported)
    named = [line.split("retold ")[1] for line in refused.stdout.splitlines() if "--choose" in line]

    assert [shlex.split(each)[4:] for each in named] == [
        ["--choose", TWICE["orphan"], "--home", str(imported)],
        ["--choose", TWICE["routed_to_now"], "--home", str(imported)],
    ]
    assert run(*shlex.split(named[0]), "--yes").exit_code == 0


def test_another_choice_after_a_repair_is_refused_and_says_how(run: Run, imported: Path) -> None:
    apply = (*REPAIR, "--apply", "--yes", LINEAGE["orphan"])
    run(*apply)
    before = head(imported)
    other = run(*apply, "--choose", LINEAGE["routed_to_now"])
    same = run(*apply, "--choose", LINEAGE["orphan"])

    assert other.exit_code == 3
    assert "bears" in other.stdout
    assert f"not in {LINEAGE['routed_to_now']}\n" in other.stdout
    assert f"retold sessions route {LINEAGE['adopts_key']} {LINEAGE['routed_to_now']}" in other.stdout
    assert (same.exit_code, head(imported)) == (0, before)


def test_a_plan_that_names_another_donor_or_key_after_a_repair_is_refused(
    run: Run, imported: Path, tmp_path: Path
) -> None:
    run(*REPAIR, "--apply", "--yes", LINEAGE["orphan"])
    plan, donor = tmp_path / "plan.json", LINEAGE["predecessor"]
    for wrong in ({"from": donor, "key": "agent:main:x:dm:9"}, {"from": LINEAGE["routed_to_now"]}):
        plan.write_text(json.dumps({"adopt": [{"orphan": LINEAGE["orphan"], **wrong}]}))
        done = run(*REPAIR, "--apply", "--yes", "--plan", plan)
        assert (done.exit_code, "✓" in done.stdout) == (3, False), done
    plan.write_text(json.dumps({"adopt": [{"orphan": LINEAGE["orphan"], "from": donor}]}))
    assert run(*REPAIR, "--apply", "--yes", "--plan", plan).exit_code == 0


def test_where_nothing_is_repaired_no_backup_is_taken(run: Run, imported: Path) -> None:
    done = run(*REPAIR, "--apply", "--yes", TWICE["orphan"])

    assert done.stdout.endswith("Repaired 0 of 1 session(s).\n")
    assert backups(imported) == []
    assert "A backup" not in done.stderr


def test_what_no_rule_may_decide_a_person_may(run: Run, imported: Path) -> None:
    refused = run(*REPAIR, "--apply", "--yes", UNDECIDED["orphan"])
    named = run(*REPAIR, "--apply", "--yes", UNDECIDED["orphan"], "--from", UNDECIDED["candidates"][0])

    assert refused.exit_code == 3
    assert "cannot be adopted: ambiguous: more than one keyed predecessor" in refused.stdout
    assert named.exit_code == 0
    assert "a person named" in named.stdout


@pytest.mark.parametrize(
    "argv",
    [
        ("--choose", LINEAGE["orphan"]),
        ("--from", LINEAGE["orphan"], LINEAGE["orphan"]),
        ("--apply", "--choose", LINEAGE["orphan"]),
        ("--apply", "--from", LINEAGE["orphan"], LINEAGE["orphan"], TWICE["orphan"]),
        ("--apply", "--at", "#5"),
        ("--apply", "--plan", "p.yaml", LINEAGE["orphan"]),
        ("--apply", "nobody"),
        ("--into", "somewhere", "--plan", "p.yaml"),
    ],
)
def test_what_cannot_be_meant_is_said(run: Run, imported: Path, argv: tuple[str, ...]) -> None:
    before = head(imported)
    done = run(*REPAIR, *argv)

    assert done.exit_code == 2
    assert done.stderr.startswith("retold: ")
    assert (head(imported), backups(imported)) == (before, [])


CONTESTED = TRUTH["two_claimants"]


def named_commands(stdout: str) -> list[list[str]]:
    """The commands that an answer names, each as it would be typed."""
    return [shlex.split(line)[1:] for line in stdout.splitlines() if line.strip().startswith("retold ")]


def test_a_remedy_and_each_hint_lead_out_of_what_two_claim(run: Run, imported: Path) -> None:
    first, second = CONTESTED["orphans"]
    taken = run(*REPAIR, "--apply", "--yes", second, "--from", CONTESTED["predecessor"])
    assert taken.exit_code == 0
    remedies = {
        finding["session_id"]: finding["remedy"] for finding in run("audit", "--json").json["findings"]
    }
    told = run("why", first)
    refused = run(*REPAIR, "--apply", "--yes", first, "--from", CONTESTED["predecessor"])
    ways = named_commands(refused.stdout)

    assert remedies[first] == f"retold {' '.join(REPAIR)} --apply {first} --from SESSION --choose SESSION"
    assert remedies[first] in told.stdout
    assert refused.exit_code == 3
    assert [each[3:] for each in ways] == [
        [first, "--from", CONTESTED["predecessor"], "--choose", each] for each in (first, second)
    ]
    assert run(*ways[0], "--yes").exit_code == 0


def test_a_hint_keeps_what_was_chosen_and_the_window(run: Run, imported: Path) -> None:
    chosen = ("--choose", CONTESTED["orphans"][0])
    wider = ("--max-gap-seconds", "901")
    refused = run(*REPAIR, "--apply", "--yes", CONTESTED["orphans"][0], *chosen, *wider)
    two = run(*REPAIR, "--apply", "--yes", TWICE["orphan"], "--max-gap-seconds", "901.5")

    assert (
        f"--apply {CONTESTED['orphans'][0]} --max-gap-seconds 901 --from SESSION {' '.join(chosen)}"
        in refused.stdout
    )
    assert [each[4:6] for each in named_commands(two.stdout)] == [["--max-gap-seconds", "901.5"]] * 2


def test_a_repair_ends_no_session_that_it_is_not_about(run: Run, imported: Path) -> None:
    def open_sessions() -> set[str]:
        with open_home(imported) as engine:
            engine.projector.catch_up()
            rows = engine.state.reader().execute("SELECT id FROM sessions WHERE ended_at IS NULL")
            return {str(session_id) for (session_id,) in rows.fetchall()}

    before = open_sessions()
    done = run(*REPAIR, "--apply", "--yes", LINEAGE["orphan"], "--json").json["adopted"][0]
    about = {LINEAGE["routed_to_now"], done["donor_id"]}

    assert before - open_sessions() <= about
    assert run("undo", str(done["positions"][0])).exit_code == 0
    assert run("sessions", "unroute", LINEAGE["adopts_key"]).exit_code == 0
    assert before - open_sessions() <= about


def test_what_a_kill_left_of_a_backup_is_gone_after_the_next_repair_or_upkeep(
    run: Run, imported: Path
) -> None:
    left = imported.with_name(f".{imported.name}.before-repair-20260101-000000.77.00c0ffee")
    for command in ((*REPAIR, "--apply", "--yes", TWICE["orphan"]), ("maintain",)):
        left.mkdir()
        os.utime(left, (1, 1))
        run(*command)

        assert not left.exists(), command
    assert backups(imported) == []


# --- what is said of where a chat goes on --------------------------------------------------------------


def test_who_bears_the_key_of_a_chat_that_goes_on_elsewhere_is_not_said_to_own_it(
    run: Run, imported: Path
) -> None:
    choice = ("--choose", TWICE["routed_to_now"])
    done = run(*REPAIR, "--apply", "--yes", TWICE["orphan"], *choice)
    again = run(*REPAIR, "--apply", "--yes", TWICE["orphan"], *choice)

    assert f"✓ {TWICE['orphan']} bears {TWICE['adopts_key']} again\n" in done.stdout
    assert f"    its chat goes on in {TWICE['routed_to_now']}\n" in done.stdout
    assert f"✓ {TWICE['orphan']} bears {TWICE['adopts_key']} already\n" in again.stdout
    assert f"    its chat goes on in {TWICE['routed_to_now']}\n" in again.stdout
    assert again.stdout.endswith("\nRepaired 0 of 1 session(s); 1 had its key already.\n")
    assert "owns" not in done.stdout + again.stdout


def test_of_a_session_that_had_ended_for_good_it_is_said_that_its_chat_leads_nowhere(
    run: Run, imported: Path
) -> None:
    with open_home(imported) as engine:
        engine.end_session(LINEAGE["orphan"], "session_reset")
    done = run(*REPAIR, "--apply", "--yes", LINEAGE["orphan"])

    assert f"✓ {LINEAGE['orphan']} bears {LINEAGE['adopts_key']} again\n" in done.stdout
    assert "    it ended for good (session_reset), so its chat leads nowhere: the next message" in done.stdout
    assert run("why", LINEAGE["adopts_key"], "--json").json["decision"] is None
