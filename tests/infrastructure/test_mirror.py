"""The mirror of the routing index: told from the log, never older over newer."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from retold.infrastructure import mirror
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.mirror import stamp_of, write_mirror

KEY = "agent:main:telegram:dm:1"


def read(home: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((home / "sessions" / "sessions.json").read_text("utf-8"))
    return found


def test_a_closed_engine_leaves_a_mirror_of_its_routes(tmp_path: Path) -> None:
    with SessionEngine(tmp_path) as engine:
        made = engine.create_session("telegram", key=KEY, chat_id="1", chat_type="dm", display_name="chat 1")

    entry = read(tmp_path)[KEY]

    assert entry["session_id"] == made.session_id
    assert entry["session_key"] == KEY
    assert (entry["platform"], entry["chat_type"], entry["display_name"]) == ("telegram", "dm", "chat 1")


def test_a_moved_route_moves_in_the_mirror(tmp_path: Path) -> None:
    with SessionEngine(tmp_path) as engine:
        engine.create_session("telegram", key=KEY)
        second = engine.create_session("telegram", key=KEY, cause="reset")

    assert read(tmp_path)[KEY]["session_id"] == second.session_id


def test_an_older_one_never_goes_over_a_newer(tmp_path: Path) -> None:
    with SessionEngine(tmp_path) as engine:
        engine.create_session("telegram", key=KEY)
        older = engine.head().position
        engine.create_session("telegram", key=KEY, cause="reset")
        newer = engine.head().position
        write_mirror(tmp_path, engine.state.reader(), engine.event_log, newer)

        assert write_mirror(tmp_path, engine.state.reader(), engine.event_log, older) is False
    stamp = stamp_of(tmp_path / "sessions" / "sessions.json")
    assert stamp is not None
    assert stamp.position == newer


def test_a_mirror_of_events_that_a_restored_log_has_lost_is_written_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with SessionEngine(home) as engine:
        first = engine.create_session("telegram", key=KEY)
    kept = (home / "events.db").read_bytes()
    with SessionEngine(home) as engine:
        engine.create_session("telegram", key=KEY, cause="reset")
    (home / "events.db").write_bytes(kept)
    with SessionEngine(home) as engine:
        engine.projector.catch_up()

    assert read(home)[KEY]["session_id"] == first.session_id


def test_a_mirror_that_somebody_broke_is_written_again(tmp_path: Path) -> None:
    with SessionEngine(tmp_path) as engine:
        engine.create_session("telegram", key=KEY)
        engine.close()
    (tmp_path / "sessions" / "sessions.json").write_text("{ not json", encoding="utf-8")
    with SessionEngine(tmp_path) as engine:
        engine.create_session("telegram", key="agent:main:telegram:dm:2")

    assert set(read(tmp_path)) == {"_README", "_retold", KEY, "agent:main:telegram:dm:2"}


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("mirror:\n  enabled: false\n", encoding="utf-8")
    with SessionEngine(tmp_path) as engine:
        engine.create_session("telegram", key=KEY)

    assert not (tmp_path / "sessions").exists()


def test_no_command_waits_for_the_mirror_and_it_follows_while_the_engine_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "DEBOUNCE_S", 0)
    may_go_on, written = threading.Event(), threading.Event()
    write = mirror.write_mirror

    def slowly(*given: Any) -> bool:
        assert may_go_on.wait(30)
        done = write(*given)
        written.set()
        return done

    monkeypatch.setattr(mirror, "write_mirror", slowly)
    with SessionEngine(tmp_path) as engine:
        made = engine.create_session("telegram", key=KEY)
        engine.append_message(made.session_id, "user", "hello")
        waited_for = written.is_set()
        may_go_on.set()
        followed = written.wait(30)
        there = read(tmp_path)[KEY]["session_id"]

    assert not waited_for
    assert followed
    assert there == made.session_id


class ClosedAsItIsCleared(threading.Event):
    """An event in whose clearing somebody closes the mirror, at the latest moment at which that can be."""

    closing: threading.Event

    def clear(self) -> None:
        self.closing.set()
        self.set()
        super().clear()


def test_one_that_is_closed_as_its_thread_wakes_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "DEBOUNCE_S", 0)
    with SessionEngine(tmp_path) as engine:
        follows = engine.mirror
        moved = ClosedAsItIsCleared()
        moved.closing = follows._closing
        monkeypatch.setattr(follows, "_moved", moved)
        engine.create_session("telegram", key=KEY)
        thread = follows._thread
        assert thread is not None
        thread.join(timeout=10)

        ended = not thread.is_alive()
        threading.Event.set(moved)  # whoever still waits may go
        assert ended
