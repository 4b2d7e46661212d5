"""SessionEngine: what a command leaves in the log, what it refuses, and what it does not read for that.

Over 400 lines because it holds what all commands have in common; each part has its own file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from retold.domain import events as e
from retold.domain.audit import audit
from retold.domain.errors import (
    BadUsage,
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
from retold.projections.search_query import parse
from retold.projections.world import world
from retold.tests.histories import draft

K = "agent:main:telegram:dm:1001"
DAY_US = 86_400_000_000
MAY_US = 1_777_593_600_000_000


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        yield opened


def rows(engine: SessionEngine, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    engine.projector.catch_up()
    assert engine.projector.settle(wait_ms=10_000)
    return [tuple(row) for row in engine.state.reader().execute(sql, values)]


def contents(engine: SessionEngine, session_id: str) -> list[str]:
    found = rows(engine, "SELECT content FROM messages WHERE session_id = ? ORDER BY id", session_id)
    return [row[0] for row in found]


def payloads(engine: SessionEngine, after: int = 0) -> list[Any]:
    return [event.payload for event in engine.event_log.read(after)]


# --- A2: identity is born with the session ---------------------------------------------------------


@pytest.mark.parametrize("old_starts_on_day", [1, 4], ids=["older", "started later but idle"])
def test_a2_the_key_leads_to_whom_it_was_last_led_to_also_after_the_index_is_lost(
    engine: SessionEngine, old_starts_on_day: int
) -> None:
    identity: dict[str, Any] = {
        "chat_id": "1001",
        "chat_type": "dm",
        "user_id": "501",
        "origin_json": '{"platform":"telegram"}',
    }
    starts = {"s_old": old_starts_on_day, "s_new": 2}
    for session_id, last_day in (("s_old", old_starts_on_day), ("s_new", 5)):
        at_us = MAY_US + starts[session_id] * DAY_US
        engine.create_session(
            "telegram", session_id=session_id, key=K, cause="resume", at_us=at_us, **identity
        )
        engine.append_message(session_id, "user", "hello", at_us=MAY_US + last_day * DAY_US)
    before = rows(engine, "SELECT * FROM routes")

    with engine.projector.transaction() as db:
        db.execute("DELETE FROM routes")
    rebuild(engine.projector, list(engine.projector.projections), compare=False)

    assert engine.route_of(K) == "s_new"
    assert rows(engine, "SELECT * FROM routes") == before
    assert rows(engine, "SELECT key, session_id FROM routes") == [(K, "s_new")]
    assert rows(engine, "SELECT DISTINCT session_key, chat_id, user_id, origin_json FROM sessions") == [
        (K, "1001", "501", '{"platform":"telegram"}')
    ]
    assert rows(engine, "SELECT id FROM sessions ORDER BY last_active_us DESC LIMIT 1") == [("s_new",)]


def test_a2_identity_is_in_the_event_that_creates_the_session(engine: SessionEngine) -> None:
    engine.create_session(
        "telegram", session_id="s1", key=K, chat_id="1001", thread_id="7", display_name="Åsa"
    )

    assert payloads(engine)[0] == e.SessionCreated(
        "telegram", session_key=K, chat_id="1001", thread_id="7", display_name="Åsa"
    )


def test_a_continuation_inherits_the_whole_identity_and_the_key(engine: SessionEngine) -> None:
    fields: dict[str, Any] = {
        each.name: f"the {each.name}"
        for each in msgspec.structs.fields(e.SessionCreated)
        if each.name.startswith(("chat", "thread", "user", "display", "origin", "cwd", "git", "profile"))
    }
    engine.create_session("telegram", session_id="s1", key=K, title="plan", model="m-1", **fields)
    child = engine.compress_session("s1", "what was said", continuation_id="s2")

    assert engine.session("s2") == msgspec.structs.replace(
        engine.session("s1"),
        id="s2",
        title="plan #2",
        titled_by="lineage",
        version=3,
        end_reason=None,
        successor=None,
        parent_id="s1",
        parent_kind="continuation",
    )
    assert engine.route_of(K) == "s2"
    assert len({event.save for event in engine.event_log.read(child.positions[0] - 1)}) == 1


def test_a_continuation_does_not_take_a_key_that_leads_elsewhere(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.create_session("telegram", session_id="s2", key=K, cause="resume")
    engine.compress_session("s1", "what was said")

    assert engine.route_of(K) == "s2"


@pytest.mark.parametrize(
    ("cause", "reason"),
    [("reset", "session_reset"), ("idle", "session_reset"), ("daily", "session_reset"), ("resume", None)],
)
def test_a_reset_ends_the_session_before_hard_in_the_same_save(
    engine: SessionEngine, cause: e.Cause, reason: str | None
) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.create_session("telegram", session_id="s2", key=K, cause=cause)

    assert rows(engine, "SELECT end_reason, hard_end FROM sessions WHERE id = 's1'") == [
        (reason, int(reason is not None))
    ]
    assert engine.session("s1").hard_end == (reason is not None)


# --- B9: lone surrogates ---------------------------------------------------------------------------


def test_b9_a_lone_surrogate_is_replaced_and_saving_goes_on(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="s1")
    engine.append_message(
        "s1", "assistant", "a\ud800b", tool_calls='[{"x":"\udfff"}]', tool_name="t\ud800", reasoning="r\ud800"
    )
    engine.append_message("s1", "user", "ok")
    odd, plain = (each for each in payloads(engine) if isinstance(each, e.MessageAppended))

    assert (odd.content, odd.tool_calls, odd.tool_name, odd.reasoning) == (
        "a\ufffdb",
        '[{"x":"\ufffd"}]',
        "t\ufffd",
        "r\ufffd",
    )
    assert (odd.scrubbed, plain.scrubbed) == (True, False)
    assert contents(engine, "s1") == ["a\ufffdb", "ok"]
    assert len(rows(engine, "SELECT rowid FROM search WHERE search MATCH ?", parse("ok").match)) == 1


def test_b9_no_text_of_any_command_can_stop_saving(engine: SessionEngine) -> None:
    engine.create_session("te\ud800", session_id="s1", key="K\ud800", title="pl\ud800an", chat_id="\udc00")
    engine.create_session("cli", session_id="s2", key="K\ud800", cause="resume", parent="\ud800")
    engine.append_message("s1", "user", "x", idempotency_key="\ud800", platform_message_id="\ud800")
    engine.append_message("s1", "user", "x", idempotency_key="\ud800", platform_message_id="\ud800")
    engine.title_session("s1", "an\udfffother")
    engine.compress_session("s1", "sum\ud800", continuation_id="s3")
    engine.reroute(
        "K\ud800", "s1", "repair", evidence=["\ud800"], candidates=[e.RouteCandidate("s2", "\ud800")]
    )
    engine.end_session("s2", "\ud800")

    assert engine.route_of("K\ud800") == "s1"
    assert rows(engine, "SELECT title FROM sessions ORDER BY id") == [
        ("an\ufffdother",),
        (None,),
        ("an\ufffdother #2",),
    ]
    assert contents(engine, "s1") == ["x"]


def test_b9_an_id_that_is_no_text_is_refused(engine: SessionEngine) -> None:
    with pytest.raises(BadUsage, match="cannot be a session's id"):
        engine.create_session("cli", session_id="s\ud800")
    with pytest.raises(NoSuchSession):
        engine.append_message("s\ud800", "user", "hi")


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
    engine.create_session("cli", session_id="s1", parent="never_was", parent_kind="continuation")
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


# --- a resume is a person's own choice --------------------------------------------------------------


@pytest.mark.parametrize("reason", ["session_reset", "session_switch", "idle", "agent_close"])
def test_a_resume_opens_the_session_again_in_the_same_save(engine: SessionEngine, reason: str) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.append_message("s1", "user", "first")
    engine.create_session("telegram", session_id="s2", key=K)
    engine.end_session("s1", reason)
    saved = engine.reroute(K, "s1", "resume")

    opened, led = (event for event in engine.event_log.read(saved.positions[0] - 1))
    assert [type(each.payload) for each in (opened, led)] == [e.SessionReopened, e.SessionRerouted]
    assert opened.save == led.save
    assert engine.append_message("s1", "user", "again").position
    assert rows(engine, "SELECT ended_at, end_reason, hard_end FROM sessions WHERE id = 's1'") == [
        (None, None, 0)
    ]
    found = audit(world(engine.state.reader()))
    assert "routed_to_ended" not in [each.kind for each in found]


def test_a_resume_of_where_the_key_leads_opens_it_too(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.end_session("s1", "session_reset")

    assert len(engine.reroute(K, "s1", "resume").positions) == 1
    assert engine.reroute(K, "s1", "resume").positions == ()


@pytest.mark.parametrize("cause", ["recovery", "repair", "handoff"])
def test_nothing_but_a_resume_opens_a_session_again(engine: SessionEngine, cause: e.Cause) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.create_session("telegram", session_id="s2", key=K, cause="reset")
    engine.reroute(K, "s1", cause)

    with pytest.raises(SessionOver):
        engine.append_message("s1", "user", "again")


def test_a_resume_leaves_a_compressed_session_to_its_continuation(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="s1", key=K)
    engine.append_message("s1", "user", "first")
    engine.compress_session("s1", "so far", continuation_id="s2")

    assert len(engine.reroute(K, "s1", "resume").positions) == 1
    with pytest.raises(SessionOver, match="s2"):
        engine.append_message("s1", "user", "again")


# --- what is no text --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [(7, "may be a str, a list, a dict or None"), (b"bytes", "holds a file's bytes"), ([{1: 2}], "no text")],
)
def test_content_that_is_none_is_refused_with_what_it_may_be(
    engine: SessionEngine, content: Any, why: str
) -> None:
    engine.create_session("cli", session_id="s1")
    with pytest.raises(BadUsage, match=f"content .*{why}"):
        engine.append_message("s1", "user", content)

    assert contents(engine, "s1") == []


def test_no_other_text_may_be_anything_else(engine: SessionEngine) -> None:
    odd: Any = 7
    with pytest.raises(BadUsage, match="source may be a str"):
        engine.create_session(odd)
    engine.create_session("cli", session_id="s1")
    with pytest.raises(BadUsage, match="role may be a str"):
        engine.append_message("s1", odd, "text")
    with pytest.raises(BadUsage, match="tool_calls may be a str"):
        engine.append_message("s1", "assistant", None, tool_calls=7)
