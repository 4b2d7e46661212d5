"""Where the inner pages of a table are damaged, its rows are read from its leaves.

One long file, since every test in it damages the same fixture and asks for the same rows.

Over 400 lines because every test harms the same tables at another place.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from retold.infrastructure.importers.hermes_home import HermesHome
from retold.infrastructure.importers.hermes_reader import RawText, Row
from retold.infrastructure.importers.pages import Pages, signed, varint

from .damage import GARBAGE, flip, overwrite, page_size, rowids, tree
from .test_hermes_reader import MESSAGES, SESSIONS, Read, elsewhere, named, read, state

FLIPS = 200


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


@pytest.fixture
def database(hermes_home: Path) -> Path:
    return hermes_home / "state.db"


def statements(database: Path, *sql: str) -> None:
    """Change a home as Hermes would: with the standard library's SQLite, in a process of its own."""
    script = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    db.execute(statement)
db.close()
"""
    subprocess.run([sys.executable, "-c", script, database, *sql], check=True)


def more_messages(count: int) -> str:
    return (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        " INSERT INTO messages (session_id, role, content, timestamp)"
        " SELECT (SELECT id FROM sessions LIMIT 1), 'user', 'more ' || i || hex(zeroblob(i % 600)), i FROM n"
    )


def pieces(database: Path, page: int) -> None:
    """Flip some bits all over a page, its head among them."""
    dice = random.Random(page)
    for at in (0, *dice.sample(range(1, page_size(database)), 40)):
        flip(database, page, at=at, bit=dice.randrange(8))


def garbled(database: Path, page: int) -> None:
    overwrite(database, page, garbage=GARBAGE)


def emptied(database: Path, page: int) -> None:
    overwrite(database, page, garbage=bytes(page_size(database)))


HITS = [pieces, garbled, emptied]


def assert_nothing_is_lost(found: Read, sound: Read, table: str) -> None:
    assert found.messages == sound.messages
    assert list(found.messages) == list(sound.messages)
    assert found.sessions == sound.sessions
    assert list(found.sessions) == list(sound.sessions)
    assert found.routes == sound.routes
    assert found.lost == []
    assert [each for each in found.damage if each.startswith(f"an inner page of {table} is damaged; ")]


@pytest.mark.parametrize("hit", HITS)
@pytest.mark.parametrize("table", ["messages", "sessions"])
def test_below_a_damaged_root_every_row_comes_in(
    hermes_home: Path,
    database: Path,
    scratch: Path,
    table: str,
    hit: Callable[[Path, int], None],
) -> None:
    sound = read(hermes_home, scratch)
    hit(database, tree(database, table).root)
    before = state(hermes_home)
    found = read(hermes_home, scratch)
    rows = {"messages": MESSAGES, "sessions": SESSIONS}[table]

    assert_nothing_is_lost(found, sound, table)
    assert f"an inner page of {table} is damaged; {rows} rows were read from its leaves" in found.damage
    assert f"table {table} is damaged" in found.damage
    assert state(hermes_home) == before


@pytest.mark.parametrize("table", ["gateway_routing", "session_model_usage"])
def test_routes_and_usage_come_in_below_a_damaged_root(
    hermes_home: Path, database: Path, scratch: Path, table: str
) -> None:
    with HermesHome.open(hermes_home, scratch) as source:
        sound = source.routes(), list(source.model_usage())
    pages = tree(database, table)
    garbled(database, pages.root)

    assert pages.interior
    with HermesHome.open(hermes_home, scratch) as source:
        assert (source.routes(), list(source.model_usage())) == sound
        assert source.lost == []


def test_both_roots_damaged_at_once_cost_nothing(hermes_home: Path, database: Path, scratch: Path) -> None:
    sound = read(hermes_home, scratch)
    roots = [tree(database, table).root for table in ("messages", "sessions")]
    for root in roots:
        garbled(database, root)
    found = read(hermes_home, scratch)

    assert_nothing_is_lost(found, sound, "messages")
    assert_nothing_is_lost(found, sound, "sessions")


@pytest.fixture(scope="module")
def deep_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose messages have two levels of inner pages."""
    from ..conftest import FIXTURES

    home = Path(shutil.copytree(FIXTURES / "hermes-home", tmp_path_factory.mktemp("deep") / "home"))
    statements(
        home / "state.db",
        "PRAGMA journal_mode = delete",
        "DROP TRIGGER messages_fts_insert",
        "DROP TRIGGER messages_fts_trigram_insert",
        "PRAGMA page_size = 1024",
        "VACUUM",
        more_messages(12_000),
    )
    return home


@pytest.mark.parametrize(("which", "hit"), [("first", garbled), ("middle", pieces), ("last", emptied)])
def test_below_a_damaged_page_of_the_second_level_every_row_comes_in(
    deep_home: Path, tmp_path: Path, scratch: Path, which: str, hit: Callable[[Path, int], None]
) -> None:
    home = Path(shutil.copytree(deep_home, tmp_path / "home"))
    pages = tree(home / "state.db", "messages")
    inner = [page for page in pages.interior if page != pages.root]
    sound = read(home, scratch)
    hit(home / "state.db", inner[{"first": 0, "middle": len(inner) // 2, "last": -1}[which]])
    found = read(home, scratch)

    assert len(inner) > 2
    assert len(sound.messages) == MESSAGES + 12_000
    assert_nothing_is_lost(found, sound, "messages")


def test_a_leaf_lost_together_with_the_root_is_named(
    hermes_home: Path, database: Path, scratch: Path
) -> None:
    sound = read(hermes_home, scratch)
    pages = tree(database, "messages")
    gone = rowids(database, pages.leaves[20])
    garbled(database, pages.root)
    garbled(database, pages.leaves[20])
    found = read(hermes_home, scratch)

    assert found.messages == {i: row for i, row in sound.messages.items() if i not in gone}
    assert named(found.lost, "messages") == {i: sound.messages[i]["session_id"] for i in gone}
    assert {each.detail for each in found.lost} == {"on a damaged page"}


def test_without_an_index_the_places_of_lost_leaves_are_named(
    hermes_home: Path, database: Path, scratch: Path
) -> None:
    pages = tree(database, "messages")
    gone = rowids(database, pages.leaves[20]) + rowids(database, pages.leaves[-1])
    broken = [tree(database, name).root for name in ("idx_messages_session", "idx_messages_session_active")]
    for page in (pages.root, pages.leaves[20], pages.leaves[-1], *broken):
        garbled(database, page)
    found = read(hermes_home, scratch)

    assert set(found.messages) == set(range(1, MESSAGES + 1)) - set(gone)
    assert set(named(found.lost, "messages")) == set(gone)


@pytest.mark.parametrize("index", ["idx_messages_session", "sqlite_autoindex_sessions_1"])
def test_a_damaged_root_of_an_index_costs_nothing(
    hermes_home: Path, database: Path, scratch: Path, index: str
) -> None:
    sound = read(hermes_home, scratch)
    pieces(database, tree(database, index).root)
    found = read(hermes_home, scratch)

    assert (found.messages, found.sessions, found.lost) == (sound.messages, sound.sessions, [])
    assert [each for each in found.damage if index in each]


@pytest.mark.parametrize("index", ["sound", "damaged"])
def test_deleted_rows_on_free_pages_stay_deleted(
    hermes_home: Path, database: Path, scratch: Path, index: str
) -> None:
    statements(database, "PRAGMA secure_delete = OFF", "DELETE FROM messages WHERE id BETWEEN 200 AND 700")
    sound = read(hermes_home, scratch)
    if index == "damaged":
        for name in ("idx_messages_session", "idx_messages_session_active"):
            garbled(database, tree(database, name).root)
    garbled(database, tree(database, "messages").root)
    found = read(hermes_home, scratch)

    assert free_pages(database) > 50
    assert len(sound.messages) == MESSAGES - 501
    assert found.messages == sound.messages
    assert found.sessions == sound.sessions
    assert found.lost == []


def test_rows_that_cannot_be_told_from_deleted_ones_are_left_out_and_counted(
    hermes_home: Path, database: Path, scratch: Path
) -> None:
    statements(database, "PRAGMA secure_delete = OFF", "DELETE FROM messages WHERE id BETWEEN 200 AND 700")
    sound = read(hermes_home, scratch)
    with database.open("rb") as file:
        file.seek(32)
        trunk = int.from_bytes(file.read(4), "big")
    garbled(database, trunk)
    garbled(database, tree(database, "messages").root)
    found = read(hermes_home, scratch)

    assert found.messages == sound.messages
    assert [each.rows for each in found.lost if "left out" in each.detail] != []


def free_pages(database: Path) -> int:
    return int.from_bytes(database.read_bytes()[36:40], "big")


def test_values_of_every_kind_come_from_leaves_as_they_do_from_sqlite(
    hermes_home: Path, database: Path, scratch: Path
) -> None:
    statements(
        database,
        "UPDATE messages SET content = hex(zeroblob(524288)) WHERE id = 5",
        "UPDATE messages SET content = CAST(x'6162ff00636400' AS TEXT) WHERE id = 6",
        "UPDATE messages SET content = x'00ff10' WHERE id = 7",
        "UPDATE messages SET content = 'a' || char(0) || 'b家' WHERE id = 8",
        "UPDATE messages SET timestamp = 'yesterday', token_count = 'many' WHERE id = 9",
        "UPDATE messages SET token_count = 9223372036854775807, timestamp = 12 WHERE id = 10",
        "UPDATE messages SET token_count = -129, timestamp = 1e999 WHERE id = 11",
        "UPDATE messages SET token_count = 1.5, observed = -8388609, compacted = 1 WHERE id = 12",
        "ALTER TABLE messages ADD COLUMN pinned INTEGER NOT NULL DEFAULT -7",
        "ALTER TABLE messages ADD COLUMN weight REAL DEFAULT 2",
        "ALTER TABLE messages ADD COLUMN note TEXT DEFAULT 'it''s'",
        "INSERT INTO messages (id, session_id, role, timestamp, note)"
        " SELECT 5000000000, id, 'user', 3, 'new' FROM sessions LIMIT 1",
        "INSERT INTO messages (id, session_id, role, timestamp)"
        " SELECT -3, id, 'user', 3 FROM sessions LIMIT 1",
    )
    sound = read(hermes_home, scratch)
    garbled(database, tree(database, "messages").root)
    found = read(hermes_home, scratch)
    rows = found.messages

    assert_nothing_is_lost(found, sound, "messages")
    assert {i: _typed(row) for i, row in rows.items()} == {
        i: _typed(row) for i, row in sound.messages.items()
    }
    assert len(str(rows[5]["content"])) == 2**20
    assert rows[6]["content"] == RawText(b"ab\xff\0cd\0")
    assert (rows[1]["pinned"], rows[1]["weight"], rows[1]["note"]) == (-7, 2.0, "it's")
    assert {-3, 5000000000} < set(rows)


def _typed(row: Row) -> list[tuple[str, str]]:
    return [(name, repr(value)) for name, value in row.items()]


IN_THE_LOG = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = wal")
db.execute("PRAGMA wal_autocheckpoint = 0")
db.execute("UPDATE messages SET content = upper(content) WHERE id % 10 = 1")
if sys.argv[3] == "log":  # so many that the root changes too
    db.execute("DELETE FROM messages WHERE id BETWEEN 300 AND 500")
print("ready", flush=True)
sys.stdin.readline()
if sys.argv[2] != "close":
    os.kill(os.getpid(), 9)
db.close()
"""


@pytest.mark.parametrize(
    ("end", "where"),
    [("close", "file"), ("kill", "file"), ("copy", "file"), ("close", "log")],
)
def test_what_stands_in_a_write_ahead_log_counts(
    hermes_home: Path, database: Path, scratch: Path, end: str, where: str
) -> None:
    first = read(hermes_home, scratch).messages[1]["content"]
    root = tree(database, "messages").root
    with elsewhere(IN_THE_LOG, database, end, where) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        sound = read(hermes_home, scratch)
        if end != "close":
            writer.communicate("\n")
        if end == "copy":
            (hermes_home / "state.db-shm").unlink()
        frames = frames_of(database, root)
        for at in frames:
            with Path(f"{database}-wal").open("r+b") as log:
                log.seek(at)
                log.write(GARBAGE)
        garbled(database, root)
        before = state(hermes_home)
        found = read(hermes_home, scratch)

        assert bool(frames) == (where == "log")
        assert found.messages[1]["content"] == str(first).upper() != first
        assert_nothing_is_lost(found, sound, "messages")
        assert state(hermes_home) == before
        if end == "close":
            writer.communicate("\n")


def frames_of(database: Path, page: int) -> list[int]:
    """Where the log holds a page."""
    log = Path(f"{database}-wal").read_bytes()
    step = 24 + page_size(database)
    return [at + 24 for at in range(32, len(log), step) if int.from_bytes(log[at : at + 4], "big") == page]


def test_a_sound_home_is_never_searched_for_leaves(
    hermes_home: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        "retold.infrastructure.importers.hermes_reader.find_leaves", lambda *args: asked.append(args)
    )
    read(hermes_home, scratch)

    assert asked == []


def owners(database: Path) -> dict[int, str]:
    """Which table or index each page belongs to."""
    db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {int(str(page)): str(name) for name, page in db.execute("SELECT name, pageno FROM dbstat")}
    finally:
        db.close()


def _rows_on(pages: dict[int, str], database: Path, page: int, table: str) -> set[int]:
    """The rows that lie on a page, wholly or with a part that flowed over."""
    if pages.get(page) != table:
        return set()
    kinds = tree(database, table)
    if page in kinds.leaves:
        return set(rowids(database, page))
    return set() if page in kinds.interior else set(range(1, 10_000))


@pytest.mark.parametrize("part", range(4))
def test_wherever_bytes_flip_no_row_elsewhere_is_lost_and_none_is_invented(
    hermes_home: Path, database: Path, scratch: Path, part: int
) -> None:
    sound = read(hermes_home, scratch)
    pages, whole = owners(database), database.read_bytes()
    places = {session_id: place for place, session_id in enumerate(sound.sessions, 1)}
    dice = random.Random(part)
    inner = [page for name in ("messages", "sessions") for page in tree(database, name).interior]
    for turn in range(FLIPS // 4):
        page = dice.choice(inner) if turn % 4 == 0 else dice.randrange(2, len(whole) // 4096 + 1)
        if pages.get(page) == "sqlite_schema":
            continue
        hit_messages = _rows_on(pages, database, page, "messages")
        hit_sessions = _rows_on(pages, database, page, "sessions")
        for _ in range(dice.choice([1, 1, 3, 30])):
            flip(
                database,
                page,
                at=dice.choice([dice.randrange(12), dice.randrange(4096)]),
                bit=dice.randrange(8),
            )
        found = read(hermes_home, scratch)
        where = f"turn {turn}: page {page} of {pages.get(page)}"
        missing = sound.messages.keys() - found.messages.keys()
        lost_sessions = {places[each] for each in sound.sessions.keys() - found.sessions.keys()}
        wrong = {i for i, row in found.messages.items() if sound.messages.get(i) != row}
        wrong_sessions = {i for i, row in found.sessions.items() if sound.sessions.get(i) != row}

        assert missing <= hit_messages, where
        assert wrong <= hit_messages, where
        assert lost_sessions <= hit_sessions, where
        assert {places.get(each, 0) for each in wrong_sessions} <= hit_sessions | {0}, where
        assert not wrong_sessions or hit_sessions, where
        database.write_bytes(whole)
    assert os.path.getsize(database) == len(whole)


def test_a_sector_that_cannot_be_read_hides_only_its_own_page(database: Path) -> None:
    content = database.read_bytes()

    def reading(offset: int, amount: int) -> bytes:
        if offset <= 70 * 4096 < offset + amount:
            raise apsw.IOError("a bad sector")
        return content[offset : offset + amount]

    pages = Pages(reading, len(content))

    assert pages.get(71) == bytes(4096)
    assert pages.get(70) + pages.get(72) == content[69 * 4096 : 70 * 4096] + content[71 * 4096 : 72 * 4096]
    assert (pages.get(0), pages.get(pages.count + 1), pages.kind(-1)) == (b"", b"", -1)


def test_a_number_that_the_page_cuts_off_ends_behind_it() -> None:
    assert varint(b"\x81\x00", 0) == (128, 2)
    assert signed(varint(b"\xff" * 9, 0)[0]) == -1
    assert varint(b"\xff" * 8, 0) == (0, 9)
    assert varint(b"", 5) == (0, 1)


@pytest.mark.parametrize("where", ["messages", "sessions", "messages_fts_content", "a free page"])
def test_an_inner_page_that_leads_astray_brings_no_foreign_row(
    hermes_home: Path, database: Path, scratch: Path, where: str
) -> None:
    statements(database, "PRAGMA secure_delete = OFF", "DELETE FROM messages WHERE id BETWEEN 200 AND 600")
    sound, whole = read(hermes_home, scratch), database.read_bytes()
    root, size = tree(database, "messages").root, page_size(database)
    page = whole[(root - 1) * size : root * size]
    places = [int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big") for i in range(page[3] << 8 | page[4])]
    for at in (places[0], places[len(places) // 2], places[-1], 8):
        target = free_leaf(whole, size) if where == "a free page" else tree(database, where).leaves[-3]
        overwrite(database, root, at=at, garbage=target.to_bytes(4, "big"))
        found = read(hermes_home, scratch)

        assert found.messages == sound.messages
        assert [each for each in found.damage if each.startswith("an inner page of messages is damaged; ")]
        database.write_bytes(whole)


def free_leaf(content: bytes, size: int) -> int:
    """A free page that still looks like a leaf with deleted rows."""
    trunk = (int.from_bytes(content[32:36], "big") - 1) * size
    count = int.from_bytes(content[trunk + 4 : trunk + 8], "big")
    pages = [int.from_bytes(content[trunk + 8 + 4 * i : trunk + 12 + 4 * i], "big") for i in range(count)]
    return next(page for page in pages if content[(page - 1) * size] == 0x0D)
