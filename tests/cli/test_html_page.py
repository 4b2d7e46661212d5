"""The exported page in a real browser: what runs there, where it leads, and how one finds one's way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from retold.tests.cli.browsed import NOTHING, Watched, conversation, exported
from retold.tests.cli.pages import BOAT, NOTES, hostile
from retold.tests.histories import history


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page of which every text is out to run something."""
    home = tmp_path_factory.mktemp("attack") / "home"
    hostile(home)
    return exported(home)


def opened(address: str, window: BrowserContext, anchor: str = "") -> Page:
    page = window.new_page()
    page.goto(address + anchor)
    return page


# --- nothing runs, nothing is asked for ----------------------------------------------------------------


def test_no_message_runs_anything_or_asks_anybody(attack: str, window: BrowserContext) -> None:
    page = window.new_page()
    watched = Watched(page)
    page.goto(attack)
    page.locator("#unfold").click()
    for link in page.locator("#sidebar a").all():
        link.click()
        page.mouse.move(600, 400)
        page.keyboard.press("Tab")
    page.locator("#find").fill("<script>window.ran=1</script>")
    page.locator("#find").press("Enter")
    expect(page.locator("#found")).to_have_text(re.compile("of 80,"))
    for each in page.locator("summary:visible").all()[:8]:
        each.click()
    page.emulate_media(media="print")

    assert watched.did() == NOTHING
    assert page.locator("main img, main iframe, main script, main form, main style, main b").count() == 0
    assert page.locator("article").count() > 120


def test_the_policy_stops_what_would_run_even_if_it_stood_on_the_page(
    boats: str, window: BrowserContext
) -> None:
    page = opened(boats, window)
    page.evaluate(
        """() => {
            const body = document.body;
            const put = (tag, given) => body.append(Object.assign(document.createElement(tag), given));
            try { put("script", { text: "window.ran = 'script'" }); } catch {}
            try { body.innerHTML += "<img src=x onerror='window.ran=1'>"; } catch { window.typed = true; }
            put("img", { src: "https://tracker.example/pixel.png" });
            put("link", { rel: "stylesheet", href: "https://tracker.example/x.css" });
            put("iframe", { src: "https://evil.example/" });
            body.setAttribute("style", "opacity: 0");
            fetch("https://tracker.example/").catch(() => {});
        }"""
    )
    page.evaluate(
        """new Promise((done) => {
            const look = () => (seen.length < 6 ? setTimeout(look, 20) : done());
            look();
        })"""
    )
    stopped = set(page.evaluate("window.seen"))

    assert page.evaluate("[window.ran ?? null, window.typed]") == [None, True]
    assert stopped >= {"img-src", "style-src-elem", "frame-src", "style-src-attr", "connect-src"}
    assert stopped & {"require-trusted-types-for", "script-src-elem"}
    assert page.evaluate("getComputedStyle(document.body).opacity") == "1"


def test_links_go_where_they_say(attack: str, window: BrowserContext) -> None:
    page = opened(attack, window)
    links = page.evaluate(
        """() => [...document.querySelectorAll("main a[target]")].map((a) => ({
            protocol: a.protocol, host: a.hostname, rel: a.rel, target: a.target, said: a.textContent,
            goal: a.nextElementSibling?.matches(".goal") ? a.nextElementSibling.textContent : "",
        }))"""
    )

    assert len(links) > 20
    for link in links:
        assert link["protocol"] == "https:"
        assert link["host"] in link["said"] + link["goal"]
        assert (link["rel"], link["target"]) == ("noopener noreferrer nofollow", "_blank")
    assert {each["host"] for each in links} >= {"ok.example", "evil.example", "xn--bnk-5cd.example"}


def test_nothing_turns_around_what_stands_beside_it(attack: str, window: BrowserContext) -> None:
    page = opened(attack, window)

    assert (
        page.evaluate("/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.documentElement.outerHTML)") is False
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# --- finding one's way ----------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [False, True])
def test_a_link_leads_to_its_message_in_whichever_conversation(
    boats: str, window: BrowserContext, later: bool
) -> None:
    page = opened(boats, window, "" if later else "#m-7")
    if later:
        assert conversation(page) == "Garden"  # the last one that was used
        page.evaluate("location.hash = '#m-7'")
    message = page.locator("#m-7")

    expect(message).to_be_in_viewport()
    expect(message).to_have_class("message message-assistant target")
    assert conversation(page) == "Mending the boat"
    assert page.locator('#sidebar a[aria-current="true"]').inner_text().startswith("Mending the boat")


def test_a_link_leads_far_down_a_long_conversation(boats: str, window: BrowserContext) -> None:
    page = opened(boats, window)
    last = page.locator(".conversation:visible article").last
    page.evaluate("(id) => { location.hash = '#' + id; }", last.get_attribute("id"))

    expect(last).to_be_in_viewport()


def test_a_link_to_a_message_is_copied(boats: str, window: BrowserContext) -> None:
    window.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opened(boats, window, f"#s-{BOAT}")
    page.locator("#m-4 .permalink").click()
    expect(page.locator("#m-4 .permalink")).to_have_text("Link copied")

    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert page.url.endswith("page.html#m-4")
    expect(page.locator("#m-4 .permalink")).to_have_text("#4")


def test_search_finds_counts_opens_and_marks(boats: str, window: BrowserContext) -> None:
    page = opened(boats, window)
    page.keyboard.press("/")
    page.keyboard.type("LARCH")

    expect(page.locator("#found")).to_have_text("1 of 61")
    assert conversation(page) == "Release notes"  # the first below the one that was shown
    badges = [each.split("\n")[0] for each in page.locator("#sidebar a:has(.hits)").all_inner_texts()]
    assert badges == ["1", "60"]

    for _ in range(61):  # once around
        page.keyboard.press("Enter")
    expect(page.locator("#found")).to_have_text("1 of 61")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_have_text("2 of 61")
    assert page.evaluate("[...CSS.highlights.get('here')][0].toString()") == "larch"
    assert page.evaluate("[...CSS.highlights.get('here')][0].getBoundingClientRect().top") > 0
    assert page.evaluate("CSS.highlights.get('found').size") == 60

    page.locator("#find").fill("nothing says this")
    expect(page.locator("#found")).to_have_text("No match")
    page.keyboard.press("Escape")
    expect(page.locator("#found")).to_have_text("")
    assert page.evaluate("CSS.highlights.get('found').size") == 0


def test_search_opens_what_is_folded_over_a_match(boats: str, window: BrowserContext) -> None:
    page = opened(boats, window, f"#s-{BOAT}")
    page.locator("#find").fill("larch dries in 58 days")

    expect(page.locator("#found")).to_have_text("1 of 1")
    expect(page.locator("details.output")).to_have_attribute("open", "")
    expect(page.locator("details.reasoning")).not_to_have_attribute("open", "")
    top = page.evaluate("[...CSS.highlights.get('here')][0].getBoundingClientRect().top")
    assert 56 < top < 800


def test_the_sidebar_narrows_and_is_walked_by_keys(boats: str, window: BrowserContext) -> None:
    page = opened(boats, window)
    rows = page.locator("#sidebar li:visible .name")
    assert rows.all_inner_texts() == ["Garden", "Release notes", "Mending the boat"]

    page.locator("#filter").fill("boat TELE")
    assert rows.all_inner_texts() == ["Mending the boat"]
    page.locator("#filter").fill("zzz")
    expect(page.get_by_text("No conversation matches.")).to_be_visible()
    page.locator("#filter").fill("")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    expect(page.locator(".conversation:visible h2")).to_have_text("Release notes")
    assert page.url.endswith(f"#s-{NOTES}")
    page.go_back()
    expect(page.locator(".conversation:visible h2")).to_have_text("Garden")
    page.go_forward()
    page.locator("#sidebar a", has_text="Release notes").focus()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.hash") == f"#s-{BOAT}"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.id") == "filter"


def test_all_is_unfolded_and_folded_again(boats: str, window: BrowserContext) -> None:
    page = opened(boats, window, f"#s-{BOAT}")
    folded = page.locator("details:not([open])")
    assert folded.count() == 4
    page.locator("summary").nth(1).press("Enter")
    assert folded.count() == 3
    page.locator("#unfold").click()
    assert folded.count() == 0
    page.locator("#unfold").click()

    assert folded.count() == 4


def test_a_page_of_many_messages_is_there_at_once(tmp_path: Path, window: BrowserContext) -> None:
    with history(tmp_path / "home") as h, h.together():
        h.session("s", title="Long")
        for index in range(5_000):
            h.say("s", f"message {index}: how do I keep a boat dry? " * 5)
    page = opened(exported(tmp_path / "home"), window, "#m-4000")
    # Not by `expect`, which looks at all of the page again and again.
    assert 0 <= page.evaluate("document.getElementById('m-4000').getBoundingClientRect().top") < 800
    found = page.evaluate(
        """new Promise((done) => {
            const find = document.getElementById("find");
            find.value = "message 4999:";
            find.dispatchEvent(new Event("input"));
            const look = () => {
                const text = document.getElementById("found").textContent;
                if (text) done(text);
                else setTimeout(look, 20);
            };
            look();
        })"""
    )

    assert found == "1 of 5"
    assert page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd") < 10_000
    assert 0 < page.evaluate("[...CSS.highlights.get('here')][0].getBoundingClientRect().top") < 800
