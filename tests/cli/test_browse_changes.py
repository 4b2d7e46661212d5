"""The picker: what is done to a conversation from the list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from retold.cli.browse.app import Browser
from retold.cli.browse.dialogs import AskLine, ReadText
from retold.tests.conftest import Run
from retold.tests.picker import KEY, at_once, drive, five_talks, said, screen, shown, until


@pytest.fixture
def talks(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    at_once(monkeypatch)
    return five_talks(home)


def test_archiving_asks_nothing_and_u_takes_it_back(talks: Path, run: Run) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press("tab", "down", "a")
        await until(lambda: "last" not in shown(app))
        await until(lambda: "'Tax #2' is archived; u takes it back." in said(app, "#status"))
        archived = {
            each["id"]
            for each in run("sessions", "list", "--all", "--json").json["sessions"]
            if each["archived"]
        }
        assert archived == {"first", "last"}
        assert app.sessions.pick is not None
        assert app.sessions.pick.line.id == "api"
        await pilot.press("u")
        await until(lambda: "last" in shown(app))
        await until(lambda: "Taken back: 'Tax #2' is archived." in said(app, "#status"))
        await pilot.press("u")
        await until(lambda: said(app, "#status") == "Nothing was changed here.")

    drive(talks, steps)

    assert not any(each["archived"] for each in run("sessions", "list", "--all", "--json").json["sessions"])


def test_a_pin_is_set_and_let_go_and_the_cursor_stays_on_its_conversation(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press("tab", "end", "p")
        await until(lambda: shown(app)[:4] == ["PINNED", "boat", "plan", "LATEST"])
        assert app.sessions.pick is not None
        assert app.sessions.pick.line.id == "boat"
        await pilot.press("p")
        await until(lambda: shown(app)[-1] == "boat")

    drive(talks, steps)


def test_a_title_that_is_taken_is_said_where_it_is_typed(talks: Path, run: Run) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press("tab", "end", "r")
        await until(lambda: isinstance(app.screen, AskLine))
        typed = app.screen.query_one(Input)
        assert typed.value == "Boat repair"
        typed.value = "Kitchen plan"
        await pilot.press("enter")
        await until(
            lambda: "already in use by session plan" in str(app.screen.query_one("#refusal", Static).render())
        )
        typed.value = "-- Boat, for sale"
        await pilot.press("enter")
        await until(lambda: not isinstance(app.screen, AskLine))
        await until(lambda: "-- Boat, for sale" in said(app, "#status"))
        assert app.focused is app.sessions
        await pilot.press("u")
        await until(lambda: "u takes it back" not in said(app, "#status"))
        assert said(app, "#status") == "Taken back: 'Boat repair' is renamed to -- Boat, for sale."

    drive(talks, steps)

    assert run("sessions", "show", "boat", "--json").json["title"] == "Boat repair"


def test_an_export_goes_where_it_is_told_and_a_refusal_is_said_there(
    talks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press("tab", "end", "e")
        await until(lambda: isinstance(app.screen, AskLine))
        assert app.screen.query_one(Input).value == "boat.html"
        app.screen.query_one(Input).value = "boat.jsonl"
        await pilot.press("enter")
        await until(lambda: "boat.jsonl" in said(app, "#status"))
        await until(lambda: not isinstance(app.screen, AskLine))
        await pilot.press("e")
        await until(lambda: isinstance(app.screen, AskLine))
        app.screen.query_one(Input).value = "boat.jsonl"
        await pilot.press("enter")
        await until(lambda: "boat.jsonl" in str(app.screen.query_one("#refusal", Static).render()))
        app.screen.query_one(Input).value = "pages"
        await pilot.press("enter")
        await until(lambda: not isinstance(app.screen, AskLine))

    drive(talks, steps)

    assert len([each for each in (tmp_path / "pages").iterdir() if each.suffix == ".md"]) == 1
    assert json.loads((tmp_path / "boat.jsonl").read_text("utf-8"))["id"] == "boat"


def test_why_is_read_over_the_list(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press("tab", "end", "w")
        await until(lambda: isinstance(app.screen, ReadText))
        await until(lambda: any(KEY in line for line in screen(app)))
        await pilot.press("escape")
        await until(lambda: not isinstance(app.screen, ReadText))

    assert drive(talks, steps).return_value is None
