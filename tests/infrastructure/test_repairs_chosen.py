"""Repair beside what a person had said of a chat: that is never ended by the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.domain.audit import audit
from retold.domain.errors import TwoHistories
from retold.infrastructure.engine import SessionEngine, open_home
from retold.projections.world import world
from retold.tests.histories import DAY_US, MINUTE_US, T0_US
from retold.tests.infrastructure.repairing import K, row, talk

if TYPE_CHECKING:
    from retold.tests.conftest import Run

Choice = Callable[[SessionEngine], object]


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


@pytest.fixture
def two(engine: SessionEngine) -> SessionEngine:
    """A keyed session that two without a key could go on from, and one more of the chat."""
    talk(engine, "d", K, T0_US, chat_id="1001", user_id="501")
    for number, name in enumerate(("x", "o1", "o2"), 1):
        talk(engine, name, None, T0_US + number * DAY_US, user_id="501")
    engine.reroute(K, "d", "first_message")
    return engine


CHOICES: dict[str, Choice] = {
    "led by hand": lambda engine: engine.lead_key(K, "x"),
    "resumed": lambda engine: engine.resume(K, "x"),
    "repaired from the same donor": lambda engine: engine.repair("x", donor="d", choose="x"),
    "led by hand, led elsewhere, and that undone": lambda engine: (
        engine.lead_key(K, "x"),
        engine.undo(engine.lead_key(K, "d").position),
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_repair_from_the_same_donor_does_not_end_what_a_person_chose_meanwhile(
    two: SessionEngine, name: str
) -> None:
    two.repair("o1", donor="d")
    CHOICES[name](two)
    head, chosen = two.head(), row(two, "x")
    with pytest.raises(TwoHistories, match="a person led its chat to x; a person must say") as refused:
        two.repair("o2", donor="d")

    assert (two.head(), row(two, "x"), two.route_of(K)) == (head, chosen, "x")
    assert refused.value.candidates == ("o2", "x")
    stays = two.repair("o2", donor="d", choose="x")
    assert (stays.leads_to, row(two, "x")["ended_at"]) == ("x", None)


def test_a_second_time_from_the_same_donor_does_nothing_where_a_person_led_the_chat_on(
    two: SessionEngine,
) -> None:
    two.repair("o1", donor="d")
    two.lead_key(K, "x")
    head = two.head()
    again = two.repair("o1", donor="d")

    assert (again.positions, again.leads_to) == ((), "x")
    assert (two.head(), two.route_of(K)) == (head, "x")


def test_what_was_compressed_since_it_was_chosen_is_chosen_still(two: SessionEngine) -> None:
    two.lead_key(K, "x")
    on = two.compress_session("x", "so far", at_us=T0_US + DAY_US + MINUTE_US)
    with pytest.raises(TwoHistories, match=f"a person led its chat to {on.session_id}"):
        two.repair("o1", donor="d")


def test_what_a_rule_repaired_is_no_persons_word(engine: SessionEngine) -> None:
    talk(engine, "d", K, T0_US, user_id="501")
    talk(engine, "o1", None, T0_US + 5 * MINUTE_US, user_id="501")
    talk(engine, "d2", K, T0_US + DAY_US, user_id="501")
    talk(engine, "o2", None, T0_US + DAY_US + 5 * MINUTE_US, user_id="501")
    engine.reroute(K, "d", "first_message")
    for name in ("o1", "o2"):
        engine.repair(name)

    assert engine.route_of(K) == "o2"
    assert row(engine, "o1")["end_reason"] == "superseded_by_repair"


def test_a_chosen_session_is_gone_on_from_by_its_own_continuation(two: SessionEngine) -> None:
    two.lead_key(K, "x")
    two.create_session("telegram", session_id="y", parent="x", parent_kind="child", at_us=T0_US + 9 * DAY_US)
    two.append_message("y", "user", "on", at_us=T0_US + 9 * DAY_US)
    two.repair("y")

    assert two.route_of(K) == "y"


def test_a_report_an_audit_and_all_that_a_bulk_repair_does_leave_it_to_a_person(
    engine: SessionEngine, run: Run
) -> None:
    talk(engine, "d", K, T0_US, user_id="501")
    talk(engine, "x", None, T0_US + DAY_US, user_id="777")
    talk(engine, "o", None, T0_US + 5 * MINUTE_US, user_id="501")
    engine.lead_key(K, "x")
    engine.append_message("o", "user", "later", at_us=T0_US + 3 * DAY_US)
    head = engine.head()
    report = run("sessions", "repair-routing")
    bulk = run("sessions", "repair-routing", "--apply", "--yes")

    assert "    a person led the chat to x: --choose must say which of the two goes on\n" in report.stdout
    assert (bulk.exit_code, engine.head()) == (0, head)
    engine.projector.catch_up()
    (finding,) = [each for each in audit(world(engine.state.reader())) if each.session_id == "o"]
    assert finding.remedy == "retold sessions repair-routing --apply o --choose SESSION"
