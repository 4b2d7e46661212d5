"""A row of another store becomes events, and the events give the row back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.domain import events as e
from retold.domain.events import Odd, Payload
from retold.domain.message import TEXTS
from retold.domain.parents import cycles, parent_kind
from retold.domain.source_messages import (
    digest,
    message_after,
    message_appended,
    message_edited,
    message_time_us,
    shown,
    source_row_of,
)
from retold.domain.source_rows import (
    ASPECTS,
    IDENTITY,
    TOKENS,
    USAGE,
    differing,
    here_after,
    packed,
    seen_after,
    session_changes,
    session_continued,
    session_created,
    session_payloads,
    settled,
    unpacked,
)
from retold.domain.source_values import Row, time_us
from retold.infrastructure import codec

INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
TEXT = st.text(max_size=12)
INVALID = st.sampled_from([b"\xff", b"a\xed\xa0\x80b", b"\x80\x00"]).map(lambda raw: Odd("text", raw))
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    INTS,
    st.sampled_from([0, 1, 0.0, 1.0, "", "\0json:[]"]),
    FLOATS,
    TEXT,
    st.binary(max_size=6),
    INVALID,
)
SESSION_COLUMNS = sorted(
    {*(c for aspect in ASPECTS for c in aspect), "source", "started_at", "parent_session_id", "profile_name"}
    | {"rewind_count", "handoff_state", "a column of tomorrow"}
)
ROWS = st.dictionaries(st.sampled_from(SESSION_COLUMNS), VALUES).map(settled)
MESSAGE_COLUMNS = ["role", *TEXTS, "timestamp", "token_count", "observed", "active", "compacted", "new"]
MESSAGES = st.dictionaries(st.sampled_from(MESSAGE_COLUMNS), VALUES).map(
    lambda row: {"id": 7, "session_id": "s", **row}
)


def stored(payload: Payload) -> Any:
    """The payload as the log gives it back."""
    return codec.decode(payload.topic, codec.encode(payload))


def folded(row: Row, payloads: list[Payload]) -> Row:
    for payload in payloads:
        row = seen_after(row, stored(payload), 5)
    return row


@given(ROWS, ROWS, st.none() | st.just("child"))
def test_what_happened_between_two_sights_of_a_row_folds_to_the_second(
    old: Row, new: Row, continuation: str | None
) -> None:
    payloads = session_payloads(old, new, continuation=continuation)

    assert packed(folded(old, payloads)) == packed(new)


@given(ROWS)
def test_a_row_seen_again_is_no_event(row: Row) -> None:
    assert session_payloads(row, row) == []


@given(ROWS)
def test_a_new_session_and_what_is_told_of_it_later_give_its_row(row: Row) -> None:
    at_us = time_us(row.get("started_at")) or 0
    begun = seen_after({}, stored(session_created(row, at_us=at_us)), at_us)

    assert packed(folded(begun, session_payloads(begun, row))) == packed(row)


@given(ROWS, ROWS, st.integers(0, 4))
def test_an_import_killed_between_two_events_of_a_row_goes_on_with_the_next(
    old: Row, new: Row, came: int
) -> None:
    payloads = session_payloads(old, new)

    assert session_payloads(folded(old, payloads[:came]), new) == payloads[came:]


@given(ROWS, ROWS, ROWS)
def test_whatever_was_changed_here_the_source_is_remembered_and_ours_stays(
    seen: Row, here: Row, new: Row
) -> None:
    payloads = session_changes(seen, here, new, row_id="s")
    ours = here
    for payload in payloads:
        ours = here_after(ours, stored(payload), 5)
    conflicts = [c for p in payloads if isinstance(p, e.SourceRowChanged) for c in p.conflicts]

    assert packed(folded(seen, payloads)) == packed(new)
    for column in conflicts:
        assert differing(here, ours, (column,)) == []


@given(ROWS)
def test_a_remembered_row_is_the_row(row: Row) -> None:
    assert unpacked(packed(row)) == row


def test_a_column_that_a_newer_store_adds_at_its_default_is_no_change() -> None:
    assert settled({"title": None, "pinned": 0, "hidden": 0, "id": "s", "message_count": 4}) == {}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"title": "plan"}, [e.SessionTitled("plan")]),
        ({"title": "plan"}, {}, [e.SessionTitled(None)]),
        ({}, {"archived": 1}, [e.SessionArchived()]),
        ({"archived": 1}, {}, [e.SessionUnarchived()]),
        ({}, {"pinned": 1}, [e.SessionPinned()]),
        (
            {},
            {"ended_at": 5.5, "end_reason": "session_reset"},
            [e.SessionEnded("session_reset", hard=True, ended_at=5.5)],
        ),
        (
            {},
            {"ended_at": 5.5, "end_reason": "compression"},
            [e.SessionCompressed("next", ended_at=5.5)],
        ),
        ({"ended_at": 5.5, "end_reason": "cli_close"}, {}, [e.SessionReopened()]),
        (
            {"session_key": "k", "chat_id": "1"},
            {"chat_id": "2"},
            [
                e.IdentityLost({"session_key": "k"}, {"session_key": None}),
                e.IdentityRestored({"chat_id": "1"}, {"chat_id": "2"}),
            ],
        ),
        ({}, {"cwd": "/x"}, [e.WorkspaceChanged("/x", None, None)]),
        ({"model": "a"}, {"model": "b"}, [e.ModelChanged("b", None)]),
        ({}, {"system_prompt_hash": "h"}, [e.PromptChanged("h")]),
        ({}, {"input_tokens": 3}, [e.UsageRecorded("absolute", input_tokens=3)]),
        (
            {},
            {"parent_session_id": "p"},
            [e.SourceRowChanged("session", "", {"parent_session_id": "p", "parent_kind": "continuation"})],
        ),
    ],
)
def test_each_kind_of_change_is_an_event_of_its_kind(old: Row, new: Row, expected: list[Payload]) -> None:
    assert session_payloads(old, new, continuation="next", parent_kind="continuation") == expected


def test_a_title_changed_on_both_sides_stays_ours_and_is_told_once() -> None:
    payloads = session_changes({"title": "a"}, {"title": "ours"}, {"title": "theirs"}, row_id="s")

    assert payloads == [
        e.SourceRowChanged("session", "s", {"title": "theirs"}, ["title"], ours={"title": "ours"})
    ]
    assert folded({"title": "a"}, payloads) == {"title": "theirs"}


def test_a_title_changed_to_the_same_on_both_sides_is_no_conflict() -> None:
    payloads = session_changes({"title": "a"}, {"title": "b"}, {"title": "b"}, row_id="s")

    assert payloads == [e.SourceRowChanged("session", "s", {"title": "b"})]


def test_what_only_we_changed_is_left_alone() -> None:
    assert session_changes({"title": "a"}, {"title": "ours"}, {"title": "a"}, row_id="s") == []


def test_usage_that_is_null_is_told_apart_from_none() -> None:
    new: Row = {"input_tokens": None}

    assert folded({}, session_payloads({}, new)) == new
    assert set(TOKENS) < set(USAGE)
    assert "session_key" in IDENTITY


# --- messages ----------------------------------------------------------------------------------------


@given(MESSAGES)
def test_a_message_gives_its_row_back_byte_for_byte(row: Row) -> None:
    at_us = message_time_us(row) or 0
    again = source_row_of(
        stored(message_appended(row, at_us=at_us)), at_us=at_us, session_id="s", columns=row
    )

    assert [(c, type(v), v) for c, v in again.items()] == [(c, type(v), v) for c, v in row.items()]


@given(MESSAGES, MESSAGES)
def test_an_edit_gives_the_new_row(old: Row, new: Row) -> None:
    at_us = message_time_us(old) or 0
    known = source_row_of(stored(message_appended(old, at_us=at_us)), at_us=at_us, session_id="s")
    edit = message_edited(known, new, message=3)
    after = message_after(known, stored(edit)) if edit else known
    if shown(known) != shown(new):
        after = {**after, "active": new.get("active", 1), "compacted": new.get("compacted", 0)}

    assert digest(after) == digest(new)


@given(MESSAGES)
def test_a_digest_does_not_hang_on_columns_that_are_null_or_missing(row: Row) -> None:
    assert digest({**row, "of tomorrow": None}) == digest(row)
    assert (
        digest(source_row_of(message_appended(row, at_us=0), at_us=0, session_id="s"))
        == digest({"timestamp": 0.0, "role": None, **row} if "timestamp" not in row else row)
        or message_time_us(row) != 0
    )


@pytest.mark.parametrize(
    ("active", "compacted", "expected"),
    [(1, 0, "live"), (0, 1, "compacted"), (0, 0, "rewound"), (None, 0, "live"), (1, 1, "live")],
)
def test_what_a_message_says_of_its_visibility(active: Any, compacted: Any, expected: str) -> None:
    row: Row = {"role": "user", "active": active, "compacted": compacted}

    assert message_appended(row, at_us=0).visibility == expected


def test_structured_content_and_nul_bytes_stay_as_they_are() -> None:
    row: Row = {"role": "user", "content": '\0json:[{"type":"text"}]', "timestamp": 1.5}

    assert message_appended(row, at_us=1_500_000).content == '\0json:[{"type":"text"}]'


# --- parents -----------------------------------------------------------------------------------------

ENDED: Row = {"ended_at": 10.0, "session_key": "k"}


@pytest.mark.parametrize(
    ("child", "parent", "expected"),
    [
        ({}, {}, None),
        ({"model_config": '{"_branched_from": "p"}'}, {"end_reason": "compression"}, "branch"),
        ({"started_at": 10.0}, {**ENDED, "end_reason": "branched"}, "branch"),
        ({"started_at": 9.0}, {**ENDED, "end_reason": "branched"}, "child"),
        ({"model_config": '{"_delegate_from": "p"}'}, {"end_reason": "compression"}, "delegate"),
        ({"source": "tool"}, {"end_reason": "compression"}, "tool"),
        ({"started_at": 1.0}, {**ENDED, "end_reason": "compression"}, "continuation"),
        ({"session_key": "k"}, {**ENDED, "end_reason": "idle"}, "reset"),
        ({"model_config": '{"_reset_from": "p"}'}, None, "reset"),
        ({"session_key": "k"}, {**ENDED, "end_reason": "cli_close"}, "child"),
        ({"model_config": '{"_bad'}, None, "child"),
    ],
)
def test_what_a_child_is_to_its_parent(child: Row, parent: Row | None, expected: str | None) -> None:
    named: Row = {**child, "parent_session_id": "p"} if child else {}

    assert parent_kind(named, parent) == expected


def test_circles_among_parents_are_each_named_once() -> None:
    parents = {"a": "b", "b": "c", "c": "a", "d": "a", "e": "e", "f": None}

    assert cycles(parents, parents.get) == [["a", "b", "c"], ["e"]]


def test_a_continuation_that_comes_later_leads_a_compressed_session_on() -> None:
    ended: Row = {"ended_at": 5.0, "end_reason": "compression"}

    assert session_continued(ended, ended, "next", row_id="s") == [e.SessionCompressed("next", ended_at=5.0)]
    assert session_continued(ended, {}, "next", row_id="s") == []


def test_an_end_at_an_odd_time_stays_as_it_was_when_the_session_is_led_on() -> None:
    ended: Row = {"ended_at": 5, "end_reason": "compression"}

    payloads = session_continued(ended, ended, "next", row_id="s")
    row = ended
    for payload in payloads:
        row = seen_after(row, payload, 0)

    assert payloads[0] == e.SessionCompressed("next", ended_at=5.0)
    assert isinstance(payloads[1], e.SourceRowChanged)
    assert payloads[1].row == "s"
    assert packed(row) == packed(ended)
