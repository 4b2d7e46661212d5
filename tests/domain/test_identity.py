"""What the next message of a chat sets right in its session, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from retold.domain.identity import identity_of
from retold.domain.session import Session
from retold.domain.session_source import SessionSource

K = "agent:main:telegram:dm:1001"
BOAT = SessionSource("telegram", "1001", "Boat", user_id="501", user_name="Åsa", message_id="m1")


def session(**identity: Any) -> Session:
    return Session("s", 1, "telegram", **identity)


def whole() -> Session:
    identity = BOAT.identity()
    del identity["profile_name"]
    return session(key=K, **identity)


def test_nothing_is_amiss_with_what_the_chat_began_with() -> None:
    assert identity_of(whole(), BOAT, K, shared=False) is None
    assert identity_of(whole(), msgspec.structs.replace(BOAT, message_id="m2"), K, shared=False) is None


def test_all_that_is_missing_is_filled_in() -> None:
    found = identity_of(session(), BOAT, K, shared=False)

    assert found is not None
    assert found.now == {"session_key": K, **{k: v for k, v in BOAT.identity().items() if v}}
    assert set(found.was) == set(found.now)
    assert set(found.was.values()) == {None}


def test_an_empty_chat_is_no_other_chat() -> None:
    found = identity_of(session(chat_id=""), BOAT, K, shared=False)

    assert found is not None
    assert found.now["session_key"] == K


def test_a_chat_without_a_name_is_called_as_the_person_in_it() -> None:
    nameless = msgspec.structs.replace(BOAT, chat_name=None)
    found = identity_of(session(), nameless, K, shared=False)

    assert found is not None
    assert found.now["display_name"] == "Åsa"


@pytest.mark.parametrize("identity", [{"key": "agent:main:telegram:dm:2002"}, {"chat_id": "2002"}])
def test_what_is_another_chats_stays_so(identity: dict[str, Any]) -> None:
    assert identity_of(session(**identity), BOAT, K, shared=False) is None


def test_the_chats_name_follows_the_platform_and_a_persons_name_does_not_become_a_rooms() -> None:
    renamed = identity_of(whole(), msgspec.structs.replace(BOAT, chat_name="Hull"), K, shared=False)
    nameless = SessionSource("telegram", "1001", chat_type="group", user_id="501", user_name="Åsa")
    room = identity_of(session(key=K, chat_id="1001"), nameless, K, shared=True)

    assert renamed is not None
    assert (renamed.was["display_name"], renamed.now["display_name"]) == ("Boat", "Hull")
    assert room is not None
    assert "display_name" not in room.now


def test_in_a_shared_room_who_speaks_changes_nothing() -> None:
    room = SessionSource("telegram", "1001", "Crew", "group", "501", "Åsa")
    identity = room.identity()
    del identity["profile_name"]
    other = msgspec.structs.replace(room, user_id="502", user_name="Bo", user_id_alt="x")

    assert identity_of(session(key=K, **identity), other, K, shared=True) is None
    assert identity_of(session(key=K, **identity), other, K, shared=False) is not None


def origin_of(found: Any) -> SessionSource:
    return SessionSource.from_json(found.now["origin_json"])


def test_the_origin_of_a_shared_room_stays_that_of_who_began_it() -> None:
    room = SessionSource("telegram", "1001", "Crew", "group", "501", "Åsa")
    identity = room.identity()
    del identity["profile_name"]
    other = msgspec.structs.replace(room, chat_name="Crew of 2026", user_id="502", user_name="Bo")

    origin = origin_of(identity_of(session(key=K, **identity), other, K, shared=True))
    assert (origin.chat_name, origin.user_id, origin.user_name) == ("Crew of 2026", "501", "Åsa")


def test_what_is_new_of_the_origin_is_added_to_what_is_known() -> None:
    known = session(
        key=K, chat_id="1001", origin_json=msgspec.structs.replace(BOAT, chat_topic="t").to_json()
    )
    renamed = msgspec.structs.replace(BOAT, chat_name="Hull", user_name=None)

    origin = origin_of(identity_of(known, renamed, K, shared=False))
    assert (origin.chat_name, origin.user_name, origin.chat_topic) == ("Hull", "Åsa", "t")


def test_a_delivery_that_knows_less_takes_nothing_back() -> None:
    bare = SessionSource("telegram", "1001", user_id="501")

    assert identity_of(whole(), bare, K, shared=False) is None


def test_an_origin_that_cannot_be_read_is_written_anew() -> None:
    broken = msgspec.structs.replace(whole(), origin_json="{")

    found = identity_of(broken, BOAT, K, shared=False)

    assert found is not None
    assert found.was == {"origin_json": "{"}
    assert SessionSource.from_json(str(found.now["origin_json"])).user_name == "Åsa"
