"""What a session was after some events, and where a key led: what an undo puts back."""

from __future__ import annotations

from typing import Any

import pytest

from retold.domain import events as e
from retold.domain.events import Recorded
from retold.domain.marks import Marks
from retold.domain.stood import End, Led, Was, led_after, was_after

CREATED = e.SessionCreated("telegram", session_key="k")
RESET = e.SessionReset("idle")
COMPRESSED = e.SessionCompressed("s2", 7.5)


def lost(key: str | None) -> e.IdentityLost:
    return e.IdentityLost({"session_key": key}, {"session_key": None})


def given(key: str | None) -> e.IdentityRestored:
    return e.IdentityRestored({"session_key": None}, {"session_key": key})


def told(*payloads: Any) -> list[Recorded]:
    return [
        Recorded(at, "session:s", at, each.topic, 10 * at, "exact", 9, "cli", None, at, None, each)
        for at, each in enumerate(payloads, 1)
    ]


@pytest.mark.parametrize(
    ("payloads", "end"),
    [
        ((), End()),
        ((e.SessionEnded("idle", True, 3.5),), End("idle", True, 20, 3.5, None, True)),
        ((e.SessionEnded("cli_close", False),), End("cli_close", False, 20, None, None, True)),
        ((e.SessionEnded("cli_close", False), e.SessionReopened()), End()),
        ((RESET,), End("session_reset", True, 20, None, None, True)),
        ((COMPRESSED,), End("compression", False, 20, 7.5, "s2", True)),
        ((COMPRESSED, RESET), End("session_reset", True, 30, None, "s2", True)),
        ((COMPRESSED, e.SessionEnded("x", False, 8.5)), End("x", False, 30, 8.5, "s2", True)),
        ((RESET, COMPRESSED), End("session_reset", True, 20, None, "s2", True)),
        # An end for good stays one, but for another, and for a repair, which keeps when it was.
        ((RESET, e.SessionEnded("x", False)), End("session_reset", True, 20, None, None, True)),
        ((RESET, e.SessionEnded("new_session", True)), End("new_session", True, 30, None, None, True)),
        (
            (RESET, e.SessionEnded("superseded_by_repair", False)),
            End("superseded_by_repair", False, 20, None, None, True),
        ),
        (
            (e.SessionEnded("superseded_by_repair", False, 4.5),),
            End("superseded_by_repair", False, 20, 4.5, None, True),
        ),
        ((RESET, e.SessionArchived()), End("session_reset", True, 20, None, None, True)),
    ],
)
def test_an_end_stands_until_another_goes_before_it(payloads: tuple[Any, ...], end: End) -> None:
    assert was_after(told(CREATED, *payloads)).end == end


@pytest.mark.parametrize(
    ("payloads", "key", "lost_key"),
    [
        ((), "k", None),
        ((lost("k"),), None, "k"),
        ((lost("k"), lost(None)), None, "k"),
        ((lost("k"), given("j")), "j", None),
        ((lost("k"), given(None)), None, "k"),
        ((given("j"),), "j", None),
        ((given(None),), None, None),
        ((e.IdentityLost({"session_key": "k"}, {"session_key": "j"}),), "j", None),
        ((e.IdentityLost({"session_key": "k"}, {"session_key": 7}),), None, None),
        ((e.IdentityLost({"user_id": "u"}, {"user_id": None}),), "k", None),
    ],
)
def test_a_key_that_was_lost_is_known_until_there_is_one_again(
    payloads: tuple[Any, ...], key: str | None, lost_key: str | None
) -> None:
    was = was_after(told(CREATED, *payloads))

    assert (was.key, was.lost_key) == (key, lost_key)


def test_names_and_marks_are_those_that_were_said_last() -> None:
    marked = e.SessionCreated("cli", columns={"archived": 1, "pinned": 1})
    titled = e.SessionTitled("plan")

    assert [(each.archived, each.pinned) for each in (was_after(told(CREATED)), was_after(told(marked)))] == [
        (False, False),
        (True, True),
    ]
    assert was_after(told(CREATED, e.SessionTitled("a"), titled)).title == titled
    assert was_after(told(marked, e.SessionUnarchived())).archived is False
    assert was_after(told(marked, e.SessionUnpinned())).pinned is False
    assert was_after(told(CREATED, e.SessionArchived(), e.SessionPinned())).archived is True
    assert was_after(told(CREATED, e.SessionArchived(), e.SessionPinned())).pinned is True


def test_marks_are_those_that_stood() -> None:
    marked = e.ResumeMarked("restart_interrupted", 2)

    assert was_after(told()) == Was()
    assert was_after(told(CREATED, marked)).marks == Marks("restart_interrupted", 20, 2)
    assert was_after(told(CREATED, marked, e.SessionSuspended("stuck", 3))).marks == Marks(
        None, 0, 3, "stuck"
    )


def test_a_key_leads_where_it_was_led_last_with_the_entry_of_that() -> None:
    moved = e.SessionRerouted("k", "s", None, "import", entry="{}", entry_created_us=3, entry_updated_us=4)
    led = led_after(Led(), moved)

    assert led == Led("s", "{}", 3, 4)
    assert led_after(led, e.ActivityReleased("k", "build")) == led
    assert led_after(led, e.RouteClosed("k", "s", "reset")) == Led()
