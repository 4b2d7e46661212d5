"""`retold resume`, and its short forms: which session is meant, what is opened, and what is shown of it.

Over 400 lines because it is one command from all its sides: name, end, point, view, panel and folder.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold.cli.output import cell_width
from retold.domain.message import Message
from retold.domain.view import NO_RESULT
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.terminal import VARIABLE, terminal_id, workspaces
from retold.tests.histories import T0_US, history
from retold.tests.terminal import on_a_terminal

if TYPE_CHECKING:
    from retold.tests.conftest import Run, RunProcess

KEY = "agent:main:telegram:dm:1001"


def talk(engine: SessionEngine, session_id: str, *said: str, source: str = "cli", **more: Any) -> str:
    engine.create_session(source, session_id=session_id, **more)
    for number, text in enumerate(said or ("hello", "hi")):
        engine.append_message(session_id, ("user", "assistant")[number % 2], text)
    return session_id


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's terminal, and a folder of no project."""
    monkeypatch.setenv(VARIABLE, "none of those")
    monkeypatch.chdir(tmp_path)


# --- which one --------------------------------------------------------------------------------------


def test_i11_to_continue_is_to_go_on_with_what_was_used_last_in_this_store(
    run: Run, home: Path, tmp_path: Path
) -> None:
    other = tmp_path / "another home"
    with open_home(home) as engine:
        for each in ("foo", "bar", "foo"):
            if each == "foo" and engine.head().position:
                engine.append_message(each, "user", "again")
            else:
                talk(engine, each)
    with open_home(other) as engine:
        talk(engine, "elsewhere")

    assert run("resume", "--json").json["session_id"] == "foo"
    assert run("-c", "--json").json["session_id"] == "foo"
    assert run("-r", "LATEST ", "--json").json["session_id"] == "foo"
    assert run("-c", "--json", "--home", other).json["session_id"] == "elsewhere"


def test_the_last_session_of_the_terminal_goes_before_that_of_the_folder_and_that_before_all(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "src").mkdir()
    monkeypatch.setenv(VARIABLE, "one")
    one = terminal_id()
    with open_home(home) as engine:
        talk(engine, "ours", chat_id=one)
        talk(engine, "projects", cwd=str(project / "src"), git_repo_root=str(project))
        talk(engine, "newest")
        talk(engine, "chats", source="telegram", key=KEY)
    found = []
    for terminal, folder in (("one", project), ("two", project / "src"), ("two", tmp_path)):
        monkeypatch.setenv(VARIABLE, terminal)
        monkeypatch.chdir(folder)
        found.append(run("-c", "--json").json)

    assert [(each["session_id"], each["scope"]) for each in found] == [
        ("ours", "terminal"),
        ("projects", "workspace"),
        ("newest", "all"),
    ]
    assert run("resume", "--in", project / "src", "--json").json["session_id"] == "projects"
    monkeypatch.setenv(VARIABLE, "one")
    assert run("-c", "--in", project, "--json").json["session_id"] == "projects"


def test_a_folder_without_a_session_or_none_at_all_is_said_and_nothing_is_begun(
    run: Run, home: Path, tmp_path: Path
) -> None:
    with open_home(home) as engine:
        talk(engine, "chats", source="telegram", key=KEY)
        head = engine.head().position
    nobody = run("resume")
    gone = run("resume", "--in", tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    empty = run("-c", "--in", tmp_path / "empty")

    assert (nobody.exit_code, gone.exit_code, empty.exit_code) == (2, 2, 2)
    assert "no previous session of a terminal was found to go on with" in nobody.stderr
    assert f"--in directory not found: {tmp_path / 'gone'}" in gone.stderr
    assert f"no session of a terminal is of {tmp_path / 'empty'}" in empty.stderr
    with open_home(home) as engine:
        assert engine.head().position == head


def test_a_name_is_an_id_then_the_beginning_of_one_then_a_title(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        talk(engine, "20260501_a", title="plan")
        talk(engine, "20260501_b", title="plan #2")
        talk(engine, "20260502_c")
        talk(engine, "20260503_d", title="latest")
    several = run("-r", "2026050", "--json")

    assert run("-r", "20260501_a", "--json").json["session_id"] == "20260501_a"
    assert run("-r", "20260502", "--json").json["session_id"] == "20260502_c"
    assert run("-c", "plan", "--json").json["session_id"] == "20260501_b"
    assert run("-c", "latest", "--json").json["session_id"] == "20260503_d"
    assert several.exit_code == 2
    assert several.json["error"]["candidates"] == ["20260501_a", "20260501_b", "20260502_c", "20260503_d"]
    assert run("-r", "nobody").exit_code == 2
    assert "no session has the id or title 'nobody'" in run("-r", "nobody").stderr
    assert "names no session" in run("-r").stderr


def test_c4_a_title_is_one_sessions_of_all_sources_and_that_one_is_resumed(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        talk(engine, "chat", source="telegram", key=KEY, title="P")
        talk(engine, "terminal", title="Q")
        assert engine.session("terminal").title == "Q"
    refused = run("sessions", "rename", "terminal", "P")

    assert run("-c", "P", "--json").json["session_id"] == "chat"
    assert refused.exit_code == 3
    assert "chat" in refused.stderr
    assert run("-c", "Q", "--json").json["session_id"] == "terminal"


def test_c17_a_new_name_resumes_at_once_and_three_compactions_are_one_row(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        at = talk(engine, "s", title="old name")
        for number in range(3):
            at = engine.compress_session(at, f"summary {number}").session_id
            engine.append_message(at, "user", f"after {number}")
    run("sessions", "rename", at, "new name")
    done = run("-c", "new name", "--json").json

    assert (done["session_id"], done["title"]) == (at, "new name")
    assert [each["id"] for each in run("sessions", "list", "--json").json["sessions"]] == [at]
    assert len(run("sessions", "show", at, "--json").json["lineage"]) == 4
    assert run("-r", "s", "--json").json["session_id"] == at


# --- what is opened ---------------------------------------------------------------------------------


def test_i8_who_goes_on_at_the_command_line_writes_to_what_it_reads(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        talk(engine, "s1")
        engine.end_session("s1", "cli_close")
    done = run("resume", "s1", "--format", "openai", "--reopen", "--json").json
    with open_home(home) as engine:
        engine.append_messages(done["session_id"], [Message("user", "and?"), Message("assistant", "dry")])
    after = run("sessions", "list", "--json").json["sessions"]

    assert [each["content"] for each in done["messages"]] == ["hello", "hi"]
    assert done["reopened_from"] == "cli_close"
    assert [(each["id"], each["message_count"], each["end_reason"]) for each in after] == [("s1", 4, None)]


def test_a_person_opens_any_end_and_that_can_be_taken_back(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        first = talk(engine, "first", source="telegram", key=KEY, chat_id="1001")
        engine.reset(KEY)
    done = run("resume", first, "--json").json
    audit = run("audit")
    again = run("resume", first)
    run("undo", str(done["positions"][-1]))

    assert done["reopened_from"] == "session_reset"
    assert (audit.exit_code, audit.stdout) == (0, "1 chat, no findings\n")
    assert "takes it back" not in again.stderr
    assert f"Its chat, {KEY}, leads to" in again.stderr
    with open_home(home) as engine:
        assert engine.session(first).hard_end
        assert engine.route_of(KEY) != first


def test_a_conversation_that_was_compressed_goes_on_in_its_last_segment(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        talk(engine, "s", "hello", "hi", "dry?", "yes", title="plan")
        tip = engine.compress_session("s", "what was said", keep_last=1).session_id
        engine.append_message(tip, "user", "and now?")
    done = run("resume", "s")

    assert (
        f"Session s was compressed into {tip}; resuming the descendant with your transcript." in done.stdout
    )
    assert "● You: hello" in done.stdout
    assert "what was said" not in done.stdout
    assert done.stdout.count("◆ Agent: yes") == 1


def test_a_view_alone_changes_nothing_and_says_how_to_go_on(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        talk(engine, "s")
        engine.end_session("s", "cli_close")
        head = engine.head().position
    done = run("resume", "s", "--format", "anthropic")

    assert json.loads(done.stdout) == {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "hi"}]},
        ]
    }
    assert "It has ended (cli_close); to go on with it: retold resume s\n" in done.stderr
    with open_home(home) as engine:
        assert engine.head().position == head
        assert engine.session("s").ended


@pytest.mark.parametrize("in_place", [False, True])
def test_i13_an_agent_is_given_the_last_compaction_and_all_that_came_later(
    run: Run, home: Path, in_place: bool
) -> None:
    with open_home(home) as engine:
        talk(engine, "s", *(f"before {number}" for number in range(6)))
        at = engine.compress("s", "the summary", in_place=in_place).session_id
        for number in range(4):
            engine.append_message(at, ("user", "assistant")[number % 2], f"later {number}")
    done = run("resume", "s", "--format", "openai", "--json").json

    assert done["session_id"] == at
    assert [each["content"] for each in done["messages"]] == [
        "the summary",
        *(f"later {number}" for number in range(4)),
    ]


def test_i15_what_an_agent_is_given_never_begins_with_a_result(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        talk(engine, "s", "look")
        calls = [
            {"id": name, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for name in "ab"
        ]
        engine.append_message("s", "assistant", None, tool_calls=calls)
        engine.append_message("s", "tool", "a.txt", tool_call_id="a", tool_name="ls")
    whole = run("resume", "s", "--format", "openai").stdout
    end = run("resume", "s", "--format", "openai", "--last", "1", "--json").json
    text = run("resume", "s", "--format", "text")

    assert [each["role"] for each in json.loads(whole)["messages"]] == ["user", "assistant", "tool", "tool"]
    assert json.loads(whole)["messages"][-1] == {"role": "tool", "tool_call_id": "b", "content": NO_RESULT}
    assert end["messages"] == []
    assert "was left out: its call is not in this view" in end["warnings"][0]
    assert text.stdout.splitlines()[:4] == ["[user]", "look", "", "[assistant]"]
    assert "[tool ls (nothing is on record)]" in text.stdout
    assert "no result of its call b is on record" in text.stderr


def test_i10_a_resume_that_finds_fewer_messages_than_were_counted_says_so(run: Run, home: Path) -> None:
    import apsw

    with open_home(home) as engine:
        talk(engine, "s")
    apsw.Connection(str((home / "state.db").resolve())).execute(
        "UPDATE sessions SET message_count = 3 WHERE id = 's'"
    )

    assert "session s has 2 messages where 3 were counted" in run("resume", "s").stderr
    assert "session s has 2 messages where 3 were counted" in run("resume", "s", "--format", "text").stderr


def test_an_empty_session_is_said_to_be_one(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="s")

    assert run("resume", "s").stdout == "Session s found but has no messages. Starting fresh.\n"


# --- from a point -----------------------------------------------------------------------------------


def test_from_a_point_a_branch_goes_on_and_nothing_is_overwritten(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        talk(engine, "s", "one", "two", title="plan")
        there = engine.append_message("s", "user", "three").position
        engine.compress("s", "summed up", in_place=True)
        engine.append_message("s", "user", "four")
        before = engine.view("s").messages
    seen = run("resume", "plan", "--at", f"#{there}", "--format", "openai", "--json").json
    done = run("resume", "plan", "--at", f"#{there}", "--json").json
    with open_home(home) as engine:
        branch = engine.session(done["session_id"])
        view = engine.view(branch.id)

        assert engine.view("s").messages == before
    assert [each["content"] for each in seen["messages"]] == ["one", "two", "three"]
    assert (seen["session_id"], seen["branch_of"]) == ("s", None)
    assert (branch.parent_id, branch.parent_kind, done["branch_of"]) == ("s", "branch", "s")
    assert [each.content for each in view.messages] == ["one", "two", "three"]
    assert run("-c", "--json").json["session_id"] == branch.id  # what was used last is the branch
    assert {each["place"]: each for each in run("where", "s", "--json").json["places"]}["latest"][
        "session_id"
    ] == (branch.id)
    assert "retold undo" in run("resume", "plan", "--at", f"#{there}").stderr
    with open_home(home) as engine:
        engine.append_message("s", "user", "five")
    assert run("-c", "--json").json["session_id"] == "s"


def test_a_branch_from_a_point_is_of_the_segment_of_then_and_leaves_the_chat_alone(
    run: Run, home: Path
) -> None:
    with open_home(home) as engine:
        talk(engine, "s", "one", "two", source="telegram", key=KEY)
        there = engine.head().position
        tip = engine.compress_session("s", "summed up").session_id
        first = engine.event_log.head().position
    done = run("resume", tip, "--at", f"#{there}", "--json").json
    early = run("resume", tip, "--at", "#0")
    late = run("resume", tip, "--at", f"#{first + 1_000}")

    assert done["branch_of"] == "s"
    with open_home(home) as engine:
        assert engine.route_of(KEY) == tip
    assert run("audit").exit_code == 0
    assert (early.exit_code, late.exit_code) == (2, 2)
    assert "had not begun at #0" in early.stderr
    assert "the log ends at" in late.stderr


# --- what a person sees -----------------------------------------------------------------------------


def told(home: Path, **display: object) -> None:
    (home / "config.yaml").write_text(json.dumps({"display": display}), encoding="utf-8")


def test_the_panel_shows_the_last_ten_exchanges_and_the_last_answer_whole(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        talk(engine, "s", *(f"{number}\n{'x' * 250}" for number in range(24)))
    shown = run("resume", "s").stdout.splitlines()
    told(home, resume_exchanges=1, resume_max_user_chars=5)
    short = run("resume", "s").stdout

    assert shown[0] == "↻ Resumed session s (12 user messages, 24 total messages)"
    assert shown[2:5] == ["Previous Conversation", "  ... 4 earlier messages ...", ""]
    assert shown[5:9] == [
        "  ● You: 4",
        " " * 9 + "x" * 250,
        "  ◆ Agent: 5",
        " " * 12 + "x" * 198 + "...",
    ]
    assert shown[-2:] == ["  ◆ Agent: 23", " " * 12 + "x" * 250]
    assert "... 22 earlier messages ..." in short
    assert "  ● You: 22\n         xx...\n" in short


def test_a_minimal_resume_is_a_line(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        talk(engine, "s", title="plan")
    told(home, resume_display="minimal")

    assert run("-r", "plan").stdout == '↻ Resumed session s "plan" (1 user message, 2 total messages)\n'


def test_a_box_fits_its_terminal_and_nothing_in_it_has_power_over_it(home: Path) -> None:
    with open_home(home) as engine:
        talk(engine, "s", "\x1b[2Jlong " * 40, "weit 🚤 세션 " * 30, title="\x1b]0;x\x07plan")
    for columns in (30, 80):
        sent = on_a_terminal(
            "resume", "s", env={"RETOLD_HOME": str(home), "NO_COLOR": "1"}, columns=columns
        ).splitlines()
        box = [each for each in sent if each.startswith(("╭", "│", "╰"))]

        assert box
        assert "\x1b" not in "".join(sent)
        assert {cell_width(each) for each in box} == {columns}


def test_the_folder_of_a_session_is_said_and_a_command_is_run_in_it(
    run: Run, run_process: RunProcess, home: Path, tmp_path: Path
) -> None:
    project = tmp_path / "a project"
    project.mkdir()
    with open_home(home) as engine:
        talk(engine, "s", cwd=str(project))
        talk(engine, "gone", cwd=str(tmp_path / "gone"))
    ran = run_process("resume", "s", "--run", "sh -c 'pwd; echo $RETOLD_SESSION_ID'")
    stays = run_process("resume", "s", "--no-restore-cwd", "--run", "pwd")
    bad = [run_process("resume", "s", "--run", each) for each in ("no-such-program-here", "'", " ")]

    assert f"↪ its workspace dir: cd '{project}'" in run("resume", "s").stderr
    assert "↪" not in run("resume", "s", "--no-restore-cwd").stderr
    assert (
        f"⚠ session's recorded dir is gone ({tmp_path / 'gone'}); staying in" in run("resume", "gone").stderr
    )
    assert ran.stdout.splitlines()[-2:] == [str(project), "s"]
    assert f"↪ restored workspace dir: {project}" in ran.stderr
    assert stays.stdout.splitlines()[-1] == os.getcwd()
    assert [each.exit_code for each in bad] == [2, 2, 2]
    assert "no-such-program-here cannot be run: No such file or directory" in bad[0].stderr


@pytest.mark.parametrize(
    "given", [("--last", "3"), ("--reopen",), ("--run", "x", "--json"), ("--run", "x", "--format", "text")]
)
def test_options_that_make_no_sense_together_are_refused(
    run: Run, home: Path, given: tuple[str, ...]
) -> None:
    with open_home(home) as engine:
        talk(engine, "s")

    assert run("resume", "s", *given).exit_code == 2


# --- any length -------------------------------------------------------------------------------------


def test_k4_a_session_of_300_000_messages_is_resumed_by_its_end_and_never_loaded_whole(
    run: Run, home: Path
) -> None:
    with history(home) as h:
        h.session("s", at_us=T0_US)
        for _ in range(60):
            with h.together():
                for number in range(5_000):
                    h.say("s", "hello there", ("user", "assistant")[number % 2])
    run("sessions", "stats")
    began = time.process_time()
    done = run("resume", "s", "--json")
    took_s = time.process_time() - began
    refused = run("resume", "s", "--format", "openai")
    end = run("resume", "s", "--format", "openai", "--last", "100", "--json").json

    assert done.json["message_count"] == 300_000
    assert len(done.json["recap"]) == 20
    assert took_s < 1.0
    assert refused.exit_code == 3
    assert "300,000 messages in its context; 20,000 are given at most" in refused.stderr
    assert "--last 1000" in refused.stderr
    assert len(end["messages"]) == 100
    assert "... more than 4,980 earlier messages ..." in run("resume", "s").stdout


# --- a terminal's name ------------------------------------------------------------------------------


def test_a_terminal_has_one_name_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for pane in ("%1", "%1", "%2"):
        monkeypatch.delenv(VARIABLE, raising=False)
        monkeypatch.setenv("TMUX", "/tmp/tmux-1000/default,1,0")
        monkeypatch.setenv("TMUX_PANE", pane)
        names.append(terminal_id())

    assert names[0] == names[1] != names[2]
    assert names[0] is not None
    assert names[0].startswith("terminal-")
    assert "tmux" not in names[0].removeprefix("terminal-")


def test_a_project_is_its_repository_through_links_too(tmp_path: Path) -> None:
    (tmp_path / "real" / ".git").mkdir(parents=True)
    (tmp_path / "real" / "src").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "plain").mkdir()

    assert workspaces(tmp_path / "link" / "src") == (str(tmp_path / "link"), str(tmp_path / "real"))
    assert workspaces(tmp_path / "plain") == (str(tmp_path / "plain"),)
