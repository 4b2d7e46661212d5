"""Where a message came from: what is written of it, what is refused, and what its key is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.domain.errors import BadIdentifier, BadUsage
from retold.domain.ids import refuse_unsafe_session
from retold.domain.keys import Peer, session_key
from retold.domain.session_source import SessionSource, conversation

FULL = SessionSource(
    "discord",
    "2002",
    "harbour",
    "thread",
    "777",
    "Åsa",
    "42",
    "boats",
    user_id_alt="uuid",
    chat_id_alt="alt",
    is_bot=True,
    scope_id="guild",
    parent_chat_id="2001",
    message_id="m1",
    role_authorized=True,
    profile="coder",
    auto_thread_created=True,
    auto_thread_initial_name="first words",
    delivered_via_upstream_relay=True,
)


def test_the_first_eight_are_always_written_and_the_rest_where_set() -> None:
    assert list(SessionSource("telegram", "1001").to_dict()) == [
        "platform",
        "chat_id",
        "chat_name",
        "chat_type",
        "user_id",
        "user_name",
        "thread_id",
        "chat_topic",
    ]


def test_what_is_said_of_one_delivery_alone_is_never_written() -> None:
    written = json.loads(FULL.to_json())

    assert not {"is_bot", "role_authorized", "delivered_via_upstream_relay"} & written.keys()
    assert SessionSource.from_dict({**written, "is_bot": True, "role_authorized": True}) == (
        SessionSource.from_json(FULL.to_json())
    )
    assert not SessionSource.from_json(FULL.to_json()).is_bot


def test_all_else_comes_back_as_it_was() -> None:
    back = SessionSource.from_json(FULL.to_json())

    for name in set(FULL.to_dict()):
        assert getattr(back, name) == getattr(FULL, name), name


def test_the_older_name_of_the_scope_is_the_same() -> None:
    assert SessionSource("discord", "1", guild_id="g").scope_id == "g"
    assert SessionSource("discord", "1", scope_id="s", guild_id="g").guild_id == "s"
    assert SessionSource.from_dict({"platform": "discord", "guild_id": "g"}).to_dict()["scope_id"] == "g"


def test_numbers_that_adapters_write_as_ids_are_read_as_text() -> None:
    assert SessionSource.from_json('{"platform":"telegram","chat_id":-100777,"user_id":5}') == SessionSource(
        "telegram", "-100777", user_id="5"
    )


@pytest.mark.parametrize(
    "text", ["[]", "{", "{}", '{"platform":5}', '{"platform":"x","user_name":5}', "\ud800"]
)
def test_what_is_no_source_is_refused_in_words(text: str) -> None:
    with pytest.raises(BadUsage):
        SessionSource.from_json(text)


# --- ids -------------------------------------------------------------------------------------------

UNSAFE = [
    "../x",
    "a/../b",
    "/etc/passwd",
    "\\\\host",
    "C:\\x",
    "C:/x",
    "a\0b",
    "a\nb",
    "a\x7f",
    "\u2028",
    "\ud800",
]


@pytest.mark.parametrize("value", UNSAFE)
@pytest.mark.parametrize("name", ["chat_id", "thread_id", "user_id", "user_id_alt", "message_id", "profile"])
def test_paths_and_control_characters_in_ids_are_refused(name: str, value: str) -> None:
    with pytest.raises(BadIdentifier, match=name) as refused:
        SessionSource.from_dict({"platform": "telegram", name: value})

    assert refused.value.hint
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    "value", ["spaces/AAA/threads/b", "a:1xyz", "8:orgid:x", "!room:example.org", "+49 1"]
)
def test_ids_that_platforms_do_make_are_taken(value: str) -> None:
    assert SessionSource("teams", value).chat_id == value


@pytest.mark.parametrize("value", [*UNSAFE, "a/b", "a\\b", "C:x", "", ".."])
def test_a_sessions_id_that_could_be_a_path_is_refused(value: str) -> None:
    with pytest.raises(BadIdentifier):
        refuse_unsafe_session(value)


def test_ids_of_every_kind_of_session_are_taken() -> None:
    for value in ("20260504_080000_b33d43d5", "cron_1f2e_20260504_080000", "api_1778000000_0a1b2c3d", "日本"):
        refuse_unsafe_session(value)


@pytest.mark.parametrize("platform", ["", "  "])
def test_a_source_without_a_platform_is_refused(platform: str) -> None:
    with pytest.raises(BadIdentifier, match="platform"):
        SessionSource(platform, "1")


@pytest.mark.parametrize(
    "values", [{"chat_id": 5}, {"chat_name": b"x"}, {"platform": None}, {"chat_type": None}]
)
def test_values_of_another_type_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(BadUsage):
        SessionSource(**{"platform": "telegram", **values})


# --- keys ------------------------------------------------------------------------------------------

ids = st.none() | st.text(alphabet="ab:%!@$ 3A", max_size=5)


@given(
    st.builds(
        SessionSource,
        st.sampled_from(["telegram", "matrix", "whatsapp"]),
        ids,
        chat_type=st.sampled_from(["dm", "group", "thread"]),
        user_id=ids,
        thread_id=ids,
        user_id_alt=ids,
        profile=st.none() | st.just("coder"),
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_sources_key_is_that_of_its_peer(source: SessionSource, group: bool, thread: bool) -> None:
    peer = Peer(
        source.platform,
        source.chat_type,
        source.chat_id,
        source.thread_id,
        source.user_id,
        source.user_id_alt,
    )

    key = source.key(group_sessions_per_user=group, thread_sessions_per_user=thread)

    assert key == session_key(
        peer,
        profile=source.profile or "main",
        group_sessions_per_user=group,
        thread_sessions_per_user=thread,
    )


@pytest.mark.parametrize(
    ("source", "group", "thread", "shared"),
    [
        (SessionSource("telegram", "1"), False, False, False),
        (SessionSource("telegram", "1", chat_type="group"), True, False, False),
        (SessionSource("telegram", "1", chat_type="group"), False, False, True),
        (SessionSource("telegram", "1", chat_type="group", thread_id="42"), True, False, True),
        (SessionSource("telegram", "1", chat_type="group", thread_id="42"), False, True, False),
    ],
)
def test_a_room_is_shared_where_its_people_have_no_sessions_of_their_own(
    source: SessionSource, group: bool, thread: bool, shared: bool
) -> None:
    assert source.shared(group_sessions_per_user=group, thread_sessions_per_user=thread) == shared


def test_a15_a_conversations_name_is_of_its_caller_alone() -> None:
    keys = {
        conversation("api_server", name, caller).key(group_sessions_per_user=False)
        for name in ("p", "q")
        for caller in ("ann", "ben")
    }

    assert len(keys) == 4


# --- what a person of WhatsApp is known as ---------------------------------------------------------


def linked_by(mapping: dict[str, list[str]]) -> Any:
    return lambda identifier: mapping.get(identifier, ())


def test_the_shortest_of_a_persons_ids_is_the_one() -> None:
    linked = linked_by({"999999": ["49155@s.whatsapp.net"], "49155": ["4915", "777@lid"], "4915": ["999999"]})

    for identifier in ("999999@lid", "+49155:3@s.whatsapp.net", "4915"):
        key = SessionSource("whatsapp", identifier).key(linked=linked)
        assert key == "agent:main:whatsapp:dm:777"
    group = SessionSource("whatsapp", "1@g.us", chat_type="group", user_id="999999@lid")
    assert group.key(linked=linked) == "agent:main:whatsapp:group:1@g.us:777"


def test_without_a_mapping_an_id_is_only_made_plain() -> None:
    assert SessionSource("whatsapp", "+49155:3@s.whatsapp.net").key() == "agent:main:whatsapp:dm:49155"
    assert SessionSource("whatsapp", "@lid", user_id="5").key() == "agent:main:whatsapp:dm:5"
    assert SessionSource("telegram", "999", user_id="5").key(linked=linked_by({"999": ["1"]})) == (
        "agent:main:telegram:dm:999"
    )


def test_ids_that_could_name_other_files_are_not_looked_up() -> None:
    asked: list[str] = []

    def linked(identifier: str) -> list[str]:
        asked.append(identifier)
        return ["１２"]

    SessionSource("whatsapp", "a b/c").key(linked=linked)
    SessionSource("whatsapp", "12").key(linked=linked)

    assert asked == ["12"]


@given(
    st.dictionaries(
        st.text("12", min_size=1, max_size=3), st.lists(st.text("12@", min_size=1, max_size=4), max_size=3)
    )
)
def test_all_ids_that_lead_to_each_other_have_one_key(mapping: dict[str, list[str]]) -> None:
    """Where each link is known both ways, as the bridge writes it, who speaks under which makes no odds."""
    both: dict[str, list[str]] = {}
    for one, others in mapping.items():
        for other in (each.split("@")[0] for each in others):
            if other:
                both.setdefault(one, []).append(other)
                both.setdefault(other, []).append(one)

    for one, others in both.items():
        keys = {SessionSource("whatsapp", each).key(linked=linked_by(both)) for each in (one, *others)}
        assert len(keys) == 1
