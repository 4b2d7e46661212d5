"""What is no text is replaced or refused, and saving goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain import events as e
from retold.domain.errors import BadUsage, NoSuchSession
from retold.infrastructure.engine import SessionEngine, open_home
from retold.projections.search_query import parse
from retold.tests.infrastructure.routing import contents, payloads, rows


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


def test_b9_a_lone_surrogate_is_replaced_and_saving_goes_on(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="s1")
    engine.append_message(
        "s1", "assistant", "a\ud800b", tool_calls='[{"x":"\udfff"}]', tool_name="t\ud800", reasoning="r\ud800"
    )
    engine.append_message("s1", "user", "ok")
    odd, plain = (each for each in payloads(engine) if isinstance(each, e.MessageAppended))

    assert (odd.content, odd.tool_calls, odd.tool_name, odd.reasoning) == (
        "a\ufffdb",
        '[{"x":"\ufffd"}]',
        "t\ufffd",
        "r\ufffd",
    )
    assert (odd.scrubbed, plain.scrubbed) == (True, False)
    assert contents(engine, "s1") == ["a\ufffdb", "ok"]
    assert engine.projector.settle(wait_ms=10_000)
    assert len(rows(engine, "SELECT rowid FROM search WHERE search MATCH ?", parse("ok").match)) == 1


def test_b9_no_text_of_any_command_can_stop_saving(engine: SessionEngine) -> None:
    engine.create_session("te\ud800", session_id="s1", key="K\ud800", title="pl\ud800an", chat_id="\udc00")
    engine.create_session("cli", session_id="s2", key="K\ud800", cause="resume", parent="\ud800")
    engine.append_message("s1", "user", "x", idempotency_key="\ud800", platform_message_id="\ud800")
    engine.append_message("s1", "user", "x", idempotency_key="\ud800", platform_message_id="\ud800")
    engine.title_session("s1", "an\udfffother")
    engine.compress_session("s1", "sum\ud800", continuation_id="s3")
    engine.reroute(
        "K\ud800", "s1", "repair", evidence=["\ud800"], candidates=[e.RouteCandidate("s2", "\ud800")]
    )
    engine.end_session("s2", "\ud800")

    assert engine.route_of("K\ud800") == "s1"
    assert rows(engine, "SELECT title FROM sessions ORDER BY id") == [
        ("an\ufffdother",),
        (None,),
        ("an\ufffdother #2",),
    ]
    assert contents(engine, "s1") == ["x"]


def test_b9_an_id_that_is_no_text_is_refused(engine: SessionEngine) -> None:
    with pytest.raises(BadUsage, match="cannot be a session's id"):
        engine.create_session("cli", session_id="s\ud800")
    with pytest.raises(NoSuchSession):
        engine.append_message("s\ud800", "user", "hi")


@pytest.mark.parametrize(
    ("content", "why"),
    [(7, "may be a str, a list, a dict or None"), (b"bytes", "holds a file's bytes"), ([{1: 2}], "no text")],
)
def test_content_that_is_none_is_refused_with_what_it_may_be(
    engine: SessionEngine, content: Any, why: str
) -> None:
    engine.create_session("cli", session_id="s1")
    with pytest.raises(BadUsage, match=f"content .*{why}"):
        engine.append_message("s1", "user", content)

    assert contents(engine, "s1") == []


def test_no_other_text_may_be_anything_else(engine: SessionEngine) -> None:
    odd: Any = 7
    with pytest.raises(BadUsage, match="source may be a str"):
        engine.create_session(odd)
    engine.create_session("cli", session_id="s1")
    with pytest.raises(BadUsage, match="role may be a str"):
        engine.append_message("s1", odd, "text")
    with pytest.raises(BadUsage, match="tool_calls may be a str"):
        engine.append_message("s1", "assistant", None, tool_calls=7)
