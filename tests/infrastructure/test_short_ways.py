"""The short ways of an append and of a load: what they skip, and that anything in doubt goes the long way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retold.domain import events as e
from retold.domain import session
from retold.domain.errors import SessionOver
from retold.domain.events import Event
from retold.infrastructure import projector
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.snapshots import EVERY, keep_snapshot, snapshot_of
from retold.infrastructure.sqlite import one

T0_US = 1_778_000_000_000_000


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("this way was not to be taken")


def rows(engine: SessionEngine) -> list[tuple[Any, ...]]:
    """What a reader of state.db sees, without anything being folded first."""
    return [
        *engine.state.reader().execute("SELECT * FROM sessions ORDER BY id").fetchall(),
        *engine.state.reader().execute("SELECT * FROM messages ORDER BY id").fetchall(),
    ]


def test_an_append_looks_at_no_checkpoint_reads_nothing_back_and_is_there_for_every_reader(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(home) as engine:
        made = engine.create_session("cli").session_id
        engine.session(made)
        monkeypatch.setattr(projector, "keep_up", refuse)
        monkeypatch.setattr(type(engine.event_log), "read", refuse)
        monkeypatch.setattr(type(engine.event_log), "stream_version", refuse)
        engine.append_message(made, "user", "where is the boat?", idempotency_key="m1", at_us=T0_US)
        engine.append_message(made, "assistant", "on the slip", tool_calls=[{"id": "c"}], at_us=T0_US + 5)
        with open_home(home) as other:
            seen = other.state.reader().execute(
                "SELECT message_count, tool_call_count, preview, last_active_us, version FROM sessions"
            )

            assert seen.fetchall() == [(2, 1, "where is the boat?", T0_US + 5, 3)]


def test_what_was_folded_the_short_way_is_what_is_told_again(home: Path) -> None:
    with open_home(home) as engine:
        for name in ("a", "b"):
            engine.create_session("cli", session_id=name)
            engine.append_message(name, "assistant", "first", at_us=T0_US + 9)
            engine.append_message(name, "user", "  ", attachments=[{"path": "/f", "kind": "file"}])
            engine.append_message(name, "tool", None, tool_name="ls", tool_call_id="c", at_us=T0_US)
            engine.append_messages(
                name, [{"role": "user", "content": ["é", 1]}, {"role": "system", "content": "x"}]
            )
        short = rows(engine)
        for each in engine.projector.projections:
            (told,) = rebuild(engine.projector, [each])

            assert told.equal, told.differences
        assert rows(engine) == short


def test_what_another_process_did_meanwhile_stands_in_the_way_of_an_append_on_what_was_known(
    home: Path,
) -> None:
    with open_home(home) as engine, open_home(home) as other:
        made = engine.create_session("cli").session_id
        engine.append_message(made, "user", "one")
        other.append_message(made, "user", "two")
        third = engine.append_message(made, "user", "three")
        other.end_session(made, "session_reset")
        with pytest.raises(SessionOver):
            engine.append_message(made, "user", "four")

        assert third.position == 4
        assert [row[3] for row in rows(engine)[1:]] == ["one", "two", "three"]


def test_a_checkpoint_that_stands_elsewhere_is_left_to_the_long_way(home: Path) -> None:
    with open_home(home) as engine:
        made = engine.create_session("cli").session_id
        engine.event_log.append(
            [engine.draft(Event(f"session:{made}", 2, e.MessageAppended("user", "a"), T0_US))]
        )
        engine.append_message(made, "user", "b")

        assert [row[3] for row in rows(engine)[1:]] == ["a", "b"]


# --- sessions that have had many events -----------------------------------------------------------


def many_turns(engine: SessionEngine, session_id: str, turns: int) -> None:
    """A session in which much was under way, written without its commands."""
    version = engine.event_log.stream_version(f"session:{session_id}")
    payloads = [
        each
        for turn in range(turns)
        for each in (
            e.TurnStarted(f"t{turn}", T0_US),
            e.MessageAppended("user", "on"),
            e.TurnFinished(f"t{turn}", "done"),
        )
    ]
    engine.event_log.append(
        [
            engine.draft(Event(f"session:{session_id}", number, payload, T0_US))
            for number, payload in enumerate(payloads, version + 1)
        ]
    )


def test_a_long_session_is_loaded_from_its_snapshot_and_is_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="s", title="the plan")
        many_turns(engine, "s", EVERY)
        from_nothing = engine.session("s")
        engine.append_message("s", "user", "and on")
    folded: list[int] = []
    evolve = session.evolve

    def counted(state: Any, session_id: str, version: int, *rest: Any) -> Any:
        folded.append(version)
        return evolve(state, session_id, version, *rest)

    with open_home(home) as engine:
        kept = snapshot_of(engine.event_log, "s")
        monkeypatch.setattr(session, "evolve", counted)
        loaded = engine.session("s")

    assert kept == from_nothing
    assert (loaded.title, loaded.version) == ("the plan", from_nothing.version + 1)
    assert folded == []


def test_a_process_that_goes_on_for_long_folds_what_is_new_and_leaves_snapshots(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(home) as engine, open_home(home) as other:
        engine.create_session("cli", session_id="s")
        read: list[int] = []
        told = type(engine)._told

        def noted(self: Any, *args: Any, after: int = 0, **rest: Any) -> Any:
            for each in told(self, *args, after=after, **rest):
                read.append(each.version)
                yield each

        monkeypatch.setattr(type(engine), "_told", noted)
        for number in range(2 * EVERY):
            other.title_session("s", f"plan {number}")
            engine.session("s")

        assert engine.session("s").title == f"plan {2 * EVERY - 1}"
        assert snapshot_of(engine.event_log, "s") is not None
        assert len(read) < 20 * EVERY  # from the beginning each time: 2 x 200 x EVERY and more


def test_a_snapshot_of_another_log_fold_or_shape_is_passed_over(home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="s")
        many_turns(engine, "s", EVERY)
        engine.session("s")
        assert snapshot_of(engine.event_log, "s") is not None
        for change in ("topic = 'session.0.ff'", "version = version - 1", "state = x'c0'"):
            with engine.event_log.transaction() as db:
                kept = db.execute("SELECT * FROM snapshots").fetchall()
                db.execute(f"UPDATE snapshots SET {change}")

            assert snapshot_of(engine.event_log, "s") is None
            assert open_home(home).session("s").version == 1 + 3 * EVERY
            with engine.event_log.transaction() as db:
                db.execute("DELETE FROM snapshots")
                db.executemany("INSERT INTO snapshots VALUES (?, ?, ?, ?)", kept)


def test_a_state_that_was_read_before_an_erasure_is_kept_nowhere_after_it(home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="s")
        many_turns(engine, "s", EVERY)
        read_at = engine.head().position
        before = engine.session("s")
        message = one(
            engine.event_log.reader(), "SELECT max(position) FROM events WHERE topic LIKE 'message_%'"
        )
        engine.erase_messages([message], reason="asked")
        gone = snapshot_of(engine.event_log, "s")
        keep_snapshot(engine.event_log, before, read_at=read_at)

        assert gone is None
        assert snapshot_of(engine.event_log, "s") is None
