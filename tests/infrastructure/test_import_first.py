"""The first import of a Hermes home: all that is in it comes through, byte for byte, or is named.

Over 400 lines because it is one catalogue: a kind of content a test, all of one home.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from retold.domain import events as e
from retold.domain.errors import NotAStore
from retold.domain.events import Recorded
from retold.domain.source_messages import source_row_of
from retold.domain.source_rows import packed, seen_after, settled
from retold.domain.source_values import Row
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.importers.hermes_rows import session_row
from retold.infrastructure.importers.report import Progress
from retold.projections.listing import list_sessions
from retold.tests.infrastructure.importing import Importer, ask, edit, importer


@pytest.fixture
def new(home: Path, hermes_home: Path) -> Iterator[Importer]:
    """A Retold home that knows nothing yet."""
    with importer(home, hermes_home) as it:
        yield it


def table(hermes: Path, name: str) -> list[dict[str, Any]]:
    db = apsw.Connection(str(hermes / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        cursor = db.execute(f"SELECT * FROM {name} ORDER BY rowid")
        names = [column[0] for column in cursor.get_description()]
        return [dict(zip(names, row, strict=True)) for row in cursor]
    finally:
        db.close()


def messages_told(events: list[Recorded], columns: list[str]) -> list[Row]:
    rows = [
        source_row_of(each.payload, at_us=each.at_us, session_id=each.session_id, columns=columns)
        for each in events
        if isinstance(each.payload, e.MessageAppended)
    ]
    return sorted(rows, key=lambda row: row["id"])  # type: ignore[arg-type,return-value]  # ids are int


def sessions_told(events: list[Recorded]) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for each in events:
        if each.stream.startswith("session:") and isinstance(each.payload, e.Payload):
            rows[each.session_id] = seen_after(rows.get(each.session_id, {}), each.payload, each.at_us)
    return rows


def assert_whole(hermes: Path, events: list[Recorded]) -> None:
    """Every row of the home can be given back from the events."""
    messages = table(hermes, "messages")
    assert messages_told(events, list(messages[0])) == messages
    expected = {row["id"]: session_row(row, {})[0] for row in table(hermes, "sessions")}
    told = sessions_told(events)
    assert {k: packed(v) for k, v in told.items()} == {k: packed(v) for k, v in expected.items()}


def test_i17_of_200_sessions_with_5_bad_ones_195_are_visible_and_5_are_named(new: Importer) -> None:
    rows = [row["rowid"] for row in table(new.hermes, "(SELECT rowid FROM sessions)")]
    rows = list(range(max(rows) + 1, max(rows) + 1 + 200 - len(rows)))
    bad, elsewhere = rows[10:60:10], rows[100:110]
    for row in rows:
        given = (row, None if row in bad else f"legacy_{row}", "/elsewhere" if row in elsewhere else "/srv")
        sql = "INSERT INTO sessions (rowid, id, source, started_at, cwd) VALUES (?1, ?2, 'cli', 1, ?3)"
        edit(new.hermes, sql, *given)
    before = (new.hermes / "state.db").read_bytes()
    new.run()
    report = new.report

    assert report is not None
    assert (report.taken["sessions"], report.exit_code) == (195, 1)
    assert [each.partition(":")[0] for each in report.lost] == [f"sessions {row}" for row in bad]
    new.engine.projector.catch_up()
    db = new.engine.state.reader()
    assert len(list_sessions(db, limit=None, everything=True).rows) == 195
    listing = list_sessions(db, limit=None)
    assert len(listing.rows) + sum(listing.not_shown.values()) == 195
    assert len(list_sessions(db, limit=None, workspace="elsewhere").rows) == 10
    assert (new.hermes / "state.db").read_bytes() == before
    assert new.run() == []


def test_every_row_comes_through_byte_for_byte(new: Importer) -> None:
    events = new.run()

    assert_whole(new.hermes, events)
    assert new.state("SELECT count(*) FROM sessions") == [(57,)]
    assert new.state("SELECT count(*) FROM messages") == [(914,)]
    assert new.state("SELECT count(*) FROM routes") == [(27,)]
    assert new.state("SELECT count(*) FROM session_model_usage") == [(137,)]


def test_it_begins_with_a_session_and_keeps_each_sessions_own_order(new: Importer) -> None:
    events = new.run()
    order: dict[str, list[int]] = {}
    for each in events:
        if each.stream.startswith("session:"):
            order.setdefault(each.session_id, [])
            assert (each.version == 1) == isinstance(each.payload, e.SessionCreated)
        if isinstance(each.payload, e.MessageAppended) and each.payload.source_id:
            order[each.session_id].append(each.payload.source_id)

    assert all(ids == sorted(ids) for ids in order.values())


def test_sessions_are_merged_by_time(new: Importer) -> None:
    times = [
        each.at_us for each in new.run() if isinstance(each.payload, e.SessionCreated | e.MessageAppended)
    ]

    assert times == sorted(times)


def test_prompts_are_kept_once(new: Importer) -> None:
    told = [each.payload for each in new.run() if isinstance(each.payload, e.PromptChanged)]
    texts = [each.text for each in told if each.text is not None]

    assert len(texts) == len(set(texts)) == len({each.prompt_hash for each in told})


def test_the_source_is_left_as_it_was(new: Importer) -> None:
    before = {p: p.read_bytes() for p in new.hermes.rglob("*") if p.is_file()}
    new.run()

    assert {p: p.read_bytes() for p in new.hermes.rglob("*") if p.is_file()} == before
    assert not list(new.engine.home.glob("import-*"))


def test_lineage_comes_with_its_kinds(new: Importer) -> None:
    truth = json.loads((new.hermes / "truth.json").read_text())["incident"]
    new.run()
    kinds = dict(new.state("SELECT child, kind FROM edges"))

    assert kinds[truth["shapes"]["branch"]] == "branch"
    assert kinds[truth["shapes"]["delegate"]] == "delegate"
    assert kinds[truth["lineage"]["orphan"]] == "continuation"


def test_progress_is_told(new: Importer) -> None:
    seen: list[Progress] = []
    new.run(progress=seen.append)

    assert {each.phase for each in seen} > {"reading messages", "taking in", "routes"}
    taking = [each for each in seen if each.phase == "taking in"]
    assert taking[-1].total is not None
    assert taking[-1].done >= 914


# --- rows as real stores hold them -------------------------------------------------------------------

ODD_MESSAGES = [
    (None, 1.0),
    ('\0json:[{"type": "text", "text": "hi"}]', 1.0),
    ("a\0b", 1.0),
    ("x" * 1_000_000, 0.5),
    (b"\xff\xfe bytes", -5.25),
    (7, 1e300),
    ("no time", "yesterday"),
    ("infinite", float("inf")),
    ("a fraction", 1782131150.123456789),
]


def test_odd_messages_come_through(new: Importer) -> None:
    edit(new.hermes, "INSERT INTO sessions (id, source, started_at) VALUES ('odd', 'cli', 'soon')")
    for content, at in ODD_MESSAGES:
        edit(
            new.hermes,
            "INSERT INTO messages (session_id, role, content, timestamp, tool_calls, active)"
            " VALUES ('odd', 'user', ?, ?, '[{broken', 3)",
            content,
            at,
        )
    edit(
        new.hermes,
        "UPDATE messages SET reasoning = CAST(x'61ed' AS TEXT)"
        " WHERE session_id = 'odd' AND content = 'a' || char(0) || 'b'",
    )

    events = new.run()

    odd = [each for each in events if each.stream == "session:odd"]
    told = [each.payload for each in odd if isinstance(each.payload, e.MessageAppended)]
    assert len(told) == len(ODD_MESSAGES)
    assert told[2].odd["reasoning"] == e.Odd("text", b"a\xed")
    assert told[2].reasoning == "a�"
    edit(new.hermes, "UPDATE messages SET reasoning = NULL WHERE session_id = 'odd'")
    new.run()
    assert new.run() == []


def test_odd_messages_give_their_rows_back(new: Importer) -> None:
    edit(new.hermes, "INSERT INTO sessions (id, source, started_at) VALUES ('odd', 'cli', 'soon')")
    for content, at in ODD_MESSAGES:
        edit(
            new.hermes,
            "INSERT INTO messages (session_id, role, content, timestamp, compacted)"
            " VALUES ('odd', 'user', ?, ?, 1)",
            content,
            at,
        )

    assert_whole(new.hermes, new.run())


def test_messages_without_a_time_bear_that_of_the_one_before(new: Importer) -> None:
    edit(new.hermes, "INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 5.0)")
    for at in (5.0, "never", 6.0):
        edit(
            new.hermes,
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'x', ?)",
            at,
        )

    told = [each for each in new.run() if each.stream == "session:s"]

    assert [(each.at_us, each.at_kind) for each in told] == [
        (5_000_000, "exact"),
        (5_000_000, "exact"),
        (5_000_000, "no_later_than"),
        (6_000_000, "exact"),
    ]


def test_equal_and_backward_times_keep_their_order(new: Importer) -> None:
    """FIELD_CASES B16: messages out of order or duplicated when clock ticks collide."""
    edit(new.hermes, "INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 5.0)")
    for number, at in enumerate([7.0, 7.0, 7.0, 3.0, 7.0]):
        edit(
            new.hermes,
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', ?, ?)",
            str(number),
            at,
        )

    told = [each.payload for each in new.run() if each.stream == "session:s"]

    assert [p.content for p in told if isinstance(p, e.MessageAppended)] == ["0", "1", "2", "3", "4"]


def test_missing_and_cyclic_parents_come_as_they_are(new: Importer) -> None:
    for session_id, parent in (("a", "b"), ("b", "a"), ("c", "nobody"), ("d", "d")):
        edit(
            new.hermes,
            "INSERT INTO sessions (id, source, started_at, parent_session_id) VALUES (?, 'cli', 1.0, ?)",
            session_id,
            parent,
        )

    new.run()

    assert new.state("SELECT child, parent FROM edges WHERE child IN ('a','b','c','d')") == [
        ("a", "b"),
        ("b", "a"),
        ("c", "nobody"),
        ("d", "d"),
    ]
    assert new.report is not None
    assert [line.split(": ")[1] for line in new.report.notes] == ["a → b → a", "d → d"]


def test_titles_that_only_look_numbered_stay_as_they_are(new: Importer) -> None:
    edit(
        new.hermes, "INSERT INTO sessions (id, source, started_at, title) VALUES ('a', 'cli', 1.0, 'p #bar')"
    )
    new.run()

    assert new.session("a")["title"] == "p #bar"


def test_undone_messages_come_in_undone(new: Importer) -> None:
    """FIELD_CASES E13: an importer that repeats undone text."""
    new.run()
    theirs = ask(new.hermes, "SELECT active, compacted, count(*) FROM messages GROUP BY 1, 2")
    ours = new.state("SELECT active, compacted, count(*) FROM messages GROUP BY 1, 2")

    assert ours == theirs
    assert len(ours) == 3


@pytest.mark.parametrize("kept", [11, 16, 30])
def test_schemas_of_every_age(new: Importer, kept: int) -> None:
    young = ["archived", "rewind_count", "profile_name", "handoff_error", "git_repo_root"]
    if kept < 30:
        edit(new.hermes, "DROP TABLE session_model_usage")
        for column in young:
            edit(new.hermes, f"ALTER TABLE sessions DROP COLUMN {column}")
    if kept < 16:
        edit(new.hermes, "DROP TABLE gateway_routing")
        for index in ("idx_messages_session_active", "idx_messages_active_null"):
            edit(new.hermes, f"DROP INDEX IF EXISTS {index}")
        for column in ("active", "compacted", "api_content", "observed"):
            edit(new.hermes, f"ALTER TABLE messages DROP COLUMN {column}")
    if kept == 30:
        edit(new.hermes, "CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, prompt TEXT)")
        edit(new.hermes, "ALTER TABLE sessions ADD COLUMN system_prompt_hash TEXT")
        edit(new.hermes, "INSERT INTO system_prompts VALUES ('h', 'be kind')")
        edit(new.hermes, "UPDATE sessions SET system_prompt = NULL, system_prompt_hash = 'h'")
    edit(new.hermes, "UPDATE schema_version SET version = ?", kept)

    events = new.run()

    assert new.report is not None
    assert new.report.schema_version == kept
    assert new.report.taken["messages"] == 914
    assert new.report.taken["routes"] == 27  # of the mirror, where there is no table
    assert new.run() == []
    prompts = [p.payload for p in events if isinstance(p.payload, e.PromptChanged)]
    if kept == 30:
        assert {(p.prompt_hash, p.text) for p in prompts} == {("h", "be kind"), ("h", None)}


# --- routes ------------------------------------------------------------------------------------------


def routed(events: list[Recorded]) -> dict[str, str]:
    return {
        each.payload.key: each.payload.session_id
        for each in events
        if isinstance(each.payload, e.SessionRerouted)
    }


def test_each_route_is_told_once_as_it_stood(new: Importer) -> None:
    events = new.run()
    rows = ask(new.hermes, "SELECT session_key, entry_json, updated_at FROM gateway_routing")
    told = {p.payload.key: p for p in events if isinstance(p.payload, e.SessionRerouted)}

    assert {key: each.payload.entry for key, each in told.items()} == {r[0]: r[1] for r in rows}
    assert {(p.payload.cause, p.payload.previous, p.at_kind) for p in told.values()} == {
        ("import", None, "no_later_than")
    }
    assert told["agent:main:telegram:dm:1001"].payload.entry_created_us == 1778141400_000000
    assert all(each.stream.startswith("route:") and "1001" not in each.stream for each in told.values())


def test_a_route_to_a_session_that_is_not_there_comes_in(new: Importer) -> None:
    assert routed(new.run())["agent:main:matrix:dm:!gone:example.org"] == "20991231_235959_deadbeef"


@pytest.mark.parametrize("entry", ["{not json", "[]", '{"session_id": null}', "{}", b"\xff"])
def test_a_broken_entry_is_skipped_and_named(new: Importer, entry: object) -> None:
    edit(new.hermes, "INSERT INTO gateway_routing VALUES ('/home/u/.hermes/sessions', 'k', ?, 1.0)", entry)

    assert "k" not in routed(new.run())
    assert new.report is not None
    (line,) = new.report.skipped
    assert line.startswith("route k: its entry ")
    assert new.run() == []


def test_the_mirror_fills_what_the_table_lacks_and_the_table_wins(new: Importer) -> None:
    mirror = new.hermes / "sessions" / "sessions.json"
    entries = json.loads(mirror.read_text())
    entries["only:here"] = {"session_id": "s", "updated_at": "2026-05-08T14:19:30"}
    entries["broken"] = 3
    mirror.write_text(json.dumps(entries))

    told = routed(new.run())

    assert told["only:here"] == "s"
    assert told["agent:main:telegram:dm:1002"] == "20260513_160738_31e6ce93"
    assert new.report is not None
    assert len(new.report.differences) == 2
    assert [line for line in new.report.skipped if "broken" in line]


def test_of_several_scopes_the_homes_own_is_taken(new: Importer) -> None:
    own = str((new.hermes / "sessions").resolve())
    edit(new.hermes, """INSERT INTO gateway_routing VALUES (?, 'mine', '{"session_id": "s"}', 1.0)""", own)
    (new.hermes / "sessions" / "sessions.json").unlink()

    assert routed(new.run()) == {"mine": "s"}
    assert new.report is not None
    assert new.report.notes == [
        "routing scope /home/u/.hermes/sessions: 27 entries of another folder were left out"
    ]


def test_of_foreign_scopes_the_newest_is_taken(new: Importer) -> None:
    edit(new.hermes, """INSERT INTO gateway_routing VALUES ('/old', 'k', '{"session_id": "s"}', 1.0)""")

    assert len(routed(new.run())) == 27


# --- damage ------------------------------------------------------------------------------------------


def test_messages_whose_session_row_is_missing_come_in_without_it(new: Importer) -> None:
    edit(new.hermes, "DELETE FROM sessions WHERE id = '20260504_080000_b33d43d5'")
    new.run()

    assert new.state("SELECT count(*) FROM messages") == [(914,)]
    assert new.session("20260504_080000_b33d43d5")["source"] == "unknown"
    assert new.report is not None
    assert any("its row is missing" in line for line in new.report.notes)


def test_a_row_that_comes_after_its_messages_fills_in_what_was_not_known(new: Importer) -> None:
    session = "20260504_080000_b33d43d5"
    row = ask(new.hermes, "SELECT * FROM sessions WHERE id = ?", session)[0]
    edit(new.hermes, "DELETE FROM sessions WHERE id = ?", session)
    new.run()
    edit(new.hermes, f"INSERT INTO sessions VALUES ({','.join('?' * len(row))})", *row)
    new.run()

    here = new.session(session)
    assert (here["source"], here["title"], here["session_key"]) == (
        "telegram",
        "boat repair",
        "agent:main:telegram:dm:1001",
    )
    assert new.run() == []


def test_g7_a_damaged_page_loses_its_rows_only_and_names_them(new: Importer) -> None:
    """FIELD_CASES G7: recovery that drops readable rows, gives up, or aborts."""
    db = new.hermes / "state.db"
    new_page = ask(new.hermes, "PRAGMA page_size")[0][0]
    content = bytearray(db.read_bytes())
    needle = b"The context manager"
    at = content.index(needle) // new_page * new_page
    content[at : at + 8] = b"\xff" * 8
    db.write_bytes(content)

    new.run()

    assert new.report is not None
    assert new.report.exit_code == 1
    assert new.report.lost or new.report.damage
    assert new.report.taken["messages"] > 850
    appended = new.run()
    assert [p for p in appended if isinstance(p.payload, e.SourceRowGone)] == []


def test_what_is_no_store_is_refused(new: Importer, tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        import_hermes(new.engine, tmp_path / "nowhere")
    assert new.events() == []


def test_a_row_in_normal_form_has_no_defaults() -> None:
    assert settled({"input_tokens": 0, "title": None}) == {}
