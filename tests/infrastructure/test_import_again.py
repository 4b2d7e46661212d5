"""Imports that follow: what was changed here stays, what was erased stays erased, a killed one goes on.

Over 400 lines because every test imports one home twice, with something else in between.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from retold.domain import events as e
from retold.domain.errors import BadUsage, StoreBusy, VersionConflict
from retold.domain.events import Recorded
from retold.infrastructure.importers import hermes, writer
from retold.infrastructure.importers.report import Progress
from retold.infrastructure.importers.turn import my_turn
from retold.infrastructure.log import Draft, Log
from retold.tests.infrastructure.importing import Importer, ask, edit, importer

BOAT = "20260504_080000_b33d43d5"
OTHER = "20260507_081000_325c9788"
KEY = "agent:main:telegram:dm:1001"


@pytest.fixture
def known(home: Path, hermes_home: Path) -> Iterator[Importer]:
    """A home that was imported once."""
    with importer(home, hermes_home) as it:
        it.run()
        yield it


# --- changed here ------------------------------------------------------------------------------------


def test_what_was_changed_here_only_is_never_reverted(known: Importer) -> None:
    engine = known.engine
    engine.title_session(BOAT, "my own title")
    engine.archive_session(OTHER)
    engine.append_message(BOAT, "user", "said here")
    engine.end_session(BOAT, "cli_close")
    engine.reroute(KEY, OTHER, "repair")

    assert known.told() == []
    assert known.session(BOAT)["title"] == "my own title"
    assert known.session(BOAT)["end_reason"] == "cli_close"
    assert known.session(OTHER)["archived"] == 1
    assert engine.route_of(KEY) == OTHER


def test_a_continuation_that_a_person_chose_stays_the_one(known: Importer) -> None:
    chosen = "20260527_151353_c5114e94"
    (parent,) = known.state("SELECT parent FROM edges WHERE child = ?", chosen)[0]
    kinds = "SELECT child, kind FROM edges WHERE parent = ? ORDER BY child"
    known.engine.choose_continuation(chosen)
    stands = known.state(kinds, parent)
    assert dict(stands)[chosen] == "continuation"
    assert [kind for _, kind in stands].count("continuation") == 1

    assert known.told() == []
    edit(known.hermes, "UPDATE sessions SET ended_at = ended_at + 1 WHERE id = ?", parent)
    told = known.told()
    assert [type(each) for each in told if isinstance(each, e.SessionCompressed)] == [e.SessionCompressed]
    assert known.engine.session(parent).successor == chosen
    assert known.state(kinds, parent) == stands
    assert known.told() == []


def test_a_title_changed_on_both_sides_stays_ours_and_is_reported_once(known: Importer) -> None:
    known.engine.title_session(BOAT, "my own title")
    edit(known.hermes, "UPDATE sessions SET title = 'their title' WHERE id = ?", BOAT)

    (told,) = known.told()

    assert told == e.SourceRowChanged(
        "session", BOAT, {"title": "their title"}, ["title"], ours={"title": "my own title"}
    )
    assert known.report is not None
    assert known.report.conflicts == [
        f"session {BOAT}: title is 'their title' in the source and was changed here to"
        " 'my own title'; ours stays"
    ]
    assert known.session(BOAT)["title"] == "my own title"
    assert known.state('SELECT session_id, "column", ours, theirs FROM source_conflicts') == [
        (BOAT, "title", "my own title", "their title")
    ]
    assert known.told() == []


def standing(it: Importer) -> list[tuple[Any, ...]]:
    return it.state('SELECT kind, "column", theirs FROM source_conflicts ORDER BY position, "column"')


def test_of_a_title_that_a_source_changes_again_its_last_word_is_the_conflict(known: Importer) -> None:
    known.engine.title_session(BOAT, "my own title")
    for title in ("their title", "their other title"):
        edit(known.hermes, "UPDATE sessions SET title = ? WHERE id = ?", title, BOAT)
        known.run()
        assert standing(known) == [("session", "title", title)]

    edit(known.hermes, "UPDATE sessions SET title = 'my own title' WHERE id = ?", BOAT)
    known.run()
    assert standing(known) == []


def test_a_title_that_was_given_up_here_and_follows_its_source_again_is_no_conflict(known: Importer) -> None:
    known.engine.title_session(BOAT, "my own title")
    edit(known.hermes, "UPDATE sessions SET title = 'their title' WHERE id = ?", BOAT)
    known.run()
    known.engine.title_session(BOAT, "their title")
    edit(known.hermes, "UPDATE sessions SET title = 'their other title' WHERE id = ?", BOAT)
    known.run()

    assert known.session(BOAT)["title"] == "their other title"
    assert standing(known) == []


def test_of_a_message_that_a_source_edits_again_its_last_word_is_the_conflict(known: Importer) -> None:
    row = ask(known.hermes, "SELECT min(id) FROM messages WHERE session_id = ?", BOAT)[0][0]
    known.engine.edit_message(BOAT, "ours", message=known.position_of(row))
    for text in ("theirs", "theirs again"):
        edit(known.hermes, "UPDATE messages SET content = ? WHERE id = ?", text, row)
        known.run()
        assert standing(known) == [("message", "content", text)]

    edit(known.hermes, "UPDATE messages SET content = 'ours' WHERE id = ?", row)
    known.run()
    assert standing(known) == []
    assert known.report is not None
    assert known.report.conflicts == []
    assert known.told() == []


@pytest.mark.parametrize("how", ["settled", "edited back", "edited alike"])
def test_a_message_that_is_as_its_source_has_it_follows_that_again(known: Importer, how: str) -> None:
    row, text = ask(known.hermes, "SELECT id, content FROM messages WHERE session_id = ? LIMIT 1", BOAT)[0]
    message = known.position_of(row)
    known.engine.edit_message(BOAT, "ours", message=message)
    if how == "edited back":
        known.engine.edit_message(BOAT, text, message=message)
    else:
        edit(known.hermes, "UPDATE messages SET content = 'theirs' WHERE id = ?", row)
        known.run()
        if how == "settled":
            ((found,),) = known.state("SELECT position FROM source_conflicts")
            known.engine.resolve_conflict(found, "theirs")
        else:
            known.engine.edit_message(BOAT, "theirs", message=message)
    edit(known.hermes, "UPDATE messages SET content = 'theirs again' WHERE id = ?", row)
    known.run()

    assert known.state("SELECT content FROM messages WHERE id = ?", message) == [("theirs again",)]
    assert standing(known) == []


def test_messages_that_were_rewound_and_redone_here_are_compacted_with_their_source(known: Importer) -> None:
    ids = [
        each
        for (each,) in known.state(
            "SELECT id FROM messages WHERE session_id = ? AND active AND NOT compacted ORDER BY id", BOAT
        )
    ]
    known.engine.reopen_session(BOAT)
    known.engine.undo_turns(BOAT, 1)
    known.engine.redo(BOAT)
    edit(known.hermes, "UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ?", BOAT)
    known.run()

    shown = known.state("SELECT id FROM messages WHERE session_id = ? AND active", BOAT)
    assert ids
    assert shown == []
    assert standing(known) == []


def test_of_a_route_that_a_source_moves_again_its_last_word_is_the_conflict(known: Importer) -> None:
    known.engine.reroute(KEY, OTHER, "repair")
    for session_id in ("20260508_141930_46dc1a26", BOAT):
        entry = json.dumps({"session_id": session_id})
        edit(known.hermes, "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?", entry, KEY)
        known.run()
        assert [each[2] for each in standing(known) if each[1] == "session_id"] == [session_id]

    entry = json.dumps({"session_id": OTHER})
    edit(known.hermes, "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?", entry, KEY)
    known.run()
    assert standing(known) == []


def test_a_change_that_was_made_here_too_is_no_conflict(known: Importer) -> None:
    known.engine.archive_session(BOAT)
    edit(known.hermes, "UPDATE sessions SET archived = 1 WHERE id = ?", BOAT)

    (told,) = known.told()

    assert told == e.SourceRowChanged("session", BOAT, {"archived": 1})
    assert known.report is not None
    assert known.report.conflicts == []
    assert known.told() == []


def test_what_the_source_changed_elsewhere_in_the_row_still_comes(known: Importer) -> None:
    known.engine.title_session(BOAT, "my own title")
    edit(known.hermes, "UPDATE sessions SET title = 't', cwd = '/x' WHERE id = ?", BOAT)

    assert known.told()[0] == e.WorkspaceChanged("/x", None, None)
    assert known.session(BOAT)["title"] == "my own title"


def test_an_end_on_both_sides_stays_ours(known: Importer) -> None:
    known.engine.end_session(BOAT, "session_reset")
    edit(known.hermes, "UPDATE sessions SET ended_at = 9.5, end_reason = 'cli_close' WHERE id = ?", BOAT)

    (told,) = known.told()

    assert isinstance(told, e.SourceRowChanged)
    assert told.conflicts == ["ended_at", "end_reason"] or told.conflicts == sorted(told.changes)
    assert known.session(BOAT)["end_reason"] == "session_reset"


def test_a_route_moved_on_both_sides_stays_ours(known: Importer) -> None:
    known.engine.reroute(KEY, OTHER, "repair")
    entry = '{"session_id": "20260508_141930_46dc1a26"}'
    edit(known.hermes, "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?", entry, KEY)

    (told,) = known.told()

    assert isinstance(told, e.SourceRowChanged)
    assert told.conflicts == ["session_id", "entry_json"]
    assert known.engine.route_of(KEY) == OTHER
    assert known.told() == []


def test_a_route_that_the_source_moves_where_it_leads_here_is_no_conflict(known: Importer) -> None:
    known.engine.reroute(KEY, OTHER, "repair")
    entry = f'{{"session_id": "{OTHER}"}}'
    edit(known.hermes, "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?", entry, KEY)

    (told,) = known.told()

    assert isinstance(told, e.SourceRowChanged)
    assert told.conflicts == []
    assert known.engine.route_of(KEY) == OTHER


def test_a_route_moved_here_and_gone_there_stays(known: Importer) -> None:
    known.engine.reroute(KEY, OTHER, "repair")
    (known.hermes / "sessions" / "sessions.json").unlink()
    edit(known.hermes, "DELETE FROM gateway_routing WHERE session_key = ?", KEY)

    (told,) = known.told()

    assert isinstance(told, e.SourceRowGone)
    assert known.engine.route_of(KEY) == OTHER


def test_a_title_that_a_session_of_ours_holds_comes_in_unclaimed(home: Path, hermes_home: Path) -> None:
    with importer(home, hermes_home) as it:
        ours = it.engine.create_session("cli", title="boat repair").session_id
        told = it.told()

        assert e.SessionTitled("boat repair", claimed=False) in told
        assert it.session(ours)["title_claimed"] == 1
        assert it.told() == []


# --- recovered late ----------------------------------------------------------------------------------


def test_messages_that_an_earlier_import_could_not_read_are_said_to_stand_last(
    home: Path, hermes_home: Path
) -> None:
    held = ask(hermes_home, "SELECT * FROM messages WHERE session_id = ? ORDER BY id LIMIT 3", BOAT)[1:]
    edit(hermes_home, "DELETE FROM messages WHERE id IN (?, ?)", held[0][0], held[1][0])
    with importer(home, hermes_home) as it:
        it.run()
        for row in held:
            edit(hermes_home, f"INSERT INTO messages VALUES ({','.join('?' * len(row))})", *row)

        assert len(it.told()) == 2
        assert it.report is not None
        assert it.report.notes == [
            f"session {BOAT}: messages that stand before known ones in the source came in last: 2"
        ]
        edit(
            hermes_home,
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', 'next', 2e9)",
            BOAT,
        )
        assert len(it.told()) == 1
        assert it.report.notes == []


# --- erased here -------------------------------------------------------------------------------------


def test_an_erased_message_never_comes_back(known: Importer) -> None:
    message = ask(known.hermes, "SELECT max(id) FROM messages WHERE session_id = ?", BOAT)[0][0]
    at = known.position_of(message)
    known.engine.erase_messages([at], reason="secret")

    assert known.told() == []
    edit(known.hermes, "UPDATE messages SET content = 'the secret again' WHERE id = ?", message)
    assert known.told() == []
    assert known.state("SELECT count(*) FROM messages WHERE id = ?", at) == [(0,)]


def test_an_erased_message_is_none_that_comes_late(known: Importer) -> None:
    first = ask(known.hermes, "SELECT min(id) FROM messages WHERE session_id = ?", BOAT)[0][0]
    known.engine.erase_messages([known.position_of(first)], reason="secret")

    assert known.told() == []
    assert known.report is not None
    assert known.report.notes == []


def test_an_erased_message_stays_erased_when_all_is_told_again(known: Importer) -> None:
    message = ask(known.hermes, "SELECT max(id) FROM messages WHERE session_id = ?", BOAT)[0][0]
    known.engine.erase_messages([known.position_of(message)], reason="secret")
    before = known.state("SELECT * FROM source_messages ORDER BY 1")

    from retold.infrastructure.rebuild import rebuild

    (rebuilt,) = rebuild(known.engine.projector, ["sources"])

    assert rebuilt.differences == ()
    assert known.state("SELECT * FROM source_messages ORDER BY 1") == before
    assert known.told() == []


# --- other homes -------------------------------------------------------------------------------------


def test_a_session_id_that_another_home_brought_is_refused_and_named(known: Importer, tmp_path: Path) -> None:
    other = Path(shutil.copytree(known.hermes, tmp_path / "other"))
    edit(other, "INSERT INTO sessions (id, source, started_at) VALUES ('its own', 'cli', 1.0)")

    (created,) = known.told(hermes=other)

    assert isinstance(created, e.SessionCreated)
    assert known.report is not None
    assert len([line for line in known.report.skipped if line.startswith("session ")]) == 57
    assert str(known.hermes) in known.report.skipped[0]
    assert [line for line in known.report.notes if "--moved-from" in line] == [
        f"this looks like the home that was at {known.hermes}: 57 of its 58 sessions came from there;"
        f" if that one moved here, import it with --moved-from {known.hermes}"
    ]


def test_of_a_home_that_moved_unsaid_nothing_comes_in_and_all_is_named(
    known: Importer, tmp_path: Path
) -> None:
    moved = known.hermes.rename(tmp_path / "moved")

    assert known.told(hermes=moved) == []
    assert known.report is not None
    assert len([line for line in known.report.skipped if line.startswith("route ")]) == 27
    assert len([line for line in known.report.notes if "--moved-from" in line]) == 1
    edit(moved, "UPDATE sessions SET archived = 1 WHERE id = ?", BOAT)
    assert known.told(hermes=moved, moved_from=known.hermes) == [e.SessionArchived()]
    assert known.told(hermes=moved) == []


def test_a_home_at_the_path_of_another_one_goes_on_as_itself(known: Importer, tmp_path: Path) -> None:
    """What was refused at a path, or was there before, is not what is there now."""
    path = tmp_path / "mine"
    path.mkdir()
    edit(path, "CREATE TABLE sessions (id, source, started_at)")
    known.run(hermes=path)
    shutil.rmtree(path)
    moved = known.hermes.rename(path)

    assert known.told(hermes=moved, moved_from=known.hermes) == []
    edit(moved, "UPDATE sessions SET archived = 1 WHERE id = ?", BOAT)
    assert known.told(hermes=moved) == [e.SessionArchived()]


def test_a_session_that_began_here_is_refused_and_named(home: Path, hermes_home: Path) -> None:
    with importer(home, hermes_home) as it:
        it.engine.create_session("cli", session_id=BOAT)
        it.run()

        assert it.report is not None
        assert it.report.taken["sessions"] == 56
        assert it.report.skipped[0].startswith(f"session {BOAT}: a session of this id began here")


def test_a_home_that_moved_goes_on(known: Importer, tmp_path: Path) -> None:
    moved = known.hermes.rename(tmp_path / "moved")
    edit(moved, "UPDATE sessions SET archived = 1 WHERE id = ?", BOAT)

    assert known.told(hermes=moved, moved_from=known.hermes) == [e.SessionArchived()]
    assert known.told(hermes=moved) == []
    assert known.told(hermes=moved, moved_from=known.hermes) == []  # said once more
    with pytest.raises(BadUsage, match="no home was imported from"):
        known.run(hermes=moved, moved_from=tmp_path / "never")
    again = moved.rename(tmp_path / "again")
    with pytest.raises(BadUsage, match="no home was imported from"):
        known.run(hermes=again, moved_from=tmp_path / "never")


# --- killed, and raced -------------------------------------------------------------------------------


def shapes(events: Sequence[Recorded]) -> list[Any]:
    """What a log holds, but for who wrote it, in which save, and what is keyed to the log."""
    return [
        (each.position, each.stream.split(":")[0], each.version, each.at_us, _unkeyed(each.payload))
        for each in events
        if not isinstance(each.payload, e.ImportRan)
    ]


def _unkeyed(payload: Any) -> Any:
    return msgspec.structs.replace(payload, store=None) if hasattr(payload, "store") else payload


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BATCH", 40)


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("after", [1, 5, 17, 23, 26, 28, 30])
def test_killed_at_any_point_and_run_again_gives_the_same_log(
    known: Importer, tmp_path: Path, small_batches: None, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    whole = shapes(known.events())
    with importer(tmp_path / "second", known.hermes) as again, monkeypatch.context() as patch:
        appended = 0
        append = Log.append

        def dying(self: Log, drafts: Sequence[Draft], **how: Any) -> list[int]:
            nonlocal appended
            appended += 1
            if appended > after:
                raise Killed
            return append(self, drafts, **how)

        patch.setattr(Log, "append", dying)
        with pytest.raises(Killed):
            again.run()
        cut = len(again.events())
        patch.undo()
        again.run()

        assert 0 < cut < len(whole)
        assert shapes(again.events()) == whole
        assert again.run() == []


@pytest.mark.slow
def test_a_process_killed_while_it_imports_leaves_a_log_that_goes_on(
    known: Importer, home: Path, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    code = (
        "import sys\n"
        "from retold.infrastructure.importers import writer\n"
        "writer.BATCH = 10\n"
        "from retold.cli.main import main\n"
        "sys.exit(main())\n"
    )
    for seed in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", code, "import", "hermes", str(known.hermes), "--home", str(second)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wanted = random.Random(seed).uniform(0.3, 0.6)
        try:
            process.wait(wanted)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    with importer(second, known.hermes) as again:
        again.run()

        assert shapes(again.events()) == shapes(known.events())
        assert again.state("SELECT count(*) FROM messages") == [(914,)]


def test_two_imports_at_once_bring_everything_once(
    home: Path, hermes_home: Path, small_batches: None
) -> None:
    failures: list[BaseException] = []

    def take() -> None:
        try:
            with importer(home, hermes_home) as it:
                it.run()
        except VersionConflict:
            pass  # the other one went on
        except BaseException as error:  # noqa: BLE001  # told by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with importer(home, hermes_home) as it:
        it.run()
        messages = it.state("SELECT count(*), count(DISTINCT source_id) FROM messages")

    assert failures == []
    assert messages == [(914, 914)]


def in_use(hermes_home: Path) -> apsw.Connection:
    """The home's database as a running Hermes holds it: what it wrote last is in the WAL."""
    live = apsw.Connection(str(hermes_home / "state.db"))
    live.execute("PRAGMA journal_mode = wal")
    live.execute("UPDATE sessions SET cwd = '/srv' WHERE id = ?", (OTHER,))
    return live


def test_an_import_waits_for_the_one_that_is_running_and_then_finds_nothing_new(
    home: Path, hermes_home: Path, small_batches: None
) -> None:
    second: list[Any] = []
    is_waiting = threading.Event()

    def take_too(at: Progress) -> None:
        if at.phase == "waiting for another import":
            is_waiting.set()

    def import_too() -> None:
        with importer(home, hermes_home) as it:
            it.run(progress=take_too)
            second.append(it.report)

    other = threading.Thread(target=import_too)

    def in_the_middle(at: Progress) -> None:
        if at.phase == "taking in" and at.done and not is_waiting.is_set():
            other.start()
            assert is_waiting.wait(30)
            # Both have the home open as it was before this.
            live.execute("UPDATE sessions SET archived = 1 WHERE id = ?", (BOAT,))

    with importer(home, hermes_home) as first, contextlib.closing(in_use(hermes_home)) as live:
        first.run(progress=in_the_middle)
        other.join(60)
        (report,) = second

        assert report.skipped == []
        assert report.taken == {"archived": 1}
        assert report.unchanged["messages"] == 914
        assert first.state("SELECT count(*), count(DISTINCT source_id) FROM messages") == [(914, 914)]


def test_an_import_that_cannot_wait_any_longer_says_what_to_do(
    home: Path, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retold.infrastructure.importers.hermes.WAIT_S", 0.0)
    with importer(home, hermes_home) as it, my_turn(home):
        with pytest.raises(StoreBusy, match=r"another import into .* is still running") as refused:
            it.run()

        assert refused.value.hint == "run this one again when that one is done"
        assert it.events() == []


def test_what_another_process_takes_in_during_the_plan_did_not_begin_here(
    known: Importer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program that does not wait for its turn, or where the file system knows no locks."""
    edit(known.hermes, "INSERT INTO sessions (id, source, started_at) VALUES ('new', 'cli', 1.0)")
    monkeypatch.setattr(hermes, "my_turn", lambda *_, **__: contextlib.nullcontext(False))
    told: list[Any] = []

    def import_too() -> None:
        with importer(home, known.hermes) as other:
            told.extend(other.told())

    def while_planning(at: Progress) -> None:
        if at.phase == "reading sessions" and not told:
            other = threading.Thread(target=import_too)
            other.start()
            other.join(60)

    assert known.run(progress=while_planning)[0].session_id == "new"
    assert len(told) == 1
    assert known.report is not None
    assert (known.report.taken, known.report.skipped) == ({}, [])


def test_a_second_run_is_told_from_the_first_after_the_projections_were_lost(
    known: Importer, home: Path
) -> None:
    known.engine.close()
    for each in home.glob("state*"):
        each.unlink()
    with importer(home, known.hermes) as again:
        assert again.run() == []
