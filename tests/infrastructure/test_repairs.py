"""Repair: a chat's key goes back to whom it belongs, in one save, once, and never by a guess."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain import events as e
from retold.domain.ends import SUPERSEDED
from retold.domain.errors import (
    BadUsage,
    NoSuchSession,
    OrphanChanged,
    RepairRefused,
    TwoHistories,
)
from retold.domain.repair import CONTESTED, TWO_DONORS, repair_records
from retold.domain.session_source import SessionSource
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.projections.world import world
from retold.tests.histories import DAY_US, MINUTE_US, T0_US
from retold.tests.infrastructure.repairing import TRUTH, K, findings, payloads, row, talk


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


@pytest.fixture
def imported(engine: SessionEngine, hermes_home: Path) -> SessionEngine:
    import_hermes(engine, hermes_home)
    return engine


# --- one adoption ------------------------------------------------------------------------------------


def test_a_jump_back_is_mended_in_one_save(imported: SessionEngine) -> None:
    truth = TRUTH["lineage"]
    before = row(imported, truth["predecessor"])
    done = imported.repair(truth["orphan"])
    identity, donor, wrong, led = payloads(imported, done.positions)

    assert {event.save for event in imported.event_log.read(done.positions[0] - 1)} == {done.positions[0]}
    assert identity.now["session_key"] == truth["adopts_key"]
    assert identity.now["user_id"] == "501"
    assert "parent_session_id" not in identity.now
    assert (donor.reason, donor.hard, wrong.reason, wrong.hard) == (SUPERSEDED, False, SUPERSEDED, False)
    assert (led.session_id, led.previous, led.cause) == (truth["orphan"], truth["routed_to_now"], "repair")
    assert [each.session_id for each in led.candidates] == [
        truth["orphan"],
        truth["predecessor"],
        truth["routed_to_now"],
    ]
    assert led.evidence[0].startswith("lineage: ")
    after = row(imported, truth["predecessor"])
    assert (after["end_reason"], after["ended_at"]) == (SUPERSEDED, before["ended_at"])
    assert imported.session(truth["predecessor"]).successor == truth["orphan"]
    assert row(imported, truth["orphan"])["ended_at"] is None
    assert not {K} & {finding.key for finding in findings(imported)}


def test_a3_by_contiguity_the_donor_becomes_the_parent(imported: SessionEngine) -> None:
    truth = TRUTH["contiguity"]
    done = imported.repair(truth["orphan"])
    orphan, donor = row(imported, truth["orphan"]), row(imported, truth["predecessor"])

    assert (done.key, done.donor, done.leads_to) == (
        truth["adopts_key"],
        truth["predecessor"],
        truth["orphan"],
    )
    assert (orphan["parent_session_id"], orphan["parent_kind"]) == (truth["predecessor"], "continuation")
    assert (orphan["session_key"], orphan["chat_id"], orphan["user_id"]) == (
        truth["adopts_key"],
        donor["chat_id"],
        donor["user_id"],
    )
    assert donor["end_reason"] == SUPERSEDED
    assert donor["ended_at"] is not None


def test_a3_the_second_time_nothing_is_changed(imported: SessionEngine) -> None:
    for name in ("lineage", "contiguity"):
        imported.repair(TRUTH[name]["orphan"])
    head = imported.head()
    again = [imported.repair(TRUTH[name]["orphan"]) for name in ("lineage", "contiguity")]

    assert [each.positions for each in again] == [(), ()]
    assert imported.head() == head


def test_a3_the_donor_is_retired_and_wins_its_key_back_on_no_path(engine: SessionEngine) -> None:
    source = SessionSource("telegram", chat_id="1001", user_id="501")
    talk(engine, "d", K, T0_US, chat_id="1001", user_id="501")
    talk(engine, "o", None, T0_US + MINUTE_US, 0, 5)
    engine.repair("o")
    at = T0_US + 60 * MINUTE_US
    assert engine.resolve(source, at_us=at).session_id == "o"
    led = engine.route(K)
    engine.save_events([engine.rerouted(led, e.RouteClosed(K, led.session_id, "import"), at)])

    found = engine.resolve(source, at_us=at)

    assert (found.session_id, found.cause) == ("o", "recovery")


def test_a3_two_donors_or_two_claimants_are_refused(imported: SessionEngine) -> None:
    head = imported.head()
    for orphan, reason in (
        (TRUTH["two_predecessors"]["orphan"], TWO_DONORS),
        *((each, CONTESTED) for each in TRUTH["two_claimants"]["orphans"]),
    ):
        with pytest.raises(RepairRefused, match=reason):
            imported.repair(orphan)

    assert imported.head() == head


@pytest.mark.parametrize("kind", ["branch", "delegate", "tool"])
def test_a3_a_branch_a_delegate_or_a_tool_run_is_never_adopted(engine: SessionEngine, kind: Any) -> None:
    talk(engine, "d", K, T0_US)
    talk(engine, "o", None, T0_US + MINUTE_US, 0, 5, parent="d", parent_kind=kind)
    for named in (None, "d"):
        with pytest.raises(RepairRefused):
            engine.repair("o", donor=named)


def test_an_end_for_good_of_the_donor_is_taken_over_and_keeps_its_time(engine: SessionEngine) -> None:
    talk(engine, "d", K, T0_US)
    engine.end_session("d", "session_reset", at_us=T0_US + MINUTE_US)
    talk(engine, "o", None, T0_US + 2 * MINUTE_US, 0, 5)
    engine.repair("o", at_us=T0_US + DAY_US)
    donor, orphan = row(engine, "d"), row(engine, "o")

    assert (donor["end_reason"], donor["hard_end"]) == (SUPERSEDED, 0)
    assert donor["ended_us"] == T0_US + MINUTE_US
    assert (engine.session("d").hard_end, engine.session("d").end_reason) == (False, SUPERSEDED)
    assert orphan["parent_kind"] == "reset"


def test_an_orphan_that_ended_for_good_gets_its_key_and_the_chat_begins_anew(engine: SessionEngine) -> None:
    talk(engine, "d", K, T0_US)
    engine.reroute(K, "d", "first_message", at_us=T0_US)
    talk(engine, "o", None, T0_US + 2 * MINUTE_US, 0, 5)
    engine.end_session("o", "session_reset", at_us=T0_US + DAY_US)
    done = engine.repair("o")

    assert (engine.session("o").key, engine.route_of(K), done.leads_to) == (K, None, None)
    assert findings(engine) == []


def test_an_orphan_that_goes_on_hands_its_key_to_what_goes_on(engine: SessionEngine) -> None:
    talk(engine, "d", K, T0_US)
    engine.reroute(K, "d", "first_message", at_us=T0_US)
    talk(engine, "o", None, T0_US + 2 * MINUTE_US, 0, 5)
    engine.compress_session("o", "so far", continuation_id="o2", at_us=T0_US + 9 * MINUTE_US)
    done = engine.repair("o")
    then = engine.repair("o2")

    assert (done.leads_to, engine.route_of(K)) == ("o2", "o2")
    assert (then.donor, engine.session("o2").key) == ("o", K)
    assert engine.session("o").successor == "o2"
    assert findings(engine) == []


def test_the_mirror_follows_a_repair(imported: SessionEngine, home: Path) -> None:
    truth = TRUTH["lineage"]
    imported.repair(truth["orphan"])
    imported.close()
    told = json.loads((home / "sessions" / "sessions.json").read_text())

    assert told[truth["adopts_key"]]["session_id"] == truth["orphan"]


# --- what more is on record --------------------------------------------------------------------------


def test_further_facts_are_named_as_evidence_and_decide_nothing(engine: SessionEngine) -> None:
    origin = '{"platform":"telegram","chat_id":"1001","user_id":"501"}'
    talk(engine, "d", K, T0_US, title="plan", chat_id="1001", user_id="501")
    engine.append_message("d", "user", "last", platform_message_id="104", at_us=T0_US + 1)
    talk(engine, "o", None, T0_US + MINUTE_US, 1, title="plan #2", origin_json=origin, user_id="501")
    engine.append_message("o", "user", "next", platform_message_id="105", at_us=T0_US + 3 * MINUTE_US)
    done = engine.repair("o")

    assert done.evidence == (
        "contiguity: only d had fallen quiet when it began",
        "origin: the same chat and user",
        "title: #2 of the lineage that it was #1 of",
        "platform message ids: 105 after 104",
    )
    (led,) = (each for each in payloads(engine, done.positions) if isinstance(each, e.SessionRerouted))
    assert tuple(led.evidence) == done.evidence


# --- what was reported, and what is ------------------------------------------------------------------


def test_what_changed_since_the_report_is_not_adopted(imported: SessionEngine) -> None:
    truth = TRUTH["contiguity"]
    reported = (truth["predecessor"], truth["adopts_key"])
    imported.append_message(truth["predecessor"], "user", "back again", at_us=T0_US + 900 * DAY_US)
    head = imported.head()
    with pytest.raises(OrphanChanged, match=r"was not adopted \(the row changed since it was reported\)"):
        imported.repair(truth["orphan"], reported=reported)

    assert imported.head() == head


def test_a_rival_that_comes_between_the_look_and_the_save_is_seen(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(engine, "d", K, T0_US)
    talk(engine, "o", None, T0_US + MINUTE_US, 0, 5)
    saved, looks = engine.save_events, []

    def rival_first(events: Any, **how: Any) -> Any:
        looks.append(len(events))
        if len(looks) == 1:
            with open_home(home) as other:
                talk(other, "p", None, T0_US + 2 * MINUTE_US, 0, 5)
        return saved(events, **how)

    monkeypatch.setattr(engine, "save_events", rival_first)
    with pytest.raises(RepairRefused, match=CONTESTED):
        engine.repair("o")

    assert len(looks) == 1
    assert engine.session("o").key is None


def test_two_that_repair_at_once_adopt_once(imported: SessionEngine, home: Path) -> None:
    truth, done = TRUTH["lineage"], []
    ready = threading.Barrier(2)

    def repair() -> None:
        with open_home(home) as engine:
            ready.wait()
            done.append(engine.repair(truth["orphan"]).positions)

    both = [threading.Thread(target=repair) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()

    assert sorted(map(bool, done)) == [False, True]


def test_a_session_that_is_not_here_or_has_its_key_is_refused(imported: SessionEngine) -> None:
    with pytest.raises(NoSuchSession):
        imported.repair("nobody")
    with pytest.raises(RepairRefused, match="bears the key"):
        imported.repair(TRUTH["contiguity"]["predecessor"])


# --- two histories -----------------------------------------------------------------------------------


def test_where_the_chat_went_on_elsewhere_a_person_must_choose(imported: SessionEngine) -> None:
    truth = TRUTH["second_history"]
    head = imported.head()
    with pytest.raises(TwoHistories) as refused:
        imported.repair(truth["orphan"])

    assert refused.value.candidates == (truth["orphan"], truth["routed_to_now"])
    assert "--choose" in refused.value.hint
    assert imported.head() == head
    with pytest.raises(BadUsage, match="none of the two"):
        imported.repair(truth["orphan"], choose=TRUTH["lineage"]["orphan"])


@pytest.mark.parametrize("chosen", ["orphan", "routed_to_now"])
def test_the_history_that_is_chosen_goes_on_and_the_other_is_put_aside(
    imported: SessionEngine, chosen: str
) -> None:
    truth = TRUTH["second_history"]
    other = truth["routed_to_now" if chosen == "orphan" else "orphan"]
    done = imported.repair(truth["orphan"], choose=truth[chosen])

    assert (done.leads_to, imported.route_of(truth["adopts_key"])) == (truth[chosen], truth[chosen])
    assert row(imported, other)["end_reason"] == SUPERSEDED
    assert row(imported, truth[chosen])["end_reason"] is None
    assert row(imported, truth["orphan"])["session_key"] == truth["adopts_key"]
    assert row(imported, truth["predecessor"])["end_reason"] == SUPERSEDED
    assert truth["adopts_key"] not in {finding.key for finding in findings(imported)}
    assert f"a person chose {truth[chosen]} of two histories" in done.evidence


def test_a_chat_that_was_reset_since_is_not_led_back_without_a_choice(engine: SessionEngine) -> None:
    talk(engine, "d", K, T0_US)
    talk(engine, "o", None, T0_US + MINUTE_US, 0, 5)
    talk(engine, "new", K, T0_US + DAY_US, 0, 5)
    engine.reroute(K, "new", "reset", at_us=T0_US + DAY_US)
    with pytest.raises(TwoHistories):
        engine.repair("o")
    engine.repair("o", choose="new")

    assert engine.route_of(K) == "new"
    assert findings(engine) == []


# --- what a person says ------------------------------------------------------------------------------


def test_a_person_may_name_the_donor_where_no_rule_may(imported: SessionEngine) -> None:
    truth = TRUTH["two_predecessors"]
    done = imported.repair(truth["orphan"], donor=truth["candidates"][1])

    assert done.donor == truth["candidates"][1]
    assert done.evidence[0] == f"a person named {truth['candidates'][1]} as what it goes on from"
    assert truth["orphan"] not in {finding.session_id for finding in findings(imported)}


def test_whose_donor_another_has_taken_is_still_contested(imported: SessionEngine) -> None:
    truth = TRUTH["two_claimants"]
    first, second = truth["orphans"]
    imported.repair(first, donor=truth["predecessor"])
    left = {each.orphan_id: each for each in repair_records(world(imported.state.reader()))}

    assert not left[second].adoptable
    with pytest.raises(RepairRefused, match="ambiguous"):
        imported.repair(second)


def test_a_session_that_its_chat_went_to_already_stays_open_when_it_takes_its_key(
    engine: SessionEngine,
) -> None:
    talk(engine, "D", K, T0_US)
    talk(engine, "O", None, T0_US + MINUTE_US, 1)
    engine.resume(K, "O", at_us=T0_US + 2 * MINUTE_US)
    done = engine.repair("O")

    assert (done.leads_to, engine.session("O").end_reason) == ("O", None)
    assert engine.resolve(SessionSource("telegram", "1001", user_id="501")).session_id == "O"


def test_a_donor_that_a_person_goes_back_to_has_one_continuation_when_it_is_compressed(
    engine: SessionEngine,
) -> None:
    talk(engine, "D", K, T0_US)
    talk(engine, "O", None, T0_US + MINUTE_US, 1)
    engine.repair("O")
    engine.resume(K, "D", at_us=T0_US + 9 * MINUTE_US)
    engine.compress_session("D", "what was said", continuation_id="C", at_us=T0_US + 10 * MINUTE_US)

    assert row(engine, "C")["parent_kind"] == "continuation"
    assert (row(engine, "O")["parent_session_id"], row(engine, "O")["parent_kind"]) == ("D", "branch")
    assert [finding.kind for finding in findings(engine)] == []
    assert engine.resume(K, "D").session_id == "C"


def test_a_donor_without_a_key_or_of_another_platform_is_refused(imported: SessionEngine) -> None:
    orphan = TRUTH["two_predecessors"]["orphan"]
    with pytest.raises(RepairRefused, match="has no key to give"):
        imported.repair(orphan, donor=TRUTH["two_claimants"]["orphans"][0])
    with pytest.raises(RepairRefused, match="a session of matrix"):
        imported.repair(orphan, donor=TRUTH["two_claimants"]["predecessor"])


def test_a_wider_window_is_a_persons_word(imported: SessionEngine) -> None:
    truth = TRUTH["out_of_window"]
    with pytest.raises(RepairRefused, match="within 900s"):
        imported.repair(truth["orphan"])

    assert imported.repair(truth["orphan"], gap_seconds=2400).donor == truth["last_keyed"]
