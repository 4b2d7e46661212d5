"""Homes and a browser, for whatever asks for no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from retold.tests.conftest import Run


@pytest.fixture
def imported(run: Run, home: Path, hermes_home: Path) -> Path:
    """A home with all of the Hermes home among the fixtures."""
    assert run("import", "hermes", hermes_home).exit_code == 0
    return home


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    from retold.tests.cli.browsed import chromium  # most tests here need none

    with chromium() as found:
        yield found


@pytest.fixture
def window(browser: Browser) -> Iterator[BrowserContext]:
    """A window of it that reaches nothing outside of this machine."""
    from retold.tests.cli.browsed import offline

    window = offline(browser)
    yield window
    window.close()


@pytest.fixture(scope="module")
def boats(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page of three conversations."""
    from retold.tests.cli.browsed import exported
    from retold.tests.cli.pages import shared

    home = tmp_path_factory.mktemp("boats") / "home"
    shared(home)
    return exported(home)
