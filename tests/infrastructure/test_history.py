"""The past, folded again: what the log said at a position, and what had happened by a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from retold.domain import events as e
from retold.domain.errors import BadUsage
from retold.infrastructure import history
from retold.infrastructure.happened import AsOf
from retold.infrastructure.history import CACHE, state_at
from retold.infrastructure.home import EVENTS
from retold.infrastructure.log import Draft, Log
from retold.infrastructure.when import Point
from retold.projections.transcripts import Transcripts
from retold.tests.histories import draft
from retold.tests.infrastructure.damage import overwrite, tree
from retold.tests.infrastructure.filled import execute

NOON_US = 1_778_000_000_000_000
HOUR_US = 3_600_000_000


@pytest.fixture
def log(home: Path) -> Iterator[Log]:
    """s1 begins at noon; what it says at one comes into the log after what it says at two."""
    home.mkdir(mode=0o700)
    with closing(Log(home / EVENTS)) as opened:
        for version, payload, hours in (
            (1, e.SessionCreated("cli"), 0),
            (2, e.MessageAppended("user", "at two"), 2),
            (3, e.MessageAppended("user", "at one"), 1),
            (4, e.SessionTitled("plan"), 3),
        ):
            opened.append([draft("session:s1", version, payload, NOON_US + hours * HOUR_US)])
        opened.append([draft("session:s2", 1, e.SessionCreated("cli"), NOON_US + 9 * HOUR_US)])
        yield opened


def told(log: Log, point: Point) -> tuple[list[str], list[tuple[str, str | None]]]:
    """The messages, and the sessions with their titles, as of `point`."""
    with closing(state_at(log, log.path.parent, point)) as db:
        messages = [str(row[0]) for row in db.execute("SELECT content FROM messages ORDER BY id")]
        sessions = [(str(row[0]), row[1]) for row in db.execute("SELECT id, title FROM sessions ORDER BY id")]
    return messages, sessions


def by(hours: float) -> Point:
    return Point(at_us=NOON_US + round(hours * HOUR_US))


def test_a_position_gives_what_this_log_said_then(log: Log) -> None:
    assert told(log, Point(position=0)) == ([], [])
    assert told(log, Point(position=2)) == (["at two"], [("s1", None)])
    assert told(log, Point(position=5)) == (["at two", "at one"], [("s1", "plan"), ("s2", None)])


def found(stream: str, version: int, payload: e.Payload, hours: float) -> Draft:
    """What an import found, at the latest so many hours after noon."""
    return draft(stream, version, payload, NOON_US + round(hours * HOUR_US), at_kind="no_later_than")


def test_what_an_import_found_of_a_session_stands_from_its_beginning(log: Log) -> None:
    log.append([found("session:s1", 5, e.SessionArchived(), 30)])
    log.append([draft("session:s3", 1, e.SessionCreated("cli"), NOON_US)])
    log.append([found("session:s3", 2, e.SessionTitled("first found"), 20)])
    log.append([found("session:s3", 3, e.SessionTitled("found later"), 40)])
    log.append([found("session:s2", 2, e.SessionTitled("not begun"), 30)])
    log.append([found("title:x", 1, e.TitleClaimed("not begun", "s2"), 30)])

    assert told(log, by(2))[1] == [("s1", None), ("s3", "first found")]  # s1's own title has its time
    assert told(log, by(25))[1] == [("s1", "plan"), ("s2", "not begun"), ("s3", "first found")]
    assert told(log, by(50))[1][2] == ("s3", "found later")
    with closing(state_at(log, log.path.parent, by(2))) as db:
        assert db.execute("SELECT archived FROM sessions WHERE id = 's1'").fetchone() == (1,)


def test_a_route_that_an_import_found_stands_once_its_entry_was_touched_last(log: Log) -> None:
    def routes(hours: float) -> list[str]:
        with closing(state_at(log, log.path.parent, by(hours))) as db:
            return [row[0] for row in db.execute("SELECT key FROM routes ORDER BY key")]

    for key, touched in (("early", 1.0), ("late", 10.0), ("unsaid", None)):
        updated_us = None if touched is None else NOON_US + round(touched * HOUR_US)
        route = e.SessionRerouted(
            key, "s1", None, "import", entry_created_us=updated_us and NOON_US, entry_updated_us=updated_us
        )
        log.append([found(f"route:{key}", 1, route, 30)])

    assert routes(0.5) == []
    assert routes(2) == ["early"]
    assert routes(11) == ["early", "late"]
    assert routes(30) == ["early", "late", "unsaid"]
    assert [each.key for each in AsOf(log, by(2).at_us or 0).undated.routes] == ["late", "unsaid"]


def test_damage_elsewhere_leaves_what_an_import_found(log: Log) -> None:
    log.append([found("session:s1", 5, e.SessionArchived(), 30)])
    expected = AsOf(log, NOON_US).undated
    log.close()
    overwrite(log.path, tree(log.path, "events_without_messages").root)
    with closing(Log(log.path)) as damaged:
        assert AsOf(damaged, NOON_US).undated == expected
        assert AsOf(damaged, NOON_US).had_happened(damaged.read(5)[0])

    assert expected.shown == {6}


def test_a_position_that_the_log_has_not_reached_is_refused(log: Log) -> None:
    with pytest.raises(BadUsage, match="ends at #5; there is no #6 yet"):
        state_at(log, log.path.parent, Point(position=6))


def test_a_time_gives_what_had_happened_by_it_and_no_session_that_began_later(log: Log) -> None:
    assert told(log, by(0.5)) == ([], [("s1", None)])  # s2 is to come
    assert told(log, by(1)) == (["at one"], [("s1", None)])
    assert told(log, by(2.5))[0] == ["at two", "at one"]  # in the order of the log
    assert told(log, by(3)) == (["at two", "at one"], [("s1", "plan")])


def test_a_time_is_as_it_is_known_at_the_head(log: Log) -> None:
    assert told(log, by(1.5))[0] == ["at one"]
    log.append([draft("session:s1", 5, e.MessageAppended("user", "at noon, known late"), NOON_US)])

    assert told(log, by(1.5))[0] == ["at one", "at noon, known late"]
    assert told(log, Point(position=5))[0] == ["at two", "at one"]


def test_what_is_asked_again_comes_from_the_cache(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [told(log, Point(position=3)), told(log, by(1))]
    monkeypatch.setattr(history, "_fold", None)

    assert [told(log, Point(position=3)), told(log, by(1))] == first


def test_a_fold_of_another_version_is_not_taken_from_the_cache(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(log, Point(position=3))
    kept = set((log.path.parent / CACHE).iterdir())
    monkeypatch.setattr(Transcripts, "version", Transcripts.version + 1)
    told(log, Point(position=3))

    assert len(set((log.path.parent / CACHE).iterdir()) - kept) == 1


def test_a_restored_log_does_not_take_anothers_past_from_the_cache(log: Log, tmp_path: Path) -> None:
    home = log.path.parent
    backup = tmp_path / "backup.db"
    execute(log.path, "VACUUM INTO ?", (str(backup),))
    log.append([draft("session:s1", 5, e.MessageAppended("user", "lost"), NOON_US)])
    assert told(log, Point(position=6))[0][-1] == "lost"
    assert told(log, by(1))[0] == ["at one", "lost"]
    log.close()
    for name in (EVENTS, f"{EVENTS}-wal", f"{EVENTS}-shm"):
        (home / name).unlink(missing_ok=True)
    backup.rename(home / EVENTS)
    with closing(Log(home / EVENTS)) as restored:
        restored.append([draft("session:s1", 5, e.MessageAppended("user", "another"), NOON_US)])

        assert told(restored, Point(position=6))[0][-1] == "another"
        assert told(restored, by(1))[0] == ["at one", "another"]


def test_a_torn_file_in_the_cache_is_folded_again(log: Log) -> None:
    expected = told(log, Point(position=3))
    [cached] = (log.path.parent / CACHE).iterdir()
    for content in (b"", b"SQLite format 3\0torn", b"no database" * 1000):
        cached.write_bytes(content)

        assert told(log, Point(position=3)) == expected


def test_the_cache_keeps_the_states_used_last(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEEP", 2)
    for position in (1, 2, 3):
        told(log, Point(position=position))
        for age, path in enumerate(sorted((log.path.parent / CACHE).iterdir(), reverse=True)):
            os.utime(path, (1_000 - age, 1_000 - age))
    kept = {path.name.split("-")[1] for path in (log.path.parent / CACHE).iterdir()}

    assert len(kept) == 2
    assert "3" in kept


def test_a_home_that_cannot_be_written_is_told_from_memory(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert told(log, Point(position=2)) == (["at two"], [("s1", None)])
    assert not (log.path.parent / CACHE).exists()


def test_a_state_of_the_past_cannot_be_written_to(log: Log) -> None:
    with (
        closing(state_at(log, log.path.parent, Point(position=3))) as db,
        pytest.raises(apsw.ReadOnlyError),
    ):
        db.execute("DELETE FROM messages")


def test_damage_in_the_log_hides_only_itself(log: Log) -> None:
    execute(log.path, "UPDATE events SET payload = x'c1' WHERE position = 2")

    assert told(log, Point(position=5)) == (["at one"], [("s1", "plan"), ("s2", None)])


def test_the_cache_is_bound_by_bytes_too(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEEP_BYTES", 1)
    for position in (1, 2, 3):
        told(log, Point(position=position))
    kept = [path.name.split("-")[1] for path in (log.path.parent / CACHE).iterdir()]

    assert kept == ["3"]


def test_a_damaged_past_is_not_kept(log: Log) -> None:
    execute(log.path, "UPDATE events SET payload = x'c1' WHERE position = 2")
    with closing(history.past_at(log, log.path.parent, Point(position=5)).db):
        pass

    assert not list((log.path.parent / CACHE).iterdir())
