"""`retold sessions list`, `show`, `tree` and `stats` as a person or a program sees them.

Over 400 lines because four commands share one home of chats.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold import Attachment
from retold.cli import stream, transcript
from retold.cli.output import cell_width
from retold.cli.stream import encode, raw_json, size
from retold.cli.transcript import calls, one_line, readable
from retold.infrastructure.clock import now_us
from retold.infrastructure.engine import open_home
from retold.projections.sessions import Message, messages, page
from retold.tests.histories import DAY_US, HOUR_US, folded, history
from retold.tests.terminal import on_a_terminal

if TYPE_CHECKING:
    from retold.tests.conftest import Run

KEY = "agent:main:telegram:dm:1001"
BOAT = "20260504_080000_b33d43d5"
NEXT = "20260508_141930_46dc1a26"


@pytest.fixture
def chats(home: Path) -> Path:
    """A chat that was compressed, with a delegate; a cron run; and one put away."""
    now = now_us()
    with history(home) as h:
        h.session(BOAT, source="telegram", session_key=KEY, title="boat repair", at_us=now - 9 * DAY_US)
        first = h.say(BOAT, "how do I mend\nthe boat?")
        call = '[{"function": {"name": "web_search", "arguments": "{\\"q\\": \\"tar\\"}"}}]'
        h.say(BOAT, None, "assistant", tool_calls=call)
        h.say(BOAT, "tar\npitch\nrope", "tool", tool_name="web_search")
        h.say(BOAT, '\0json:[{"type":"text","text":"like this?"},{"type":"image_url","image_url":{}}]')
        undone = h.say(BOAT, "no, wait")
        h.rewind(BOAT, [undone])
        h.compact(BOAT, [first])
        h.session("d1", source="cli", parent_session_id=BOAT, parent_kind="delegate")
        h.say("d1", "private to the delegate")
        h.compress(BOAT, NEXT, source="telegram", session_key=KEY, title="boat repair #2")
        h.route(KEY, NEXT, previous=BOAT, cause="compression")
        h.say(NEXT, "weiter mit dem Boot 🚤", at_us=now - 2 * HOUR_US)
        h.session("cron_1", source="cron", at_us=now - 30 * HOUR_US)
        h.say("cron_1", "weekly report")
        h.session("away", source="cli", title="put away", at_us=now - DAY_US)
        h.archive("away")
    return home


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns reads what is written."""
    monkeypatch.setattr(stream, "is_terminal", lambda: True)
    monkeypatch.setattr("retold.cli.sessions.is_terminal", lambda: True)
    monkeypatch.setattr("retold.cli.transcript.is_terminal", lambda: True)
    monkeypatch.setattr("retold.cli.listed.is_terminal", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((80, 24)))


# --- list -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("chats")
def test_a_piped_list_has_whole_cells_and_its_footer_apart(run: Run) -> None:
    done = run("sessions", "list")

    header, rule, *rows = done.stdout.splitlines()

    assert done.exit_code == 0
    assert header == "Title           Preview                 Last Active  Source    ID"
    assert set(rule) == {"─"}
    assert rows == [
        f"boat repair #2  weiter mit dem Boot 🚤  2h ago       telegram  {NEXT}",
        "—               weekly report           yesterday    cron      cron_1",
    ]
    assert done.stderr == ("\nNot shown: 1 archived, 1 older segment, 1 delegate. See them with --all.\n")


def test_i12_what_a_list_leaves_out_is_counted_and_all_of_it_can_be_asked_for(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        for number, source in enumerate(("telegram", "cli", "tool", "telegram", "cli")):
            engine.create_session(source, session_id=f"s{number}", model=f"model {number % 2}")
            engine.append_message(f"s{number}", "user", "hello")
        engine.archive_session("s3")
        engine.create_session("cli", session_id="d1", parent="s1", parent_kind="delegate")
        engine.compress_session("s4", "so far", continuation_id="s5")
    stored = run("sessions", "stats", "--json").json["sessions"]
    short = run("sessions", "list", "--limit", "1", "--json").json
    every = run("sessions", "list", "--all", "--json").json
    of_a_source = [
        run("sessions", "list", "--all", "--source", each, "--json").json["sessions"]
        for each in ("telegram", "cli", "tool")
    ]

    assert stored == len(every["sessions"]) == sum(map(len, of_a_source)) == 7
    assert len(short["sessions"]) + sum(short["not_shown"].values()) == stored
    assert {name for name, count in short["not_shown"].items() if count} == {
        "over_limit",
        "archived",
        "older_segments",
        "delegates",
        "tool",
    }
    assert set(every["not_shown"].values()) == {0}
    for each in ("s0", "s1", "s2", "s3", "s4", "s5", "d1"):
        assert run("sessions", "show", each).exit_code == 0
    footer = run("sessions", "list").stderr
    assert "1 archived, 1 older segment, 1 delegate, 1 of source tool" in footer
    assert "--all" in footer


@pytest.mark.usefixtures("chats", "terminal")
def test_a_list_fits_the_terminal_and_never_cuts_an_id(run: Run) -> None:
    done = run("sessions", "list", "--all")
    lines = done.stdout.splitlines()

    assert max(map(cell_width, lines)) <= 80
    assert [line.split()[-1] for line in lines[2:]] == [NEXT, "away", "cron_1", "d1", BOAT]
    assert "cli (archived)  away" in done.stdout


@pytest.mark.usefixtures("chats", "terminal")
def test_on_a_terminal_the_footer_stands_under_the_list(run: Run) -> None:
    done = run("sessions", "list", "--limit", "1")

    assert done.stdout.endswith(
        "\nNot shown: 1 over the limit, 1 archived, 1 older segment, 1 delegate. See them\nwith --all.\n"
    )


@pytest.mark.usefixtures("chats")
def test_a_limit_holds_with_all_too_and_a_limit_of_none_is_no_empty_home(run: Run) -> None:
    two, none = run("sessions", "list", "--all", "--limit", "2"), run("sessions", "list", "--limit", "0")

    assert len(two.stdout.splitlines()) == 4
    assert two.stderr == "\nNot shown: 3 over the limit. See them with a larger --limit.\n"
    assert none.stdout == "No sessions to show.\n"
    assert "2 over the limit" in none.stderr


@pytest.mark.usefixtures("chats")
def test_a_filter_that_nothing_here_passes_is_named(run: Run) -> None:
    source = run("sessions", "list", "--source", "nosuch")
    folder = run("sessions", "list", "--workspace", "nosuch")

    assert (source.exit_code, source.stdout) == (0, "No sessions found.\n")
    assert source.stderr.startswith("no session here is of source 'nosuch'; there are: cli, cron, ")
    assert folder.stderr == "no session here has 'nosuch' in the path of its folder\n"
    assert "no session here" not in run("sessions", "list", "--source", "cli").stderr  # an archived one


def test_one_long_title_makes_no_other_row_of_a_piped_list_long(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("s1", title="x" * 5_000)
        h.session("s2", title="short")
    lines = run("sessions", "list").stdout.splitlines()

    assert sum(len(line) > 200 for line in lines) == 1
    assert any("x" * 5_000 in line for line in lines)


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 140])
def test_a_list_fits_a_terminal_of_any_width(chats: Path, columns: int) -> None:
    lines = on_a_terminal(
        "sessions", "list", "--all", env={"RETOLD_HOME": str(chats)}, columns=columns
    ).splitlines()

    assert max(map(cell_width, lines)) <= max(columns, len(NEXT) + 2)
    assert any(NEXT in line for line in lines)
    assert any("boat repair" in line for line in lines)


def test_where_only_a_title_has_room_a_session_without_one_shows_its_preview(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("20260504_080000_b33d43d5", source="a-long-source-name")
        h.say("20260504_080000_b33d43d5", "boat leaks")
        h.session("titled", title="plan")
    lines = on_a_terminal("sessions", "list", env={"RETOLD_HOME": str(home)}).splitlines()

    assert lines[0].split() == ["Title", "Last", "Active", "Source", "ID"]
    assert any(each.startswith("boat leaks  ") for each in lines)


def test_an_empty_home_has_no_sessions(run: Run, home: Path) -> None:
    with history(home):
        pass

    assert run("sessions", "list").stdout == "No sessions found.\n"
    assert run("sessions", "list", "--json").json["sessions"] == []


def test_a_folder_that_is_no_home_is_refused_and_left_as_it_is(run: Run, home: Path) -> None:
    done = run("sessions", "list")

    assert done.exit_code == 2
    assert f"{home} is no Retold home" in done.stderr
    assert not home.exists()


@pytest.mark.usefixtures("chats")
def test_the_list_as_of_a_position_is_what_this_store_said_then(run: Run) -> None:
    done = run("sessions", "list", "--at", "#3", "--json")

    assert [(each["id"], each["title"]) for each in done.json["sessions"]] == [(BOAT, "boat repair")]
    assert done.json["sessions"][0]["end_reason"] is None
    assert done.stderr == ""


@pytest.mark.usefixtures("chats")
def test_the_list_as_of_a_time_says_what_it_is_known_from(run: Run) -> None:
    done = run("sessions", "list", "--at", "2d", "--json")

    assert NEXT in [each["id"] for each in done.json["sessions"]]
    assert re.match(r"as of \S+Z, known at position #\d+\n", done.stderr)


def test_text_of_a_session_cannot_reach_the_terminal(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("s", title="a\x1b[2J\nb")
        h.say("s", "\x1b]0;owned\x07 words")
    listed, shown, tree = run("sessions", "list"), run("sessions", "show", "s"), run("sessions", "tree", "s")

    for done in (listed, shown, tree):
        assert "\x1b" not in done.stdout
        assert "\x07" not in done.stdout
    assert "a␛[2J b" in listed.stdout


@pytest.mark.usefixtures("chats")
def test_listing_imports_no_write_side_and_nothing_it_does_not_show(home: Path) -> None:
    listing = "import sys; from retold.cli.main import main; main(['sessions', 'list']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", listing],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"RETOLD_HOME": str(home)},
    )
    loaded = set(done.stdout.splitlines()[-1].split())

    assert not {"eventsourcing", "rich", "yaml", "croniter", "whenever"} & {
        name.partition(".")[0] for name in loaded
    }
    assert not {"retold.infrastructure.engine", "retold.infrastructure.recorders"} & loaded


# --- show -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("chats")
def test_a_session_reads_as_a_transcript(run: Run) -> None:
    done = run("sessions", "show", BOAT)
    lines = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", line) for line in done.stdout.splitlines()]

    assert lines == [
        "boat repair",
        f"  id        {BOAT}",
        "  source    telegram",
        "  started   TIME, last active TIME",
        "  state     ended TIME, compression",
        "  messages  3 live",
        f"  route     it bears {KEY}, which leads to {NEXT}",
        f"  lineage   this one → {NEXT}",
        "",
        "user  TIME  #3  [compacted]",
        "  how do I mend",
        "  the boat?",
        "",
        "assistant  TIME  #4",
        '  → web_search({"q": "tar"})',
        "",
        "tool web_search  TIME  #5",
        "  tar (+2 lines)",
        "",
        "user  TIME  #6",
        "  like this?",
        "  [image]",
        "",
        "user  TIME  #7  [rewound]",
        "  no, wait",
    ]


@pytest.mark.usefixtures("chats")
def test_a_session_is_shown_by_prefix_and_by_the_title_of_its_lineage(run: Run) -> None:
    assert run("sessions", "show", "2026050", "--json").json["error"]["candidates"] == [BOAT, NEXT]
    assert run("sessions", "show", "20260504", "--json").json["id"] == BOAT
    assert run("sessions", "show", "boat repair", "--json").json["id"] == NEXT
    assert run("sessions", "show", "boat").exit_code == 2


@pytest.mark.usefixtures("chats")
def test_c9_a_delegates_private_talk_is_no_part_of_the_conversation(run: Run) -> None:
    done = run("sessions", "show", NEXT, "--json")

    assert done.json["lineage"] == [
        {"session_id": BOAT, "kind": "root"},
        {"session_id": NEXT, "kind": "continuation"},
    ]
    assert "private" not in done.stdout
    assert done.json["route"] == KEY


@pytest.mark.usefixtures("chats")
def test_pages_of_a_session_are_asked_for_by_id(run: Run) -> None:
    def page(*options: str) -> list[int]:
        return [each["id"] for each in run("sessions", "show", BOAT, *options, "--json").json["messages"]]

    assert page("--first", "2") == [3, 4]
    assert page("--last", "2") == [6, 7]
    assert page("--last", "2", "--before", "6") == [4, 5]
    assert page("--after", "6") == [7]
    assert run("sessions", "show", BOAT, "--first", "1", "--last", "1").exit_code == 2


def test_a_session_of_any_size_is_written_message_by_message(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with history(home) as h, h.together():
        h.session("big")
        for _ in range(30):
            h.say("big", "x" * 1_000_000)
    written: list[int] = []
    monkeypatch.setattr(stream, "write_bytes", lambda piece: written.append(len(piece)))
    with folded(home) as opened:
        db = opened.state.reader()
        tracemalloc.start()
        try:
            transcript.emit({"id": "big"}, page(db, "big"), messages(db, "big"))
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert sum(written) > 30_000_000
    assert peak_bytes < 8_000_000


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("plain", "plain"),
        ('\0json:["a", {"type": "text", "text": "b"}]', ["a", {"type": "text", "text": "b"}]),
        ("\0json:{torn", "\0json:{torn"),
        ('\0json:{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        ('\0json:{"n": NaN}', {"n": None}),
        ('\0json:{\n  "a": 1\n}', {"a": 1}),
    ],
)
def test_content_comes_out_as_it_went_in(run: Run, home: Path, stored: str, shown: object) -> None:
    with history(home) as h:
        h.session("s")
        h.say("s", stored, tool_calls="[{torn")
    done = run("sessions", "show", "s", "--json")

    assert done.json["messages"][0]["content"] == shown
    assert done.json["messages"][0]["tool_calls"] == "[{torn"
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ('\0json:[{"type":"input_text","text":"hi"},{"type":"input_audio"}]', "hi\n[input_audio]"),
        ('\0json:{"type":"image","text":"of a boat"}', "[image]"),
        ("\0json:3", "3"),
    ],
)
def test_structured_content_reads_as_text(content: str | None, text: str) -> None:
    assert readable(content) == text


def test_a_lone_surrogate_in_structured_content_comes_out_escaped() -> None:
    said = Message(1, "user", '\0json:{"s":"\\ud83d"}', 0, "[1]", None, "live", None)

    assert json.loads(encode(transcript.as_json(said)))["content"] == {"s": "\ud83d"}
    assert json.loads(encode(transcript.as_json(said)))["tool_calls"] == [1]


def test_calls_of_every_shape_are_one_each() -> None:
    assert calls(None) == calls("[]") == []
    assert calls('[{"name": "read", "input": {"path": "a"}}, 3]') == ['read({"path": "a"})', "3"]
    assert calls("[{torn") == ["[{torn"]


def test_one_line_counts_what_follows() -> None:
    assert one_line("one\ntwo\nthree", 40) == "one (+2 lines)"
    assert cell_width(one_line("字" * 100 + "\nmore", 40)) <= 40


# --- tree and stats -------------------------------------------------------------------------------


@pytest.mark.usefixtures("chats")
def test_a_tree_is_drawn_with_its_kinds(run: Run) -> None:
    assert run("sessions", "tree", "d1").stdout == (
        f"{BOAT}  boat repair  (3 messages, compression, telegram)\n"
        "├─ delegate  d1  (1 message, open, cli)  ← this one\n"
        f"└─ continuation  {NEXT}  boat repair #2  (1 message, open, telegram)\n"
    )


def test_a_parent_that_is_missing_is_drawn_as_such(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("s", parent_session_id="gone", parent_kind="branch")

    assert run("sessions", "tree", "s").stdout == (
        "gone  (missing: it is named as a parent, and is not here)\n"
        "└─ branch  s  (0 messages, open, cli)  ← this one\n"
    )


@pytest.mark.usefixtures("chats")
def test_stats_name_every_source_and_the_sizes_on_disk(run: Run, home: Path) -> None:
    words, answer = run("sessions", "stats").stdout, run("sessions", "stats", "--json").json

    assert words.startswith(
        "Total sessions: 5\nTotal messages: 8\n"
        "  cli: 2 sessions, 1 message\n"
        "  telegram: 2 sessions, 6 messages\n"
        "  cron: 1 session, 1 message\n"
        "Log: "
    )
    assert answer["log"]["size_bytes"] >= (home / "events.db").stat().st_size
    assert answer["projections"]["size_bytes"] >= (home / "state.db").stat().st_size


# --- what they are written with -------------------------------------------------------------------


def test_sizes_read_as_people_say_them() -> None:
    assert [size(each) for each in (0, 999, 1000, 1_250_000, 3_000_000_000)] == [
        "0 B", "999 B", "1.0 kB", "1.2 MB", "3.0 GB",
    ]  # fmt: skip


def test_any_json_text_becomes_json_again() -> None:
    deep = "[" * 500 + "]" * 500

    for text in ('{"a":[1,2.5,null]}', '"\\ud800"', "123456789012345678901234567890", deep):
        assert json.loads(encode(raw_json(text))) == json.loads(text)
    assert encode(raw_json("[NaN, -Infinity]")) == b"[null,null]"
    with pytest.raises(ValueError):
        raw_json("{torn")


# --- on a real store ------------------------------------------------------------------------------


def test_an_imported_home_is_listed_counted_and_searched_whole(run: Run, hermes_home: Path) -> None:
    truth = json.loads((hermes_home / "truth.json").read_text("utf-8"))
    shapes = truth["incident"]["shapes"]
    run("import", "hermes", hermes_home)
    listing, stats = run("sessions", "list", "--json").json, run("sessions", "stats", "--json").json
    every = run("sessions", "list", "--all", "--json").json["sessions"]
    shown = {each["id"] for each in run("sessions", "list", "--limit", "100", "--json").json["sessions"]}
    tree = run("sessions", "tree", shapes["base"], "--json").json["sessions"]
    odd = run("sessions", "show", shapes["odd_content"], "--json").json["messages"]
    rewound = run("sessions", "show", shapes["rewound"], "--json").json["messages"]

    assert len(listing["sessions"]) + sum(listing["not_shown"].values()) == truth["sessions"]
    assert (stats["sessions"], stats["messages"]) == (truth["sessions"], truth["messages"])
    assert len(every) == truth["sessions"]
    assert shapes["branch"] in shown
    assert shapes["delegate"] not in shown
    assert {each["kind"] for each in tree} == {"root", "branch", "delegate"}
    assert "before\0after" in [each["content"] for each in odd]
    assert "rewound" in {each["visibility"] for each in rewound}
    assert run("search", "marsupial", "--json").json["hits"][0]["session_id"] == shapes["odd_content"]


def test_attachments_summaries_and_copies_are_shown_as_what_they_are(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("telegram", session_id="s")
        engine.append("s", "user", "older")
        voice = Attachment("/v.ogg", "audio", "hello")
        heard = engine.append("s", "user", None, attachments=[voice]).position
        engine.compact("s", "so far", keep_last=1)
    text = run("sessions", "show", "s").stdout
    shown = run("sessions", "show", "s", "--json").json["messages"]

    assert "[audio: /v.ogg]\n  hello\n" in text
    assert f"[copy of #{heard}]" in text
    assert "[summary]" in text
    assert [(each["summary"], each["copy_of"]) for each in shown] == [
        (False, None),
        (False, None),
        (True, None),
        (False, heard),
    ]
    assert shown[3]["attachments"] == [{"path": "/v.ogg", "kind": "audio", "text": "hello"}]
