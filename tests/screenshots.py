"""Draws the pictures of docs/browse.md: the picker on the home of `retold demo --week`.

`python -m retold.tests.screenshots` writes them; nobody's text is in them.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path

from retold.cli.browse.app import Browser
from retold.cli.main import main
from retold.infrastructure.engine import open_home
from retold.infrastructure.standing import StandingHome
from retold.projections.browsing import picks

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZE = (112, 24)
PICTURES = {
    "browse.svg": ["tab", "down", "down", "down"],
    "browse-search.svg": [*"in", "space", *"reserv"],
}
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


async def picture(home: Path, keys: list[str]) -> str:
    """What the picker shows after these keys, as SVG without anything from elsewhere."""
    app = Browser(home)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(2)
        await pilot.press(*keys)
        await pilot.pause(3)
        return _FONT_FACE.sub("", app.export_screenshot(title="retold sessions browse"))


def draw() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "week"
        main(["demo", "--week", "--keep", str(home)])
        with StandingHome(home) as standing:
            named = {each.line.title: each.line.id for each in standing.ask(picks)}
        with open_home(home) as engine:
            for title in ("school trip", "chess openings #2"):
                engine.pin_session(named[title])
        IMAGES.mkdir(exist_ok=True)
        for name, keys in PICTURES.items():
            (IMAGES / name).write_text(asyncio.run(picture(home, keys)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw()
