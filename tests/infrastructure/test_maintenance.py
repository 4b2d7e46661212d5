"""Maintenance deletes what is old enough as a whole, ends what a crash left open, and tidies up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from retold.domain import events as e
from retold.domain.retention import Segment, is_due, is_stale, is_worth_a_vacuum, why_kept
from retold.infrastructure.config import load_config
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.verify import verify
from retold.projections.listing import list_sessions
from retold.projections.tree import tree
from retold.tests.infrastructure.test_removal import DAY_US, T0_US, Clock, ids, rows


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(home: Path, clock: Clock) -> Iterator[SessionEngine]:
    with SessionEngine(home, clock=clock) as opened:
        yield opened


def begin(engine: SessionEngine, session_id: str, *, ended: bool = True, source: str = "telegram") -> None:
    engine.create_session(source, session_id=session_id)
    engine.append_message(session_id, "user", f"hello {session_id}")
    if ended:
        engine.end_session(session_id, "cli_close")


def test_f2_what_was_used_since_is_kept_however_long_ago_it_began(
    engine: SessionEngine, clock: Clock
) -> None:
    begin(engine, "old", ended=False)
    begin(engine, "used", ended=False)
    begin(engine, "asked", ended=False)
    clock.now_us = T0_US + 95 * DAY_US
    engine.append_message("used", "user", "still here")
    engine.append_message("asked", "tool", "a result counts too")
    for each in ("used", "asked"):
        engine.end_session(each, "cli_close", at_us=T0_US + 95 * DAY_US)
    engine.end_session("old", "cli_close", at_us=T0_US)

    clock.now_us = T0_US + 96 * DAY_US
    pruned, left = engine.prune(retention_days=90)

    assert (pruned, left) == (("old",), {})
    assert ids(engine) == ["asked", "used"]


@pytest.mark.parametrize(("early_us", "kept"), [(0, True), (1, False)])
def test_f2_activity_at_exactly_the_cut_keeps_a_conversation(early_us: int, kept: bool) -> None:
    segments = [Segment("s1", True, False, T0_US - early_us)]

    assert (why_kept(segments, T0_US) is not None) == kept


def test_f1_a_compressed_conversation_goes_as_a_whole_or_not_at_all(
    engine: SessionEngine, clock: Clock
) -> None:
    chains = {}
    for name in ("young", "old"):
        begin(engine, name, ended=False)
        chain = [name]
        for _ in range(3):
            chain.append(engine.compress_session(chain[-1], "so far").session_id)
        engine.end_session(chain[-1], "cli_close")
        chains[name] = chain
    begin(engine, "branch")
    clock.now_us += 95 * DAY_US
    engine.reopen_session(chains["young"][-1])
    engine.append_message(chains["young"][-1], "user", "still here")
    engine.end_session(chains["young"][-1], "cli_close")
    clock.now_us += DAY_US

    pruned, left = engine.prune(retention_days=90)

    assert (set(pruned), left) == ({"old", "branch"}, {})
    assert ids(engine) == sorted(chains["young"])


def test_f1_children_of_what_was_pruned_stay_and_name_their_former_parent(
    engine: SessionEngine, clock: Clock
) -> None:
    begin(engine, "a")
    engine.create_session("cli", session_id="b", parent="a", parent_kind="branch")
    clock.now_us += 100 * DAY_US
    engine.append_message("b", "user", "another way")
    engine.prune(retention_days=90)
    parent = engine.state.reader().execute("SELECT parent_session_id FROM sessions WHERE id = 'b'").fetchall()

    assert ids(engine) == ["b"]
    assert parent == [("a",)]
    (stub, kept) = tree(engine.state.reader(), "b")
    assert (stub.session_id, stub.missing, stub.deleted) == ("a", True, True)
    assert (kept.parent_id, kept.deleted) == ("a", False)
    assert engine.undelete_session("a").sessions == ("a",)


def test_f4_a_pin_keeps_a_session_and_that_is_said(engine: SessionEngine, clock: Clock) -> None:
    begin(engine, "pinned")
    begin(engine, "open", ended=False)
    version = engine.session("pinned").version
    engine.save_events([e.Event("session:pinned", version + 1, e.SessionPinned(), T0_US)])
    clock.now_us += 100 * DAY_US

    assert engine.prune(retention_days=90) == ((), {"pinned": "pinned", "open": "open"})
    assert ids(engine) == ["open", "pinned"]
    assert engine.maintain(prune=True).left == {"pinned": "pinned", "open": "open"}
    assert engine.prune(retention_days=90, include_pinned=True) == (("pinned",), {"open": "open"})
    assert ids(engine) == ["open"]


def test_f7_what_a_crash_left_open_is_ended_and_a_chat_only_shown_as_stale(
    engine: SessionEngine, clock: Clock
) -> None:
    for source in ("cli", "cron", "subagent", "telegram"):
        begin(engine, source, ended=False, source=source)
    clock.now_us += 8 * DAY_US
    begin(engine, "young", ended=False, source="cli")

    done = engine.maintain()

    assert done.ended == ("cli", "cron", "subagent")
    reasons = engine.state.reader().execute("SELECT id, end_reason, hard_end FROM sessions ORDER BY id")
    assert {row for row in reasons if row[1]} == {
        (each, "startup_orphan_reap", 0) for each in ("cli", "cron", "subagent")
    }
    engine.reopen_session("cli")
    assert is_stale(None, T0_US, clock.now_us, 7)
    assert not is_stale("cli_close", T0_US, clock.now_us, 7)
    assert not is_stale(None, clock.now_us - 7 * DAY_US, clock.now_us, 7)


def test_a_run_is_due_once_in_its_interval_and_what_never_ran_or_ran_in_the_future_is(
    engine: SessionEngine, clock: Clock
) -> None:
    assert not engine.maintain_if_due().skipped
    assert engine.maintain_if_due().skipped
    clock.now_us += DAY_US
    assert not engine.maintain_if_due().skipped
    clock.now_us -= 3 * DAY_US
    assert not engine.maintain_if_due().skipped
    assert is_due(None, 0, 5)
    assert not is_due(10, 14, 5)
    assert is_due(10, 15, 5)
    assert is_due(16, 15, 5)


def test_a_run_is_on_record(engine: SessionEngine, clock: Clock, home: Path) -> None:
    home.joinpath("config.yaml").write_text("sessions: {auto_prune: true, retention_days: 30}\n")
    engine.config = load_config(home)
    begin(engine, "old")
    clock.now_us += 31 * DAY_US
    done = engine.maintain_if_due()
    clock.now_us += 7 * DAY_US
    later = engine.maintain()

    assert (done.pruned, done.erased, later.erased) == (("old",), (), ("old",))
    ran = [each.payload for each in engine.event_log.read(topics=[e.MaintenanceRan.topic])]
    assert ran[0] == e.MaintenanceRan("maintenance", {"pruned": 1, "optimised": 1})
    assert ran[1] == e.MaintenanceRan("maintenance", {"erased": 1, "optimised": 1})
    assert verify(home).exit_code == 0


def test_auto_prune_is_off_unless_it_is_set(engine: SessionEngine, clock: Clock) -> None:
    begin(engine, "old")
    clock.now_us += 400 * DAY_US

    assert engine.maintain_if_due().pruned == ()
    assert engine.maintain(prune=True).pruned == ("old",)


def test_f5_space_is_given_back_where_there_is_much_and_not_too_often(
    engine: SessionEngine, clock: Clock, home: Path
) -> None:
    engine.create_session("cli", session_id="big")
    engine.append_messages("big", [{"role": "user", "content": f"{n} {'x' * 4000}"} for n in range(300)])
    engine.create_session("cli", session_id="small")
    engine.delete_session("small", now=True)
    assert engine.maintain().vacuumed_bytes is None  # few pages are free
    assert is_worth_a_vacuum(26, 100)
    assert not is_worth_a_vacuum(25, 100)

    engine.delete_session("big")
    clock.now_us += 8 * DAY_US
    first = engine.maintain()
    assert first.vacuumed_bytes is not None
    assert first.vacuumed_bytes > 1_000_000

    engine.create_session("cli", session_id="again")
    engine.append_messages("again", [{"role": "user", "content": f"{n} {'y' * 4000}"} for n in range(300)])
    engine.delete_session("again")
    clock.now_us += 8 * DAY_US
    assert engine.maintain().vacuumed_bytes is None
    assert verify(home).exit_code == 0


def test_f11_a_child_whose_parent_is_missing_stops_no_prune(engine: SessionEngine, clock: Clock) -> None:
    created = e.SessionCreated("cli", parent_session_id="never-was", parent_kind="continuation")
    engine.save_events([e.Event("session:orphan", 1, created, T0_US)])
    engine.end_session("orphan", "cli_close")
    begin(engine, "old")
    clock.now_us += 100 * DAY_US

    assert engine.prune(retention_days=90) == (("old", "orphan"), {})
    assert ids(engine) == []


def test_g13_checkpoints_beside_readers_harm_nothing(engine: SessionEngine, home: Path) -> None:
    engine.create_session("cli", session_id="s1")
    readers = [apsw.Connection(str(home / "events.db"), flags=apsw.SQLITE_OPEN_READONLY) for _ in range(3)]
    for number in range(300):
        engine.append_message("s1", "user", f"message {number}")
        if number % 50 == 0:
            reader = readers[number // 50 % 3]
            if reader.in_transaction:
                reader.execute("COMMIT")
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchall()
            engine.event_log.empty_wal(wait_ms=0)
    for reader in readers:
        reader.close()

    assert verify(home).exit_code == 0


def test_g14_a_reader_that_never_leaves_stops_no_append_and_is_named(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retold.infrastructure.erasing.WAIT_MS", 10)
    engine.create_session("cli", session_id="s1")
    message = engine.append_message("s1", "user", "hello").position
    reader = apsw.Connection(str(home / "events.db"), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchall()
    engine.forget_message("s1", message)
    for number in range(50):
        engine.append_message("s1", "user", f"message {number}")

    assert "events.db" in engine.maintain().left
    reader.close()
    assert engine.maintain().left == {}
    assert engine.state.reader().execute("SELECT count(*) FROM messages").fetchone() == (51,)


def test_g12_a_setting_that_was_made_stays_made(home: Path) -> None:
    home.mkdir(mode=0o700)
    home.joinpath("config.yaml").write_text("log: {synchronous: NORMAL}\n")
    for _ in range(2):
        with SessionEngine(home) as engine:
            engine.create_session("cli")
            with engine.event_log.transaction() as db:
                assert db.pragma("synchronous") == 1
                assert db.pragma("journal_mode") == "wal"


def test_f8_archived_and_back_is_as_it_was(engine: SessionEngine) -> None:
    begin(engine, "over")
    begin(engine, "open", ended=False)
    before = rows(engine)
    for session_id in ("over", "open"):
        engine.archive_session(session_id)
        assert engine.archive_session(session_id).positions == ()
    assert list_sessions(engine.state.reader()).rows == []
    for session_id in ("over", "open"):
        engine.unarchive_session(session_id)

    assert rows(engine) == before
    assert len(list_sessions(engine.state.reader()).rows) == 2


def test_b13_a_session_that_was_undone_whole_is_not_empty_and_is_kept(
    engine: SessionEngine, clock: Clock
) -> None:
    for session_id in ("undone", "ghost", "named", "parent"):
        engine.create_session("tui", session_id=session_id)
    said = [engine.append_message("undone", "user", f"message {n}").position for n in range(6)]
    version = engine.session("undone").version
    engine.save_events([e.Event("session:undone", version + 1, e.MessagesRewound(said), T0_US)])
    engine.title_session("named", "a plan")
    engine.create_session("cli", session_id="child", parent="parent", parent_kind="branch")
    for session_id in ("undone", "ghost", "named", "parent"):
        engine.end_session(session_id, "tui_close")
    count = engine.state.reader().execute("SELECT message_count FROM sessions WHERE id = 'undone'").fetchone()
    assert count == (0,)

    assert engine.delete_if_empty("undone") is None
    assert engine.maintain().empty == ()
    clock.now_us += DAY_US + 1
    assert engine.maintain().empty == ("ghost",)
    assert ids(engine) == ["child", "named", "parent", "undone"]
    assert engine.undelete_session("ghost").sessions == ("ghost",)
