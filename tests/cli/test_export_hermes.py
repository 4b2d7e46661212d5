"""`retold export hermes`: the real Hermes takes what it makes for a home of its own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.infrastructure.exporters import hermes_schema
from retold.tests.cli.test_json_contract import promised
from retold.tests.infrastructure.importing import ask, edit
from retold.tests.infrastructure.test_export_hermes import KEYS, dumped
from retold.tests.peer import PeerStore, hermes, routed_by_peer, searched_by_peer

if TYPE_CHECKING:
    from retold.tests.conftest import Run

DM = {"platform": "telegram", "chat_id": "1001", "chat_type": "dm", "user_id": "501"}


@pytest.fixture
def out(run: Run, hermes_home: Path, tmp_path: Path) -> Path:
    """The imported home, exported."""
    run("import", "hermes", hermes_home)
    to = tmp_path / "out"
    ran = run("export", "hermes", to)
    assert ran.exit_code == 0, ran.stderr
    return to


@pytest.mark.slow
def test_hermes_answers_on_it_as_on_the_home_that_was_imported(out: Path, hermes_home: Path) -> None:
    for argv in (
        ("sessions", "list", "--limit", "1000"),
        ("sessions", "stats"),
        ("sessions", "export", "-"),
    ):
        theirs, ours = (re.sub(r"Database size: .*", "", hermes(home, *argv)) for home in (hermes_home, out))

        assert ours == theirs, argv
        assert len(ours.splitlines()) > 5
    asked: tuple[dict[str, str], ...] = (
        {"query": "hull"},
        {"query": "세션"},
        {"query": "\u6f0f\u6c34"},
        {"query": "type constructor"},
        {},
    )
    found = [searched_by_peer(home, *asked) for home in (hermes_home, out)]

    assert found[0] == found[1]
    assert routed_by_peer(out, DM) == {"agent:main:telegram:dm:1001": "20260504_080000_b33d43d5"}


@pytest.mark.slow
def test_the_schema_is_that_of_the_real_store_and_opening_it_changes_nothing(
    out: Path, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    with PeerStore(tmp_path / "real"):
        pass
    before = {table: dumped(out, table) for table in KEYS}
    schemas = [_schema(home) for home in (out, tmp_path / "real")]
    with PeerStore(out) as store:
        store.call(["session_count"])

    assert schemas[0] == schemas[1]
    assert _schema(out) == schemas[0]
    assert {table: dumped(out, table) for table in KEYS} == before
    for sql in (
        "SELECT * FROM schema_version",
        "SELECT * FROM state_meta",
        "SELECT journal_mode FROM pragma_journal_mode",
        "SELECT * FROM pragma_user_version",
        "SELECT * FROM messages_fts_config",
        "SELECT * FROM messages_fts_trigram_config",
    ):
        assert ask(out, sql) == ask(tmp_path / "real", sql), sql
    assert ask(out, "SELECT version FROM schema_version") == [(hermes_schema.VERSION,)]


def _schema(home: Path) -> dict[str, str]:
    """Every object's statement, whatever its white space."""
    found = ask(home, "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    words = {
        name: re.sub(r"\s*([(),;])\s*", r"\1 ", sql.replace("IF NOT EXISTS ", "")) for name, sql in found
    }
    return {name: " ".join(sql.split()) for name, sql in words.items()}


@pytest.mark.slow
def test_hermes_goes_on_writing_in_it(out: Path) -> None:
    session = "20260508_141930_46dc1a26"
    last = ask(out, "SELECT max(id) FROM messages")[0][0]
    with PeerStore(out) as store:
        said = store.call(["append_message", session, "user", "zymurgy begins"])
        store.call(["set_session_title", session, "brewing"])
        found = store.call(["search_messages", "zymurgy"])
        store.call(["delete_session", "20260504_080000_b33d43d5"])

    assert said == last + 1
    assert [each["session_id"] for each in found] == [session]
    edit(out, "INSERT INTO messages_fts(messages_fts, rank) VALUES ('integrity-check', 1)")


def test_it_says_what_it_did_and_where(run: Run, out: Path, hermes_home: Path, tmp_path: Path) -> None:
    told = run("export", "hermes", tmp_path / "second", "--for", hermes_home)
    as_json = run("export", "hermes", tmp_path / "third", "--json").json

    assert told.stdout == (
        "Exported 57 sessions, 914 messages, 27 routes, 137 usage rows to"
        f" {tmp_path / 'second'}, as of #1253\n"
    )
    assert told.stderr == f"Look at it with: HERMES_HOME={tmp_path / 'second'} hermes sessions list\n"
    assert as_json == {
        "path": str(tmp_path / "third"),
        "position": 1253,
        "sessions": 57,
        "messages": 914,
        "routes": 27,
        "usage": 137,
        "scope": str(tmp_path.resolve() / "third" / "sessions"),
        "notes": [],
    }
    assert set(as_json) == promised("export hermes")
    assert oct((out / "state.db").stat().st_mode)[-3:] == "600"


def test_what_has_no_place_in_a_hermes_home_is_counted(run: Run, out: Path, tmp_path: Path) -> None:
    run("sessions", "pin", "20260508_141930_46dc1a26", "--yes")
    ran = run("export", "hermes", tmp_path / "second")

    assert "note: no place in a Hermes 0.19 store, left out: pins of sessions (2)" in ran.stderr


def test_as_of_a_position_it_holds_what_was_there_then(run: Run, out: Path, tmp_path: Path) -> None:
    ran = run("export", "hermes", tmp_path / "then", "--at", "#29")

    assert ran.exit_code == 0
    assert ask(tmp_path / "then", "SELECT id FROM sessions") == [("20260504_080000_b33d43d5",)]
    assert ask(tmp_path / "then", "SELECT max(id) FROM messages") == [(28,)]


@pytest.mark.parametrize(
    ("taken", "code", "words"),
    [
        ("a file", 2, "is a file"),
        ("a full folder", 3, "is not empty"),
        ("an export", 3, "holds an export already"),
    ],
)
def test_what_is_in_the_way_is_named_and_stays(
    run: Run, out: Path, tmp_path: Path, taken: str, code: int, words: str
) -> None:
    to = out
    if taken != "an export":
        to = tmp_path / "taken"
        if taken == "a file":
            to.write_text("mine")
        else:
            to.mkdir()
            (to / "mine").write_text("mine")
    before = {each: each.read_bytes() for each in (to, *to.rglob("*")) if each.is_file()}
    ran = run("export", "hermes", to)

    assert ran.exit_code == code
    assert words in " ".join(ran.stderr.split())
    assert {each: each.read_bytes() for each in (to, *to.rglob("*")) if each.is_file()} == before


def test_a_forgotten_text_names_the_export_that_still_has_it(run: Run, out: Path) -> None:
    ran = run("forget", "--text", "type constructor", "--yes", "--json")

    assert str(out / "state.db") in ran.json["copies"], ran.stdout


def test_nothing_is_left_beside_it(out: Path, tmp_path: Path) -> None:
    assert {each.name for each in out.rglob("*")} == {
        ".retold-export",
        "sessions",
        "sessions.json",
        "state.db",
    }
    shutil.rmtree(out)
    assert {each.name for each in tmp_path.iterdir()} == {"hermes-home", "retold-home"}
