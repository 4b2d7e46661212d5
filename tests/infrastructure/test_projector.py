"""The projector: catching up, what fails is set aside, and nothing makes the log wait."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import ClassVar
from unicodedata import unidata_version

import pytest

from retold.domain import events as e
from retold.domain.errors import LogDamaged, NeedsUpgrade, RetoldError
from retold.domain.events import Recorded
from retold.infrastructure import codec
from retold.infrastructure.home import Home
from retold.infrastructure.projector import PROJECTIONS, Projector
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.sqlite import one
from retold.infrastructure.status import Status, status_of
from retold.infrastructure.verify import verify
from retold.projections.base import Connection, Projection
from retold.projections.transcripts import Transcripts
from retold.tests.infrastructure.filled import (
    content,
    draft,
    drafts,
    execute,
    fill,
    state_file,
    told_from_nothing,
)


def health(home: Home) -> dict[str, str]:
    found: Status = status_of(home)
    return {each.name: each.health for each in found.projections}


class Fragile(Projection):
    """Counts events, and fails where it is told to."""

    name: ClassVar[str] = "fragile"
    version: ClassVar[int] = 1
    tables: ClassVar[dict[str, str]] = {"counted": "(position INTEGER PRIMARY KEY)"}
    breaks_at: ClassVar[int | None] = None

    def fold(self, events: Sequence[Recorded], db: Connection) -> None:
        for event in events:
            db.execute(f"INSERT INTO {self.t('counted')} VALUES (?)", (event.position,))
            if event.position == self.breaks_at:
                raise ValueError("this event is not for me")

    def ordered(self) -> dict[str, str]:
        return {"counted": "SELECT * FROM {p}counted ORDER BY position"}


def with_fragile(home: Home) -> Projector:
    return Projector(home.log, home.state, (*PROJECTIONS, Fragile))


def counted(home: Home) -> int:
    return int(one(home.state.reader(), "SELECT count(*) FROM counted"))


def test_caught_up_in_steps_is_what_is_folded_in_one_go(home: Path) -> None:
    with Home(home) as opened:
        events = drafts(200)
        for start in range(0, len(events), 7):
            opened.log.append(events[start : start + 7])
            opened.catch_up()

        assert content(opened.projector) == told_from_nothing(opened.log)


def test_a_fold_that_raises_is_set_aside_and_the_others_go_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home)
    monkeypatch.setattr(Fragile, "breaks_at", 100)
    with Home(home) as opened:
        lag = with_fragile(opened).catch_up()
        opened.log.append(drafts(10, prefix="later"))
        later = with_fragile(opened).catch_up()

        assert lag.detached == {"fragile": "ValueError: this event is not for me"}
        assert (lag.events, later.events) == (0, 0)
        assert counted(opened) == 0, "a fold is whole or not there"
        assert content(opened.projector) == told_from_nothing(opened.log)


def test_what_was_set_aside_is_told_again_by_the_next_process(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home)
    monkeypatch.setattr(Fragile, "breaks_at", 100)
    with Home(home) as opened:
        with_fragile(opened).catch_up()
    monkeypatch.setattr(Fragile, "breaks_at", None)
    with Home(home) as opened:
        lag = with_fragile(opened).catch_up()

        assert lag.detached == {}
        assert "this event is not for me" in lag.told_again["fragile"]
        assert counted(opened) == 307


def test_what_fails_again_stays_set_aside_and_costs_one_try_a_process(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home)
    monkeypatch.setattr(Fragile, "breaks_at", 100)
    with Home(home) as opened:
        with_fragile(opened).catch_up()
    with Home(home) as opened:
        projector = with_fragile(opened)
        again = projector.catch_up()
        monkeypatch.setattr(Fragile, "breaks_at", None)
        third = projector.catch_up()

        assert "fragile" in again.told_again
        assert "fragile" in again.detached
        assert third.told_again == {}


def test_a_fold_of_a_newer_program_is_neither_folded_into_nor_rebuilt(home: Path) -> None:
    fill(home)
    execute(state_file(home), "UPDATE checkpoints SET fold_version = 99 WHERE projection = 'transcripts'")
    before = execute(state_file(home), "SELECT count(*) FROM messages")
    with Home(home) as opened:
        opened.log.append(drafts(5, prefix="later"))
        with pytest.raises(NeedsUpgrade, match="transcripts was folded by a newer Retold"):
            opened.catch_up()
        with pytest.raises(NeedsUpgrade):
            rebuild(opened.projector, ["transcripts"])
        status = health(opened)

    assert status["transcripts"] == "newer"
    assert execute(state_file(home), "SELECT count(*) FROM messages") == before
    assert {problem.kind for problem in verify(home).problems} == {"newer"}


def test_g10_a_fold_of_an_older_program_is_told_again(home: Path) -> None:
    fill(home)
    execute(state_file(home), "UPDATE checkpoints SET fold_version = 0 WHERE projection = 'usage'")
    with Home(home) as opened:
        lag = opened.catch_up()

        assert lag.told_again == {"usage": "it was folded by version 0, and this program's is 1"}
        assert health(opened)["usage"] == "ok"


def test_a_fold_by_a_python_with_other_unicode_tables_is_told_again(home: Path) -> None:
    """Its index may hold what this one would normalize otherwise, and so never find again to take out."""
    fill(home)
    execute(state_file(home), "UPDATE checkpoints SET unicode = '3.2.0'")
    with Home(home) as opened:
        lag = opened.catch_up()

        assert lag.told_again == {
            "transcripts": f"it was folded with Unicode 3.2.0, and this Python has {unidata_version}"
        }
        assert opened.catch_up().told_again == {}
    assert execute(state_file(home), "SELECT unicode FROM checkpoints WHERE projection = 'transcripts'") == [
        (unidata_version,)
    ]


def test_what_is_appended_to_a_fold_with_other_unicode_tables_waits_until_it_is_told_again(
    home: Path,
) -> None:
    fill(home)
    execute(state_file(home), "UPDATE checkpoints SET unicode = '3.2.0'")
    with Home(home) as opened:
        at = opened.projector.lag().position
        opened.log.append(drafts(1, sessions=1, prefix="later"))
        opened.projector.follow()

        assert opened.projector.lag().position == at
        assert "transcripts" in opened.catch_up().told_again


def test_events_of_a_newer_program_are_told_once_this_one_knows_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home)
    unknown = draft("session:s0", 63, e.SessionTitled(title="from the future"))
    with Home(home) as opened:
        with monkeypatch.context() as older:
            older.delitem(e.BY_TOPIC, "session_titled.1")
            older.delitem(codec._decoders, "session_titled.1")
            opened.log.append([unknown])
            opened.catch_up()
            known = opened.projector.checkpoints()["transcripts"].unknown_topics
        lag = opened.catch_up()

        assert known == ("session_titled.1",)
        assert "session_titled.1" in lag.told_again["transcripts"]
        assert content(opened.projector) == told_from_nothing(opened.log)


def test_b19_an_index_that_fails_stops_no_message_and_a_rebuild_mends_it(home: Path) -> None:
    fill(home)
    execute(state_file(home), "DROP TABLE search")
    execute(state_file(home), "CREATE TABLE search (other)")
    with Home(home) as opened:
        positions = opened.log.append(drafts(100, prefix="later"))
        lag = opened.catch_up()
        rows = opened.state.reader().execute("SELECT count(*) FROM messages").fetchall()
        broken = health(opened)["transcripts"]
        rebuild(opened.projector, ["transcripts"])

        assert (lag.events, lag.detached) == (0, {})
        assert positions[-1] == 414
        assert rows == [(400,)]
        assert broken == "stale index"
        assert health(opened)["transcripts"] == "ok"
    assert verify(home).exit_code == 0


def test_a_reader_answers_from_what_is_folded_while_another_holds_the_lock(home: Path) -> None:
    fill(home)
    with Home(home) as writer, Home(home, read_only=True) as reader:
        writer.log.append(drafts(20, prefix="later"))
        with writer.projector.transaction():
            lag = reader.catch_up()
        caught_up = reader.catch_up()

    assert (lag.events, caught_up.events) == (27, 0)


def test_only_one_thread_folds_and_none_folds_twice(home: Path) -> None:
    def write(opened: Home, number: int) -> None:
        for turn in range(10):
            opened.log.append(drafts(3, sessions=1, prefix=f"{number}-{turn}-"))
            opened.catch_up()

    with Home(home) as opened:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: write(opened, number), range(8)))
        opened.catch_up(wait_ms=10_000)

        assert content(opened.projector) == told_from_nothing(opened.log)


def test_a_damaged_event_in_the_middle_is_passed_over_and_remembered(home: Path) -> None:
    fill(home, fold=False)
    execute(home / "events.db", "UPDATE events SET payload = x'ff' WHERE position IN (50, 51, 90)")
    with Home(home) as opened:
        lag = opened.catch_up()
        again = opened.catch_up()

    assert (lag.events, lag.damaged) == (0, [(50, 51), (90, 90)])
    assert again == lag


def test_a_damaged_event_at_the_end_leaves_the_projections_one_behind(home: Path) -> None:
    fill(home, fold=False)
    execute(home / "events.db", "UPDATE events SET payload = x'ff' WHERE position = 307")
    with Home(home) as opened:
        lag = opened.catch_up()
        with pytest.raises(LogDamaged, match="#307"):
            opened.log.append(drafts(3, prefix="later"))

    assert (lag.events, lag.waiting, lag.damaged) == (1, 0, [(307, 307)])


def test_a_damage_longer_than_a_transaction_is_passed_over_too(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, fold=False)
    monkeypatch.setattr("retold.infrastructure.projector.BATCH", 5)
    monkeypatch.setattr("retold.infrastructure.projector.TRANSACTION", 10)
    execute(home / "events.db", "UPDATE events SET payload = x'ff' WHERE position BETWEEN 50 AND 99")
    with Home(home) as opened:
        lag = opened.catch_up()

    assert (lag.events, lag.damaged) == (0, [(50, 99)])


def test_a_first_reader_waits_for_who_tells_the_projections(home: Path) -> None:
    fill(home, fold=False)
    with Home(home) as holder, Home(home, read_only=True) as reader, ThreadPoolExecutor(1) as pool:
        with holder.projector.transaction():
            lag = pool.submit(reader.catch_up)
            assert not wait([lag], timeout=0.2).done, "there is nothing yet that it could answer from"

        assert lag.result().events == 0


def test_no_error_of_the_projections_is_anothers(home: Path) -> None:
    """Whatever stands in the way of folding is an error of ours, so that inline folding may pass over it."""
    fill(home)
    with Home(home) as opened:
        execute(state_file(home), "DROP TABLE messages")
        opened.log.append(drafts(3, prefix="later"))
        try:
            lag = opened.catch_up()
        except RetoldError:
            lag = opened.projector.lag()

        assert "transcripts" in lag.detached
    with Home(home) as opened:
        lag = opened.catch_up()

        assert "transcripts" in lag.told_again
        assert content(opened.projector) == told_from_nothing(opened.log)


def test_status_is_read_in_one_snapshot_and_folds_nothing(home: Path) -> None:
    fill(home)
    fill(home, 10, prefix="later", fold=False)
    with Home(home, read_only=True) as opened:
        found = status_of(opened)
        lag = opened.projector.lag()

    assert {each.health for each in found.projections} == {"behind"}
    assert {each.lag for each in found.projections} == {17}
    assert lag.events == 17
    assert found.projections[0].name == Transcripts.name
    assert found.projections[0].rows["messages"] == 300
