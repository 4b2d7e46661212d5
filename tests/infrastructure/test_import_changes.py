"""After each kind of change in a Hermes home, the next import appends just that.

Over 400 lines because it is one catalogue: a kind of change a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from retold.domain import events as e
from retold.infrastructure.importers import hermes_plan
from retold.tests.infrastructure.importing import Importer, ask, edit, importer

BOAT = "20260504_080000_b33d43d5"
KEY = "agent:main:telegram:dm:1001"


@pytest.fixture
def known(home: Path, hermes_home: Path) -> Iterator[Importer]:
    """A home that was imported once."""
    with importer(home, hermes_home) as it:
        it.run()
        yield it


def last_message(hermes: Path, session_id: str = BOAT) -> int:
    return int(ask(hermes, "SELECT max(id) FROM messages WHERE session_id = ?", session_id)[0][0])


def test_nothing(known: Importer) -> None:
    assert known.told() == []
    assert known.report is not None
    assert known.report.taken == {}
    assert known.report.unchanged["messages"] == 914


def test_a_message_added(known: Importer) -> None:
    edit(
        known.hermes,
        "INSERT INTO messages (session_id, role, content, timestamp)"
        " VALUES (?, 'user', 'and now?', 1782131999.5)",
        BOAT,
    )

    (message,) = known.run()

    assert message.session_id == BOAT
    assert isinstance(message.payload, e.MessageAppended)
    assert message.payload.content == "and now?"
    assert (message.at_us, message.at_kind) == (1782131999_500000, "exact")


def test_a_message_edited(known: Importer) -> None:
    message = last_message(known.hermes)
    edit(known.hermes, "UPDATE messages SET content = 'other', observed = 1 WHERE id = ?", message)
    at = known.position_of(message)

    (edited,) = known.told()

    assert isinstance(edited, e.MessageEdited)
    assert (edited.message, edited.changes) == (at, {"content": "other", "observed": 1})
    assert known.state("SELECT content FROM messages WHERE id = ?", at) == [("other",)]
    assert known.told() == []


def test_a_message_edited_twice(known: Importer) -> None:
    message = last_message(known.hermes)
    edit(known.hermes, "UPDATE messages SET content = 'other', finish_reason = 'x' WHERE id = ?", message)
    known.run()
    edit(known.hermes, "UPDATE messages SET content = 'third' WHERE id = ?", message)

    (edited,) = known.told()

    assert isinstance(edited, e.MessageEdited)
    assert edited.changes == {"content": "third"}


@pytest.mark.parametrize(
    ("active", "compacted", "kind"), [(0, 1, e.MessagesCompacted), (0, 0, e.MessagesRewound)]
)
def test_messages_compacted_or_rewound_and_live_again(
    known: Importer, active: int, compacted: int, kind: type[e.MessagesCompacted | e.MessagesRewound]
) -> None:
    ids = [row[0] for row in ask(known.hermes, "SELECT id FROM messages WHERE session_id = ?", BOAT)]
    positions = [known.position_of(each) for each in ids]
    edit(
        known.hermes,
        "UPDATE messages SET active = ?, compacted = ? WHERE session_id = ?",
        active,
        compacted,
        BOAT,
    )

    assert known.told() == [kind(positions)]
    edit(known.hermes, "UPDATE messages SET active = 1, compacted = 0 WHERE session_id = ?", BOAT)
    assert known.told() == [e.MessagesRestored(positions)]
    assert known.told() == []


def test_a_message_gone_and_back(known: Importer) -> None:
    message = last_message(known.hermes)
    row = ask(known.hermes, "SELECT * FROM messages WHERE id = ?", message)[0]
    at = known.position_of(message)
    edit(known.hermes, "DELETE FROM messages WHERE id = ?", message)

    assert known.told() == [e.SourceRowGone("message", "", [at])]
    assert known.told() == []
    assert known.state("SELECT count(*) FROM messages WHERE id = ?", at) == [(1,)]

    edit(known.hermes, f"INSERT INTO messages VALUES ({','.join('?' * len(row))})", *row)

    assert known.told() == [
        e.SourceRowChanged("message", "", {}, messages=[at]),
        e.MessagesRestored([at]),
    ]
    assert known.told() == []


def test_a_message_whose_id_names_one_of_another_session_now(known: Importer) -> None:
    message = last_message(known.hermes)
    at = known.position_of(message)
    other = "20260507_081000_325c9788"
    edit(known.hermes, "UPDATE messages SET session_id = ? WHERE id = ?", other, message)

    gone, appended = known.run()

    assert (gone.session_id, gone.payload) == (BOAT, e.SourceRowGone("message", "", [at]))
    assert appended.session_id == other
    assert known.told() == []


def test_a_title(known: Importer) -> None:
    edit(known.hermes, "UPDATE sessions SET title = 'boat and sail' WHERE id = ?", BOAT)

    assert known.told() == [
        e.TitleReleased("boat repair", BOAT),
        e.TitleClaimed("boat and sail", BOAT),
        e.SessionTitled("boat and sail"),
    ]


def test_a_title_taken_away(known: Importer) -> None:
    edit(known.hermes, "UPDATE sessions SET title = NULL WHERE id = ?", BOAT)

    assert known.told() == [e.TitleReleased("boat repair", BOAT), e.SessionTitled(None)]


def test_two_sessions_that_swap_their_titles(known: Importer) -> None:
    (other, title) = ask(
        known.hermes,
        "SELECT id, title FROM sessions WHERE title NOT NULL AND id <> ? ORDER BY rowid LIMIT 1",
        BOAT,
    )[0]
    edit(known.hermes, "UPDATE sessions SET title = 'x' WHERE id = ?", other)
    edit(known.hermes, "UPDATE sessions SET title = ? WHERE id = ?", title, BOAT)
    edit(known.hermes, "UPDATE sessions SET title = 'boat repair' WHERE id = ?", other)

    told = known.told()

    assert e.TitleClaimed(title, BOAT) in told
    assert e.TitleClaimed("boat repair", other) in told
    assert [p.claimed for p in told if isinstance(p, e.SessionTitled)] == [True, True]
    assert known.told() == []


def test_an_end_and_a_reopening(known: Importer) -> None:
    edit(
        known.hermes,
        "UPDATE sessions SET ended_at = 1782132000.25, end_reason = 'session_reset' WHERE id = ?",
        BOAT,
    )

    (ended,) = known.run()

    assert ended.payload == e.SessionEnded("session_reset", hard=True, ended_at=1782132000.25)
    assert (ended.at_us, ended.at_kind) == (1782132000_250000, "exact")
    edit(known.hermes, "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", BOAT)
    assert known.told() == [e.SessionReopened()]
    assert known.session(BOAT)["end_reason"] is None


def compress(hermes: Path) -> None:
    """BOAT ends by compression."""
    edit(
        hermes,
        "UPDATE sessions SET ended_at = 1782132000.0, end_reason = 'compression' WHERE id = ?",
        BOAT,
    )


def go_on(hermes: Path) -> None:
    """BOAT's continuation begins."""
    edit(
        hermes,
        "INSERT INTO sessions (id, source, started_at, parent_session_id, session_key)"
        " VALUES ('next', 'telegram', 1782132001.0, ?, ?)",
        BOAT,
        KEY,
    )


def test_a_compression_with_its_continuation(known: Importer) -> None:
    compress(known.hermes)
    go_on(known.hermes)

    compressed, created = known.told()

    assert compressed == e.SessionCompressed("next", ended_at=1782132000.0)
    assert isinstance(created, e.SessionCreated)
    assert (created.parent_session_id, created.parent_kind) == (BOAT, "continuation")
    assert created.session_key == KEY


def test_a_continuation_that_comes_an_import_after_the_compression(known: Importer) -> None:
    compress(known.hermes)
    assert known.told() == [e.SessionEnded("compression", hard=False, ended_at=1782132000.0)]
    go_on(known.hermes)

    compressed, created = known.run()

    assert (compressed.session_id, created.session_id) == (BOAT, "next")
    assert compressed.payload == e.SessionCompressed("next", ended_at=1782132000.0)
    assert (compressed.at_us, compressed.at_kind) == (1782132000_000000, "exact")
    assert known.engine.session(BOAT).successor == "next"
    assert known.told() == []


def test_a_continuation_that_came_without_its_compression_is_told_at_the_next_import(
    known: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an import that was killed between the two."""
    compress(known.hermes)
    known.run()
    go_on(known.hermes)
    with monkeypatch.context() as patch:
        patch.setattr(hermes_plan, "session_continued", lambda *_, **__: [])
        assert len(known.told()) == 1

    assert known.told() == [e.SessionCompressed("next", ended_at=1782132000.0)]
    assert known.told() == []


def test_a_session_that_was_opened_again_here_is_not_compressed_by_a_later_import(known: Importer) -> None:
    compress(known.hermes)
    known.run()
    known.engine.reopen_session(BOAT)
    go_on(known.hermes)

    assert [type(each) for each in known.told()] == [e.SessionCreated]
    assert known.engine.session(BOAT).ended is False
    assert known.told() == []


def test_an_end_whose_time_is_no_real_number_is_compressed_all_the_same(known: Importer) -> None:
    compress(known.hermes)
    edit(known.hermes, "UPDATE sessions SET ended_at = x'00' WHERE id = ?", BOAT)
    known.run()
    go_on(known.hermes)

    assert any(isinstance(each, e.SessionCompressed) for each in known.told())
    assert known.told() == []


def test_an_archive(known: Importer) -> None:
    edit(known.hermes, "UPDATE sessions SET archived = 1 WHERE id = ?", BOAT)

    assert known.told() == [e.SessionArchived()]
    edit(known.hermes, "UPDATE sessions SET archived = 0 WHERE id = ?", BOAT)
    assert known.told() == [e.SessionUnarchived()]


def test_a_key_and_chat_identity_lost(known: Importer) -> None:
    edit(known.hermes, "UPDATE sessions SET session_key = NULL, chat_id = NULL WHERE id = ?", BOAT)

    assert known.told() == [
        e.IdentityLost({"session_key": KEY, "chat_id": "1001"}, {"session_key": None, "chat_id": None})
    ]
    assert known.session(BOAT)["lost_key"] == KEY
    edit(known.hermes, "UPDATE sessions SET session_key = ?, chat_id = '1001' WHERE id = ?", KEY, BOAT)
    (restored,) = known.told()
    assert isinstance(restored, e.IdentityRestored)
    assert restored.now == {"session_key": KEY, "chat_id": "1001"}


def test_a_key_changed(known: Importer) -> None:
    edit(known.hermes, "UPDATE sessions SET session_key = 'agent:main:x' WHERE id = ?", BOAT)

    assert known.told() == [e.IdentityRestored({"session_key": KEY}, {"session_key": "agent:main:x"})]


def route(hermes: Path, key: str = KEY) -> dict[str, object]:
    entry = ask(hermes, "SELECT entry_json FROM gateway_routing WHERE session_key = ?", key)[0][0]
    found: dict[str, object] = json.loads(entry)
    return found


def set_route(hermes: Path, key: str = KEY, **said: object) -> str:
    entry = json.dumps({**route(hermes, key), **said})
    edit(hermes, "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?", entry, key)
    return entry


def test_a_route_moved(known: Importer) -> None:
    entry = set_route(known.hermes, session_id="20260508_141930_46dc1a26")

    (moved,) = known.told()

    assert isinstance(moved, e.SessionRerouted)
    assert (moved.session_id, moved.previous) == ("20260508_141930_46dc1a26", BOAT)
    assert (moved.cause, moved.entry) == ("import", entry)
    assert known.told() == []


def test_a_route_whose_entry_says_something_else(known: Importer) -> None:
    entry = set_route(known.hermes, suspended=True)

    (changed,) = known.told()

    assert isinstance(changed, e.SourceRowChanged)
    assert (changed.kind, changed.row, changed.changes["entry_json"]) == ("route", KEY, entry)
    assert changed.conflicts == []
    assert known.told() == []


def test_a_route_gone_and_back(known: Importer) -> None:
    row = ask(known.hermes, "SELECT * FROM gateway_routing WHERE session_key = ?", KEY)[0]
    mirror = known.hermes / "sessions" / "sessions.json"
    entries = json.loads(mirror.read_text())
    del entries[KEY]
    mirror.write_text(json.dumps(entries))
    edit(known.hermes, "DELETE FROM gateway_routing WHERE session_key = ?", KEY)

    (closed,) = known.told()

    assert isinstance(closed, e.RouteClosed)
    assert (closed.key, closed.previous) == (KEY, BOAT)
    assert known.told() == []
    edit(known.hermes, "INSERT INTO gateway_routing VALUES (?, ?, ?, ?)", *row)
    (back,) = known.told()
    assert isinstance(back, e.SessionRerouted)
    assert back.session_id == BOAT


def test_a_session_gone_and_back(known: Importer) -> None:
    hermes = known.hermes
    session = ask(hermes, "SELECT * FROM sessions WHERE id = ?", BOAT)[0]
    messages = ask(hermes, "SELECT * FROM messages WHERE session_id = ? ORDER BY id", BOAT)
    positions = [known.position_of(row[0]) for row in messages]
    edit(hermes, "DELETE FROM messages WHERE session_id = ?", BOAT)
    edit(hermes, "DELETE FROM session_model_usage WHERE session_id = ?", BOAT)
    edit(hermes, "DELETE FROM sessions WHERE id = ?", BOAT)

    assert known.told() == [e.SourceRowGone("session", BOAT, positions)]
    assert known.told() == []
    assert known.session(BOAT)["message_count"] == len(messages)

    edit(hermes, f"INSERT INTO sessions VALUES ({','.join('?' * len(session))})", *session)
    for row in messages:
        edit(hermes, f"INSERT INTO messages VALUES ({','.join('?' * len(row))})", *row)
    told = known.told()
    assert e.SourceRowChanged("session", BOAT, {}) in told
    assert e.SourceRowChanged("message", "", {}, messages=positions) in told
    assert not any(isinstance(each, e.MessageAppended) for each in told)
    assert known.told() == []


def leave(hermes: Path, session_id: str, *, usage: bool = True) -> None:
    """A session goes, with its messages, as when it is deleted in Hermes."""
    edit(hermes, "DELETE FROM messages WHERE session_id = ?", session_id)
    if usage:
        edit(hermes, "DELETE FROM session_model_usage WHERE session_id = ?", session_id)
    edit(hermes, "DELETE FROM sessions WHERE id = ?", session_id)


def name_anew(hermes: Path, title: str = "boat repair") -> None:
    """A new session gets the title."""
    edit(
        hermes,
        "INSERT INTO sessions (id, source, started_at, title) VALUES ('new', 'cli', 1782132000.0, ?)",
        title,
    )


@pytest.mark.parametrize("at_once", [True, False])
def test_a_session_that_went_gives_its_title_to_a_new_one(known: Importer, at_once: bool) -> None:
    leave(known.hermes, BOAT)
    if not at_once:
        known.run()
    name_anew(known.hermes)

    told = known.told()

    assert told[-4:] == [
        e.TitleReleased("boat repair", BOAT),
        e.SessionTitled("boat repair", claimed=False),
        e.TitleClaimed("boat repair", "new"),
        e.SessionTitled("boat repair"),
    ]
    assert known.report is not None
    assert known.report.notes == [
        f"session {BOAT}: it is no longer in the source, and its title 'boat repair' is session new's now"
    ]
    assert known.state("SELECT id, title_claimed FROM sessions WHERE title = 'boat repair' ORDER BY id") == [
        (BOAT, 0),
        ("new", 1),
    ]
    assert known.engine.claim("boat repair").holder == "new"
    assert known.told() == []


def test_a_title_that_was_given_here_stays_with_a_session_that_went(known: Importer) -> None:
    known.engine.title_session(BOAT, "my own title")
    leave(known.hermes, BOAT)
    name_anew(known.hermes, "my own title")

    told = known.told()

    assert told[-1] == e.SessionTitled("my own title", claimed=False)
    assert known.engine.claim("my own title").holder == BOAT
    assert known.report is not None
    assert any("'my own title' belongs to session " + BOAT in line for line in known.report.notes)


def test_usage_rows_that_a_session_leaves_behind_are_as_they_were(known: Importer) -> None:
    left = ask(known.hermes, "SELECT count(*) FROM session_model_usage WHERE session_id = ?", BOAT)[0][0]
    everyones = ask(known.hermes, "SELECT count(*) FROM session_model_usage")[0][0]
    leave(known.hermes, BOAT, usage=False)

    for told in (1, 0):
        assert len(known.told()) == told
        assert known.report is not None
        assert left
        assert known.report.skipped == []
        assert known.report.unchanged["usage"] == everyones


def test_a_new_session_with_the_title_that_another_gave_up(known: Importer) -> None:
    edit(known.hermes, "UPDATE sessions SET title = 'other' WHERE id = ?", BOAT)
    edit(
        known.hermes,
        "INSERT INTO sessions (id, source, started_at, title) VALUES ('new', 'cli', 1.0, 'boat repair')",
    )

    told = known.told()

    assert e.TitleClaimed("boat repair", "new") in told
    assert known.session("new")["title"] == "boat repair"


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("cwd", "/x", e.WorkspaceChanged("/x", None, None)),
        ("rewind_count", 2, e.SourceRowChanged("session", BOAT, {"rewind_count": 2})),
        ("cost_source", "x", None),
        ("model", "new/model", e.ModelChanged("new/model", None)),
    ],
)
def test_any_other_column(known: Importer, column: str, value: object, expected: e.Payload | None) -> None:
    edit(known.hermes, f"UPDATE sessions SET {column} = ? WHERE id = ?", value, BOAT)

    (told,) = known.told()

    assert told == expected or isinstance(told, e.UsageRecorded)
    assert known.session(BOAT)[column] == value
    assert known.told() == []


def test_usage_of_the_session_and_of_a_model(known: Importer) -> None:
    edit(known.hermes, "UPDATE sessions SET input_tokens = 99999 WHERE id = ?", BOAT)
    edit(
        known.hermes,
        "UPDATE session_model_usage SET output_tokens = 777"
        " WHERE session_id = ? AND model = 'qwen/qwen3-coder'",
        BOAT,
    )

    session, model = known.told()

    assert isinstance(session, e.UsageRecorded)
    assert isinstance(model, e.UsageRecorded)
    assert (session.mode, session.model, session.input_tokens) == ("absolute", None, 99999)
    assert (model.model, model.output_tokens) == ("qwen/qwen3-coder", 777)


def test_a_usage_row_gone_and_back(known: Importer) -> None:
    where = "session_id = ? AND model = 'qwen/qwen3-coder'"
    row = ask(known.hermes, f"SELECT * FROM session_model_usage WHERE {where}", BOAT)[0]
    edit(known.hermes, f"DELETE FROM session_model_usage WHERE {where}", BOAT)
    totals = known.state(f"SELECT * FROM session_model_usage WHERE {where}", BOAT)

    (gone,) = known.told()

    assert isinstance(gone, e.UsageRowGone)
    assert gone.model == "qwen/qwen3-coder"
    assert known.report is not None
    assert known.report.taken == {"usage rows gone": 1}
    assert known.state(f"SELECT * FROM session_model_usage WHERE {where}", BOAT) == totals != []
    assert known.told() == []
    edit(known.hermes, f"INSERT INTO session_model_usage VALUES ({','.join('?' * len(row))})", *row)
    (back,) = known.told()
    assert isinstance(back, e.UsageRecorded)
    assert known.told() == []


def test_usage_that_is_not_there_to_be_read_has_not_gone(known: Importer) -> None:
    edit(known.hermes, "ALTER TABLE session_model_usage RENAME TO elsewhere")

    assert known.told() == []


def test_columns_that_a_newer_hermes_adds(known: Importer) -> None:
    edit(known.hermes, "ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0")
    edit(known.hermes, "ALTER TABLE sessions ADD COLUMN title_source TEXT")
    edit(known.hermes, "ALTER TABLE messages ADD COLUMN display_kind TEXT")

    assert known.told() == []
    edit(known.hermes, "UPDATE sessions SET pinned = 1, title_source = 'user' WHERE id = ?", BOAT)
    assert known.told() == [
        e.SessionPinned(),
        e.SourceRowChanged("session", BOAT, {"title_source": "user"}),
    ]
