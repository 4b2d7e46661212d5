"""Undo of one change after the other: what was undone since is nothing that an earlier change rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retold.domain.audit import audit
from retold.domain.errors import BuiltOn
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.undos import cancelled, standing_undo, undos
from retold.infrastructure.verify import verify
from retold.projections.world import world
from retold.tests.histories import DAY_US, MINUTE_US, T0_US
from retold.tests.infrastructure.importing import Importer, edit, importer
from retold.tests.infrastructure.repairing import TRUTH, K, findings
from retold.tests.infrastructure.standing import standing

TITLES = ("plan", "boats", "new", "newer")
Change = Callable[[SessionEngine], int]


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


@pytest.fixture
def chat(engine: SessionEngine) -> SessionEngine:
    """A chat in `b` that was in `a` before, and another session `c` of it."""
    engine.create_session("telegram", session_id="a", key=K, title="plan", chat_id="1001", at_us=T0_US)
    engine.append_message("a", "user", "one", at_us=T0_US)
    engine.create_session(
        "telegram", session_id="b", key=K, cause="reset", parent="a", title="boats", at_us=T0_US + DAY_US
    )
    for minute in range(3):
        engine.append_message("b", "user", f"word {minute}", at_us=T0_US + DAY_US + minute * MINUTE_US)
        engine.append_message("b", "assistant", "yes", at_us=T0_US + DAY_US + minute * MINUTE_US + 1)
    engine.create_session("telegram", session_id="c", chat_id="1001", at_us=T0_US)
    engine.append_message("c", "user", "three", at_us=T0_US + MINUTE_US)
    return engine


IN_TURN: dict[str, tuple[Change, Change]] = {
    "two names": (
        lambda engine: engine.title_session("b", "new").position,
        lambda engine: engine.title_session("b", "newer").position,
    ),
    "a name back and forth": (
        lambda engine: engine.title_session("b", "new").position,
        lambda engine: engine.title_session("b", "boats").position,
    ),
    "archived and out again": (
        lambda engine: engine.archive_session("b").position,
        lambda engine: engine.unarchive_session("b").position,
    ),
    "pinned and out again": (
        lambda engine: engine.pin_session("b").position,
        lambda engine: engine.unpin_session("b").position,
    ),
    "a soft end and a hard one": (
        lambda engine: engine.end_session("b", "agent_close", at_us=T0_US + 2 * DAY_US).position,
        lambda engine: engine.end_session("b", "session_reset", at_us=T0_US + 3 * DAY_US).position,
    ),
    "an end and an opening": (
        lambda engine: engine.end_session("b", "agent_close", at_us=T0_US + 2 * DAY_US).position,
        lambda engine: engine.reopen_session("b").position,
    ),
    "a stop and an opening": (
        lambda engine: engine.stop_session("b").position,
        lambda engine: engine.reopen_session("b").position,
    ),
    "two routes by hand": (
        lambda engine: engine.lead_key(K, "a").position,
        lambda engine: engine.lead_key(K, "c").position,
    ),
    "a route by hand and a reset": (
        lambda engine: engine.lead_key(K, "a").position,
        lambda engine: engine.reset(K).position,
    ),
    "a resume and a key closed": (
        lambda engine: engine.resume(K, "a").position,
        lambda engine: engine.close_key(K).position,
    ),
    "two rewinds": (
        lambda engine: engine.undo_turns("b").position,
        lambda engine: engine.undo_turns("b").position,
    ),
    "a repair and a route by hand": (
        lambda engine: engine.repair("c", donor="a", choose="c").position,
        lambda engine: engine.lead_key(K, "b").position,
    ),
    "a reset and a name": (
        lambda engine: engine.reset(K, session_id="n").position,
        lambda engine: engine.title_session("n", "new").position,
    ),
    "a name and a deletion": (
        lambda engine: engine.title_session("b", "new").position,
        lambda engine: engine.delete_session("b").position,
    ),
}


@pytest.mark.parametrize("name", IN_TURN)
def test_two_changes_are_undone_one_after_the_other_and_done_again(
    chat: SessionEngine, home: Path, name: str
) -> None:
    first, second = IN_TURN[name]
    before = standing(chat, TITLES)
    did = first(chat)
    between = standing(chat, TITLES)
    then = second(chat)
    after = standing(chat, TITLES)
    undone_then = chat.undo(then)
    assert standing(chat, TITLES) == between
    undone = chat.undo(did)

    assert standing(chat, TITLES) == before
    again = chat.undo(undone.positions[0])
    assert standing(chat, TITLES) == between
    chat.undo(undone_then.positions[0])
    assert standing(chat, TITLES) == after
    with pytest.raises(BuiltOn):  # the second change stands again
        chat.undo(did)
    assert standing(chat, TITLES) == after
    with pytest.raises(BuiltOn):  # so does the first, and what took it back was taken back itself
        chat.undo(undone.positions[0])
    assert again.undone == undone.positions
    assert verify(home).problems == []


def rewound(engine: SessionEngine) -> int:
    return engine.undo_turns("b").position


def compacted(engine: SessionEngine) -> int:
    keep = 2 if len(context(engine)) > 6 else 1
    return engine.compact("b", f"so far: {keep}", keep_last=keep).position


@pytest.mark.parametrize("changes", [(rewound, compacted), (compacted, compacted), (compacted, rewound)])
def test_what_changed_a_context_is_undone_one_after_the_other_and_done_again(
    chat: SessionEngine, changes: tuple[Change, Change]
) -> None:
    for number in range(3):
        chat.append_message("b", "user", f"more {number}")
    saw, did = [context(chat)], []
    for change in changes:
        did.append(change(chat))
        saw.append(context(chat))
    undone = [chat.undo(did[1])]
    assert context(chat) == saw[1]
    undone.append(chat.undo(did[0]))

    assert context(chat) == saw[0]
    for each, seen in zip(reversed(undone), saw[1:], strict=True):
        chat.undo(each.positions[0])
        assert context(chat) == seen


def context(engine: SessionEngine) -> list[object]:
    return [each.content for each in engine.view("b").messages]


def test_an_undo_that_was_undone_makes_the_change_count_again(chat: SessionEngine) -> None:
    first = chat.title_session("b", "new")
    second = chat.title_session("b", "newer")
    undone = chat.undo(second.position)
    redone = chat.undo(undone.position)
    with pytest.raises(BuiltOn) as refused:
        chat.undo(first.position)

    assert set(refused.value.positions) <= set(second.positions)
    assert chat.session("b").title == "newer"
    chat.undo(second.position)
    chat.undo(first.position)
    assert chat.session("b").title == "boats"
    assert redone.undone == undone.positions


def test_what_was_undone_before_an_undo_stands_in_the_way_of_taking_that_back(chat: SessionEngine) -> None:
    first = chat.title_session("b", "new")
    second = chat.title_session("b", "newer")
    back = chat.undo(second.position)
    further = chat.undo(first.position)
    with pytest.raises(BuiltOn) as refused:
        chat.undo(back.position)

    assert set(refused.value.positions) <= set(further.positions)
    assert chat.session("b").title == "boats"


def test_a_second_undo_of_the_same_change_says_by_what_it_was_undone(chat: SessionEngine) -> None:
    archived = chat.archive_session("b")
    undone = chat.undo(archived.position)
    with pytest.raises(BuiltOn, match=f"was undone already, by #{undone.position}$") as refused:
        chat.undo(archived.position)

    assert refused.value.hint.endswith(f"retold undo {undone.position}")


def test_what_was_said_after_a_change_that_was_undone_still_stands_in_the_way(chat: SessionEngine) -> None:
    rewound = chat.undo_turns("b")
    many = chat.compact("b", "so far", keep_last=1)
    chat.undo(many.position)
    said = chat.append_message("b", "user", "instead")
    with pytest.raises(BuiltOn) as refused:
        chat.undo(rewound.position)

    assert refused.value.positions == (said.position,)


def test_copies_of_a_compaction_that_was_undone_hide_no_later_message(chat: SessionEngine) -> None:
    for number in range(130):
        chat.append_message("c", "user", f"word {number}")
    rewound = chat.undo_turns("c")
    kept = chat.compact("c", "so far", keep_last=120)
    chat.undo(kept.position)
    said = chat.append_message("c", "user", "instead")

    assert len(kept.positions) > 100
    with pytest.raises(BuiltOn) as refused:
        chat.undo(rewound.position)
    assert refused.value.positions == (said.position,)


def test_a_route_that_was_led_twice_and_back_is_no_more_explained_than_before(
    engine: SessionEngine, hermes_home: Path
) -> None:
    import_hermes(engine, hermes_home)
    truth = TRUTH["lineage"]
    found = findings(engine)
    first = engine.lead_key(truth["adopts_key"], truth["orphan"])
    second = engine.close_key(truth["adopts_key"])
    engine.undo(second.position)
    engine.undo(first.position)

    assert [(each.kind, each.session_id) for each in findings(engine)] == [
        (each.kind, each.session_id) for each in found
    ]


def test_a_chosen_route_is_explained_again_once_both_undos_are_undone(chat: SessionEngine) -> None:
    first = chat.lead_key(K, "c")
    second = chat.lead_key(K, "a")
    undone = [chat.undo(each.position) for each in (second, first)]
    for each in reversed(undone):
        chat.undo(each.position)

    assert chat.route_of(K) == "a"
    assert audit(world(chat.state.reader())) == []


def test_a_key_that_a_reset_closed_stays_fenced_after_two_undos(chat: SessionEngine) -> None:
    chat.delete_session("b")
    fenced = chat.route(K).closed
    led = chat.lead_key(K, "c")
    closed = chat.close_key(K)
    chat.undo(closed.position)
    chat.undo(led.position)

    assert fenced == "delete"
    assert chat.route(K).closed == fenced


# --- which saves take back others ----------------------------------------------------------------------


def test_settling_a_conflict_is_no_undo_of_what_let_it_stand(home: Path, hermes_home: Path) -> None:
    with importer(home, hermes_home) as it:
        it.run()
        session_id = TRUTH["lineage"]["routed_to_now"]
        named = it.engine.title_session(session_id, "ours")
        edit(it.hermes, "UPDATE sessions SET title = 'theirs' WHERE id = ?", session_id)
        it.run()
        kept = it.engine.resolve_conflict(conflict(it), "ours")
        undone = it.engine.undo(kept.position)
        assert undos(it.engine.event_log) == {undone.position: kept.position}
        taken = it.engine.resolve_conflict(conflict(it), "theirs")

        assert undos(it.engine.event_log) == {undone.position: kept.position}
        with pytest.raises(BuiltOn) as refused:
            it.engine.undo(named.position)
        assert set(taken.positions) & set(refused.value.positions)
        assert it.engine.session(session_id).title == "theirs"


def conflict(it: Importer) -> int:
    return int(it.state("SELECT position FROM source_conflicts")[0][0])


def test_a_save_stands_unless_what_took_it_back_stands() -> None:
    # 10 was taken back by 20, that by 30, and 10 again by 40; 5 by 50.
    taken_back = {20: 10, 30: 20, 40: 10, 50: 5}

    assert standing_undo(taken_back, 10) == 40
    assert standing_undo(taken_back, 20) == 30
    assert standing_undo(taken_back, 30) is None
    assert cancelled(taken_back, 0) == {5, 10, 20, 30, 40, 50}
    assert cancelled(taken_back, 7) == {10, 20, 30, 40}
    assert cancelled(taken_back, 10) == {20, 30}
    assert cancelled({20: 10, 30: 20}, 9) == {20, 30}
