"""Exports and imports by the cases that users reported (FIELD_CASES E, F10), and of what size (K4).

Over 400 lines because the cases share one conversation that has a word of somebody's in every column.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold import Attachment
from retold.infrastructure.engine import open_home
from retold.infrastructure.exporters.rows import Rows
from retold.infrastructure.exporters.sanitize import Sanitized
from retold.infrastructure.reading import reading
from retold.projections import sessions
from retold.projections.exported import live_messages, session_fields
from retold.tests.conftest import FIXTURES
from retold.tests.histories import SECOND_US, T0_US, History, history

if TYPE_CHECKING:
    from retold.tests.conftest import Run

EXPORT = ("sessions", "export")
SECRETS = (
    "the hull leaks", "wide boat", "/srv/boat", "Kim", "-1001", "agent:main:telegram", "secret-arg",
    "be kind", "a thought", "hull.pdf", "read off", "fix-the-hull", "why so", "mood",
)  # fmt: skip
"""Words of people's, each in another column."""

HULL = Attachment("/srv/hull.pdf", "document", "in a bad mood")


def exported(run: Run, *args: str | Path) -> list[dict[str, Any]]:
    done = run(*EXPORT, "-", *args)
    assert done.exit_code == 0, done.stderr
    return [json.loads(each) for each in done.stdout.splitlines()]


@pytest.fixture
def talked(home: Path) -> Path:
    """Every column that bears a word of somebody's, over a continuation, a branch and a delegate."""
    call = [{"id": "c1", "type": "function", "function": {"name": "web", "arguments": '{"q": "secret-arg"}'}}]
    with open_home(home) as engine:
        engine.create_session(
            "telegram",
            session_id="s1",
            key="agent:main:telegram:dm:-1001",
            title="a wide boat",
            cwd="/srv/boat",
            chat_id="-1001",
            user_id="Kim",
            display_name="Kim",
            model="claude-sonnet-4.5",
        )
        engine.set_workspace("s1", "/srv/boat", git_branch="fix-the-hull")
        engine.set_prompt("s1", "be kind")
        engine.append_message("s1", "user", "the hull leaks", attachments=[HULL])
        engine.append_message("s1", "assistant", None, tool_calls=json.dumps(call), reasoning="a thought")
        engine.append_message("s1", "tool", "read off", tool_name="web", tool_call_id="c1")
        engine.append_message("s1", "user", [{"type": "text", "text": "the hull leaks, why so?"}])
        engine.branch_session("s1", branch_id="b1", title="another wide boat")
        engine.create_session("subagent", session_id="d1", parent="s1", parent_kind="delegate")
        engine.append_message("d1", "user", "the hull leaks")
        engine.compress_session("s1", "So far: the hull leaks.", keep_last=1, continuation_id="s2")
        engine.append_message("s2", "user", "the hull leaks still")
    return home


# --- E2 ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("talked")
@pytest.mark.parametrize("form", ["jsonl", "md", "qmd", "html"])
def test_e2_what_is_shared_has_the_structure_and_not_a_word(run: Run, tmp_path: Path, form: str) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        run(*EXPORT, tmp_path / place, "--format", form, "--sanitize", "--all")
    files = {place: _texts(tmp_path / place) for place in ("one", "two")}
    told = "".join(files["one"].values())

    assert files["one"].keys() == files["two"].keys()
    assert [each for each in SECRETS if each in told] == []
    assert {"s1", "s2", "b1", "d1", "telegram"} == {
        each for each in ("s1", "s2", "b1", "d1", "telegram") if each in told
    }
    if form == "jsonl":
        assert files["one"] == files["two"]


def _texts(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text("utf-8") for each in folder.iterdir() if each.name != "manifest.jsonl"}


@pytest.mark.usefixtures("talked")
def test_e2_ids_roles_times_and_counts_stay(run: Run) -> None:
    plain = {each["id"]: each for each in exported(run)}
    shared = {each["id"]: each for each in exported(run, "--sanitize")}
    of_a_session = (
        "parent_session_id",
        "source",
        "model",
        "started_at",
        "ended_at",
        "end_reason",
        "message_count",
    )
    of_a_message = ("id", "role", "timestamp", "tool_name", "tool_call_id", "summary")

    assert list(plain) == list(shared)
    for name, ours in plain.items():
        assert [shared[name][each] for each in of_a_session] == [ours[each] for each in of_a_session]
        assert [[m.get(each) for each in of_a_message] for m in shared[name]["messages"]] == [
            [m.get(each) for each in of_a_message] for m in ours["messages"]
        ]
    first, call, _, parts = shared["b1"]["messages"]
    assert first["content"] == f"[content {first['id']}]"
    assert call["tool_calls"][0]["function"] == {"name": "web", "arguments": "{}"}
    assert parts["content"] == [{"type": "text", "text": f"[content {parts['id']}]"}]
    assert (shared["s1"]["user_id"], shared["s1"]["session_key"]) == ("user-1", "session-key-1")


@pytest.mark.usefixtures("talked")
def test_e2_what_is_shared_is_taken_in_with_its_counts_and_its_lineage(run: Run, tmp_path: Path) -> None:
    there = tmp_path / "there"
    run(*EXPORT, tmp_path / "a.jsonl")
    run(*EXPORT, tmp_path / "b.jsonl", "--sanitize")
    run("import", "jsonl", tmp_path / "a.jsonl", "--home", tmp_path / "plain")
    done = run("import", "jsonl", tmp_path / "b.jsonl", "--home", there, "--json")

    assert (done.exit_code, done.json["lost"], done.json["skipped"]) == (0, [], [])
    assert _shape(run, there) == _shape(run, tmp_path / "plain")
    assert run("verify", "--home", there).exit_code == 0


def _shape(run: Run, home: Path) -> list[tuple[Any, ...]]:
    tree = run("sessions", "tree", "s1", "--home", home, "--json").json["sessions"]
    return [(each["id"], each["kind"], each["parent_id"], each["message_count"]) for each in tree]


def test_e2_the_fixture_is_shared_without_a_word_of_it(run: Run, tmp_path: Path) -> None:
    run("import", "hermes", FIXTURES / "hermes-home")
    words: set[str] = set()
    for each in exported(run):
        for message in each["messages"]:
            words |= {word for word in _words(message.get("content")) if len(word) > 24}
    shared = run(*EXPORT, "-", "--sanitize").stdout
    (tmp_path / "b.jsonl").write_text(shared, "utf-8")
    done = run("import", "jsonl", tmp_path / "b.jsonl", "--home", tmp_path / "there", "--json")

    assert len(words) > 500
    assert [each for each in words if each in shared] == []
    assert (done.json["taken"]["sessions"], done.json["taken"]["messages"]) == (57, 892)


def _words(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield from content.splitlines()


@pytest.mark.usefixtures("talked")
def test_e2_the_rows_themselves_are_left_as_they_are(home: Path) -> None:
    with reading(home) as view:
        change, rows = Sanitized(), [*live_messages(view.db, "s1"), session_fields(view.db, "s1")]
        before = json.dumps(rows)
        for each in rows:
            change("message" if "role" in each else "session", each)

        assert json.dumps(rows) == before
        assert [each["content"] for each in Rows(view.db).live("s1")] == [
            each["content"] for each in rows[:-1]
        ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("role", "the hull leaks"),
        ("model", "the hull leaks"),
        ("tool_calls", "the hull leaks"),
        ("tool_calls", [{"id": "the hull leaks", "the hull leaks": 1,
          "function": {"name": "the hull leaks"}}]),
        ("content", {"the hull leaks": "the hull leaks"}),
        ("content", [{"type": "the hull leaks", "the hull leaks": 1}, "the hull leaks"]),
        ("model_config", '{"_delegate_from": "s0", "note": "the hull leaks"}'),
        ("model_config", "the hull leaks"),
        ("attachments", [{"path": "the hull leaks", "kind": "document", "text": "the hull leaks"}]),
        ("attachments", ["the hull leaks"]),
        ("codex_message_items", [{"deep": ["the hull leaks"]}]),
        ("unheard_of", {"the hull leaks": ["the hull leaks"]}),
    ],
)  # fmt: skip
def test_what_is_not_known_to_be_structure_is_text(name: str, value: Any) -> None:
    for kind in ("session", "message"):
        told = Sanitized()(kind, {"id": "s1", name: value})

        assert "the hull leaks" not in json.dumps(told)
    if "_delegate_from" in str(value):
        assert Sanitized()("session", {"id": "s1", name: value})[name] == '{"_delegate_from": "s0"}'


# --- E4 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", ["S0", "S1", "S2"])
def test_e4_one_segment_or_all_of_them_in_order(run: Run, home: Path, member: str) -> None:
    with history(home) as h:
        h.session("S0")
        h.say("S0", "zero")
        h.compress("S0", "S1")
        h.say("S1", "one")
        h.compress("S1", "S2")
        h.say("S2", "two")
    whole = exported(run, "--session-id", member, "--lineage", "logical")

    assert [each["id"] for each in exported(run, "--session-id", member)] == [member]
    assert [each["messages"][0]["content"] for each in whole] == ["zero", "one", "two"]


# --- E7 ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("talked")
@pytest.mark.parametrize("form", [["jsonl"], ["md"], ["qmd"], ["jsonl", "--only", "user-prompts"]])
def test_e7_no_byte_of_another_session_is_written(
    run: Run, home: Path, tmp_path: Path, form: list[str]
) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="mine", title="one of mine")
        engine.append_message("mine", "user", "and the mast?")
    (tmp_path / "out").mkdir()
    done = run(*EXPORT, tmp_path / "out", "--session-id", "mine", "--format", *form)
    told = b"".join(each.read_bytes() for each in (tmp_path / "out").iterdir())

    assert done.exit_code == 0
    assert b"and the mast?" in told
    assert [each for each in SECRETS if each.encode() in told] == []


# --- what A16, C9 and I6 ask of an export --------------------------------------------------------------


@pytest.mark.usefixtures("talked")
def test_a16_what_was_deleted_is_in_no_export_after_a_rebuild(run: Run) -> None:
    run("sessions", "delete", "b1", "--yes")
    run("projections", "rebuild")
    told = exported(run)

    assert [each["id"] for each in told if each["id"] == "b1"] == []
    assert "another wide boat" not in json.dumps(told)
    assert len(told) == 3


@pytest.mark.parametrize("form", ["jsonl", "md"])
def test_c9_an_export_of_a_conversation_holds_nothing_of_a_delegate(
    run: Run, home: Path, tmp_path: Path, form: str
) -> None:
    with history(home) as h:
        h.session("S0")
        h.say("S0", "zero")
        h.session("D", parent_session_id="S0", parent_kind="delegate")
        h.say("D", "private talk")
        h.compress("S0", "S1")
        h.say("S1", "one")
    (tmp_path / "out").mkdir()
    run(*EXPORT, tmp_path / "out", "--format", form, "--session-id", "S0", "--lineage", "logical")
    told = "".join(each.read_text("utf-8") for each in (tmp_path / "out").iterdir())

    assert "zero" in told
    assert "one" in told
    assert "private" not in told


def test_i6_an_export_has_both_legs_of_what_was_handed_over(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="s1")
        engine.append_message("s1", "user", "begun in a terminal")
        engine.set_home_channel("telegram", "1")
        engine.request_handoff("s1", "telegram")
        engine.claim_handoff("s1")
        engine.complete_handoff("s1", key="agent:main:telegram:dm:1")
        engine.append_message("s1", "user", "gone on with in a chat")

    (told,) = exported(run)
    said = [each["content"] for each in told["messages"]]
    assert said[0] == "begun in a terminal"
    assert said[-1] == "gone on with in a chat"


# --- E10 --------------------------------------------------------------------------------------------


def test_e10_branches_odd_times_and_models_come_back_or_are_named(run: Run, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with open_home(one) as engine:
        engine.create_session("cli", session_id="root", model="gpt-5.1", at_us=T0_US)
        for place, at_us in enumerate(
            (T0_US + 5, T0_US + 5, T0_US - 90 * SECOND_US, T0_US + 900 * SECOND_US + 1)
        ):
            engine.append_message("root", "user", f"m{place}", at_us=at_us)
        for name in ("left", "right"):
            engine.branch_session("root", branch_id=name)
            engine.append_message(name, "user", f"to the {name}", at_us=T0_US + SECOND_US)
        engine.branch_session("left", branch_id="left-again")
    run(*EXPORT, tmp_path / "1.jsonl", "--home", one)
    done = run("import", "jsonl", tmp_path / "1.jsonl", "--home", two, "--json")
    run(*EXPORT, tmp_path / "2.jsonl", "--home", two)
    trees = [
        [(each["id"], each["kind"], each["parent_id"]) for each in told["sessions"]]
        for told in (run("sessions", "tree", "root", "--home", each, "--json").json for each in (one, two))
    ]

    assert (done.json["lost"], done.json["skipped"]) == ([], [])
    assert trees[0] == trees[1]
    assert {kind for _, kind, _ in trees[0]} == {"root", "branch"}
    assert (tmp_path / "2.jsonl").read_bytes() == (tmp_path / "1.jsonl").read_bytes()


# --- E13 --------------------------------------------------------------------------------------------


def test_e13_what_was_undone_three_times_is_in_no_view_after_an_import(run: Run, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with open_home(one) as engine:
        engine.create_session("cli", session_id="s")
        engine.append_message("s", "user", "how do I mend the boat?")
        for attempt in range(3):
            engine.append_message("s", "assistant", f"with tea, says {attempt}")
            wrong = engine.append_message("s", "user", f"wrong {attempt}").position
            engine.append_message("s", "assistant", "sorry")
            engine.rewind("s", wrong)
        before = [each["content"] for each in engine.view("s").for_model()]
    run(*EXPORT, tmp_path / "a.jsonl", "--home", one)
    run("import", "jsonl", tmp_path / "a.jsonl", "--home", two)
    run("import", "jsonl", tmp_path / "a.jsonl", "--home", two)
    with open_home(two) as engine:
        after = [each["content"] for each in engine.view("s").for_model()]

    assert before == after
    assert len(after) == 4
    assert "wrong" not in (tmp_path / "a.jsonl").read_text("utf-8")


# --- F10 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["sessions", "delete", "gone", "--yes"],
        ["sessions", "delete", "gone", "--yes", "--now"],
        ["sessions", "delete", "--source", "telegram", "--yes"],
        ["sessions", "prune", "--source", "telegram", "--yes"],
        ["sessions", "export", "--session-id", "gone", "--format", "md", "--delete-after-verified", "--yes"],
    ],
)
def test_f10_a_deletion_leaves_no_file_that_retold_keeps_of_a_session(
    run: Run, home: Path, command: list[str]
) -> None:
    with open_home(home) as engine:
        engine.create_session("telegram", session_id="gone", key="agent:main:telegram:dm:1")
        engine.append_message("gone", "user", "how do I mend the boat?")
        engine.create_session("cli", session_id="kept", key="agent:main:telegram:dm:2")
        engine.end_session("gone", "user_exit")
    run("sessions", "list", "--at", "#3")
    exports = home / "session-exports"
    before = {each.name for each in home.iterdir()}
    mirror = home / "sessions" / "sessions.json"

    assert "gone" in mirror.read_text("utf-8")
    assert run(*command).exit_code == 0
    assert "gone" not in mirror.read_text("utf-8")
    assert sorted(each.name for each in mirror.parent.iterdir()) == [".lock", "sessions.json"]
    assert not any("gone" in each.name for each in home.rglob("*") if exports not in each.parents)
    assert {each.name for each in home.iterdir()} - before <= {
        "session-exports", "backups", "events.db-wal", "rebuild.lock",
    }  # fmt: skip
    assert exports.exists() == ("export" in command)  # what a person had exported is theirs


def test_f10_what_a_person_exported_stays_and_is_named(run: Run, home: Path, tmp_path: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="gone")
        engine.append_message("gone", "user", "how do I mend the boat?")
    run(*EXPORT, tmp_path / "x.jsonl")
    done = run("sessions", "delete", "gone", "--now", "--yes")

    assert (tmp_path / "x.jsonl").exists()
    assert str(tmp_path / "x.jsonl") in done.stderr


# --- K4 ---------------------------------------------------------------------------------------------

_LONG = 300_000
_PEAK = """
import sys
from pathlib import Path
from retold.cli.main import main
code = main(sys.argv[1:])
(peak,) = [each.split()[1] for each in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in each]
print(peak, file=sys.stderr)
sys.exit(code)
"""


def _long(h: History, count: int) -> None:
    h.session("long")
    text = "how do I keep a boat dry, and what with? " * 10
    for first in range(0, count, 5_000):
        with h.together():
            for index in range(first, min(first + 5_000, count)):
                h.say("long", text, "assistant" if index % 2 else "user", at_us=T0_US + index * SECOND_US)


@pytest.mark.slow
def test_k4_the_end_of_a_session_of_300_000_messages_is_there_at_once_and_its_export_takes_little_memory(
    run: Run, home: Path, tmp_path: Path
) -> None:
    with history(home) as h:
        _long(h, _LONG)
    run("sessions", "stats")
    took_s = []
    for _ in range(5):
        with reading(home) as view:
            begun = time.perf_counter()
            told = list(sessions.messages(view.db, "long", last=100))
            took_s.append(time.perf_counter() - begun)
        assert len(told) == 100

    assert min(took_s) < 0.050
    for args in (
        ["x.jsonl"],
        ["p.jsonl", "--only", "user-prompts"],
    ):  # the other forms are in tests/bench/bench_e_memory.py: a page of so many takes minutes
        done = subprocess.run(
            [sys.executable, "-c", _PEAK, *EXPORT, *args, "--home", home],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )

        assert int(done.stderr.split()[-1]) < 200_000, args
    assert (tmp_path / "x.jsonl").stat().st_size > 200_000_000
