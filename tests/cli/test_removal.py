"""Deleting, undeleting, forgetting, backups and maintenance at the command line."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.infrastructure.engine import open_home
from retold.tests.infrastructure.test_erasing import SECRET, traces

if TYPE_CHECKING:
    from retold.tests.conftest import Run

KEY = "agent:main:telegram:dm:1001"


@pytest.fixture(autouse=True)
def _made(home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("telegram", session_id="boat-1", key=KEY, title="boat repair")
        engine.append_message("boat-1", "user", f"the word is {SECRET}")
        engine.create_session("cli", session_id="sub-1", parent="boat-1", parent_kind="delegate")


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.parametrize(("said", "deleted"), [("y\n", True), ("YES\n", True), ("n\n", False), ("", False)])
def test_a_deletion_is_asked_for_and_no_answer_is_a_no(
    run: Run, monkeypatch: pytest.MonkeyPatch, said: str, deleted: bool
) -> None:
    answer(monkeypatch, said)
    done = run("sessions", "delete", "boat")

    assert done.exit_code == (0 if deleted else 1)
    assert "Delete session 'boat-1', its 1 delegate and all its messages? [y/N]" in done.stderr
    assert done.stdout.startswith("Deleted session 'boat-1'." if deleted else "Cancelled.")
    assert (run("sessions", "show", "boat-1").exit_code == 2) == deleted


def test_a_deleted_session_says_who_deleted_it_and_until_when_it_can_be_undone(run: Run) -> None:
    done = run("sessions", "delete", "boat repair", "--yes", "--reason", "no more of it")
    assert "  with 1 delegate: sub-1" in done.stdout
    assert f"  {KEY} leads nowhere now" in done.stdout
    assert re.search(
        r"Until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d this brings it back: retold sessions undelete boat-1",
        done.stderr,
    )

    shown = run("sessions", "show", "boat-1")

    assert shown.exit_code == 2
    assert re.search(
        r"session boat-1 was deleted \S+ [\d:]{8} by cli:\d+@\S+ \(no more of it\),"
        r" can be undeleted until \S+ [\d:]{8}\n",
        shown.stderr,
    )
    assert "no more of it" in run("log", "--type", "session_deleted").stdout
    assert run("sessions", "list", "--all").stdout == "No sessions found.\n"
    assert run("search", "word").exit_code == 0
    assert run("search", "word", "--json").json["hits"] == []

    back = run("sessions", "undelete", "boat")
    assert back.stdout.splitlines() == [
        "Session 'boat-1' is back.",
        "  with 1 delegate: sub-1",
        f"  {KEY} leads to it again",
    ]
    assert run("sessions", "show", "boat-1").exit_code == 0


def test_what_cannot_be_undeleted_says_why(run: Run) -> None:
    assert run("sessions", "undelete", "nobody").exit_code == 2
    assert run("sessions", "undelete", "boat-1").exit_code == 3
    run("sessions", "delete", "boat-1", "--yes", "--now")
    gone = run("sessions", "undelete", "boat-1")

    assert gone.exit_code == 2
    assert re.search(r"and erased \(#\d+\)", gone.stderr)


def test_now_erases_a_session_that_was_deleted_before(run: Run, home: Path) -> None:
    run("sessions", "delete", "boat-1", "--yes")
    assert run("sessions", "delete", "boat-1", "--yes").exit_code == 2
    done = run("sessions", "delete", "boat-1", "--yes", "--now", "--json").json

    assert (done["erased"], done["pending"], done["sessions"]) == (True, [], ["boat-1", "sub-1"])
    assert traces(home) == {}


def test_who_wants_json_is_asked_nothing(run: Run) -> None:
    done = run("sessions", "delete", "boat-1", "--json")

    assert (done.exit_code, done.json["error"]["kind"]) == (2, "bad_usage")
    assert run("sessions", "show", "boat-1").exit_code == 0


def test_a_message_is_forgotten_by_its_number(run: Run, home: Path) -> None:
    message = run("sessions", "show", "boat-1", "--json").json["messages"][0]["id"]
    done = run("forget", "boat", f"#{message}", "--yes")

    assert (done.exit_code, done.stdout) == (0, "Forgotten in 1 event of 1 session.\n")
    assert "Backups and exports made before are not reached." in done.stderr
    assert run("sessions", "show", "boat-1", "--json").json["messages"][0]["content"] == "[forgotten]"
    assert traces(home) == {}
    assert run("forget", "boat", "9999", "--yes").exit_code == 3


def test_a_text_is_forgotten_that_no_command_line_ever_held(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, f"{SECRET}\ny\n")
    done = run("forget", "--text", "-")
    assert done.exit_code == 0
    assert SECRET not in done.stdout + done.stderr
    assert run("sessions", "show", "boat-1", "--json").json["messages"][0]["content"] == (
        "the word is [forgotten]"
    )
    assert traces(home) == {}

    again = run("forget", "--text", SECRET, "--yes", "--json").json
    assert again == {
        "positions": [],
        "events": 0,
        "sessions": [],
        "pending": [],
        "message": None,
        "copies": [],
        "copies_unread": [],
        "removed": [],
    }


@pytest.mark.parametrize("argv", [[], ["boat"], ["boat", "1", "--text", "x"], ["--text", "x", "--yes"]])
def test_what_is_to_be_forgotten_is_said_in_one_way(run: Run, argv: list[str]) -> None:
    assert run("forget", *argv).exit_code == 2


def test_a_backup_prints_a_head_that_verify_takes(run: Run, tmp_path: Path) -> None:
    done = run("backup", tmp_path / "b")
    head = re.search(r"head  (#\d+:[0-9a-f]+)", done.stdout)
    assert head is not None
    assert done.exit_code == 0
    assert run("verify", "--expect", head[1]).exit_code == 0

    run("sessions", "delete", "boat-1", "--yes", "--now")
    assert run("restore", tmp_path / "b").exit_code == 2
    back = run("restore", tmp_path / "b", "--replace", "--json").json

    assert (back["head"], Path(back["kept"]).is_dir()) == (head[1], True)
    assert run("sessions", "show", "boat-1").exit_code == 0
    assert run("verify", "--expect", head[1]).exit_code == 0


def test_what_is_no_backup_is_called_so(run: Run, tmp_path: Path, hermes_home: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "nowhere", tmp_path / "empty", hermes_home):
        done = run("restore", folder, "--replace")

        assert done.exit_code == 2
        assert done.stderr.endswith("\n  give a folder that `retold backup` made; nothing was changed\n")


def test_maintenance_says_what_it_pruned_and_how_all_of_it_comes_back(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="old-1", at_us=1_700_000_000_000_000)
        engine.append_message("old-1", "user", "long ago", at_us=1_700_000_000_000_000)
        child = engine.compress("old-1", "so far", continuation_id="old-2", at_us=1_700_000_000_000_000)
        engine.end_session(child.session_id, "user_exit", at_us=1_700_000_000_000_000)
    done = run("maintain", "--prune").stdout

    assert done.startswith("Pruned 1 conversation, ")
    back = re.search(r"\n  pruned: old-1\nThis brings back what was pruned: retold (.*)\n", done)
    assert back is not None
    assert run(*back[1].split(), "--home", str(home)).exit_code == 0
    assert [run("sessions", "show", each).exit_code for each in ("old-1", "old-2")] == [0, 0]
    again = run("maintain", "--prune", "--json").json
    assert (again["pruned"], sorted(again["named"])) == (["old-1"], ["old-1", "old-2"])


def test_maintenance_says_what_it_did(run: Run) -> None:
    assert run("maintain").stdout.startswith("Pruned 0 conversations, ended 0 sessions left open")
    assert run("maintain", "--if-due").stdout == "Nothing to do: the last run is too recent.\n"
    assert run("maintain", "--if-due", "--json").json["skipped"] is True


@pytest.mark.parametrize(
    "argv",
    [["sessions", "delete", "x", "--yes"], ["sessions", "undelete", "x"], ["maintain"], ["backup", "x"]],
)
def test_no_home_is_made_where_there_is_none(run: Run, tmp_path: Path, argv: list[str]) -> None:
    done = run(*argv, "--home", str(tmp_path / "nowhere"), "--json")

    assert (done.exit_code, done.json["error"]["kind"]) == (2, "no_such_home")
    assert not (tmp_path / "nowhere").exists()


ERASURES = (("forget", "--text", "word", "--yes"), ("sessions", "delete", "boat-1", "--now", "--yes"))


def test_what_is_erased_names_the_backups_beside_the_home_that_hold_it_still(run: Run, home: Path) -> None:
    assert "These may hold it still" not in run("forget", "boat-1", "3", "--yes").stderr
    kept = [
        home.with_name(f"{home.name}.{name}")
        for name in ("before-repair-20260501-120000", "before-restore.1")
    ]
    for each in kept:
        each.mkdir()
        (each / "events.db").touch()
    for argv in ERASURES:
        done = run(*argv)
        assert all(str(each) in done.stderr for each in kept), done


def test_what_is_erased_names_the_backups_that_were_put_elsewhere_and_are_there_still(
    run: Run, tmp_path: Path
) -> None:
    here, gone = tmp_path / "far" / "a\nb", tmp_path / "gone"
    for each in (here, gone):
        assert run("backup", str(each)).exit_code == 0
    shutil.rmtree(gone)
    for argv in ERASURES:
        assert run(*argv, "--json").json["copies"] == [str(here)]


def test_a_restored_home_names_what_it_was_restored_from_and_what_the_one_before_it_knew(
    run: Run, home: Path, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        assert run("backup", str(tmp_path / name)).exit_code == 0
    kept = run("restore", str(tmp_path / "second"), "--replace", "--json").json["kept"]

    assert set(run("forget", "--text", "word", "--yes", "--json").json["copies"]) == {
        kept,
        str(tmp_path / "first"),
        str(tmp_path / "second"),
    }


def test_what_is_erased_names_the_hermes_home_and_the_copies_that_repairs_laid_into_it(
    run: Run, hermes_home: Path
) -> None:
    assert run("import", "hermes", str(hermes_home)).exit_code == 0
    repair = ("sessions", "repair-routing", "--apply", "--yes", "--into", str(hermes_home))
    assert run(*repair).exit_code == 0
    laid = sorted(str(each) for each in hermes_home.rglob("*.before-repair-*"))
    holding = [each for each in laid if "state.db" in each]
    done = run("forget", "--text", "word", "--yes", "--json").json

    assert (len(laid), len(holding)) == (2, 1)
    assert done["copies_unread"] == []
    assert {*holding, str(hermes_home / "state.db")} <= set(done["copies"])
