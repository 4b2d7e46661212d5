"""`retold audit`: every finding of a store, grouped for people and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import retold
from retold.cli.output import cell_width
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


def test_every_incident_of_the_fixture_is_found(run: Run, imported: Path, truth: Any) -> None:
    done = run("audit", "--json", "--home", imported)
    kinds = {each["kind"] for each in done.json["findings"]}
    keys = {each["key"] for each in done.json["findings"] if each["kind"] == "jumped_back"}

    assert done.exit_code == 1
    assert list(done.json) == ["findings", "chats"]
    assert {each["kind"] for each in truth.values() if "kind" in each} == kinds
    assert keys == {truth["lineage"]["adopts_key"], truth["second_history"]["adopts_key"]}


@pytest.mark.parametrize("name", ["resumed_on_purpose", "thread", "resumed_and_silent", "slept"])
def test_a_sound_chat_is_not_reported(run: Run, imported: Path, truth: Any, name: str) -> None:
    findings = run("audit", "--json", "--home", imported).json["findings"]
    key = truth[name]["key"]

    assert not [each for each in findings if each["key"] == key]


def test_a_finding_without_a_chat_has_no_key(run: Run, imported: Path, truth: Any) -> None:
    findings = run("audit", "--json", "--home", imported).json["findings"]
    found = [each for each in findings if each["session_id"] == truth["two_predecessors"]["orphan"]]

    assert [each["key"] for each in found] == [None]
    assert [each["session_id"] for each in found[0]["candidates"]] == truth["two_predecessors"]["candidates"]


def test_each_finding_is_reported_once(run: Run, imported: Path) -> None:
    findings = run("audit", "--json", "--home", imported).json["findings"]
    told = [(each["kind"], each["key"], each["session_id"]) for each in findings]

    assert len(told) == len(set(told))


def test_findings_are_grouped_and_counted(run: Run, imported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETOLD_HOME", str(imported))
    done = run("audit")
    lines = done.stdout.splitlines()

    assert done.exit_code == 1
    assert lines[0] == "JUMPED BACK (2)"
    assert lines[1] == "  telegram, chat 1001, user 501                      agent:main:telegram:dm:1001"
    assert "13 findings in 27 chats: 2 jumped back" in done.stdout
    assert "Next: retold sessions repair-routing" in done.stdout
    assert max(cell_width(line) for line in lines if "→ retold" not in line) <= 80


def test_a_sound_store_is_said_in_one_line(run: Run, home: Path) -> None:
    with retold.open_home(home) as engine:
        engine.create_session("telegram", key="agent:main:telegram:dm:1", chat_id="1", chat_type="dm")
    done = run("audit")

    assert (done.exit_code, done.stdout) == (0, "1 chat, no findings\n")
    assert run("audit", "--json").json == {"findings": [], "chats": 1}


def test_the_past_is_audited_as_it_was_known(run: Run, imported: Path) -> None:
    assert run("audit", "--json", "--home", imported, "--at", "#1").json["findings"] == []


def test_a_time_leaves_out_what_began_later(run: Run, imported: Path) -> None:
    told = run("audit", "--json", "--home", imported, "--at", "2026-05-08T14:25:00Z").json

    assert {each["key"] for each in told["findings"]} == {"agent:main:telegram:dm:1001"}
    assert told["chats"] == 1


def test_no_home_is_no_finding(run: Run) -> None:
    done = run("audit", "--json")

    assert done.exit_code == 2
    assert done.json["error"]["kind"] == "no_such_home"
