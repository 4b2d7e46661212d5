"""What a finding says, whole: its words, its events, its candidates, its facts and its remedy.

All of it is seen by people (`why`, `audit`) or read by programs (`--json`), so all of it is held.
"""

from __future__ import annotations

from typing import Any

import pytest

from retold.domain.audit import audit, explain
from retold.domain.facts import ConflictFacts
from retold.domain.findings import Finding, Kind
from retold.tests.domain.worlds import DAY, MINUTE, K, Story

OTHER = "agent:main:telegram:dm:2"
OPEN = "open, bears the key"
LEADS = "the key leads here"
UNSEEN = "no key, so routing cannot see it"
MINUTES = MINUTE / DAY


@pytest.fixture
def story() -> Story:
    """With a sound chat that comes before all others: positions 10, 11 and 20."""
    told = Story()
    told.talk("sound", OTHER, 0.1)
    told.route(OTHER, "sound")
    return told


def found(story: Story, kind: Kind) -> list[Finding]:
    findings = [finding for finding in audit(story.world()) if finding.kind == kind]
    for finding in findings:
        for each in finding.candidates:
            assert each.last_active_us == story.sessions[each.session_id].last_active_us
    return findings


def the(story: Story, kind: Kind) -> Finding:
    (finding,) = found(story, kind)
    return finding


def says(
    finding: Finding,
    about: tuple[str | None, str | None],
    detail: str,
    evidence: tuple[int, ...],
    candidates: dict[str, str],
    remedy: str,
    facts: dict[str, Any],
) -> bool:
    assert (finding.key, finding.session_id) == about
    assert finding.detail == detail
    assert finding.evidence == evidence
    assert [(each.session_id, each.verdict) for each in finding.candidates] == list(candidates.items())
    assert finding.remedy == f"retold sessions {remedy}"
    assert finding.facts == facts
    return True


# --- where a key leads ----------------------------------------------------------------------------------


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


# --- lineage and identity -------------------------------------------------------------------------------


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


# --- stranded -------------------------------------------------------------------------------------------

LOST = "has messages but no key to be found by."


def test_stranded_with_one_candidate(story: Story) -> None:
    story.talk("vanished", None, 0.05, source_gone=True)
    story.talk("d", K, 1)
    story.talk("o", None, 1 + 5 * MINUTES, 2)
    story.route(K, "d")

    assert says(
        the(story, "stranded"),
        (K, "o"),
        f"o {LOST} Only d can be what it goes on from (contiguity).",
        (40, 41, 50, 51),
        {"d": LEADS},
        "repair-routing --apply o",
        {"claims": 1, "evidence": "contiguity"},
    )


def test_stranded_where_the_chat_went_on_without_it(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("o", None, 1 + 5 * MINUTES, 2)
    story.talk("new", K, 3, 4)
    story.route(K, "new")

    assert the(story, "stranded").remedy == "retold sessions repair-routing --apply o --choose SESSION"


def test_what_lost_its_key_and_was_jumped_back_from_has_one_remedy(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("d", K, 3)
    story.talk("o", None, 3 + 5 * MINUTES, 5, lost_key=K, lost_position=77)
    story.route(K, "old")
    told = [(each.kind, each.remedy) for each in audit(story.world()) if each.session_id == "o"]

    assert [kind for kind, _ in told] == ["jumped_back", "identity_lost", "stranded"]
    assert {remedy for _, remedy in told} == {"retold sessions repair-routing --apply o"}


def test_stranded_with_a_rival(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("one", None, 1 + 1 * MINUTES, 2)
    story.talk("two", None, 1 + 2 * MINUTES, 2)
    first, second = found(story, "stranded")
    contested = f"{UNSEEN}; ambiguous: more than one unkeyed session claims this predecessor"

    assert says(
        first,
        (None, "one"),
        f"one {LOST} It could go on from d, and so could two.",
        (30, 31, 40, 41),
        {"d": OPEN},
        "repair-routing --apply one --from SESSION",
        {"claims": 1},
    )
    assert [(each.session_id, each.verdict) for each in first.rivals] == [("two", contested)]
    assert second.detail == f"two {LOST} It could go on from d, and so could one."


def test_stranded_with_more_rivals_than_are_named(story: Story) -> None:
    story.talk("d", K, 1)
    for number in range(30):
        story.talk(f"o{number}", None, 1 + (1 + number / 10) * MINUTES, 2)
    first = found(story, "stranded")[0]

    assert first.detail == f"o0 {LOST} It could go on from d, and so could 29 others."
    assert [each.session_id for each in first.rivals] == [f"o{n}" for n in range(1, 21)]


def test_stranded_with_a_rival_where_the_chat_went_on_without_either(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("one", None, 1 + 1 * MINUTES, 2)
    story.talk("two", None, 1 + 2 * MINUTES, 6)
    story.talk("new", K, 3, 4)
    story.route(K, "new")
    adopt = "retold sessions repair-routing --apply"

    assert [each.remedy for each in found(story, "stranded")] == [
        f"{adopt} one --from SESSION --choose SESSION",
        f"{adopt} two --from SESSION",  # in use after what the chat leads to
    ]


def test_stranded_between_two_of_which_one_chat_went_on(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("e", "agent:main:telegram:dm:3", 1)
    story.talk("o", None, 1 + 5 * MINUTES, 2)
    story.talk("new", K, 3, 4)
    story.route(K, "new")

    assert the(story, "stranded").remedy == (
        "retold sessions repair-routing --apply o --from SESSION --choose SESSION"
    )


def test_stranded_out_of_the_window_where_the_chat_went_on(story: Story) -> None:
    story.talk("d", K, 3)
    story.talk("o", None, 3 + 2400 / 86400, 4)
    story.talk("new", K, 5, 6)
    story.route(K, "new")

    assert the(story, "stranded").remedy == (
        "retold sessions repair-routing --apply o --max-gap-seconds 2400 --choose SESSION"
    )


def test_stranded_beside_one_that_took_the_key_in_a_repair(story: Story) -> None:
    story.talk("d", K, 1, ended=2, end_reason="superseded_by_repair")
    story.talk("o", K, 1.1, 5, parent_id="d", parent_kind="continuation")
    story.talk("p", None, 1 + 5 * MINUTES, 3)
    one = the(story, "stranded")

    assert one.detail == f"p {LOST} It could go on from d, and so could o."
    assert [each.session_id for each in one.candidates] == ["d", "o"]
    assert one.candidates[0].verdict == "gave its key away; goes on as o"


def test_stranded_between_two_that_could_have_left_it(story: Story) -> None:
    story.talk("e", "agent:main:telegram:dm:3", 1)
    story.talk("d", K, 1)
    story.talk("o", None, 1 + 5 * MINUTES, 2)

    assert says(
        the(story, "stranded"),
        (None, "o"),
        f"o {LOST} It could go on from any of d, e.",
        (30, 31, 40, 41, 50, 51),
        {"d": OPEN, "e": OPEN},
        "repair-routing --apply o --from SESSION",
        {"claims": 2},
    )


def test_stranded_under_a_parent_without_a_key(story: Story) -> None:
    story.talk("p", None, 3, source="cli")
    story.talk("o", None, 5, 6, parent_id="p", parent_kind="child")

    assert says(
        the(story, "stranded"),
        (None, "o"),
        f"o {LOST} Its parent p has no key of this source to give.",
        (40, 41),
        {},
        "repair-routing --apply o --from SESSION",
        {"claims": 0},
    )


@pytest.mark.parametrize(("days", "how"), [((), ""), ((9,), " --choose SESSION")])
def test_stranded_further_down(story: Story, days: tuple[float, ...], how: str) -> None:
    compressed: dict[str, Any] = {"end_reason": "compression", "parent_kind": "continuation"}
    story.talk("b", K, 2, ended=3, end_reason="compression")
    story.talk("c", None, 3, ended=4, parent_id="b", **compressed)
    story.talk("d", None, 4, ended=5, parent_id="c", **compressed)
    story.talk("e", None, 5, 6, parent_id="d", parent_kind="continuation")
    story.talk("new", K, *days, began=7)
    story.route(K, "new", 7, "reset", previous_id="b")

    assert says(
        found(story, "stranded")[-1],
        (K, "e"),
        f"e {LOST} Its parent d has no key of this source to give. Further up, b bears one: adopt its"
        " parent first.",
        (30, 31, 32, 60, 61),
        {"b": "compressed; goes on as c"},
        f"repair-routing --apply c{how}",
        {"claims": 0},
    )


def test_stranded_out_of_the_window(story: Story) -> None:
    story.talk("d", K, 3)
    story.talk("o", None, 3 + 2400.001 / 86400, 9)
    story.talk("later", "agent:main:telegram:dm:3", 8)
    story.talk("elsewhere", "agent:main:slack:dm:3", 3.01, source="slack")

    assert says(
        the(story, "stranded"),
        (None, "o"),
        f"o {LOST} No session with a key fell quiet when it began. The last one before it is d.",
        (40, 41),
        {"d": "fell quiet 2401 s before it began; outside the window"},
        "repair-routing --apply o --max-gap-seconds 2401",
        {"claims": 0, "last_keyed": "d", "apart_us": 2_400_001_000},
    )


def test_stranded_out_of_the_window_where_a_wider_one_would_match_two(story: Story) -> None:
    story.talk("d", K, 3)
    story.talk("o", None, 3 + 2400 / 86400, 9)
    story.talk("later", "agent:main:telegram:dm:3", 3 + 4000 / 86400)

    assert the(story, "stranded").remedy == "retold sessions repair-routing --apply o --from SESSION"


def test_stranded_before_any_other(story: Story) -> None:
    story.talk("o", None, 0.05, 0.06)

    assert says(
        the(story, "stranded"),
        (None, "o"),
        f"o {LOST} No session with a key fell quiet when it began.",
        (30, 31),
        {},
        "repair-routing --apply o --from SESSION",
        {"claims": 0},
    )


# --- conflicts ------------------------------------------------------------------------------------------


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


# --- why ------------------------------------------------------------------------------------------------


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
