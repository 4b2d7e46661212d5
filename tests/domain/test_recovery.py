"""Which session a key is led to when it leads nowhere, judged on plain facts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.domain.ends import HARD, SETTLED
from retold.domain.recovery import Claimant, recover, takes_messages

K = "agent:main:telegram:dm:1001"


def claimant(name: str, began: int, last: int | None = None, **more: Any) -> Claimant:
    facts: dict[str, Any] = {"source": "telegram", "key": K, "has_messages": last is not None, **more}
    return Claimant(id=name, started_us=began, last_active_us=last, **facts)


def verdicts(*claimants: Claimant, platform: str = "telegram") -> tuple[str | None, dict[str, str]]:
    choice = recover(claimants, platform)
    return choice.session_id, {each.session_id: each.verdict for each in choice.candidates}


def test_the_most_recent_activity_wins_whatever_began_when() -> None:
    assert verdicts(claimant("late", 9, 10), claimant("busy", 1, 20))[0] == "busy"
    assert verdicts(claimant("busy", 1, 20), claimant("empty", 30))[0] == "busy"


def test_an_empty_session_is_chosen_where_there_is_no_other() -> None:
    chosen, said = verdicts(claimant("empty", 30), claimant("over", 1, 5, ended_us=6, end_reason="idle"))

    assert chosen == "empty"
    assert said["over"] == "ended for good (idle)"


@pytest.mark.parametrize("reason", sorted(HARD))
def test_an_end_for_good_fences_off_what_was_in_use_before_it(reason: str) -> None:
    old = claimant("old", 1, 10)
    over = claimant("over", 2, 20, ended_us=26, end_reason=reason)

    chosen, said = verdicts(old, over)

    assert chosen is None
    assert said == {
        "over": f"ended for good ({reason})",
        "old": f"last in use before over ended for good ({reason})",
    }
    assert verdicts(claimant("old", 1, 26), over)[0] == "old"  # not before it


@pytest.mark.parametrize("reason", sorted(SETTLED))
def test_what_is_done_is_no_fence_and_is_not_brought_back(reason: str) -> None:
    done = claimant("done", 2, 20, ended_us=26, end_reason=reason)

    assert verdicts(claimant("old", 1, 10), done)[0] == "old"
    assert verdicts(done)[0] is None


@pytest.mark.parametrize("reason", ["agent_close", "ws_orphan_reap", "cli_close", None])
def test_a_soft_end_is_no_hindrance(reason: str | None) -> None:
    assert verdicts(claimant("soft", 1, 10, ended_us=11, end_reason=reason))[0] == "soft"


def test_sessions_of_other_sources_and_runs_are_passed_over_and_fence_nothing() -> None:
    chosen, said = verdicts(
        claimant("mine", 1, 10),
        claimant("cron", 2, 30, source="cron", ended_us=31, end_reason="session_reset"),
        claimant("cli", 2, 40, source="cli"),
        claimant("side", 2, 50, parent_kind="delegate"),
    )

    assert chosen == "mine"
    assert said["cron"] == "a cron session; no person's message goes there"
    assert said["cli"] == "a session of cli"
    assert "no person's message" in said["side"]


def test_what_was_handed_over_is_the_chats_whatever_its_source() -> None:
    assert verdicts(claimant("cli", 2, 40, source="cli", handed_over=True))[0] == "cli"


def test_a_compressed_session_is_passed_over_for_where_it_goes_on() -> None:
    chosen, said = verdicts(claimant("first", 1, 50, goes_on_as="tip"), claimant("tip", 2, 40))

    assert chosen == "tip"
    assert said["first"] == "compressed; goes on as tip"


def test_of_thousands_the_chosen_one_is_on_record() -> None:
    many = [claimant(f"s{n}", n, end_reason="idle", ended_us=n) for n in range(2000)]

    choice = recover([claimant("old but alive", 0, 3000), *many], "telegram")

    assert choice.session_id == "old but alive"
    assert choice.candidates[0].session_id == "old but alive"
    assert len(choice.candidates) == 20


@pytest.mark.parametrize(
    ("source", "kind", "takes"),
    [
        ("telegram", None, True),
        ("cli", "branch", True),
        ("telegram", "reset", True),
        ("cron", None, False),
        ("tool", None, False),
        ("subagent", None, False),
        ("telegram", "delegate", False),
        ("telegram", "tool", False),
    ],
)
def test_where_a_persons_message_may_go(source: str, kind: str | None, takes: bool) -> None:
    assert takes_messages(source, kind) == takes


claimants = st.lists(
    st.builds(
        Claimant,
        id=st.uuids().map(str),
        source=st.sampled_from(["telegram", "telegram", "cron", "cli"]),
        key=st.just(K),
        started_us=st.integers(0, 20),
        last_active_us=st.none() | st.integers(0, 20),
        has_messages=st.booleans(),
        ended_us=st.none() | st.integers(0, 20),
        end_reason=st.sampled_from([None, "agent_close", "session_reset", "superseded_by_repair"]),
        parent_kind=st.sampled_from([None, "continuation", "delegate"]),
    ),
    max_size=8,
    unique_by=lambda each: each.id,
)


@given(claimants, st.randoms())
def test_the_choice_is_plain_and_does_not_hang_on_the_order(found: list[Claimant], random: Any) -> None:
    """Plainly: drop runs, other sources, what is done or over, what a reset fences; then the most recent."""

    def of_chat(each: Claimant) -> bool:
        return each.source == "telegram" and each.parent_kind != "delegate"

    over = [each for each in found if of_chat(each) and each.end_reason == "session_reset"]
    standing = [
        each
        for each in found
        if of_chat(each)
        and each.end_reason in (None, "agent_close")
        and not any(
            (fence.in_use_us if fence.ended_us is None else fence.ended_us) > each.in_use_us for fence in over
        )
    ]
    best = max(standing, key=lambda s: (s.has_messages, s.in_use_us, s.started_us, s.id), default=None)
    shuffled = list(found)
    random.shuffle(shuffled)

    choice = recover(shuffled, "telegram")

    assert choice.session_id == (best.id if best else None)
    assert choice == recover(found, "telegram")
    assert {each.session_id for each in choice.candidates} == {each.id for each in found}


def test_what_was_weighed_stands_newest_first_after_the_chosen_each_with_its_reason() -> None:
    choice = recover(
        [
            claimant("older", 1, 10),
            claimant("empty", 40),
            claimant("chosen", 2, 30),
            claimant("newer", 3, 35, end_reason=min(SETTLED)),
        ],
        "telegram",
    )

    assert [(each.session_id, each.verdict, each.last_active_us) for each in choice.candidates] == [
        ("chosen", "most recent activity", 30),
        ("empty", "no messages", None),
        ("newer", f"done ({min(SETTLED)})", 35),
        ("older", "in use before that", 10),
    ]


def test_where_only_an_empty_one_is_left_that_is_said() -> None:
    assert verdicts(claimant("empty", 30))[1] == {"empty": "nothing else is there, and it is open"}


def test_what_fenced_all_off_is_named_first() -> None:
    fence = claimant("fence", 1, 5, ended_us=50, end_reason="idle")
    choice = recover([claimant("old", 2, 20), fence], "telegram")

    assert choice.session_id is None
    assert [each.session_id for each in choice.candidates] == ["fence", "old"]


def test_a_keyless_session_of_the_chat_is_led_to_only_if_something_was_said() -> None:
    assert verdicts(claimant("silent", 30, key=None)) == (None, {"silent": "no key and no messages"})
    assert verdicts(claimant("spoken", 30, 31, key=None))[0] == "spoken"


def test_who_bears_the_key_goes_before_who_stands_for_the_chat_without_one() -> None:
    assert verdicts(claimant("keyed", 1, 5), claimant("keyless", 2, 50, key=None))[1].keys() == {"keyed"}


def test_the_end_of_a_run_of_its_own_is_no_fence() -> None:
    run = claimant("run", 30, 40, source="cron", ended_us=45, end_reason="idle")

    assert verdicts(claimant("old", 1, 10), run)[0] == "old"
