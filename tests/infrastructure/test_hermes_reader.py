"""A Hermes home is read whole, whatever state it is in, and is left as it was.

One long file, since every class in it asks the same `read` of the same fixture, after other harm.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from retold.domain.errors import NotAStore, RetoldError, SourceChanged, StoreBusy
from retold.infrastructure.importers import source_file
from retold.infrastructure.importers.hermes_home import HermesHome
from retold.infrastructure.importers.hermes_reader import Lost, RawText, Row, read_mirror

from .damage import GARBAGE, Tree, flip, overwrite, page_size, rowids, tree

SESSIONS, MESSAGES, ROUTES = 57, 914, 27


class Read(NamedTuple):
    sessions: dict[Any, Row]
    messages: dict[Any, Row]
    routes: list[Row]
    lost: list[Lost]
    damage: list[str]


def read(home: Path, scratch: Path) -> Read:
    with HermesHome.open(home, scratch) as source:
        sessions = {row["id"]: row for row in source.sessions()}
        ids = [message_id for message_id, _, _ in source.message_heads()]
        messages = {
            row["id"]: row
            for first in range(0, len(ids), 100)
            for row in source.messages(ids[first : first + 100])
        }
        routes = source.routes()
        list(source.model_usage())
        damage = source.damage_found()
        source.finish()
        return Read(sessions, messages, routes, list(source.lost), damage)


def state(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


@pytest.fixture
def database(hermes_home: Path) -> Path:
    return hermes_home / "state.db"


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(hermes_home: Path, scratch: Path) -> Iterator[None]:
    yield
    names = {path.name for path in hermes_home.iterdir()}

    assert names <= {"state.db", "sessions", "truth.json", "state.db-wal", "state.db-shm",
                     "state.db-journal"}  # fmt: skip
    assert not scratch.exists() or not list(scratch.iterdir())


def change(database: Path, *statements: str) -> None:
    db = apsw.Connection(str(database))
    try:
        for statement in statements:
            db.execute(statement)
    finally:
        db.close()


def elsewhere(script: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Hermes' side: the standard library's SQLite, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


IN_THE_WAL = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA journal_mode = wal")
db.execute("PRAGMA wal_autocheckpoint = 0")
db.execute("INSERT INTO messages (session_id, role, content, timestamp)"
           " SELECT id, 'user', 'only in the wal', 1.5 FROM sessions LIMIT 1")
db.commit()
print("ready", flush=True)
sys.stdin.readline()
if sys.argv[2] == "kill":
    os.kill(os.getpid(), 9)
db.close()
"""


class TestAHomeThatIsSound:
    def test_every_row_comes_in_and_nothing_is_reported(self, hermes_home: Path, scratch: Path) -> None:
        before = state(hermes_home)
        found = read(hermes_home, scratch)

        assert (len(found.sessions), len(found.messages)) == (SESSIONS, MESSAGES)
        assert len(found.routes) == ROUTES
        assert (found.lost, found.damage) == ([], [])
        assert state(hermes_home) == before

    def test_rows_bear_the_columns_that_the_tables_have(self, hermes_home: Path, scratch: Path) -> None:
        with HermesHome.open(hermes_home, scratch) as source:
            row = next(source.sessions())
            [message] = source.messages([1])
            mirror = source.mirror()

            assert source.schema_version == 22
            assert source.path == hermes_home.resolve()
            assert tuple(row) == source.columns("sessions")
            assert tuple(message) == source.columns("messages")
            assert isinstance(row["started_at"], float)
            assert source.system_prompts() == {}
            assert mirror.present
            assert len(mirror.entries) == ROUTES
            assert mirror.problems == []

    def test_messages_come_in_the_order_that_was_asked_for(self, hermes_home: Path, scratch: Path) -> None:
        with HermesHome.open(hermes_home, scratch) as source:
            asked = [900, 3, 4, 5, 6, 450, 2, 899]

            assert [row["id"] for row in source.messages(asked)] == asked
            assert [row["id"] for row in source.messages(range(10, 30))] == list(range(10, 30))
            assert source.messages([]) == []

    def test_heads_come_by_id_with_session_and_time(self, hermes_home: Path, scratch: Path) -> None:
        with HermesHome.open(hermes_home, scratch) as source:
            heads = list(source.message_heads())
            rows = source.messages([head[0] for head in heads])

            assert heads == [(row["id"], row["session_id"], row["timestamp"]) for row in rows]
            assert [head[0] for head in heads] == sorted(head[0] for head in heads)

    def test_a_path_of_strange_characters_is_opened(
        self, hermes_home: Path, scratch: Path, tmp_path: Path
    ) -> None:
        strange = tmp_path / "a ?mode=rw&x#y %41 mañana 家"
        shutil.copytree(hermes_home, strange)
        before = state(strange)

        assert len(read(strange, scratch).messages) == MESSAGES
        assert state(strange) == before

    def test_a_file_name_that_is_no_utf8_is_opened(
        self, hermes_home: Path, scratch: Path, tmp_path: Path
    ) -> None:
        strange = os.fsencode(tmp_path) + b"/caf\xe9"
        try:
            shutil.copytree(hermes_home, os.fsdecode(strange))
        except OSError:
            pytest.skip("this file system takes no name that is no UTF-8, so nobody can have such a home")

        assert len(read(Path(os.fsdecode(strange)), scratch).messages) == MESSAGES

    def test_a_database_behind_a_link_is_read_with_its_own_sidecars(
        self, hermes_home: Path, scratch: Path, tmp_path: Path
    ) -> None:
        linked = tmp_path / "linked"
        linked.mkdir()
        (linked / "state.db").symlink_to(hermes_home / "state.db")

        assert len(read(linked, scratch).messages) == MESSAGES
        assert [path.name for path in linked.iterdir()] == ["state.db"]


class TestAHomeInUse:
    def test_a_clean_wal_home_keeps_its_folder_as_it_was(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        elsewhere(IN_THE_WAL, database, "close").communicate("\n")
        before = state(hermes_home)

        assert len(read(hermes_home, scratch).messages) == MESSAGES + 1
        assert state(hermes_home) == before
        assert "state.db-wal" not in before

    def test_a_live_wal_is_read_and_its_writer_goes_on(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        with elsewhere(IN_THE_WAL, database, "close") as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            before = state(hermes_home)
            found = read(hermes_home, scratch)

            assert found.messages[MESSAGES + 1]["content"] == "only in the wal"
            assert (found.lost, found.damage) == ([], [])
            assert state(hermes_home) == before
            writer.communicate("\n")
        assert writer.returncode == 0

    def test_a_writer_that_leaves_meanwhile_changes_nothing_for_the_reader(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        with elsewhere(IN_THE_WAL, database, "close") as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            with HermesHome.open(hermes_home, scratch) as source:
                heads = source.message_heads()
                next(heads)
                writer.communicate("\n")

                assert 1 + sum(1 for _ in heads) == MESSAGES + 1
                source.finish()

    def test_the_sidecars_of_a_killed_process_are_read_and_not_mended(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        elsewhere(IN_THE_WAL, database, "kill").communicate("\n")
        before = state(hermes_home)

        assert {"state.db-wal", "state.db-shm"} < set(before)
        assert len(read(hermes_home, scratch).messages) == MESSAGES + 1
        assert state(hermes_home) == before

    @pytest.mark.parametrize("links", [True, False])
    def test_a_crash_copy_with_a_wal_but_no_index_gets_none(
        self,
        hermes_home: Path,
        database: Path,
        scratch: Path,
        monkeypatch: pytest.MonkeyPatch,
        links: bool,
    ) -> None:
        elsewhere(IN_THE_WAL, database, "kill").communicate("\n")
        (hermes_home / "state.db-shm").unlink()
        before = state(hermes_home)
        if not links:
            monkeypatch.setattr(os, "link", _no_links)

        assert len(read(hermes_home, scratch).messages) == MESSAGES + 1
        assert state(hermes_home) == before

    def test_a_hot_journal_is_rolled_back_in_a_copy(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        script = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = delete")
db.execute("PRAGMA cache_size = 5")
db.execute("BEGIN")
db.execute("UPDATE messages SET content = 'never committed'")
os.kill(os.getpid(), 9)
"""
        elsewhere(script, database).communicate()
        before = state(hermes_home)
        found = read(hermes_home, scratch)

        assert "state.db-journal" in before
        assert b"never committed" in database.read_bytes()
        assert len(found.messages) == MESSAGES
        assert not [m for m in found.messages.values() if m["content"] == "never committed"]
        assert state(hermes_home) == before

    def test_a_file_that_is_written_meanwhile_is_found_out(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        with HermesHome.open(hermes_home, scratch) as source:
            list(source.sessions())
            elsewhere(IN_THE_WAL, database, "close").communicate("\n")

            with pytest.raises(SourceChanged, match=r"state\.db was written while"):
                source.finish()

    @pytest.mark.parametrize("sidecars", ["none", "wal", "wal and shm"])
    def test_a_folder_that_cannot_be_written_is_read(
        self, hermes_home: Path, database: Path, scratch: Path, sidecars: str
    ) -> None:
        if sidecars != "none":
            elsewhere(IN_THE_WAL, database, "kill").communicate("\n")
        if sidecars == "wal":
            (hermes_home / "state.db-shm").unlink()
        for path in (*hermes_home.rglob("*"), hermes_home):
            path.chmod(0o555 if path.is_dir() else 0o444)
        script = """
import ctypes, os, sys
from pathlib import Path
from retold.infrastructure.importers.hermes_home import HermesHome
if os.geteuid() == 0 and sys.platform == "linux":  # even root obeys the modes without capabilities
    ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
home = Path(sys.argv[1])
assert not os.access(home, os.W_OK)
with HermesHome.open(home, Path(sys.argv[2])) as source:
    print(sum(1 for _ in source.message_heads()), source.damage_found(), source.lost)
    source.finish()
"""
        before = state(hermes_home)
        out, _ = elsewhere(script, hermes_home, scratch).communicate()
        hermes_home.chmod(0o755)

        assert out.strip() == f"{MESSAGES + (sidecars != 'none')} [] []"
        assert state(hermes_home) == before

    @pytest.mark.parametrize("index", [b"", b"x" * 100, b"\xa5" * 32768])
    def test_a_wal_index_without_sense_is_passed_by(
        self, hermes_home: Path, database: Path, scratch: Path, index: bytes
    ) -> None:
        elsewhere(IN_THE_WAL, database, "kill").communicate("\n")
        (hermes_home / "state.db-shm").write_bytes(index)
        before = state(hermes_home)

        assert len(read(hermes_home, scratch).messages) == MESSAGES + 1
        assert state(hermes_home) == before

    @pytest.mark.parametrize("index", [None, b""])
    def test_a_wal_without_sense_is_passed_by(
        self, hermes_home: Path, scratch: Path, index: bytes | None
    ) -> None:
        (hermes_home / "state.db-wal").write_bytes(b"\xa5" * 5000)
        if index is not None:
            (hermes_home / "state.db-shm").write_bytes(index)
        before = state(hermes_home)
        found = read(hermes_home, scratch)

        assert len(found.messages) == MESSAGES
        assert found.damage == ["state.db-wal is damaged: whatever it held cannot be read"]
        assert state(hermes_home) == before

    def test_the_wal_of_an_emptied_database_is_not_deleted(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        elsewhere(IN_THE_WAL, database, "kill").communicate("\n")
        os.truncate(database, 0)
        before = state(hermes_home)

        with pytest.raises(NotAStore, match="holds no sessions table"):
            HermesHome.open(hermes_home, scratch)
        assert state(hermes_home) == before

    @pytest.mark.parametrize("index", [True, False])
    def test_a_commit_that_a_damaged_wal_hides_is_reported(
        self, hermes_home: Path, database: Path, scratch: Path, index: bool
    ) -> None:
        elsewhere(IN_THE_WAL, database, "kill").communicate("\n")
        if not index:
            (hermes_home / "state.db-shm").unlink()
        with (hermes_home / "state.db-wal").open("r+b") as wal:
            wal.seek(500)
            wal.write(b"\xa5" * 8)
        found = read(hermes_home, scratch)

        assert len(found.messages) == MESSAGES
        assert found.damage == ["the write-ahead log is damaged: its last 1 commits cannot be read"]

    def test_a_database_that_is_held_exclusively_is_busy(
        self, hermes_home: Path, database: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA locking_mode = exclusive")
db.execute("PRAGMA wal_autocheckpoint = 0")
db.execute("UPDATE sessions SET archived = 1")
print("ready", flush=True)
sys.stdin.readline()
"""
        monkeypatch.setattr(source_file, "BUSY_TIMEOUT_MS", 1)
        with elsewhere(script, database) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            with pytest.raises(StoreBusy, match="held by another program"):
                HermesHome.open(hermes_home, scratch)
            writer.communicate("\n")


def _no_links(*_: object) -> None:
    raise OSError(18, "Invalid cross-device link")


class TestDamage:
    @pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
    def test_around_a_damaged_page_of_messages_all_else_comes_in(
        self, hermes_home: Path, database: Path, scratch: Path, where: float
    ) -> None:
        sound = read(hermes_home, scratch)
        leaves = tree(database, "messages").leaves
        page = leaves[int(where * (len(leaves) - 1))]
        gone = rowids(database, page)
        overwrite(database, page)
        before = state(hermes_home)
        found = read(hermes_home, scratch)

        assert gone
        assert found.messages == {i: m for i, m in sound.messages.items() if i not in gone}
        assert found.sessions == sound.sessions
        assert named(found.lost, "messages") == {i: sound.messages[i]["session_id"] for i in gone}
        assert "table messages is damaged" in found.damage
        assert state(hermes_home) == before

    def test_several_damaged_pages_hide_nothing_between_them(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        leaves = tree(database, "messages").leaves[10:20:2]
        gone = {i for page in leaves for i in rowids(database, page)}
        for page in leaves:
            overwrite(database, page)
        found = read(hermes_home, scratch)

        assert set(found.messages) == set(range(1, MESSAGES + 1)) - gone
        assert set(named(found.lost, "messages")) == gone

    def test_a_damaged_page_of_routes_is_named_with_its_keys(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        sound = read(hermes_home, scratch)
        page = tree(database, "gateway_routing").leaves[0]
        gone = rowids(database, page)
        overwrite(database, page)
        found = read(hermes_home, scratch)
        keys = [str(row["session_key"]) for place, row in enumerate(sound.routes, 1) if place in gone]

        assert found.routes == [r for place, r in enumerate(sound.routes, 1) if place not in gone]
        assert all(any(key in each.detail for each in found.lost) for key in keys)
        assert [each.session_id for each in found.lost] == [None] * len(keys)

    def test_around_a_damaged_page_of_sessions_all_else_comes_in(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        sound = read(hermes_home, scratch)
        page = tree(database, "sessions").leaves[3]
        gone = rowids(database, page)
        ids = [session_id for place, session_id in enumerate(sound.sessions, 1) if place in gone]
        overwrite(database, page)
        found = read(hermes_home, scratch)

        assert set(found.sessions) == set(sound.sessions) - set(ids)
        assert found.messages == sound.messages
        assert sorted(each.session_id or "" for each in found.lost) == sorted(ids)

    @pytest.mark.parametrize(
        "index", ["idx_messages_session", "sqlite_autoindex_sessions_1", "idx_sessions_source"]
    )
    def test_a_damaged_index_costs_nothing_and_is_named(
        self, hermes_home: Path, database: Path, scratch: Path, index: str
    ) -> None:
        overwrite(database, tree(database, index).leaves[0])
        found = read(hermes_home, scratch)

        assert (len(found.sessions), len(found.messages)) == (SESSIONS, MESSAGES)
        assert found.lost == []
        assert [sentence for sentence in found.damage if index in sentence]

    @pytest.mark.parametrize("index", ["messages_fts", "messages_fts_trigram"])
    def test_a_damaged_search_index_costs_nothing_and_is_named(
        self, hermes_home: Path, database: Path, scratch: Path, index: str
    ) -> None:
        page = tree(database, f"{index}_data").leaves[6]
        overwrite(database, page, at=500, garbage=random.Random(1).randbytes(900))
        found = read(hermes_home, scratch)

        assert (len(found.sessions), len(found.messages)) == (SESSIONS, MESSAGES)
        assert found.lost == []
        assert [sentence for sentence in found.damage if f"search index {index} is" in sentence]

    def test_one_bit_in_a_search_index_is_found(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        flip(database, tree(database, "messages_fts_data").leaves[10], at=2000)
        found = read(hermes_home, scratch)

        assert [each for each in found.damage if "the search index messages_fts is" in each]

    def test_when_table_and_index_are_damaged_at_once_the_range_is_named(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        page = tree(database, "messages").leaves[40]
        gone = rowids(database, page)
        for index in ("idx_messages_session", "idx_messages_session_active"):
            overwrite(database, tree(database, index).root)
        overwrite(database, page)
        found = read(hermes_home, scratch)
        [lost] = found.lost

        assert set(found.messages) == set(range(1, MESSAGES + 1)) - set(gone)
        assert (lost.first, lost.last) == (min(gone), max(gone))
        assert (lost.session_id, lost.rows) == (None, None)

    def test_around_and_below_a_damaged_inner_page_all_comes_in(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        change(database, "PRAGMA journal_mode = delete", "PRAGMA page_size = 512", "VACUUM")  # a deeper tree
        pages = tree(database, "messages")
        inner = next(page for page in pages.interior if page != pages.root)
        overwrite(database, inner)
        found = read(hermes_home, scratch)

        assert list(found.messages) == list(range(1, MESSAGES + 1))
        assert found.lost == []
        assert [each for each in found.damage if each.startswith("an inner page of messages is damaged; ")]

    def test_a_table_without_any_page_is_lost_in_one_sentence(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        pages = tree(database, "messages")
        for page in pages.interior + pages.leaves:
            overwrite(database, page)
        found = read(hermes_home, scratch)
        whole = Lost("messages", 1, MESSAGES, None, "the whole table is unreadable", MESSAGES)

        assert len(found.sessions) == SESSIONS
        assert found.messages == {}
        assert found.lost == [whole]

    def test_a_message_whose_text_runs_into_a_damaged_page_is_named(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        change(database, f"UPDATE messages SET content = '{'long ' * 9000}' WHERE id = 400")
        page = tree(database, "messages").overflow[-1]
        for each in tree(database, "messages").overflow:
            with database.open("rb") as file:
                file.seek((each - 1) * page_size(database) + 4)
                if file.read(10) in b"long long long " * 2:
                    page = each
                    break
        overwrite(database, page)
        found = read(hermes_home, scratch)

        assert set(range(1, MESSAGES + 1)) - set(found.messages) == {400}
        assert list(named(found.lost, "messages")) == [400]

    def test_a_letter_that_changed_is_found_by_the_copy_in_the_search_index(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        sound = read(hermes_home, scratch)
        page = tree(database, "messages").leaves[20]
        texts = (str(sound.messages[i]["content"])[:40] for i in rowids(database, page))
        change_bytes(database, page, _once_on(database, page, texts), b"\0" * 6)
        found = read(hermes_home, scratch)

        assert len(found.messages) == MESSAGES
        assert [each for each in found.damage if "its text and the copy" in each]

    def test_a_session_id_that_changed_is_corrected_by_the_index(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        sound = read(hermes_home, scratch)
        page = tree(database, "sessions").leaves[2]
        ids = [list(sound.sessions)[rowid - 1] for rowid in rowids(database, page)]
        wanted = _once_on(database, page, ids).decode()
        change_bytes(database, page, wanted.encode(), b"?" + wanted[1:].encode())
        found = read(hermes_home, scratch)

        assert set(found.sessions) == set(sound.sessions)
        assert [each for each in found.damage if each.startswith(f"session {wanted}: ")]

    def test_a_message_of_a_session_that_nobody_knows_is_corrected_by_the_index(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        sound = read(hermes_home, scratch)
        page = tree(database, "messages").leaves[30]
        owner = str(sound.messages[rowids(database, page)[-1]]["session_id"]).encode()
        at = _content(database, page).index(owner)
        overwrite(database, page, at=at, garbage=b"?")
        found = read(hermes_home, scratch)

        assert found.messages == sound.messages
        assert [each for each in found.damage if "the row says session" in each]

    @pytest.mark.parametrize("kept", [0.9, 0.5, 0.2])
    def test_a_file_that_was_cut_off_gives_what_is_left(
        self, hermes_home: Path, database: Path, scratch: Path, kept: float
    ) -> None:
        os.truncate(database, int(database.stat().st_size * kept))
        found = read(hermes_home, scratch)
        missing = set(range(1, MESSAGES + 1)) - set(found.messages)

        assert len(found.sessions) == SESSIONS
        assert missing <= set(named(found.lost, "messages"))
        assert any("cut off" in each for each in found.damage)

    def test_a_damaged_schema_gives_the_tables_that_it_still_shows(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        first, *others = tree(database, "sqlite_schema").leaves
        del first
        overwrite(database, others[0])
        found = read(hermes_home, scratch)

        assert (len(found.sessions), len(found.messages)) == (SESSIONS, MESSAGES)
        assert [each.table for each in found.lost] == ["gateway_routing"]

    @pytest.mark.parametrize("seed", range(40))
    def test_whatever_is_damaged_each_row_is_read_or_named(
        self, hermes_home: Path, database: Path, scratch: Path, seed: int
    ) -> None:
        dice = random.Random(seed)
        name = dice.choice(["messages", "sessions", "idx_messages_session", "messages_fts_data"])
        pages = tree(database, name)
        kind = dice.choice(["leaves", "leaves", "overflow", "interior"])
        page = dice.choice(getattr(pages, kind) or pages.leaves)
        hit = dice.choice([_garble_head, _garble_middle, _empty, _flip_some])
        hit(database, page, dice)
        found = read(hermes_home, scratch)
        missing = set(range(1, MESSAGES + 1)) - set(found.messages)

        assert missing <= set(named(found.lost, "messages"))
        assert len(found.sessions) + _count(found.lost, "sessions") >= SESSIONS


def _garble_head(database: Path, page: int, dice: random.Random) -> None:
    overwrite(database, page, garbage=GARBAGE)


def _garble_middle(database: Path, page: int, dice: random.Random) -> None:
    overwrite(database, page, at=dice.randrange(3500), garbage=dice.randbytes(500))


def _empty(database: Path, page: int, dice: random.Random) -> None:
    overwrite(database, page, garbage=bytes(page_size(database)))


def _flip_some(database: Path, page: int, dice: random.Random) -> None:
    for _ in range(3):
        flip(database, page, at=dice.randrange(60), bit=dice.randrange(8))


def _count(lost: list[Lost], table: str) -> int:
    return sum(each.rows or SESSIONS for each in lost if each.table == table)


def named(lost: list[Lost], table: str) -> dict[int, str | None]:
    return {
        rowid: each.session_id
        for each in lost
        if each.table == table and each.first is not None and each.last is not None
        for rowid in range(each.first, each.last + 1)
    }


def change_bytes(database: Path, page: int, old: bytes, new: bytes) -> None:
    content = _content(database, page)
    assert content.count(old) == 1
    overwrite(database, page, at=content.index(old), garbage=new)


def _content(database: Path, page: int) -> bytes:
    size = page_size(database)
    return database.read_bytes()[(page - 1) * size : page * size]


def _once_on(database: Path, page: int, texts: Iterable[object]) -> bytes:
    """The first of the texts that stands on the page exactly once."""
    content = _content(database, page)
    encoded = (str(text).encode() for text in texts if text)
    return next(each for each in encoded if content.count(each) == 1)


class TestOddContent:
    def test_values_come_in_as_they_are(self, hermes_home: Path, database: Path, scratch: Path) -> None:
        change(
            database,
            "UPDATE messages SET content = CAST(x'6162ff00636400' AS TEXT) WHERE id = 1",
            "UPDATE messages SET content = x'00ff10' WHERE id = 2",
            "UPDATE messages SET content = 'a' || char(0) || 'b' || char(0) WHERE id = 3",
            "UPDATE messages SET timestamp = 'yesterday', token_count = 'many' WHERE id = 4",
            "UPDATE messages SET token_count = 9223372036854775807, timestamp = 0.1 WHERE id = 5",
            "UPDATE messages SET content = NULL, timestamp = 1e999 WHERE id = 6",
            "UPDATE sessions SET title = CAST(x'ff' AS TEXT) WHERE rowid = 1",
        )
        found = read(hermes_home, scratch)
        rows = found.messages

        assert rows[1]["content"] == RawText(b"ab\xff\0cd\0")
        assert rows[2]["content"] == b"\0\xff\x10"
        assert rows[3]["content"] == "a\0b\0"
        assert (rows[4]["timestamp"], rows[4]["token_count"]) == ("yesterday", "many")
        assert (rows[5]["timestamp"], rows[5]["token_count"]) == (0.1, 2**63 - 1)
        assert (rows[6]["content"], rows[6]["timestamp"]) == (None, float("inf"))
        assert next(iter(found.sessions.values()))["title"] == RawText(b"\xff")
        assert found.lost == []

    def test_missing_and_extra_columns_and_tables_are_as_they_are(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        change(
            database,
            "ALTER TABLE messages DROP COLUMN api_content",
            "ALTER TABLE sessions DROP COLUMN archived",
            "ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 1",
            "CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, prompt TEXT) WITHOUT ROWID",
            "INSERT INTO system_prompts VALUES ('h', 'be kind')",
            "DROP TABLE gateway_routing",
            "DROP TABLE session_model_usage",
            "UPDATE schema_version SET version = 30",
        )
        with HermesHome.open(hermes_home, scratch) as source:
            row = next(source.sessions())

            assert "archived" not in row
            assert row["pinned"] == 1
            assert "api_content" not in source.messages([1])[0]
            assert source.system_prompts() == {"h": "be kind"}
            assert (source.routes(), list(source.model_usage())) == ([], [])
            assert source.schema_version == 30
            assert source.lost == []

    def test_a_store_of_sessions_alone_has_no_messages(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        change(database, "DROP TABLE messages", "DROP TABLE schema_version")
        with HermesHome.open(hermes_home, scratch) as source:
            assert len(list(source.sessions())) == SESSIONS
            assert list(source.message_heads()) == []
            assert source.schema_version is None

    def test_phantom_rows_are_skipped_and_counted(
        self, hermes_home: Path, database: Path, scratch: Path
    ) -> None:
        change(
            database,
            "CREATE TABLE copied AS SELECT * FROM messages ORDER BY id DESC",
            "DROP TABLE messages",
            "ALTER TABLE copied RENAME TO messages",
            "UPDATE messages SET id = NULL WHERE id = 7",
            "UPDATE messages SET session_id = NULL WHERE id IN (8, 9, 90)",
            "INSERT INTO sessions (id, source, started_at) VALUES (NULL, 'cli', 1)",
        )
        with HermesHome.open(hermes_home, scratch) as source:
            sessions = list(source.sessions())
            heads = list(source.message_heads())
            rows = source.messages([10, 914, 11])
            counts = [(each.table, each.rows) for each in source.lost]

            assert (len(sessions), len(heads)) == (SESSIONS, MESSAGES - 4)
            assert [row["id"] for row in rows] == [10, 914, 11]
            assert counts == [("sessions", 1), ("messages", 1), ("messages", 3)]

    def test_megabyte_messages_come_whole(self, hermes_home: Path, database: Path, scratch: Path) -> None:
        change(database, "UPDATE messages SET content = hex(zeroblob(2000000)) WHERE id = 5")

        assert read(hermes_home, scratch).messages[5]["content"] == "0" * 4_000_000


class TestTheMirror:
    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"", "no JSON"),
            (b"{", "no JSON"),
            (b"[" * 100_000, "no JSON"),
            (b"\xff\xfe", "no UTF-8"),
            (b"[1]", "no object"),
        ],
    )
    def test_what_cannot_be_read_is_named(self, tmp_path: Path, content: bytes, problem: str) -> None:
        (tmp_path / "sessions.json").write_bytes(content)
        mirror = read_mirror(tmp_path / "sessions.json")

        assert mirror.present
        assert mirror.entries == {}
        assert problem in mirror.problems[0]

    def test_broken_entries_are_named_and_the_others_come_in(self, tmp_path: Path) -> None:
        entries = {"_README": "…", "a": {"session_id": "s"}, "b": "gone", "c": None}
        (tmp_path / "sessions.json").write_text(json.dumps(entries))
        mirror = read_mirror(tmp_path / "sessions.json")

        assert mirror.entries == {"a": {"session_id": "s"}}
        assert [problem.split(": ")[1] for problem in mirror.problems] == [
            "the entry b is no object",
            "the entry c is no object",
        ]

    def test_a_missing_file_is_no_problem(self, tmp_path: Path) -> None:
        mirror = read_mirror(tmp_path / "sessions.json")

        assert (mirror.present, mirror.entries, mirror.problems) == (False, {}, [])


class TestWhatIsNoStore:
    @pytest.mark.parametrize(
        ("make", "sentence"),
        [
            (lambda home: None, "no such folder"),
            (lambda home: home.write_text("x"), "is a file, not a Hermes home"),
            (lambda home: home.mkdir(), "holds no state.db"),
            (lambda home: (home / "state.db").mkdir(parents=True), "holds no state.db"),
            (lambda home: _mirror_only(home), "only sessions/sessions.json"),
            (lambda home: _database(home, b"some text" * 900), "is no SQLite database"),
            (lambda home: _database(home, b""), "holds no sessions table"),
            (lambda home: _database(home, b"SQLite format 3\0" + b"\xee" * 9000), "database"),
            (lambda home: _other_tables(home), "holds no sessions table"),
        ],
    )
    def test_it_is_refused_in_one_sentence_and_nothing_is_created(
        self, tmp_path: Path, scratch: Path, make: Callable[[Path], object], sentence: str
    ) -> None:
        home = tmp_path / "some home"
        make(home)
        before = state(tmp_path)

        with pytest.raises(NotAStore, match=sentence) as refusal:
            HermesHome.open(home, scratch)
        assert isinstance(refusal.value, RetoldError)
        assert "\n" not in refusal.value.message
        assert refusal.value.exit_code == 2
        assert state(tmp_path) == before


def _mirror_only(home: Path) -> None:
    (home / "sessions").mkdir(parents=True)
    (home / "sessions" / "sessions.json").write_text("{}")


def _database(home: Path, content: bytes) -> None:
    home.mkdir()
    (home / "state.db").write_bytes(content)


def _other_tables(home: Path) -> None:
    home.mkdir()
    change(home / "state.db", "CREATE TABLE notes (id)")


def test_the_pages_of_a_tree_are_found(database: Path) -> None:
    pages: Tree = tree(database, "messages")

    assert pages.root in pages.interior
    assert sum(len(rowids(database, page)) for page in pages.leaves) == MESSAGES
