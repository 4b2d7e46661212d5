"""Exported pages in the system's Chromium: what opens them, and what they were not meant to do.

playwright drives it and fetches no browser of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Dialog, Page, sync_playwright

WATCH = """
window.seen = [];
addEventListener("securitypolicyviolation", (event) => seen.push(event.violatedDirective));
"""
NOTHING: Final[dict[str, Any]] = {"ran": None, "stopped": [], "errors": [], "asked": []}


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser. It ends with the module that asked: a loop of events runs in this thread meanwhile."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def offline(browser: Browser, **how: Any) -> BrowserContext:
    """A window of its own, without a network; what the policy has to stop is noted in it."""
    window = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True, **how)
    window.set_default_timeout(15_000)
    window.add_init_script(WATCH)
    return window


def exported(home: Path, *args: str) -> str:
    """The address of a page of what a home holds."""
    from retold.cli.main import main

    file = home.parent / "page.html"
    command = ["sessions", "export", str(file), "--format", "html", "--force", "--home", str(home), *args]
    assert main(command) == 0
    return file.as_uri()


def conversation(page: Page) -> str:
    """The title of the one conversation that is shown."""
    return str(page.locator(".conversation:visible h2").inner_text())


class Watched:
    """A page, and all that it was not meant to do."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("popup", lambda popup: self.errors.append(popup.url))
        page.on("dialog", self._dismiss)

    def _dismiss(self, dialog: Dialog) -> None:
        self.errors.append(dialog.message)
        dialog.dismiss()

    def did(self) -> dict[str, Any]:
        """What ran, what the policy stopped, what went wrong, and what was asked for but the page itself."""
        return {
            "ran": self.page.evaluate("window.ran ?? null"),
            "stopped": self.page.evaluate("window.seen"),
            "errors": self.errors,
            "asked": [each for each in self.asked if each != self.page.url.partition("#")[0]],
        }


CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const behind = (element) => {
        const layers = [];
        for (let each = element; each; each = each.parentElement)
            layers.unshift(rgba(getComputedStyle(each).backgroundColor));
        const mix = (top, under, alpha) => (top * alpha + under * (255 - alpha)) / 255;
        const over = (under, [r, g, b, a]) => [r, g, b].map((c, i) => mix(c, under[i], a));
        return layers.reduce(over, [255, 255, 255]);
    };
    const light = (color) => {
        const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = color.map((c) => linear(c / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const low = [];
    let seen = 0;
    for (const element of document.querySelectorAll("body *")) {
        const own = [...element.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
        if (!own || !element.checkVisibility({ visibilityProperty: true }) || element.disabled) continue;
        seen += 1;
        const [a, b] = [light(rgba(getComputedStyle(element).color).slice(0, 3)), light(behind(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) low.push([element.outerHTML.slice(0, 80), ratio]);
    }
    return { low, seen, background: behind(document.body) };
}"""
"""Every text on the page that stands out from what is behind it by less than WCAG 2.1 AA asks for."""
