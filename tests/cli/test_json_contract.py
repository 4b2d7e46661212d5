"""docs/json.md is a contract: what it names is what the commands answer with, field by field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold.tests.conftest import ROOT
from retold.tests.histories import T0_US, history

if TYPE_CHECKING:
    from retold.tests.conftest import Run

SECTIONS = {
    title: text
    for title, _, text in (
        part.partition("\n") for part in (ROOT / "docs" / "json.md").read_text("utf-8").split("\n## ")[1:]
    )
}
KEY = "agent:main:telegram:dm:1001"


def promised(command: str) -> set[str]:
    """The fields that the section's tables name in their first column."""
    rows = re.findall(r"^\| (`[^|]*) \|", SECTIONS[f"retold {command}"], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}


@pytest.fixture(autouse=True)
def _told(home: Path) -> None:
    with history(home) as h:
        h.session("s1", source="telegram", session_key=KEY, title="boat", at_us=T0_US)
        h.say("s1", "hello boat", at_us=T0_US + 500_000)
        h.say("s1", None, "assistant", tool_calls="[1]", at_us=T0_US + 2_000_000)
        h.compress("s1", "s2", session_key=KEY, source="telegram")
        h.route(KEY, "s2", previous="s1", cause="compression")


def test_a_list_answers_with_what_is_promised(run: Run) -> None:
    answer = run("sessions", "list", "--all", "--json").json
    found = {each["id"]: each for each in answer["sessions"]}

    assert set(answer) == {"sessions", "not_shown"}
    assert set(answer["not_shown"]) == {
        "over_limit", "archived", "older_segments", "delegates", "children", "tool",
    }  # fmt: skip
    assert set(found["s1"]) == promised("sessions list")
    assert found["s1"] == {
        "id": "s1",
        "title": "boat",
        "source": "telegram",
        "started_at": "2026-05-05T16:53:20Z",
        "last_active_at": "2026-05-05T16:53:22Z",
        "message_count": 2,
        "preview": "hello boat",
        "archived": False,
        "parent_id": None,
        "end_reason": "compression",
        "pinned": False,
        "workspace": None,
        "stale": False,
    }
    assert (found["s2"]["parent_id"], found["s2"]["end_reason"]) == ("s1", None)
    assert (found["s2"]["preview"], found["s2"]["last_active_at"]) == ("hello boat", None)


def test_a_session_answers_with_what_is_promised(run: Run) -> None:
    listed = run("sessions", "list", "--all", "--json").json["sessions"]
    answer = run("sessions", "show", "s1", "--json").json
    names = ("messages", "lineage", "route", "turn", "queued", "resume", "suspended", "handoff")
    more = {name: answer.pop(name) for name in names}

    assert answer in listed
    assert set(more) == promised("sessions show")
    assert more == {
        "messages": [
            {
                "id": 3,
                "role": "user",
                "content": "hello boat",
                "at": "2026-05-05T16:53:20.500000Z",
                "tool_calls": None,
                "tool_name": None,
                "visibility": "live",
                "copy_of": None,
                "summary": False,
                "attachments": [],
            },
            {
                "id": 4,
                "role": "assistant",
                "content": None,
                "at": "2026-05-05T16:53:22Z",
                "tool_calls": [1],
                "tool_name": None,
                "visibility": "live",
                "copy_of": None,
                "summary": False,
                "attachments": [],
            },
        ],
        "lineage": [
            {"session_id": "s1", "kind": "root"},
            {"session_id": "s2", "kind": "continuation"},
        ],
        "route": None,
        "turn": None,
        "queued": 0,
        "resume": None,
        "suspended": None,
        "handoff": None,
    }
    assert run("sessions", "show", "s2", "--json").json["route"] == KEY


def test_a_deletion_and_taking_it_back_answer_with_what_is_promised(run: Run) -> None:
    gone = run("sessions", "delete", "s1", "--yes", "--json").json
    assert set(gone) == promised("sessions delete")
    assert (gone["sessions"], gone["messages"], gone["keys"], gone["erased"]) == (["s1"], 2, [], False)
    assert gone["erase_after_at"].endswith("Z")
    error = run("sessions", "show", "s1", "--json").json["error"]
    assert error["kind"] == "deleted_session"

    back = run("sessions", "undelete", "s1", "--json").json
    assert set(back) == promised("sessions undelete")
    assert (back["sessions"], back["moved_on"], back["unclaimed"]) == (["s1"], [], [])


def test_bulk_verbs_answer_with_what_is_promised(run: Run) -> None:
    shown = run("sessions", "prune", "--source", "telegram", "--dry-run", "--json").json
    done = run("sessions", "archive", "s1", "--json").json
    line = "A session is `{"

    assert set(shown) == set(done) == promised("sessions prune")
    assert (shown["dry_run"], shown["sessions"], shown["oldest_at"], shown["undo"]) == (True, [], None, None)
    assert shown["skipped"] == {"s1": "one conversation with s2, which is open"}
    assert (
        f"{line}{json.dumps(list(done['sessions'][0])).strip('[]').replace(', ', ',')}"
        in SECTIONS["retold sessions prune"]
    )
    assert [each["id"] for each in done["sessions"]] == ["s1", "s2"]
    assert done["undo"] == "retold sessions unarchive s2"


def test_renaming_and_optimizing_answer_with_what_is_promised(run: Run) -> None:
    named = run("sessions", "rename", "s1", "new", "boat", "--json").json
    tidied = run("sessions", "optimize", "--json").json

    assert (set(named), set(tidied)) == (promised("sessions rename"), promised("sessions optimize"))
    assert (named["title"], named["previous"]) == ("new boat", "boat")
    assert tidied["optimised"]


def test_forgetting_answers_with_what_is_promised(run: Run) -> None:
    answer = run("forget", "--text", "hello boat", "--yes", "--json").json

    assert set(answer) == promised("forget")
    assert (answer["events"], answer["sessions"], answer["pending"]) == (1, ["s1"], [])


def test_a_backup_and_its_restoration_answer_with_what_is_promised(run: Run, tmp_path: Path) -> None:
    taken = run("backup", tmp_path / "b", "--json").json
    back = run("restore", tmp_path / "b", "--home", tmp_path / "there", "--json").json

    assert (set(taken), set(back)) == (promised("backup"), promised("restore"))
    assert (taken["events"], taken["files"], back["kept"]) == (7, [], None)
    assert back["head"] == taken["head"] == run("verify", "--json").json["log"]["head"]


def test_maintenance_answers_with_what_is_promised(run: Run) -> None:
    answer = run("maintain", "--json").json

    assert set(answer) == promised("maintain")
    assert (answer["skipped"], answer["pruned"], answer["left"]) == (False, [], {})
    assert answer["position"] == run("verify", "--json").json["log"]["events"]


def test_repairs_and_remedies_answer_with_what_is_promised(run: Run, home: Path) -> None:
    report = run("sessions", "repair-routing", "--json").json
    applied = run("sessions", "repair-routing", "--apply", "--yes", "s1", "--json").json
    led = run("sessions", "route", KEY, "s2", "--json").json
    closed = run("sessions", "unroute", KEY, "--json").json
    chosen = run("sessions", "continuation", "s2", "--json").json
    undone = run("undo", str(closed["positions"][0]), "--json").json
    planned = run("sessions", "repair-routing", "--plan", home.with_name("plan.yaml"), "--json").json

    assert set(report) | set(applied) == promised("sessions repair-routing")
    assert set(led) == set(closed) == promised("sessions route") - {"columns", "keep"}
    assert set(chosen) == {"session_id", "positions"}
    assert (set(undone), undone["keys"]) == (promised("undo"), [KEY])
    assert set(planned) == {"path", "adopt", "undecided"}


def test_a_tree_answers_with_what_is_promised(run: Run) -> None:
    answer = run("sessions", "tree", "s2", "--json").json

    assert (set(answer), answer["session_id"]) == ({"session_id", "sessions"}, "s2")
    assert [set(each) for each in answer["sessions"]] == [promised("sessions tree")] * 2
    assert [(each["id"], each["kind"], each["depth"]) for each in answer["sessions"]] == [
        ("s1", "root", 0),
        ("s2", "continuation", 1),
    ]


def test_stats_answer_with_what_is_promised(run: Run) -> None:
    answer = run("sessions", "stats", "--json").json

    assert set(answer) == promised("sessions stats")
    assert answer["sources"] == [{"source": "telegram", "sessions": 2, "messages": 2}]
    assert (answer["sessions"], answer["messages"], answer["log"]["events"]) == (2, 2, 7)
    assert set(answer["log"]) == {"events", "size_bytes", "size"}
    assert set(answer["projections"]) == {"size_bytes", "size"}


def test_a_search_answers_with_what_is_promised(run: Run) -> None:
    answer = run("search", "boat", "--json").json

    assert set(answer["hits"][0]) == promised("search")
    assert answer == {
        "hits": [
            {
                "session_id": "s1",
                "message_id": 3,
                "role": "user",
                "snippet": "hello >>>boat<<<",
                "title": "boat",
                "source": "telegram",
                "at": "2026-05-05T16:53:20.500000Z",
                "visibility": "live",
                "more": 0,
            }
        ],
        "ranked_over": 1,
    }


def test_the_log_answers_with_what_is_promised(run: Run) -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in run("log", "--json").stdout.splitlines()]

    assert [each["position"] for each in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert [set(each) for each in lines] == [promised("log")] * 7
    assert lines[1] == {
        "position": 2,
        "stream": "session:s1",
        "version": 2,
        "type": "session_titled.1",
        "at": "2026-05-05T16:53:20Z",
        "at_kind": "exact",
        "recorded_at": lines[1]["recorded_at"],
        "actor": lines[1]["actor"],
        "caused_by": None,
        "save": 2,
        "payload": {"title": "boat", "claimed": True, "by": "person"},
        "payload_state": "here",
    }


@pytest.mark.parametrize(
    ("argv", "kind", "exit_code"),
    [
        (["sessions", "show", "nobody"], "no_such_session", 2),
        (["sessions", "show", "s"], "ambiguous", 2),
        (["sessions", "tree", "nobody"], "no_such_session", 2),
        (["sessions", "list", "--limit", "x"], "bad_usage", 2),
        (["sessions", "list", "--at", "#99"], "bad_usage", 2),
        (["search", "x", "--at", "whenever"], "bad_usage", 2),
        (["log", "--stream", "nobody"], "not_found", 2),
        (["sessions", "stats", "--home", "/nowhere/at/all"], "no_such_home", 2),
    ],
)
def test_an_error_is_an_object_too(run: Run, argv: list[str], kind: str, exit_code: int) -> None:
    done = run(*argv, "--json")
    error = done.json["error"]

    assert (done.exit_code, error["kind"]) == (exit_code, kind)
    assert {"kind", "message", "hint"} <= set(error) <= {"kind", "message", "hint", "candidates"}
    assert ("candidates" in error) == (kind == "ambiguous")


def test_every_section_is_about_a_command_that_exists() -> None:
    from retold.cli.lazy import LazyGroup
    from retold.cli.main import RETOLD

    for title in SECTIONS:
        at: Any = RETOLD
        for word in title.split()[1:]:
            assert isinstance(at, LazyGroup)
            at = at.table[word]
