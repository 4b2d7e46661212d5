"""The search index and the rows are written while the next events are read: neither goes on alone."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from retold.domain.errors import NoRoom
from retold.infrastructure.home import Home
from retold.infrastructure.log import Log
from retold.infrastructure.past_damage import Stretch, events_past
from retold.infrastructure.rebuild import rebuild
from retold.projections.bulk import BOUND
from retold.projections.transcripts import Transcripts
from retold.tests.infrastructure.filled import (
    fill,
    state_file,
)
from retold.tests.infrastructure.rebuilding import NAMES, tell_again


def words(home: Path) -> list[Any]:
    """Every word of the search index with its message and place."""
    with contextlib.closing(apsw.Connection(str(state_file(home)))) as db:
        db.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, search, instance)")
        found: list[Any] = db.execute(
            "SELECT term, doc, offset FROM temp.words ORDER BY doc, offset"
        ).fetchall()
        return found


@pytest.mark.parametrize("bound", [60, 420, BOUND])
def test_the_index_has_the_same_words_however_it_was_cut(
    home: Path, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    fill(home, 200)
    before = words(home)
    monkeypatch.setattr("retold.infrastructure.new_tables.BATCH", 30)
    monkeypatch.setattr("retold.projections.bulk.BOUND", bound)
    tell_again(home)

    assert len(before) > 1_000
    assert words(home) == before


def test_what_stops_the_reading_waits_for_the_index(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(home, 1_000)
    monkeypatch.setattr("retold.infrastructure.new_tables.BATCH", 50)
    stopped = threading.Event()
    in_transaction: list[bool] = []
    settle = Transcripts.settle

    def read(log: Log, after: int, *, limit: int, upto: int) -> Stretch:
        if after >= 400:
            stopped.set()
            raise KeyboardInterrupt
        return events_past(log, after, limit=limit, upto=upto)

    def settle_late(self: Transcripts, db: apsw.Connection) -> None:
        if len(in_transaction) == 7:  # the eighth batch ends at 400
            assert stopped.wait(10)
        settle(self, db)
        in_transaction.append(db.in_transaction)

    with monkeypatch.context() as patch, Home(home) as opened:
        patch.setattr("retold.infrastructure.new_tables.events_past", read)
        patch.setattr(Transcripts, "settle", settle_late)
        with pytest.raises(KeyboardInterrupt):
            rebuild(opened.projector, NAMES)
    told = tell_again(home)

    assert in_transaction == [True] * 8
    assert {each.resumed_at for each in told.values()} == {200}
    assert all(each.equal for each in told.values())


def test_what_stops_the_index_stops_the_rebuild(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(home, 100)

    def no_room(self: Transcripts, db: apsw.Connection) -> None:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patch, Home(home) as opened:
        patch.setattr(Transcripts, "settle", no_room)
        with pytest.raises(NoRoom):
            rebuild(opened.projector, NAMES)
    told = tell_again(home)

    assert all(each.equal for each in told.values())
