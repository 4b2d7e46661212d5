"""The picker: how it looks in any terminal, and how fast it follows."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from retold.cli.browse.app import Browser
from retold.cli.browse.matching import Entry, Scope, entries, known
from retold.cli.browse.session_list import MARKS, row
from retold.cli.browse.steady import steady
from retold.cli.output import cell_width, visible
from retold.infrastructure.engine import open_home
from retold.infrastructure.standing import StandingHome
from retold.projections.browsing import Heard, picks
from retold.tests.histories import MINUTE_US, T0_US, history
from retold.tests.picker import at_once, drive, five_talks, said, screen, until

ODD = (
    "👩‍👩‍👧‍👦 family", "🇩🇪 flag", "❤️ x", "1️⃣ k", "👍🏽 ok", "⌚︎ watch", "한국어 세션",
    "日本語の会話", "e\u0301te\u0301",
    "שלום עולם", "\u202etxt.exe", "a\x1b[31mred\x07", "two\nlines\u2028three", "\ud800 lone", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☺️☺",
)  # fmt: skip


@pytest.fixture
def talks(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    at_once(monkeypatch)
    return five_talks(home)


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_odd_text_takes_the_cells_that_it_is_given(home: Path, text: str) -> None:
    with open_home(home) as engine:
        session = engine.create_session("cli", title="x").session_id
        engine.append_message(session, "user", text * 9)
    with StandingHome(home) as standing:
        (pick,) = standing.ask(picks)
    (entry,) = entries(known([pick]), "", Scope())

    for width in range(2, 100):
        pieces = [text for text, _ in row(entry, pick, width, T0_US)]
        assert cell_len("".join(pieces)) == cell_width("".join(pieces)) == width
        assert visible("".join(pieces)) == "".join(pieces)
    assert cell_len(steady(text)) == cell_width(steady(text))


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_what_was_found_is_seen_in_every_width(talks: Path, text: str) -> None:
    snippet = f"{text * 9}{MARKS[0]}hull{MARKS[1]}{text * 9}"
    with StandingHome(talks) as standing:
        pick = standing.ask(picks)[0]
    entry = Entry(pick=pick, heard=Heard("plan", "plan", 1, snippet))

    for width in range(2, 100):
        pieces = [text for text, _ in row(entry, pick, width, T0_US)]
        assert cell_len("".join(pieces)) == width
        assert width < 50 or "hull" in "".join(pieces)


def test_pictures_are_those_that_every_terminal_draws_alike() -> None:
    assert steady("👩‍👩‍👧‍👦 🇩🇪 ❤️ 1️⃣ 👍🏽 नमस्ते") == "👩 DE ❤ 1 👍 नमस्ते"


@pytest.mark.parametrize("size", [(40, 10), (20, 5), (10, 3), (75, 12), (76, 12), (200, 60)])
def test_any_size_of_terminal_shows_the_filter_and_the_list(talks: Path, size: tuple[int, int]) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await pilot.pause()
        lines = screen(app)
        assert len(lines) == size[1]
        assert lines[0].startswith("❯")
        assert any(line.startswith("▸") for line in lines)
        assert app.query_one("#right").display is (size[0] >= 76)
        await pilot.resize_terminal(size[0] + 40, size[1] + 5)
        await pilot.pause()
        assert any(line.startswith("▸") for line in screen(app))
        assert app.query_one("#right").display is (size[0] + 40 >= 76)

    drive(talks, steps, size=size)


def test_keys_stand_at_the_foot_for_what_has_the_focus(talks: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        assert "type to filter" in screen(app)[-1]
        await pilot.press("tab")
        await pilot.pause()
        assert "a archive   p pin   r rename   e export   w why   s scope   u undo" in screen(app)[-1]
        await pilot.press("tab")
        await pilot.pause()
        assert "scroll" in screen(app)[-1]

    drive(talks, steps)


def test_without_color_there_is_none(talks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(app: Browser, pilot: Pilot[str]) -> None:
        await until(lambda: "tiles" in said(app, "#transcript"))
        strips = app.screen._compositor.render_strips()
        background = app.screen.background_colors[1]
        filters = [each for each in app._filters if each.enabled]
        assert filters
        filtered = strips
        for each in filters:
            filtered = [strip.apply_filter(each, background) for strip in filtered]
        colors = {s.style.color for strip in filtered for s in strip if s.style and s.style.color}
        assert {each.name for each in colors} <= {"default"}

    drive(talks, steps)


# --- how fast it is ---------------------------------------------------------------------------------


@pytest.fixture
def thousands(home: Path) -> Path:
    with history(home) as h, h.together():
        for number in range(5_000):
            at_us = T0_US + number * MINUTE_US
            h.session(f"s{number:05}", source=("cli", "telegram", "slack")[number % 3], at_us=at_us)
            h.say(f"s{number:05}", f"word{number % 89} and other{number % 11} {number}", at_us=at_us)
    with StandingHome(home) as standing:
        standing.ask(lambda _: None)
    return home


def test_five_thousand_sessions_follow_every_key(thousands: Path) -> None:
    """The work for a key, measured as time of this thread, so that a busy machine is no slow picker."""
    took_ms: list[float] = []

    async def go() -> None:
        began = time.thread_time()
        app = Browser(thousands)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(lambda: len(app.sessions.entries) == 5_000)
            opened_ms = (time.thread_time() - began) * 1e3
            for char in (
                "w",
                "o",
                "r",
                "d",
                "1",
                "7",
                *["backspace"] * 6,
                *["down"] * 10,
                *["pagedown"] * 10,
            ):
                began = time.thread_time()
                await pilot.press(char)
                screen(app)
                took_ms.append((time.thread_time() - began) * 1e3)
            assert opened_ms < 800

    asyncio.run(go())
    took_ms.sort()

    assert took_ms[int(len(took_ms) * 0.95)] < 150
