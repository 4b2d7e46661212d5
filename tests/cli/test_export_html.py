"""`retold sessions export --format html`: what is on the page, without a browser."""

from __future__ import annotations

import hashlib
import re
import shlex
from base64 import b64encode
from pathlib import Path

import pytest

from retold.domain import events as e
from retold.tests.cli.pages import ATTACKS, BOAT, LONG, NOTES, Tags, hostile, shared
from retold.tests.conftest import FIXTURES, ROOT, Run
from retold.tests.histories import history

ZERO, ONE = "20260504_080000_b33d43d5", "20260508_141930_46dc1a26"


def page_of(run: Run, tmp_path: Path, *args: str) -> str:
    done = run("sessions", "export", tmp_path / "page.html", "--format", "html", "--force", *args)

    assert done.exit_code == 0, done.stderr
    return (tmp_path / "page.html").read_text("utf-8")


def cards(page: str) -> list[str]:
    """The text of each message, its header with it."""
    found = re.findall(r"<article .*?</article>", page, re.DOTALL)
    return [" ".join(Tags(each).text.split()) for each in found]


def test_the_page_is_one_file_and_says_what_is_on_it(run: Run, home: Path, tmp_path: Path) -> None:
    shared(home)
    done = run("sessions", "export", tmp_path / "all.html", "--format", "html")
    one = run("sessions", "export", tmp_path / "one.html", "--format", "html", "--session-id", BOAT, "--json")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"Exported 3 session(s) to {tmp_path / 'all.html'} (HTML)\n"
    assert (one.json["exported"], one.json["messages"]) == (1, 4)
    assert (tmp_path / "all.html").stat().st_mode & 0o777 == 0o600
    assert "3 conversations, 126 messages." in Tags((tmp_path / "all.html").read_text("utf-8")).text
    assert "<title>Mending the boat</title>" in (tmp_path / "one.html").read_text("utf-8")


@pytest.mark.parametrize("args", [[], ["-"]])
def test_a_page_needs_a_file_to_be_in(run: Run, home: Path, args: list[str]) -> None:
    shared(home)
    done = run("sessions", "export", *args, "--format", "html")

    assert done.exit_code == 2
    assert "HTML export requires an output file path." in done.stderr


def test_a_page_that_is_there_is_left_alone_unless_forced(run: Run, home: Path, tmp_path: Path) -> None:
    shared(home)
    (tmp_path / "mine.html").write_text("mine")

    assert run("sessions", "export", tmp_path / "mine.html", "--format", "html").exit_code == 3
    assert (tmp_path / "mine.html").read_text() == "mine"


def test_a_folder_gets_a_page_that_says_what_it_holds(run: Run, home: Path, tmp_path: Path) -> None:
    shared(home)
    folder = tmp_path / "out"
    folder.mkdir()
    run("sessions", "export", folder, "--format", "html")
    run("sessions", "export", folder, "--format", "html", "--session-id", NOTES)

    assert sorted(each.name for each in folder.iterdir()) == [f"{NOTES}.html", "sessions.html"]


def test_a_selection_of_nothing_makes_a_page_that_says_so(run: Run, home: Path, tmp_path: Path) -> None:
    shared(home)
    page = page_of(run, tmp_path, "--source", "nowhere")

    assert "No sessions to show." in Tags(page).text
    assert "0 conversations, 0 messages." in Tags(page).text


def test_a_session_in_which_nobody_spoke_says_so(run: Run, home: Path, tmp_path: Path) -> None:
    with history(home) as h:
        h.session("silent")

    assert "No messages in this session." in Tags(page_of(run, tmp_path)).text


# --- nothing comes from elsewhere, and nothing runs -------------------------------------------------


def test_the_policy_lets_in_the_page_s_own_style_and_script_and_nothing_else(
    run: Run, home: Path, tmp_path: Path
) -> None:
    shared(home)
    page = page_of(run, tmp_path)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [
        "'sha256-" + b64encode(hashlib.sha256(each.encode()).digest()).decode() + "'"
        for each in (style, script)
    ]

    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src {hashes[0]}",
        f"script-src {hashes[1]}",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert not re.search(
        r"@import|url\(|\bfetch\b|innerHTML|eval\(|localStorage|cookie|https?:", style + script
    )


def test_whatever_is_said_there_is_one_script_and_no_handler(run: Run, home: Path, tmp_path: Path) -> None:
    hostile(home)
    page = page_of(run, tmp_path)
    tags = Tags(page).tags
    names = [tag for tag, _ in tags]
    attributes = {name for _, given in tags for name in given}

    assert (names.count("script"), names.count("style"), names.count("title")) == (1, 1, 1)
    assert not {"iframe", "img", "link", "base", "form", "svg", "object", "embed", "b", "template"} & set(
        names
    )
    assert not {each for each in attributes if each.startswith("on")}
    assert not {"src", "srcset", "srcdoc", "style", "action", "formaction", "data", "poster"} & attributes
    assert {str(given["href"]).partition(":")[0] for tag, given in tags if tag == "a"} <= {
        "https", *(str(given["href"]) for tag, given in tags if tag == "a" and str(given["href"])[0] == "#")
    }  # fmt: skip
    assert not set(page) & set(map(chr, (0, 0x1B, 0x7F, 0x85, 0x202E, 0x2066, 0x2028, 0x2029)))
    assert sum(ATTACKS[0] in each for each in cards(page)) >= 10


def test_every_id_is_of_one_thing_and_every_link_inside_leads_somewhere(
    run: Run, home: Path, tmp_path: Path
) -> None:
    with history(home) as h:
        for store in ("a", "b"):
            h.session(f"of {store}", store=store)
            h.say(f"of {store}", "the same id in two stores", source_id=7)
    tags = Tags(page_of(run, tmp_path)).tags
    ids = [given["id"] for _, given in tags if "id" in given]
    inside = [
        str(given["href"])[1:] for tag, given in tags if tag == "a" and str(given["href"]).startswith("#")
    ]

    assert len(set(ids)) == len(ids)
    assert set(inside) <= set(ids)
    assert {"m-7", "m-7~2", "s-of%20a", "s-of%20b"} <= set(ids)


# --- what is on it ----------------------------------------------------------------------------------


def test_a_message_has_its_role_its_time_and_a_link_of_its_own(run: Run, home: Path, tmp_path: Path) -> None:
    shared(home)
    (home / "config.yaml").write_text("timezone: Asia/Tokyo\n")
    page = page_of(run, tmp_path, "--session-id", BOAT)

    assert '<article class="message message-user" id="m-4">' in page
    assert (
        '<time datetime="2026-05-05T16:53:24Z" title="2026-05-05 16:53:24 UTC">2026-05-06 01:53:24</time>'
        in page
    )
    assert '<a class="permalink" href="#m-4" title="Link to this message">#4</a>' in page
    assert "JST with Retold" in page


def test_tools_reasoning_and_the_prompt_are_folded_away(run: Run, home: Path, tmp_path: Path) -> None:
    shared(home)
    page = page_of(run, tmp_path, "--session-id", BOAT)
    folds = re.findall(r'<details class="(\w+)"( open)?><summary>(.*?)</summary>', page)

    assert [(kind, opened, " ".join(Tags(words).text.split())) for kind, opened, words in folds] == [
        ("prompt", "", "System prompt You help people who mend boats."),
        ("reasoning", "", "Reasoning Is the seam dry?"),
        ("call", "", "Tool Call: web_search drying time larch"),
        ("output", "", "Output 59 lines 1. larch dries in 1 days"),
    ]
    assert "&quot;query&quot;: &quot;drying time larch&quot;" in page
    assert '<span class="language">python</span>' in page


def test_a_short_output_stands_open(run: Run, home: Path, tmp_path: Path) -> None:
    with history(home) as h:
        h.session("s")
        h.say("s", "tar", "tool", tool_name="web_search")

    assert '<details class="output" open>' in page_of(run, tmp_path)


def test_what_is_no_text_is_named(run: Run, home: Path, tmp_path: Path) -> None:
    with history(home) as h:
        h.session("s")
        h.say(
            "s", '\0json:[{"type":"text","text":"like this?"},{"type":"image_url","image_url":{"url":"x"}}]'
        )
        h.say(
            "s",
            "look",
            attachments=[e.Attachment("/tmp/a.png", "image"), e.Attachment("b.ogg", "voice", "hello")],
        )
        h.say(
            "s", '\0json:[{"type":"chart","n":[1]}]', "assistant", reasoning_details='[{"text":"a thought"}]'
        )
        h.say("s", None, "assistant", tool_calls="not json")
    found = cards(page_of(run, tmp_path))

    assert found[0].endswith("like this? [Image Attachment]")
    assert found[1].endswith("look [Image Attachment] /tmp/a.png [Voice Attachment] b.ogg hello hello")
    assert 'Reasoning a thought a thought json { "type": "chart", "n": [ 1 ] }' in found[2]
    assert found[3].endswith("Tool Call: ? not json not json")


def test_notes_about_a_session_are_no_messages(run: Run, home: Path, tmp_path: Path) -> None:
    with history(home) as h:
        h.session("s")
        h.say("s", "a note", "session_meta")
        h.say("s", "hello")
        h.say("s", "x", '"odd role"')
    done = run("sessions", "export", tmp_path / "x.html", "--format", "html", "--json")
    page = (tmp_path / "x.html").read_text("utf-8")

    assert done.json["messages"] == 2
    assert "a note" not in page
    assert "<dt>Messages</dt><dd>2</dd>" in page
    assert 'class="message message-oddrole"' in page


def test_what_was_undone_is_not_on_it_and_what_was_compacted_is_marked(
    run: Run, home: Path, tmp_path: Path
) -> None:
    with history(home) as h:
        h.session("s")
        old = h.say("s", "an old question")
        h.rewind("s", [h.say("s", "never mind")])
        h.compact("s", [old])
        h.say("s", "they asked something", "user", summary=True)
    page = page_of(run, tmp_path)

    assert "never mind" not in page
    assert [re.sub(r" \d{4}-\S+ \S+ #\d+", "", each) for each in cards(page)] == [
        "User Compacted an old question",
        "User Summary they asked something",
    ]


def _compressed(home: Path) -> None:
    with history(home) as h:
        h.session(ZERO, title="Plan")
        h.say(ZERO, "how do I mend the boat?")
        kept = h.say(ZERO, "carried along")
        h.compress(ZERO, ONE, title="Plan #2")
        h.say(ONE, "So far: tar.", "user", summary=True)
        h.say(ONE, "carried along", copy_of=kept)
        h.say(ONE, "and now?")


@pytest.mark.parametrize("named", [ZERO, ONE])
def test_e4_a_whole_conversation_is_on_one_page_with_each_message_once(
    run: Run, home: Path, tmp_path: Path, named: str
) -> None:
    _compressed(home)
    page = page_of(run, tmp_path, "--session-id", named, "--lineage", "logical")

    assert re.findall(r"Compression segment: <code>([^<]*)</code>", page) == [ZERO, ONE]
    assert page.count("carried along") == 1
    assert '<section class="conversation" id="s-' + ONE in page
    assert f'<h3 class="segment" id="s-{ZERO}">' in page
    assert [each.split()[-1] for each in cards(page)] == ["boat?", "along", "tar.", "now?"]
    assert "nav id=" not in page


def test_e7_the_page_of_one_holds_nothing_of_another(run: Run, home: Path, tmp_path: Path) -> None:
    shared(home)

    assert "larch" not in page_of(run, tmp_path, "--session-id", LONG)


def test_a_sidebar_names_each_conversation_the_last_used_first(run: Run, home: Path, tmp_path: Path) -> None:
    with history(home) as h:
        h.session("20260601_no_title", source="cli")
        h.session("20260602_long", source="telegram", title="a " * 40)
    page = page_of(run, tmp_path)
    rows = re.findall(r"<li>(.*?)</li>", page, re.DOTALL)

    assert [" ".join(Tags(each.replace("</span>", " ")).text.split()) for each in rows] == [
        "a " * 25 + "telegram · 20260602 · 2026-05-05",
        "Untitled Session cli · 20260601 · 2026-05-05",
    ]


def test_every_conversation_of_the_fixture_is_on_its_page(run: Run, tmp_path: Path) -> None:
    run("import", "hermes", FIXTURES / "hermes-home")
    page = page_of(run, tmp_path)

    assert page.count('<section class="conversation"') == 57
    assert page.encode("utf-8", "strict")
    assert len(cards(page)) == page.count("<article ") > 850


def test_a_person_new_to_it_shares_a_redacted_page_in_four_commands(
    run: Run, hermes_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (block,) = re.findall(r"## Sharing a conversation\n\n```sh\n(.*?)```", readme, re.DOTALL)
    commands = [shlex.split(each, comments=True) for each in block.splitlines()]
    monkeypatch.setenv("HERMES_HOME", str(hermes_home))
    monkeypatch.chdir(tmp_path)
    for program, *args in commands[:3]:
        done = run(*args)
        assert (program, done.exit_code) == ("retold", 0), done.stderr

    assert len(commands) == 4
    assert commands[3][1] == "boat.html"
    assert "<h2" in (tmp_path / "boat.html").read_text("utf-8")
