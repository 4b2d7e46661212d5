"""state.db: lost, cut, overwritten or replaced, it is found out, and told again from the log.

Over 400 lines because every test opens one home after another harm to its state.db.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from retold.domain.errors import LogDamaged, NoRoom
from retold.infrastructure.home import Home
from retold.infrastructure.projector import PROJECTIONS, Lag
from retold.infrastructure.state_file import StateFile
from retold.tests.infrastructure.filled import (
    content,
    copy_of,
    drafts,
    events_file,
    execute,
    fill,
    state_file,
    told_from_nothing,
)
from retold.tests.infrastructure.hard_places import as_somebody_else

Damage = Callable[[Path], None]


def _is_whole(home: Path) -> Lag:
    """Open the home as a read command does, and hold what it holds against a fold from nothing."""
    with Home(home, read_only=True) as opened:
        lag = opened.catch_up()

        assert lag.events == 0
        assert content(opened.projector) == told_from_nothing(opened.log)
    return lag


def remove_the_link(home: Path) -> None:
    (home / "state.db").unlink()


def remove_the_file(home: Path) -> None:
    (home / "state.db").resolve().unlink()


def remove_the_file_but_not_its_wal(home: Path) -> None:
    path = (home / "state.db").resolve()
    with Home(home) as opened:
        opened.log.append(drafts(20, prefix="in-the-wal"))
        opened.catch_up()
        wal = path.with_name(path.name + "-wal").read_bytes()
    path.with_name(path.name + "-wal").write_bytes(wal)
    path.unlink()


def truncate_to_nothing(home: Path) -> None:
    os.truncate(state_file(home), 0)


def truncate_to_half(home: Path) -> None:
    path = state_file(home)
    os.truncate(path, path.stat().st_size // 2)


def overwrite_with_garbage(home: Path) -> None:
    path = state_file(home)
    path.write_bytes(os.urandom(path.stat().st_size))


def overwrite_all_but_the_header(home: Path) -> None:
    path = state_file(home)
    path.write_bytes(path.read_bytes()[:4096] + b"\xa5" * (path.stat().st_size - 4096))


def overwrite_with_another_database(home: Path) -> None:
    other = home.with_name("other.db")
    execute(other, "CREATE TABLE messages (id, words)")
    shutil.copyfile(other, state_file(home))


def put_another_database_in_place_of_the_link(home: Path) -> None:
    other = home.with_name("other.db")
    execute(other, "CREATE TABLE messages (id, words)")
    os.replace(other, home / "state.db")


def lead_the_link_nowhere(home: Path) -> None:
    (home / "state.db").unlink()
    (home / "state.db").symlink_to("nowhere.db")


def drop_a_table(home: Path) -> None:
    execute(state_file(home), "DROP TABLE checkpoints")


def write_nonsense_into_a_checkpoint(home: Path) -> None:
    execute(state_file(home), "UPDATE checkpoints SET unknown_topics = 'no json'")


@pytest.mark.parametrize(
    "damage",
    [
        remove_the_link,
        remove_the_file,
        remove_the_file_but_not_its_wal,
        truncate_to_nothing,
        truncate_to_half,
        overwrite_with_garbage,
        overwrite_all_but_the_header,
        overwrite_with_another_database,
        put_another_database_in_place_of_the_link,
        lead_the_link_nowhere,
        drop_a_table,
        write_nonsense_into_a_checkpoint,
    ],
)
def test_whatever_becomes_of_it_the_next_command_tells_it_again(home: Path, damage: Damage) -> None:
    fill(home)
    damage(home)

    _is_whole(home)


@pytest.mark.parametrize(
    "damage",
    [
        remove_the_link,
        remove_the_file,
        truncate_to_nothing,
        truncate_to_half,
        overwrite_with_garbage,
        overwrite_with_another_database,
        put_another_database_in_place_of_the_link,
    ],
)
def test_who_has_it_open_goes_over_to_the_new_one(home: Path, damage: Damage) -> None:
    fill(home)
    with Home(home) as opened:
        opened.catch_up()
        damage(home)
        opened.log.append(drafts(10, prefix="later"))
        opened.catch_up()

        assert content(opened.projector) == told_from_nothing(opened.log)
    _is_whole(home)


def test_a_damage_that_is_only_met_later_begins_a_new_file(home: Path) -> None:
    fill(home)
    overwrite_all_but_the_header(home)

    lag = _is_whole(home)

    assert "damaged" in lag.told_again["transcripts"]
    assert (home / "state.db").readlink() == Path("state.2.db")


def test_a_damaged_file_is_left_where_it_lies(home: Path) -> None:
    fill(home)
    overwrite_with_garbage(home)
    garbage = (home / "state.1.db").read_bytes()
    _is_whole(home)

    assert (home / "state.1.db").read_bytes() == garbage


def test_a_plain_file_of_projections_is_as_good_as_a_link(home: Path) -> None:
    fill(home)
    path = state_file(home)
    copy_of(path, home / "copy.db")
    (home / "state.db").unlink()
    (home / "copy.db").rename(home / "state.db")

    lag = _is_whole(home)

    assert lag.told_again == {}
    assert not (home / "state.db").is_symlink()


def test_a_restored_older_log_takes_back_what_was_told_beyond_it(home: Path) -> None:
    fill(home)
    older = copy_of(home / "events.db", home.with_name("backup.db"))
    fill(home, 40, prefix="lost")
    events_file(home)
    for tail in ("-wal", "-shm"):
        (home / f"events.db{tail}").unlink(missing_ok=True)
    shutil.copyfile(older, home / "events.db")

    lag = _is_whole(home)

    assert "the log ends at #307" in lag.told_again["transcripts"]


def test_a_restored_older_log_that_went_on_differently_is_found_by_its_chain(home: Path) -> None:
    fill(home)
    older = copy_of(home / "events.db", home.with_name("backup.db"))
    fill(home, 40, prefix="lost")
    events_file(home)
    shutil.copyfile(older, home.with_name("new.db"))
    os.replace(home.with_name("new.db"), home / "events.db")
    for tail in ("-wal", "-shm"):
        (home / f"events.db{tail}").unlink(missing_ok=True)
    fill(home, 60, prefix="other", fold=False)

    lag = _is_whole(home)

    assert "another event at #354" in lag.told_again["transcripts"]


def test_another_homes_projections_are_not_taken_for_ours(home: Path) -> None:
    fill(home)
    other = home.with_name("other-home")
    fill(other, seed=2)
    shutil.copyfile(state_file(other), state_file(home))

    lag = _is_whole(home)

    assert lag.told_again["usage"] == "it was told from another log"


def test_what_was_told_of_a_log_that_is_lost_is_left_where_it_lies(home: Path) -> None:
    fill(home)
    for tail in ("", "-wal", "-shm"):
        (home / f"events.db{tail}").unlink(missing_ok=True)
    fill(home.with_name("other"), 10, prefix="new")
    (home.with_name("other") / "events.db").rename(home / "events.db")
    with Home(home) as opened:
        opened.catch_up()

    assert (home / "state.db").readlink() == Path("state.2.db")
    assert execute(home / "state.1.db", "SELECT count(*) FROM messages") == [(300,)]
    assert execute(home / "state.2.db", "SELECT count(*) FROM messages") == [(10,)]


def test_a_log_that_is_lost_is_not_begun_anew_in_silence(home: Path) -> None:
    fill(home)
    for tail in ("", "-wal", "-shm"):
        (home / f"events.db{tail}").unlink(missing_ok=True)

    with pytest.raises(LogDamaged, match="is missing, and the projections beside it"):
        Home(home)
    assert not (home / "events.db").exists()


def test_g9_64_threads_open_a_new_home_at_once(home: Path) -> None:
    ready = threading.Barrier(64)

    def open_and_write(number: int) -> None:
        ready.wait()
        with Home(home) as opened:
            opened.log.append(drafts(2, sessions=1, prefix=f"t{number}-"))
            opened.catch_up()

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(open_and_write, range(64)))

    _is_whole(home)
    assert sorted(each.name for each in home.glob("state.*.db")) == ["state.1.db"]


OPENER = """
import sys
from pathlib import Path
from retold.infrastructure.home import Home
from retold.tests.infrastructure.filled import drafts
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
with Home(Path(sys.argv[1])) as home:
    for n in range(5):
        home.log.append(drafts(3, sessions=1, prefix=f"p{sys.argv[2]}-{n}-"))
        home.catch_up()
"""


def test_g9_8_processes_open_a_new_home_at_once(home: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, str(home), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for each in processes:
        assert each.stdout is not None
        each.stdout.readline()
    told = [each.communicate("go\n", timeout=120)[1] for each in processes]

    assert told == [""] * 8
    _is_whole(home)
    assert sorted(each.name for each in home.glob("state.*.db")) == ["state.1.db"]
    with Home(home) as opened:
        assert opened.log.head().position == 8 * 5 * 6


READER = """
import sys
from pathlib import Path
from retold.infrastructure.home import Home
from retold.infrastructure.verify import verify
home = Path(sys.argv[1])
with Home(home, read_only=True) as opened:
    lag = opened.catch_up()
    count = opened.state.reader().execute("SELECT count(*) FROM messages").fetchone()[0]
    print(lag.events, opened.log.head().position, count, *lag.detached)
print(verify(home).exit_code)
"""


def _as_somebody_else(home: Path, code: str = READER) -> list[str]:
    done = as_somebody_else(code, home)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def shut(home: Path) -> Path:
    """A home that can be read by everybody and written by nobody."""
    fill(home)
    events_file(home)
    state_file(home)
    _shut(home)
    return home


def _shut(home: Path) -> None:
    for each in home.iterdir():
        if not each.is_symlink():
            each.chmod(0o444)
    home.chmod(0o555)


def test_a_home_that_cannot_be_written_is_read_as_it_is(shut: Path) -> None:
    before = sorted(os.listdir(shut))

    assert _as_somebody_else(shut) == ["0", "307", "300", "0"]
    assert sorted(os.listdir(shut)) == before


def test_a_home_that_cannot_be_written_says_how_far_it_is_behind(home: Path) -> None:
    fill(home)
    fill(home, 10, prefix="later", fold=False)
    events_file(home)
    state_file(home)
    _shut(home)

    assert _as_somebody_else(home)[:3] == ["17", "324", "300"]


def test_what_is_no_fold_of_the_log_is_named_where_it_cannot_be_told_again(home: Path) -> None:
    fill(home)
    other = home.with_name("other-home")
    fill(other, seed=2)
    shutil.copyfile(state_file(other), state_file(home))
    events_file(home)
    _shut(home)

    assert _as_somebody_else(home)[3:-1] == [each.name for each in PROJECTIONS]


def test_a_home_without_room_for_projections_is_no_room(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(home, fold=False)
    for each in home.glob("state*"):
        each.unlink()

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("retold.infrastructure.state_file.os.open", refuse)
    with pytest.raises(NoRoom, match="No space left"):
        StateFile(home)


def test_g2_short_lived_processes_never_strand_a_writer(home: Path, tmp_path: Path) -> None:
    fill(home)
    commands = [
        ["projections", "status"],
        ["sessions", "list"],
        ["audit"],
        ["verify"],
        ["backup", str(tmp_path / "backup")],
    ]
    with Home(home) as opened:
        wals: set[int] = set()
        for number, command in enumerate(commands):
            opened.log.append(drafts(5, sessions=1, prefix=f"w{number}-"))
            opened.catch_up()
            done = subprocess.run(
                [sys.executable, "-m", "retold", *command, "--home", str(home)],
                capture_output=True,
                check=False,
            )
            assert done.returncode == 0, (command, done.stderr)
            wals.add((home / "events.db-wal").stat().st_ino)
        head = opened.log.head()
    assert len(wals) == 1
    with Home(home, read_only=True) as opened:
        assert opened.log.head() == head
    _is_whole(home)


def test_another_connection_held_forever_does_not_stop_appends(home: Path) -> None:
    """FIELD_CASES G14: the log never waits for a projection, and the lag shows that one is held up."""
    fill(home)
    holder = apsw.Connection(str((home / "state.db").resolve()))
    holder.execute("BEGIN IMMEDIATE")
    with Home(home) as opened:
        for number in range(3):
            opened.log.append(drafts(5, sessions=1, prefix=f"w{number}-"))
            opened.catch_up(wait_ms=1)
        lag = opened.projector.lag()
    holder.close()

    assert lag.events == 24
    assert _is_whole(home).events == 0
