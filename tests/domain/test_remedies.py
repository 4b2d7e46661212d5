"""Which command a finding names: the one that leads the chat where its next message belongs."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from retold.domain.audit import Finding, Kind, audit, went_on
from retold.domain.chats import Chats
from retold.tests.domain.worlds import K, Story

Talk: TypeAlias = tuple[str, str | None, tuple[float, ...], dict[str, Any]]
"""A session: its name, its key, the days of its messages, and whatever else it has."""

ADOPT = "retold sessions repair-routing --apply"
LEAD = f"retold sessions route {K}"
UNROUTE = f"retold sessions unroute {K}"
CONTINUES: dict[str, Any] = {"parent_kind": "continuation"}


def talk(name: str, *days: float, key: str | None = K, **more: Any) -> Talk:
    return name, key, days, more


def told(*talks: Talk) -> Story:
    story = Story()
    for name, key, days, more in talks:
        story.talk(name, key, *days, **more)
    return story


def the(kind: Kind, story: Story) -> Finding:
    (one,) = [finding for finding in audit(story.world()) if finding.kind == kind]
    return one


# --- onward: the key leads to what is over ------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "remedy"),
    [
        ([], UNROUTE),
        ([talk("new", 3)], f"{LEAD} new"),
        ([talk("new", 2, 3)], f"{LEAD} new"),  # begun at the very moment of the end
        ([talk("other", 0.5, 0.9)], UNROUTE),  # left before it
        ([talk("a", 3, 9), talk("b", 4, 5)], f"{LEAD} a"),  # in use last, not begun last
        ([talk("b", 3, 9), talk("a", 4, 9)], f"{LEAD} b"),
        ([talk("a", 3, 4), talk("silent", began=5)], f"{LEAD} silent"),
        ([talk("a", 3, 6), talk("silent", began=5)], f"{LEAD} a"),
        ([talk("new", 3, ended=4, end_reason="agent_close")], f"{LEAD} new"),
        ([talk("new", 3, ended=4, end_reason="session_reset")], UNROUTE),
        ([talk("new", 3, source_gone=True)], UNROUTE),
        ([talk("run", 3, source="cron")], UNROUTE),
        ([talk("part", 3, parent_id="old", parent_kind="delegate")], UNROUTE),
        (
            [
                talk("new", 3, 9, ended=4, end_reason="compression"),
                talk("tip", 4, 5, parent_id="new", **CONTINUES),
            ],
            f"{LEAD} tip",
        ),
        ([talk("new", 3, 9), talk("aside", 4, 5, parent_id="new", parent_kind="branch")], f"{LEAD} new"),
        ([talk("elsewhere", 3, key="agent:main:telegram:dm:2")], UNROUTE),
    ],
)
def test_a_key_at_an_ended_session_is_led_on_to_what_the_chat_began_since(
    others: list[Talk], remedy: str
) -> None:
    story = told(talk("old", 1, ended=2, end_reason="session_reset"), *others)
    story.route(K, "old")

    assert the("routed_to_ended", story).remedy == remedy


def test_after_an_undone_reset_the_key_is_led_to_what_was_begun_since_then() -> None:
    story = told(
        talk("old", 1), talk("new", 2, 20, ended=26, end_reason="session_reset"), talk("next", 26, 27)
    )
    story.route(K, "old")

    assert the("reset_undone", story).remedy == f"{LEAD} next"


def test_what_a_reset_had_begun_is_led_to_again_though_nothing_was_said_in_it() -> None:
    story = told(talk("old", 1, 2), talk("new", began=3))
    story.route(K, "old", at=1, cause="first_message")
    story.route(K, "new", at=3, cause="reset", previous_id="old")
    story.route(K, "old", at=4, cause="recovery", previous_id="new")

    assert the("reset_undone", story).remedy == f"{LEAD} new"


# --- back: the key leads past what the chat belongs to ------------------------------------------------

OLD = talk("old", 1, 2)
GIVES = talk("d", 3, ended=3.1, end_reason="compression")


def orphan(*days: float, parent: str = "d") -> Talk:
    return talk("o", *days, key=None, parent_id=parent, **CONTINUES)


@pytest.mark.parametrize(
    ("talks", "remedy"),
    [
        ([OLD, talk("new", 3, 4)], f"{LEAD} new"),
        ([talk("old", 1, 9), talk("new", 3, 4)], f"{LEAD} SESSION"),
        # It goes on elsewhere: there, however far.
        (
            [
                OLD,
                talk("new", 3, 9, ended=4, end_reason="compression"),
                talk("b", 4, 5, ended=5, end_reason="compression", parent_id="new", **CONTINUES),
                talk("c", 5, 6, parent_id="b", **CONTINUES),
            ],
            f"{LEAD} c",
        ),
        # … unless it goes on in two.
        (
            [
                OLD,
                talk("new", 3, 9, ended=4, end_reason="compression"),
                talk("b", 4, 5, parent_id="new", **CONTINUES),
                talk("c", 5, 6, parent_id="new", **CONTINUES),
            ],
            f"{LEAD} new",
        ),
        # What lost its key is adopted; where the chat has two histories, a person says which goes on.
        ([OLD, GIVES, orphan(3.1, 5)], f"{ADOPT} o"),
        ([talk("old", 1, 9), GIVES, orphan(3.1, 5)], f"{ADOPT} o --choose SESSION"),
        # Nothing to adopt it from is left: it is led to as it is.
        (
            [
                OLD,
                GIVES,
                talk(
                    "e", 3.1, 3.2, key=None, parent_id="d", **CONTINUES, ended=3.2, end_reason="compression"
                ),
                orphan(3.2, 5, parent="e"),
            ],
            f"{LEAD} o",
        ),
    ],
)
def test_a_key_that_jumped_back_is_led_to_what_the_chat_belongs_to(talks: list[Talk], remedy: str) -> None:
    story = told(*talks)
    story.route(K, "old")

    assert the("jumped_back", story).remedy == remedy


def test_where_what_was_passed_over_goes_on_as_what_the_key_leads_to_a_person_says_which() -> None:
    """The one it leads to has another chat's key."""
    story = told(
        talk("left", 1, 9, ended=3, end_reason="compression"),
        talk("now", 3, 4, key="k", parent_id="left", **CONTINUES),
    )
    story.route(K, "now")

    assert the("jumped_back", story).remedy == f"{LEAD} SESSION"


def test_two_that_claim_to_go_on_as_each_other_do_no_harm() -> None:
    story = told(
        OLD,
        talk("a", 3, 9, parent_id="b", **CONTINUES),
        talk("b", 3, 8, parent_id="a", **CONTINUES),
    )
    story.route(K, "old")

    assert the("jumped_back", story).remedy == f"{LEAD} b"


# --- a chat that went on without what lost its key ------------------------------------------------------


@pytest.mark.parametrize(
    ("talks", "leads_to", "went_on_as"),
    [
        ([], None, None),
        ([], "nowhere", None),
        ([], "d", None),
        ([talk("new", 6, 7)], None, None),
        ([talk("new", 6, 7)], "new", "new"),
        ([talk("new", 6, 6.5, ended=7, end_reason="session_reset")], "new", "new"),
        ([talk("new", 4)], "new", None),
        ([talk("new", 4, 5)], "new", None),  # last in use at the very moment at which it was, too
        ([talk("new", began=6)], "new", None),
        # What goes on from it is no other history, be it one or two.
        ([talk("o2", 6, key=None, parent_id="o", **CONTINUES)], "o2", None),
        (
            [
                talk("o2", 6, key=None, parent_id="o", **CONTINUES),
                talk("o3", 7, key=None, parent_id="o", **CONTINUES),
            ],
            "o3",
            None,
        ),
        # Nor was the chat left where it went on after the other was in use.
        (
            [talk("new", 6, 7), talk("o2", 8, key=None, parent_id="o", **CONTINUES)],
            "new",
            None,
        ),
        (
            [talk("new", 6, 9), talk("o2", 8, key=None, parent_id="o", **CONTINUES)],
            "new",
            "new",
        ),
    ],
)
def test_a_chat_went_on_where_its_key_leads_to_what_was_in_use_later(
    talks: list[Talk], leads_to: str | None, went_on_as: str | None
) -> None:
    story = told(GIVES, orphan(3.1, 5), *talks)
    if leads_to is not None:
        story.route(K, leads_to)
    world = story.world()
    found = went_on(Chats(world), K, world.sessions["o"])

    assert (found.id if found else None) == went_on_as


def test_a_chat_went_on_without_one_that_no_person_and_no_assistant_spoke_in() -> None:
    story = told(GIVES, talk("o", began=3.1, key=None, parent_id="d", **CONTINUES), talk("new", 6))
    story.route(K, "new")
    world = story.world()
    found = went_on(Chats(world), K, world.sessions["o"])

    assert found is not None
    assert found.id == "new"
    assert went_on(Chats(world), None, world.sessions["o"]) is None


# --- which of what the key was led away from was left by a reset ----------------------------------------


@pytest.mark.parametrize(
    ("cause", "left", "kinds"),
    [
        ("reset", "old", ["jumped_back", "reset_undone"]),
        ("idle", "old", ["jumped_back", "reset_undone"]),
        ("resume", "old", ["jumped_back"]),
        ("recovery", "old", ["jumped_back"]),
        ("reset", "mid", ["jumped_back"]),
    ],
)
def test_only_a_reset_of_what_the_key_leads_to_again_was_undone(
    cause: str, left: str, kinds: list[Kind]
) -> None:
    story = told(OLD, talk("mid", 2.5), talk("new", 3, 4))
    story.route(K, "old", at=1, cause="first_message")
    story.route(K, "new", at=3, cause=cause, previous_id=left)
    story.route(K, "old", at=5, cause="recovery", previous_id="new")

    assert [finding.kind for finding in audit(story.world())] == kinds
