"""The picker: what is listed, what is typed, and how it is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from retold.cli.browse import app as program
from retold.cli.browse.app import Browser
from retold.cli.browse.matching import Scope, entries, known, next_scope
from retold.infrastructure.engine import open_home
from retold.infrastructure.standing import StandingHome
from retold.projections.browsing import picks
from retold.tests.conftest import Run
from retold.tests.histories import history
from retold.tests.picker import at_once, drive, five_talks, said, screen, shown, until


@pytest.fixture
def talks(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    at_once(monkeypatch)
    return five_talks(home)


# --- the list ---------------------------------------------------------------------------------------


def test_what_is_pinned_comes_first_and_the_latest_after_it(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        assert shown(app) == ["PINNED", "plan", "LATEST", "last", "api", "old", "boat"]
        assert app.sessions.pick is not None
        assert app.sessions.pick.line.id == "plan"

    drive(talks, steps)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("KITCHEN", ["PINNED", "plan"]),
        ("hull", ["boat"]),
        ("repair boat", ["boat"]),
        ("discord", ["PINNED", "plan"]),
        ("las", ["last"]),
        ("nothing of it", []),
    ],
)
def test_typing_filters_by_title_preview_id_and_source(talks: Path, typed: str, found: list[str]) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press(*["space" if char == " " else char for char in typed])
        await pilot.pause()

        assert [each for each in shown(app) if each != "LATEST"] == found
        if not found:
            assert any("Nothing matches." in line for line in screen(app))

    drive(talks, steps)


def test_what_was_said_is_found_while_it_is_typed_and_shown_where_it_stands(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press(*"zebr")
        await until(lambda: shown(app) == ["SAID IN", "api"])
        await until(lambda: "zebras" in said(app, "#transcript"))

        assert said(app, "#transcript").startswith("… 1 earlier message")
        assert any("Done, with zebras" in line for line in screen(app))

    drive(talks, steps)


def test_what_an_older_segment_said_leads_to_the_conversation(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press(*"giraffe")
        await until(lambda: shown(app) == ["SAID IN", "last"])
        await until(lambda: "giraffe" in said(app, "#transcript"))
        await pilot.press("enter")

    assert drive(talks, steps).return_value == "last"


def test_a_later_key_drops_what_was_searched_for_before(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press(*"zebr")
        await until(lambda: shown(app) == ["SAID IN", "api"])
        await pilot.press("x")
        await until(lambda: shown(app) == [])
        await pilot.press("escape")

        assert shown(app)[0] == "PINNED"
        assert app.return_value is None

    drive(talks, steps)


def test_the_scope_goes_through_chat_workspace_and_platform_to_all(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press(*["down"] * 3)  # old, of a chat without a workspace
        seen = []
        for _ in range(3):
            await pilot.press("ctrl+s")
            await pilot.pause()
            seen.append((shown(app), said(app, "#count")))

        assert seen == [
            (["old", "boat"], "2 of 5 · chat Ada"),
            (["old", "boat"], "2 of 5 · platform telegram"),
            (["PINNED", "plan", "LATEST", "last", "api", "old", "boat"], "5 sessions"),
        ]
        assert app.sessions.pick is not None
        assert app.sessions.pick.line.id == "old"

    drive(talks, steps)


def test_a_workspace_is_a_scope_of_its_own(talks: Path) -> None:
    with StandingHome(talks) as standing:
        found = standing.ask(picks)
    by_id = {each.line.id: each for each in found}
    scope = next_scope(Scope(), by_id["api"])

    assert (scope.kind, scope.name) == ("workspace", "api")
    assert [e.pick.line.id for e in entries(known(found), "", scope) if e.pick] == ["last", "api"]
    assert next_scope(scope, by_id["api"]).kind == "platform"
    assert next_scope(Scope(), None) == Scope()


def test_letters_match_in_either_case_and_composed_or_not(home: Path) -> None:
    with history(home) as h:
        h.session("s1", title="ÉTÉ à la STRASSE")
    with StandingHome(home) as standing:
        rows = known(standing.ask(picks))

    for typed in ("été", "e\u0301te\u0301", "straße", "LA été", '"été"'):
        assert len(entries(rows, typed, Scope())) == 1, typed
    assert entries(rows, "ete", Scope()) == []


def test_what_others_write_shows_up_by_itself(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press(*["down"] * 4)
        await until(lambda: "hull" in said(app, "#transcript"))
        with open_home(talks) as engine:
            engine.append_message("boat", "user", "now it floats")
            engine.append_message(engine.create_session("slack").session_id, "user", "brand new")
        await until(lambda: len(shown(app)) == 8)
        await until(lambda: "now it floats" in said(app, "#transcript"))

        assert app.sessions.pick is not None
        assert app.sessions.pick.line.id == "boat"

    drive(talks, steps)


def test_a_home_that_is_restored_meanwhile_is_shown_as_it_is_then(
    talks: Path, run: Run, tmp_path: Path
) -> None:
    assert run("backup", tmp_path / "copy").exit_code == 0
    with open_home(talks) as engine:
        engine.title_session("old", "Anchor")

    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        assert run("restore", tmp_path / "copy", "--replace").exit_code == 0
        await until(
            lambda: all(each.pick.line.title != "Anchor" for each in app.sessions.entries if each.pick)
        )

        assert len(shown(app)) == 7

    drive(talks, steps)


# --- leaving ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (["enter"], "plan"),
        (["down", "down", "enter"], "api"),
        (["tab", "end", "enter"], "boat"),
        (["tab", "j", "k", "enter"], "plan"),
        (["tab", "down", "down", "up", "enter"], "last"),
        (["tab", "pagedown", "enter"], "boat"),
        (["pagedown", "pageup", "up", "enter"], "plan"),
        (["z", "z", "enter", "escape", "escape"], ""),
        (["escape"], ""),
        (["q"], ""),
        (["tab", "q"], ""),
        (["ctrl+c"], ""),
        (["b", "o", "escape", "escape"], ""),
    ],
)
def test_enter_takes_what_is_under_the_cursor_and_escape_nothing(
    talks: Path, keys: list[str], chosen: str
) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press(*keys)
        await pilot.pause()

    assert drive(talks, steps).return_value == chosen


def test_a_word_may_begin_with_q_after_a_slash(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.press("slash", "q", "u")
        await pilot.pause()

        assert app.typing.value == "qu"

    assert drive(talks, steps).return_value is None


def test_a_click_moves_the_cursor_and_a_double_click_takes_it(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.click("#list", offset=(5, 4))
        await pilot.pause()
        assert app.sessions.pick is not None
        assert app.sessions.pick.line.id == "api"
        await pilot.click("#list", offset=(5, 0))  # a heading is no conversation
        await pilot.pause()
        assert app.sessions.pick.line.id == "api"
        await pilot.click("#list", offset=(5, 6), times=2)
        await pilot.pause()

    assert drive(talks, steps).return_value == "boat"


def test_what_was_not_foreseen_ends_it_and_is_told_in_a_sentence(
    talks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by a test")

    monkeypatch.setattr(program, "glimpse", broken)

    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await until(lambda: app.failure is not None)

    app = drive(talks, steps)

    assert isinstance(app.failure, ZeroDivisionError)
    assert app.return_value == ""
