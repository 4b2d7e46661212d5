"""What verify found wrong with the log stops every writer, until the log is mended or restored."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import retold
from retold.domain.errors import LogDamaged
from retold.infrastructure.home import Home
from retold.infrastructure.known_damage import known
from retold.infrastructure.log import DAMAGE_NOTE, Log
from retold.infrastructure.verify import verify
from retold.infrastructure.verify_log import Expected
from retold.tests.infrastructure import damage
from retold.tests.infrastructure.filled import drafts, events_file, execute, fill

if TYPE_CHECKING:
    from retold.tests.conftest import Run


@pytest.fixture
def filled(home: Path) -> Path:
    fill(home)
    events_file(home)
    return home


def break_the_chain(home: Path) -> None:
    execute(home / "events.db", "UPDATE events SET chain = zeroblob(32) WHERE position = 60")


def lose_an_index(home: Path) -> None:
    path = events_file(home)
    damage.overwrite(path, damage.tree(path, "events_by_idempotency_key").root)


def change_an_actor(home: Path) -> None:
    execute(home / "events.db", "UPDATE events SET actor = 'somebody' WHERE position = 60")


def refuses(home: Path) -> bool:
    """Whether a save is refused, with what mends it, and nothing written."""
    with retold.open_home(home) as engine:
        before = engine.head()
        try:
            engine.append_message("s1", "user", "more")
        except LogDamaged as error:
            refused = error
        else:
            return False

        assert engine.head() == before
    assert "nothing was written" in refused.message
    assert "restore a backup of events.db" in refused.hint
    return True


@pytest.mark.parametrize("spoil", [break_the_chain, lose_an_index, change_an_actor])
def test_g5_what_verify_found_stops_writes_and_not_reads(
    filled: Path, hermes_home: Path, run: Run, spoil: Callable[[Path], None]
) -> None:
    spoil(filled)
    found = run("verify")
    taken = run("import", "hermes", hermes_home)

    assert (found.exit_code, taken.exit_code) == (5, 5)
    assert "nothing is written to it from now on" in found.stdout
    assert "is damaged" in taken.stderr
    assert refuses(filled)
    assert run("sessions", "list").exit_code == 0


def test_a_note_outlives_the_projections(filled: Path) -> None:
    break_the_chain(filled)
    verify(filled)
    (filled / "state.db").unlink()
    (filled / "state.1.db").unlink()

    assert refuses(filled)


def test_who_has_the_log_open_hears_of_it(filled: Path) -> None:
    with retold.open_home(filled) as engine:
        engine.append_message("s1", "user", "before")
        break_the_chain(filled)
        verify(filled)
        with pytest.raises(LogDamaged, match=r"#60.*as verify found"):
            engine.append_message("s1", "user", "after")


def into_the_same_file(backup: Path, log: Path) -> None:
    shutil.copyfile(backup, log)
    shutil.copystat(backup, log)


def in_its_place(backup: Path, log: Path) -> None:
    shutil.copy2(backup, log.with_name("restored"))
    os.replace(log.with_name("restored"), log)


@pytest.mark.parametrize("restore", [into_the_same_file, in_its_place])
@pytest.mark.parametrize("older", [False, True])
def test_a_restored_log_is_written_to_again(
    filled: Path, restore: Callable[[Path, Path], None], older: bool
) -> None:
    backup = filled.with_name("backup.db")
    shutil.copy2(events_file(filled), backup)
    if older:
        fill(filled, 20, prefix="later")
    break_the_chain(filled)
    times = backup.stat()
    os.utime(filled / "events.db", ns=(times.st_atime_ns, times.st_mtime_ns))
    verify(filled)
    assert refuses(filled)
    for tail in ("-wal", "-shm"):
        (filled / f"events.db{tail}").unlink(missing_ok=True)
    restore(backup, filled / "events.db")

    assert not refuses(filled)
    assert not (filled / DAMAGE_NOTE).exists()


def test_what_a_verify_finds_sound_again_is_written_to(filled: Path) -> None:
    [(actor,)] = execute(filled / "events.db", "SELECT actor FROM events WHERE position = 60")
    change_an_actor(filled)
    verify(filled)
    execute(filled / "events.db", "UPDATE events SET actor = ? WHERE position = 60", (actor,))

    assert verify(filled).exit_code == 0
    assert not (filled / DAMAGE_NOTE).exists()
    assert not refuses(filled)


def test_a_log_that_changed_and_is_damaged_still_is_refused(filled: Path) -> None:
    break_the_chain(filled)
    verify(filled)
    os.utime(filled / "events.db")

    assert refuses(filled)
    assert refuses(filled)


def test_a_note_of_another_log_says_nothing_of_this_one(filled: Path) -> None:
    other = filled.with_name("other")
    fill(other)
    break_the_chain(other)
    verify(other)
    shutil.copy2(other / DAMAGE_NOTE, filled / DAMAGE_NOTE)

    assert not refuses(filled)


def test_a_note_that_cannot_be_read_is_no_reason_to_write(filled: Path) -> None:
    break_the_chain(filled)
    (filled / DAMAGE_NOTE).write_bytes(b"{")

    assert refuses(filled)


def test_another_head_than_was_expected_stops_nobody(filled: Path) -> None:
    found = verify(filled, expect=Expected.parse("#100:0123456789"))

    assert (found.exit_code, found.stops_writes) == (5, False)
    assert not refuses(filled)


def test_a_note_is_gone_by_without_looking_as_long_as_the_file_is_that_one(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_the_chain(filled)
    verify(filled)

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("retold.infrastructure.known_damage.verify_log", refuse)
    log = Log(filled / "events.db", read_only=True)
    found = known(log)
    log.close()

    assert [each.positions for each in found] == [[[60, 60]]]


def test_a_rebuild_from_a_damaged_log_tells_what_can_be_read_and_exits_with_5(filled: Path, run: Run) -> None:
    break_the_chain(filled)
    run("verify")
    done = run("projections", "rebuild")

    assert done.exit_code == 5
    assert done.stdout.count("equal to what was there") == 6
    assert "the log is damaged at #60: what can be read of it is told" in done.stderr


def test_a_rebuild_that_passes_events_over_exits_with_5(filled: Path, run: Run) -> None:
    execute(filled / "events.db", "UPDATE events SET payload = x'00ff' WHERE position = 60")
    (filled / "state.db").unlink()
    done = run("projections", "rebuild")

    assert done.exit_code == 5
    assert "#60" in done.stderr


def test_a_home_that_is_sound_has_no_note(filled: Path) -> None:
    with Home(filled) as home:
        home.log.append(drafts(5, prefix="more"))

    assert verify(filled).exit_code == 0
    assert not (filled / DAMAGE_NOTE).exists()
