"""What a finding of lineage or identity says, whole: words, events, candidates, facts and remedy.

All of it is seen by people (`why`, `audit`) or read by programs (`--json`), so all of it is held.
"""

from __future__ import annotations

from typing import Any

import pytest

from retold.tests.domain.findings_told import LEADS, OPEN, UNSEEN, found, says, the
from retold.tests.domain.worlds import K, Story


def test_two_continuations(story: Story) -> None:
    story.talk("p", K, 1, ended=2, end_reason="compression")
    story.talk("x", K, 2, parent_id="p", parent_kind="continuation")
    story.talk("y", K, 3, 4, parent_id="p", parent_kind="continuation")
    story.route(K, "x")

    assert says(
        the(story, "two_continuations"),
        (K, "p"),
        "p is continued by 2 sessions: x, y; y was in use last. The key leads to x.",
        (30, 31, 32, 40, 41, 50, 51, 60),
        {"x": LEADS, "y": OPEN},
        "continuation y",
        {"parent": "p", "most_recent": "y", "leads_to": "x"},
    )


def test_two_continuations_in_a_terminal(story: Story) -> None:
    more: dict[str, Any] = {"source": "cli", "parent_id": "p", "parent_kind": "continuation"}
    story.talk("p", None, 1, ended=2, end_reason="compression", source="cli")
    story.talk("x", None, 2, **more)
    story.talk("y", None, 3, 4, **more)

    assert says(
        the(story, "two_continuations"),
        (None, "p"),
        "p is continued by 2 sessions: x, y; y was in use last.",
        (30, 31, 32, 40, 41, 50, 51),
        {"x": UNSEEN, "y": UNSEEN},
        "continuation y",
        {"parent": "p", "most_recent": "y"},
    )


def test_two_continuations_of_what_has_no_key_are_under_that_of_one_of_them(story: Story) -> None:
    story.talk("p", None, 1, ended=2, end_reason="compression", source="cli")
    story.talk("x", None, 2, source="cli", parent_id="p", parent_kind="continuation")
    story.talk("y", K, 3, parent_id="p", parent_kind="continuation")
    story.route(K, "y")

    assert the(story, "two_continuations").key == K


@pytest.mark.parametrize(
    ("x", "y", "goes_on"),
    [
        ({"ended": 9, "end_reason": "session_reset"}, {}, "y"),  # what is over does not go on
        ({"ended": 9, "end_reason": "agent_close"}, {}, "x"),
    ],
)
def test_of_two_continuations_the_one_that_may_go_on_and_was_in_use_last_is_named(
    story: Story, x: dict[str, Any], y: dict[str, Any], goes_on: str
) -> None:
    story.talk("p", K, 1, ended=2, end_reason="compression")
    story.talk("x", K, 2, 8, parent_id="p", parent_kind="continuation", **x)
    story.talk("y", K, 3, 4, parent_id="p", parent_kind="continuation", **y)

    assert the(story, "two_continuations").facts["most_recent"] == goes_on


def test_a_continuation_that_nothing_was_said_in_counts_from_its_start(story: Story) -> None:
    story.talk("p", K, 1, ended=2, end_reason="compression")
    story.talk("x", K, 2, 4, parent_id="p", parent_kind="continuation")
    story.talk("y", K, began=3, parent_id="p", parent_kind="continuation")

    assert the(story, "two_continuations").facts["most_recent"] == "x"


def crossed(story: Story, parent: dict[str, Any], child: dict[str, Any]) -> list[str]:
    story.talk("p", parent.pop("key"), 1, ended=2, end_reason="compression", **parent)
    story.talk("c", child.pop("key"), 2, parent_id="p", parent_kind="continuation", **child)
    return [finding.detail for finding in found(story, "crossed_key")]


def test_a_crossed_key(story: Story) -> None:
    room = {"chat_type": "group"}
    crossed(
        story,
        {"key": K, "chat_id": "1", "user_id": "5", **room},
        {"key": "k", "chat_id": "2", "user_id": "6", **room},
    )

    assert says(
        the(story, "crossed_key"),
        ("k", "c"),
        f"c continues p but bears key k instead of {K}, chat 2 instead of 1, user 6 instead of 5.",
        (30, 31, 32, 40, 41),
        {"p": "compressed; goes on as c", "c": OPEN},
        "restore-identity c",
        {"parent": "p"},
    )


def test_a_crossed_chat_without_a_key_is_under_its_parents(story: Story) -> None:
    crossed(story, {"key": K, "chat_id": "1"}, {"key": None, "chat_id": "2"})

    assert the(story, "crossed_key").key == K


@pytest.mark.parametrize(
    ("parent", "child", "differing"),
    [
        # What a chat of WhatsApp is called changes; who it is with does not.
        ({"chat_id": "+49155:3@s.whatsapp.net"}, {"chat_id": "49155"}, None),
        ({"chat_id": "49155"}, {"chat_id": "49156"}, "chat 49156 instead of 49155"),
        (
            {"source": "matrix", "chat_id": "!r:x.org"},
            {"source": "matrix", "chat_id": "!r:y.org"},
            "chat !r:y.org instead of !r:x.org",
        ),
        ({"user_id": "5"}, {}, None),
        ({}, {"user_id": "5"}, None),
        ({"user_id": "5", "chat_type": "dm"}, {"user_id": "6"}, "user 6 instead of 5"),
        ({"user_id": "5"}, {"user_id": "6", "chat_type": "dm"}, "user 6 instead of 5"),
        ({"user_id": "5", "chat_type": "group"}, {"user_id": "6", "chat_type": "group"}, None),
    ],
)
def test_under_one_key_another_chat_or_user_is_crossed(
    story: Story, parent: dict[str, Any], child: dict[str, Any], differing: str | None
) -> None:
    app = {"source": "whatsapp"} if "source" not in parent else {}
    key = "agent:main:whatsapp:dm:49155"
    details = crossed(story, {"key": key, **app, **parent}, {"key": key, **app, **child})

    assert details == ([] if differing is None else [f"c continues p but bears {differing}."])


def test_under_two_keys_of_whatsapp_both_are_told_as_they_are(story: Story) -> None:
    details = crossed(
        story,
        {"key": "a", "source": "whatsapp", "chat_id": "+1@s.whatsapp.net"},
        {"key": "b", "source": "whatsapp", "chat_id": "1@s.whatsapp.net"},
    )

    assert details == [
        "c continues p but bears key b instead of a, chat 1@s.whatsapp.net instead of +1@s.whatsapp.net."
    ]


def test_a_lost_identity(story: Story) -> None:
    story.talk("x", None, 1, lost_key=K, lost_position=77)
    story.route(K, "x")
    quiet = "no keyed predecessor fell quiet within 900s of this session's start"

    assert says(
        the(story, "identity_lost"),
        (K, "x"),
        f"x bore the key {K} and has lost it.",
        (30, 31, 77),
        {"x": f"{LEADS}; no key; {quiet}"},
        "restore-identity x",
        {},
    )
    assert the(story, "stranded").remedy == "retold sessions restore-identity x"


def test_stranded_below_what_lost_its_key_it_waits_for_that_to_be_given_back(story: Story) -> None:
    story.talk("p", None, 1, ended=2, end_reason="compression", lost_key=K, lost_position=77)
    story.talk("c", None, 2, parent_id="p", parent_kind="continuation")
    below = found(story, "stranded")[-1]

    assert below.detail == (
        "c has messages but no key to be found by. Its parent p has no key of this source to give."
        " Further up, p bore one: give it back first."
    )
    assert (below.key, below.remedy) == (K, "retold sessions restore-identity p")
