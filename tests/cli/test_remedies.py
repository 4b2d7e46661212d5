"""Every kind of finding names a command that exists, and that command, as it is printed, cures it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from retold.domain.findings import Kind
from retold.tests.conftest import FIXTURES
from retold.tests.infrastructure.importing import edit

if TYPE_CHECKING:
    from retold.tests.conftest import Run

TRUTH: Any = json.loads((FIXTURES / "hermes-home" / "truth.json").read_text())["incident"]
KEY = TRUTH["lineage"]["adopts_key"]
CHOICES = {
    TRUTH["second_history"]["orphan"]: TRUTH["second_history"]["orphan"],
    TRUTH["two_predecessors"]["orphan"]: TRUTH["two_predecessors"]["candidates"][0],
    TRUTH["two_claimants"]["orphans"][0]: TRUTH["two_claimants"]["predecessor"],
    TRUTH["two_claimants"]["orphans"][1]: TRUTH["two_claimants"]["orphans"][0],
}
"""What a person says where the remedy asks for a SESSION, by the session that the finding is about."""


@pytest.fixture
def imported(run: Run, home: Path, hermes_home: Path) -> Path:
    assert run("import", "hermes", hermes_home).exit_code == 0
    return home


def found(run: Run) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = run("audit", "--json").json["findings"]
    return findings


def of_kind(run: Run, kind: str) -> list[dict[str, Any]]:
    return [each for each in found(run) if each["kind"] == kind]


def cure(run: Run, finding: dict[str, Any]) -> None:
    """Run the remedy as it is printed; where it leaves a session to be named, name it."""
    program, *argv = shlex.split(finding["remedy"])
    chosen = CHOICES.get(finding["session_id"], "")
    argv = [chosen if each == "SESSION" else each for each in argv]
    asks = ["--yes"] if "--apply" in argv else []
    done = run(*argv, *asks)

    assert program == "retold"
    assert done.exit_code == 0, (finding, done)


def until_empty(run: Run, most: int = 20) -> list[str]:
    """Cure the first finding again and again; the kinds in the order of their cure."""
    kinds: list[str] = []
    while (findings := found(run)) and len(kinds) < most:
        cure(run, findings[0])
        kinds.append(findings[0]["kind"])
    return kinds


def test_a_home_of_all_incidents_is_cured_finding_by_finding(run: Run, imported: Path) -> None:
    kinds = until_empty(run)

    assert found(run) == []
    assert set(kinds) == {
        "jumped_back",
        "reset_undone",
        "routed_to_ended",
        "dangling_route",
        "two_continuations",
        "stranded",
    }
    assert run("verify").exit_code == 0


def test_apply_without_a_person_leaves_what_needs_one_and_ends_as_the_truth_says(
    run: Run, imported: Path
) -> None:
    done = run("sessions", "repair-routing", "--apply", "--yes")

    assert done.exit_code == 0
    assert "\nRepaired 2 of 2 session(s).\n" in done.stdout
    for name in ("lineage", "contiguity"):
        told = run("why", TRUTH[name]["adopts_key"], "--json").json
        assert told["session_id"] == TRUTH[name]["orphan"]
        assert told["decision"]["cause"] == "repair"
        assert told["findings"] == []
    for name in ("resumed_on_purpose", "resumed_and_silent", "thread", "slept"):
        assert run("why", TRUTH[name]["key"], "--json").json["session_id"] == TRUTH[name]["routed_to_now"]
    for finding in found(run):
        if finding["kind"] not in ("stranded", "jumped_back"):
            cure(run, finding)
    left = found(run)
    assert {each["session_id"] for each in left} == {
        TRUTH["second_history"]["orphan"],
        TRUTH["two_predecessors"]["orphan"],
        *TRUTH["two_claimants"]["orphans"],
        TRUTH["out_of_window"]["orphan"],
    }
    assert all("SESSION" in each["remedy"] or "--max-gap-seconds" in each["remedy"] for each in left)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("jumped_back", TRUTH["lineage"]["adopts_key"]),
        ("jumped_back", TRUTH["second_history"]["adopts_key"]),
        ("reset_undone", TRUTH["reset_undone"]["key"]),
        ("routed_to_ended", TRUTH["routed_to_ended"]["key"]),
        ("dangling_route", TRUTH["dangling_route"]["key"]),
        ("two_continuations", TRUTH["two_continuations"]["key"]),
    ],
)
def test_why_names_the_cure_and_then_tells_of_it(run: Run, imported: Path, kind: str, key: str) -> None:
    before = run("why", key)
    (finding,) = (each for each in run("why", key, "--json").json["findings"] if each["kind"] == kind)

    assert before.exit_code == 1
    assert f"  remedy       {finding['remedy']}\n" in before.stdout
    cure(run, finding)
    after = run("why", key)
    told = run("why", key, "--json").json
    assert (after.exit_code, told["findings"]) == (0, [])
    if told["decision"] is None:
        assert "leads nowhere" in after.stdout
    else:
        assert told["decision"]["cause"] == "repair"
        assert "a repair" in after.stdout


# --- kinds that show between two imports -------------------------------------------------------------


def again(run: Run, hermes_home: Path) -> None:
    assert run("import", "hermes", hermes_home).exit_code == 0


def test_an_identity_that_was_lost_is_given_back(run: Run, imported: Path, hermes_home: Path) -> None:
    session = TRUTH["thread"]["routed_to_now"]
    edit(hermes_home, "UPDATE sessions SET session_key = NULL, chat_id = NULL WHERE id = ?", session)
    again(run, hermes_home)
    (finding,) = of_kind(run, "identity_lost")

    assert finding["remedy"] == f"retold sessions restore-identity {session}"
    cure(run, finding)
    assert of_kind(run, "identity_lost") == []
    assert session not in {each["session_id"] for each in found(run)}
    told = run("why", TRUTH["thread"]["key"], "--json").json
    assert (told["session_id"], told["findings"]) == (session, [])


def test_a_continuation_under_anothers_key_is_given_its_own(
    run: Run, imported: Path, hermes_home: Path
) -> None:
    run("sessions", "repair-routing", "--apply", "--yes", TRUTH["lineage"]["orphan"])
    child = TRUTH["two_continuations"]["continuations"][0]
    edit(hermes_home, "UPDATE sessions SET session_key = ?, user_id = '1' WHERE id = ?", KEY, child)
    again(run, hermes_home)
    (finding,) = of_kind(run, "crossed_key")

    assert finding["remedy"] == f"retold sessions restore-identity {child}"
    cure(run, finding)
    assert of_kind(run, "crossed_key") == []


@pytest.fixture
def conflicting(run: Run, imported: Path, hermes_home: Path) -> dict[str, Any]:
    """A title that was changed here and in the source."""
    session = TRUTH["thread"]["routed_to_now"]
    from retold.infrastructure.engine import open_home

    with open_home(imported) as engine:
        engine.title_session(session, "ours")
        engine.archive_session(session)
    edit(hermes_home, "UPDATE sessions SET title = 'theirs' WHERE id = ?", session)
    again(run, hermes_home)
    (finding,) = of_kind(run, "source_conflict")
    return finding


def title(run: Run, session: str) -> Any:
    return run("sessions", "show", session, "--json").json["title"]


def test_a_conflict_with_a_source_is_settled_for_ours_as_printed(
    run: Run, conflicting: dict[str, Any]
) -> None:
    assert conflicting["remedy"].endswith(" --keep ours")
    cure(run, conflicting)

    assert of_kind(run, "source_conflict") == []
    assert title(run, conflicting["session_id"]) == "ours"
    assert run("projections", "rebuild").exit_code == 0
    assert of_kind(run, "source_conflict") == []


def test_a_conflict_with_a_source_is_settled_for_theirs(
    run: Run, conflicting: dict[str, Any], hermes_home: Path
) -> None:
    cure(run, conflicting | {"remedy": conflicting["remedy"].replace("ours", "theirs")})

    assert of_kind(run, "source_conflict") == []
    assert title(run, conflicting["session_id"]) == "theirs"
    again(run, hermes_home)
    assert of_kind(run, "source_conflict") == []
    position = conflicting["evidence"][0]
    done = run("sessions", "resolve-conflict", str(position), "--keep", "ours", "--json")
    assert (done.exit_code, done.json["error"]["kind"]) == (2, "not_found")


def test_a_route_that_both_moved_is_settled_for_theirs(run: Run, imported: Path, hermes_home: Path) -> None:
    run("sessions", "repair-routing", "--apply", "--yes", TRUTH["lineage"]["orphan"])
    entry = json.dumps({"session_key": KEY, "session_id": TRUTH["lineage"]["predecessor"]})
    edit(hermes_home, "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?", entry, KEY)
    again(run, hermes_home)
    (finding,) = of_kind(run, "source_conflict")
    ours = run("why", KEY, "--json").json["session_id"]
    done = run("sessions", "resolve-conflict", str(finding["evidence"][0]), "--keep", "theirs")

    assert of_kind(run, "source_conflict") == []
    assert run("why", KEY, "--json").json["session_id"] == TRUTH["lineage"]["predecessor"]
    undo = shlex.split(re.findall(r"retold (undo \d+.*)", done.stderr)[0])
    assert run(*undo).exit_code == 0
    assert run("why", KEY, "--json").json["session_id"] == ours
    assert len(of_kind(run, "source_conflict")) == 1


# --- a key that a keyed session has lost -------------------------------------------------------------


def test_a_jump_back_among_sessions_with_keys_is_mended_by_leading_the_key(run: Run, home: Path) -> None:
    from retold.infrastructure.engine import open_home

    key, first_us, day_us = "agent:main:telegram:dm:77", 1_777_593_600_000_000, 86_400_000_000
    with open_home(home) as engine:
        for day, name in enumerate(("old", "new")):
            engine.create_session("telegram", session_id=name, key=key, at_us=first_us + day * day_us)
            engine.append_message(name, "user", "hi", at_us=first_us + day * day_us + 1)
        engine.reroute(key, "old", "recovery", at_us=first_us + 2 * day_us)
    (finding,) = found(run)

    assert (finding["kind"], finding["remedy"]) == ("jumped_back", f"retold sessions route {key} new")
    cure(run, finding)
    assert found(run) == []
    assert run("undo", str(run("why", key, "--json").json["decision"]["position"])).exit_code == 0
    (again_found,) = found(run)
    assert again_found["kind"] == "jumped_back"


def test_what_waits_in_a_chat_that_is_unrouted_is_named(run: Run, home: Path) -> None:
    from retold.infrastructure.engine import open_home

    key = "agent:main:telegram:dm:77"
    with open_home(home) as engine:
        engine.create_session("telegram", session_id="chat", key=key)
        for turn in ("t1", "t2"):
            engine.enqueue("chat", "later", turn=turn, lane="overflow")

    said = run("sessions", "unroute", key)

    assert "What waited in chat will not run: t1, t2." in said.stdout
    assert run("sessions", "unroute", key, "--json").json["cleared"] == []


def test_every_kind_is_cured_here() -> None:
    text = Path(__file__).read_text("utf-8")

    assert [kind for kind in get_args(Kind) if f'"{kind}"' not in text] == []


# --- references to nothing ---------------------------------------------------------------------------


def test_f11_a_parent_that_is_not_here_is_taken_out_and_stays_on_record(
    run: Run, imported: Path, hermes_home: Path
) -> None:
    child = TRUTH["shapes"]["base"]
    edit(hermes_home, "PRAGMA foreign_keys = OFF")
    edit(hermes_home, "UPDATE sessions SET parent_session_id = 'nowhere' WHERE id = ?", child)
    again(run, hermes_home)
    only_looked = run("verify", "--json")
    done = run("verify", "--fix", "--json")

    assert "detached" not in only_looked.json
    assert (done.exit_code, done.json["detached"]) == (0, {child: "nowhere"})
    assert run("sessions", "show", child, "--json").json["parent_id"] is None
    assert '"was":{"parent_session_id":"nowhere"' in run("log", "--json").stdout
    assert run("verify", "--fix", "--json").json["detached"] == {}
    assert "every parent that is named is here" in run("verify", "--fix").stdout
    again(run, hermes_home)
    assert run("verify", "--fix", "--json").json["detached"] == {}


def test_f11_a_child_whose_parent_is_gone_hinders_no_deletion(run: Run, imported: Path) -> None:
    parent = TRUTH["shapes"]["base"]

    assert run("sessions", "delete", parent, "--yes", "--now").exit_code == 0
    assert run("sessions", "show", TRUTH["shapes"]["branch"]).exit_code == 0
    assert run("verify", "--fix", "--json").json["detached"] == {}
    assert run("verify").exit_code == 0
