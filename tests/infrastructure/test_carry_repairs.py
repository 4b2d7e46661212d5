"""Carrying repairs into the Hermes home that was imported: alone, whole, once, and with a way back."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain.ends import SUPERSEDED
from retold.domain.errors import BadUsage, NoRoom, NotAStore, StoreBusy
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.exporters.hermes_home import HermesWriter
from retold.infrastructure.exporters.hermes_repair import Carried, carry_repairs
from retold.infrastructure.importers.hermes import import_hermes
from retold.tests.infrastructure.carrying import (
    CARRIER,
    DONOR,
    KEY,
    ORPHAN,
    WRONG,
    entries,
    repair_of,
    session,
)
from retold.tests.infrastructure.importing import ask, edit
from retold.tests.infrastructure.repairing import TRUTH

_HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute(f"PRAGMA journal_mode={sys.argv[2]}")
db.execute("SELECT count(*) FROM sessions").fetchone()
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def engine(home: Path, hermes_home: Path) -> Iterator[SessionEngine]:
    """The imported home, its jump back mended."""
    with open_home(home) as opened:
        import_hermes(opened, hermes_home)
        opened.repair(ORPHAN)
        yield opened


def test_a_repair_is_made_there_too(engine: SessionEngine, hermes_home: Path) -> None:
    ended_at = session(hermes_home, DONOR)["ended_at"]
    before = entries(hermes_home)[0]
    done = carry_repairs(engine, hermes_home)
    orphan, table, mirror = session(hermes_home, ORPHAN), *entries(hermes_home)

    assert done.done == (
        f"{ORPHAN} bears {KEY}",
        f"{DONOR} ended as {SUPERSEDED}",
        f"{WRONG} ended as {SUPERSEDED}",
        f"{KEY} leads to {ORPHAN}",
    )
    assert (orphan["session_key"], orphan["user_id"], orphan["ended_at"]) == (KEY, "501", None)
    assert session(hermes_home, DONOR)["end_reason"] == SUPERSEDED
    assert session(hermes_home, DONOR)["ended_at"] == ended_at
    assert table == mirror
    assert (table["session_id"], table["origin"]) == (ORPHAN, before["origin"])
    assert table["updated_at"] == "2026-05-08T14:32:11"
    assert table.keys() == before.keys()


def test_the_second_time_nothing_is_changed(engine: SessionEngine, hermes_home: Path) -> None:
    carry_repairs(engine, hermes_home)
    files = sorted(hermes_home.rglob("*"))
    again = carry_repairs(engine, hermes_home)

    assert again == Carried(str(hermes_home))
    assert sorted(hermes_home.rglob("*")) == files


def test_what_was_carried_comes_back_as_no_change(engine: SessionEngine, hermes_home: Path) -> None:
    engine.repair(TRUTH["contiguity"]["orphan"])
    carry_repairs(engine, hermes_home)
    report = import_hermes(engine, hermes_home)

    assert report.conflicts == []
    assert engine.route_of(KEY) == ORPHAN


def test_what_was_carried_is_known_as_ours_and_its_undo_stands(
    engine: SessionEngine, hermes_home: Path
) -> None:
    carry_repairs(engine, hermes_home)
    undone = engine.undo(repair_of(engine))
    report = import_hermes(engine, hermes_home)

    assert undone.carried == (str(hermes_home),)
    assert (report.taken, report.conflicts) == ({}, [])
    assert engine.route_of(KEY) == WRONG
    assert engine.session(ORPHAN).key is None


def test_what_was_undone_here_is_taken_back_there(engine: SessionEngine, hermes_home: Path) -> None:
    rows = (
        "SELECT id, session_key, user_id, parent_session_id, ended_at, end_reason FROM sessions ORDER BY id"
    )
    before = ask(hermes_home, rows)
    led = entries(hermes_home)[0]["session_id"]
    carry_repairs(engine, hermes_home)
    undone = engine.undo(repair_of(engine))
    back = carry_repairs(engine, hermes_home)

    assert ask(hermes_home, rows) == before
    assert [each["session_id"] for each in entries(hermes_home)] == [led, led]
    assert (len(back.done), back.refused) == (4, ())
    assert carry_repairs(engine, hermes_home).done == ()
    assert import_hermes(engine, hermes_home).taken == {}
    again = engine.undo(undone.position)
    assert again.carried == (str(hermes_home),)
    assert carry_repairs(engine, hermes_home).done
    assert session(hermes_home, ORPHAN)["session_key"] == KEY
    assert entries(hermes_home)[0]["session_id"] == ORPHAN


def test_the_routing_entry_is_put_back_as_it_was(engine: SessionEngine, hermes_home: Path) -> None:
    before = entries(hermes_home)
    carry_repairs(engine, hermes_home)
    engine.undo(repair_of(engine))
    carry_repairs(engine, hermes_home)

    assert entries(hermes_home) == before
    assert before[0]["session_id"] == WRONG


def test_an_entry_that_hermes_touched_before_the_repair_is_put_back_as_it_was_then(
    home: Path, hermes_home: Path
) -> None:
    with open_home(home) as engine:
        import_hermes(engine, hermes_home)
        touched = json.dumps({**entries(hermes_home)[0], "updated_at": "2026-05-09T10:00:00", "own": [1]})
        edit(hermes_home, "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?", touched, KEY)
        import_hermes(engine, hermes_home)
        engine.repair(ORPHAN)
        carry_repairs(engine, hermes_home)
        engine.undo(repair_of(engine))
        carry_repairs(engine, hermes_home)

        assert entries(hermes_home)[0] == json.loads(touched)


def taken_back_there(engine: SessionEngine, hermes_home: Path) -> None:
    """The repair is carried, and taken back in Hermes' home alone; an import tells of it here."""
    for command in carry_repairs(engine, hermes_home).back:
        subprocess.run(command, shell=True, check=True)
    import_hermes(engine, hermes_home)


def stands(hermes: Path) -> tuple[Any, ...]:
    return (*ask(hermes, "SELECT * FROM sessions ORDER BY id"), *entries(hermes))


def test_what_an_import_took_back_here_is_not_carried_again(engine: SessionEngine, hermes_home: Path) -> None:
    before = stands(hermes_home)
    taken_back_there(engine, hermes_home)
    assert engine.session(ORPHAN).key is None
    again = carry_repairs(engine, hermes_home)

    assert (again.done, again.backup) == ((), None)
    assert f"was left out: {ORPHAN} does not bear the key {KEY} here any more" in again.refused[0]
    assert stands(hermes_home) == before


@pytest.mark.parametrize(
    ("since", "why"),
    [
        (lambda engine: engine.reset(KEY), f"{KEY} leads to "),
        (lambda engine: engine.reopen_session(WRONG), f"{WRONG} is open here by now"),
    ],
)
def test_of_a_repair_that_moved_on_here_nothing_is_carried_by_halves(
    engine: SessionEngine, hermes_home: Path, since: Any, why: str
) -> None:
    before = stands(hermes_home)
    since(engine)
    done = carry_repairs(engine, hermes_home)

    assert (done.done, done.backup) == ((), None)
    assert why in done.refused[0]
    assert stands(hermes_home) == before


def test_where_all_of_it_was_carried_what_came_here_since_is_no_refusal(
    engine: SessionEngine, hermes_home: Path
) -> None:
    carry_repairs(engine, hermes_home)
    engine.archive_session(ORPHAN)
    engine.end_session(ORPHAN, "agent_close")

    assert carry_repairs(engine, hermes_home) == Carried(str(hermes_home))


def test_what_hermes_changed_since_is_not_taken_back_there(engine: SessionEngine, hermes_home: Path) -> None:
    carry_repairs(engine, hermes_home)
    engine.undo(repair_of(engine))
    edit(hermes_home, "UPDATE sessions SET session_key = 'agent:main:x:dm:9' WHERE id = ?", ORPHAN)
    carry_repairs(engine, hermes_home)

    assert session(hermes_home, ORPHAN)["session_key"] == "agent:main:x:dm:9"


def test_the_way_back_that_is_told_brings_everything_back(engine: SessionEngine, hermes_home: Path) -> None:
    before = list(ask(hermes_home, "SELECT * FROM sessions ORDER BY id")), entries(hermes_home)
    checked = ask(hermes_home, "PRAGMA integrity_check")
    done = carry_repairs(engine, hermes_home)
    for command in done.back:
        subprocess.run(command, shell=True, check=True)

    assert (list(ask(hermes_home, "SELECT * FROM sessions ORDER BY id")), entries(hermes_home)) == before
    assert done.backup is not None
    assert ask(hermes_home, "PRAGMA integrity_check") == checked


def test_a_copy_that_was_cut_off_bears_no_name_of_one_and_is_swept(
    engine: SessionEngine, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off = f"import os; os.rename = os.replace = os.link = lambda *_: os._exit(9)\n{CARRIER}"
    ran = subprocess.run([sys.executable, "-c", cut_off, str(engine.event_log.path.parent), str(hermes_home)])
    assert ran.returncode == 9
    assert list(hermes_home.glob("state.db.before-repair*")) == []
    assert len(list(hermes_home.glob(".state.db.before-repair*"))) == 1

    done = carry_repairs(engine, hermes_home)
    assert [str(each) for each in hermes_home.glob("state.db.before-repair*")] == [done.backup]
    assert list(hermes_home.glob(".state.db.before-repair*")) == []


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_home_that_any_process_holds_is_not_touched(
    engine: SessionEngine, hermes_home: Path, journal: str
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(hermes_home / "state.db"), journal],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreBusy, match=f"is held by process {holder.pid}"):
            carry_repairs(engine, hermes_home)
    finally:
        holder.communicate("\n")

    assert session(hermes_home, ORPHAN)["session_key"] is None
    assert list(hermes_home.glob("*before-repair*")) == []
    assert carry_repairs(engine, hermes_home).done


def test_a_holder_that_cannot_be_looked_at_is_met_by_its_lock(
    engine: SessionEngine, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retold.infrastructure.exporters.hermes_home.refuse_held", lambda database: database)
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(hermes_home / "state.db"), "wal"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreBusy, match="is held by another process"):
            carry_repairs(engine, hermes_home)
    finally:
        holder.communicate("\n")


def test_an_undone_repair_is_not_carried(engine: SessionEngine, hermes_home: Path) -> None:
    undone = engine.undo(engine.head().position)

    assert carry_repairs(engine, hermes_home).done == ()
    engine.undo(undone.position)
    assert carry_repairs(engine, hermes_home).done


def test_what_changed_there_since_is_left_out_and_named(engine: SessionEngine, hermes_home: Path) -> None:
    engine.repair(TRUTH["contiguity"]["orphan"])
    edit(hermes_home, "UPDATE sessions SET session_key = 'agent:main:x:dm:9' WHERE id = ?", ORPHAN)
    done = carry_repairs(engine, hermes_home)

    assert len(done.refused) == 1
    assert f"{ORPHAN} bears the key agent:main:x:dm:9 there" in done.refused[0]
    assert session(hermes_home, DONOR)["end_reason"] == "compression"
    assert entries(hermes_home)[0]["session_id"] == WRONG
    assert session(hermes_home, TRUTH["contiguity"]["orphan"])["session_key"] is not None


def test_a_key_that_leads_nowhere_here_leads_nowhere_there(engine: SessionEngine, hermes_home: Path) -> None:
    key = TRUTH["routed_to_ended"]["key"]
    engine.close_key(key)
    carry_repairs(engine, hermes_home)

    assert ask(hermes_home, "SELECT count(*) FROM gateway_routing WHERE session_key = ?", key) == [(0,)]
    assert key not in json.loads((hermes_home / "sessions" / "sessions.json").read_text())


def test_only_an_imported_hermes_home_is_written(
    engine: SessionEngine, home: Path, hermes_home: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "state.db").write_bytes((hermes_home / "state.db").read_bytes())
    for folder, why, error in (
        (copy, "was never imported here", BadUsage),
        (home, "was never imported here", BadUsage),
        (tmp_path / "none", "was never imported here", BadUsage),
    ):
        with pytest.raises(error, match=why):
            carry_repairs(engine, folder)


def test_a_home_that_is_gone_or_is_no_database_is_refused(engine: SessionEngine, hermes_home: Path) -> None:
    (hermes_home / "state.db").write_text("no database at all")
    with pytest.raises(NotAStore, match="no SQLite database"):
        carry_repairs(engine, hermes_home)
    (hermes_home / "state.db").unlink()
    with pytest.raises(NotAStore, match="no Hermes home"):
        carry_repairs(engine, hermes_home)


def test_a_failure_on_the_way_leaves_the_home_as_it_was(
    engine: SessionEngine, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(
        hermes_home,
        "CREATE TRIGGER no BEFORE UPDATE ON gateway_routing BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    edit(
        hermes_home,
        "CREATE TRIGGER no2 BEFORE INSERT ON gateway_routing BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    with pytest.raises(NoRoom, match="cannot be written"):
        carry_repairs(engine, hermes_home)

    assert session(hermes_home, ORPHAN)["session_key"] is None
    assert entries(hermes_home)[1]["session_id"] == WRONG


def test_a_mirror_that_was_not_reached_is_set_by_the_next_run(
    engine: SessionEngine, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(HermesWriter, "write_mirror", _full)
        with pytest.raises(NoRoom, match="the database holds the repair"):
            carry_repairs(engine, hermes_home)
    table, mirror = entries(hermes_home)

    assert (table["session_id"], mirror["session_id"]) == (ORPHAN, WRONG)
    assert carry_repairs(engine, hermes_home).done == (f"{KEY} leads to {ORPHAN}",)
    assert entries(hermes_home)[1]["session_id"] == ORPHAN


def _full(_writer: HermesWriter, _content: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
