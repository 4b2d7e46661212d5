"""The forms of `retold sessions list`, its order and pages; lists and counts held against Hermes'."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.cli.listed import label
from retold.cli.output import cell_width
from retold.infrastructure.engine import open_home
from retold.projections.listing import list_sessions
from retold.tests.histories import folded, history, many_sessions
from retold.tests.peer import command_of_peer
from retold.tests.terminal import on_a_terminal

if TYPE_CHECKING:
    from retold.tests.conftest import Run


def header(lines: list[str]) -> list[str]:
    return lines[0].replace("Last Active", "Last_Active").split()


def test_a_list_without_titles_begins_with_what_was_said(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="s")
        engine.append_message("s", "user", "hello")
    without = run("sessions", "list").stdout.splitlines()
    with open_home(home) as engine:
        engine.title_session("s", "plan")
    with_one = run("sessions", "list").stdout.splitlines()

    assert header(without) == ["Preview", "Last_Active", "Source", "ID"]
    assert header(with_one) == ["Title", "Preview", "Last_Active", "Source", "ID"]


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200])
def test_a_project_has_a_column_where_any_session_has_one(run: Run, home: Path, columns: int) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="s", title="plan", cwd="/home/u/my-project/src")
        engine.append_message("s", "user", "hello " * 20)
        engine.create_session("telegram", session_id="20260504_080000_b33d43d5")
    sent = on_a_terminal("sessions", "list", env={"RETOLD_HOME": str(home)}, columns=columns).splitlines()
    asked = on_a_terminal(
        "sessions", "list", "--workspace", "PROJECT", env={"RETOLD_HOME": str(home)}, columns=columns
    ).splitlines()

    assert header(run("sessions", "list").stdout.splitlines())[2] == "Workspace"
    assert ("Workspace" in header(sent)) == (columns >= 100)
    assert "Workspace" in header(asked)
    assert any(" src " in each for each in asked)
    assert max(map(cell_width, [*sent, *asked])) <= columns


def test_a_project_is_called_by_the_last_part_of_its_path() -> None:
    assert [label(each) for each in ("/a/b/", "C:\\x\\y", "/", None, "")] == ["b", "y", "/", "—", "—"]


def test_what_is_pinned_comes_first_and_pages_follow_on(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        for number in range(9):
            engine.create_session("cli", session_id=f"s{number}")
        engine.pin_session("s2")
        engine.pin_session("s4")
    pages = [
        run("sessions", "list", "--limit", "4", "--offset", str(offset), "--json").json
        for offset in (0, 4, 8)
    ]
    every = run("sessions", "list", "--all", "--offset", "1", "--json").json

    assert [each["id"] for page in pages for each in page["sessions"]] == [
        "s4", "s2", "s8", "s7", "s6", "s5", "s3", "s1", "s0",
    ]  # fmt: skip
    assert [page["not_shown"]["over_limit"] for page in pages] == [5, 5, 8]
    assert [each["id"] for each in every["sessions"]][:2] == ["s2", "s8"]
    assert "cli (pinned)" in run("sessions", "list").stdout


def test_a_folder_and_a_source_narrow_a_list_as_hermes_narrows_it(run: Run, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    for given in (("--source", "slack"), ("--source", "telegram"), ("--workspace", "myapi"), ()):
        theirs = command_of_peer(hermes_home, "sessions", "list", "--limit", "500", *given)
        ours = run("sessions", "list", "--limit", "500", *given).stdout.splitlines()
        ids = {line.split()[-1] for line in theirs[2:]}

        assert ids
        # What a branch or a reset began is another conversation, and listed here (FIELD_CASES C10, A17).
        assert ids <= {line.split()[-1] for line in ours[2:]}
        assert header(theirs)[0] == header(ours)[0]
        assert ("Workspace" in header(theirs)) == ("Workspace" in header(ours))


def test_totals_are_those_of_hermes(run: Run, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    ours = run("sessions", "stats").stdout.splitlines()
    theirs = command_of_peer(hermes_home, "sessions", "stats")
    archived = int(ours[-1].split()[1])

    assert archived == 2
    assert int(theirs[0].split()[-1]) == int(ours[0].split()[-1]) - archived
    assert theirs[1] == ours[1]
    for line in (each for each in theirs if each.startswith("  ")):
        assert any(each.startswith(line) for each in ours), line
    assert any(each.startswith("Database size: ") and each.endswith(" MB") for each in ours)


def test_a_list_of_50_000_sessions_takes_less_than_20_ms(home: Path) -> None:
    with history(home) as written:
        many_sessions(written, 50_000, 1)
    with folded(home) as opened:
        db = opened.state.reader()
        listing = list_sessions(db, limit=20)
        took_ms: list[float] = []
        for _ in range(15):
            began = time.thread_time()
            listing = list_sessions(db, limit=20)
            took_ms.append((time.thread_time() - began) * 1000)

    assert len(listing.rows) == 20
    assert listing.not_shown["over_limit"] == 49_980
    assert statistics.median(took_ms) < 20
