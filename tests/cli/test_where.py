"""`retold where`: which lists hide a session, and why; and that the lists say the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold.infrastructure.engine import open_home
from retold.tests.cli.test_json_contract import promised

if TYPE_CHECKING:
    from retold.tests.conftest import Run

KEY = "agent:main:telegram:dm:1001"


@pytest.fixture
def tip(home: Path) -> str:
    """One session of each kind; the id of what `old` goes on as."""
    with open_home(home) as engine:
        for number in range(21):
            engine.create_session("slack", session_id=f"many{number:02d}", at_us=10**15 + number)
        engine.create_session("telegram", session_id="old", key=KEY, title="plan", chat_id="1001")
        engine.append_message("old", "user", "hello")
        made = engine.compress_session("old", "so far").session_id
        engine.create_session("cli", session_id="delegate", parent="old", parent_kind="delegate")
        engine.append_message("delegate", "user", "hello to the delegate")
        engine.create_session("tool", session_id="tool")
        engine.create_session("cli", session_id="away")
        engine.archive_session("away")
        engine.create_session("cli", session_id="before")
        engine.create_session("cli", session_id="last")
        engine.append_message("last", "user", "hello again")
        engine.create_session("telegram", session_id="gone")
        engine.delete_session("gone")
    return made


def standing(run: Run, session: str) -> dict[str, dict[str, Any]]:
    return {each["place"]: each for each in run("where", session, "--json").json["places"]}


def test_each_reason_is_named(run: Run, tip: str) -> None:
    why = {
        each: standing(run, each)["list"]["why"]
        for each in ("old", tip, "delegate", "tool", "away", "before", "last")
    }

    assert why == {
        "old": "older_segments",
        tip: None,
        "delegate": "delegates",
        "tool": "tool",
        "away": "archived",
        "before": None,
        "last": None,
    }
    assert standing(run, "old")["list"]["session_id"] == tip
    assert standing(run, "delegate")["search"]["shown"] is False
    assert [standing(run, each)["search"]["why"] for each in ("delegate", "tool", "away")] == [
        "delegates", "tool", None,
    ]  # fmt: skip
    assert [standing(run, each)["latest"]["why"] for each in ("last", "before", tip)] == [
        None, "unused", "source",
    ]  # fmt: skip
    assert [standing(run, each)["chat"]["why"] for each in (tip, "old", "last")] == [
        None, "leads_elsewhere", "no_key",
    ]  # fmt: skip


@pytest.mark.usefixtures("tip")
def test_what_it_says_is_what_the_lists_show(run: Run) -> None:
    listed = [each["id"] for each in run("sessions", "list", "--limit", "100", "--json").json["sessions"]]
    every = [each["id"] for each in run("sessions", "list", "--all", "--json").json["sessions"]]
    hits = {each["session_id"] for each in run("search", "hello", "--json").json["hits"]}

    for each in every:
        found = standing(run, each)
        assert found["list"]["shown"] == (each in listed)
        assert found["list"]["rank"] == (listed.index(each) + 1 if each in listed else found["list"]["rank"])
        assert found["list_all"]["shown"]
        if each in ("old", "delegate", "last"):
            assert found["search"]["shown"] == (each in hits)


def test_words_name_the_way_back(run: Run, tip: str) -> None:
    away, many, old, gone = (run("where", each) for each in ("away", "many00", "old", "gone"))

    assert "hidden: it is archived; retold sessions unarchive away shows it again" in away.stdout
    assert "past the 20 that are shown: --limit" in many.stdout
    assert f"it is an older segment of a conversation, which is shown as {tip} (row " in old.stdout
    assert (gone.exit_code, gone.stdout) == (2, "")
    assert "was deleted" in gone.stderr
    assert "retold sessions undelete gone" in gone.stderr


@pytest.mark.usefixtures("tip")
def test_where_answers_with_what_is_promised(run: Run) -> None:
    answer = run("where", "plan", "--json").json

    assert set(answer) | set(answer["places"][0]) == promised("where")
