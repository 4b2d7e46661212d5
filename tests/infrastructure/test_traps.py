"""Traps of SQLite and of the eventsourcing library that this code stands clear of, each shown."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from uuid import UUID

import apsw
import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate

from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.rebuild import rebuild


def wal_database(path: Path, text: str) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE t (x)")
    connection.executemany("INSERT INTO t VALUES (?)", [(text * 200,)] * 200)
    return connection


def test_a_file_put_under_a_live_wal_is_malformed_so_no_file_of_ours_is_replaced(tmp_path: Path) -> None:
    live = wal_database(tmp_path / "a.db", "old")
    other = wal_database(tmp_path / "b.db", "new")
    other.execute("DROP TABLE t")
    other.execute("CREATE TABLE u (y)")
    other.close()
    os.replace(tmp_path / "b.db", tmp_path / "a.db")
    opened = apsw.Connection(str(tmp_path / "a.db"))
    with pytest.raises((apsw.CorruptError, apsw.SQLError)):
        opened.execute("SELECT * FROM u").fetchall()
    live.close()
    opened.close()

    home = tmp_path / "home"
    with SessionEngine(home) as engine:
        made = engine.create_session("cli")
        engine.append_message(made.session_id, "user", "hello")
        before = {each.name: each.stat().st_ino for each in home.glob("*.db") if not each.is_symlink()}
        rebuild(engine.projector, list(engine.projector.projections))

    after = {each.name: each.stat().st_ino for each in home.glob("*.db") if not each.is_symlink()}
    assert "events.db" in after
    assert {name: inode for name, inode in after.items() if before.get(name, inode) != inode} == {}


def test_no_second_sqlite_library_is_ever_loaded_beside_apsw() -> None:
    every = """
import importlib, pkgutil, sys
import retold
for found in pkgutil.walk_packages(retold.__path__, "retold."):
    if ".tests" not in found.name and "__main__" not in found.name:
        importlib.import_module(found.name)
assert "apsw" in sys.modules
print([name for name in sys.modules if name in ("sqlite3", "_sqlite3")])
"""
    root = str(Path(__file__).resolve().parents[2] / ".import")
    done = subprocess.run(
        [sys.executable, "-c", every],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": root},
    )

    assert done.stdout.strip() == "[]"


def test_what_fails_after_the_commit_does_not_store_a_command_again(tmp_path: Path) -> None:
    with SessionEngine(tmp_path) as engine:
        made = engine.create_session("cli")

        class Failing(threading.Event):
            def set(self) -> None:
                raise OSError("whoever waits for news is gone")

        engine.event_log.listen(Failing())
        with pytest.raises(OSError, match="gone"):
            engine.append_message(made.session_id, "user", "once")

        assert engine.event_log.stream_version(f"session:{made.session_id}") == 2


def test_the_librarys_cache_forgets_what_it_fast_forwards_and_our_heads_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SessionEngine(tmp_path) as engine:
        made = engine.create_session("cli")
        engine.append_message(made.session_id, "user", "one")
        engine.session(made.session_id)
        read: list[str] = []

        def noted(stream: str, **_: bool) -> list[object]:
            read.append(stream)
            return []

        monkeypatch.setattr(engine.event_log, "stream_events", noted)
        for number in range(5):
            engine.append_message(made.session_id, "user", str(number))

    assert read == []  # the state moved on with each append, without a stream being read again


def test_the_library_makes_no_snapshot_of_a_bare_event_so_none_is_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSISTENCE_MODULE", "retold.infrastructure.persistence")
    monkeypatch.setenv("RETOLD_LOG", str(tmp_path / "events.db"))
    with Application[UUID](env={"IS_SNAPSHOTTING_ENABLED": "y"}) as app:
        aggregate = Aggregate()
        app.save(*aggregate.collect_events())

        assert app.snapshots is not None
        assert list(app.snapshots.get(aggregate.id)) == []
