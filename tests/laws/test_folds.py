"""The one law of every projection: however a log is folded, the same rows and the same hits come of it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from retold.domain import events as e
from retold.infrastructure import projector as projecting
from retold.infrastructure.envelope import recorded
from retold.infrastructure.history import state_at
from retold.infrastructure.log import Log
from retold.infrastructure.projector import PROJECTIONS, Projector
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.state_file import StateFile
from retold.infrastructure.when import Point
from retold.projections import search_index
from retold.projections.base import Connection
from retold.projections.search_query import parse
from retold.tests.laws.payloads import texts
from retold.tests.laws.stories import Step, Story, step

# Found by hypothesis, or thought of: a message named twice, bytes and a number for text, text for a number.
ONE_MESSAGE: list[tuple[Step, bool]] = [
    ((Story.say, ("s1", e.MessageAppended("user", "boat"), 0, True)), False)
]
TWICE: tuple[Step, bool] = ((Story.touch, ("s1", e.MessagesRewound, [0, 0], (), False)), False)
BYTES: tuple[Step, bool] = (
    (Story.touch, ("s1", e.MessageEdited, [0], ({"tool_calls": b"\xb5"}, None, {}), False)),
    True,
)
NUMBER: tuple[Step, bool] = (
    (Story.touch, ("s1", e.MessageEdited, [0], ({"content": 5, "role": None}, None, {}), True)),
    True,
)
OTHER: tuple[Step, bool] = (
    (Story.touch, ("s1", e.MessageEdited, [0], ({"content": "emoji"}, None, {}), False)),
    False,
)
ERASED: tuple[Step, bool] = ((Story.erase, ([0],)), False)
COUNTED = (
    e.UsageRecorded("absolute", columns={"input_tokens": "12"}),
    e.UsageRecorded("delta", input_tokens=5),
)

Rows = dict[str, list[tuple[Any, ...]]]
QUERIES = ("boat", "dry OR café", "厨房", "カ", "weather", '"boat dry"', "emoji", "nul inside", "structured")


def rows_of(db: Connection) -> Rows:
    """Every row of every table of every projection, with the type of each value."""
    return {
        table: [tuple((type(value).__name__, value) for value in row) for row in db.execute(sql.format(p=""))]
        for projection in PROJECTIONS
        for table, sql in projection().ordered().items()
    }


def differing(rows: Rows, others: Rows) -> list[tuple[str, Any, Any]]:
    """What only one of two foldings holds, table by table."""
    return [
        (
            table,
            [row for row in rows[table] if row not in others[table]],
            [row for row in others[table] if row not in rows[table]],
        )
        for table in rows
        if rows[table] != others[table]
    ]


def hits_of(db: Connection, queries: list[str]) -> dict[str, list[int]]:
    """The messages that the search index finds for each query."""
    hits = {}
    for query in queries:
        match = parse(query).match
        if match is not None:
            found = db.execute("SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid", (match,))
            hits[query] = [row[0] for row in found]
    return hits


@contextlib.contextmanager
def folding(log: Log, home: Path) -> Iterator[Projector]:
    """Projections of `log` in a home of their own."""
    home.mkdir()
    state = StateFile(home)
    try:
        yield Projector(log, state)
    finally:
        state.close()


def settled(projector: Projector) -> Connection:
    """The projections of the whole log, none of them set aside, the index caught up."""
    lag = projector.catch_up()
    assert projector.settle(wait_ms=10_000)
    db = projector.state.reader()

    assert (lag.events, lag.detached) == (0, {}), lag.detached
    assert db.execute("SELECT stale FROM search_state").fetchall() == [(None,)]
    return db


def follow(projector: Projector, story: Story) -> None:
    """Fold each save right after it, the shortest way that will do."""
    for written in story.saves:
        projector.follow(written, [recorded(row).payload for row in written.rows])
    story.saves.clear()


def check(steps: list[tuple[Step, bool]], batch: int, queries: list[str]) -> None:
    """Tell the steps; fold after each, after those that are marked, and in other ways at the end.

    The search index is caught up at other moments than the folds, as it is by who searches.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        contextlib.closing(Log(Path(folder) / "events.db", synchronous="OFF")) as log,
        folding(log, Path(folder) / "inline") as inline,
        folding(log, Path(folder) / "later") as later,
        folding(log, Path(folder) / "at once") as at_once,
    ):
        patch.setattr(search_index, "TRAIL", batch)
        story = Story(log)
        for each, fold_here in steps:
            story.tell(each)
            inline.catch_up()
            follow(at_once, story)
            if not fold_here:
                inline.settle(wait_ms=10_000)
            else:
                with patch.context() as cut:
                    cut.setattr(projecting, "BATCH", batch)
                    later.catch_up()
        db = settled(inline)
        rows, hits = rows_of(db), hits_of(db, queries)

        followed = settled(at_once)
        assert differing(rows, rows_of(followed)) == []
        assert hits_of(followed, queries) == hits

        caught_up = settled(later)
        assert differing(rows, rows_of(caught_up)) == []
        assert hits_of(caught_up, queries) == hits

        told = rebuild(later, list(later.projections), compare=True)
        rebuilt = settled(later)
        assert [each.differences for each in told] == [()] * len(told)
        assert all(each.compared for each in told)
        assert differing(rows, rows_of(rebuilt)) == []
        assert hits_of(rebuilt, queries) == hits

        at_head = state_at(log, Path(folder), Point(position=log.head().position))
        with contextlib.closing(at_head):
            assert differing(rows, rows_of(at_head)) == []
            assert hits_of(at_head, queries) == hits


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
@given(
    st.lists(st.tuples(step, st.booleans()), min_size=5, max_size=40),
    st.integers(1, 5),
    st.lists(st.sampled_from(QUERIES) | texts, max_size=4),
)
@example([*ONE_MESSAGE, TWICE, ERASED], 1, [])
@example([*ONE_MESSAGE, BYTES], 3, [])
@example([*ONE_MESSAGE, NUMBER, ERASED], 1, [])
@example([*ONE_MESSAGE, OTHER, (OTHER[0], True), ERASED], 5, [])
@example([*ONE_MESSAGE, (OTHER[0], True), OTHER, (OTHER[0], True)], 1, [])
@example([((Story.change, ("s1", payload, 0, False)), False) for payload in COUNTED], 5, [])
def test_inline_caught_up_rebuilt_and_in_one_go_are_the_same(
    steps: list[tuple[Step, bool]], batch: int, queries: list[str]
) -> None:
    check(steps, batch, [*QUERIES, *queries])
