"""Compressing a context and taking turns back, over plain lines; and the sequence that a model is given."""

from __future__ import annotations

from typing import Any

import pytest

from retold.domain.context import (
    Line,
    answered,
    call_ids,
    compression,
    last_turns,
    rewinding,
    summarised,
    taken_back,
)
from retold.domain.errors import BadUsage, NoSuchMessage, NothingToDo, RuleBroken
from retold.domain.events import Attachment, MessagesRestored, MessagesRewound
from retold.domain.view import NO_RESULT, Seen, View, valid


def user(number: int, **more: Any) -> Line:
    return Line(number, "user", **more)


def answer(number: int, *calls: str, **more: Any) -> Line:
    return Line(number, "assistant", calls=calls, **more)


def result(number: int, call: str | None = None) -> Line:
    return Line(number, "tool", answers=call)


TALK = [user(1), answer(2), user(3), answer(4, "c"), result(5, "c"), answer(6), user(7), answer(8)]


def kept(lines: list[Line], **how: Any) -> list[int]:
    return compression(lines, where="session s", **how).kept


# --- compressing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep_last", "ids"), [(0, []), (1, [7, 8]), (2, [3, 4, 5, 6, 7, 8])])
def test_the_last_exchanges_are_kept_whole(keep_last: int, ids: list[int]) -> None:
    done = compression(TALK, keep_last=keep_last, where="session s")

    assert done.kept == ids
    assert done.leaving == [1, 2, 3, 4, 5, 6, 7, 8]


def test_what_somebody_overheard_begins_no_exchange() -> None:
    assert kept([*TALK, user(9, observed=True)], keep_last=1) == [7, 8, 9]


def test_a_result_is_kept_with_its_call_and_a_call_with_its_results() -> None:
    assert kept(TALK, tail=[5]) == [4, 5]
    assert kept(TALK, tail=[4]) == [4, 5]
    interrupted = [user(1), answer(2, "a", "b"), result(3, "a"), user(4), result(5, "b"), answer(6)]

    assert kept([user(0), *interrupted], keep_last=1) == [2, 3, 4, 5, 6]


def test_a_result_whose_call_is_gone_is_not_kept() -> None:
    assert kept([user(1), user(2), result(3, "gone"), answer(4)], keep_last=1) == [2, 4]


def test_what_was_said_after_the_summary_was_written_is_kept_too() -> None:
    assert kept(TALK, upto=2) == [3, 4, 5, 6, 7, 8]
    assert kept(TALK, upto=6, keep_last=1) == [3, 4, 5, 6, 7, 8]


def test_an_older_summary_leaves_whatever_is_kept() -> None:
    lines = [user(1, visibility="compacted"), user(3, summary=True), user(4), answer(5), user(6), answer(7)]

    assert compression(lines, keep_last=1, where="s").kept == [6, 7]
    with pytest.raises(NothingToDo):
        compression(lines, keep_last=2, where="s")


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"keep_last": 3}, NothingToDo),
        ({"keep_last": -1}, BadUsage),
        ({"keep_last": 1, "tail": [7]}, BadUsage),
        ({"tail": [99]}, NoSuchMessage),
        ({"upto": 0}, NothingToDo),
    ],
)
def test_a_compression_that_means_nothing_is_refused(how: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="session s"):
        compression(TALK, where="session s", **how)


def test_a_summary_says_something_and_is_marked() -> None:
    assert summarised("so far", where="s").summary
    with pytest.raises(RuleBroken, match="needs a summary"):
        summarised(" ", where="s")


# --- taking back -----------------------------------------------------------------------------------


def test_a_rewind_takes_back_the_message_and_all_after_it() -> None:
    done = rewinding(TALK, 3, [], where="s")

    assert done.rewound == MessagesRewound([3, 4, 5, 6, 7, 8])
    assert (done.target.id, done.count, done.last) == (3, 6, 2)


@pytest.mark.parametrize("message", [2, 5, 99])
def test_only_a_users_message_of_the_session_can_be_gone_back_to(message: int) -> None:
    with pytest.raises(NoSuchMessage, match=f"#{message}"):
        rewinding(TALK, message, [], where="s")


def test_what_was_taken_back_is_not_taken_back_again() -> None:
    with pytest.raises(NoSuchMessage, match="before"):
        rewinding([user(1), user(2, visibility="rewound")], 2, [], where="s")


COMPACTED = [
    *(user(n, visibility="compacted") if n % 2 else answer(n, visibility="compacted") for n in range(1, 7)),
    user(8, summary=True),
    user(9, copy_of=5),
    answer(10, copy_of=6),
    user(11),
    answer(12),
]
"""Three exchanges, compacted by #7 but for the last one, and a fourth."""


def test_a_copy_that_is_taken_back_takes_its_first_with_it() -> None:
    for asked in (5, 9):  # by either id
        done = rewinding(COMPACTED, asked, [range(1, 7)], where="s")

        assert sorted(done.rewound.messages) == [5, 6, 9, 10, 11, 12]
        assert done.rewound.compacted == [5, 6]
        assert done.rewound.restored == []
        assert (done.count, done.last) == (4, 8)


def test_going_back_to_before_a_compaction_undoes_it() -> None:
    done = rewinding(COMPACTED, 3, [range(1, 7)], where="s")

    assert done.rewound.restored == [1, 2]
    assert sorted(done.rewound.messages) == [3, 4, 5, 6, 8, 9, 10, 11, 12]
    assert done.last == 2


def test_a_message_that_was_kept_out_of_turn_survives_in_its_own_place() -> None:
    lines = [
        *(each for each in COMPACTED[:6]),
        user(8, summary=True),
        user(9, copy_of=1),
        user(10),
    ]
    done = rewinding(lines, 3, [range(1, 7)], where="s")

    assert done.rewound.restored == [1, 2]
    assert sorted(done.rewound.messages) == [3, 4, 5, 6, 8, 9, 10]


def test_where_nobody_recorded_the_compaction_it_cannot_be_undone() -> None:
    with pytest.raises(NoSuchMessage, match="left its context before"):
        rewinding(COMPACTED, 3, [], where="s")


def test_turns_are_counted_from_the_last_one_back_each_once() -> None:
    assert [last_turns(COMPACTED, n, where="s") for n in (1, 2, 3, 4, 5)] == [11, 9, 3, 1, 1]
    with pytest.raises(NothingToDo, match="no turn"):
        last_turns([answer(1), user(2, observed=True)], 1, where="s")
    with pytest.raises(BadUsage):
        last_turns(TALK, 0, where="s")


def test_the_reverse_of_a_rewind_is_every_message_as_it_stood() -> None:
    rewound = MessagesRewound([5, 6, 9, 10], compacted=[5, 6], restored=[1])

    assert taken_back(rewound) == MessagesRestored([9, 10], compacted=[5, 6, 1])


# --- calls and results -----------------------------------------------------------------------------


def test_a_result_belongs_to_the_last_call_of_its_id_that_has_none() -> None:
    lines = [answer(1, "c"), result(2, "c"), answer(3, "c"), result(4, "c"), result(5, "c")]

    assert answered(lines) == {2: (1, "c"), 4: (3, "c")}


def test_a_result_that_names_no_call_belongs_to_the_oldest_that_waits() -> None:
    lines = [result(1), answer(2, "a", "b"), result(3), result(4), result(5)]

    assert answered(lines) == {3: (2, "a"), 4: (2, "b")}


def test_calls_are_known_by_their_ids_or_their_places() -> None:
    assert call_ids([{"id": "a"}, {"call_id": "b"}, {"name": "x"}, "odd"]) == ("a", "b", "2", "3")
    assert call_ids("malformed") == ()


# --- the sequence ----------------------------------------------------------------------------------


def seen(number: int, role: str, content: Any = "x", *, calls: Any = None, **more: Any) -> Seen:
    return Seen(number, "s", role, content, tool_calls=calls, **more)


def test_i15_each_call_is_followed_by_its_results_and_none_stands_alone() -> None:
    calls = [{"id": "a", "function": {"name": "weather"}}, {"id": "b"}]
    shown, warnings = valid(
        [
            seen(1, "tool", tool_call_id="gone"),
            seen(2, "user"),
            seen(3, "assistant", calls=calls),
            seen(4, "user"),
            seen(5, "tool", "dry", tool_call_id="b"),
            seen(6, "assistant"),
        ]
    )

    assert [(each.id, each.role, each.tool_call_id, each.kind) for each in shown] == [
        (2, "user", None, "message"),
        (3, "assistant", None, "message"),
        (3, "tool", "a", "placeholder"),
        (5, "tool", "b", "message"),
        (4, "user", None, "message"),
        (6, "assistant", None, "message"),
    ]
    assert (shown[2].content, shown[2].tool_name) == (NO_RESULT, "weather")
    assert len(warnings) == 2
    assert "#1" in warnings[0] + warnings[1]


def test_a_model_is_told_of_files_by_path_and_text_and_of_old_bytes_by_their_kind() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [
        seen(1, "user", [{"type": "text", "text": "look"}, image]),
        seen(2, "assistant", "a boat"),
        seen(3, "user", "and this", attachments=[Attachment("/b.ogg", "audio", "hello")]),
        seen(4, "assistant", None, calls=[{"id": "c"}]),
        seen(5, "tool", "dry", tool_call_id="c", tool_name="weather"),
    ]

    assert View("s", messages).for_model() == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "text", "text": "[image_url]"}],
        },
        {"role": "assistant", "content": "a boat"},
        {"role": "user", "content": "and this\n[audio: /b.ogg]\nhello"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        {"role": "tool", "content": "dry", "tool_call_id": "c", "name": "weather"},
    ]
    assert View("s", messages[:1]).for_model()[0]["content"][1] == image
