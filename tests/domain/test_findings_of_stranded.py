"""What a finding of a stranded session says, whole: words, events, candidates, facts and remedy.

All of it is seen by people (`why`, `audit`) or read by programs (`--json`), so all of it is held.
"""

from __future__ import annotations

from typing import Any

import pytest

from retold.domain.audit import audit
from retold.tests.domain.findings_told import LEADS, MINUTES, OPEN, UNSEEN, found, says, the
from retold.tests.domain.worlds import K, Story

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


def test_what_lost_its_key_and_was_jumped_back_from_a_person_says_where_the_chat_was_used_since(
    story: Story,
) -> None:
    story.talk("old", K, 1, 7)
    story.talk("d", K, 3)
    story.talk("o", None, 3 + 5 * MINUTES, 5, lost_key=K, lost_position=77)
    story.route(K, "old")
    told = {each.remedy for each in audit(story.world()) if each.session_id == "o"}

    assert told == {"retold sessions repair-routing --apply o --choose SESSION"}


def test_what_lost_its_key_gets_it_back_alone_where_the_chat_was_in_another_since(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("d", K, 3)
    story.talk("o", None, 3 + 5 * MINUTES, 5, lost_key=K, lost_position=77)
    story.talk("newer", K, 6)
    story.route(K, "old")

    assert the(story, "jumped_back").session_id == "newer"
    assert the(story, "identity_lost").remedy == "retold sessions restore-identity o"


def test_what_lost_its_key_gets_it_back_alone_where_another_could_take_it_too(story: Story) -> None:
    story.talk("old", K, 1)
    story.talk("d", K, 3)
    story.talk("o", None, 3 + 5 * MINUTES, 5, lost_key=K, lost_position=77)
    story.talk("p", None, 3 + 6 * MINUTES, 4)
    story.route(K, "old")

    assert the(story, "identity_lost").remedy == "retold sessions restore-identity o"


def test_what_lost_its_key_before_anything_was_said_gets_it_back_alone(story: Story) -> None:
    story.talk("x", None, began=1, lost_key=K, lost_position=77)

    assert the(story, "identity_lost").remedy == "retold sessions restore-identity x"


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
