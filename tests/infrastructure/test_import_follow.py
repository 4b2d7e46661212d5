"""Following a Hermes home: each look takes in what an import of everything would."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from retold.domain import events as e
from retold.domain.errors import NotAStore, SourceChanged, StoreBusy
from retold.infrastructure.importers import hermes_follow, hermes_glance
from retold.infrastructure.importers.hermes_follow import Follower
from retold.infrastructure.importers.hermes_glance import FollowedHome
from retold.infrastructure.importers.report import ImportReport
from retold.infrastructure.importers.turn import my_turn
from retold.tests.infrastructure.importing import Importer, ask, edit, importer
from retold.tests.infrastructure.test_import_law import assert_as_last_seen, change_something

SESSION = "20260622_194950_7af33b"


class Following:
    """A follower that looks when it is told to, and what it said."""

    def __init__(self, it: Importer) -> None:
        self.it = it
        self.reports: list[ImportReport] = []
        self.said: list[str] = []
        self.now_s = time.time()
        self.follower = Follower(
            it.engine,
            it.hermes,
            imported=self.reports.append,
            said=self.said.append,
            stop=threading.Event(),
            clock=lambda: self.now_s,
        )
        self.follower.take_all(first=True)

    def told(self) -> list[Any]:
        """Look once; the payloads that were appended."""
        before = self.it.engine.event_log.head().position
        self.follower.look()
        return [each.payload for each in self.it.events(before) if not isinstance(each.payload, e.ImportRan)]


@pytest.fixture
def following(home: Path, hermes_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Following]:
    monkeypatch.setattr(hermes_follow, "AGAIN_S", 0.0)
    with importer(home, hermes_home) as it:
        yield Following(it)


def say(hermes: Path, text: str, session: str = SESSION) -> None:
    sql = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, 1e9)"
    edit(hermes, sql, session, text)


def test_what_was_said_is_told_and_no_other_message_is_read(
    following: Following, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(hermes_home, "new")
    read: list[int] = []
    messages = FollowedHome.messages

    def watched(self: FollowedHome, ids: Sequence[int]) -> Any:
        read.extend(ids)
        return messages(self, ids)

    monkeypatch.setattr(FollowedHome, "messages", watched)
    (said,) = following.told()

    assert said.content == "new"
    assert read == [said.source_id]
    assert following.told() == []
    assert len(following.reports) == 2


@pytest.mark.parametrize("seed", range(6))
def test_a_look_takes_in_what_an_import_of_everything_would(
    home: Path, hermes_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(hermes_glance, "NEWEST", 5_000)  # what is changed in place is seen, however old
    rng = random.Random(seed)
    with importer(home, hermes_home) as it:
        following = Following(it)
        for _ in range(12):
            db = apsw.Connection(str(hermes_home / "state.db"))
            for _ in range(rng.randrange(1, 4)):
                change_something(rng, db)
            db.close()
            following.told()

            assert it.told() == []
            assert_as_last_seen(it.state, hermes_home, tmp_path / "scratch")
        assert following.follower._glance is not None
        assert it.report is not None
        assert it.report.lost == []


@pytest.mark.parametrize("seed", range(3))
def test_what_a_look_tells_is_told_by_an_import_of_everything_in_the_same_words(
    home: Path, hermes_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(hermes_glance, "NEWEST", 5_000)
    rng = random.Random(100 + seed)
    with importer(home, hermes_home) as it, importer(tmp_path / "twin", hermes_home) as other:
        following, twin = Following(it), Following(other)
        for _ in range(20):
            db = apsw.Connection(str(hermes_home / "state.db"))
            change_something(rng, db)
            db.close()
            told = following.told()
            before = other.engine.event_log.head().position
            twin.follower.take_all()

            assert of_no_store(told) == of_no_store([each.payload for each in other.events(before)])


def of_no_store(payloads: Sequence[Any]) -> list[Any]:
    """The payloads but for runs, and for what each home calls its source."""
    return [
        msgspec.structs.replace(each, store=None) if getattr(each, "store", None) else each
        for each in payloads
        if not isinstance(each, e.ImportRan)
    ]


def test_what_waits_in_a_session_that_hermes_leaves_goes_on_with_its_chat(
    following: Following, hermes_home: Path
) -> None:
    engine, key = following.it.engine, "agent:main:telegram:dm:1001"
    led_to = engine.route_of(key)
    assert led_to is not None
    engine.enqueue(led_to, "later")
    entry = '{"session_id": "20260508_141930_46dc1a26"}'
    edit(hermes_home, "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?", entry, key)
    following.told()

    assert engine.route_of(key) == "20260508_141930_46dc1a26"
    assert engine.waiting_sessions() == ["20260508_141930_46dc1a26"]


def test_a_damaged_home_is_read_whole_and_not_all_the_time(
    following: Following, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FollowedHome, "glance", lambda _: None)
    say(hermes_home, "one")
    one = following.told()
    following.follower._rest_s = following.now_s + 5
    say(hermes_home, "two")
    resting = following.told()
    following.now_s += 6
    two = following.told()

    assert [[each.content for each in told] for told in (one, resting, two)] == [["one"], [], ["two"]]


def test_an_old_message_that_was_changed_in_place_is_found_when_all_is_read(
    following: Following, hermes_home: Path
) -> None:
    edit(hermes_home, "UPDATE messages SET content = 'changed' WHERE id = 1")
    seen = following.told()
    following.follower.take_all()
    content = following.it.state("SELECT content FROM messages WHERE source_id = 1")

    assert seen == []
    assert content == [("changed",)]


@pytest.mark.parametrize(
    ("talks", "seconds", "first", "last"),
    [((0,), 1_000, 300, 340), (range(0, 1_000, 20), 1_000, 900, 940), ((), 2_000, None, None)],
    ids=["at idle", "after long", "never where nothing came"],
)
def test_all_is_read_again(
    following: Following,
    hermes_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    talks: Sequence[int],
    seconds: int,
    first: int | None,
    last: int | None,
) -> None:
    began_s = following.now_s
    read = watched(following, monkeypatch)
    for second in range(0, seconds, 20):
        following.now_s = began_s + second
        if second in talks:
            say(hermes_home, f"at {second}")
        following.follower.look()

    assert len(read) == (0 if first is None else 1)
    assert all((first or 0) <= each - began_s <= (last or 0) for each in read)


def watched(following: Following, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which all is read from here on."""
    read: list[float] = []
    take_all = following.follower.take_all

    def taken() -> None:
        read.append(following.now_s)
        take_all()

    monkeypatch.setattr(following.follower, "take_all", taken)
    return read


def test_who_slept_reads_all_again(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    read = watched(following, monkeypatch)
    following.told()
    following.now_s += 7_200
    following.told()

    assert read == [following.now_s]


def test_a_home_that_goes_and_comes_back_is_waited_for(
    following: Following, hermes_home: Path, tmp_path: Path
) -> None:
    aside = tmp_path / "aside"
    hermes_home.rename(aside)
    following.told()
    following.told()
    hermes_home.mkdir()
    (hermes_home / "state.db").write_bytes(b"half of it" * 100)
    following.told()
    following.told()
    shutil.rmtree(hermes_home)
    aside.rename(hermes_home)
    say(hermes_home, "back")
    told = following.told()

    assert [each.content for each in told] == ["back"]
    assert [each.split(";")[0] for each in following.said] == [
        f"no such folder: {hermes_home}",
        f"{hermes_home / 'state.db'} is no SQLite database",
        f"{hermes_home} is followed again",
    ]


def test_an_older_backup_that_is_put_back_is_told_as_what_went(
    following: Following, hermes_home: Path, tmp_path: Path
) -> None:
    shutil.copyfile(hermes_home / "state.db", tmp_path / "backup")
    say(hermes_home, "later")
    (said,) = following.told()
    (tmp_path / "backup").rename(hermes_home / "state.db")
    told = following.told()

    assert said.content == "later"
    assert [type(each) for each in told] == [e.SourceRowGone]


def test_while_another_import_runs_it_waits_and_then_tells_nothing_twice(
    following: Following, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hermes_follow, "WAIT_S", 0.05)
    say(hermes_home, "once")
    with my_turn(following.it.engine.event_log.path.parent):
        held = following.told() + following.told()
    following.it.run()
    told = following.told()

    assert held == []
    assert told == []
    assert following.it.state("SELECT count(*) FROM messages WHERE content = 'once'") == [(1,)]
    assert "another import" in following.said[0]


@contextmanager
def running(follower: Follower, stop: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_of_two_followers_one_goes_on_and_the_other_says_so(home: Path, hermes_home: Path) -> None:
    with importer(home, hermes_home) as it:
        begun, stop = threading.Event(), threading.Event()

        def follower() -> Follower:
            return Follower(
                it.engine, hermes_home, imported=lambda _: begun.set(), said=lambda _: None, stop=stop
            )

        with running(follower(), stop):
            assert begun.wait(30)
            with pytest.raises(StoreBusy, match=r"is followed already, by process \d+"):
                follower().run()


def test_a_home_that_is_written_while_it_is_first_read_is_read_again(
    home: Path, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hermes_follow, "AGAIN_S", 0.0)
    stop, reports = threading.Event(), list[ImportReport]()
    finish = FollowedHome.finish

    def written(self: FollowedHome) -> None:
        monkeypatch.setattr(FollowedHome, "finish", finish)
        raise SourceChanged("it was written")

    def imported(report: ImportReport) -> None:
        reports.append(report)
        stop.set()

    monkeypatch.setattr(FollowedHome, "finish", written)
    with importer(home, hermes_home) as it:
        done = Follower(it.engine, hermes_home, imported=imported, said=lambda _: None, stop=stop).run()

    assert done.imports == 1
    assert reports[0].unchanged["messages"] == 914


def test_a_log_beside_the_file_that_a_link_leads_to_is_seen(
    home: Path, hermes_home: Path, tmp_path: Path
) -> None:
    real = tmp_path / "disk"
    real.mkdir()
    (hermes_home / "state.db").rename(real / "state.db")
    (hermes_home / "state.db").symlink_to(real / "state.db")
    db = apsw.Connection(str(real / "state.db"))
    db.pragma("journal_mode", "wal")
    with importer(home, hermes_home) as it:
        following = Following(it)
        sql = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', 'x', 1e9)"
        db.execute(sql, (SESSION,))
        told = following.told()
    db.close()

    assert [each.content for each in told] == ["x"]


def test_what_is_no_home_to_begin_with_is_refused(home: Path, hermes_home: Path, tmp_path: Path) -> None:
    with importer(home, hermes_home) as it:
        follower = Follower(
            it.engine, tmp_path / "none", imported=lambda _: None, said=lambda _: None, stop=threading.Event()
        )
        with pytest.raises(NotAStore):
            follower.run()


def test_nothing_appears_beside_what_is_followed(following: Following, hermes_home: Path) -> None:
    before = sorted(each.name for each in hermes_home.rglob("*"))
    say(hermes_home, "one")
    following.told()
    db = apsw.Connection(str(hermes_home / "state.db"))  # one that holds it open, as Hermes does
    db.pragma("journal_mode", "wal")
    db.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', 'two', 1e9)",
        (SESSION,),
    )
    beside = sorted(each.name for each in hermes_home.rglob("*"))
    told = following.told()
    after = sorted(each.name for each in hermes_home.rglob("*"))
    db.execute("DELETE FROM messages WHERE content = 'two'")  # nothing locks it
    db.close()

    assert [each.content for each in told] == ["two"]
    assert after == beside
    assert before == sorted(each.name for each in hermes_home.rglob("*"))


def test_a_route_to_a_session_of_another_home_is_refused_however_it_is_read(
    following: Following, hermes_home: Path
) -> None:
    following.it.engine.create_session("cli", session_id="ours")
    edit(hermes_home, "INSERT INTO sessions (id, source, started_at) VALUES ('ours', 'cli', 1e9)")
    refused = following.told()
    edit(
        hermes_home,
        "INSERT INTO gateway_routing VALUES ((SELECT min(scope) FROM gateway_routing), 'k', ?, 1e9)",
        '{"session_id": "ours"}',
    )
    route = following.told()
    following.it.run()

    assert refused == []
    assert route == []
    assert following.it.state("SELECT 1 FROM routes WHERE key = 'k'") == []
    assert ask(hermes_home, "SELECT count(*) FROM gateway_routing WHERE session_key = 'k'") == [(1,)]
