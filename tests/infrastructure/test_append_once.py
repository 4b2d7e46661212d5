"""FIELD_CASES B27: one message a key, however often and by whomever it is delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retold.domain.errors import IdempotencyMismatch
from retold.domain.events import MessageAppended
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.log import Conflict
from retold.tests.infrastructure.processes import run_together


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        opened.create_session("telegram", session_id="s1")
        opened.create_session("telegram", session_id="s2")
        yield opened


def test_b27_the_same_key_and_content_is_one_message(engine: SessionEngine) -> None:
    first = engine.append_message("s1", "user", "hello\ud800", idempotency_key="m1")
    head = engine.head()
    again = engine.append_message("s1", "user", "hello\ud800", idempotency_key="m1")

    assert again == first
    assert engine.head() == head


def test_b27_the_same_key_with_other_content_is_an_error(engine: SessionEngine) -> None:
    first = engine.append_message("s1", "user", "hello", idempotency_key="m1")
    for role, content, name in (
        ("user", "other", None),
        ("assistant", "hello", None),
        ("user", "hello", "tool"),
    ):
        with pytest.raises(IdempotencyMismatch, match=f"another message \\(#{first.position}\\)"):
            engine.append_message("s1", role, content, tool_name=name, idempotency_key="m1")

    assert engine.head().position == first.position


def test_b27_a_version_is_used_once(engine: SessionEngine) -> None:
    engine.append_message("s1", "user", "hello")
    taken = engine.event_log.read()[-1]
    from retold.domain.events import Event, MessageAppended

    draft = engine.draft(Event(taken.stream, taken.version, MessageAppended("user", "usurper"), 5))
    with pytest.raises(Conflict):
        engine.event_log.append([draft])

    assert engine.head().position == taken.position


def test_b27_a_key_is_a_sessions_own(engine: SessionEngine) -> None:
    one = engine.append_message("s1", "user", "hello", idempotency_key="m1")
    other = engine.append_message("s2", "user", "something else", idempotency_key="m1")

    assert other.position == one.position + 1


def test_b27_keys_hold_across_reopening(engine: SessionEngine, home: Path) -> None:
    first = engine.append_message("s1", "user", "hello", idempotency_key="m1")
    engine.close()
    with open_home(home) as reopened:
        assert reopened.append_message("s1", "user", "hello", idempotency_key="m1") == first
        with pytest.raises(IdempotencyMismatch):
            reopened.append_message("s1", "user", "other", idempotency_key="m1")


def test_b27_keys_outlive_the_projections(engine: SessionEngine) -> None:
    first = engine.append_message("s1", "user", "hello", idempotency_key="m1")
    with engine.projector.transaction() as db:
        db.execute("DELETE FROM messages")

    assert engine.append_message("s1", "user", "hello", idempotency_key="m1") == first


def test_b27_some_of_a_save_may_have_been_delivered_before(engine: SessionEngine) -> None:
    first = engine.append_message("s1", "user", "one", idempotency_key="m1").position
    saved = engine.append_messages(
        "s1",
        [{"role": "user", "content": text} for text in ("zero", "one", "two", "zero", "unkeyed")],
        idempotency_keys=["m0", "m1", "m2", "m0", None],
    )

    assert saved.positions == (first + 1, first, first + 2, first + 1, first + 3)
    assert engine.head().position == first + 3


def test_b27_one_save_that_gives_a_key_to_two_messages_is_refused_whole(engine: SessionEngine) -> None:
    head = engine.head()
    with pytest.raises(IdempotencyMismatch):
        engine.append_messages(
            "s1",
            [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}],
            idempotency_keys=["m1", "m1"],
        )

    assert engine.head() == head


def test_b27_a_redelivery_after_the_end_is_answered_and_not_refused(engine: SessionEngine) -> None:
    first = engine.append_message("s1", "user", "hello", idempotency_key="m1")
    engine.end_session("s1", "session_reset")

    assert engine.append_message("s1", "user", "hello", idempotency_key="m1") == first


def test_b27_an_erased_message_stays_erased_when_it_is_delivered_again(engine: SessionEngine) -> None:
    first = engine.append_message("s1", "user", "a secret", idempotency_key="m1")
    engine.erase_messages([first.position], reason="asked for")
    head = engine.head()

    assert engine.append_message("s1", "user", "a secret", idempotency_key="m1") == first
    assert engine.head() == head


def test_b27_processes_that_deliver_the_same_messages_at_once_write_each_once(
    engine: SessionEngine, home: Path
) -> None:
    code = """
        for number in range(20):
            saved = engine.append_message("s1", "user", f"message {number}", idempotency_key=f"m{number}")
            print(saved.position)
    """
    answers = run_together(home, [code] * 3)

    assert answers[0] == answers[1] == answers[2]
    assert len(set(answers[0])) == 20
    assert engine.event_log.stream_version("session:s1") == 21


# --- over a compression ------------------------------------------------------------------------------


def compressed(engine: SessionEngine, *, keep_last: int = 1) -> str:
    engine.append_message("s1", "user", "first", idempotency_key="m1")
    engine.append_message("s1", "assistant", "to first")
    engine.append_message("s1", "user", "second", idempotency_key="m2")
    return engine.compress_session("s1", "so far", keep_last=keep_last).session_id


def said_by_users(engine: SessionEngine) -> list[object]:
    return [
        event.payload.content
        for event in engine.event_log.read(topics=[MessageAppended.topic])
        if isinstance(event.payload, MessageAppended) and event.payload.copy_of is None
        if event.payload.role == "user" and not event.payload.summary
    ]


@pytest.mark.parametrize("keep_last", [0, 1])
def test_b27_a_message_is_one_also_where_its_session_went_on_as_another(
    engine: SessionEngine, keep_last: int
) -> None:
    child = compressed(engine, keep_last=keep_last)
    engine.append(child, "user", "more")
    grandchild = engine.compress_session(child, "so much", keep_last=keep_last).session_id
    first, second = (
        each.position
        for each in engine.event_log.read(topics=[MessageAppended.topic])
        if isinstance(each.payload, MessageAppended) and each.payload.content in ("first", "second")
        if each.payload.copy_of is None
    )
    head = engine.head()

    assert engine.append(grandchild, "user", "first", key="m1").positions == (first,)
    assert engine.append(grandchild, "user", "second", key="m2").positions == (second,)
    assert engine.head() == head
    with pytest.raises(IdempotencyMismatch):
        engine.append(grandchild, "user", "other", key="m2")
    engine.append(grandchild, "user", "third", key="m3")
    assert said_by_users(engine) == ["first", "second", "more", "third"]


def test_b27_what_a_redelivery_adds_after_a_compression_is_added_to_the_message_and_its_copies(
    engine: SessionEngine,
) -> None:
    child = compressed(engine)
    engine.append(child, "user", "third", key="m3")
    done = engine.append(child, "user", "second", key="m2", platform_message_id="p2")
    following = engine.append(child, "user", "fourth", key="m4")

    assert len(done.enriched) == 2
    assert [each.platform_message_id for each in engine.view(child).messages if each.content == "second"] == [
        "p2"
    ]
    shown = engine.history(child).messages
    assert [each.platform_message_id for each in shown if each.content == "second"] == ["p2"]
    assert following.positions[0] == engine.head().position
    assert said_by_users(engine) == ["first", "second", "third", "fourth"]


def test_b27_a_parent_that_was_deleted_hinders_no_message(engine: SessionEngine) -> None:
    child = compressed(engine)
    engine.delete_session("s1", now=True)

    assert engine.append(child, "user", "third", key="m3").positions


def test_b27_a_branch_and_a_chat_that_began_anew_are_other_conversations(engine: SessionEngine) -> None:
    engine.append_message("s1", "user", "first", idempotency_key="m1")
    branch = engine.branch_session("s1").session_id

    assert engine.append(branch, "user", "another", key="m1").positions
