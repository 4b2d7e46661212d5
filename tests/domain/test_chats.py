"""What one conversation is made of, and at which very moment its key is held to have jumped."""

from __future__ import annotations

from typing import Any

import pytest

from retold.domain.audit import audit, went_on
from retold.domain.chats import Chats
from retold.domain.findings import Finding, Kind
from retold.tests.domain.worlds import DAY, K, Story

SECOND = 1 / 86_400  # in days, as stories are told
HOUR = 1 / 24
CONTINUES: dict[str, Any] = {"parent_kind": "continuation"}
CHILD: dict[str, Any] = {"parent_kind": "child"}


@pytest.fixture
def story() -> Story:
    return Story()


def kinds(story: Story) -> list[Kind]:
    return [finding.kind for finding in audit(story.world())]


def jump(story: Story) -> Finding:
    (found,) = [finding for finding in audit(story.world()) if finding.kind == "jumped_back"]
    return found


# --- what goes on from what -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parent", "child", "kind", "goes_on"),
    [
        (K, K, "continuation", True),
        (K, None, "continuation", True),
        (None, K, "continuation", True),
        (None, None, "continuation", True),
        (K, "other", "continuation", False),
        (K, None, "child", True),
        (None, None, "child", True),
        (None, K, "child", False),  # a child that came to a key of its own began a talk of its own
        (K, K, "child", False),
        (K, K, "branch", False),
    ],
)
def test_a_session_goes_on_from_its_parent(
    story: Story, parent: str | None, child: str | None, kind: str, goes_on: bool
) -> None:
    story.talk("p", parent, 1)
    story.talk("c", child, 2, parent_id="p", parent_kind=kind)
    story.talk("elsewhere", None, 2, source="cli", parent_id="p", parent_kind=kind)
    chats = Chats(story.world())

    before = chats.before(story.sessions["c"])
    assert (before.id if before else None) == ("p" if goes_on else None)
    assert chats.before(story.sessions["elsewhere"]) is None


def test_what_two_claim_is_gone_on_from_by_neither(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("one", None, 1 + 60 * SECOND, 2)
    story.talk("two", None, 1 + 90 * SECOND, 2)
    chats = Chats(story.world())

    assert [chats.before(story.sessions[each]) for each in ("one", "two")] == [None, None]


def test_a_ring_of_parents_is_walked_once(story: Story) -> None:
    story.talk("a", None, 1, parent_id="b", **CONTINUES)
    story.talk("b", None, 2, parent_id="c", **CONTINUES)
    story.talk("c", None, 3, parent_id="b", **CONTINUES)

    assert [each.id for each in Chats(story.world()).chain(story.sessions["a"])] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("session", "children", "verdict"),
    [
        ({}, {}, "open, bears the key"),
        ({"end_reason": "compression"}, {}, "compressed"),
        ({"end_reason": "compression"}, {"x": "continuation"}, "compressed; goes on as x"),
        ({}, {"x": "continuation"}, "compressed; goes on as x"),  # opened again since
        ({}, {"x": "continuation", "y": "continuation"}, "compressed; goes on as x and y"),
        ({}, {"x": "branch"}, "open, bears the key"),
        ({"end_reason": "superseded_by_repair"}, {"x": "continuation"}, "gave its key away; goes on as x"),
        ({"end_reason": "session_switch"}, {}, "left by a /resume or a handoff"),
        ({"end_reason": "idle"}, {}, "ended for good (idle)"),
        ({"end_reason": "agent_close"}, {}, "ended (agent_close), may go on"),
        ({"source_gone": True}, {}, "gone from the source"),
    ],
)
def test_how_a_session_stands_is_said_in_words(
    story: Story, session: dict[str, Any], children: dict[str, str], verdict: str
) -> None:
    story.talk("s", K, 1, **session)
    for name, kind in children.items():
        story.talk(name, K, 2, parent_id="s", parent_kind=kind)
    candidate = Chats(story.world()).candidate(story.sessions["s"], K)

    assert (candidate.verdict, candidate.last_active_us) == (verdict, DAY)


def test_what_the_key_leads_to_is_seen_though_it_has_no_key(story: Story) -> None:
    story.talk("s", None, 1, source="cli", ended=2, end_reason="agent_close")
    story.route(K, "s")

    verdict = "the key leads here; ended (agent_close), may go on; no key"
    assert Chats(story.world()).candidate(story.sessions["s"], K).verdict == verdict


# --- what was passed over, and when -----------------------------------------------------------------------


def test_an_import_knows_no_moment_however_exact_a_time_it_gives(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("new", K, 3, 9)
    story.route(K, "old", 5, at_kind="exact")

    assert jump(story).facts["belongs_last_us"] == 9 * DAY


def test_what_a_reset_ended_is_no_rival_though_the_key_came_from_it(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("new", K, 2, 20, ended=26, end_reason="session_reset")
    story.route(K, "new", 2, "first_message")
    story.route(K, "old", 30, "recovery", previous_id="new")

    assert kinds(story) == ["reset_undone"]


@pytest.mark.parametrize(("last", "found"), [(5, []), (5 + SECOND, ["jumped_back"])])
def test_a_resume_explains_what_was_in_use_until_its_very_moment(
    story: Story, last: float, found: list[Kind]
) -> None:
    story.talk("a", K, 1)
    story.talk("b", K, 2, 4, ended=5, end_reason="session_switch")
    story.talk("c", K, 3, last)
    story.route(K, "a")

    assert kinds(story) == found


@pytest.mark.parametrize(("last", "found"), [(4, []), (4 + SECOND, ["jumped_back"])])
def test_of_two_that_were_in_use_at_one_moment_neither_is_later(
    story: Story, last: float, found: list[Kind]
) -> None:
    story.talk("before", K, 0.5, 0.6)
    story.talk("old", K, 1, 4)
    story.talk("new", K, 3, last)
    story.route(K, "old")

    assert kinds(story) == found


def test_of_two_rivals_in_use_at_one_moment_the_later_name_is_the_one(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("b", K, 2, 4)
    story.talk("a", K, 3, 4)
    story.route(K, "old")

    assert jump(story).session_id == "b"


@pytest.mark.parametrize(
    ("idle_s", "found"), [(400, []), (900, []), (900.000001, ["jumped_back"]), (90_000, ["jumped_back"])]
)
@pytest.mark.parametrize("began", [1, 3])
def test_what_began_no_later_is_passed_over_where_the_other_lay_idle_for_longer_than_the_window(
    story: Story, began: float, idle_s: float, found: list[Kind]
) -> None:
    story.talk("busy", K, began, 5 + idle_s * SECOND)
    story.talk("idle", K, 3, 5)
    story.route(K, "idle")

    assert kinds(story) == found


@pytest.mark.parametrize(("last_s", "found"), [(900, []), (901, ["jumped_back"])])
def test_where_nothing_was_ever_said_it_lay_idle_from_its_start(
    story: Story, last_s: float, found: list[Kind]
) -> None:
    story.talk("busy", K, 1, 5 + last_s * SECOND)
    story.talk("idle", K, began=5)
    story.route(K, "idle")

    assert kinds(story) == found


# --- a key that is back at what the other goes on from ------------------------------------------------------


def test_a_key_back_at_a_silent_session_that_went_on_under_it_jumped_back(story: Story) -> None:
    story.talk("b", K, began=2)
    story.talk("c", K, 3, 5, parent_id="b", **CONTINUES)
    story.route(K, "b")

    assert jump(story).session_id == "c"


def test_a_key_that_came_back_from_elsewhere_after_the_other_had_begun_jumped_back(story: Story) -> None:
    story.talk("x", K, 1)
    story.talk("b", K, 2)
    story.talk("c", None, 3, 3.5, parent_id="b", **CHILD)
    story.route(K, "x", 1, "first_message")
    story.route(K, "b", 4, "recovery", previous_id="x")

    assert jump(story).session_id == "c"


@pytest.mark.parametrize(
    ("days", "entry", "found"),
    [
        # The child began on the third day, and the parent was in use beside it …
        ((2, 3.5), {"created": 3, "updated": 3}, ["stranded"]),
        # … or until that very moment; then who touched the entry came back.
        ((2, 3), {"created": 2, "updated": 3}, ["jumped_back", "stranded"]),
        ((2, 3), {"created": 2, "updated": 3 - SECOND}, ["stranded"]),
        # An entry that was made a moment after the child began was made anew.
        ((2, 3.5), {"created": 3 + 0.000001 * SECOND}, ["jumped_back", "stranded"]),
        # Without a word of its own, the entry tells nothing; what was said in the parent since does.
        ((2,), {}, ["stranded"]),
        ((2,), {"created": 2}, ["stranded"]),
        ((2, 9), {}, ["jumped_back", "stranded"]),
        # Touched three hours after the child began by a clock that is two hours off.
        ((2,), {"created": 2 + 2 * HOUR, "updated": 3 + 2 * HOUR}, ["jumped_back", "stranded"]),
        ((2,), {"created": 2 + 2 * HOUR, "updated": 3 + HOUR}, ["stranded"]),
    ],
)
def test_a_child_of_what_the_key_leads_to_was_passed_over_if_the_key_came_back(
    story: Story, days: tuple[float, ...], entry: dict[str, Any], found: list[Kind]
) -> None:
    story.talk("b", K, *days)
    story.talk("c", None, 3, 4, parent_id="b", **CHILD)
    story.route(K, "b", **entry)

    assert kinds(story) == found


def test_an_entry_that_another_import_saw_elsewhere_tells_no_time(story: Story) -> None:
    story.talk("x", K, 1)
    story.talk("b", K, 2, 3.5)
    story.talk("c", None, 3, 4, parent_id="b", **CHILD)
    story.route(K, "x")
    story.route(K, "b", previous_id="x")

    assert kinds(story) == ["stranded"]


@pytest.mark.parametrize(
    ("after", "found"),
    [
        # The zone of the entry's host is not known: whole quarters, to the widest there is.
        (2 * HOUR, ["stranded"]),
        (-14 * HOUR, ["stranded"]),
        (14 * HOUR, ["stranded"]),
        (14.25 * HOUR, ["jumped_back", "stranded"]),
        (2.1 * HOUR, ["jumped_back", "stranded"]),
        # Made within five seconds of its session it was made with it.
        (2 * HOUR + 5 * SECOND, ["stranded"]),
        (2 * HOUR + 6 * SECOND, ["jumped_back", "stranded"]),
    ],
)
def test_an_entry_that_was_made_whole_quarters_from_its_session_did_not_move(
    story: Story, after: float, found: list[Kind]
) -> None:
    story.talk("d", K, 1)
    story.talk("o", None, 1.001, 2)
    story.route(K, "d", created=1 + after, updated=1 + after)

    assert kinds(story) == found


@pytest.mark.parametrize(
    ("after_s", "found"),
    [(0, ["stranded"]), (3, ["stranded"]), (5, ["stranded"]), (6, ["jumped_back", "stranded"])],
)
def test_an_entry_that_was_made_with_its_session_did_not_move_past_what_had_just_begun(
    story: Story, after_s: float, found: list[Kind]
) -> None:
    story.talk("d", K, 1 + 10 * SECOND, began=1)
    story.talk("o", None, 1 - 60 * SECOND, 2)
    story.route(K, "d", created=1 + after_s * SECOND, updated=1 + after_s * SECOND)

    assert kinds(story) == found


# --- what a person chose --------------------------------------------------------------------------------


@pytest.mark.parametrize("by_person", [True, False])
def test_where_a_person_led_a_key_is_chosen_whatever_was_written_since(
    story: Story, *, by_person: bool
) -> None:
    story.talk("before", K, 1)
    story.talk("chosen", K, 2)
    story.talk("orphan", None, 3)
    story.route(K, "before", 1, "first_message")
    story.route(K, "chosen", 2, "resume", previous_id="before", by_person=by_person)
    chats = Chats(story.world())
    chosen = story.sessions["chosen"] if by_person else None

    assert chats.chosen(K) == chosen
    assert chats.chosen(None) is None
    assert went_on(chats, K, story.sessions["orphan"]) == chosen
    assert went_on(chats, None, story.sessions["orphan"]) is None
