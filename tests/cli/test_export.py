"""`retold sessions export`: what is written, where, and what is never written over.

Over 400 lines because every test exports the same few sessions; where to, and the field cases, stand apart.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold.domain import events as e
from retold.infrastructure.engine import open_home
from retold.tests.conftest import FIXTURES, ROOT
from retold.tests.histories import SECOND_US, T0_US, history
from retold.tests.peer import peer_python

if TYPE_CHECKING:
    from retold.tests.conftest import Run

ZERO = "20260504_080000_b33d43d5"
ONE = "20260508_141930_46dc1a26"


@pytest.fixture
def told(home: Path) -> Path:
    """A conversation of two segments, the second carrying a message along; an open chat; one put away."""
    with history(home) as h:
        h.session(ZERO, source="telegram", title="Plan: Ünï", cwd="/boats", at_us=T0_US)
        h.say(ZERO, "how do I mend the boat?", platform_message_id="77")
        call = '[{"id":"c1","function":{"name":"web_search","arguments":"{}"}}]'
        h.say(ZERO, None, "assistant", tool_calls=call)
        h.say(ZERO, "tar", "tool", tool_name="web_search", tool_call_id="c1")
        gone = h.say(ZERO, "this was undone")
        h.rewind(ZERO, [gone])
        kept = h.say(ZERO, "세션 기록", "user")
        h.compress(ZERO, ONE, source="telegram", title="Plan: Ünï #2")
        h.say(ONE, "So far: tar.", "user", summary=True)
        h.say(ONE, "세션 기록", "user", copy_of=kept)
        h.say(ONE, '\0json:[{"type":"text","text":"like this?"}]')
        h.end(ONE, "user_exit")
        h.session("open", source="telegram")
        h.say("open", "still here")
        h.session("away", source="cli")
        h.archive("away")
    return home


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in text.splitlines()]


def exported(run: Run, *args: str) -> list[dict[str, Any]]:
    return lines(run("sessions", "export", "-", *args).stdout)


# --- jsonl ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("told")
def test_everything_is_a_line_a_session_the_last_used_first(run: Run, tmp_path: Path) -> None:
    done = run("sessions", "export", tmp_path / "all.jsonl")
    found = lines((tmp_path / "all.jsonl").read_text("utf-8"))

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"Exported 4 sessions to {tmp_path / 'all.jsonl'}\n"
    assert [each["id"] for each in found] == ["away", "open", ONE, ZERO]
    assert found[1]["last_active"] == found[1]["messages"][0]["timestamp"]
    assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("told")
def test_a_line_holds_what_is_live_decoded_and_readable(run: Run) -> None:
    done = run("sessions", "export", "-", "--session-id", ZERO)
    (found,) = lines(done.stdout)

    assert [each["content"] for each in found["messages"]] == [
        "how do I mend the boat?",
        None,
        "tar",
        "세션 기록",
    ]
    assert found["messages"][1]["tool_calls"][0]["function"]["name"] == "web_search"
    assert "세션 기록" in done.stdout
    assert "undone" not in done.stdout
    assert "last_active" not in found  # REFERENCE.md 5.1: of everything only
    assert exported(run, "--session-id", ONE)[0]["messages"][2]["content"][0]["text"] == "like this?"


def test_a_line_says_what_hermes_says(run: Run, hermes_home: Path, tmp_path: Path) -> None:
    hermes = peer_python().with_name("hermes")
    subprocess.run(
        [hermes, "sessions", "export", tmp_path / "hermes.jsonl"],
        env=os.environ | {"HERMES_HOME": str(hermes_home), "PYTHONPATH": ""},
        check=True,
        capture_output=True,
        timeout=120,
    )
    theirs = lines((tmp_path / "hermes.jsonl").read_text("utf-8"))
    run("import", "hermes", hermes_home)
    ours = exported(run)
    differing = {
        (mine["id"], name)
        for mine, other in zip(ours, theirs, strict=True)
        for name in other
        if name != "messages" and mine[name] != other[name]
    }

    assert [each["id"] for each in ours] == [each["id"] for each in theirs]
    assert [each["messages"] for each in ours] == [each["messages"] for each in theirs]
    assert {set(mine) - set(other) == {"pinned"} for mine, other in zip(ours, theirs, strict=True)} == {True}
    # It counts two rows that were undone, and takes their time for the session's activity.
    assert {name for _, name in differing} == {"message_count", "last_active"}
    assert len({session for session, _ in differing}) == 1


@pytest.mark.usefixtures("told")
def test_a_source_means_what_has_ended_and_the_rest_is_named(run: Run) -> None:
    done = run("sessions", "export", "-", "--source", "telegram")

    assert [each["id"] for each in lines(done.stdout)] == [ONE, ZERO]
    assert "1 session that matches has not ended and was passed over" in done.stderr


@pytest.mark.usefixtures("told")
def test_a_dry_run_shows_what_the_filters_select_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    args = ("sessions", "export", tmp_path / "x.jsonl", "--source", "telegram", "--dry-run")
    done = run(*args)

    assert done.stdout == (
        f"Would export 2 session(s) (source 'telegram').\n  {ONE}  telegram\n  {ZERO}  telegram\n"
    )
    assert run(*args, "--json").json["sessions"] == [ONE, ZERO]
    assert not (tmp_path / "x.jsonl").exists()


def test_a_dry_run_lists_100_and_counts_the_rest(home: Path, run: Run) -> None:
    with history(home) as h:
        for number in range(103):
            h.session(f"s{number:03}", source="cli", at_us=T0_US + number * SECOND_US)
            h.end(f"s{number:03}", "user_exit")
    shown = run("sessions", "export", "-", "--source", "cli", "--dry-run").stdout.splitlines()

    assert shown[0] == "Would export 103 session(s) (source 'cli')."
    assert (len(shown), shown[1], shown[-1]) == (102, "  s102  cli", "  ... 3 more")


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("flag", "value"), [("--title", "ünï #2"), ("--min-messages", "3"), ("--end-reason", "user_exit")]
)
def test_filters_are_those_of_prune_and_take_archived_ones(run: Run, flag: str, value: str) -> None:
    assert ONE in [each["id"] for each in exported(run, flag, value)]


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("named", [ZERO, ONE, "Plan: Ünï"])
def test_e4_a_whole_conversation_is_exported_from_any_of_its_segments(run: Run, named: str) -> None:
    assert [each["id"] for each in exported(run, "--session-id", named, "--lineage", "logical")] == [
        ZERO,
        ONE,
    ]


@pytest.mark.usefixtures("told")
def test_a_whole_conversation_is_exported_once(run: Run) -> None:
    assert [each["id"] for each in exported(run, "--lineage", "logical")] == ["away", "open", ZERO, ONE]


def test_a_session_with_two_continuations_is_exported_once(run: Run, home: Path, tmp_path: Path) -> None:
    with history(home) as h:
        h.session("root", at_us=T0_US)
        h.say("root", "how do I mend the boat?")
        h.compress("root", "first", at_us=T0_US + 10 * SECOND_US)
        h.say("first", "tar")
        h.session(
            "second",
            parent_session_id="root",
            parent_kind="continuation",
            at_us=T0_US + 20 * SECOND_US,
        )
        h.say("second", "pitch", at_us=T0_US + 900 * SECOND_US)
        h.compress("second", "third", at_us=T0_US + 950 * SECOND_US)
    logical = ("--lineage", "logical")
    run("sessions", "export", tmp_path / "md", "--format", "md", "--all", *logical)
    pages = "".join(each.read_text("utf-8") for each in (tmp_path / "md").glob("*.md"))

    assert [each["id"] for each in exported(run, *logical)] == ["root", "second", "third", "first"]
    assert [each["id"] for each in exported(run, "--session-id", "first", *logical)] == ["root", "first"]
    assert [pages.count(each) for each in ("mend the boat", "tar\n", "pitch")] == [1, 1, 1]


@pytest.mark.usefixtures("told")
def test_e7_an_export_of_one_holds_nothing_of_another(run: Run) -> None:
    assert "mend the boat" not in run("sessions", "export", "-", "--session-id", "open").stdout


@pytest.mark.usefixtures("told")
def test_the_past_is_exported_as_it_was(run: Run) -> None:
    assert [each["id"] for each in exported(run, "--at", "#3")] == [ZERO]


def test_what_ends_a_line_elsewhere_is_escaped(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("s")
        h.say("s", "a\u2028b\x85c\nd")
    done = run("sessions", "export", "-")

    assert len(done.stdout.splitlines()) == 1
    assert lines(done.stdout)[0]["messages"][0]["content"] == "a\u2028b\x85c\nd"


def test_bytes_that_are_no_utf8_are_named(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("s")
        h.say("s", "a\ufffdb", odd={"content": e.Odd("text", b"a\xffb")})
    done = run("sessions", "export", "-")

    assert lines(done.stdout)[0]["messages"][0]["not_utf8"] == ["content"]
    assert "1 value held bytes that are no valid UTF-8" in done.stderr


@pytest.mark.parametrize("number", [123456789012345678901234567890, 0.1, -(2**63)])
def test_a_number_comes_out_as_it_went_in(run: Run, home: Path, number: float) -> None:
    with history(home) as h:
        h.session("s")
        h.say("s", f'\0json:{{"n": {number}}}')

    assert exported(run)[0]["messages"][0]["content"] == {"n": number}


def test_e11_a_session_is_exported_the_same_while_it_is_open_and_after(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        begun = engine.create_session("cli").session_id
        engine.append_message(begun, "user", "how do I mend the boat?")
        engine.append_message(begun, "assistant", "with tar")
        open_still = run("sessions", "export", "-").stdout
    closed = run("sessions", "export", "-").stdout
    run("projections", "rebuild")

    assert open_still == closed == run("sessions", "export", "-").stdout
    assert len(lines(closed)[0]["messages"]) == 2


@pytest.mark.usefixtures("told")
def test_whoever_erases_a_text_is_told_of_the_exports(run: Run, home: Path, tmp_path: Path) -> None:
    run("sessions", "export", tmp_path / "x.jsonl")
    run("sessions", "export", tmp_path / "x.jsonl", "--force")
    run("sessions", "export", tmp_path / "md", "--format", "md", "--session-id", "open")
    done = run("sessions", "delete", "open", "--now", "--yes", "--json")

    assert done.json["copies"] == [
        str(tmp_path / each) for each in ("x.jsonl", "md/manifest.jsonl", "md/open-session.md")
    ]
    assert len((home / "backups").read_text().splitlines()) == 2


# --- where it goes ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("told")
def test_a_file_that_is_there_is_left_alone_unless_forced(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("mine")
    refused = run("sessions", "export", file)

    assert refused.exit_code == 3
    assert f"Export already exists: {file}. Pass --force to overwrite." in refused.stderr
    assert file.read_text() == "mine"
    assert run("sessions", "export", file, "--force").exit_code == 0
    assert len(lines(file.read_text("utf-8"))) == 4
    assert sorted(os.listdir(tmp_path)) == ["mine.jsonl", "retold-home"]


@pytest.mark.usefixtures("told")
def test_a_folder_gets_a_file_that_says_what_it_holds(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    run("sessions", "export", folder)
    run("sessions", "export", folder, "--session-id", "open")

    assert sorted(each.name for each in folder.iterdir()) == ["open.jsonl", "sessions.jsonl"]


@pytest.mark.usefixtures("told")
def test_what_cannot_be_written_is_said_and_nothing_is_left(run: Run, tmp_path: Path) -> None:
    done = run("sessions", "export", tmp_path / "no" / "such.jsonl")

    assert done.exit_code == 2
    assert f"the folder {tmp_path / 'no'} is not there" in done.stderr
    assert not (tmp_path / "no").exists()


@pytest.mark.usefixtures("told")
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here: only Linux has it")
def test_a_disk_that_is_full_is_said_with_the_file(run: Run) -> None:
    done = run("sessions", "export", "/dev/full")

    assert done.exit_code == 4
    assert "something could not be written (/dev/full): No space left on device" in done.stderr


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "JSONL export requires an output path (use - for stdout)."),
        (
            ["-", "--format", "md", "--session-id", "open"],
            "Markdown/QMD export writes files; stdout (-) is only",
        ),
        (["x", "--format", "qmd"], "Refusing bulk export without a filter."),
        (
            ["-", "--only", "user-prompts", "--format", "qmd"],
            "--only user-prompts supports --format jsonl or md.",
        ),
        (["-", "--dry-run"], "--dry-run requires at least one filter."),
        (["-", "--older-than", "abc"], "Invalid value for --older-than: 'abc'"),
        (["-", "--json"], "--json answers where the export goes"),
        (["-", "--session-id", "open", "--source", "cli"], "exclude each other"),
        ([" "], "OUTPUT is empty"),
        (["-", "--session-id", "nope"], "no session has the id or title 'nope'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(run: Run, args: list[str], said: str) -> None:
    done = run("sessions", "export", *args)

    assert done.exit_code == 2
    assert said in " ".join((done.stdout + done.stderr).split())


@pytest.mark.usefixtures("told")
def test_the_answer_in_json_says_what_was_written(run: Run, tmp_path: Path) -> None:
    done = run("sessions", "export", tmp_path / "x.jsonl", "--source", "telegram", "--json")

    assert done.json == {
        "dry_run": False,
        "filters": "source 'telegram'",
        "sessions": [ONE, ZERO],
        "exported": 2,
        "messages": 7,
        "prompts": None,
        "files": [str(tmp_path / "x.jsonl")],
        "skipped": [],
        "empty": [],
        "passed_over": 1,
        "not_utf8": 0,
        "masked": None,
        "uploaded": None,
        "deleted": [],
        "erase_after_at": None,
    }


@pytest.mark.usefixtures("told")
def test_the_answer_in_json_is_what_the_contract_names(run: Run, tmp_path: Path) -> None:
    contract = (ROOT / "docs" / "json.md").read_text("utf-8")
    (section,) = re.findall(r"\n## retold sessions export\n(.*?)\n## ", contract, re.DOTALL)
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)

    assert set(run("sessions", "export", tmp_path / "x.jsonl", "--json").json) == {
        name for row in rows for name in re.findall(r"`([a-z_0-9]+)`", row)
    }


# --- prompts ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("told")
def test_prompts_are_a_record_each(run: Run) -> None:
    done = run("sessions", "export", "--only", "user-prompts", "--session-id", ZERO)
    first, second = lines(done.stdout)

    assert first == {
        "session_id": ZERO,
        "index": 1,
        "created_at": "2026-05-05T16:53:21Z",
        "role": "user",
        "text": "how do I mend the boat?",
        "message_id": 3,
        "event_id": "77",
    }
    assert (second["index"], second["text"]) == (2, "세션 기록")
    assert "event_id" not in second


@pytest.mark.usefixtures("told")
def test_prompts_make_a_page(run: Run, tmp_path: Path) -> None:
    done = run(
        "sessions",
        "export",
        tmp_path / "p.md",
        "--only",
        "user-prompts",
        "--format",
        "md",
        "--session-id",
        ZERO,
    )
    page = (tmp_path / "p.md").read_text("utf-8")

    assert done.stdout == f"Exported 2 prompts to {tmp_path / 'p.md'}\n"
    assert page.startswith(
        f"# User prompts for session {ZERO}\n- Session ID: `{ZERO}`\n- Source: `telegram`\n"
        "- Title: Plan: Ünï\n"
        "- Started: 2026-05-05T16:53:20Z\n- Messages: 4\n\n## 1. 2026-05-05T16:53:21Z\nMessage ID: `3`\n\n"
        "how do I mend the boat?\n\n## 2. "
    )
    assert page.endswith("\n\n세션 기록\n")


@pytest.mark.usefixtures("told")
def test_prompts_of_all_make_one_page_with_a_part_each(run: Run) -> None:
    page = run("sessions", "export", "--only", "user-prompts", "--format", "md").stdout

    assert page.startswith("# User prompts export\n\n## Session away\n")
    assert "_No user prompts found._\n\n## Session open\n" in page
    assert "\n### 1. 2026-" in page
    assert "So far" not in page  # nobody asked what a summary says


# --- md and qmd -------------------------------------------------------------------------------------


def page_of(run: Run, folder: Path, *args: str) -> str:
    run("sessions", "export", folder, "--format", "md", "--force", *args)
    (file,) = folder.glob("*.md")
    return file.read_text("utf-8")


@pytest.mark.usefixtures("told")
def test_a_page_has_the_form_that_hermes_gives_it(run: Run, tmp_path: Path) -> None:
    done = run("sessions", "export", tmp_path / "md", "--format", "md", "--session-id", ZERO)
    path = tmp_path / "md" / f"{ZERO}-plan-ünï.md"
    text = path.read_text("utf-8")
    keys = [line.split(":")[0] for line in text.split("---\n")[1].splitlines()]

    assert done.stdout == f"Exported 1 session (4 messages) to {path}\n"
    assert keys == [
        "session_id", "title", "source", "created_at", "updated_at", "ended_at", "model", "provider", "cwd",
        "archived", "message_count", "tool_call_count", "format", "exported_at", "exporter",
    ]  # fmt: skip
    assert 'title: "Plan: Ünï"\n' in text
    assert "model: null\n" in text
    assert (
        f"\n# Plan: Ünï\n\nSession ID: `{ZERO}`\n\nSource: `telegram`\n\nWorking directory: `/boats`\n"
        in text
    )
    assert "### User — 2026-05-05T16:53:21Z\n\nhow do I mend the boat?\n" in text
    assert "\n## Tool calls\n\n```json\n[\n  {\n" in text
    assert "### Tool — web_search — 2026-05-05T16:53:23Z\n\ntar\n" in text
    assert "\n\n## Export verification\n\n- Session id: " in text
    assert "undone" not in text


@pytest.mark.usefixtures("told")
def test_the_hash_in_a_page_is_that_of_the_page(run: Run, tmp_path: Path) -> None:
    text = page_of(run, tmp_path / "md", "--session-id", ZERO)
    found = re.search(r"- SHA256 of exported body: `([0-9a-f]{64})`\n$", text)
    assert found is not None
    manifest = lines((tmp_path / "md" / "manifest.jsonl").read_text("utf-8"))

    assert hashlib.sha256(text.replace(found[1], "pending").encode()).hexdigest() == found[1]
    assert manifest[0]["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert list(manifest[0]) == [
        "exported_at", "format", "lineage_session_ids", "message_count", "path", "session_id", "sha256",
    ]  # fmt: skip


@pytest.mark.usefixtures("told")
def test_hermes_own_check_passes_on_a_page(run: Run, tmp_path: Path) -> None:
    page_of(run, tmp_path / "md", "--session-id", ZERO)
    check = (
        "import sys, json; from hermes_cli.session_export_md import verify_export_file;"
        f"print(verify_export_file(sys.argv[1], {{'id': '{ZERO}', 'messages': [1, 2, 3, 4]}}))"
    )
    (file,) = (tmp_path / "md").glob("*.md")
    done = subprocess.run(
        [peer_python(), "-c", check, file],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": ""},
    )

    assert done.stdout.strip() == "(True, 'ok')"


@pytest.mark.usefixtures("told")
def test_e4_a_whole_conversation_is_one_page_with_each_message_once(run: Run, tmp_path: Path) -> None:
    text = page_of(run, tmp_path / "md", "--session-id", ZERO, "--lineage", "logical")

    assert f'lineage_session_ids: ["{ZERO}", "{ONE}"]\n' in text
    assert text.index(f"## Compression segment: {ZERO}\n") < text.index(f"## Compression segment: {ONE}\n")
    assert text.count("세션 기록") == 1
    assert "- Exported messages: `6`" in text
    assert [each.name for each in (tmp_path / "md").glob("*.md")] == [f"{ONE}-plan-ünï-2.md"]


def test_what_was_compacted_is_on_the_page(run: Run, home: Path, tmp_path: Path) -> None:
    with history(home) as h:
        h.session("s")
        first = h.say("s", "an old question")
        h.compact("s", [first])
        h.say("s", "a new one")
    text = page_of(run, tmp_path / "md", "--session-id", "s")

    assert "an old question" in text
    assert "- Source DB message count at export: `1`" in text


@pytest.mark.usefixtures("told")
def test_pages_that_are_there_are_skipped_and_named(run: Run, tmp_path: Path) -> None:
    args = ("sessions", "export", tmp_path / "md", "--format", "qmd", "--source", "telegram")
    first, again = run(*args), run(*args)

    assert first.stdout == f"Exported 2 sessions to {tmp_path / 'md'}\n"
    assert again.stdout == f"Exported 0 sessions to {tmp_path / 'md'}\n"
    assert again.stderr.count("Skipping existing export: ") == 2
    one = run("sessions", "export", tmp_path / "md", "--format", "qmd", "--session-id", ZERO)
    assert one.exit_code == 3


@pytest.mark.usefixtures("told")
def test_pages_go_beside_the_home_s_own_files_where_no_folder_is_named(run: Run, home: Path) -> None:
    run("sessions", "export", "--format", "md", "--session-id", "away")
    text = (home / "session-exports" / "away-session.md").read_text("utf-8")

    assert "## Messages\n\n_No messages in this session._\n\n## Export verification\n" in text


def test_a_page_never_leaves_its_folder(run: Run, home: Path, tmp_path: Path) -> None:
    with history(home) as h:
        h.session("../../up", title="../../../etc/passwd")
    run("sessions", "export", tmp_path / "md", "--format", "md", "--session-id", "../../up")

    (file,) = (tmp_path / "md").glob("*.md")
    assert re.fullmatch(r"-up-[0-9a-f]{8}-etc-passwd\.md", file.name)


def test_the_fixture_is_exported_with_valid_utf8_throughout(run: Run, tmp_path: Path) -> None:
    run("import", "hermes", FIXTURES / "hermes-home")
    run("sessions", "export", tmp_path / "all.jsonl")

    assert len(lines((tmp_path / "all.jsonl").read_bytes().decode("utf-8", "strict"))) == 57


# --- what no export may write over --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["events.db", "config.yaml", "state.db", "new.jsonl"])
def test_no_export_goes_among_the_files_of_the_home(run: Run, told: Path, name: str) -> None:
    done = run("sessions", "export", "--force", told / name)

    assert done.exit_code == 2
    assert "lies inside the home" in done.stderr
    assert run("verify").exit_code == 0


def test_a_database_is_not_written_over(run: Run, told: Path, hermes_home: Path) -> None:
    there = hermes_home / "state.db"
    before = there.read_bytes()
    done = run("sessions", "export", "--force", there)

    assert told.is_dir()
    assert done.exit_code == 3
    assert "is a database" in done.stderr
    assert there.read_bytes() == before
