"""`retold sessions export --format trace`: the form of Claude Code's logs, and redacted by default."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from retold.infrastructure.redaction.finding import Finder
from retold.tests.conftest import Run
from retold.tests.histories import SECOND_US, T0_US, history
from retold.tests.peer import peer_python

TOKEN = "ghp" + "_Wm4kT8vN2xR6yB0cF3hJ7qL1sD5gP9zA4eU8"
TRACE = ("sessions", "export", "--format", "trace")
_OF_THIS_RUN = ("uuid", "parentUuid", "timestamp", "cwd", "gitBranch")


@pytest.fixture
def told(home: Path) -> Path:
    with history(home) as h:
        h.session("s1", source="telegram", title="boat", model="m1", cwd="/boats", at_us=T0_US)
        h.say("s1", "be kind", "system", at_us=T0_US + SECOND_US)
        h.say("s1", f"the token is {TOKEN}", at_us=T0_US + 2 * SECOND_US)
        calls = [{"id": "c1", "function": {"name": "look", "arguments": json.dumps({"key": TOKEN})}}]
        calls += [{"function": {"name": "odd", "arguments": "{not json"}}]
        h.say("s1", None, "assistant", tool_calls=json.dumps(calls), at_us=T0_US + 3 * SECOND_US)
        h.say("s1", "tar", "tool", tool_call_id="c1", tool_name="look", at_us=T0_US + 4 * SECOND_US)
        parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
        h.say("s1", f"\0json:{json.dumps(parts)}", at_us=T0_US + 5 * SECOND_US)
        h.end("s1", "user_exit")
        h.session("s2", source="telegram", at_us=T0_US + 60 * SECOND_US)
        h.say("s2", "세션", at_us=T0_US + 61 * SECOND_US)
        h.end("s2", "user_exit")
        h.session("empty", source="cli", at_us=T0_US)
        h.end("empty", "user_exit")
    return home


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in text.splitlines()]


@pytest.mark.usefixtures("told")
def test_a_trace_is_a_line_a_message_each_naming_the_one_before(run: Run) -> None:
    done = run(*TRACE, "--session-id", "s1", "--no-redact")
    asked, called, result, seen = found = lines(done.stdout)

    assert (done.exit_code, done.stderr) == (0, "")
    assert [each["parentUuid"] for each in found] == [None, *(each["uuid"] for each in found[:-1])]
    assert len({each["uuid"] for each in found}) == 4
    assert len({each["timestamp"] for each in found}) == 1
    assert {(each["cwd"], each["sessionId"], each["version"]) for each in found} == {
        ("/boats", "s1", "hermes-agent")
    }
    assert asked["message"] == {"role": "user", "content": f"the token is {TOKEN}"}
    look, odd = called["message"]["content"]
    assert (called["type"], called["message"]["model"]) == ("assistant", "m1")
    assert look == {"type": "tool_use", "id": "c1", "name": "look", "input": {"key": TOKEN}}
    assert (odd["id"][:6], odd["input"]) == ("toolu_", {"_raw": "{not json"})
    assert result["type"] == "user"
    assert result["message"]["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": "tar"}]
    assert [each["text"] for each in seen["message"]["content"]] == ["see", "[image omitted]"]


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("args", [(), ("--redact",)])
def test_a_trace_is_redacted_unless_asked_otherwise(run: Run, args: tuple[str, ...]) -> None:
    done = run(*TRACE, "--session-id", "s1", *args)

    assert TOKEN not in done.stdout + done.stderr
    assert lines(done.stdout)[1]["message"]["content"][0]["input"] == {"key": "ghp_Wm...4eU8"}
    assert "Redacted: 2 secrets in 1 session" in done.stderr


@pytest.mark.usefixtures("told")
def test_where_redaction_fails_no_trace_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Finder, text: str) -> Any:
        raise ValueError(text)

    monkeypatch.setattr(Finder, "mask", broken)
    done = run(*TRACE, "--session-id", "s1", tmp_path / "t.jsonl")

    assert (done.exit_code, done.stdout) == (3, "")
    assert "Redaction failed; refusing to export unredacted trace content." in done.stderr
    assert list(tmp_path.glob("*.jsonl")) == []


@pytest.mark.usefixtures("told")
def test_where_no_session_is_named_it_is_the_last_one_used(run: Run, tmp_path: Path) -> None:
    assert {each["sessionId"] for each in lines(run(*TRACE).stdout)} == {"s2"}
    assert "세션" in run(*TRACE, "-").stdout
    done = run(*TRACE, tmp_path / "t.jsonl")

    assert done.stdout == f"Exported 1 session trace to {tmp_path / 't.jsonl'}\n"
    assert (tmp_path / "t.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("told")
def test_filters_make_a_file_each_and_one_match_the_file_that_is_named(run: Run, tmp_path: Path) -> None:
    many = run(*TRACE, "--source", "telegram", tmp_path / "all")
    one = run(*TRACE, "--title", "boat", tmp_path / "one.jsonl")
    into = run(*TRACE, "--title", "boat", tmp_path / "all", "--force")

    assert many.stdout == f"Exported 2 session trace(s) to {tmp_path / 'all'}\n"
    assert sorted(each.name for each in (tmp_path / "all").iterdir()) == ["s1.trace.jsonl", "s2.trace.jsonl"]
    assert one.stdout == f"Exported 1 session trace to {tmp_path / 'one.jsonl'}\n"
    assert into.stdout == f"Exported 1 session trace(s) to {tmp_path / 'all'}\n"


def test_traces_go_into_the_homes_folder_where_none_is_named(told: Path, run: Run) -> None:
    assert run(*TRACE, "--source", "telegram").exit_code == 0
    assert (told / "session-exports" / "s2.trace.jsonl").is_file()

    again = run(*TRACE, "--source", "telegram")
    assert again.stdout == f"Exported 0 session trace(s) to {told / 'session-exports'}\n"
    assert "Skipping existing export" in again.stderr


def test_one_trace_in_a_folder_bears_its_session_s_id(told: Path, run: Run, tmp_path: Path) -> None:
    assert run(*TRACE, tmp_path).stdout == f"Exported 1 session trace to {tmp_path / 's2.trace.jsonl'}\n"
    assert told.is_dir()


def test_of_many_those_without_a_message_are_named(told: Path, run: Run, tmp_path: Path) -> None:
    with history(told) as h:
        h.session("told", source="cli", at_us=T0_US)
        h.say("told", "be kind", "system", at_us=T0_US)
    done = run(*TRACE, "--all", tmp_path / "t")
    answer = run(*TRACE, "--all", tmp_path / "t", "--force", "--json").json

    assert "2 sessions have no messages and no trace: told, empty" in done.stderr
    assert (answer["exported"], answer["empty"]) == (2, ["told", "empty"])
    assert sorted(each.name for each in (tmp_path / "t").iterdir()) == ["s1.trace.jsonl", "s2.trace.jsonl"]


@pytest.mark.usefixtures("told")
def test_what_has_no_messages_is_no_trace(run: Run, tmp_path: Path) -> None:
    done = run(*TRACE, "--session-id", "empty", tmp_path / "t.jsonl")

    assert (done.exit_code, done.stdout) == (3, "")
    assert "No transcript to export for session 'empty'." in done.stderr
    assert not (tmp_path / "t.jsonl").exists()


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--only", "user-prompts"), "--only user-prompts supports --format jsonl or md."),
        (("--lineage", "logical"), "a trace is of one session"),
        (("-", "--source", "cli"), "traces of many sessions are a file each"),
        (("--public",), "--public says where --upload sends it"),
    ],
)
def test_what_makes_no_sense_of_a_trace_is_refused(run: Run, args: tuple[str, ...], said: str) -> None:
    done = run(*TRACE, *args)

    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_trace_says_what_hermes_says(run: Run, hermes_home: Path, tmp_path: Path) -> None:
    run("import", "hermes", hermes_home)
    run("sessions", "export", tmp_path / "ids.jsonl")
    every = [each["id"] for each in lines((tmp_path / "ids.jsonl").read_text("utf-8")) if each["messages"]]
    script = (
        "import json, sys\nfrom agent.trace_upload import build_trace_jsonl\n"
        "from hermes_state import SessionDB\n"
        "db = SessionDB()\n"
        "for sid in json.loads(sys.argv[1]):\n"
        "    meta, said = db.get_session(sid) or {}, db.get_messages_as_conversation(sid)\n"
        "    text = build_trace_jsonl(said, session_id=sid, model=meta.get('model') or '', redact=False)\n"
        "    print(json.dumps(text))\n"
    )
    done = subprocess.run(
        [peer_python(), "-c", script, json.dumps(every)],
        env=os.environ | {"HERMES_HOME": str(hermes_home), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = dict(zip(every, map(json.loads, done.stdout.splitlines()), strict=True))

    def plain(text: str) -> list[dict[str, Any]]:
        found = [{k: v for k, v in each.items() if k not in _OF_THIS_RUN} for each in lines(text)]
        for said in (each["message"] for each in found):
            # It trims what people and the assistant said; here it is as it was.
            if isinstance(said["content"], str):
                said["content"] = said["content"].strip()
            for block in said["content"] if isinstance(said["content"], list) else ():
                if block["type"] == "text":
                    block["text"] = block["text"].strip()
        return found

    assert len(every) > 40
    run(*TRACE, "--all", tmp_path / "ours", "--no-redact")
    for each in every:
        ours = (tmp_path / "ours" / f"{each}.trace.jsonl").read_text("utf-8")
        assert plain(ours) == plain(theirs[each]), each
        assert set(lines(ours)[0]) == set(lines(theirs[each])[0])
