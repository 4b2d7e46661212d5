"""An exported Hermes home: equal to the one that was imported, but for what docs/hermes.md names."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from retold.domain import events as e
from retold.domain.errors import BadUsage, RuleBroken
from retold.domain.events import Event, session_stream
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.exporters.hermes_export import ExportedHome, export_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.importers.jsonl import import_jsonl
from retold.infrastructure.reading import reading
from retold.tests.infrastructure.importing import ask, edit, importer
from retold.tests.infrastructure.test_import_law import change_something

KEYS = {
    "sessions": "id",
    "messages": "id",
    "session_model_usage": (
        "session_id || char(0) || model || char(0) || billing_provider || char(0) || billing_base_url"
        " || char(0) || billing_mode || char(0) || task"
    ),
    "gateway_routing": "session_key",
}


def exported(home: Path, to: Path, **how: Any) -> ExportedHome:
    with reading(home) as view:
        return export_home(home, view.db, view.log, to, position=view.known_at, **how)


def dumped(hermes: Path, table: str, *but: str) -> dict[Any, tuple[Any, ...]]:
    """The rows of a table by their key: every value with its type, as bytes; without the columns `but`."""
    columns = [row[1] for row in ask(hermes, f"PRAGMA table_info({table})") if row[1] not in but]
    exact = ", ".join(
        f"typeof({column}), iif(typeof({column}) = 'text', CAST({column} AS BLOB), {column})"
        for column in columns
    )
    rows = ask(hermes, f"SELECT CAST({KEYS[table]} AS BLOB), {exact} FROM {table}")
    return {row[0]: row[1:] for row in rows}


def test_an_imported_home_comes_out_as_it_was(home: Path, hermes_home: Path, tmp_path: Path) -> None:
    with open_home(home) as engine:
        import_hermes(engine, hermes_home)
    done = exported(home, tmp_path / "out", place=hermes_home)

    for table in KEYS:
        left_out = ("scope",) if table == "gateway_routing" else ()
        assert dumped(tmp_path / "out", table, *left_out) == dumped(hermes_home, table, *left_out), table
    assert ask(tmp_path / "out", "SELECT DISTINCT scope FROM gateway_routing") == [
        (str(hermes_home.resolve() / "sessions"),)
    ]
    assert (done.sessions, done.messages, done.routes) == (57, 914, 27)
    assert done.notes == []


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_home_holds_comes_out_as_it_was(
    home: Path, hermes_home: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    for run in range(3):
        db = apsw.Connection(str(hermes_home / "state.db"))
        for _ in range(rng.randrange(4, 20)):
            change_something(rng, db)
        db.close()
        with open_home(home) as engine:
            import_hermes(engine, hermes_home)
        exported(home, tmp_path / f"out{run}")

        assert_comes_out(hermes_home, tmp_path / f"out{run}")


def assert_comes_out(hermes_home: Path, out: Path) -> None:
    """Each row of the source is there as it is; what went from it may still be here."""
    counted = ("message_count", "tool_call_count")
    for table, left_out in (("sessions", counted), ("messages", ()), ("session_model_usage", ())):
        there, here = dumped(hermes_home, table, *left_out), dumped(out, table, *left_out)
        of_sessions = {row[0] for row in ask(hermes_home, "SELECT CAST(id AS BLOB) FROM sessions")}
        wanted = (
            {k: v for k, v in there.items() if k.split(b"\0")[0] in of_sessions}
            if table == "session_model_usage"
            else there
        )

        assert {key: here.get(key) for key in wanted} == wanted, table


def test_what_was_exported_has_nothing_new_for_an_import(
    home: Path, hermes_home: Path, tmp_path: Path
) -> None:
    with importer(home, hermes_home) as it:
        it.run()
        exported(home, tmp_path / "out")

        assert it.run(tmp_path / "out", moved_from=hermes_home) == []


def test_what_was_changed_here_comes_out_and_comes_in_again_without_a_conflict(
    home: Path, hermes_home: Path, tmp_path: Path
) -> None:
    with importer(home, hermes_home) as it:
        it.run()
        session = "20260508_141930_46dc1a26"
        it.engine.title_session(session, "renamed here")
        it.engine.append_message(session, "user", "said here")
        last = ask(hermes_home, "SELECT max(id) FROM messages")[0][0]
        exported(home, tmp_path / "out")
        title, count = ask(
            tmp_path / "out", "SELECT title, message_count FROM sessions WHERE id = ?", session
        )[0]
        before = ask(hermes_home, "SELECT message_count FROM sessions WHERE id = ?", session)[0][0]
        it.run(tmp_path / "out", moved_from=hermes_home)

        assert (title, count) == ("renamed here", before + 1)
        assert ask(tmp_path / "out", "SELECT content FROM messages WHERE id = ?", last + 1) == [
            ("said here",)
        ]
        assert it.report is not None
        assert it.report.conflicts == []


def test_what_began_here_is_a_hermes_home_too(home: Path, tmp_path: Path) -> None:
    with open_home(home) as engine:
        begun = engine.create_session("telegram", key="agent:main:telegram:dm:7", chat_id="7").session_id
        engine.append_message(begun, "user", "one")
        engine.title_session(begun, "talk")
        branch = engine.branch_session(begun, lead=False).session_id
        child = engine.compress_session(begun, "So far: one.").session_id
        engine.append_message(child, "user", "two")
    exported(home, tmp_path / "out")

    assert ask(
        tmp_path / "out", "SELECT id, end_reason, parent_session_id FROM sessions ORDER BY started_at"
    ) == [
        (begun, "compression", None),
        (branch, None, begun),
        (child, None, begun),
    ]
    assert ask(
        tmp_path / "out",
        "SELECT json_extract(model_config, '$._branched_from') FROM sessions WHERE id = ?",
        branch,
    ) == [(begun,)]
    assert [row[0] for row in ask(tmp_path / "out", "SELECT id FROM messages ORDER BY id")] == list(
        range(1, 1 + ask(tmp_path / "out", "SELECT count(*) FROM messages")[0][0])
    )
    again = importer(tmp_path / "again", tmp_path / "out")
    with again as it:
        it.run()

        assert it.engine.route_of("agent:main:telegram:dm:7") == child
        assert dict(it.state("SELECT child, kind FROM edges")) == {branch: "branch", child: "continuation"}


def test_what_was_deleted_or_erased_stays_out(home: Path, hermes_home: Path, tmp_path: Path) -> None:
    deleted, erased = "20260508_141930_46dc1a26", "20260622_194950_7af33b"
    with open_home(home) as engine:
        import_hermes(engine, hermes_home)
        engine.delete_session(deleted)
        engine.delete_session(erased, now=True)
    exported(home, tmp_path / "out")
    gone = f"('{deleted}', '{erased}')"

    for table, column in (
        ("sessions", "id"),
        ("sessions", "parent_session_id"),
        ("messages", "session_id"),
        ("session_model_usage", "session_id"),
        ("gateway_routing", "json_extract(entry_json, '$.session_id')"),
    ):
        assert ask(tmp_path / "out", f"SELECT * FROM {table} WHERE {column} IN {gone}") == [], table
    assert b"type constructor" not in (tmp_path / "out" / "state.db").read_bytes()


def test_titles_that_two_sessions_bear_are_given_to_the_one_that_claims_it(
    home: Path, tmp_path: Path
) -> None:
    with open_home(home) as engine:
        for session_id in ("first", "second"):
            engine.create_session("cli", session_id=session_id)
        engine.title_session("first", "boats")
        found_titled(engine, "second", "boats")
    done = exported(home, tmp_path / "out")

    assert ask(tmp_path / "out", "SELECT id, title FROM sessions ORDER BY id") == [
        ("first", "boats"),
        ("second", None),
    ]
    assert done.notes == ["a title that two sessions bear went to one of them: 1 went without (second)"]


def found_titled(engine: SessionEngine, session_id: str, title: str) -> None:
    """A session that an import found with a title of another's."""
    stream = session_stream(session_id)
    version = engine.event_log.stream_version(stream) + 1
    engine.event_log.append([engine.draft(Event(stream, version, e.SessionTitled(title, claimed=False), 1))])
    engine.projector.catch_up(wait_ms=10_000)


def test_what_hermes_has_no_room_for_is_counted_and_the_rest_is_exported(home: Path, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(
        '{"id": "s1", "source": "cli", "compression_fallback_streak": null, "rewind_count": null,'
        ' "messages": [{"role": "user", "content": "hull", "active": 1}]}\n'
    )
    with open_home(home) as engine:
        import_jsonl(engine, tmp_path / "x.jsonl")
    exported(home, tmp_path / "out")

    assert ask(tmp_path / "out", "SELECT compression_fallback_streak, rewind_count FROM sessions") == [(0, 0)]
    assert ask(tmp_path / "out", "SELECT content FROM messages") == [("hull",)]


def test_a_folder_that_holds_anything_is_never_written_to(
    home: Path, hermes_home: Path, tmp_path: Path
) -> None:
    with open_home(home) as engine:
        import_hermes(engine, hermes_home)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("x")
    for force in (False, True):
        for to in (tmp_path / "taken", hermes_home):
            with pytest.raises(RuleBroken, match="is not empty"):
                exported(home, to, force=force)
    with pytest.raises(BadUsage, match="is a file"):
        exported(home, tmp_path / "taken" / "mine")
    with pytest.raises(BadUsage, match="inside the home"):
        exported(home, home / "out")

    assert {each.name for each in tmp_path.iterdir()} == {"taken", "hermes-home", "retold-home"}
    assert (tmp_path / "taken" / "mine").read_text() == "x"


def test_an_export_is_written_over_only_by_force_and_only_as_it_was_made(
    home: Path, hermes_home: Path, tmp_path: Path
) -> None:
    to = tmp_path / "out"
    to.mkdir()
    with open_home(home) as engine:
        import_hermes(engine, hermes_home)
        exported(home, to)
        engine.title_session("20260622_194950_7af33b", "new title")
    with pytest.raises(RuleBroken, match="holds an export already"):
        exported(home, to)
    exported(home, to, force=True)
    titles = ask(to, "SELECT title FROM sessions WHERE id = '20260622_194950_7af33b'")
    edit(to, "UPDATE sessions SET title = 'of Hermes' WHERE id = '20260622_194950_7af33b'")
    with pytest.raises(RuleBroken, match="no longer what was exported"):
        exported(home, to, force=True)

    assert titles == [("new title",)]
    assert {each.name for each in tmp_path.iterdir()} == {"out", "hermes-home", "retold-home"}


def test_an_export_that_fails_leaves_nothing(home: Path, hermes_home: Path, tmp_path: Path) -> None:
    with open_home(home) as engine:
        import_hermes(engine, hermes_home)

    def stop(what: str, done: int, total: int) -> None:
        if what == "search index":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exported(home, tmp_path / "out", progress=stop)

    assert {each.name for each in tmp_path.iterdir()} == {"hermes-home", "retold-home"}
