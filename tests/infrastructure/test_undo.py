"""Undo: a save's reverse puts all back, is refused where later events build on it, and can be undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain import events as e
from retold.domain.audit import audit
from retold.domain.errors import BuiltOn, NoSuchThing, NotUndoable
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.projections.world import world
from retold.tests.histories import DAY_US, MINUTE_US, T0_US
from retold.tests.infrastructure.repairing import TRUTH, K, findings, row, talk, twins
from retold.tests.infrastructure.standing import standing
from retold.tests.infrastructure.undoing import TITLES, Do, with_a_past


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


@pytest.fixture
def chat(engine: SessionEngine) -> SessionEngine:
    return with_a_past(engine)


CHANGES: dict[str, Do] = {
    "rename": lambda engine: engine.title_session("b", "new").positions,
    "a first title": lambda engine: engine.title_session("c", "new").positions,
    "archive": lambda engine: engine.archive_session("b").positions,
    "a soft end": lambda engine: engine.end_session("b", "agent_close").positions,
    "a hard end": lambda engine: engine.end_session("b", "session_reset").positions,
    "a person's reset": lambda engine: engine.reset(K, title="new").positions,
    "a resume": lambda engine: engine.reroute(K, "a", "resume").positions,
    "a route by hand": lambda engine: engine.lead_key(K, "a").positions,
    "a key closed": lambda engine: engine.close_key(K).positions,
    "a rewind": lambda engine: engine.undo_turns("b").positions,
    "a deletion": lambda engine: engine.delete_session("b").positions,
    "a deletion of a titled one that nothing leads to": lambda engine: engine.delete_session("a").positions,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_undone_as_a_whole_and_the_undo_is_undone(chat: SessionEngine, change: str) -> None:
    before = standing(chat, TITLES)
    positions = CHANGES[change](chat)
    after = standing(chat, TITLES)
    undone = chat.undo(positions[-1])
    back = standing(chat, TITLES)

    assert after != before
    assert undone.undone == positions
    assert back == before
    assert {each.caused_by for each in chat.event_log.read(undone.positions[0] - 1)} == {positions[0]}
    chat.undo(undone.positions[0])
    assert standing(chat, TITLES) == after


def test_an_unarchiving_a_pin_and_a_reopening_are_undone(chat: SessionEngine) -> None:
    chat.archive_session("b")
    chat.end_session("b", "agent_close", at_us=T0_US + 2 * DAY_US)
    before = standing(chat)
    for change in (chat.unarchive_session, chat.pin_session, chat.reopen_session):
        chat.undo(change("b").position)

        assert standing(chat) == before


def test_any_event_of_a_save_names_it(chat: SessionEngine) -> None:
    before = standing(chat, TITLES)
    for which in range(3):
        positions = chat.title_session("b", "new").positions
        chat.undo(positions[which])

        assert len(positions) == 3
        assert standing(chat, TITLES) == before


def test_an_end_that_took_the_place_of_another_gives_it_back(chat: SessionEngine) -> None:
    chat.end_session("b", "agent_close", at_us=T0_US + 2 * DAY_US)
    before = standing(chat)
    chat.undo(chat.end_session("b", "session_reset", at_us=T0_US + 3 * DAY_US).position)

    assert standing(chat) == before
    assert not chat.session("b").hard_end


@pytest.mark.parametrize("name", ["lineage", "contiguity", "second_history"])
def test_a_repair_is_undone_and_the_finding_is_back(
    engine: SessionEngine, hermes_home: Path, name: str
) -> None:
    import_hermes(engine, hermes_home)
    found, before = findings(engine), standing(engine)
    truth = TRUTH[name]
    choose = truth["routed_to_now"] if name == "second_history" else None
    done = engine.repair(truth["orphan"], choose=choose)
    repaired, after = findings(engine), standing(engine)
    undone = engine.undo(done.position)
    again = findings(engine)

    assert standing(engine) == before
    assert [(each.kind, each.session_id) for each in again] == [(f.kind, f.session_id) for f in found]
    engine.undo(undone.position)
    assert standing(engine) == after
    assert [(each.kind, each.session_id) for each in findings(engine)] == [
        (each.kind, each.session_id) for each in repaired
    ]


def test_a_choice_among_continuations_is_undone(engine: SessionEngine) -> None:
    twins(engine)
    before = standing(engine)
    engine.undo(engine.choose_continuation("s3").position)

    assert standing(engine) == before
    assert engine.session("p").successor == "s1"


def test_an_identity_given_back_is_lost_again(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, chat_id="1001")
    lost = e.IdentityLost({"session_key": K, "chat_id": "1001"}, {"session_key": None, "chat_id": None})
    engine.event_log.append([engine.draft(e.Event("session:a", 2, lost, T0_US))])
    before = standing(engine)
    done = engine.restore_identity("a")
    engine.undo(done.position)

    assert standing(engine) == before
    assert before["sessions"][0]["lost_key"] == K


def test_an_undone_resume_that_is_done_again_is_no_jump_back(chat: SessionEngine) -> None:
    resumed = chat.reroute(K, "a", "resume")
    undone = chat.undo(resumed.position)
    chat.undo(undone.position)

    assert chat.route_of(K) == "a"
    assert audit(world(chat.state.reader())) == []


# --- what builds on it -------------------------------------------------------------------------------


def built_on(engine: SessionEngine, position: int) -> tuple[int, ...]:
    head = engine.head()
    with pytest.raises(BuiltOn) as refused:
        engine.undo(position)

    assert engine.head() == head
    assert all(f"#{each}" in refused.value.message for each in refused.value.positions[:5])
    return refused.value.positions


def test_a_title_that_was_changed_since_is_named(chat: SessionEngine) -> None:
    first = chat.title_session("b", "new")
    then = chat.title_session("b", "plan #2")

    assert set(built_on(chat, first.position)) <= set(then.positions)


def test_a_title_that_another_took_since_is_named(chat: SessionEngine) -> None:
    renamed = chat.title_session("b", "new")
    taken = chat.title_session("c", "boats")

    assert built_on(chat, renamed.position) == taken.positions[:1]


def test_what_was_said_in_the_new_session_stands_in_the_way_of_a_reset(chat: SessionEngine) -> None:
    reset = chat.reset(K)
    said = chat.append_message(reset.session_id, "user", "anew")

    assert said.position in built_on(chat, reset.position)


def test_what_was_said_where_a_key_was_led_stands_in_the_way(chat: SessionEngine) -> None:
    resumed = chat.reroute(K, "a", "resume")
    said = chat.append_message("a", "user", "where were we?")

    assert said.position in built_on(chat, resumed.position)


def test_a_key_that_moved_on_stands_in_the_way(chat: SessionEngine) -> None:
    led = chat.lead_key(K, "a")
    then = chat.lead_key(K, "b")

    assert set(built_on(chat, led.position)) & set(then.positions)


def test_what_was_said_after_a_rewind_stands_in_the_way(chat: SessionEngine) -> None:
    rewound = chat.undo_turns("b")
    said = chat.append_message("b", "user", "instead")

    assert said.position in built_on(chat, rewound.position)


def test_an_undo_stands_in_the_way_of_a_second_one(chat: SessionEngine) -> None:
    archived = chat.archive_session("b")
    undone = chat.undo(archived.position)

    assert built_on(chat, archived.position) == undone.positions


def test_what_has_no_part_in_it_does_not_stand_in_the_way(chat: SessionEngine) -> None:
    archived = chat.archive_session("b")
    chat.title_session("b", "new")
    chat.append_message("b", "user", "more")
    chat.undo(archived.position)

    assert not chat.session("b").archived


# --- what cannot be undone ---------------------------------------------------------------------------


def test_a_message_an_import_and_a_compression_cannot_be_undone(
    chat: SessionEngine, hermes_home: Path
) -> None:
    said = chat.append_message("b", "user", "more")
    compressed = chat.compress_session("b", "so far")
    brought = chat.head().position + 1
    import_hermes(chat, hermes_home)
    head = chat.head()
    for position, why in (
        (said.position, "message_appended"),
        (compressed.position, "cannot be undone"),
        (brought, "came from an import"),
        (head.position, "came from an import"),
    ):
        with pytest.raises(NotUndoable, match=why):
            chat.undo(position)

    assert chat.head() == head


def test_a_deletion_that_was_erased_cannot_be_undone(chat: SessionEngine) -> None:
    deleted = chat.delete_session("b")
    chat.delete_session("b", now=True)
    with pytest.raises(NotUndoable):
        chat.undo(deleted.position)


def test_there_is_no_event_of_this_position(chat: SessionEngine) -> None:
    for position in (0, -1, 10_000):
        with pytest.raises(NoSuchThing, match="there is no event"):
            chat.undo(position)


def test_a_writer_that_comes_between_is_seen(
    chat: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reset = chat.reset(K)
    saved, looks = chat.save_events, []

    def first_a_message(events: Any, **how: Any) -> Any:
        looks.append(events)
        if len(looks) == 1:
            with open_home(home) as other:
                other.append_message(reset.session_id, "user", "anew")
        return saved(events, **how)

    monkeypatch.setattr(chat, "save_events", first_a_message)
    with pytest.raises(BuiltOn):
        chat.undo(reset.position)


# --- what is more than one event's reverse -----------------------------------------------------------


def contents(engine: SessionEngine, session_id: str) -> list[Any]:
    return [each.content for each in engine.view(session_id).messages]


def test_a_compaction_in_place_is_undone_and_done_again(chat: SessionEngine) -> None:
    for minute in range(4):
        chat.append_message("c", "user", f"word {minute}")
        chat.append_message("c", "assistant", "yes")
    before = contents(chat, "c"), row(chat, "c")["message_count"]
    compacted = chat.compact("c", "so far", keep_last=1)
    after = contents(chat, "c")
    undone = chat.undo(compacted.position)

    assert (contents(chat, "c"), row(chat, "c")["message_count"]) == before
    chat.undo(undone.position)
    assert contents(chat, "c") == after != before[0]


def test_an_undo_of_a_compaction_is_undone_however_often(chat: SessionEngine) -> None:
    for minute in range(4):
        chat.append_message("c", "user", f"word {minute}")
    before = contents(chat, "c")
    compacted = chat.compact("c", "so far", keep_last=1)
    after = standing(chat)
    done = chat.undo(compacted.position)
    undone = standing(chat)

    assert contents(chat, "c") == before
    for stands in (after, undone, after, undone):
        done = chat.undo(done.position)
        assert standing(chat) == stands


def test_an_undo_past_two_compactions_is_undone_however_often(chat: SessionEngine) -> None:
    for number in range(3):
        chat.append_message("c", "user", f"word {number}")
    chat.compact("c", "so far", keep_last=1)
    chat.append_message("c", "user", "later")
    before = contents(chat, "c")
    compacted = chat.compact("c", "all of it", keep_last=1)
    after = contents(chat, "c")
    done = chat.undo(compacted.position)

    assert contents(chat, "c") == before
    for stands in (after, before, after, before):
        done = chat.undo(done.position)
        assert contents(chat, "c") == stands


def test_another_key_than_the_one_that_was_lost_is_taken_back(engine: SessionEngine) -> None:
    talk(engine, "d", "agent:main:telegram:dm:2", T0_US)
    talk(engine, "o", K, T0_US + MINUTE_US, 0, 5)
    lost = e.IdentityLost({"session_key": K}, {"session_key": None})
    version = engine.session("o").version
    engine.event_log.append([engine.draft(e.Event("session:o", version + 1, lost, T0_US))])
    before = standing(engine)
    done = engine.repair("o")
    engine.undo(done.position)

    assert engine.session("o").key is None
    assert standing(engine) == before
    assert row(engine, "o")["lost_key"] == K
