"""Homes that clocks, crashes and other programs left in odd states: everything comes in, or is named."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import msgspec
import pytest

from retold.domain.audit import audit
from retold.domain.errors import NotAStore
from retold.domain.events import MessageAppended, SessionCompressed, SessionReopened, SourceRowGone
from retold.infrastructure.engine import open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.projections.world import world
from retold.tests.infrastructure.importing import Importer, ask, edit, importer

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


def loosen(hermes: Path, table: str) -> None:
    """The table without its constraints, as recovery tools copy it."""
    edit(hermes, "PRAGMA legacy_alter_table = ON")
    edit(hermes, f"CREATE TABLE loose AS SELECT * FROM {table}")
    edit(hermes, f"DROP TABLE {table}")
    edit(hermes, f"ALTER TABLE loose RENAME TO {table}")


def said(it: Importer) -> list[str]:
    """Every line of the last report."""
    assert it.report is not None
    return [*it.report.skipped, *it.report.notes, *it.report.differences, *it.report.lost]


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


TIMES = ["NULL", "'soon'", "0", "-1e300", "1e300", "-5.0", "1760000200.0", "x'00'"]


def test_whatever_times_a_session_without_messages_bears_it_comes_in(home: Path, hermes_home: Path) -> None:
    loosen(hermes_home, "sessions")
    for number, (began, ended) in enumerate(product(TIMES, TIMES)):
        edit(
            hermes_home,
            f"INSERT INTO sessions (id, source, started_at, ended_at, end_reason)"
            f" VALUES ('t{number}', 'cli', {began}, {ended}, 'cli_close')",
        )

    with importer(home, hermes_home) as it:
        it.run()

        assert len(it.state("SELECT id FROM sessions")) == 57 + len(TIMES) ** 2
        assert it.run() == []


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
        assert it.run() == []


def test_keys_that_stand_twice_in_the_mirror_are_named(home: Path, hermes_home: Path) -> None:
    (hermes_home / "sessions" / "sessions.json").write_text(
        '{"k": {"session_id": "first"}, "k": {"session_id": "last"}}'
    )

    with importer(home, hermes_home) as it:
        it.run()

        assert "mirror sessions.json: k stands twice in one object; the last one counts" in said(it)
        assert it.state("SELECT session_id FROM routes WHERE key = 'k'") == [("last",)]


def test_a_home_whose_path_is_no_valid_text_is_the_same_at_each_run(
    home: Path, hermes_home: Path, tmp_path: Path
) -> None:
    odd = hermes_home.rename(tmp_path / os.fsdecode(b"h\xff"))

    with importer(home, odd) as it:
        it.run()

        assert it.report is not None
        assert it.report.path.endswith("h\\xff")
        assert it.run() == []


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

        again = it.told()

    assert [p.continuation for p in told if isinstance(p, SessionCompressed)] == ["C1"]
    assert edges == [("continuation",)]
    assert again == []


@pytest.mark.parametrize("first_seen", ["before", "after"])
def test_two_children_of_a_compressed_parent_are_two_continuations(
    home: Path, hermes_home: Path, first_seen: str
) -> None:
    """Whether the second is first seen before its parent was compressed, or after."""
    insert_session(hermes_home, "P", 1.76e9)
    insert_session(hermes_home, "C1", 1.76e9 + 100, "P")
    if first_seen == "before":
        insert_session(hermes_home, "C2", 1.76e9 + 200, "P")
    with importer(home, hermes_home) as it:
        it.run()
        edit(
            hermes_home,
            "UPDATE sessions SET ended_at = 1760000100, end_reason = 'compression' WHERE id = 'P'",
        )
        it.run()
        if first_seen == "after":
            insert_session(hermes_home, "C2", 1.76e9 + 200, "P")
            it.run()
        edges = it.state("SELECT child, kind FROM edges WHERE parent = 'P' ORDER BY child")
        kinds = [it.session(child)["parent_kind"] for child in ("C1", "C2")]
        found = audit(world(it.engine.projector.state.reader()))

        assert edges == [("C1", "continuation"), ("C2", "continuation")]
        assert kinds == ["continuation", "continuation"]
        assert "P" in {finding.session_id for finding in found if finding.kind == "two_continuations"}
        assert it.told() == []


def test_a_parent_that_is_open_again_takes_no_kind_back(home: Path, hermes_home: Path) -> None:
    insert_session(hermes_home, "P", 1.76e9)
    insert_session(hermes_home, "C1", 1.76e9 + 100, "P")
    edit(hermes_home, "UPDATE sessions SET ended_at = 1.0, end_reason = 'compression' WHERE id = 'P'")
    with importer(home, hermes_home) as it:
        it.run()
        edit(hermes_home, "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = 'P'")

        assert it.told() == [SessionReopened()]
        assert it.state("SELECT kind FROM edges WHERE child = 'C1'") == [("continuation",)]


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
        assert [each.payload for each in told] == [SourceRowGone("session", session_id)]
        assert f"session {session_id}: its row is gone, its messages are still there" in it.report.notes
        assert it.session(session_id)["source_gone"] == 1
        assert it.run() == []
        edit(
            hermes_home,
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', 'more', 1.8e9)",
            session_id,
        )
        (more,) = it.told()
        assert isinstance(more, MessageAppended)


def test_a_session_that_never_had_its_row_is_gone_from_the_first_and_said_so_once(
    home: Path, hermes_home: Path
) -> None:
    session_id = ask(hermes_home, "SELECT session_id FROM messages LIMIT 1")[0][0]
    edit(hermes_home, "DELETE FROM sessions WHERE id = ?", session_id)

    with importer(home, hermes_home) as it:
        it.run()

        assert it.session(session_id)["source_gone"] == 1
        assert it.run() == []


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


# --- usage, routes and tables ------------------------------------------------------------------------


def test_a_usage_row_whose_key_or_tokens_are_null_comes_through(home: Path, hermes_home: Path) -> None:
    loosen(hermes_home, "session_model_usage")
    edit(
        hermes_home,
        "UPDATE session_model_usage SET billing_mode = NULL, task = NULL, input_tokens = NULL"
        " WHERE rowid = 3",
    )
    edit(hermes_home, "INSERT INTO session_model_usage SELECT * FROM session_model_usage WHERE rowid = 3")
    edit(hermes_home, "UPDATE session_model_usage SET billing_mode = CAST(x'ff' AS TEXT) WHERE rowid = 4")
    edit(hermes_home, "UPDATE session_model_usage SET cost_source = CAST(x'ff' AS TEXT) WHERE rowid = 5")

    with importer(home, hermes_home) as it:
        it.run()
        extras = [row[0] for row in it.state("SELECT extra FROM session_model_usage WHERE extra NOT NULL")]

        assert {"billing_mode": None, "task": None, "input_tokens": None} in [
            {c: v for c, v in msgspec.msgpack.decode(each).items() if v is None} for each in extras
        ]
        assert [line for line in said(it) if "a second row with this key" in line]
        assert [line for line in said(it) if "its key is no valid text" in line]
        assert [line for line in said(it) if "cost_source is no valid text" in line]
        assert it.run() == []


def test_a_routing_key_that_is_no_valid_text_is_named_readably(home: Path, hermes_home: Path) -> None:
    edit(
        hermes_home,
        "INSERT INTO gateway_routing SELECT scope, CAST(x'6b3aff' AS TEXT), entry_json, 1.0"
        " FROM gateway_routing LIMIT 1",
    )

    with importer(home, hermes_home) as it:
        it.run()

        assert "route k:\ufffd: its key is no valid text" in said(it)


def test_a_view_is_no_table_of_sessions(home: Path, hermes_home: Path) -> None:
    edit(hermes_home, "PRAGMA foreign_keys = OFF")
    edit(hermes_home, "ALTER TABLE sessions RENAME TO talks")
    edit(hermes_home, "CREATE VIEW sessions AS SELECT * FROM talks")

    with importer(home, hermes_home) as it:
        with pytest.raises(NotAStore, match="holds no sessions table"):
            it.run()

        assert it.events() == []


def test_a_home_without_a_table_of_messages_says_so_and_loses_none(home: Path, hermes_home: Path) -> None:
    with importer(home, hermes_home) as it:
        it.run()
        edit(hermes_home, "DROP TABLE messages")

        assert it.told() == []
        assert "this home has no table of messages: its sessions came without messages" in said(it)


def test_columns_of_a_source_that_bear_our_names_are_kept(home: Path, hermes_home: Path) -> None:
    edit(hermes_home, "ALTER TABLE sessions ADD COLUMN parent_kind TEXT")
    edit(hermes_home, "ALTER TABLE messages ADD COLUMN copy_of TEXT")
    with importer(home, hermes_home) as it:
        it.run()
        session_id, parent_kind = it.state("SELECT id, parent_kind FROM sessions WHERE parent_kind NOT NULL")[
            0
        ]
        edit(hermes_home, "UPDATE sessions SET parent_kind = 'theirs' WHERE id = ?", session_id)
        edit(hermes_home, "UPDATE messages SET copy_of = 'theirs' WHERE id = 5")
        it.run()
        session = it.session(session_id)
        ((copy_of, extra),) = it.state("SELECT copy_of, extra FROM messages WHERE source_id = 5")

    assert session["parent_kind"] == parent_kind
    assert msgspec.msgpack.decode(session["extra"])[0] == {"source.parent_kind": "theirs"}
    assert (copy_of, msgspec.msgpack.decode(extra)[0]) == (None, {"copy_of": "theirs"})
