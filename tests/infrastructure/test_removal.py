"""A deleted session is gone from every view at once, comes back as it was, and is erased in its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain import events as e
from retold.domain.errors import (
    BadUsage,
    ChangedMeanwhile,
    DeletedSession,
    NoSuchSession,
    RuleBroken,
    TurnRunning,
)
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.verify import verify
from retold.projections.find import find_session
from retold.projections.listing import list_sessions
from retold.projections.search_query import parse
from retold.projections.sessions import counts
from retold.tests.infrastructure.filled import content, told_from_nothing
from retold.tests.infrastructure.test_erasing import SECRET, traces

KEY = "agent:main:telegram:dm:1001"
T0_US = 1_778_000_000_000_000
DAY_US = 86_400_000_000


class Clock:
    """Time that only moves when it is told to."""

    def __init__(self) -> None:
        self.now_us = T0_US

    def __call__(self) -> int:
        return self.now_us


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(home: Path, clock: Clock) -> Iterator[SessionEngine]:
    with SessionEngine(home, clock=clock) as opened:
        opened.create_session("telegram", session_id="s1", key=KEY, title="boat repair", user_id="501")
        for number in range(70):  # past what the index may trail
            opened.append_message("s1", "user", f"lantern number {number}")
        yield opened


def ids(engine: SessionEngine) -> list[str]:
    engine.projector.catch_up()
    return sorted(each.id for each in list_sessions(engine.state.reader(), everything=True).rows)


def hits(engine: SessionEngine, query: str) -> int:
    assert engine.projector.settle(wait_ms=10_000)
    sql = "SELECT rowid FROM search WHERE search MATCH ?"
    return len(engine.state.reader().execute(sql, (parse(query).match,)).fetchall())


def rows(engine: SessionEngine) -> dict[str, Any]:
    """Every row that a view shows, without how many events each session has."""
    found = content(engine.projector)
    db = engine.state.reader()
    columns = [row[1] for row in db.execute("PRAGMA table_info(sessions)") if row[1] != "version"]
    found["sessions"] = db.execute(f"SELECT {', '.join(columns)} FROM sessions ORDER BY id").fetchall()
    return {name: found[name] for name in ("sessions", "messages", "search", "session_model_usage")}


def tell_again(engine: SessionEngine) -> None:
    told = rebuild(engine.projector, list(engine.projector.projections), compare=True)

    assert [each.differences for each in told] == [()] * len(told)
    assert all(each.compared for each in told)


def test_a16_what_was_deleted_is_in_no_list_search_or_count(engine: SessionEngine) -> None:
    engine.delete_session("s1", "no more of it")
    assert engine.route_of(KEY) is None

    engine.create_session("telegram", session_id="s2", key=KEY)
    engine.append_message("s2", "user", "good morning")
    tell_again(engine)

    assert engine.route_of(KEY) == "s2"
    assert ids(engine) == ["s2"]
    assert hits(engine, "lantern") == 0
    assert [(each.source, each.messages) for each in counts(engine.state.reader())] == [("telegram", 1)]
    with pytest.raises(NoSuchSession):
        find_session(engine.state.reader(), "s1")


def test_f14_who_deleted_what_when_and_why_is_on_record(engine: SessionEngine, clock: Clock) -> None:
    clock.now_us += DAY_US
    done = engine.delete_session("s1", "no more of it")
    event = engine.event_log.read(done.positions[0] - 1, limit=1)[0]
    row = engine.state.reader().execute("SELECT * FROM deletions").fetchall()

    assert event.payload == e.SessionDeleted("no more of it", T0_US + 8 * DAY_US, messages=70)
    assert event.actor.startswith("cli:")
    assert row == [
        ("s1", event.position, clock.now_us, event.actor, "no more of it", T0_US + 8 * DAY_US, 70, None, None)
    ]


def test_f14_what_is_undeleted_is_back_as_it_was_row_for_row(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="sub", parent="s1", parent_kind="delegate", title="errand")
    engine.append_message("sub", "assistant", "private talk")
    before = rows(engine)
    gone = engine.delete_session("s1")
    assert gone.sessions == ("s1", "sub")
    assert ids(engine) == []

    back = engine.undelete_session("s1")

    assert (back.sessions, back.keys, back.unclaimed, back.moved_on) == (("s1", "sub"), (KEY,), (), ())
    assert rows(engine) == before
    assert engine.route_of(KEY) == "s1"
    assert engine.claim("boat repair").holder == "s1"
    engine.append_message("s1", "user", "and on it goes")
    assert hits(engine, "lantern") == 70
    tell_again(engine)
    assert content(engine.projector) == told_from_nothing(engine.event_log)


def test_a_title_and_a_chat_that_moved_on_stay_where_they_are(engine: SessionEngine) -> None:
    engine.delete_session("s1")
    engine.create_session("telegram", session_id="s2", key=KEY, title="boat repair")

    back = engine.undelete_session("s1")

    assert (back.unclaimed, back.moved_on, back.keys) == (("boat repair",), (KEY,), ())
    assert engine.route_of(KEY) == "s2"
    assert engine.claim("boat repair").holder == "s2"
    titles = engine.state.reader().execute("SELECT id, title, title_claimed FROM sessions ORDER BY id")
    assert titles.fetchall() == [("s1", "boat repair", 0), ("s2", "boat repair", 1)]


def test_delegates_go_along_and_branches_and_continuations_lose_nothing(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="d1", parent="s1", parent_kind="delegate")
    engine.create_session("cli", session_id="d2", parent="d1", parent_kind="delegate")
    engine.create_session("cli", session_id="b1", parent="s1", parent_kind="branch")
    engine.append_message("b1", "user", "another way")
    goes_on = engine.compress_session("s1", "so far").session_id

    done = engine.delete_session("s1")

    assert done.sessions == ("s1", "d1", "d2")
    assert ids(engine) == sorted(["b1", goes_on])
    assert engine.state.reader().execute(
        "SELECT parent_session_id, parent_kind FROM sessions WHERE id = 'b1'"
    ).fetchall() == [("s1", "branch")]
    engine.append_message(goes_on, "user", "and on it goes")
    assert engine.undelete_session("s1").sessions == ("s1", "d1", "d2")


def test_delegates_that_run_in_a_circle_are_deleted_once(engine: SessionEngine) -> None:
    version = 1
    for child, parent in (("c1", "c2"), ("c2", "c1")):
        created = e.SessionCreated("cli", parent_session_id=parent, parent_kind="delegate")
        engine.save_events([e.Event(f"session:{child}", version, created, T0_US)])

    assert engine.delete_session("c1").sessions == ("c1", "c2")
    assert ids(engine) == ["s1"]


def test_every_command_on_a_deleted_session_says_how_to_bring_it_back(engine: SessionEngine) -> None:
    engine.delete_session("s1")
    commands: tuple[Callable[[], object], ...] = (
        lambda: engine.append_message("s1", "user", "hello"),
        lambda: engine.archive_session("s1"),
        lambda: engine.title_session("s1", "other"),
        lambda: engine.compress_session("s1", "so far"),
        lambda: engine.delete_session("s1"),
    )
    for refused in commands:
        with pytest.raises(DeletedSession, match="s1 was deleted") as error:
            refused()
        assert "retold sessions undelete s1" in error.value.hint


def test_what_is_not_deleted_cannot_be_undeleted(engine: SessionEngine) -> None:
    head = engine.head()
    with pytest.raises(RuleBroken, match="s1 is not deleted"):
        engine.undelete_session("s1")
    with pytest.raises(NoSuchSession):
        engine.undelete_session("nobody")

    assert engine.head() == head


def test_a_running_turn_keeps_its_session(engine: SessionEngine) -> None:
    version = engine.session("s1").version
    started = e.TurnStarted("t1", T0_US + 60_000_000)
    engine.save_events([e.Event("session:s1", version + 1, started, T0_US)])
    with pytest.raises(TurnRunning, match="t1"):
        engine.delete_session("s1")

    assert ids(engine) == ["s1"]


def test_what_waits_in_a_queue_is_cleared_in_the_same_save(engine: SessionEngine) -> None:
    version = engine.session("s1").version
    engine.save_events([e.Event("session:s1", version + 1, e.TurnQueued("t1", "later", "slot"), T0_US)])
    done = engine.delete_session("s1")
    save = [engine.event_log.read(each - 1, limit=1)[0] for each in done.positions]

    assert [type(each.payload) for each in save] == [
        e.QueueCleared,
        e.SessionDeleted,
        e.TitleReleased,
        e.RouteClosed,
    ]
    assert {each.save for each in save} == {done.positions[0]}
    assert save[-1].payload == e.RouteClosed(KEY, "s1", "delete")


def test_messages_that_reach_a_deleted_session_are_back_with_it(engine: SessionEngine) -> None:
    engine.delete_session("s1")
    version = engine.event_log.stream_version("session:s1")
    late = e.MessageAppended("user", "a late parcel")
    position = engine.save_events([e.Event("session:s1", version + 1, late, T0_US)])[0]
    edit = e.MessageEdited(position, {"content": "a late letter"})
    engine.save_events([e.Event("session:s1", version + 2, edit, T0_US)])
    assert hits(engine, "late") == 0
    tell_again(engine)

    engine.undelete_session("s1")

    assert (hits(engine, "letter"), hits(engine, "parcel")) == (1, 0)
    assert content(engine.projector) == told_from_nothing(engine.event_log)


def test_the_next_writer_erases_what_was_deleted_a_week_ago(
    engine: SessionEngine, home: Path, clock: Clock
) -> None:
    engine.create_session("cli", session_id="s2", title=f"on {SECRET}", display_name=SECRET)
    engine.append_message("s2", "user", f"the word is {SECRET}")
    engine.create_session("cli", session_id="s3")
    engine.delete_session("s2")
    clock.now_us += 7 * DAY_US - 1
    engine.append_message("s3", "user", "not yet")
    assert traces(home)

    clock.now_us += 1
    engine.append_message("s3", "user", "now")

    assert traces(home) == {}
    assert ids(engine) == ["s1", "s3"]
    with pytest.raises(NoSuchSession, match="was erased"):
        engine.undelete_session("s2")
    assert verify(home).exit_code == 0
    tell_again(engine)
    assert traces(home) == {}


@pytest.mark.parametrize("days", [-8, -1, 8])
def test_the_time_to_take_a_deletion_back_counts_from_when_it_was_recorded(
    engine: SessionEngine, clock: Clock, days: int
) -> None:
    engine.create_session("cli", session_id="s2")
    deleted = engine.delete_session("s1", at_us=T0_US + days * DAY_US)
    assert deleted.erase_after_us == T0_US + (max(days, 0) + 7) * DAY_US

    clock.now_us += 7 * DAY_US - 1
    engine.append_message("s2", "user", "another save")

    assert engine.undelete_session("s1").sessions == ("s1",)


def test_a_session_that_an_undo_took_away_is_kept_as_long(engine: SessionEngine, clock: Clock) -> None:
    made = engine.create_session("cli", session_id="s2", title="plan")
    engine.undo(made.position, at_us=T0_US - 8 * DAY_US)
    clock.now_us += 7 * DAY_US - 1
    engine.append_message("s1", "user", "another save")

    assert engine.undelete_session("s2").sessions == ("s2",)


def test_a_time_to_come_that_a_caller_gives_erases_nothing(engine: SessionEngine) -> None:
    engine.delete_session("s1")

    assert engine.maintain(at_us=T0_US + 8 * DAY_US).erased == ()
    assert engine.erase_due(T0_US + 8 * DAY_US).sessions == ()
    assert engine.undelete_session("s1").sessions == ("s1",)


def test_now_erases_at_once_all_that_quotes_it(engine: SessionEngine, home: Path) -> None:
    engine.create_session(
        "telegram", session_id="s2", key="agent:main:telegram:dm:7", title=SECRET, origin_json=f'["{SECRET}"]'
    )
    engine.append_message("s2", "user", f"the word is {SECRET}")
    engine.title_session("s2", f"{SECRET} again")
    done = engine.delete_session("s2", now=True)

    assert (done.erased, done.pending) == (True, ())
    assert traces(home) == {}
    assert engine.state.reader().execute(
        "SELECT session_id, erased_position IS NOT NULL FROM deletions"
    ).fetchall() == [("s2", 1)]
    assert engine.create_session("cli", session_id="s4", title=SECRET).position
    assert verify(home).exit_code == 0


def test_a_prompt_that_another_session_has_outlives_the_one_that_brought_it(
    engine: SessionEngine, home: Path
) -> None:
    for session_id, text in (("s1", "You are helpful."), ("s2", None)):
        if session_id == "s2":
            engine.create_session("cli", session_id="s2")
        version = engine.session(session_id).version
        prompt = e.PromptChanged("ab" * 16, text=text)
        engine.save_events([e.Event(f"session:{session_id}", version + 1, prompt, T0_US)])
    engine.delete_session("s1", now=True)
    tell_again(engine)

    prompts = engine.state.reader().execute("SELECT * FROM system_prompts").fetchall()
    assert prompts == [("ab" * 16, "You are helpful.")]
    engine.delete_session("s2", now=True)
    assert content(engine.projector) == told_from_nothing(engine.event_log)
    assert engine.state.reader().execute("SELECT * FROM system_prompts").fetchall() == []
    assert b"You are helpful." not in (home / "events.db").read_bytes()


def test_a_deleted_session_can_still_be_erased_at_once(engine: SessionEngine) -> None:
    engine.delete_session("s1")
    done = engine.delete_session("s1", now=True)

    assert (done.sessions, done.erased) == (("s1",), True)
    with pytest.raises(NoSuchSession):
        engine.delete_session("s1", now=True)


def test_what_waited_in_a_deleted_session_and_its_delegates_waits_again_once_it_is_back(
    engine: SessionEngine,
) -> None:
    engine.create_session("cli", session_id="d1", parent="s1", parent_kind="delegate")
    for name in ("s1", "d1"):
        for text in ("one", "two"):
            engine.enqueue(name, text, lane="overflow", about={"id": text})
    waited = [engine.queue_of(name).waiting for name in ("s1", "d1")]
    engine.delete_session("s1")
    gone = [engine.session(name, deleted=True).turns.waiting for name in ("s1", "d1")]
    engine.undelete_session("s1")
    back = [engine.queue_of(name).waiting for name in ("s1", "d1")]
    engine.delete_session("s1")
    engine.undelete_session("s1")

    assert gone == [(), ()]
    assert back == waited
    assert [engine.queue_of(name).waiting for name in ("s1", "d1")] == waited
    tell_again(engine)


@pytest.mark.parametrize("again", [False, True])
def test_a_continuation_comes_back_as_a_branch_of_what_went_on_without_it(
    engine: SessionEngine, again: bool
) -> None:
    engine.compress_session("s1", "summed up", continuation_id="s2")
    engine.delete_session("s2")
    engine.resume(KEY, "s1")
    if again:
        engine.compress_session("s1", "summed up again", continuation_id="s3")
    engine.undelete_session("s2")
    goes_on = "s3" if again else "s1"

    assert engine.session("s2").parent_kind == "branch"
    assert engine.resume(KEY, "s1").session_id == goes_on
    assert engine.route_of(KEY) == goes_on
    assert content(engine.projector) == told_from_nothing(engine.event_log)


def test_a_continuation_that_nothing_took_the_place_of_comes_back_as_one(engine: SessionEngine) -> None:
    engine.compress_session("s1", "summed up", continuation_id="s2")
    engine.delete_session("s2")
    engine.undelete_session("s2")

    assert engine.session("s2").parent_kind == "continuation"
    assert engine.resume(KEY, "s1").session_id == "s2"


def test_a_conversation_is_deleted_as_it_was_seen_or_not_at_all(engine: SessionEngine) -> None:
    for each in ("one", "two"):
        engine.create_session("cli", session_id=each)
        engine.append_message(each, "user", "hello")
    seen = engine.head().position
    engine.title_session("two", "named since")

    with pytest.raises(ChangedMeanwhile, match="session two changed meanwhile"):
        engine.delete_conversation(["one", "two"], as_of=seen)
    for asked, as_of in (([], seen), (["one"], -1), (["one"], 10_000)):
        with pytest.raises(BadUsage):
            engine.delete_conversation(asked, as_of=as_of)
    assert not engine.session("one").deleted
    seen = engine.head().position
    engine.create_session("subagent", session_id="new", parent="one", parent_kind="delegate")
    with pytest.raises(ChangedMeanwhile, match=r"session (one|new) changed meanwhile"):
        engine.delete_conversation(["one"], as_of=seen, along=[])
    done = engine.delete_conversation(["one", "two"], as_of=engine.head().position)

    assert (done.sessions, done.named) == (("two", "one", "new"), ("one", "two"))
