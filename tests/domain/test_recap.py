"""The rules of a recap: who is shown, and how much of it."""

from __future__ import annotations

from typing import Any

import pytest

from retold.domain.recap import Entry, Limits, entry, plain, without_thoughts

PLAIN = Limits()
CALL = {"function": {"name": "read_file", "arguments": "{}"}}


def text(role: str, content: Any, calls: Any = None, limits: Limits = PLAIN) -> str | None:
    made = entry(role, content, calls, limits)
    return None if made is None else made.text


def test_a_person_is_shown_up_to_300_characters() -> None:
    assert text("user", "x" * 300) == "x" * 300
    assert text("user", "x" * 301) == "x" * 300 + "..."


def test_an_answer_is_shown_up_to_3_lines_and_then_200_characters() -> None:
    assert text("assistant", "a\nb\nc") == "a\nb\nc"
    assert text("assistant", "a\nb\nc\nd") == "a\nb\nc ..."
    assert text("assistant", "x" * 201) == "x" * 200 + "..."


def test_the_whole_of_an_entry_is_kept_beside_what_is_shown() -> None:
    assert entry("assistant", "a\nb\nc\nd", [CALL], PLAIN) == Entry(
        "assistant", "a\nb\nc ... [1 tool call: read_file]", "a\nb\nc\nd [1 tool call: read_file]"
    )


def test_calls_are_all_counted_and_named_once_and_four_at_most() -> None:
    names = ["a", "b", "a", "c", "d", "e"]
    calls = [{"function": {"name": each}} for each in names]

    assert text("assistant", "so", calls) == "so [6 tool calls: a, b, c, d, ...]"
    assert text("assistant", "so", [{"function": 1}, "odd"]) == "so [2 tool calls: unknown]"


def test_an_answer_that_only_calls_tools_is_shown_where_that_is_asked_for() -> None:
    assert text("assistant", None, [CALL]) is None
    assert text("assistant", "", [CALL], Limits(skip_tool_only=False)) == "[1 tool call: read_file]"


@pytest.mark.parametrize("role", ["system", "tool", "session_meta"])
def test_nobody_else_is_shown(role: str) -> None:
    assert text(role, "x") is None


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("<think>hm\nhm</think>\nyes", "yes"),
        ("<THINKING>hm</THINKING> yes", "yes"),
        ("yes <reasoning>and then", "yes"),
        ("hm</think>yes", "hmyes"),
        ("a < b", "a < b"),
        ("<think>only</think>", ""),
    ],
)
def test_what_a_model_thought_aloud_is_left_out(said: str, shown: str) -> None:
    assert without_thoughts(said) == shown
    assert text("assistant", said) == (shown or None)


def test_a_picture_is_a_word() -> None:
    parts = [{"type": "text", "text": "this?"}, {"type": "image_url", "image_url": {"url": "x"}}, 7]

    assert text("user", parts) == "this? [image]"


def test_nothing_that_a_terminal_obeys_is_shown() -> None:
    assert plain("\x1b[2Ja\x1b]0;title\x07b\x9b31mc\x00\r\nd\te") == "abc\nd\te"
