"""`retold import jsonl`: what was exported comes back, once, and nothing that is here is written over."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold import Attachment
from retold.infrastructure.engine import open_home
from retold.tests.conftest import FIXTURES, ROOT

if TYPE_CHECKING:
    from retold.tests.conftest import Ran, Run

ODD = {"id": 7, "role": "user", "content": "hello", "timestamp": 1_778_000_000.5}


def session(session_id: str = "s1", *messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": session_id,
        "source": "cli",
        "started_at": 1_778_000_000.0,
        **fields,
        "messages": list(messages),
    }


def write(path: Path, *found: Any) -> Path:
    path.write_text(
        "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in found), "utf-8"
    )
    return path


def take(run: Run, path: Path, home: Path) -> Ran:
    return run("import", "jsonl", path, "--home", home, "--json")


def bytes_of(run: Run, home: Path, path: Path) -> bytes:
    assert run("sessions", "export", path, "--home", home).exit_code == 0
    return path.read_bytes()


def test_an_import_of_an_export_is_exported_byte_for_byte(run: Run, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    run("import", "hermes", FIXTURES / "hermes-home", "--home", one)
    first = bytes_of(run, one, tmp_path / "1.jsonl")
    done = take(run, tmp_path / "1.jsonl", two)

    assert done.exit_code == 0
    assert (done.json["taken"]["sessions"], done.json["taken"]["messages"]) == (57, 892)
    assert (done.json["lost"], done.json["skipped"]) == ([], [])
    assert bytes_of(run, two, tmp_path / "2.jsonl") == first


def test_what_began_here_comes_back_byte_for_byte(run: Run, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with open_home(one) as engine:
        begun = engine.create_session(
            "telegram", key="agent:main:telegram:dm:1", title="boat \u00fc", cwd="/x"
        )
        engine.append_message(
            begun.session_id, "user", "a\u2028b", attachments=[Attachment("/a.pdf", "document", "x")]
        )
        engine.append_message(begun.session_id, "assistant", [{"type": "text", "text": "hi"}])
        engine.append_message(begun.session_id, "user", "the tail")
        engine.compress_session(begun.session_id, "So far: hi.", keep_last=1)
    first = bytes_of(run, one, tmp_path / "1.jsonl")
    take(run, tmp_path / "1.jsonl", two)

    assert bytes_of(run, two, tmp_path / "2.jsonl") == first
    tree = run("sessions", "tree", begun.session_id, "--home", two, "--json").json["sessions"]
    assert [each["kind"] for each in tree] == ["root", "continuation"]
    assert run("verify", "--home", two).exit_code == 0


def test_a_second_run_brings_nothing(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", session("s1", ODD), session("s2", {**ODD, "id": 8}))
    take(run, file, tmp_path / "h")
    before = bytes_of(run, tmp_path / "h", tmp_path / "1")
    again = take(run, file, tmp_path / "h")

    assert (again.exit_code, again.json["taken"], again.json["skipped"]) == (0, {}, [])
    assert again.json["unchanged"] == {"sessions": 2, "messages": 2}
    assert bytes_of(run, tmp_path / "h", tmp_path / "2") == before


def test_an_export_taken_in_where_it_came_from_brings_nothing(run: Run, tmp_path: Path) -> None:
    with open_home(tmp_path / "h") as engine:
        engine.append_message(engine.create_session("cli", title="x").session_id, "user", "hello")
    bytes_of(run, tmp_path / "h", tmp_path / "1.jsonl")
    done = take(run, tmp_path / "1.jsonl", tmp_path / "h")

    assert (done.json["taken"], done.json["skipped"]) == ({}, [])
    assert done.json["unchanged"] == {"sessions": 1, "messages": 1}


def test_e8_two_files_of_one_name_are_two_sources(run: Run, tmp_path: Path) -> None:
    take(run, write(tmp_path / "a.jsonl", session("s1", ODD)), tmp_path / "h")
    take(run, write(tmp_path / "a.jsonl", session("s2", ODD)), tmp_path / "h")
    told = run("sessions", "list", "--all", "--json", "--home", tmp_path / "h").json["sessions"]

    assert {each["id"]: each["message_count"] for each in told} == {"s1": 1, "s2": 1}


def test_a_session_that_is_here_is_never_written_over(run: Run, tmp_path: Path) -> None:
    take(run, write(tmp_path / "a.jsonl", session("s1", ODD)), tmp_path / "h")
    before = bytes_of(run, tmp_path / "h", tmp_path / "1")
    done = take(run, write(tmp_path / "a.jsonl", session("s1", {**ODD, "content": "other"})), tmp_path / "h")

    assert done.json["taken"] == {}
    assert done.json["skipped"][0].startswith(
        f"session s1: a session of this id came from the file {tmp_path}/a.jsonl"
    )
    assert bytes_of(run, tmp_path / "h", tmp_path / "2") == before


def test_whoever_erases_a_text_is_told_of_the_file(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", session("s1", ODD))
    take(run, file, tmp_path / "h")
    done = run("sessions", "delete", "s1", "--now", "--yes", "--json", "--home", tmp_path / "h")

    assert done.json["copies"] == [str(file)]


def test_a_deleted_session_stays_deleted(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", session("s1", ODD))
    take(run, file, tmp_path / "h")
    run("sessions", "delete", "s1", "--yes", "--home", tmp_path / "h")
    take(run, file, tmp_path / "h")
    take(run, write(tmp_path / "b.jsonl", session("s1", ODD), session("s2")), tmp_path / "h")

    told = run("sessions", "list", "--all", "--json", "--home", tmp_path / "h").json["sessions"]
    assert [each["id"] for each in told] == ["s2"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{torn", "it is no JSON"),
        ("[1]", "it is no object"),
        ('{"id": "x", "messages": 3}', "session 'x' has no list of messages"),
        ('{"messages": []}', "it has no session id"),
        ('{"id": "../up", "messages": []}', "cannot be a session's id"),
        ('{"id": "x", "messages": [{"content": "no role"}]}', "a message has no role"),
        ('{"id": "s1", "messages": []}', "a second session with the id 's1'"),
        ('{"id": "x", "n": 99999999999999999999, "messages": []}', "n is a number of more than 64 bits"),
        ('{"id": "x", "rowid": 1, "messages": []}', "'rowid' cannot be a column's name"),
        ('{"id": "x", "messages": ' + "[" * 200_000 + "]" * 200_000 + "}", "it is nested too deep"),
    ],
)
def test_a_bad_line_is_named_and_passed_over(run: Run, tmp_path: Path, line: str, why: str) -> None:
    file = write(tmp_path / "a.jsonl", session("s1", ODD), line, session("s2", {**ODD, "id": 8}))
    done = take(run, file, tmp_path / "h")

    assert done.exit_code == 1
    assert done.json["taken"]["sessions"] == 2
    assert len(done.json["lost"]) == 1
    assert done.json["lost"][0].startswith("line 2: ")
    assert why in done.json["lost"][0]


def test_a_line_of_other_bytes_is_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"id": "\xff"}\n' + json.dumps(session("s1", ODD)).encode() + b"\n")
    done = take(run, file, tmp_path / "h")

    assert done.exit_code == 1
    assert done.json["lost"] == ["line 1: it is no valid UTF-8 (byte 9)"]
    assert done.json["taken"]["sessions"] == 1


@pytest.mark.parametrize("text", ["", "\n\n", "{torn\n"])
def test_a_file_without_a_session_is_refused(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    done = run("import", "jsonl", tmp_path / "a.jsonl", "--home", tmp_path / "h")

    assert done.exit_code == 2
    assert "holds no session" in done.stderr


def test_a_file_that_is_not_there_makes_no_home(run: Run, tmp_path: Path) -> None:
    done = run("import", "jsonl", tmp_path / "no.jsonl", "--home", tmp_path / "h")

    assert done.exit_code == 2
    assert not (tmp_path / "h").exists()


def test_messages_without_an_id_or_with_one_of_another_get_new_ones(run: Run, tmp_path: Path) -> None:
    bare = {name: value for name, value in ODD.items() if name != "id"}
    file = write(tmp_path / "a.jsonl", session("s1", ODD, bare), session("s2", ODD))
    done = take(run, file, tmp_path / "h")
    told = [json.loads(each) for each in bytes_of(run, tmp_path / "h", tmp_path / "1").splitlines()]

    assert {each["id"]: [m["id"] for m in each["messages"]] for each in told} == {"s1": [7, 8], "s2": [9]}
    assert [each.partition(" bore")[0] for each in done.json["notes"]] == ["2 messages of 2 sessions"]


def test_new_ids_of_a_thousand_sessions_are_one_note(run: Run, tmp_path: Path) -> None:
    lines = [
        {"id": f"s{n}", "source": "cli", "messages": [{"role": "user", "content": "x"}]} for n in range(3)
    ]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))

    assert take(run, path, tmp_path / "home").json["notes"] == [
        "3 messages of 3 sessions bore no id of their own that gives their order, and have new ones"
    ]


def test_a_conversation_of_hermes_with_segments_is_its_sessions(run: Run, tmp_path: Path) -> None:
    parent = session("p", ODD, end_reason="compression", ended_at=1_778_000_100.0)
    child = session("c", {**ODD, "id": 8}, parent_session_id="p")
    whole = {**child, "segments": [parent, child], "lineage_session_ids": ["p", "c"], "messages": [ODD, ODD]}
    done = take(run, write(tmp_path / "a.jsonl", whole), tmp_path / "h")

    assert (done.json["taken"]["sessions"], done.json["taken"]["messages"]) == (2, 2)
    assert done.json["taken"]["compressions"] == 1


def test_columns_that_nobody_knows_come_back(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", session("s1", {**ODD, "mood": "calm"}, tide="high"))
    take(run, file, tmp_path / "h")
    told = json.loads(bytes_of(run, tmp_path / "h", tmp_path / "1"))

    assert (told["tide"], told["messages"][0]["mood"]) == ("high", "calm")


def test_a_lone_surrogate_is_replaced(run: Run, tmp_path: Path) -> None:
    take(run, write(tmp_path / "a.jsonl", session("s1", {**ODD, "content": "a\ud800b"})), tmp_path / "h")

    assert json.loads(bytes_of(run, tmp_path / "h", tmp_path / "1"))["messages"][0]["content"] == "a\ufffdb"


def test_nothing_is_left_in_the_home(run: Run, tmp_path: Path) -> None:
    take(run, write(tmp_path / "a.jsonl", session("s1", ODD)), tmp_path / "h")

    assert not [each for each in (tmp_path / "h").iterdir() if each.name.startswith("import-")]


@pytest.mark.parametrize("ids", [[2**62 + 5, 9, 2**62 + 1], [3, 2, 1], [1, None, 3], [4, 4, 5]])
def test_messages_keep_their_order_whatever_their_ids(
    run: Run, tmp_path: Path, home: Path, ids: list[int | None]
) -> None:
    said = [{**ODD, "id": each, "content": f"m{place}"} for place, each in enumerate(ids)]
    done = take(run, write(tmp_path / "odd.jsonl", session("s1", *said)), home)

    assert done.exit_code == 0
    (told,) = [json.loads(each) for each in run("sessions", "export", "-").stdout.splitlines()]
    assert [each["content"] for each in told["messages"]] == ["m0", "m1", "m2"]
    assert "no id of their own that gives their order" in str(done.json["notes"])


# --- what a file is, and where it may go ------------------------------------------------------------


def test_standard_input_is_taken_in(home: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", session("s1", ODD))
    done = subprocess.run(
        [sys.executable, "-m", "retold", "import", "jsonl", "-", "--home", home, "--json"],
        input=file.read_bytes(),
        capture_output=True,
        check=True,
    )
    told = json.loads(done.stdout)

    assert (told["taken"]["sessions"], told["path"]) == (1, "standard input")
    assert not (home / "backups").exists()
    assert not [each for each in home.iterdir() if each.name.startswith("import-")]


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (FIXTURES / "hermes-home/state.db", "it is a SQLite database"),
        (next((FIXTURES / "claude").rglob("*.jsonl")), "it is a log of Claude Code"),
        (next((FIXTURES / "codex").rglob("*.jsonl")), "it is a log of Codex"),
        (ROOT / "README.md", "line 1: it is no JSON"),
        (ROOT / "tests/fixtures/hermes-home/truth.json", "it is JSON over several lines"),
    ],
)
def test_a_file_of_something_else_is_named_for_what_it_is(
    run: Run, home: Path, tmp_path: Path, there: Path, said: str
) -> None:
    shutil.copy(there, tmp_path / "given")
    done = run("import", "jsonl", tmp_path / "given", "--home", home)

    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_the_first_bad_line_is_named_of_a_file_without_a_session(
    run: Run, home: Path, tmp_path: Path
) -> None:
    file = write(tmp_path / "a.jsonl", "{torn", '{"id": "x"}', "[1]")

    assert "line 1: it is no JSON" in run("import", "jsonl", file, "--home", home).stderr


@pytest.mark.parametrize("below", ["retold", "sessions/deep/retold"])
def test_no_home_is_begun_inside_a_hermes_home(
    run: Run, hermes_home: Path, tmp_path: Path, below: str
) -> None:
    file = write(tmp_path / "a.jsonl", session("s1", ODD))
    before = sorted(hermes_home.rglob("*"))
    done = run("import", "jsonl", file, "--home", hermes_home / below)

    assert done.exit_code == 2
    assert f"lies inside the Hermes home {hermes_home}" in " ".join(done.stderr.split())
    assert sorted(hermes_home.rglob("*")) == before


def test_no_advice_names_an_option_that_the_command_does_not_have(
    run: Run, home: Path, tmp_path: Path
) -> None:
    take(run, write(tmp_path / "a.jsonl", session("s1", ODD)), home)
    done = run("import", "jsonl", write(tmp_path / "b.jsonl", session("s1")), "--home", home)

    assert done.exit_code == 0
    assert "--moved-from" not in done.stdout + done.stderr
    assert f"came from the file {tmp_path}/a.jsonl" in " ".join(done.stdout.split())


def test_what_was_deleted_or_erased_here_is_said_to_be_so(run: Run, home: Path, tmp_path: Path) -> None:
    with open_home(home) as engine:
        for name in ("gone", "put-away"):
            engine.append_message(engine.create_session("cli", session_id=name).session_id, "user", name)
    run("sessions", "delete", "gone", "--now", "--yes", "--home", home)
    run("sessions", "delete", "put-away", "--yes", "--home", home)
    skipped = take(
        run, write(tmp_path / "a.jsonl", session("gone", ODD), session("put-away"), session("new")), home
    ).json["skipped"]

    assert re.fullmatch(r"session gone: a session of this id was erased here \(#\d+\) and .*", skipped[0])
    assert re.fullmatch(r".* was deleted here \(#\d+\); to bring it back: .* undelete put-away", skipped[1])
    assert len(skipped) == 2


@pytest.mark.parametrize(
    ("fields", "message", "says"),
    [
        ({"input_tokens": -5}, {}, "input_tokens is -5: less than nothing cannot be used"),
        ({"actual_cost_usd": -0.5}, {}, "actual_cost_usd is -0.5: less than nothing cannot be used"),
        ({}, {"token_count": -1}, "token_count is -1: less than nothing cannot be used"),
        ({"started_at": "1e400"}, {}, "started_at is inf, which is no number that can be kept"),
        ({"ended_at": "-1e20"}, {}, "ended_at is -1e+20, which is no time in seconds since 1970"),
        ({}, {"timestamp": "NaN"}, "timestamp is nan, which is no number that can be kept"),
        ({}, {"timestamp": "-1e20"}, "timestamp is -1e+20, which is no time in seconds since 1970"),
    ],
)
def test_an_amount_or_a_time_that_is_none_is_named(
    run: Run, tmp_path: Path, home: Path, fields: dict[str, Any], message: dict[str, Any], says: str
) -> None:
    line = json.dumps(session("s1", {"role": "user", "content": "hi", **message}, **fields))
    for number in ("1e400", "-1e20", "NaN"):
        line = line.replace(f'"{number}"', number)
    done = take(run, write(tmp_path / "odd.jsonl", line, session("s2")), home)

    assert done.exit_code == 1
    (lost,) = done.json["lost"]
    assert says in lost
