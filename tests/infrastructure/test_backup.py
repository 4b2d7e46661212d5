"""A backup is one committed state, proved before it is said to be done; a restore loses nothing."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain.errors import BadUsage, LogDamaged, NoRoom, NoSuchHome
from retold.infrastructure import backup
from retold.infrastructure.backup import back_up, restore
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.home import Home
from retold.infrastructure.verify import verify
from retold.infrastructure.verify_log import Expected
from retold.tests.infrastructure.filled import content, fill, told_from_nothing

WRITER = """
import sys
from pathlib import Path
from retold.infrastructure.engine import open_home

with open_home(Path(sys.argv[1])) as engine:
    engine.create_session("cli", session_id=sys.argv[2])
    print("writing", flush=True)
    number = 0
    while not Path(sys.argv[3]).exists():
        number += 1
        position = engine.append_message(sys.argv[2], "user", f"message {number} " + "lantern " * 50).position
        print(position, flush=True)
"""


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        opened.create_session("telegram", session_id="s1", key="agent:main:telegram:dm:1", title="plan")
        opened.append_message("s1", "user", "hello")
        yield opened


def test_g8_a_backup_under_load_is_a_committed_state(
    engine: SessionEngine, home: Path, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(home), name, str(stop)], stdout=subprocess.PIPE, text=True
        )
        for name in ("w1", "w2")
    ]
    try:
        acknowledged: list[int] = []
        for each in writers:
            assert each.stdout is not None
            assert each.stdout.readline() == "writing\n"
            acknowledged += [int(each.stdout.readline()) for _ in range(20)]
        first = back_up(home, tmp_path / "first")
        second = back_up(home, tmp_path / "second")
    finally:
        stop.touch()
        for each in writers:
            each.communicate(timeout=60)

    assert all(each.returncode == 0 for each in writers)
    assert second.head.position >= first.head.position >= max(acknowledged)
    for done in (first, second):
        # Every head that the log had was committed: the log there still holds it.
        expected = Expected.parse(str(done.head))
        assert verify(home, expect=expected).as_expected
        there = tmp_path / f"{Path(done.path).name}-restored"
        put_back = restore(Path(done.path), there)
        assert put_back.head == done.head
        with Home(there) as opened:
            opened.catch_up(wait_ms=10_000)
            assert content(opened.projector) == told_from_nothing(opened.log)
        found = verify(there, expect=expected)
        assert (found.exit_code, found.as_expected) == (0, True)


def test_what_nothing_can_tell_again_is_in_it_and_nothing_else(
    engine: SessionEngine, home: Path, tmp_path: Path
) -> None:
    (home / "config.yaml").write_text("timezone: Europe/Berlin\n")
    (home / "memories").mkdir()
    (home / "memories" / "MEMORY.md").write_text("likes tea")
    done = back_up(home, tmp_path / "b")

    assert done.files == ("config.yaml", "memories")
    assert {each.name for each in (tmp_path / "b").rglob("*")} == {
        "events.db",
        "config.yaml",
        "memories",
        "MEMORY.md",
    }
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "b" / "events.db").stat().st_mode & 0o777 == 0o600
    restore(tmp_path / "b", tmp_path / "there")
    assert (tmp_path / "there" / "memories" / "MEMORY.md").read_text() == "likes tea"
    with open_home(tmp_path / "there") as again:
        assert again.route_of("agent:main:telegram:dm:1") == "s1"
        again.append_message("s1", "user", "and on it goes")
        assert again.state.reader().execute("SELECT count(*) FROM messages").fetchone() == (2,)


def test_a_restore_over_a_home_keeps_that_aside(engine: SessionEngine, home: Path, tmp_path: Path) -> None:
    back_up(home, tmp_path / "b")
    engine.append_message("s1", "user", "said since")
    engine.close()
    with pytest.raises(BadUsage, match="is not empty") as refused:
        restore(tmp_path / "b", home)
    assert "--replace" in refused.value.hint

    done = restore(tmp_path / "b", home, replace=True)

    assert done.kept is not None
    with Home(Path(done.kept)) as kept, Home(home) as now:
        assert kept.log.head().position == now.log.head().position + 1
        now.catch_up(wait_ms=10_000)
        assert now.state.reader().execute("SELECT count(*) FROM messages").fetchone() == (1,)


def test_projections_of_the_home_before_are_told_again(
    engine: SessionEngine, home: Path, tmp_path: Path
) -> None:
    back_up(home, tmp_path / "b")
    other = tmp_path / "other"
    fill(other, 20)
    restore(tmp_path / "b", other, replace=True)

    found = verify(other)
    assert found.exit_code == 0
    with Home(other) as opened:
        opened.catch_up(wait_ms=10_000)
        assert content(opened.projector) == told_from_nothing(opened.log)


def test_f13_what_does_not_hold_is_said_aloud_and_leaves_nothing_behind(
    engine: SessionEngine, home: Path, tmp_path: Path
) -> None:
    back_up(home, tmp_path / "b")
    path = tmp_path / "b" / "events.db"
    bytes_ = bytearray(path.read_bytes())
    at = bytes_.find(b"hello")
    bytes_[at : at + 5] = b"jello"
    path.write_bytes(bytes_)
    with pytest.raises(LogDamaged, match="the backup does not hold"):
        restore(tmp_path / "b", tmp_path / "there")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["b", "retold-home"]

    engine.close()
    (home / "events.db").write_bytes(bytes_)
    with pytest.raises(LogDamaged, match="the backup does not hold"):
        back_up(home, tmp_path / "c")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["b", "retold-home"]


def test_no_room_leaves_nothing_behind(
    engine: SessionEngine, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(backup, "_copy_files", full)
    with pytest.raises(NoRoom, match="No space left"):
        back_up(home, tmp_path / "b")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["retold-home"]


def test_where_it_may_not_go(engine: SessionEngine, home: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").touch()
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "taken", tmp_path / "file", home, home / "backups"):
        with pytest.raises(BadUsage):
            back_up(home, folder)
    with pytest.raises(NoSuchHome):
        back_up(tmp_path / "nowhere", tmp_path / "b")
    with pytest.raises(NoSuchHome):
        restore(tmp_path / "empty", tmp_path / "b")

    assert back_up(home, tmp_path / "empty").events == engine.head().position


def test_what_a_killed_backup_left_is_swept_by_the_next_and_a_running_one_is_not(
    engine: SessionEngine, home: Path, tmp_path: Path
) -> None:
    left, running, other = (tmp_path / name for name in (".to.12.0a1b2c3d", ".to.13.0a1b2c3d", ".to.notes"))
    for each in (left, running, other):
        each.mkdir()
        (each / "events.db").write_bytes(b"half of it")
        os.utime(each, (0, 0))
    handle = os.open(running, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        back_up(home, tmp_path / "to")
    finally:
        os.close(handle)

    assert (left.exists(), running.exists(), other.exists()) == (False, True, True)


def test_backups_of_one_name_at_once_get_a_number_each(
    engine: SessionEngine, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "to"
    proved = backup._proved

    def meanwhile(*args: Any) -> Any:
        if not to.exists():
            to.mkdir()
            (to / "events.db").write_bytes(b"another was first")
        return proved(*args)

    monkeypatch.setattr(backup, "_proved", meanwhile)
    first, second = back_up(home, to, numbered=True), back_up(home, to, numbered=True)
    assert (first.path, second.path) == (f"{to}-2", f"{to}-3")
    with pytest.raises(BadUsage, match="is not empty"):
        back_up(home, to)
