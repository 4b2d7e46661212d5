"""`retold sessions repair-routing`: the report, in Hermes' words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import retold
from retold.infrastructure.log import Log
from retold.tests.conftest import FIXTURES
from retold.tests.hermes_log import told_from

if TYPE_CHECKING:
    from retold.tests.conftest import Run


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("imported") / "home"
    told_from(FIXTURES / "hermes-home", home).close()
    return home


@pytest.fixture(scope="module")
def truth() -> Any:
    return json.loads((FIXTURES / "hermes-home" / "truth.json").read_text())["incident"]


def test_the_report_has_hermes_words(run: Run, imported: Path, truth: Any) -> None:
    done = run("sessions", "repair-routing", "--home", imported)
    lineage = truth["lineage"]

    assert done.exit_code == 0
    assert done.stdout.startswith(
        f"{lineage['orphan']}  (telegram, 33 messages)\n"
        f"  → adopt into {lineage['adopts_key']} (from {lineage['predecessor']}, evidence: lineage)\n"
        "    also on record: title: #2 of the lineage that it was #1 of\n"
    )
    assert (
        f"{truth['two_predecessors']['orphan']}  (slack, 8 messages)\n"
        "  ✗ not repairable — ambiguous: more than one keyed predecessor matches this window\n"
    ) in done.stdout
    assert "  ✗ not repairable — no keyed predecessor fell quiet within 900s of this session's start\n" in (
        done.stdout
    )
    assert (
        "\n\n3 of 7 orphaned session(s) can be repaired. Re-run with --apply to perform them.\n"
        "1 of these wait for --choose, one by one.\n"
    ) in done.stdout
    assert "have no key by nature; --all lists them\n" in done.stdout
    assert (
        f"the chat was written to in {truth['second_history']['routed_to_now']} since: --choose must say"
    ) in done.stdout


def test_each_incident_is_adopted_or_refused_as_it_must_be(run: Run, imported: Path, truth: Any) -> None:
    told = run("sessions", "repair-routing", "--json", "--home", imported).json
    records = {each["orphan_id"]: each for each in told["records"]}
    adoptable = {name: each["session_key"] for name, each in records.items() if each["adoptable"]}

    assert adoptable == {
        truth[name]["orphan"]: truth[name]["adopts_key"]
        for name in ("lineage", "contiguity", "second_history")
    }
    for orphan in truth["two_claimants"]["orphans"]:
        assert records[orphan]["donor_id"] == truth["two_claimants"]["predecessor"]
    assert told["repairable"] == 3


def test_a_wider_gap_finds_more(run: Run, imported: Path, truth: Any) -> None:
    arguments = ("sessions", "repair-routing", "--max-gap-seconds", "3600", "--json", "--home", imported)
    told = run(*arguments).json
    records = {each["orphan_id"]: each for each in told["records"]}

    assert records[truth["out_of_window"]["orphan"]]["donor_id"] == truth["out_of_window"]["last_keyed"]


def test_all_lists_those_without_a_key_by_nature(run: Run, imported: Path) -> None:
    few = run("sessions", "repair-routing", "--json", "--home", imported).json
    every = run("sessions", "repair-routing", "--all", "--json", "--home", imported).json
    done = run("sessions", "repair-routing", "--all", "--home", imported)

    assert len(every["records"]) == len(few["records"]) + sum(few["keyless_by_nature"].values())
    assert "by nature" not in done.stdout
    assert f"3 of {len(every['records'])} orphaned session(s) can be repaired." in done.stdout


def test_nothing_missing_is_said(run: Run, home: Path) -> None:
    with retold.open_home(home) as engine:
        engine.create_session("telegram", key="agent:main:telegram:dm:1")
        cli = engine.create_session("cli").session_id
        engine.append_message(cli, "user", "hi")
    done = run("sessions", "repair-routing")

    assert done.exit_code == 0
    assert done.stdout == (
        "✓ No gateway sessions are missing their routing identity.\n"
        "1 session of cli has no key by nature; --all lists them\n"
    )


def test_none_that_could_be_repaired_is_said(run: Run, home: Path) -> None:
    with retold.open_home(home) as engine:
        engine.create_session("telegram", key="agent:main:telegram:dm:1", at_us=10**15)
        lost = engine.create_session("telegram", at_us=10**15 + 10**13).session_id
        engine.append_message(lost, "user", "hi", at_us=10**15 + 10**13)
    done = run("sessions", "repair-routing")

    assert done.stdout.endswith(
        "\n\n1 orphaned session(s) found, none unambiguously repairable. Nothing to do.\n"
    )


def test_a_report_changes_nothing(run: Run, imported: Path) -> None:
    def head() -> str:
        log = Log(imported / "events.db", read_only=True)
        try:
            return str(log.head())
        finally:
            log.close()

    before = head()
    run("sessions", "repair-routing", "--home", imported)

    assert head() == before


@pytest.mark.parametrize("gap", ["nan", "inf", "-1", "soon"])
def test_a_gap_that_is_no_number_of_seconds_is_refused(run: Run, imported: Path, gap: str) -> None:
    assert run("sessions", "repair-routing", "--max-gap-seconds", gap, "--home", imported).exit_code == 2


def test_the_past_is_reported_as_it_was_known(run: Run, imported: Path) -> None:
    told = run("sessions", "repair-routing", "--json", "--home", imported, "--at", "#1").json

    assert told["records"] == []


def test_a_terminal_gets_lines_that_fit_broken_at_spaces(
    run: Run, imported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = run("sessions", "repair-routing", "--home", imported).stdout
    monkeypatch.setattr("retold.cli.repair_routing.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("sessions", "repair-routing", "--home", imported).stdout

    assert max(map(len, shown.splitlines())) <= 80 < max(map(len, piped.splitlines()))
    assert shown.split() == piped.split()
