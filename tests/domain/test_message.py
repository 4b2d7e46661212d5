"""What may be said, how it is kept, and when two deliveries are one message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.domain.errors import BadUsage, BytesRefused, RuleBroken
from retold.domain.events import Attachment, MessageAppended
from retold.domain.message import (
    Message,
    attachment_note,
    attachments_given,
    attachments_kept,
    changed,
    content_given,
    enriched,
    json_given,
    message_of,
    said,
)

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def kept(message: Message) -> MessageAppended:
    return said(message, where="session s")


# --- how it is kept --------------------------------------------------------------------------------


def test_structured_content_is_marked_and_comes_back_as_it_was_given() -> None:
    parts = [
        {"type": "text", "text": "keep it dry 🚤"},
        {"type": "image_url", "image_url": {"url": "https://x/1.png"}},
    ]
    payload = kept(Message("user", parts))

    assert payload.content is not None
    assert payload.content.startswith("\0json:[")
    assert content_given(payload.content) == parts


def test_plain_text_stays_text_even_where_it_looks_like_json() -> None:
    assert kept(Message("user", '[{"type":"text"}]')).content == '[{"type":"text"}]'
    assert content_given('["a"]') == '["a"]'


def test_tool_calls_are_given_as_a_list_or_as_json_text() -> None:
    calls = [{"id": "c1", "function": {"name": "weather", "arguments": "{}"}}]

    assert json_given(kept(Message("assistant", tool_calls=calls)).tool_calls) == calls
    assert kept(Message("assistant", tool_calls='[{"id":"c1"}]')).tool_calls == '[{"id":"c1"}]'


def test_b9_lone_surrogates_are_replaced_at_any_depth_and_flagged() -> None:
    deep = {"a\ud800": [{"b": "c\udfff"}]}
    for message in (
        Message("user", [deep]),
        Message("assistant", tool_calls=[deep]),
        Message("assistant", "x", reasoning="y\ud800"),
        Message("assistant", "x", reasoning_details=[deep]),
        Message("assistant", tool_calls='[{"id": "c\\ud800"}]'),
        Message("user", '\0json:[{"text": "escaped \\ud83d alone"}]'),
        Message("user", "x", attachments=[Attachment("/a\ud800", "image", "b\ud800")]),
    ):
        payload = kept(message)

        assert payload.scrubbed
        for text in msgspec.to_builtins(payload):
            if isinstance(text, str):
                text.encode()
        for value in (content_given(payload.content), json_given(payload.tool_calls)):
            json.dumps(value, ensure_ascii=False).encode()


def test_an_escaped_pair_is_a_character_and_stays_as_it_was_written() -> None:
    payload = kept(Message("user", '\0json:["\\ud83d\\ude00"]'))

    assert payload.content == '\0json:["\\ud83d\\ude00"]'
    assert not payload.scrubbed


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_json_can_hold_comes_back(value: Any) -> None:
    content = {"type": "any", "value": value}

    assert content_given(kept(Message("user", content)).content) == content


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (None, None),
        ("", ""),
        ("plain\0text", "plain\0text"),
        ('\0json:[{"type":"text","text":"hi"}]', [{"type": "text", "text": "hi"}]),
        ("\0json:{broken", "\0json:{broken"),
        ('\0json:"text"', "text"),
    ],
)
def test_content_is_decoded_where_it_is_structured(content: str | None, value: object) -> None:
    assert content_given(content) == value


def test_malformed_tool_calls_stay_text() -> None:
    assert json_given('[{"a": 1}]') == [{"a": 1}]
    assert json_given("[{") == "[{"
    assert json_given("[" * 100_000) == "[" * 100_000


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        Message("user", b"\x89PNG"),  # type: ignore[arg-type] # what is refused
        Message("user", [{"type": "image", "data": b"\x89PNG"}]),
        Message("user", [{"type": "image", "data": bytearray(b"x")}]),
        Message("user", [IMAGE]),
        Message("user", [{"type": "image", "source": {"type": "base64", "data": "iVBO"}}]),
        Message("user", [{"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}]),
        Message("assistant", tool_calls=[{"id": b"c1"}]),
        Message("user", "look", attachments=[{"path": "/a.png", "kind": "image", "bytes": b"x"}]),
        Message("user", "look", attachments=[{"path": "/a.png", "kind": "image", "text": b"x"}]),
        Message("user", "look", attachments=[Attachment("data:image/png;base64,iVBO", "image")]),
    ],
)
def test_bytes_are_refused_wherever_they_stand(message: Message) -> None:
    with pytest.raises(BytesRefused, match=r"session s: .* bytes") as refused:
        kept(message)

    assert "path" in refused.value.hint


@pytest.mark.parametrize(
    "message",
    [
        Message("user", 7),  # type: ignore[arg-type] # what is refused
        Message("user", [{1: 2}]),
        Message("user", [float("nan")]),
        Message("user", [{1, 2}]),
        Message("user", "x", token_count=-1),
        Message("user", "x", token_count=True),
        Message("user", "x", token_count=1 << 63),
        Message("user", "x", attachments="a.png"),  # type: ignore[arg-type] # what is refused
        Message("user", "x", attachments=["a.png"]),  # type: ignore[list-item] # what is refused
        Message("user", "x", attachments=[{"path": "a.png"}]),
        Message("user", "x", attachments=[{"path": "a.png", "kind": "image", "size": 1}]),
    ],
)
def test_what_is_no_message_is_bad_usage(message: Message) -> None:
    with pytest.raises(BadUsage, match="session s: "):
        kept(message)


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(BadUsage, match="JSON has no form"):
        kept(Message("user", endless))


def test_a_field_that_no_message_has_is_named() -> None:
    with pytest.raises(BadUsage, match="mood") as refused:
        message_of({"role": "user", "content": "x", "mood": "fair"})

    assert "tool_calls" in refused.value.hint


@pytest.mark.parametrize("content", ["", "  \n", None, [], {}])
def test_a_message_needs_content_or_calls_or_a_file(content: Any) -> None:
    for role in ("user", "assistant"):
        with pytest.raises(RuleBroken, match="needs content"):
            kept(Message(role, content, tool_calls=[]))

    assert kept(Message("assistant", content, tool_calls=[{"id": "c"}])).tool_calls == '[{"id": "c"}]'
    assert kept(Message("tool", content, tool_call_id="c")).tool_call_id == "c"
    assert kept(Message("user", content, attachments=[Attachment("/v.ogg", "audio")])).attachments


def test_a_message_needs_a_role() -> None:
    with pytest.raises(RuleBroken, match="needs a role"):
        kept(Message(" ", "hello"))


# --- attachments -----------------------------------------------------------------------------------


def test_attachments_come_as_structs_dicts_or_paths_and_back_out_of_the_tables() -> None:
    payload = kept(
        Message(
            "user",
            "look",
            attachments=[
                Attachment("/a.png", "image"),
                {"path": Path("/b.ogg"), "kind": "audio", "text": "hello"},
            ],
        )
    )

    assert payload.attachments == [Attachment("/a.png", "image"), Attachment("/b.ogg", "audio", "hello")]
    assert attachments_given(attachments_kept(payload.attachments)) == payload.attachments
    assert attachments_kept([]) is None
    assert attachments_given("no list") == []


def test_later_turns_are_told_what_was_read_from_a_file_or_where_it_lies() -> None:
    assert attachment_note(Attachment("/a.pdf", "document")) == "[document: /a.pdf]"
    assert attachment_note(Attachment("/b.ogg", "audio", "hello")) == "[audio: /b.ogg]\nhello"


# --- delivered again -------------------------------------------------------------------------------

FIRST = kept(Message("user", "hi", platform_message_id="77"))


def test_a_second_delivery_adds_what_the_first_did_not_know() -> None:
    again = kept(Message("user", "hi", platform_message_id="77", token_count=3))
    changes = enriched(FIRST, again) or {}

    assert changes == {"token_count": 3}
    assert changed(FIRST, changes) == again
    assert enriched(again, FIRST) == {}


def test_a_file_that_was_read_since_is_no_other_message() -> None:
    heard = kept(Message("user", "hi", attachments=[Attachment("/b.ogg", "audio")]))
    read = kept(Message("user", "hi", attachments=[Attachment("/b.ogg", "audio", "hello")]))
    changes = enriched(heard, read)

    assert changes is not None
    assert changed(heard, changes) == read
    assert enriched(read, kept(Message("user", "hi", attachments=[Attachment("/c.ogg", "audio")]))) is None


@pytest.mark.parametrize(
    "other",
    [
        Message("assistant", "hi"),
        Message("user", "ho"),
        Message("user", "hi", platform_message_id="78"),
        Message("user", "hi", tool_name="weather"),
        Message("user", "hi", observed=True),
        Message("user", ["hi"]),
    ],
)
def test_other_content_is_another_message(other: Message) -> None:
    assert enriched(FIRST, kept(other)) is None


def test_of_json_the_value_counts_and_not_how_it_was_written() -> None:
    one = kept(Message("assistant", {"a": 1, "b": 2}, tool_calls=[{"id": "c", "x": 1}]))
    other = kept(Message("assistant", {"b": 2, "a": 1}, tool_calls='[{"x":1,"id":"c"}]'))

    assert enriched(one, other) == {}
    assert (
        enriched(one, kept(Message("assistant", {"a": 2, "b": 2}, tool_calls=[{"id": "c", "x": 1}]))) is None
    )
