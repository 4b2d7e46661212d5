"""SessionEngine: what a command leaves in the log, what it refuses, and what it does not read for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from retold.domain import events as e
from retold.domain.errors import (
    NeedsUpgrade,
    NoSuchSession,
    RuleBroken,
    SessionExists,
    SessionOver,
    TitleTaken,
    VersionConflict,
)
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.log import Condition, Log
from retold.infrastructure.log_schema import stored_name
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.sqlite import one
from retold.infrastructure.streams import route_stream, title_stream
from retold.tests.histories import draft
from retold.tests.infrastructure.routing import K, contents, continued, rows

DAY_US = 86_400_000_000
MAY_US = 1_777_593_600_000_000


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


# --- B16, B17: equal and backward times ------------------------------------------------------------


def test_b16_equal_and_backward_times_keep_the_order_of_appending(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="s1", at_us=MAY_US)
    for number in range(5):
        engine.append_message("s1", "user", f"message {number}", at_us=MAY_US + DAY_US)
    engine.append_message("s1", "user", "message 5", at_us=MAY_US)
    engine.append_messages("s1", [{"role": "user", "content": f"message {number}"} for number in (6, 7)])

    assert contents(engine, "s1") == [f"message {number}" for number in range(8)]
    rebuild(engine.projector, ["transcripts"], compare=False)
    assert contents(engine, "s1") == [f"message {number}" for number in range(8)]


def test_b17_of_two_at_the_same_time_the_latest_is_the_second(engine: SessionEngine) -> None:
    for session_id in ("s1", "s2"):
        engine.create_session("telegram", session_id=session_id, key=K, cause="resume", at_us=MAY_US)
    for title in ("first", "second"):
        engine.title_session("s1", title, at_us=MAY_US)

    assert engine.route_of(K) == "s2"
    assert rows(engine, "SELECT session_id FROM routes") == [("s2",)]
    assert rows(engine, "SELECT title FROM sessions WHERE id = 's1'") == [("second",)]


# --- B22: a parent that is not there ---------------------------------------------------------------


def test_b22_a_session_whose_parent_is_missing_still_ends_at_its_newest_message(
    engine: SessionEngine,
) -> None:
    continued(engine, "never_was", "s1", source="cli")
    for number in range(3):
        engine.append_message("s1", "user", f"message {number}")

    assert contents(engine, "s1")[-1] == "message 2"
    assert rows(engine, "SELECT parent, kind FROM edges") == [("never_was", "continuation")]


# --- B29: a session begins with its creation --------------------------------------------------------


def test_b29_an_append_to_an_unknown_session_is_refused(engine: SessionEngine) -> None:
    with pytest.raises(NoSuchSession, match="no session 's1'"):
        engine.append_message("s1", "user", "hi")

    assert engine.head().position == 0


@pytest.mark.parametrize(
    "payload", [e.MessageAppended("user", "hi"), e.SessionTitled("plan")], ids=lambda p: p.topic
)
def test_b29_no_way_into_the_log_lets_a_session_begin_with_anything_else(
    engine: SessionEngine, payload: e.Payload
) -> None:
    first = e.Event("session:s1", 1, payload, MAY_US)
    created = e.Event("session:s1", 2, e.SessionCreated("cli"), MAY_US)
    with pytest.raises(RuleBroken, match="first comes a session's creation"):
        engine.save_events([first, created])
    with pytest.raises(RuleBroken, match="first comes a session's creation"):
        engine.event_log.append([engine.draft(first), engine.draft(created)])

    assert engine.head().position == 0
    engine.create_session("cli", session_id="s1")
    assert engine.event_log.stream_version("session:s1") == 1


# --- rules that a save upholds ---------------------------------------------------------------------


def test_a_session_is_created_once(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="s1")
    with pytest.raises(SessionExists):
        engine.create_session("cli", session_id="s1")
    with pytest.raises(SessionExists):
        engine.compress_session("s1", "sum", continuation_id="s1")

    assert engine.head().position == 1


def test_a_session_is_compressed_once(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="s1")
    engine.compress_session("s1", "sum", continuation_id="s2")
    head = engine.head()
    with pytest.raises(SessionOver, match="s2") as refused:
        engine.compress_session("s1", "again")

    assert refused.value.successor == "s2"
    assert engine.head() == head


def test_a_title_belongs_to_one_session_until_it_is_given_up(engine: SessionEngine) -> None:
    for session_id in ("s1", "s2"):
        engine.create_session("cli", session_id=session_id)
    engine.title_session("s1", "plan")
    with pytest.raises(TitleTaken, match="already in use by session s1") as refused:
        engine.title_session("s2", "plan")
    assert refused.value.holder == "s1"

    engine.title_session("s1", "other")
    engine.title_session("s2", "plan")

    assert rows(engine, "SELECT id, title FROM sessions ORDER BY id") == [("s1", "other"), ("s2", "plan")]


def test_what_changes_nothing_writes_nothing(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="s1", title="plan", key=K)
    engine.archive_session("s1")
    engine.end_session("s1", "cli_close")
    head = engine.head()
    for again in (
        engine.title_session("s1", "plan"),
        engine.archive_session("s1"),
        engine.end_session("s1", "cli_close"),
        engine.reroute(K, "s1", "repair"),
        engine.append_messages("s1", []),
    ):
        assert (again.positions, again.position) == ((), 0)

    assert engine.head() == head


def test_a_hard_end_is_final_and_beats_a_soft_one(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="s1")
    engine.end_session("s1", "cli_close")
    engine.append_message("s1", "user", "a soft end is no end")
    engine.end_session("s1", "session_reset")
    engine.end_session("s1", "cli_close")
    with pytest.raises(SessionOver):
        engine.append_message("s1", "user", "too late")
    with pytest.raises(SessionOver):
        engine.reopen_session("s1")

    assert rows(engine, "SELECT end_reason, hard_end FROM sessions") == [("session_reset", 1)]


def test_a_key_leads_only_to_a_session_that_exists(engine: SessionEngine) -> None:
    with pytest.raises(NoSuchSession):
        engine.reroute(K, "never_was", "repair")

    assert engine.route_of(K) is None


def test_messages_of_one_save_are_all_there_or_none(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="s1")
    with pytest.raises(RuleBroken):
        engine.append_messages("s1", [{"role": "user", "content": "fine"}, {"role": "user", "content": "  "}])

    assert engine.head().position == 1


def test_stream_names_bear_no_personal_text(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="s1", key=K, title="kitchen plan", chat_id="1001")
    names = [row[0] for row in engine.event_log.reader().execute("SELECT name FROM streams ORDER BY name")]

    with engine.event_log.transaction() as db:
        named = stored_name(db, title_stream(engine.identity, "kitchen plan"))
    assert names == [route_stream(engine.identity, K), "session:s1", named]
    assert not any("1001" in name or "kitchen" in name for name in names)


# --- what a decision read must not have moved ------------------------------------------------------


def test_a_rival_claimant_after_planning_is_refused(engine: SessionEngine) -> None:
    for session_id in ("s1", "s2"):
        engine.create_session("telegram", session_id=session_id)
    planned = Condition(engine.head().position, streams=("session:s1", "session:s2"))
    engine.append_message("s2", "user", "I am the one with later activity")
    head = engine.head()
    with pytest.raises(VersionConflict, match=f"event #{head.position}"):
        engine.reroute(K, "s1", "repair", condition=planned)

    assert engine.head() == head
    engine.reroute(K, "s2", "repair", condition=msgspec.structs.replace(planned, position=head.position))
    assert engine.route_of(K) == "s2"


def test_a_new_session_after_planning_is_refused_where_topics_were_read(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="s1")
    planned = Condition(engine.head().position, topics=(e.SessionCreated.topic,))
    engine.append_message("s1", "user", "of another topic")
    engine.reroute(K, "s1", "repair", condition=planned)
    engine.create_session("telegram", session_id="s2", key="other")
    with pytest.raises(VersionConflict):
        engine.reroute(K, "s2", "repair", condition=planned)

    assert engine.route_of(K) == "s1"


# --- two engines on one home -----------------------------------------------------------------------


def test_what_another_process_wrote_is_seen_by_the_next_decision(engine: SessionEngine, home: Path) -> None:
    engine.create_session("telegram", session_id="s1", key=K, title="plan")
    engine.archive_session("s1")
    with open_home(home) as other:
        other.unarchive_session("s1")
        assert engine.archive_session("s1").positions != ()  # not "archived already", as was remembered

        other.append_message("s1", "user", "moves the version")
        engine.append_message("s1", "user", "after it")
        other.append_message("s1", "user", "and again")
        engine.create_session("telegram", session_id="s2", key=K, cause="reset")  # ends s1
        with pytest.raises(SessionOver):
            other.append_message("s1", "user", "too late")

        other.compress_session("s2", "sum", continuation_id="s3")
        with pytest.raises(SessionOver, match="s3"):
            engine.append_message("s2", "user", "hi")
        assert engine.route_of(K) == other.route_of(K) == "s3"


def test_a_refusal_never_rests_on_what_was_remembered(engine: SessionEngine, home: Path) -> None:
    engine.create_session("cli", session_id="s1")
    engine.end_session("s1", "cli_close")
    with open_home(home) as other:
        other.reopen_session("s1")
        assert engine.end_session("s1", "cli_close").positions != ()


# --- events of a newer program ---------------------------------------------------------------------


def dream(log: Log, stream: str) -> None:
    """An event that this program does not know."""
    made = draft(stream, log.stream_version(stream) + 1, e.SessionPinned(), MAY_US)
    log.append([msgspec.structs.replace(made, topic="session_dreamt.1", payload=b"\x91\x01")])


def test_no_decision_is_made_on_a_stream_that_a_newer_program_wrote_into(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="s1", key=K, title="plan")
    engine.create_session("telegram", session_id="s2")
    engine.append_message("s1", "user", "remembered")
    dream(engine.event_log, "session:s1")
    dream(engine.event_log, route_stream(engine.identity, K))
    dream(engine.event_log, title_stream(engine.identity, "plan"))
    head = engine.head()
    refusals: list[Callable[[], object]] = [
        lambda: engine.append_message("s1", "user", "hi"),
        lambda: engine.end_session("s1", "cli_close"),
        lambda: engine.compress_session("s1", "sum"),
        lambda: engine.reroute(K, "s2", "repair"),
        lambda: engine.route_of(K),
        lambda: engine.create_session("telegram", key=K),
        lambda: engine.title_session("s2", "plan"),
    ]
    for refused in refusals:
        with pytest.raises(NeedsUpgrade, match=r"session_dreamt\.1") as error:
            refused()
        assert error.value.hint == "upgrade retold"

    assert engine.head() == head
    engine.append_message("s2", "user", "others go on")
    assert contents(engine, "s2") == ["others go on"]
    assert contents(engine, "s1") == ["remembered"]


# --- appending costs the same at message 10 and at message 20,000 ----------------------------------


def test_no_message_is_read_to_append_one(home: Path) -> None:
    with open_home(home, synchronous="NORMAL") as engine:
        engine.create_session("cli", session_id="s1", title="plan")
        engine.event_log.append(
            [
                draft("session:s1", version, e.MessageAppended("user", f"message {version}"), MAY_US)
                for version in range(3, 20_003)
            ]
        )
        engine.projector.catch_up()
    with open_home(home) as engine:
        read: list[tuple[str, apsw.Bindings | None]] = []
        stepped = 0

        def count() -> bool:
            nonlocal stepped
            stepped += 1
            return False

        def note(_: apsw.Cursor, sql: str, bindings: apsw.Bindings | None) -> bool:
            read.append((sql, bindings))
            return True

        reader = engine.event_log.reader()
        reader.exec_trace = note
        reader.set_progress_handler(count, 100)
        state = engine.session("s1")
        reader.set_progress_handler(None)
        reader.exec_trace = None
        plans = [
            str(row[3])
            for sql, bindings in read
            for row in reader.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)
            if "events" in sql
        ]

        assert state.version == 20_002
        assert state.title == "plan"
        assert stepped < 10  # of 100 steps each; to read 20,000 rows takes over 1,000
        assert not any(plan.startswith("SCAN") for plan in plans)
        assert any("events_without_messages" in plan for plan in plans)
        assert engine.append_message("s1", "user", "one more").position == 20_004


# --- a projection is never waited for --------------------------------------------------------------


def test_a_save_stands_whatever_becomes_of_the_fold(
    engine: SessionEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("the disk of the projections is gone")

    engine.create_session("cli", session_id="s1")
    monkeypatch.setattr(engine.projector, "catch_up", broken)
    saved = engine.append_message("s1", "user", "kept")
    monkeypatch.undo()

    assert one(engine.event_log.reader(), "SELECT max(position) FROM events") == saved.position
    assert contents(engine, "s1") == ["kept"]
