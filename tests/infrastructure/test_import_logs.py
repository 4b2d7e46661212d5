"""Logs of Claude Code and Codex: all of them once, whatever state they are in, and again only what is new.

Over 400 lines because both kinds of log are held to the same rules by the same tests.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retold.domain import events as e
from retold.domain.events import Recorded
from retold.infrastructure.copies import copies_of
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.importers.agent_logs import LogKind, import_logs
from retold.infrastructure.importers.claude import CLAUDE
from retold.infrastructure.importers.codex import CODEX
from retold.infrastructure.importers.log_lines import lines_of
from retold.infrastructure.importers.report import ImportReport
from retold.infrastructure.verify import verify
from retold.projections.sessions import counts
from retold.tests.conftest import FIXTURES

BOAT = "11111111-2222-4333-8444-555555555555"
PAINT = "66666666-7777-4888-9999-aaaaaaaaaaaa"
PUMP = "019a0000-1111-7222-8333-444455556666"
OARS = "019a0000-1111-7222-8333-777788889999"
KINDS: dict[str, LogKind] = {"claude": CLAUDE, "codex": CODEX}

ONE = b'{"type":"user","uuid":"u1","timestamp":"t","message":{"role":"user","content":"hull"}}'
TWO = b'{"type":"user","uuid":"u2","timestamp":"t","message":{"role":"user","content":"pump"}}'


class Logs:
    """A Retold home beside the fixtures' logs, which a test may change."""

    def __init__(self, engine: SessionEngine, root: Path) -> None:
        self.engine = engine
        self.root = root

    def path(self, name: str) -> Path:
        (found,) = self.root.rglob(f"*{name}*.jsonl")
        return found

    def take(self, kind: str, path: Path | None = None) -> ImportReport:
        return import_logs(self.engine, KINDS[kind], path or self.root / kind)

    def told(self) -> list[Recorded]:
        """Everything but the records of the runs themselves."""
        found: list[Recorded] = []
        while chunk := self.engine.event_log.read(found[-1].position if found else 0):
            found += chunk
        return [each for each in found if not isinstance(each.payload, e.ImportRan)]

    def messages(self, session_id: str) -> list[Recorded]:
        return [
            each
            for each in self.engine.event_log.stream_events(f"session:{session_id}")
            if isinstance(each.payload, e.MessageAppended)
        ]

    def row(self, session_id: str) -> dict[str, Any]:
        self.engine.projector.catch_up()
        cursor = self.engine.projector.state.reader().execute(
            "SELECT * FROM sessions WHERE id = ?", (session_id,)
        )
        names = [column[0] for column in cursor.get_description()]
        return dict(zip(names, cursor.fetchall()[0], strict=True))


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    root = tmp_path / "logs"
    for kind in KINDS:
        shutil.copytree(FIXTURES / kind, root / kind)
    with open_home(tmp_path / "home", actor="cli", synchronous="NORMAL") as engine:
        yield Logs(engine, root)


def said(record: Recorded) -> e.MessageAppended:
    assert isinstance(record.payload, e.MessageAppended)
    return record.payload


# --- Claude Code -------------------------------------------------------------------------------------


def test_a_claude_session_is_seen_as_its_model_sees_it_now(logs: Logs) -> None:
    logs.take("claude")
    view = logs.engine.view(BOAT)

    assert view.warnings == []
    assert [(each.role, each.kind) for each in view.messages] == [
        ("user", "summary"),
        ("user", "message"),
        ("assistant", "message"),
        ("tool", "message"),
        ("assistant", "message"),
    ]
    assert view.messages[3].tool_name == "Task"
    assert view.messages[3].content == "Two spares on shelf B."
    assert view.messages[4].content == "Use the spare \ufffd from shelf B."  # a lone surrogate, and CRLF


def test_what_was_said_before_a_compaction_is_in_the_history(logs: Logs) -> None:
    logs.take("claude")
    history = logs.engine.history(BOAT).messages

    assert [each.role for each in history[:5]] == ["system", "user", "assistant", "assistant", "tool"]
    assert history[1].content == "The hull leaks. Où est la pompe ? 船体が漏れる 🚤"
    assert history[2].reasoning == "They need the pump."
    assert history[2].reasoning_details[0]["signature"] == "c2lnbmF0dXJl"
    assert history[3].tool_calls[0]["function"] == {"name": "Bash", "arguments": '{"command":"ls pumps"}'}
    assert (history[4].tool_name, history[4].content) == ("Bash", "bilge.txt\n")


def test_a_claude_session_has_its_title_model_folder_branch_and_usage(logs: Logs) -> None:
    logs.take("claude")
    row = logs.row(BOAT)
    used = logs.engine.projector.state.reader().execute(
        "SELECT input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, api_call_count"
        " FROM sessions WHERE id = ?",
        (BOAT,),
    )

    assert (row["title"], row["source"]) == ("Leaking hull and a dry pump", "claude")
    assert (row["model"], row["cwd"], row["git_branch"]) == ("claude-sonnet-4-5", "/srv/boat", "main")
    assert used.fetchone() == (24, 25, 410, 7, 5)  # each answer once, though its lines repeat its usage
    titled = {
        each.session_id: each.payload.by for each in logs.told() if isinstance(each.payload, e.SessionTitled)
    }
    assert titled == {BOAT: "model", PAINT: "person"}


def test_sidechains_and_agents_are_delegates(logs: Logs) -> None:
    logs.take("claude")
    for name, text in (
        (f"{BOAT}.side-00000000", "find spares"),
        (f"{BOAT}.agent-ab12cd34", "count the oars"),
    ):
        row = logs.row(name)

        assert (row["parent_session_id"], row["parent_kind"]) == (BOAT, "delegate")
        assert logs.engine.view(name).messages[0].content == text


def test_every_line_of_a_log_is_kept(logs: Logs) -> None:
    """What no column bears is in `claude.line`, and what nobody said stands before the next message."""
    logs.take("claude")
    kept: list[Any] = []
    for session_id in (BOAT, f"{BOAT}.side-00000000"):
        for each in logs.messages(session_id):
            columns = said(each).columns
            kept += msgspec.json.decode(str(columns.get("claude.before", "[]")))
            kept += [msgspec.json.decode(str(columns["claude.line"]))] if "claude.line" in columns else []
    there = [line.record for line in lines_of(logs.path(BOAT), CLAUDE.is_record) if line.record is not None]

    assert sorted(map(_named, kept)) == sorted(map(_named, there))
    (asked,) = [each for each in kept if each.get("toolUseResult", {}).get("stdout")]
    assert asked["toolUseResult"]["stdout"] == "bilge.txt\n"


def _named(record: dict[str, Any]) -> str:
    return f"{record['type']} {record.get('uuid', record.get('timestamp'))}"


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_is_carried_along(logs: Logs, kind: str) -> None:
    """REFERENCE.md 1.11: a message says which kind of file it was, and where it lies."""
    logs.take(kind)
    events = logs.told()
    attached = [
        each.payload.attachments[0]
        for each in events
        if isinstance(each.payload, e.MessageAppended) and each.payload.attachments
    ]

    assert not any(b"iVBORw0KGgo" in msgspec.msgpack.encode(each.payload) for each in events)
    assert {each.kind for each in attached} == {"image/png"}
    assert len(attached) == {"claude": 2, "codex": 1}[kind]
    path, _, number = attached[0].path.rpartition(":")
    assert "iVBORw0KGgo" in Path(path).read_text("utf-8").split("\n")[int(number) - 1]


@pytest.mark.parametrize(
    "content",
    [
        '"data:image/png;base64,SECRET"',
        '"data:image/png;\\u0062ase64,SECRET"',
        '[{"type":"tool_result","tool_use_id":"t","content":"data:image/png;base64,SECRET"}]',
        '[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"SECRET"}}]',
        '[{"type":"input_audio","input_audio":{"data":"SECRET","format":"wav"}}]',
        '[{"type":"tool_result","tool_use_id":"t","content":[{"type":"deep","inner":[{"type":"base64",'
        '"data":"SECRET"}]}]}]',
    ],
)
def test_no_form_of_a_files_bytes_comes_in(logs: Logs, content: str) -> None:
    line = '{"type":"user","uuid":"u1","sessionId":"%s","message":{"role":"user","content":%s}}\n'
    path = logs.root / f"{PAINT}.jsonl"
    path.write_text(line % (PAINT, content), encoding="utf-8")
    logs.take("claude", path)
    events = [msgspec.msgpack.encode(each.payload) for each in logs.told()]

    assert len(logs.messages(PAINT)) == 1
    assert not any(b"SECRET" in each for each in events)


@pytest.mark.parametrize(
    "value", ["1" * 40, "1e999", "[" * 700 + "]" * 700, '"base64"' + ',{"a":' * 300 + "1" + "}" * 300]
)
def test_no_value_of_a_line_stops_an_import(logs: Logs, value: str) -> None:
    line = (
        '{"type":"user","uuid":"u1","sessionId":"%s","odd":[%s],"message":{"role":"user","content":"hull"}}\n'
    )
    path = logs.root / f"{PAINT}.jsonl"
    path.write_text(line % (PAINT, value) + ONE.decode() + "\n", encoding="utf-8")
    report = logs.take("claude", path)

    assert report.taken["messages"] + len(report.lost) == 2


# --- Codex -------------------------------------------------------------------------------------------


def test_a_codex_session_is_seen_as_its_model_sees_it_now(logs: Logs) -> None:
    """The compaction stands for what came before; the turn that was rolled back is gone."""
    logs.take("codex")
    view = logs.engine.view(PUMP)

    assert [(each.kind, each.content) for each in view.messages] == [
        ("summary", "So far: the pump is in the bilge."),
        ("message", "Keep it."),
    ]


def test_what_a_codex_session_did_is_in_its_history(logs: Logs) -> None:
    logs.take("codex")
    history = logs.engine.history(PUMP).messages
    roles = [
        "system",
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "user",
        "user",
    ]

    assert [each.role for each in history] == roles  # each once, though events repeat what was said
    assert isinstance(history[2].content, list)
    assert history[2].content[0] == {"type": "input_text", "text": "Where is the pump? 泵在哪里"}
    assert history[3].reasoning == "**Looking for the pump**"
    assert history[3].codex_reasoning_items[0]["encrypted_content"] == "gAAAAABo"
    assert history[3].tool_calls[0]["function"]["name"] == "shell"
    assert (history[4].tool_name, history[4].tool_call_id) == ("shell", "call_1")
    assert history[5].tool_calls[0]["function"]["arguments"] == "*** Begin Patch\n*** End Patch"
    assert history[7].content == "In the bilge."


def test_a_codex_session_has_its_model_folder_branch_and_usage(logs: Logs) -> None:
    logs.take("codex")
    row = logs.row(PUMP)

    assert (row["source"], row["model"], row["cwd"]) == ("codex", "gpt-5-codex", "/srv/boat")
    assert row["git_branch"] == "main"
    assert (row["input_tokens"], row["cache_read_tokens"], row["output_tokens"]) == (110, 140, 30)
    assert (row["reasoning_tokens"], row["api_call_count"]) == (8, 2)
    assert (logs.row(OARS)["parent_session_id"], logs.row(OARS)["parent_kind"]) == (PUMP, "delegate")


def test_a_rollout_of_the_first_versions_is_read_too(logs: Logs) -> None:
    """Its lines are the items themselves, without a time; two that are equal are two."""
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Again."}]}
    lines = [
        {"id": OARS, "timestamp": "2025-05-07T17:24:21.597Z", "instructions": None},
        {"record_type": "state"},
        asked,
        {"type": "local_shell_call", "id": "l1", "call_id": "c1", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "call_id": "c1", "output": {"content": "oars", "success": True}},
        asked,
    ]
    path = logs.root / f"rollout-2025-05-07-{OARS}.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    logs.take("codex", path)
    view = logs.engine.view(OARS)

    assert [(each.role, each.at_us) for each in view.messages] == [
        (role, 1_746_638_661_597_000) for role in ("user", "assistant", "tool", "user")
    ]
    assert view.messages[1].tool_calls[0]["function"] == {
        "name": "local_shell_call",
        "arguments": '{"command":["ls"]}',
    }
    assert logs.take("codex", path).taken == {}


# --- again and again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_run_brings_nothing_wherever_the_logs_lie(logs: Logs, tmp_path: Path, kind: str) -> None:
    logs.take(kind)
    before = logs.told()
    moved = Path(shutil.move(logs.root / kind, tmp_path / "moved"))
    again = logs.take(kind, moved)

    assert again.taken == {}
    assert logs.told() == before
    assert verify(logs.engine.event_log.path.parent).exit_code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_grows_comes_to_the_same_however_often_it_is_read(
    logs: Logs, tmp_path: Path, kind: str
) -> None:
    """Cut after any line, and in the middle of one: nothing twice, nothing lost, the same in view."""
    session_id, path = {"claude": (BOAT, logs.path(BOAT)), "codex": (PUMP, logs.path(PUMP))}[kind]
    whole = path.read_bytes()
    with open_home(tmp_path / "once", synchronous="NORMAL") as engine:
        import_logs(engine, KINDS[kind], path)
        wanted = [_plain(each) for each in engine.view(session_id).messages]
        history = [_plain(each) for each in engine.history(session_id).messages]
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for end in ends:
        path.write_bytes(whole[: end - 20])
        logs.take(kind, path)
        path.write_bytes(whole[:end])
        logs.take(kind, path)

    assert [_plain(each) for each in logs.engine.view(session_id).messages] == wanted
    assert [_plain(each) for each in logs.engine.history(session_id).messages] == history
    assert logs.take(kind, path).taken == {}


def _plain(seen: Any) -> tuple[Any, ...]:
    return (
        seen.role,
        seen.kind,
        seen.content,
        seen.tool_calls,
        seen.tool_call_id,
        seen.reasoning,
        seen.at_us,
    )


def test_a_new_line_is_all_that_a_second_run_brings(logs: Logs) -> None:
    logs.take("claude")
    before = len(logs.told())
    path = logs.path(PAINT)
    line = json.loads(path.read_text("utf-8").splitlines()[2])
    more = {**line, "uuid": "00000000-0000-4000-8000-000000000099", "timestamp": "2026-05-04T09:00:00.000Z"}
    more |= {"type": "user", "message": {"role": "user", "content": "No, red."}}
    with path.open("a", encoding="utf-8") as file:
        file.write('age":{}}\n' + json.dumps(more) + "\n")
    report = logs.take("claude")

    assert report.taken == {"messages": 1}
    assert len(logs.told()) == before + 1
    assert logs.engine.view(PAINT).messages[-1].content == "No, red."


def test_what_was_erased_here_stays_erased(logs: Logs) -> None:
    logs.take("claude")
    position = logs.messages(PAINT)[0].position
    logs.engine.erase_messages([position], reason="test")
    again = logs.take("claude")

    assert "messages" not in again.taken
    assert again.unchanged["messages erased here"] == 1


def test_a_message_of_codex_is_erased_with_the_event_that_repeats_it(logs: Logs) -> None:
    logs.take("codex")
    (asked,) = [each for each in logs.messages(PUMP) if "泵在哪里" in str(said(each).content)]
    logs.engine.erase_messages([asked.position], reason="test")

    assert not any("泵在哪里".encode() in msgspec.msgpack.encode(each.payload) for each in logs.told())


@pytest.mark.parametrize(("kind", "text"), [("claude", "bilge.txt"), ("codex", "In the bilge.")])
def test_a_text_is_forgotten_in_what_no_column_bears_too(logs: Logs, kind: str, text: str) -> None:
    logs.take(kind)
    assert any(text.encode() in msgspec.msgpack.encode(each.payload) for each in logs.told())
    logs.engine.forget_text(text, reason="test")

    assert not any(text.encode() in msgspec.msgpack.encode(each.payload) for each in logs.told())
    assert "messages" not in logs.take(kind).taken


def test_what_is_forgotten_names_the_logs_that_have_it_still(logs: Logs) -> None:
    logs.take("codex")

    assert copies_of(logs.engine.event_log.path.parent, logs.engine.projector.state.reader()) == [
        logs.root / "codex"
    ]


def test_a_session_that_was_erased_here_does_not_come_back(logs: Logs) -> None:
    logs.take("claude")
    logs.engine.delete_session(PAINT)
    logs.engine.erase_sessions([PAINT], reason="test")
    again = logs.take("claude")

    assert again.taken == {}
    assert again.unchanged["sessions erased here"] == 1


def test_a_title_that_was_changed_on_both_sides_stays_ours(logs: Logs) -> None:
    logs.take("claude")
    logs.engine.title_session(PAINT, "my own name")
    path = logs.path(PAINT)
    path.write_bytes(path.read_bytes().replace(b"blue paint", b"red paint"))
    report = logs.take("claude")

    assert report.conflicts == [f"session {PAINT}: title changed in the log and here; ours stays"]
    assert logs.row(PAINT)["title"] == "my own name"
    assert logs.take("claude").conflicts == []


def test_a_session_of_that_id_that_began_here_is_left_alone(logs: Logs) -> None:
    logs.engine.create_session("cli", session_id=PAINT)
    report = logs.take("claude")

    assert report.skipped == [f"session {PAINT}: a session of this id did not come from these logs"]
    assert logs.messages(PAINT) == []


def test_a_summary_may_stand_in_a_file_that_is_not_there_any_more(logs: Logs) -> None:
    logs.take("claude")
    logs.path(PAINT).unlink()
    logs.take("claude")

    assert logs.row(BOAT)["title"] == "Leaking hull and a dry pump"


# --- damage ------------------------------------------------------------------------------------------


def test_a_bad_line_is_named_and_passed_over(logs: Logs) -> None:
    report = logs.take("claude")

    assert report.exit_code == 1
    assert report.lost == [f"{logs.path(BOAT)}:13: it is no JSON; it was passed over"]
    assert report.notes == [
        f"{logs.path(PAINT)}:5: the last line is not whole yet; it was left for the next import"
    ]


def test_a_log_in_which_nobody_said_anything_is_named(logs: Logs) -> None:
    path = logs.root / f"{PAINT}.jsonl"
    path.write_text('{"type":"summary","summary":"hull","leafUuid":"u9"}\n', encoding="utf-8")

    assert logs.take("claude", path).skipped == [f"session {PAINT}: nobody said anything in it yet"]
    assert logs.told() == []


def test_what_a_compaction_names_as_kept_stays_in_the_context(logs: Logs) -> None:
    path = logs.path(BOAT)
    kept = [f"00000000-0000-4000-8000-{number:012d}" for number in (9, 10)]
    segment = b'"preTokens":155000,"preservedSegment":{"headUuid":"%s","tailUuid":"%s"}' % tuple(
        each.encode() for each in kept
    )
    path.write_bytes(path.read_bytes().replace(b'"preTokens":155000', segment))
    logs.take("claude")
    view = logs.engine.view(BOAT).messages

    assert [each.kind for each in view[:3]] == ["message", "message", "summary"]
    assert view[1].content == "The second pump is dry."


def test_a_half_last_line_alone_is_no_damage(logs: Logs) -> None:
    assert logs.take("claude", logs.path(PAINT)).exit_code == 0


@pytest.mark.parametrize(
    ("raw", "whole", "why"),
    [
        (ONE[:50] + TWO + b"\n", ["u2"], "a part of a record stands in one line with a whole one"),
        (ONE + TWO + b"\n", ["u1", "u2"], "records stand in one line"),
        (b"\0" * 300 + b"\n" + TWO + b"\n", ["u2"], "300 NUL bytes and nothing else"),
        (b"\0" * 300 + TWO + b"\n", ["u2"], "NUL bytes stand around its record"),
        (b'{"type":"x","data":' + ONE + b',"more":' + b"\n", [], "it is no JSON"),
        (b"[1]\n" + TWO + b"\n", ["u2"], "it is no JSON object"),
        (ONE.replace(b"hull", b"h\xff") + b"\n", ["u1"], "it is no valid UTF-8; what is not became U+FFFD"),
    ],
)
def test_whole_records_of_a_damaged_file_are_read(
    tmp_path: Path, raw: bytes, whole: list[str], why: str
) -> None:
    """FIELD_CASES B21: each fault is said once."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(raw)
    found = list(lines_of(path, CLAUDE.is_record))

    assert [each.record["uuid"] for each in found if each.record is not None] == whole
    assert [each.why for each in found if each.why is not None] == [why]


def test_a_session_is_never_left_behind_for_a_parent_that_is_not_there(logs: Logs) -> None:
    """FIELD_CASES B22: order is that of the lines, whatever their links say."""
    path = logs.path(BOAT)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(
        b"\n".join(each for each in lines if b'"uuid":"00000000-0000-4000-8000-000000000013"' not in each)
    )
    logs.take("claude")

    assert str(logs.engine.view(BOAT).messages[-1].content).startswith("Use the spare")


def test_an_id_that_could_lead_out_of_a_folder_is_made_safe(logs: Logs) -> None:
    path = logs.root / "claude" / "strange.jsonl"
    record = json.loads(ONE) | {"sessionId": "../../etc/passwd", "timestamp": "2026-05-04T08:00:00Z"}
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    logs.take("claude", path)
    (created,) = [each for each in logs.told() if isinstance(each.payload, e.SessionCreated)]

    assert created.session_id.startswith("etc-passwd-")


def test_the_logs_are_only_read(logs: Logs) -> None:
    def content() -> dict[Path, bytes]:
        return {each: each.read_bytes() for each in logs.root.rglob("*") if each.is_file()}

    before = content()
    for kind in KINDS:
        logs.take(kind)

    assert content() == before


def test_lines_that_nobody_said_count_as_no_messages(logs: Logs) -> None:
    path = logs.root / "codex" / "rollout-only.jsonl"
    path.write_text(
        '{"timestamp":"2026-05-08T10:00:00Z","type":"session_meta","payload":{"id":"' + OARS[:-1] + '9"}}\n'
        '{"timestamp":"2026-05-08T10:00:01Z","type":"event_msg","payload":{"type":"unheard_of"}}\n'
        '{"timestamp":"2026-05-08T10:00:02Z","type":"response_item","payload":{"type":"message","role":"user",'
        '"content":[{"type":"input_text","text":"oars"}]}}\n'
    )
    logs.take("codex", path)
    logs.take("claude")
    db = logs.engine.caught_up("transcripts")
    meta, said = (
        db.execute(f"SELECT count(*) FROM messages WHERE role {sign} 'meta'").fetchone()[0]
        for sign in ("=", "<>")
    )

    assert meta
    assert sum(each.messages for each in counts(db)) == said


@pytest.mark.parametrize("odd", [{"a": 1}, ["message"], None, 5, True])
@pytest.mark.parametrize("where", ["type", "payload", "payload.type", "both"])
def test_a_line_of_an_odd_kind_is_kept_and_stops_nothing(logs: Logs, where: str, odd: Any) -> None:
    path = logs.path(PUMP)
    before = path.read_text("utf-8")
    record: dict[str, Any] = {"timestamp": "2026-05-29T12:00:00Z", "type": "response_item"}
    record["payload"] = {"type": odd if where == "payload.type" else "message"}
    if where != "payload.type":
        record |= dict.fromkeys(("type", "payload") if where == "both" else (where,), odd)
    path.write_text(before + json.dumps(record) + "\n", "utf-8")

    logs.take("codex")
    assert logs.take("codex").taken == {}
    assert b"2026-05-29T12:00:00Z" in msgspec.json.encode([each.payload for each in logs.told()])
