"""Drives the picker of `sessions browse` key by key, in this process and without a terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from retold.cli.browse import app as program
from retold.cli.browse.app import Browser
from retold.infrastructure.engine import open_home
from retold.tests.histories import MINUTE_US, T0_US, history

KEY = "agent:main:telegram:dm:1001"
Steps = Callable[[Browser, "Pilot[str]"], Awaitable[None]]


def five_talks(home: Path) -> Path:
    """Five conversations: two of one chat, two of one workspace, one that was compressed, one pinned."""
    with history(home) as h:
        h.session("boat", source="telegram", session_key=KEY, display_name="Ada", at_us=T0_US)
        h.say("boat", "the hull leaks", at_us=T0_US + 1)
        h.session("old", source="telegram", session_key=KEY, display_name="Ada", at_us=T0_US + MINUTE_US)
        h.say("old", "where is the anchor?", at_us=T0_US + MINUTE_US)
        h.session("api", source="cli", cwd="/home/u/code/api", at_us=T0_US + 2 * MINUTE_US)
        h.say("api", "please refactor the auth module", at_us=T0_US + 2 * MINUTE_US)
        h.say("api", "Done, with zebras", "assistant", at_us=T0_US + 2 * MINUTE_US + 1)
        h.session("first", source="cli", cwd="/home/u/code/api", title="Tax", at_us=T0_US + 3 * MINUTE_US)
        h.say("first", "all about my income", at_us=T0_US + 3 * MINUTE_US)
        h.say("first", "and a giraffe", at_us=T0_US + 3 * MINUTE_US + 1)
        h.compress("first", "last", source="cli", cwd="/home/u/code/api", title="Tax #2")
        h.session("plan", source="discord", at_us=T0_US - MINUTE_US)
        h.say("plan", "which tiles?", at_us=T0_US - MINUTE_US)
    with open_home(home) as engine:
        engine.title_session("boat", "Boat repair")
        engine.title_session("plan", "Kitchen plan")
        engine.pin_session("plan")
    return home


def at_once(patch: pytest.MonkeyPatch) -> None:
    """What waits for a person to stop typing does not wait."""
    patch.setattr(program, "POLL_S", 0.05)
    patch.setattr(program, "SEARCH_AFTER_S", 0.0)
    patch.setattr(program, "PREVIEW_AFTER_S", 0.0)


def drive(home: Path, steps: Steps, *, size: tuple[int, int] = (110, 30)) -> Browser:
    """Open the picker, wait for its list, and do the steps."""

    async def go() -> Browser:
        app = Browser(home, ("--home", str(home)))
        async with app.run_test(size=size) as pilot:
            try:
                await until(lambda: app.sessions.pick is not None)
                await steps(app, pilot)
            except Exception as error:
                raise app.failure or error from error
        return app

    return asyncio.run(go())


async def until(true: Callable[[], object], within_s: float = 30) -> None:
    """Wait for what another thread brings about."""
    ends = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < ends, "it never came"
        await asyncio.sleep(0.01)


def shown(app: Browser) -> list[str]:
    """The list: headings in capitals, conversations by id."""
    return [each.pick.line.id if each.pick else each.heading.upper() for each in app.sessions.entries]


def said(app: Browser, where: str) -> str:
    """What a line or a pane says."""
    return str(app.query_one(where, Static).render())


def screen(app: Browser) -> list[str]:
    """What stands on the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip) for strip in strips]
