"""Undo of what a person chose in a conflict, of keys that are closed again, and what stays refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain.audit import audit
from retold.domain.errors import BuiltOn, NotUndoable
from retold.domain.session_source import SessionSource
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.verify import verify
from retold.projections.world import world
from retold.tests.histories import DAY_US, MINUTE_US, T0_US
from retold.tests.infrastructure.importing import Importer, edit, importer
from retold.tests.infrastructure.routing import continued
from retold.tests.infrastructure.standing import standing
from retold.tests.infrastructure.test_import_changes import BOAT, KEY, set_route

LATER = "20260508_141930_46dc1a26"


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


@pytest.fixture
def known(home: Path, hermes_home: Path) -> Iterator[Importer]:
    with importer(home, hermes_home) as it:
        it.run()
        yield it


def conflicts(it: Importer) -> list[tuple[Any, ...]]:
    return it.state('SELECT position, kind, row, "column", ours, theirs FROM source_conflicts ORDER BY 4')


@pytest.fixture
def moved_twice(known: Importer) -> Importer:
    """A route that was led elsewhere here, and elsewhere again in the source."""
    here = known.engine.create_session("telegram", session_id="here").session_id
    known.engine.lead_key(KEY, here)
    set_route(known.hermes, session_id=LATER)
    known.run()
    return known


def all_that_stands(it: Importer) -> tuple[object, ...]:
    return standing(it.engine), [row[1:] for row in conflicts(it)]


@pytest.mark.parametrize("keep", ["theirs", "ours"])
def test_a_route_that_a_conflict_was_settled_on_is_undone_and_the_conflict_stands_again(
    moved_twice: Importer, home: Path, keep: Any
) -> None:
    it, before = moved_twice, all_that_stands(moved_twice)
    resolved = it.engine.resolve_conflict(conflicts(it)[0][0], keep)
    assert resolved.can_be_undone
    after = all_that_stands(it)
    undone = it.engine.undo(resolved.position)
    back = all_that_stands(it)

    assert it.engine.route_of(KEY) == "here"
    assert back == before != after
    assert len(conflicts(it)) == 2
    again = it.engine.undo(undone.position)
    assert all_that_stands(it) == after
    it.engine.undo(again.position)
    assert all_that_stands(it) == before
    it.engine.resolve_conflict(conflicts(it)[0][0], "theirs")
    assert (it.engine.route_of(KEY), conflicts(it)) == (LATER, [])
    assert verify(home).problems == []


def test_what_waits_goes_along_where_a_conflict_leads_a_key_to_the_sources_session(
    moved_twice: Importer, home: Path
) -> None:
    engine = moved_twice.engine
    for text in ("one", "two"):
        engine.enqueue("here", text, turn=text, lane="overflow")
    settled = engine.resolve_conflict(conflicts(moved_twice)[0][0], "theirs")

    assert engine.route_of(KEY) == LATER
    assert [each.turn for each in engine.queue_of(LATER).waiting] == ["one", "two"]
    assert engine.queue_of("here").waiting == ()
    assert settled.can_be_undone
    engine.undo(settled.position)
    assert [each.turn for each in engine.queue_of("here").waiting] == ["one", "two"]
    assert engine.queue_of(LATER).waiting == ()
    assert verify(home).problems == []


def test_a_title_that_a_conflict_was_settled_on_is_undone(known: Importer, home: Path) -> None:
    known.engine.title_session(BOAT, "ours")
    edit(known.hermes, "UPDATE sessions SET title = 'theirs' WHERE id = ?", BOAT)
    known.run()
    before = all_that_stands(known)
    resolved = known.engine.resolve_conflict(conflicts(known)[0][0], "theirs")
    undone = known.engine.undo(resolved.position)

    assert all_that_stands(known) == before
    assert known.engine.session(BOAT).title == "ours"
    known.engine.undo(undone.position)
    assert (known.engine.session(BOAT).title, conflicts(known)) == ("theirs", [])
    assert verify(home).problems == []


def test_what_the_source_says_since_is_built_on_a_conflict_that_was_settled(moved_twice: Importer) -> None:
    resolved = moved_twice.engine.resolve_conflict(conflicts(moved_twice)[0][0], "ours")
    set_route(moved_twice.hermes, session_id=BOAT)
    (told,) = moved_twice.run()
    with pytest.raises(BuiltOn) as refused:
        moved_twice.engine.undo(resolved.position)

    assert refused.value.positions == (told.position,)


def test_a_handoff_cannot_be_undone_and_the_answer_says_what_can_be_done(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="chat", key=KEY)
    engine.create_session("cli", session_id="cli1")
    engine.set_home_channel("telegram", "1001")
    asked = engine.request_handoff("cli1", "telegram")
    with pytest.raises(NotUndoable, match="handed a conversation over"):
        engine.undo(asked.position)
    engine.claim_handoff("cli1")
    done = engine.complete_handoff("cli1", key=KEY)
    head = engine.head()
    with pytest.raises(NotUndoable, match="handed a conversation over, which cannot be undone") as refused:
        engine.undo(done.positions[0])

    assert "retold sessions route" in refused.value.hint
    assert (engine.head(), engine.route_of(KEY)) == (head, "cli1")


def test_a_branch_cannot_be_undone_and_the_answer_says_what_can_be_done(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="chat", key=KEY, title="boat")
    engine.append("chat", "user", "the keel leaks")
    branch = engine.branch_session("chat")
    head = engine.head()
    for position in (branch.positions[0], branch.position):
        with pytest.raises(NotUndoable, match=f"made the branch {branch.session_id}, which") as refused:
            engine.undo(position)

        assert f"retold sessions delete {branch.session_id}" in refused.value.hint
    assert (engine.head(), engine.route_of(KEY)) == (head, branch.session_id)


def test_a_conflict_over_what_has_no_reverse_stays_settled(known: Importer, hermes_home: Path) -> None:
    known.engine.set_model(BOAT, "ours")
    edit(known.hermes, "UPDATE sessions SET model = 'theirs' WHERE id = ?", BOAT)
    import_hermes(known.engine, hermes_home)
    resolved = known.engine.resolve_conflict(conflicts(known)[0][0], "theirs")

    assert not resolved.can_be_undone
    with pytest.raises(NotUndoable, match="model_changed"):
        known.engine.undo(resolved.position)


# --- a key that is closed again ------------------------------------------------------------------------

CHAT = SessionSource("telegram", "1001", user_id="501")


@pytest.fixture
def older(engine: SessionEngine) -> SessionEngine:
    """A chat with two sessions that bear its key: an older one that is open, and the one that it leads to."""
    for number, name in enumerate(("old", "now")):
        at_us = T0_US + number * DAY_US
        engine.create_session("telegram", session_id=name, key=KEY, chat_id="1001", at_us=at_us)
        engine.append(name, "user", f"in {name}", at_us=at_us)
        engine.append(name, "assistant", "yes", at_us=at_us + 1)
    assert engine.route_of(KEY) == "now"
    return engine


def deleted(engine: SessionEngine) -> int:
    return engine.delete_session("now").position


def expired(engine: SessionEngine) -> int:
    (engine.home / "config.yaml").write_text("session_reset: {mode: idle, idle_minutes: 60}\n")
    with open_home(engine.home) as watching:
        (done,) = watching.expire_due(at_us=T0_US + 3 * DAY_US)
    return done.position


@pytest.mark.parametrize("close", [deleted, expired])
def test_a_key_that_was_closed_for_good_is_fenced_again_after_an_undo_of_its_undo(
    older: SessionEngine, close: Callable[[SessionEngine], int]
) -> None:
    undone = older.undo(close(older))
    assert older.route_of(KEY) == "now"
    older.undo(undone.position)
    assert older.route_of(KEY) is None
    resolved = older.resolve(CHAT, at_us=T0_US + 3 * DAY_US + MINUTE_US)

    assert (resolved.created, resolved.resumed) == (True, False)
    assert resolved.session_id not in ("old", "now")


@pytest.mark.parametrize("close", [deleted, expired])
def test_a_key_that_was_closed_for_good_is_fenced_again_once_where_it_was_led_is_undone(
    older: SessionEngine, close: Callable[[SessionEngine], int]
) -> None:
    close(older)
    fenced = older.resolve(CHAT, at_us=T0_US + 3 * DAY_US)
    assert fenced.created
    older.undo(fenced.position)
    resolved = older.resolve(CHAT, at_us=T0_US + 3 * DAY_US + MINUTE_US)

    assert (resolved.created, resolved.cause, resolved.note) == (True, fenced.cause, fenced.note)
    assert resolved.session_id not in ("old", "now")


def test_after_an_undelete_is_undone_the_key_is_fenced_again(older: SessionEngine) -> None:
    older.delete_session("now")
    older.undo(older.undelete_session("now").position)
    resolved = older.resolve(CHAT, at_us=T0_US + 2 * DAY_US)

    assert resolved.created


def test_a_key_that_led_nowhere_before_and_was_never_closed_is_recovered_as_before(
    engine: SessionEngine,
) -> None:
    engine.create_session("telegram", session_id="old", chat_id="1001", at_us=T0_US)
    engine.append("old", "user", "in old", at_us=T0_US)
    led = engine.lead_key(KEY, "old")
    engine.undo(led.position)

    assert engine.route(KEY).closed == "undo"


# --- a deletion ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["undo", "undelete"])
@pytest.mark.parametrize("again", [False, True])
def test_a_continuation_is_a_branch_of_what_went_on_without_it_however_its_deletion_is_taken_back(
    engine: SessionEngine, way: str, again: bool
) -> None:
    engine.create_session("telegram", session_id="first")
    engine.compress_session("first", "so far", continuation_id="second")
    engine.append("second", "user", "and on")
    gone = engine.delete_session("second")
    engine.resume(KEY, "first")
    if again:
        engine.compress_session("first", "so far, again", continuation_id="third")
    before = standing(engine)
    back = engine.undo(gone.position) if way == "undo" else engine.undelete_session("second")

    assert engine.session("second").parent_kind == "branch"
    assert engine.session("first").successor == ("third" if again else None)
    assert audit(world(engine.state.reader())) == []
    engine.undo(back.positions[0])
    assert standing(engine) == before


def test_a_continuation_that_nothing_went_on_without_is_one_again_after_an_undo(
    engine: SessionEngine,
) -> None:
    engine.create_session("telegram", session_id="first")
    engine.compress_session("first", "so far", continuation_id="second")
    engine.undo(engine.delete_session("second").position)

    assert engine.session("second").parent_kind == "continuation"
    assert engine.session("first").successor == "second"


@pytest.mark.parametrize("way", ["undo", "undelete"])
def test_a_continuation_of_what_was_never_compressed_comes_back_as_it_was(
    engine: SessionEngine, way: str
) -> None:
    engine.create_session("telegram", session_id="first")
    continued(engine, "first", "second")
    before = standing(engine)
    gone = engine.delete_session("second")
    _ = engine.undo(gone.position) if way == "undo" else engine.undelete_session("second")

    assert standing(engine) == before


def test_whoever_opens_what_was_continued_while_an_undo_is_decided_is_seen(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.create_session("telegram", session_id="first")
    engine.compress_session("first", "so far", continuation_id="second")
    gone = engine.delete_session("second")
    saved, looks = engine.save_events, []

    def first_a_resume(events: Any, **how: Any) -> Any:
        looks.append(events)
        if len(looks) == 1:
            with open_home(home) as other:
                other.resume(KEY, "first")
        return saved(events, **how)

    monkeypatch.setattr(engine, "save_events", first_a_resume)
    engine.undo(gone.position)

    assert engine.session("second").parent_kind == "branch"
