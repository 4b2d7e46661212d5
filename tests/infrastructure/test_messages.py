"""Messages of a session: each once, durable by itself, edited and enriched; what the version says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from retold import Attachment, Message
from retold.domain import events as e
from retold.domain.errors import (
    IdempotencyMismatch,
    NoSuchMessage,
    NoSuchSession,
    RuleBroken,
    SessionOver,
    StoreBusy,
    VersionConflict,
)
from retold.domain.events import Event
from retold.infrastructure.engine import Saved, SessionEngine, open_home
from retold.projections.context import window
from retold.tests.histories import T0_US


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        opened.create_session("telegram", session_id="s")
        yield opened


def rows(engine: SessionEngine, columns: str, session_id: str = "s") -> list[tuple[Any, ...]]:
    engine.projector.catch_up()
    sql = f"SELECT {columns} FROM messages WHERE session_id = ? ORDER BY id"
    return [tuple(row) for row in engine.state.reader().execute(sql, (session_id,))]


def topics(engine: SessionEngine, after: int) -> list[str]:
    return [event.topic for event in engine.event_log.read(after)]


# --- each once -------------------------------------------------------------------------------------


def test_b1_a_second_copy_with_the_platforms_id_enriches_the_first(engine: SessionEngine) -> None:
    first = engine.append("s", "user", "hi", key="m1")
    again = engine.append("s", Message("user", "hi", platform_message_id="77"), key="m1")
    head = engine.head()

    assert again.positions == first.positions
    assert again.enriched == (first.position + 1,)
    assert rows(engine, "content, platform_message_id") == [("hi", "77")]
    for redelivered in (Message("user", "hi"), Message("user", "hi", platform_message_id="77")):
        assert engine.append("s", redelivered, key="m1").enriched == ()
    with pytest.raises(IdempotencyMismatch):
        engine.append("s", "user", "hi", platform_message_id="78", key="m1")
    assert engine.head() == head


def test_b1_two_real_messages_of_the_same_words_are_two(engine: SessionEngine) -> None:
    engine.append("s", "user", "ok", key="m1")
    engine.append("s", "user", "ok", key="m2")
    engine.append("s", "user", "ok")
    engine.append("s", "user", "ok")

    assert len(rows(engine, "id")) == 4


def test_a_platforms_id_that_comes_late_reaches_the_copy_in_the_context_too(engine: SessionEngine) -> None:
    engine.append("s", "user", "older")
    engine.append("s", "user", "helo", key="m1")
    engine.compact("s", "so far", keep_last=1)
    engine.append("s", "user", "helo", platform_message_id="77", key="m1")
    engine.edit_message("s", "hello", platform_message_id="77")

    assert [each.content for each in engine.view("s").messages] == ["so far", "hello"]


def test_both_copies_in_one_save_are_one_message_that_knows_all(engine: SessionEngine) -> None:
    saved = engine.append_messages(
        "s",
        [Message("user", "hi"), Message("user", "hi", platform_message_id="77")],
        idempotency_keys=["m", "m"],
    )

    assert saved.positions[0] == saved.positions[1]
    assert rows(engine, "content, platform_message_id") == [("hi", "77")]


def test_an_edited_message_is_still_the_one_that_was_delivered(engine: SessionEngine) -> None:
    first = engine.append("s", "user", "helo", platform_message_id="77", key="m1")
    engine.edit_message("s", "hello", platform_message_id="77")

    assert engine.append("s", "user", "helo", token_count=2, key="m1").enriched
    assert rows(engine, "content, token_count") == [("hello", 2)]
    assert engine.append("s", "user", "helo", key="m1").positions == first.positions


@pytest.mark.parametrize("write", ["append", "append_messages", "edit", "usage", "rewind", "compress"])
def test_b3_b29_a_session_that_is_not_there_is_never_passed_over_in_silence(
    engine: SessionEngine, write: str
) -> None:
    commands: dict[str, Callable[[], Saved]] = {
        "append": lambda: engine.append("none", "user", "hi", key="m1"),
        "append_messages": lambda: engine.append_messages("none", [Message("user", "hi")]),
        "edit": lambda: engine.edit_message("none", "hi", message=1),
        "usage": lambda: engine.record_usage("none", "delta", input_tokens=1),
        "rewind": lambda: engine.rewind("none", 1),
        "compress": lambda: engine.compress("none", "so far"),
    }
    head = engine.head()
    with pytest.raises(NoSuchSession):
        commands[write]()

    assert engine.head() == head


def test_b29_the_log_takes_no_event_before_the_one_that_creates_its_session(engine: SessionEngine) -> None:
    draft = engine.draft(Event("session:none", 1, e.MessageAppended("user", "hi"), 5))
    with pytest.raises(RuleBroken, match="creation"):
        engine.event_log.append([draft])


def test_b3_a_locked_log_makes_a_creation_fail_and_not_vanish(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retold.infrastructure.sqlite.BUSY_TIMEOUT_MS", 1)
    with open_home(home) as other, engine.event_log.transaction():
        writer = other.event_log._write_connection()
        writer.set_busy_timeout(1)
        with pytest.raises(StoreBusy):
            other.create_session("cli", session_id="lost")

    with pytest.raises(NoSuchSession):
        engine.session("lost")


def test_b3_flushing_the_same_messages_twice_stores_them_once(engine: SessionEngine) -> None:
    batch = [Message("user" if n % 2 == 0 else "assistant", f"m{n}") for n in range(4)]
    keys = [f"k{n}" for n in range(4)]
    first = engine.append_messages("s", batch, idempotency_keys=keys)

    assert engine.append_messages("s", batch, idempotency_keys=keys).positions == first.positions
    assert rows(engine, "content") == [("m0",), ("m1",), ("m2",), ("m3",)]


# --- durable by itself -----------------------------------------------------------------------------


def test_b7_tool_work_is_there_before_the_final_answer(engine: SessionEngine, home: Path) -> None:
    engine.append("s", "user", "is it dry?")
    engine.append("s", Message("assistant", tool_calls=[{"id": "c", "function": {"name": "weather"}}]))
    engine.append("s", "tool", "dry", tool_call_id="c", tool_name="weather")
    with open_home(home) as another:  # the first is never closed: what was acknowledged is on disk
        shown = another.view("s")

    assert [(each.role, each.content, each.tool_call_id) for each in shown.messages] == [
        ("user", "is it dry?", None),
        ("assistant", None, None),
        ("tool", "dry", "c"),
    ]
    assert shown.warnings == []


def test_b16_b17_the_order_is_that_of_appending_whatever_the_times_say(engine: SessionEngine) -> None:
    for number, at_us in enumerate([T0_US + 4] * 5 + [T0_US]):
        engine.append("s", "user", f"m{number}", at_us=at_us)

    assert [each.content for each in engine.view("s").messages] == [f"m{n}" for n in range(6)]
    assert [each.content for each in engine.history("s").messages] == [f"m{n}" for n in range(6)]
    assert engine.undo_turns("s").target_message == engine.head().position - 1


def test_attachments_are_kept_as_path_kind_and_text(engine: SessionEngine) -> None:
    voice = engine.append("s", "user", None, attachments=[Attachment("/v.ogg", "audio")], key="v").position
    engine.enrich_message("s", voice, attachments=[Attachment("/v.ogg", "audio", "hello")])

    assert engine.view("s").messages[0].attachments == [Attachment("/v.ogg", "audio", "hello")]
    assert engine.view("s").for_model() == [{"role": "user", "content": "[audio: /v.ogg]\nhello"}]
    assert (
        engine.enrich_message("s", voice, attachments=[Attachment("/v.ogg", "audio", "hello")]).positions
        == ()
    )
    with pytest.raises(IdempotencyMismatch, match="something else already"):
        engine.enrich_message("s", voice, attachments=[Attachment("/v.ogg", "audio", "other")])


# --- edits -----------------------------------------------------------------------------------------


def test_b24_a_platforms_update_is_one_turn_before_and_after_reopening(
    engine: SessionEngine, home: Path
) -> None:
    key = "telegram:1001:update-5"
    first = engine.append("s", "user", "/restart", platform_message_id="77", key=key)
    engine.close()
    with open_home(home) as reopened:
        assert reopened.append("s", "user", "/restart", platform_message_id="77", key=key) == first
        assert len(rows(reopened, "id")) == 1


def test_b24_an_edit_is_an_edit_and_no_new_turn(engine: SessionEngine) -> None:
    first = engine.append("s", "user", "/restart", platform_message_id="77")
    saved = engine.edit_message("s", "/restart now", platform_message_id="77")

    assert topics(engine, first.position) == ["message_edited.1"]
    assert rows(engine, "content, platform_message_id") == [("/restart now", "77")]
    assert engine.edit_message("s", "/restart now", platform_message_id="77").positions == ()
    assert engine.head().position == saved.position


def test_an_edit_reaches_the_copies_that_a_compression_made(engine: SessionEngine) -> None:
    engine.append("s", "user", "older")
    engine.append("s", "user", "helo", platform_message_id="77")
    engine.compact("s", "so far", keep_last=1)
    engine.edit_message("s", "hello", platform_message_id="77")

    assert [each.content for each in engine.view("s").messages] == ["so far", "hello"]
    assert [each.content for each in engine.history("s").messages] == ["older", "hello", "so far"]


def test_an_edit_reaches_what_was_said_before_the_session_went_on_from_another(engine: SessionEngine) -> None:
    engine.append("s", "user", "odler", platform_message_id="76")
    kept = engine.append("s", "user", "helo", platform_message_id="77").position
    engine.compress("s", "so far", keep_last=1, continuation_id="next")
    engine.edit_message("next", "older", platform_message_id="76")
    engine.edit_message("next", "hello", platform_message_id="77")
    engine.enrich_message("next", kept, token_count=2)

    assert rows(engine, "content, token_count") == [("older", None), ("hello", 2)]
    assert rows(engine, "content, token_count", "next") == [("so far", None), ("hello", 2)]
    assert [each.content for each in engine.history("next").messages] == ["older", "hello", "so far"]


def test_an_edit_of_nothing_and_an_edit_to_nothing_are_refused(engine: SessionEngine) -> None:
    engine.append("s", "user", "hello", platform_message_id="77")
    with pytest.raises(NoSuchMessage, match="78"):
        engine.edit_message("s", "x", platform_message_id="78")
    with pytest.raises(NoSuchMessage, match="#1"):
        engine.edit_message("s", "x", message=1)
    with pytest.raises(RuleBroken, match="needs content"):
        engine.edit_message("s", "  ", platform_message_id="77")


# --- versions --------------------------------------------------------------------------------------


def test_b12_a_stale_batch_is_refused_and_times_stay(engine: SessionEngine) -> None:
    for number in range(9):
        engine.append("s", "user", f"m{number}", at_us=T0_US + number)
    known = engine.view("s").version
    engine.append("s", "user", "by B", at_us=T0_US + 9)
    engine.append("s", "user", "by B", at_us=T0_US + 10)
    before = rows(engine, "content, timestamp")
    with pytest.raises(VersionConflict, match="stands at version 12, not 10"):
        engine.append_messages("s", [Message("user", "by A")], expected_version=known)

    assert engine.session("s").version == known + 2 == 12
    assert rows(engine, "content, timestamp") == before
    assert engine.append("s", "user", "after reading", expected_version=12).position


# --- marked compressed, and goes on nowhere --------------------------------------------------------


def test_c13_a_session_marked_compressed_without_a_child_is_open_again_with_the_next_message(
    engine: SessionEngine,
) -> None:
    engine.append("s", "user", "one")
    end = engine.end_session("s", "compression")
    said = engine.append("s", "user", "two", key="k")

    assert topics(engine, end.position) == ["session_reopened.1", "message_appended.1"]
    assert engine.event_log.read(said.position - 1)[0].save == said.position - 1
    assert not engine.session("s").ended
    assert engine.append("s", "user", "two", key="k").positions == said.positions
    assert engine.append("s", "user", "three").position == said.position + 1


def test_c13_with_a_child_it_never_is(engine: SessionEngine) -> None:
    engine.end_session("s", "compression")
    engine.create_session("telegram", session_id="child", parent="s", parent_kind="continuation")
    head = engine.head()
    with pytest.raises(SessionOver, match="child") as refused:
        engine.append("s", "user", "two")

    assert refused.value.successor == "child"
    assert engine.head() == head


def test_c13_a_child_that_comes_at_that_moment_is_seen(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.end_session("s", "compression")
    save = engine.save_events
    with open_home(home) as other:

        def beaten(*given: Any, **more: Any) -> tuple[int, ...]:
            monkeypatch.undo()
            other.create_session("telegram", session_id="child", parent="s", parent_kind="continuation")
            return save(*given, **more)

        monkeypatch.setattr(engine, "save_events", beaten)
        with pytest.raises(SessionOver, match="child"):
            engine.append("s", "user", "two")


# --- one rule of visibility ------------------------------------------------------------------------


def test_b15_a_window_leaves_out_what_was_undone_and_keeps_what_was_compacted(engine: SessionEngine) -> None:
    ids = [engine.append("s", "user", f"m{n}").position for n in range(1, 6)]
    engine.rewind("s", ids[4])
    engine.compact("s", "so far", keep_last=1)

    assert [each.content for each in window(engine.state.reader(), "s", ids[3])] == [
        "m1",
        "m2",
        "m3",
        "m4",
        "so far",
    ]
    assert [each.content for each in window(engine.state.reader(), "s", ids[2], before=1, after=1)] == [
        "m2",
        "m3",
        "m4",
    ]
