"""`retold import jsonl`: what was exported comes back, once, and nothing that is here is written over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold import Attachment
from retold.infrastructure.engine import open_home
from retold.tests.conftest import FIXTURES

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
    assert done.json["skipped"][0].startswith("session s1: a session of this id came from another home")
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
    assert len(done.json["notes"]) == 2


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
