"""Giving a session its chat's key back: verified on the two sessions, put into events, and why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from retold.domain import events as e
from retold.domain.adoption import Sides, backing, because, put_aside, restored, retired, verify
from retold.domain.ends import SUPERSEDED
from retold.domain.errors import OrphanChanged
from retold.domain.session import Session

K = "agent:main:telegram:dm:1001"
ORPHAN = Session("orphan", 3, "telegram")
DONOR = Session("donor", 5, "telegram", key=K, chat_id="1001", chat_type="dm", user_id="501")


def but(state: Session, **changes: Any) -> Session:
    return msgspec.structs.replace(state, **changes)


@pytest.mark.parametrize(
    ("orphan", "donor"),
    [
        (DONOR, DONOR),
        (but(ORPHAN, id="donor"), DONOR),
        (but(ORPHAN, key=K), DONOR),
        (ORPHAN, but(DONOR, key=None)),
        (ORPHAN, but(DONOR, key="agent:main:telegram:dm:1002")),
        (but(ORPHAN, source="slack"), DONOR),
        (but(ORPHAN, profile_name="work"), DONOR),
    ],
)
def test_what_is_not_as_it_was_reported_is_refused(orphan: Session, donor: Session) -> None:
    verify(ORPHAN, DONOR, K, own_profile="default")
    with pytest.raises(OrphanChanged) as changed:
        verify(orphan, donor, K, own_profile="default")

    assert changed.value.session_id == orphan.id


def test_a_session_without_a_profile_is_of_the_homes_own() -> None:
    verify(but(ORPHAN, profile_name="work"), DONOR, K, own_profile="work")
    verify(ORPHAN, but(DONOR, profile_name="work"), K, own_profile="work")


def test_it_takes_the_key_and_what_it_lacks_and_keeps_what_it_has() -> None:
    orphan = but(ORPHAN, user_id="777", parent_id="before")
    taken = restored(orphan, DONOR, continued=False)

    assert taken.now == {"session_key": K, "chat_id": "1001", "chat_type": "dm"}
    assert taken.was == dict.fromkeys(taken.now)


@pytest.mark.parametrize(
    ("donor", "continued", "kind"),
    [
        (DONOR, False, "continuation"),
        (DONOR, True, "child"),
        (but(DONOR, end_reason="session_reset", hard_end=True), False, "reset"),
        (but(DONOR, end_reason="session_reset", hard_end=True), True, "reset"),
        (but(DONOR, end_reason="session_switch", hard_end=True), False, "continuation"),
        (but(DONOR, end_reason="session_reset"), False, "continuation"),
    ],
)
def test_without_a_parent_the_donor_is_the_parent(donor: Session, continued: bool, kind: str) -> None:
    now = restored(ORPHAN, donor, continued=continued).now

    assert (now["parent_session_id"], now["parent_kind"]) == ("donor", kind)


def test_who_gave_the_key_is_retired_whatever_end_it_had_and_once() -> None:
    ended = but(DONOR, end_reason="session_reset", hard_end=True)

    assert retired(DONOR) == retired(ended) == e.SessionEnded(SUPERSEDED, hard=False)
    assert retired(but(DONOR, end_reason=SUPERSEDED)) is None


def test_who_had_it_by_mistake_ends_softly_unless_it_has_ended() -> None:
    assert put_aside(DONOR) == e.SessionEnded(SUPERSEDED, hard=False)
    assert put_aside(but(DONOR, end_reason="cli_close")) is None
    assert put_aside(but(DONOR, successor="s2")) is None


def test_the_evidence_is_said_by_its_kind_and_who_chose() -> None:
    sides = Sides()

    assert because(ORPHAN, DONOR, "lineage", sides, None) == ["lineage: it names donor as its parent"]
    assert because(ORPHAN, DONOR, "contiguity", sides, None) == [
        "contiguity: only donor had fallen quiet when it began"
    ]
    assert because(ORPHAN, DONOR, "choice", sides, "orphan") == [
        "a person named donor as what it goes on from",
        "a person chose orphan of two histories",
    ]


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ({"chat_id": "1001"}, ["origin: the same chat"]),
        ({"user_id": "501"}, ["origin: the same user"]),
        ({"origin_json": '{"chat_id": 1001, "user_id": "501"}'}, ["origin: the same chat and user"]),
        ({"chat_id": "7", "origin_json": '{"chat_id": "1001"}'}, []),
        ({"origin_json": "[1]"}, []),
        ({"origin_json": "{"}, []),
        ({"origin_json": '{"chat_id": ""}'}, []),
        ({}, []),
    ],
)
def test_a_chat_and_a_user_that_are_the_same_back_it(ours: dict[str, str], said: list[str]) -> None:
    assert list(backing(but(ORPHAN, **ours), DONOR, Sides())) == said


@pytest.mark.parametrize(
    ("donor", "orphan", "said"),
    [
        ("plan", "plan #2", ["title: #2 of the lineage that it was #1 of"]),
        ("plan #2", "plan #4", ["title: #4 of the lineage that it was #2 of"]),
        ("plan #2", "plan", []),
        ("plan", "plan", []),
        ("plan", "boat #2", []),
        (None, "plan #2", []),
        ("plan", None, []),
    ],
)
def test_the_lineage_of_titles_backs_it(donor: str | None, orphan: str | None, said: list[str]) -> None:
    assert list(backing(but(ORPHAN, title=orphan), but(DONOR, title=donor), Sides())) == said


@pytest.mark.parametrize(
    ("last", "first", "backs"),
    [
        ("41", "42", True),
        ("41", "51", True),
        ("41", "52", False),
        ("41", "41", False),
        ("42", "41", False),
        (None, "42", False),
        ("41", None, False),
        ("m41", "42", False),
        ("٤١", "42", False),
        ("9" * 18, "1" + "0" * 18, False),
        ("9" * 17, "1" + "0" * 17, True),
    ],
)
def test_platform_ids_that_go_on_back_it(last: str | None, first: str | None, backs: bool) -> None:
    said = list(backing(ORPHAN, DONOR, Sides(last, first)))

    assert said == ([f"platform message ids: {first} after {last}"] if backs else [])
