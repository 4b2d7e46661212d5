"""What no command takes: ids that are paths, keys and reasons that say nothing, a file's bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from retold.domain import events as e
from retold.domain.audit import audit
from retold.domain.errors import (
    BadIdentifier,
    BadUsage,
    BytesRefused,
    DeletedSession,
    NoSuchMessage,
    NoSuchSession,
    RetoldError,
    RuleBroken,
    SessionOver,
)
from retold.domain.inbound import Update
from retold.infrastructure.engine import SessionEngine, open_home
from retold.projections.world import world

K = "agent:main:telegram:dm:1001"
PNG = "data:image/png;base64," + "iVBORw0KGgo" * 180
UNSAFE = ("../../etc/passwd", "C:\\x", "/etc", "u\x00\x1b", "dm\n", "a\u202eb")
Command = Callable[[SessionEngine, str], object]


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with SessionEngine(home) as opened:
        opened.create_session("cli", session_id="s")
        opened.append("s", "user", "hello")
        yield opened


def refused(engine: SessionEngine, kind: type[RetoldError], command: Callable[[], object]) -> RetoldError:
    """The refusal of a command that wrote nothing."""
    head = engine.head()
    with pytest.raises(kind) as error:
        command()

    assert engine.head() == head
    assert error.value.hint
    return error.value


# --- identity ---------------------------------------------------------------------------------------


def each_unsafe(names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for name in names:
        for value in UNSAFE:
            yield {name: origin(value) if name == "origin_json" else value}


def test_a_handoff_takes_no_id_that_no_source_may_have(engine: SessionEngine) -> None:
    engine.set_home_channel("telegram", "1001")
    engine.request_handoff("s", "telegram")
    engine.claim_handoff("s")
    for peer in each_unsafe(("chat_id", "thread_id", "user_id", "chat_type", "origin_json")):
        refused(engine, BadIdentifier, partial(engine.complete_handoff, "s", key=K, **peer))

    assert engine.handoff_of("s").state == "running"


def test_a_session_is_not_created_with_an_id_that_no_source_may_have(engine: SessionEngine) -> None:
    ids = ("key", "parent", "profile_name", "chat_id", "thread_id", "user_id", "chat_type", "origin_json")
    for given in each_unsafe(ids):
        refused(engine, BadIdentifier, partial(engine.create_session, "telegram", **given))
    for source in UNSAFE:
        refused(engine, BadIdentifier, partial(engine.create_session, source))


def origin(value: str) -> str:
    return json.dumps({"platform": "telegram", "chat_id": value})


def test_an_update_of_a_platform_that_is_a_path_is_not_taken(engine: SessionEngine) -> None:
    for platform in UNSAFE:
        refused(engine, BadIdentifier, partial(engine.seen_update, Update(platform, "1", "u1")))


def test_nothing_is_named_by_blanks(engine: SessionEngine) -> None:
    for blank in ("", " ", "\u3000"):
        refused(engine, BadIdentifier, partial(engine.create_session, "telegram", key=blank))
        refused(engine, BadIdentifier, partial(engine.create_session, "cli", session_id=blank))


# --- one continuation -------------------------------------------------------------------------------


def continued(engine: SessionEngine, parent: str, name: str = "next") -> object:
    return engine.create_session("cli", session_id=name, parent=parent, parent_kind="continuation")


def test_nothing_continues_what_is_not_there_or_not_compressed(engine: SessionEngine) -> None:
    refused(engine, NoSuchSession, lambda: continued(engine, "ghost"))
    assert "compress_session" in refused(engine, RuleBroken, lambda: continued(engine, "s")).hint
    engine.end_session("s", "cli_close")
    refused(engine, RuleBroken, lambda: continued(engine, "s"))
    engine.delete_session("s")
    refused(engine, DeletedSession, lambda: continued(engine, "s"))


def test_a_session_is_continued_once(engine: SessionEngine) -> None:
    engine.compress_session("s", "so far", continuation_id="second")
    over = refused(engine, SessionOver, lambda: continued(engine, "s"))

    assert isinstance(over, SessionOver)
    assert over.successor == "second"
    # In two steps, as stores of rows did it.
    engine.end_session("second", "compression")
    continued(engine, "second", "third")
    refused(engine, SessionOver, lambda: continued(engine, "second", "fourth"))
    engine.delete_session("third")
    refused(engine, SessionOver, lambda: continued(engine, "second", "fourth"))
    engine.undelete_session("third")
    engine.projector.catch_up()
    assert not [each for each in audit(world(engine.state.reader())) if each.kind == "two_continuations"]


def test_of_two_that_continue_a_session_at_once_one_is_refused(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.end_session("s", "compression")
    save = engine.save_events
    with open_home(home) as other:

        def beaten(*given: Any, **more: Any) -> tuple[int, ...]:
            monkeypatch.undo()
            continued(other, "s", "first")
            return save(*given, **more)

        monkeypatch.setattr(engine, "save_events", beaten)
        with pytest.raises(SessionOver, match="first"):
            continued(engine, "s", "second")


# --- keys, reasons, texts ---------------------------------------------------------------------------


def test_no_command_takes_a_blank_key_for_a_chats(engine: SessionEngine) -> None:
    for key in ("", " ", "\u3000"):
        for command in (
            partial(engine.lead_key, key, "s"),
            partial(engine.close_key, key),
            partial(engine.reroute, key, "s", "resume"),
            partial(engine.resume, key, "s"),
            partial(engine.reset, key),
            partial(engine.hold, key, "work"),
            partial(engine.let_go, key, "work"),
        ):
            assert "blank key" in refused(engine, BadIdentifier, command).message


def test_a_reason_is_one_line_of_what_can_be_seen(engine: SessionEngine) -> None:
    said = "no\nroom\x1b[31m \u202eleft\ud800"
    shown = "no room\ufffd[31m \ufffdleft\ufffd"
    engine.set_home_channel("telegram", "1001")
    engine.request_handoff("s", "telegram")
    engine.fail_handoff("s", said)
    assert engine.handoff_of("s").error == shown
    engine.request_handoff("s", "telegram")
    engine.fail_handoff("s", f"{'x' * 499} \x1b")
    assert engine.handoff_of("s").error == "x" * 499
    engine.request_handoff("s", "telegram")
    engine.fail_handoff("s", " \n")
    assert engine.handoff_of("s").error == "no reason given"
    for given, kept in ((said, shown), (" \n\t", "deleted")):
        deleted = engine.delete_session("s", given)
        (event,) = engine.event_log.read(deleted.position - 1, limit=1)
        assert event.payload.reason == kept
        engine.undelete_session("s")
    engine.forget_message("s", 2, reason=said)
    (erased,) = engine.event_log.read(0, topics=(e.PayloadsErased.topic,))
    assert erased.payload.reason == shown


def test_an_idempotency_key_is_not_blank(engine: SessionEngine) -> None:
    two = [{"role": "user", "content": each} for each in "ab"]
    for key in ("", " ", "\n"):
        for command in (
            partial(engine.append, "s", "user", "yes", key=key),
            partial(engine.append_message, "s", "user", "yes", idempotency_key=key),
            partial(engine.append_messages, "s", two, idempotency_keys=["k", key]),
            partial(engine.record_usage, "s", "delta", input_tokens=1, key=key),
        ):
            assert "blank" in refused(engine, BadUsage, command).message


def test_an_end_has_a_reason(engine: SessionEngine) -> None:
    for reason in ("", " \n", "\x1f"):
        refused(engine, BadUsage, partial(engine.end_session, "s", reason))


def test_a_reason_is_kept_in_one_line_with_nothing_unseen_in_it(engine: SessionEngine) -> None:
    engine.end_session("s", "  a\x00\n\x1b[2J\u202eb ")

    assert engine.session("s").end_reason == "a\ufffd \ufffd[2J\ufffdb"


def test_a_branch_takes_something_along(engine: SessionEngine) -> None:
    for upto in (-1, 0, 1):
        refused(engine, NoSuchMessage, partial(engine.branch_session, "s", upto=upto))


def test_the_configuration_of_a_model_is_a_json_object(engine: SessionEngine) -> None:
    for config in ("not json", "", "[]", "3", '{"a":'):
        refused(engine, BadUsage, partial(engine.set_model, "s", "m", model_config=config))
        refused(engine, BadUsage, partial(engine.create_session, "cli", model_config=config))


BYTES: dict[str, Command] = {
    "content": lambda engine, png: engine.append("s", "user", png),
    "a part": lambda engine, png: engine.append("s", "user", [{"type": "text", "text": png}]),
    "content as it is kept": lambda engine, png: engine.append("s", "user", f'\0json:["{png}"]'),
    "a tool's result": lambda engine, png: engine.append("s", "tool", png, tool_call_id="c"),
    "an edit": lambda engine, png: engine.edit_message("s", png, message=2),
    "reasoning": lambda engine, png: engine.append("s", "assistant", "x", reasoning=png),
    "the wire's text": lambda engine, png: engine.append(
        "s", "user", "x", api_content=f'[{{"url":"{png}"}}]'
    ),
    "an attachment's text": lambda engine, png: engine.append(
        "s", "user", "x", attachments=[{"path": "/a.png", "kind": "image", "text": png}]
    ),
    "a summary": lambda engine, png: engine.compress_session("s", png),
    "a turn that waits": lambda engine, png: engine.enqueue("s", png),
    "a turn that begins": lambda engine, png: engine.begin_turn("s", text=png),
}


@pytest.mark.parametrize("way", BYTES)
def test_a_files_bytes_are_stored_nowhere(engine: SessionEngine, way: str) -> None:
    for png in (PNG, f" {PNG}", PNG.replace("data:", "DATA:"), "data:;base64,QUJD"):
        refused(engine, BytesRefused, partial(BYTES[way], engine, png))


def test_words_about_such_a_text_are_no_bytes(engine: SessionEngine) -> None:
    for text in ("data: what does ;base64, mean?", f"see ![]({PNG[:60]})", "data:text/plain,hello"):
        engine.append("s", "user", text)
