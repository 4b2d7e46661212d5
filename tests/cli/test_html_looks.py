"""How the exported page looks in a real browser: light and dark, in print, on a phone, without scripts."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from retold.tests.cli.browsed import CONTRAST, conversation
from retold.tests.cli.pages import BOAT, LONG


def opened(address: str, window: BrowserContext, anchor: str = "") -> Page:
    page = window.new_page()
    page.goto(address + anchor)
    return page


# --- how it looks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_light_or_dark_as_the_reader_s_machine_is_and_can_be_read(
    boats: str, window: BrowserContext, scheme: Any
) -> None:
    page = opened(boats, window, f"#s-{BOAT}")
    page.emulate_media(color_scheme=scheme)
    page.locator("#unfold").click()
    low = page.evaluate(CONTRAST)

    assert low["background"] == {"light": [253, 252, 250], "dark": [22, 24, 28]}[scheme]
    assert low["seen"] > 40
    assert low["low"] == []  # WCAG 2.1 AA


def test_the_theme_can_be_chosen(boats: str, window: BrowserContext) -> None:
    page = opened(boats, window)
    button, found = page.locator("#theme"), []
    for _ in range(3):
        button.click()
        found.append((button.inner_text(), page.evaluate("getComputedStyle(document.body).backgroundColor")))

    assert found == [
        ("Theme: light", "rgb(253, 252, 250)"),
        ("Theme: dark", "rgb(22, 24, 28)"),
        ("Theme: auto", "rgb(253, 252, 250)"),
    ]


@pytest.mark.parametrize("scripts", [True, False])
def test_print_shows_what_is_folded_and_hides_what_is_for_a_screen(
    boats: str, browser: Browser, scripts: bool
) -> None:
    window = browser.new_context(java_script_enabled=scripts, offline=True, color_scheme="dark")
    page = opened(boats, window, f"#s-{BOAT}")
    page.emulate_media(media="print")
    for kind in ("prompt", "reasoning", "call", "output"):
        assert (page.locator(f"details.{kind} .folded").bounding_box() or {"height": 0})["height"] > 15, kind
    box = page.locator("details.output pre").bounding_box()

    assert box is not None
    assert box["height"] > 700  # all 59 lines
    assert not page.locator("#sidebar").is_visible()
    assert not page.locator(".bar").is_visible()
    window.close()


def test_what_print_unfolds_is_folded_again(boats: str, window: BrowserContext) -> None:
    window.add_init_script(
        "addEventListener('beforeprint', () => setTimeout(() => 0)); window.open_ = [];"
        "addEventListener('load', () => { for (const name of ['beforeprint', 'afterprint'])"
        " addEventListener(name, () => open_.push(document.querySelectorAll('details[open]').length)); });"
    )
    page = opened(boats, window, f"#s-{BOAT}")
    page.pdf()

    assert page.evaluate("open_") == [4, 0]


def test_it_is_read_without_scripts(boats: str, browser: Browser) -> None:
    window = browser.new_context(java_script_enabled=False, offline=True)
    page = opened(boats, window, "#m-7")

    assert page.locator(".conversation:visible").count() == 3
    assert page.locator("button:visible, input:visible").count() == 0
    expect(page.locator("#m-7")).to_be_in_viewport()
    page.locator("#sidebar a", has_text="Garden").click()
    expect(page.locator(f"[id='s-{LONG}'] h2")).to_be_in_viewport()
    page.locator("details.reasoning summary").click()
    expect(page.locator("details.reasoning .folded")).to_be_visible()
    window.close()


def test_it_fits_a_phone(boats: str, window: BrowserContext) -> None:
    page = opened(boats, window, f"#s-{BOAT}")
    page.set_viewport_size({"width": 360, "height": 740})
    page.locator("#unfold").click()

    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert not page.locator("#sidebar").is_visible()
    page.locator("#menu").click()
    page.locator("#sidebar a", has_text="Release notes").click()
    expect(page.locator("#sidebar")).not_to_be_visible()
    assert conversation(page) == "Release notes"


def test_it_says_to_a_screen_reader_what_is_what(boats: str, window: BrowserContext) -> None:
    page = opened(boats, window)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the conversation"
    page.evaluate(f"location.hash = '#s-{BOAT}'")
    expect(page.locator(".conversation:visible h2")).to_have_text("Mending the boat")

    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("navigation", name="Conversations").count() == 1
    assert page.get_by_role("search").count() == 1
    assert page.get_by_role("searchbox", name="Search messages").count() == 1
    assert page.get_by_role("region", name="Mending the boat").count() == 1
    assert page.get_by_role("heading", level=3).all_inner_texts() == [
        "User",
        "Assistant",
        "Tool web_search",
        "Assistant",
    ]
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input')]"
        ".filter((each) => !each.textContent.trim() && !each.ariaLabel && !each.labels?.length).length"
    )
    assert unnamed == 0
