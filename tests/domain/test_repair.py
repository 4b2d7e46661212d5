"""The report of repair-routing: who lost a key, and who could give it."""

from __future__ import annotations

from typing import Any

import pytest

from retold.domain.repair import CONTESTED, NO_LINEAGE, TWO_DONORS, Record, repair_records
from retold.tests.domain.worlds import DAY, MINUTE, K, Story

K2 = "agent:main:telegram:dm:1002"
QUIET = 10.0  # days
SOON = QUIET + 5 * MINUTE / DAY


@pytest.fixture
def story() -> Story:
    return Story()


def only(story: Story, **more: Any) -> Record:
    (record,) = repair_records(story.world(**more))
    return record


def test_a3_one_keyed_predecessor_gone_quiet_gives_its_key(story: Story) -> None:
    story.talk("d", K, 1, QUIET)
    story.talk("o", None, SOON, 11)
    record = only(story)

    assert record.adoptable
    assert (record.donor_id, record.session_key, record.evidence) == ("d", K, "contiguity")
    assert (record.orphan_id, record.message_count, record.reason) == ("o", 2, "")
    assert (record.started_us, record.last_active_us) == (round(SOON * DAY), 11 * DAY)


def test_two_predecessors_are_refused(story: Story) -> None:
    story.talk("d", K, QUIET)
    story.talk("e", K2, QUIET)
    story.talk("o", None, SOON, 11)
    record = only(story)

    assert not record.adoptable
    assert (record.reason, record.donor_id, record.donor_ids) == (TWO_DONORS, None, ("d", "e"))
    assert record.evidence == ""


def test_two_claimants_are_both_refused_and_keep_their_evidence(story: Story) -> None:
    story.talk("d", K, QUIET)
    story.talk("o", None, SOON, 11)
    story.talk("p", None, SOON + 0.0001, 11)
    records = repair_records(story.world())

    assert [record.orphan_id for record in records] == ["o", "p"]
    for record in records:
        assert (record.adoptable, record.reason) == (False, CONTESTED)
        assert (record.donor_id, record.evidence) == ("d", "contiguity")


def test_a_claim_that_was_granted_before_contests_the_donor_still(story: Story) -> None:
    story.talk("d", K, QUIET, ended=QUIET, end_reason="superseded_by_repair")
    story.talk("o", K, SOON, 20, parent_id="d", parent_kind="continuation")
    story.talk("p", None, SOON + 0.0001, 11)

    assert (only(story).adoptable, only(story).reason, only(story).donor_id) == (False, CONTESTED, "d")


@pytest.mark.parametrize(
    ("end_reason", "key"), [("superseded_by_repair", K2), ("compression", K), ("agent_close", K)]
)
def test_a_child_that_took_no_key_in_a_repair_contests_nothing(
    story: Story, end_reason: str, key: str
) -> None:
    story.talk("d", K, QUIET, ended=QUIET, end_reason=end_reason)
    story.talk("c", key, SOON, 20, parent_id="d", parent_kind="continuation")
    story.talk("o", None, QUIET - 0.0001, 11)

    assert (only(story).adoptable, only(story).donor_id) == (True, "d")


def test_lineage_and_contiguity_contest_one_donor(story: Story) -> None:
    story.talk("d", K, QUIET)
    story.talk("o", None, SOON, 11)
    story.talk("c", None, 50, parent_id="d", parent_kind="continuation")

    assert {record.reason for record in repair_records(story.world())} == {CONTESTED}


def test_lineage_knows_no_window(story: Story) -> None:
    story.talk("d", K, 1)
    story.talk("o", None, 90, parent_id="d", parent_kind="continuation")
    record = only(story)

    assert (record.adoptable, record.evidence, record.session_key) == (True, "lineage", K)


@pytest.mark.parametrize("parent", ["keyless", "elsewhere", "missing"])
def test_a_parent_without_a_key_of_this_source_ends_the_search(story: Story, parent: str) -> None:
    story.talk("d", K, QUIET)
    story.talk("keyless", None, 9, source="cli")
    story.talk("elsewhere", "agent:main:slack:dm:1", 9, source="slack")
    story.talk("o", None, SOON, 11, parent_id=parent, parent_kind="child")
    record = next(r for r in repair_records(story.world()) if r.orphan_id == "o")

    assert (record.adoptable, record.reason, record.donor_id) == (False, NO_LINEAGE, None)


@pytest.mark.parametrize(
    ("offset_s", "within"), [(900, True), (900.000001, False), (-900, True), (-900.000001, False)]
)
def test_the_window_is_inclusive_and_lies_on_both_sides(story: Story, offset_s: int, within: bool) -> None:
    story.talk("d", K, 1, QUIET)
    story.talk("o", None, QUIET + offset_s / 86400, 20)
    record = only(story)

    assert record.adoptable is within
    if not within:
        assert record.reason == "no keyed predecessor fell quiet within 900s of this session's start"


def test_the_window_can_be_widened(story: Story) -> None:
    story.talk("d", K, QUIET)
    story.talk("o", None, QUIET + 1, 20)
    world = story.world()

    assert repair_records(world, 86_400)[0].adoptable
    assert repair_records(world, 0.5)[0].reason.startswith("no keyed predecessor fell quiet within 0.5s")


@pytest.mark.parametrize("last", [QUIET, SOON])
def test_a_predecessor_that_is_active_when_the_orphan_falls_quiet_or_after_is_none(
    story: Story, last: float
) -> None:
    story.talk("d", K, 1, last)
    story.talk("o", None, QUIET, began=QUIET)

    assert not only(story).adoptable


@pytest.mark.parametrize(
    ("donor", "orphan", "adoptable"),
    [
        ({"user_id": "1"}, {"user_id": "2"}, False),
        ({"user_id": "1"}, {"user_id": "1"}, True),
        ({"user_id": "1"}, {}, True),
        ({}, {"user_id": "1"}, True),
        ({"source": "slack"}, {}, False),
        ({"profile": "a"}, {"profile": "b"}, False),
        ({"profile": "own"}, {}, True),
        ({"ended": 10, "end_reason": "session_reset"}, {}, True),
    ],
)
def test_a_donor_is_of_the_same_source_user_and_profile(
    story: Story, donor: dict[str, Any], orphan: dict[str, Any], adoptable: bool
) -> None:
    story.talk("d", K, QUIET, **donor)
    story.talk("o", None, SOON, 11, **orphan)

    assert only(story).adoptable is adoptable


def test_where_a_store_has_several_profiles_a_session_that_names_none_is_of_the_default_one(
    story: Story,
) -> None:
    story.talk("d", K, QUIET, profile="default")
    story.talk("e", K2, QUIET, profile="coder")
    story.talk("o", None, SOON, 11)

    assert only(story).donor_id == "d"


@pytest.mark.parametrize("kind", ["branch", "delegate", "tool"])
def test_branches_delegates_and_tool_runs_are_never_adopted(story: Story, kind: str) -> None:
    story.talk("d", K, QUIET)
    story.talk("o", None, SOON, 11, parent_id="d", parent_kind=kind)
    story.talk("t", None, SOON, 11, source="tool")
    story.talk("empty", None, began=SOON)

    assert repair_records(story.world()) == []


def test_ordinary_shell_sessions_are_listed_without_a_donor(story: Story) -> None:
    story.talk("d", K, QUIET)
    story.talk("o", None, SOON, 11, source="cli")

    assert only(story).reason.startswith("no keyed predecessor")
