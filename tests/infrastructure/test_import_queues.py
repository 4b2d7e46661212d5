"""What waits in a session that an import ends, compresses or leaves: it runs once where its chat goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retold.domain import events as e
from retold.domain.errors import SessionOver
from retold.infrastructure.commands.base import following
from retold.infrastructure.importers.writer import Writer
from retold.infrastructure.verify import verify
from retold.tests.infrastructure.importing import Importer, edit, importer
from retold.tests.infrastructure.test_import_changes import BOAT, KEY, set_route

NEW, ENDED_S = "20260623_090000_0badcafe", 1782200000.0


@pytest.fixture
def waiting(home: Path, hermes_home: Path) -> Iterator[Importer]:
    """A home that was imported once; two turns wait in the session that the chat leads to."""
    with importer(home, hermes_home) as it:
        it.run()
        it.engine.enqueue(BOAT, "one", turn="q1", lane="overflow", about={"id": "77"})
        it.engine.enqueue(BOAT, "two", turn="q2", lane="overflow")
        yield it


def end_there(it: Importer, reason: str = "session_reset") -> None:
    edit(it.hermes, "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ?", ENDED_S, reason, BOAT)


def begin_there(it: Importer, session_id: str = NEW, **row: object) -> None:
    """A session of the same chat begins in the source, and the key leads to it."""
    columns = {"id": session_id, "source": "telegram", "session_key": KEY, "started_at": ENDED_S, **row}
    marks = ", ".join("?" * len(columns))
    edit(it.hermes, f"INSERT INTO sessions ({', '.join(columns)}) VALUES ({marks})", *columns.values())
    set_route(it.hermes, session_id=session_id)


def runs(it: Importer, session_id: str) -> list[tuple[str | None, str | None]]:
    """All that runs in a session until nothing waits there."""
    ran = []
    while begun := it.engine.next_turn(session_id):
        ran.append((begun.turn, begun.text))
        it.engine.finish_turn(session_id, begun.turn or "")
    return ran


BOTH = [("q1", "one"), ("q2", "two")]


def test_what_waits_in_a_session_that_was_reset_there_runs_where_its_key_leads(
    waiting: Importer, home: Path
) -> None:
    end_there(waiting)
    begin_there(waiting)
    told = waiting.run()
    moves = [each for each in told if isinstance(each.payload, (e.QueueCleared, e.TurnQueued))]
    ended = next(each for each in told if isinstance(each.payload, e.SessionEnded))
    again = waiting.told()

    assert waiting.engine.session(BOAT).hard_end
    assert waiting.engine.next_turn(BOAT) is None
    assert waiting.engine.waiting_sessions() == [NEW]
    assert {each.save for each in moves} == {ended.save}
    assert again == []
    assert waiting.engine.queue_of(NEW).waiting[0].about == {"id": "77"}
    assert runs(waiting, NEW) == BOTH
    assert runs(waiting, BOAT) == runs(waiting, NEW) == []
    assert verify(home).problems == []


def test_the_report_says_where_it_waits_now(waiting: Importer) -> None:
    end_there(waiting)
    begin_there(waiting)
    waiting.run()

    assert waiting.report is not None
    assert f"session {BOAT}: what waited there waits in session {NEW} now: q1, q2" in waiting.report.notes


def test_what_waits_in_a_session_that_ended_there_and_goes_on_nowhere_is_said_to_be_cleared(
    waiting: Importer,
) -> None:
    end_there(waiting)
    told = waiting.told()

    assert [each for each in told if isinstance(each, e.QueueCleared)] == [
        e.QueueCleared(["q1", "q2"], "reset")
    ]
    assert waiting.report is not None
    assert (
        f"session {BOAT}: it ended in the source (session_reset), so what waited there will not run: q1, q2"
        in waiting.report.notes
    )
    assert waiting.engine.next_turn(BOAT) is None
    assert waiting.engine.waiting_sessions() == []


def test_what_waits_in_a_session_that_was_compressed_there_runs_in_its_continuation(
    waiting: Importer,
) -> None:
    end_there(waiting, "compression")
    begin_there(waiting, parent_session_id=BOAT)
    waiting.run()

    assert waiting.engine.session(BOAT).successor == NEW
    assert runs(waiting, BOAT) == []
    assert runs(waiting, NEW) == BOTH


def test_what_waits_where_a_key_was_led_away_there_goes_along(waiting: Importer) -> None:
    begin_there(waiting)
    waiting.run()

    assert not waiting.engine.session(BOAT).ended
    assert runs(waiting, BOAT) == []
    assert runs(waiting, NEW) == BOTH


def test_what_waits_in_a_session_that_ended_softly_there_still_runs_there(waiting: Importer) -> None:
    end_there(waiting, "agent_close")
    waiting.run()

    assert waiting.engine.session(BOAT).end_reason == "agent_close"
    assert runs(waiting, BOAT) == BOTH


def test_what_waits_goes_to_no_session_that_takes_no_persons_messages(waiting: Importer) -> None:
    end_there(waiting)
    begin_there(waiting, source="cron")
    waiting.run()

    assert runs(waiting, NEW) == []
    assert waiting.engine.next_turn(BOAT) is None


def test_what_an_earlier_import_left_waiting_in_a_session_that_is_over_is_moved_by_the_next(
    waiting: Importer,
) -> None:
    engine = waiting.engine
    engine.create_session("telegram", session_id=NEW)
    ended, moved = e.SessionEnded("session_reset", hard=True), e.SessionRerouted(KEY, NEW, BOAT, "import")
    engine.save_events(following(engine.session(BOAT), [ended], engine.at()))
    engine.save_events([engine.rerouted(engine.route(KEY), moved, engine.at())])
    before = len(engine.queue_of(BOAT).waiting), len(engine.queue_of(NEW).waiting)
    waiting.run()

    assert before == (2, 0)
    assert runs(waiting, BOAT) == []
    assert runs(waiting, NEW) == BOTH


def test_an_import_that_dies_before_the_end_is_told_loses_nothing_of_what_waits(
    waiting: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_there(waiting)
    begin_there(waiting)
    flush = Writer.flush

    def dies(writer: Writer) -> int:
        if any(each.topic == e.QueueCleared.topic for each in writer._drafts):
            raise KeyboardInterrupt
        return flush(writer)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "flush", dies)
        with pytest.raises(KeyboardInterrupt):
            waiting.run()
    before = waiting.engine.session(BOAT).hard_end, len(waiting.engine.queue_of(BOAT).waiting)
    waiting.run()

    assert before == (False, 2)
    assert runs(waiting, NEW) == BOTH
    assert runs(waiting, BOAT) == []


def test_what_was_queued_while_an_import_read_is_moved_too(
    waiting: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_there(waiting)
    begin_there(waiting)
    flush, looks = Writer.flush, []

    def queued_first(writer: Writer) -> int:
        looks.append(writer)
        if len(looks) == 1:
            waiting.engine.enqueue(BOAT, "three", turn="q3", lane="overflow")
        return flush(writer)

    monkeypatch.setattr(Writer, "flush", queued_first)
    waiting.run()

    assert runs(waiting, NEW) == [*BOTH, ("q3", "three")]
    with pytest.raises(SessionOver):
        waiting.engine.append(BOAT, "user", "more")
