"""A view in the forms that the APIs of models take, whatever was stored."""

from __future__ import annotations

from typing import Any

import pytest

from retold.domain.view import NO_RESULT, Seen, View, valid
from retold.domain.view_formats import LEFT_OUT, as_anthropic, as_openai


def call(call_id: str | None, name: str = "read file", arguments: Any = '{"path": "a"}') -> dict[str, Any]:
    made = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return made if call_id is None else {"id": call_id} | made


def view(*said: tuple[str, Any] | Seen) -> View:
    seen = [
        each if isinstance(each, Seen) else Seen(number, "s", each[0], each[1])
        for number, each in enumerate(said, 1)
    ]
    messages, warnings = valid(seen)
    return View("s", messages, warnings)


def assistant(number: int, content: Any, *calls: Any) -> Seen:
    return Seen(number, "s", "assistant", content, tool_calls=list(calls))


def result(number: int, call_id: str, content: Any = "found") -> Seen:
    return Seen(number, "s", "tool", content, tool_call_id=call_id, tool_name="read_file")


TALK = view(
    ("system", "be brief"),
    ("user", "look"),
    assistant(3, None, call("call:1"), call("call:2")),
    result(4, "call:1"),
    ("user", "and?"),
    ("user", "now"),
    assistant(7, "so  "),
)


def refuse_invalid(messages: list[dict[str, Any]]) -> None:
    """What Anthropic's API holds a request against."""
    ids: list[str] = []
    waiting: list[str] = []
    for index, each in enumerate(messages):
        assert each["role"] == ("user", "assistant")[index % 2]
        assert each["content"]
        found = [part["tool_use_id"] for part in each["content"] if part["type"] == "tool_result"]
        assert sorted(found) == sorted(waiting)
        assert [part["type"] == "tool_result" for part in each["content"]] == sorted(
            [part["type"] == "tool_result" for part in each["content"]], reverse=True
        )
        waiting = [part["id"] for part in each["content"] if part["type"] == "tool_use"]
        ids += waiting
        for part in each["content"]:
            assert part["type"] != "text" or part["text"].strip()
            assert part["type"] != "tool_use" or isinstance(part["input"], dict)
    assert not waiting
    assert len(set(ids)) == len(ids)


def test_openai_is_given_roles_calls_and_their_results_in_order() -> None:
    given = as_openai(TALK)

    assert given.messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": name,
                    "type": "function",
                    "function": {"name": "read file", "arguments": '{"path": "a"}'},
                }
                for name in ("call:1", "call:2")
            ],
        },
        {"role": "tool", "tool_call_id": "call:1", "content": "found"},
        {"role": "tool", "tool_call_id": "call:2", "content": NO_RESULT},
        {"role": "user", "content": "and?"},
        {"role": "user", "content": "now"},
        {"role": "assistant", "content": "so  "},
    ]


def test_anthropic_is_given_turns_that_alternate_and_the_system_apart() -> None:
    given = as_anthropic(TALK)

    refuse_invalid(given.messages)
    assert given.system == "be brief"
    assert [part["type"] for part in given.messages[2]["content"]] == [
        "tool_result", "tool_result", "text", "text",
    ]  # fmt: skip
    assert given.messages[1]["content"][0] == {
        "type": "tool_use",
        "id": "call_1",
        "name": "read_file",
        "input": {"path": "a"},
    }
    assert given.messages[-1]["content"] == [{"type": "text", "text": "so"}]


@pytest.mark.parametrize(
    "said",
    [
        [assistant(1, "hello"), ("user", "hi")],
        [result(1, "gone"), ("user", "hi")],
        [
            ("user", "a"),
            assistant(2, "", call("x")),
            ("user", "b"),
            assistant(4, "", call("x")),
            result(5, "x"),
        ],
        [("user", "a"), assistant(2, None, call(None), "odd", call("y", arguments="no json"))],
        [("user", " "), assistant(2, ""), ("user", None)],
        [("user", [{"type": "text", "text": "x"}, {"type": "strange"}, 5, "y"])],
        [("user", "a"), assistant(2, " \n")],
        [("user", "a"), ("session_meta", "x"), ("developer", "y")],
        [("user", "a"), assistant(2, None, call("z", arguments=[1]))],
    ],
)
def test_what_was_stored_oddly_is_still_a_valid_request(said: list[Any]) -> None:
    odd = view(*said)

    refuse_invalid(as_anthropic(odd).messages)
    for each in as_openai(odd).messages:
        assert each["content"] is not None or each["tool_calls"]


def test_a_view_that_begins_with_an_answer_says_that_something_is_left_out() -> None:
    assert as_anthropic(view(assistant(1, "hello"))).messages[0] == {
        "role": "user",
        "content": [{"type": "text", "text": LEFT_OUT}],
    }


def test_a_picture_goes_along_in_the_form_of_each() -> None:
    data = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    link = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    seen = view(("user", [data, link]))

    assert as_openai(seen).messages == [{"role": "user", "content": [data, link]}]
    assert [part["source"] for part in as_anthropic(seen).messages[0]["content"]] == [
        {"type": "base64", "media_type": "image/png", "data": "QUJD"},
        {"type": "url", "url": "https://example.org/a.png"},
    ]


def test_a_role_that_no_model_knows_is_left_out_and_named() -> None:
    odd = view(("user", "a"), ("session_meta", "x"))

    assert len(as_openai(odd).messages) == len(as_anthropic(odd).messages) == 1
    assert "session_meta" in as_openai(odd).warnings[0]
    assert as_openai(odd).warnings == as_anthropic(odd).warnings
