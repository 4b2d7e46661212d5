"""What a finding of where a key leads says, whole: words, events, candidates, facts and remedy.

All of it is seen by people (`why`, `audit`) or read by programs (`--json`), so all of it is held.
"""

from __future__ import annotations

from typing import Any

import pytest

from retold.domain.audit import audit, explain
from retold.domain.facts import ConflictFacts
from retold.domain.findings import Kind
from retold.tests.domain.findings_told import LEADS, OPEN, UNSEEN, found, says, the
from retold.tests.domain.worlds import DAY, K, Story


def test_a_jump(story: Story) -> None:
    story.talk("old", K, 1, 2)
    story.talk("new", K, 3, 4, ended=5, end_reason="agent_close")
    story.route(K, "old")

    assert says(
        the(story, "jumped_back"),
        (K, "new"),
        "The key leads to old, while new of the same conversation was in use later; no reset, resume or"
        " handoff is on record that explains it.",
        (30, 31, 40, 41, 42, 50),
        {"new": "ended (agent_close), may go on", "old": LEADS},
        f"route {K} new",
        {
            "leads_to": "old",
            "leads_to_last_us": 2 * DAY,
            "belongs_to": "new",
            "belongs_last_us": 4 * DAY,
            "cause": "import",
            "passed_over": 1,
        },
    )


def test_a_jump_to_what_was_never_in_use_before(story: Story) -> None:
    story.talk("old", K, began=1)
    story.talk("new", K, 3, 4)
    story.route(K, "old")

    assert "leads_to_last_us" not in the(story, "jumped_back").facts


def test_a_jump_with_a_second_history(story: Story) -> None:
    story.talk("old", K, 1, 2, 9)
    story.talk("new", K, 3, 4)
    story.talk("mid", K, 2.5, 3.5)
    story.route(K, "new", 3, "first_message")
    story.route(K, "old", 5, "recovery", previous_id="new")

    assert says(
        the(story, "jumped_back"),
        (K, "new"),
        "The key leads to old, while new of the same conversation was in use later; no reset, resume or"
        " handoff is on record that explains it. old has been written to since, so the chat has two"
        " histories.",
        (30, 31, 40, 41, 50, 51, 70),
        {"new": OPEN, "mid": OPEN, "old": LEADS},
        f"route {K} SESSION",
        {
            "leads_to": "old",
            "leads_to_last_us": 2 * DAY,
            "belongs_to": "new",
            "belongs_last_us": 4 * DAY,
            "cause": "recovery",
            "passed_over": 2,
            "second_history": 1,
            "second_history_us": 9 * DAY,
        },
    )


def test_a_jump_past_what_lost_its_key_names_all_that_led_there(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("d", K, 2, ended=2.1, end_reason="compression")
    story.talk("o", None, 2.1, 4, parent_id="d", parent_kind="continuation")
    story.route(K, "d", 2, "first_message")
    story.route(K, "old", 5)
    story.route(K, "old", 6)

    jump = the(story, "jumped_back")
    assert [(each.session_id, each.verdict) for each in jump.candidates] == [
        ("o", UNSEEN),
        ("d", "compressed; goes on as o"),
        ("old", LEADS),
    ]
    assert jump.evidence == (30, 31, 40, 41, 42, 50, 51, 70, 80)
    assert jump.remedy == "retold sessions repair-routing --apply o"


def test_a_jump_past_a_thousand_sessions_names_the_twenty_latest(story: Story) -> None:
    story.talk("old", K, 1)
    for number in range(30):
        story.talk(f"new{number}", K, 3 + number)
    story.route(K, "old")

    jump = the(story, "jumped_back")
    named = [each.session_id for each in jump.candidates]
    assert named == [*(f"new{number}" for number in range(29, 9, -1)), "old"]
    assert jump.facts["passed_over"] == 30


def test_an_undone_reset(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("first", K, 1.5, 1.7, ended=2, end_reason="daily")
    story.talk("new", K, 2, 20, ended=26, end_reason="session_reset")
    story.route(K, "old", 30)
    story.route(K, "old", 31)

    assert says(
        the(story, "reset_undone"),
        (K, "old"),
        "The key leads to old, which was last in use before the reset that ended new (session_reset) in"
        " the same chat.",
        (30, 31, 50, 51, 52, 60, 70),
        {
            "first": "ended for good (daily)",
            "new": "ended for good (session_reset)",
            "old": LEADS,
        },
        f"unroute {K}",
        {"leads_to": "old", "fence": "new", "reset_us": 26 * DAY},
    )


OLD_RESET: dict[str, Any] = {"ended": 26, "end_reason": "session_reset"}


@pytest.mark.parametrize(
    ("days", "found_kinds"),
    [
        ((), ["reset_undone"]),  # never in use: it counts from its start
        ((1, 10), ["reset_undone"]),
        ((1, 20), []),  # in use to the last, as the other was
        ((1, 21), []),
    ],
)
def test_a_reset_is_undone_where_what_the_key_leads_to_was_in_use_before_the_other_only(
    story: Story, days: tuple[float, ...], found_kinds: list[Kind]
) -> None:
    story.talk("old", K, *days, began=1)
    story.talk("new", K, 2, 20, **OLD_RESET)
    story.route(K, "old")

    assert [finding.kind for finding in audit(story.world())] == found_kinds


def test_a_resume_at_the_moment_of_the_reset_explains_it(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("new", K, 2, 20, **OLD_RESET)
    story.talk("newest", K, 21, 22, ended=26, end_reason="session_switch")
    story.route(K, "old")

    assert found(story, "reset_undone") == []


def test_a_reset_is_found_behind_those_that_are_explained(story: Story) -> None:
    """One of before the talk began, one that a person left by a /resume since, and another chat's resume."""
    resumed = "agent:main:telegram:dm:0"
    story.talk("resumed", resumed, 0.2)
    story.routes = {resumed: [], **story.routes}
    story.route(resumed, "resumed", 5, "resume")
    story.talk("first", K, 0.5, ended=0.8, end_reason="daily")
    story.talk("old", K, 1)
    story.talk("second", K, 2, 4, ended=5, end_reason="daily")
    story.talk("third", K, 3, 6, ended=7, end_reason="session_switch")
    story.talk("new", K, 8, 20, **OLD_RESET)
    story.route(K, "old")

    assert the(story, "reset_undone").facts["fence"] == "new"


def test_a_reset_that_both_its_end_and_its_route_tell_of_is_one_finding(story: Story) -> None:
    story.talk("old", K, 1, 2)
    story.talk("new", K, 3, 4, ended=9, end_reason="daily")
    story.route(K, "old", at=1, cause="first_message")
    story.route(K, "new", at=3, cause="reset", previous_id="old")
    story.route(K, "old", at=10, cause="recovery", previous_id="new")

    assert the(story, "reset_undone").facts["fence"] == "new"


def test_of_two_resets_at_one_moment_the_later_name_is_the_fence(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("b", K, 3, 4, ended=9, end_reason="session_reset")
    story.talk("a", K, 2, 5, ended=9, end_reason="session_reset")
    story.route(K, "old")

    assert the(story, "reset_undone").facts["fence"] == "b"


def test_a_reset_that_a_route_tells_of(story: Story) -> None:
    story.talk("old", K, 1, 2)
    story.talk("new", K, began=3)
    story.route(K, "old", at=1, cause="first_message")
    story.route(K, "new", at=3, cause="reset", previous_id="old")
    story.route(K, "old", at=4, cause="recovery", previous_id="new")
    story.route(K, "old", at=5, cause="import", previous_id="old")

    assert says(
        the(story, "reset_undone"),
        (K, "old"),
        "The key leads to old, which a reset of this chat had left for new.",
        (30, 31, 40, 60, 70, 80),
        {"new": "no messages", "old": LEADS},
        f"route {K} new",
        {"leads_to": "old", "fence": "old", "reset_us": 3 * DAY},
    )


def test_a_reset_that_a_route_tells_of_where_what_it_began_is_not_known(story: Story) -> None:
    story.talk("old", K, 1, 2)
    story.route(K, "old", at=1, cause="first_message")
    story.route(K, "new", at=3, cause="reset", previous_id="old")
    story.route(K, "old", at=4, cause="recovery", previous_id="new")

    assert says(
        the(story, "reset_undone"),
        (K, "old"),
        "The key leads to old, which a reset of this chat had left for new.",
        (30, 31, 50, 60),
        {"old": LEADS},
        f"unroute {K}",
        {"leads_to": "old", "fence": "old", "reset_us": 3 * DAY},
    )


def test_a_key_at_what_ended_for_good(story: Story) -> None:
    story.talk("old", K, 1, ended=2, end_reason="idle")
    story.talk("new", K, 3)
    story.route(K, "old", 4)
    story.route(K, "old", 5)

    assert says(
        the(story, "routed_to_ended"),
        (K, "old"),
        "The key leads to old, which ended for good (idle).",
        (30, 31, 32, 50, 60),
        {"old": f"{LEADS}; ended for good (idle)", "new": OPEN},
        f"route {K} new",
        {"leads_to": "old", "ended_us": 2 * DAY},
    )


def test_an_end_without_a_time_counts_from_the_sessions_start(story: Story) -> None:
    story.talk("old", K, 2, end_reason="idle")
    story.talk("before", K, 1)
    story.route(K, "old")
    ended = the(story, "routed_to_ended")

    assert ended.facts == {"leads_to": "old", "ended_us": 0}
    assert ended.remedy == f"retold sessions unroute {K}"


def test_a_key_at_nothing(story: Story) -> None:
    story.talk("two", K, 2)
    story.talk("one", K, 1)
    story.talk("silent", K, began=1.5)
    story.route(K, "nowhere")

    assert says(
        the(story, "dangling_route"),
        (K, "nowhere"),
        "The key leads to nowhere, which does not exist. The chat's last known session is two.",
        (30, 31, 60),
        {"two": OPEN, "silent": "no messages", "one": OPEN},
        f"route {K} two",
        {"leads_to": "nowhere", "last_known": "two"},
    )


def test_a_key_at_what_is_gone(story: Story) -> None:
    story.talk("gone", K, 1, source_gone=True)
    story.route(K, "gone")

    assert says(
        the(story, "dangling_route"),
        (K, "gone"),
        "The key leads to gone, which is gone from the store it came from.",
        (40,),
        {},
        f"unroute {K}",
        {"leads_to": "gone"},
    )


def test_a_key_at_nothing_whose_last_known_session_is_over_is_led_nowhere(story: Story) -> None:
    story.talk("one", K, 1, ended=2, end_reason="session_reset")
    story.route("closed", "nowhere", closed=True)
    story.route(K, "nowhere")
    dangling = the(story, "dangling_route")

    assert (dangling.key, dangling.remedy) == (K, f"retold sessions unroute {K}")


def test_conflicts_with_the_source(story: Story) -> None:
    story.conflicts += [
        ConflictFacts(session_id="s", column="title", ours="a", theirs="b", position=6),
        ConflictFacts(session_id="s", column="archived", ours=None, theirs=None, position=5),
        ConflictFacts(key=K, column="route", ours="1", theirs="0", position=7),
        ConflictFacts(column="model", ours="1", theirs="0", position=8),
    ]
    session, route, store = found(story, "source_conflict")

    assert says(
        session,
        (None, "s"),
        "The source changed title, archived of s, as was done here too; ours stays.",
        (5, 6),
        {},
        "resolve-conflict 6 --keep ours",
        {"ours_title": "a", "theirs_title": "b", "ours_archived": "", "theirs_archived": ""},
    )
    assert says(
        route,
        (K, None),
        f"The source changed route of {K}, as was done here too; ours stays.",
        (7,),
        {},
        "resolve-conflict 7 --keep ours",
        {"ours_route": "1", "theirs_route": "0"},
    )
    assert store.detail == "The source changed model of the store, as was done here too; ours stays."


def test_why_weighs_what_the_key_leads_to_though_it_bears_another(story: Story) -> None:
    story.talk("mine", K, 5)
    story.talk("theirs", "agent:main:telegram:dm:3", 4)
    story.route(K, "theirs")
    told = explain(story.world(), K)

    assert told.key == K
    assert told.sessions == ("theirs", "mine")
    assert [(each.session_id, each.verdict) for each in told.candidates] == [
        ("theirs", LEADS),
        ("mine", OPEN),
    ]


def test_why_of_a_key_that_leads_to_nothing_known(story: Story) -> None:
    story.route(K, "nowhere")
    told = explain(story.world(), K)

    assert told.route is not None
    assert (told.route.session_id, told.sessions, told.candidates) == ("nowhere", (), ())
    assert [finding.kind for finding in told.findings] == ["dangling_route"]
