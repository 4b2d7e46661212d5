"""Homes that clocks, crashes and other programs left in odd states: everything comes in, or is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from retold.domain.events import SessionCompressed
from retold.infrastructure.engine import open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.tests.infrastructure.importing import ask, edit, importer

KEY = "agent:main:telegram:dm:77"


def insert_session(hermes: Path, session_id: str, started_at: float, parent: str | None = None) -> None:
    edit(
        hermes,
        "INSERT INTO sessions (id, source, started_at, session_key, parent_session_id, chat_id, chat_type)"
        " VALUES (?, 'telegram', ?, ?, ?, '77', 'dm')",
        session_id,
        started_at,
        KEY,
        parent,
    )
    edit(
        hermes,
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', 'hello', ?)",
        session_id,
        started_at + 5,
    )


def test_a_session_without_messages_that_ended_before_it_began_comes_in(
    home: Path, hermes_home: Path
) -> None:
    edit(
        hermes_home,
        "INSERT INTO sessions (id, source, started_at, ended_at, end_reason)"
        " VALUES ('backward', 'cli', 1760000200.0, 1760000100.0, 'cli_close')",
    )

    with importer(home, hermes_home) as it:
        it.run()

        assert it.session("backward")["ended_at"] == 1760000100.0
        assert len(it.state("SELECT id FROM sessions")) == 58


@pytest.mark.parametrize(
    "mirror",
    [
        b'{"k:\\ud800": {"session_id": "s"}}',
        b'{"k:x": {"session_id": "s\\ud800"}}',
        b'{"k:x": {"session_id": "s", "display_name": "\\ud800"}}',
    ],
    ids=["in a key", "in a session id", "in a value"],
)
def test_half_a_surrogate_in_the_mirror_is_named_and_stops_nothing(
    home: Path, hermes_home: Path, mirror: bytes
) -> None:
    (hermes_home / "sessions" / "sessions.json").write_bytes(mirror)

    with importer(home, hermes_home) as it:
        it.run()

        assert it.report is not None
        named = [*it.report.skipped, *it.report.notes, *it.report.differences]
        assert any("k:" in each for each in named)
        assert len(it.state("SELECT id FROM sessions")) == 57


def test_a_child_seen_before_its_parent_was_compressed_is_its_continuation(
    home: Path, hermes_home: Path, tmp_path: Path
) -> None:
    insert_session(hermes_home, "P", 1.76e9)
    insert_session(hermes_home, "C1", 1.76e9 + 100, "P")
    with importer(home, hermes_home) as it:
        it.run()
        edit(
            hermes_home,
            "UPDATE sessions SET ended_at = 1760000100, end_reason = 'compression' WHERE id = 'P'",
        )
        told = it.told()
        edges = it.state("SELECT kind FROM edges WHERE child = 'C1'")

    assert [p.continuation for p in told if isinstance(p, SessionCompressed)] == ["C1"]
    assert edges == [("continuation",)]


def test_an_edit_to_an_odd_value_reads_as_if_it_had_come_so(
    home: Path, hermes_home: Path, tmp_path: Path
) -> None:
    columns = "observed, token_count, content, extra"
    with importer(home, hermes_home) as it:
        it.run()
        edit(hermes_home, "UPDATE messages SET observed = 1.5 WHERE id = 5")
        it.run()
        after_edit = it.state(f"SELECT {columns} FROM messages WHERE source_id = 5")
    with open_home(tmp_path / "fresh", synchronous="NORMAL") as fresh:
        import_hermes(fresh, hermes_home)
        fresh.projector.catch_up()
        reader = fresh.projector.state.reader()
        at_once = reader.execute(f"SELECT {columns} FROM messages WHERE source_id = 5").fetchall()

    assert after_edit == at_once


def test_a_row_that_is_gone_while_its_messages_stay_is_said_to_be_gone(home: Path, hermes_home: Path) -> None:
    with importer(home, hermes_home) as it:
        it.run()
        session_id = ask(hermes_home, "SELECT session_id FROM messages LIMIT 1")[0][0]
        edit(hermes_home, "PRAGMA foreign_keys = OFF")
        edit(hermes_home, "DELETE FROM sessions WHERE id = ?", session_id)
        told = it.run()

        assert it.report is not None
        assert told or any(session_id in each for each in it.report.notes + it.report.skipped)


def test_a_column_of_the_source_that_is_called_parent_kind_is_kept_or_named(
    home: Path, hermes_home: Path
) -> None:
    edit(hermes_home, "ALTER TABLE sessions ADD COLUMN parent_kind TEXT")
    edit(hermes_home, "UPDATE sessions SET parent_kind = 'zyzzyva'")

    with importer(home, hermes_home) as it:
        events = it.run()

        assert it.report is not None
        said = [*map(repr, events), *it.report.notes, *it.report.skipped]
        assert any("zyzzyva" in each or "parent_kind of" in each for each in said)


def test_a_prompt_that_no_session_names_comes_in_or_is_named(home: Path, hermes_home: Path) -> None:
    edit(hermes_home, "CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, prompt TEXT NOT NULL)")
    edit(hermes_home, "INSERT INTO system_prompts VALUES ('zz-hash', 'a lone zyzzyva')")

    with importer(home, hermes_home) as it:
        events = it.run()

        assert it.report is not None
        said = [*map(repr, events), *it.report.notes, *it.report.skipped]
        assert any("zyzzyva" in each or "zz-hash" in each for each in said)
