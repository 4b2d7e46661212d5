"""Over random stores: repair adopts nothing its report refused, twice is once, and undo puts all back."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from retold.domain import events as e
from retold.domain.errors import RepairRefused, RetoldError
from retold.domain.repair import repair_records
from retold.infrastructure.engine import SessionEngine
from retold.projections.world import world
from retold.tests.histories import HOUR_US, MINUTE_US, T0_US
from retold.tests.infrastructure.standing import standing

KEYS = ("agent:main:telegram:dm:1", "agent:main:telegram:dm:2")
TITLES = ("plan", "boats")
SESSIONS = tuple(f"s{number}" for number in range(6))
REASONS = ("agent_close", "session_reset", "cli_close")

sessions = st.sampled_from(SESSIONS)
keys = st.sampled_from(KEYS)
made = st.fixed_dictionaries(
    {
        "key": st.sampled_from((*KEYS, None, None)),
        "source": st.sampled_from(("telegram", "telegram", "telegram", "slack")),
        "parent": st.sampled_from((None, None, *SESSIONS)),
        "parent_kind": st.sampled_from(("continuation", "child", "branch", "delegate", "reset")),
        "user_id": st.sampled_from((None, "7", "8")),
        "began": st.integers(0, 60),
        "minutes": st.lists(st.integers(0, 90), min_size=0, max_size=3),
        "end": st.sampled_from((None, None, None, *REASONS)),
    }
)
stores = st.lists(made, min_size=4, max_size=len(SESSIONS))
led = st.lists(st.tuples(keys, sessions), max_size=3)
change = st.one_of(
    st.tuples(st.just("title"), sessions, st.sampled_from(TITLES)),
    st.tuples(st.just("archive"), sessions),
    st.tuples(st.just("pin"), sessions),
    st.tuples(st.just("end"), sessions, st.sampled_from(REASONS)),
    st.tuples(st.just("reopen"), sessions),
    st.tuples(st.just("lead"), keys, sessions),
    st.tuples(st.just("resume"), keys, sessions),
    st.tuples(st.just("close"), keys),
    st.tuples(st.just("reset"), keys),
    st.tuples(st.just("identity"), sessions),
    st.tuples(st.just("rewind"), sessions),
    st.tuples(st.just("delete"), sessions),
)


@contextlib.contextmanager
def store(rows: list[dict[str, Any]], routes: list[tuple[str, str]]) -> Iterator[SessionEngine]:
    """A home as an older store may have left it: nothing of it was decided here."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SessionEngine(Path(folder) / "home", synchronous="NORMAL") as engine,
    ):
        for name, row in zip(SESSIONS, rows, strict=False):
            began_us = T0_US + row["began"] * MINUTE_US
            parent = row["parent"] if row["parent"] not in (None, name) else None
            created = e.SessionCreated(
                row["source"],
                row["key"],
                user_id=row["user_id"],
                parent_session_id=parent,
                parent_kind=row["parent_kind"] if parent else None,
            )
            engine.event_log.append([engine.draft(e.Event(f"session:{name}", 1, created, began_us))])
            for minute in sorted(row["minutes"]):
                engine.append_message(name, "user", f"at {minute}", at_us=began_us + minute * MINUTE_US)
            if row["end"] is not None:
                engine.end_session(name, row["end"], at_us=began_us + 2 * HOUR_US)
        for key, session_id in routes:
            if engine.exists(session_id):
                led = engine.route(key)
                moved = led.lead_to(session_id, "recovery")
                if moved is not None:
                    engine.save_events([engine.rerouted(led, moved, T0_US + 5 * HOUR_US)])
        yield engine


def do(engine: SessionEngine, what: tuple[Any, ...]) -> tuple[int, ...]:
    """One change; the positions of its save, none where it was refused or changed nothing."""
    name, first, *rest = what
    commands: dict[str, Any] = {
        "title": engine.title_session,
        "archive": engine.archive_session,
        "pin": engine.pin_session,
        "end": engine.end_session,
        "reopen": engine.reopen_session,
        "lead": engine.lead_key,
        "resume": lambda key, session_id: engine.reroute(key, session_id, "resume"),
        "close": engine.close_key,
        "reset": engine.reset,
        "continuation": engine.choose_continuation,
        "identity": engine.restore_identity,
        "repair": lambda session_id, choose: engine.repair(session_id, choose=choose),
        "rewind": engine.undo_turns,
        "delete": engine.delete_session,
    }
    try:
        positions: tuple[int, ...] = commands[name](first, *rest).positions
    except RetoldError:
        return ()
    return positions


@given(stores, led)
@settings(max_examples=40)
def test_repair_adopts_what_was_reported_and_nothing_else_and_once(
    rows: list[dict[str, Any]], routes: list[tuple[str, str]]
) -> None:
    with store(rows, routes) as engine:
        for name in [each for each in SESSIONS if engine.exists(each)]:
            engine.projector.catch_up()
            records = {each.orphan_id: each for each in repair_records(world(engine.state.reader()))}
            record = records.get(name)
            head = engine.head()
            try:
                done = engine.repair(name)
            except RepairRefused:
                assert engine.head() == head
                continue
            if not done.positions:
                assert engine.head() == head
                continue
            assert record is not None
            assert record.adoptable
            assert (done.donor, done.key) == (record.donor_id, record.session_key)
            assert engine.session(name).key == record.session_key
            head = engine.head()
            assert engine.repair(name).positions == ()
            assert engine.head() == head


@given(stores, led, st.lists(change, min_size=4, max_size=8))
@settings(max_examples=40)
def test_each_save_is_undone_row_for_row_and_so_is_its_undo(
    rows: list[dict[str, Any]], routes: list[tuple[str, str]], changes: list[tuple[str, ...]]
) -> None:
    with store(rows, routes) as engine:
        for what in changes:
            back_and_forth(engine, what)


@given(stores, led, sessions)
@settings(max_examples=40)
def test_each_repair_that_there_is_is_undone_row_for_row(
    rows: list[dict[str, Any]], routes: list[tuple[str, str]], chosen: str
) -> None:
    with store(rows, routes) as engine:
        for name in [each for each in SESSIONS if engine.exists(each)]:
            for what in (("repair", name, None), ("repair", name, chosen), ("continuation", name)):
                undone = back_and_forth(engine, what)
                if undone is not None:
                    engine.undo(undone)


def back_and_forth(engine: SessionEngine, what: tuple[Any, ...]) -> int | None:
    """Do it, undo it, and undo that; the position of the last undo, None where nothing was done."""
    before = standing(engine, TITLES)
    positions = do(engine, what)
    after = standing(engine, TITLES)
    if not positions:
        assert after == before
        return None
    undone = engine.undo(positions[0])
    assert standing(engine, TITLES) == before, what
    again = engine.undo(undone.positions[0])
    assert standing(engine, TITLES) == after, what
    return again.positions[0]
