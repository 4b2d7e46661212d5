"""Routing keys: Hermes' text for every chat, and no key for two chats."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retold.domain.keys import (
    Peer,
    canonical_whatsapp,
    describe,
    parts_of,
    platform_of,
    session_key,
    split_key,
)

IDS = st.one_of(
    st.none(),
    st.text(alphabet="ab:%!@$x3A", max_size=6),
    st.sampled_from(
        [
            "!room:example.org",
            "$event",
            "@u:example.org",
            "group:x",
            "webhook:r",
            "webhook:r:d",
            "webhook:r:d:webhook:r",
            "webhook:r::webhook:s",
        ]
    ),
)
PEERS = st.builds(
    Peer,
    platform=st.sampled_from(["telegram", "matrix", "signal", "webhook", "teams", "slack", "a:b", "a%3Ab"]),
    chat_type=st.sampled_from(["dm", "group", "channel", "thread", "webhook", "a:", ""]),
    chat_id=IDS,
    thread_id=IDS,
    user_id=IDS,
)
SETTINGS = st.fixed_dictionaries(
    {"group_sessions_per_user": st.booleans(), "thread_sessions_per_user": st.booleans()}
)


@pytest.mark.parametrize(
    ("peer", "settings", "key"),
    [
        (Peer("telegram", "dm", "1001", user_id="501"), {}, "telegram:dm:1001"),
        (Peer("telegram", "dm", "1001", "42"), {}, "telegram:dm:1001:42"),
        (Peer("sms", "dm", None, user_id="501"), {}, "sms:dm:501"),
        (Peer("sms", "dm", None, user_id="501", user_id_alt="x"), {}, "sms:dm:x"),
        (Peer("sms", "dm", None, "42", user_id="501"), {}, "sms:dm:501:42"),
        (Peer("sms", "dm", None, "42"), {}, "sms:dm:42"),
        (Peer("sms", "dm"), {}, "sms:dm"),
        (Peer("discord", "group", "2002", user_id="777"), {}, "discord:group:2002:777"),
        (Peer("slack", "channel", "C09", user_id="U9"), {}, "slack:channel:C09:U9"),
        (Peer("slack", "channel", "C09"), {}, "slack:channel:C09"),
        (
            Peer("slack", "channel", "C09", user_id="U9"),
            {"group_sessions_per_user": False},
            "slack:channel:C09",
        ),
        (
            Peer("telegram", "group", "-100777", "42", user_id="503"),
            {},
            "telegram:group:-100777:42",
        ),
        (
            Peer("telegram", "group", "-100777", "42", user_id="503"),
            {"thread_sessions_per_user": True},
            "telegram:group:-100777:42:503",
        ),
        (Peer("discord", "thread"), {}, "discord:thread"),
        (Peer("google_chat", "group", "spaces/A"), {}, "google_chat:group:spaces/A"),
        (Peer("telegram", "dm", "100%"), {}, "telegram:dm:100%"),
        # Ids that have a ':' today.
        (Peer("matrix", "dm", "!room:example.org"), {}, "matrix:dm:!room:example.org"),
        (
            Peer("matrix", "dm", "!room:example.org:8448", "$event"),
            {},
            "matrix:dm:!room:example.org:8448:$event",
        ),
        (Peer("matrix", "dm", "!v12room", "$event"), {}, "matrix:dm:!v12room:$event"),
        (
            Peer("matrix", "group", "!r:example.org", user_id="@u:example.org"),
            {},
            "matrix:group:!r:example.org:@u:example.org",
        ),
        (
            Peer("matrix", "group", "!r:example.org", "$old:example.org", "@u:example.org"),
            {"thread_sessions_per_user": True},
            "matrix:group:!r:example.org:$old:example.org:@u:example.org",
        ),
        (Peer("signal", "group", "group:aGk=", user_id="u"), {}, "signal:group:group:aGk=:u"),
        (Peer("simplex", "group", "group:7"), {}, "simplex:group:group:7"),
        (Peer("yuanbao", "dm", "direct:7", user_id="7"), {}, "yuanbao:dm:direct:7"),
        (Peer("teams", "dm", "19:abc@thread.tacv2"), {}, "teams:dm:19:abc@thread.tacv2"),
        (Peer("msgraph_webhook", "dm", "msgraph:1"), {}, "msgraph_webhook:dm:msgraph:1"),
        (
            Peer("webhook", "webhook", "webhook:gh:1", user_id="webhook:gh"),
            {},
            "webhook:webhook:webhook:gh:1:webhook:gh",
        ),
        # Whoever sends to a webhook names its deliveries.
        (
            Peer("webhook", "webhook", "webhook:gh:0HMV:00000001", user_id="webhook:gh"),
            {},
            "webhook:webhook:webhook:gh:0HMV:00000001:webhook:gh",
        ),
        (
            Peer("webhook", "webhook", "webhook:gh:webhook:a::b", user_id="webhook:gh"),
            {},
            "webhook:webhook:webhook:gh:webhook:a::b:webhook:gh",
        ),
        (
            Peer("webhook", "webhook", "webhook:gh:0HMV:00000001", user_id="webhook:gh"),
            {"group_sessions_per_user": False},
            "webhook:webhook:webhook:gh:0HMV:00000001",
        ),
        # More parts than the chat type has: it can only be the chat's id.
        (Peer("other", "dm", "a:b:c"), {}, "other:dm:a:b:c"),
        (Peer("other", "group", "a:b:c:d"), {}, "other:group:a:b:c:d"),
        (Peer("whatsapp", "dm", "+49155@s.whatsapp.net"), {}, "whatsapp:dm:49155"),
        (Peer("whatsapp", "dm", None, user_id="+49155@s.whatsapp.net"), {}, "whatsapp:dm:49155"),
        (
            Peer("whatsapp", "group", "1@g.us", user_id="49155:3@s.whatsapp.net"),
            {},
            "whatsapp:group:1@g.us:49155",
        ),
    ],
)
def test_the_key_is_the_text_that_hermes_makes(peer: Peer, settings: dict[str, Any], key: str) -> None:
    assert session_key(peer, **settings) == f"agent:main:{key}"


@pytest.mark.parametrize(
    ("identifier", "person"),
    [("+49+155:3@s.whatsapp.net", "49+155"), ("+a/b:3@s.whatsapp.net", "a/b"), (None, None)],
)
def test_a_person_of_whatsapp_is_the_id_without_its_first_plus_device_and_server(
    identifier: str | None, person: str | None
) -> None:
    """What cannot name a file of the bridge is not looked up, and is cut as any other."""

    def refuse(_: str) -> list[str]:
        assert identifier != "+a/b:3@s.whatsapp.net"
        return []

    assert canonical_whatsapp(identifier) == canonical_whatsapp(identifier, refuse) == person


def test_a_profile_has_a_name_space_of_its_own() -> None:
    peer = Peer("telegram", "dm", "1")

    assert session_key(peer, profile="coder") == "agent:coder:telegram:dm:1"
    assert session_key(peer, profile="default") == session_key(peer, profile="main")


def test_people_of_a_group_are_apart_and_those_of_a_thread_together_unless_it_is_said() -> None:
    assert parts_of(Peer("discord", "group", "2", user_id="7")) == ("2", "7")
    assert parts_of(Peer("discord", "group", "2", "42", user_id="7")) == ("2", "42")


def test_a_key_that_another_program_made_is_read_to_its_last_colon() -> None:
    assert split_key("agent:main:telegram:dm:1:") == ("telegram", "dm", ("1", ""))


def test_a10_two_chats_never_share_a_key() -> None:
    keys = {
        session_key(Peer("telegram", "dm", "a:b", "c")),
        session_key(Peer("telegram", "dm", "a", "b:c")),
        session_key(Peer("telegram", "dm", "a:b:c")),
        session_key(Peer("telegram", "dm", "a", "b")),
        session_key(Peer("telegram", "dm", "a:b")),
        session_key(Peer("telegram", "dm", "a%3Ab", "c")),
        session_key(Peer("telegram", "dm", "a", "")),
        session_key(Peer("telegram", "dm", "a")),
    }

    assert len(keys) == 8


@given(PEERS, PEERS, SETTINGS)
@example(Peer("matrix", "dm", "!r", "x.org"), Peer("matrix", "dm", "!r:x.org"), {})
@example(Peer("signal", "dm", "group", "x"), Peer("signal", "dm", "group:x"), {})
def test_equal_keys_mean_equal_parts(one: Peer, other: Peer, settings: dict[str, Any]) -> None:
    def identity(peer: Peer) -> object:
        return peer.platform, peer.chat_type, parts_of(peer, **settings)

    same_key = session_key(one, **settings) == session_key(other, **settings)

    assert same_key == (identity(one) == identity(other))


@given(PEERS, SETTINGS)
def test_a_key_is_read_back_as_its_parts(peer: Peer, settings: dict[str, Any]) -> None:
    key = session_key(peer, **settings)
    parts = parts_of(peer, **settings)

    assert platform_of(key) == peer.platform
    assert split_key(key) == (peer.platform, peer.chat_type, parts)


@given(
    st.sampled_from(["telegram", "discord", "slack", "plugin"]),
    st.sampled_from(["dm", "group", "channel"]),
    st.lists(st.text(alphabet="ab%@!#/-.0", min_size=1, max_size=5), min_size=1, max_size=2),
)
def test_ids_without_a_colon_are_joined_plainly(platform: str, chat_type: str, ids: list[str]) -> None:
    key = session_key(Peer(platform, chat_type, ids[0], ids[1] if ids[1:] else None))

    assert key == ":".join(["agent", "main", platform, chat_type, *ids])


def test_a_key_is_described_in_a_few_words() -> None:
    assert describe("agent:main:telegram:dm:1001", user_id="501") == "telegram, chat 1001, user 501"
    assert describe("agent:main:telegram:dm:1:42") == "telegram, chat 1, thread 42"
    assert describe("agent:main:discord:group:2:7", user_id="7") == "discord, group 2, user 7"
    assert describe("agent:main:telegram:group:-1:42", thread_id="42") == "telegram, group -1, thread 42"
    assert describe("agent:main:matrix:dm:!r:x.org") == "matrix, chat !r:x.org"
    assert describe("agent:main:discord:group:2:7") == "discord, group 2, 7"
    assert describe("agent:main:telegram::5") == "telegram, chat 5"
    assert describe("not a key") == "not a key"


@pytest.mark.parametrize(
    "text", ["not a key", "agent", "agent:main:telegram", "bot:main:telegram:dm:1", "agent:main::dm:1"]
)
def test_a_text_that_is_no_key_of_a_chat_has_no_platform(text: str) -> None:
    assert platform_of(text) is None
    assert split_key(text) is None
    assert describe(text) == text
