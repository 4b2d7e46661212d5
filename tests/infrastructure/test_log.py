"""The log's file: two writers, a follower, a file that is replaced, a disk that is full."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from retold.domain import events as e
from retold.domain.errors import FileReplaced, LogDamaged, NoSuchHome
from retold.infrastructure.home import Home
from retold.infrastructure.log import Condition, Conflict, Log
from retold.infrastructure.recorders import LogApplicationRecorder
from retold.infrastructure.verify import verify
from retold.tests.infrastructure import damage
from retold.tests.infrastructure.filled import copy_of, draft, drafts, events_file, execute, fill
from retold.tests.infrastructure.hard_places import as_somebody_else, on_a_small_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


# --- one writer -----------------------------------------------------------------------------------


def test_the_files_are_their_owners_alone(home: Path) -> None:
    fill(home, 5)

    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in home.iterdir() if not each.is_symlink()} == {0o600}


def test_reading_where_there_is_no_log_makes_none(tmp_path: Path) -> None:
    with pytest.raises(NoSuchHome, match="is no Retold home"):
        Log(tmp_path / "events.db", read_only=True)

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path) -> None:
    content = b"no database at all, but some text of a person" * 100
    path.write_bytes(content)
    for read_only in (True, False):
        with pytest.raises(LogDamaged):
            Log(path, read_only=read_only)

    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left_as_it_is(path: Path) -> None:
    execute(path, "CREATE TABLE messages (id, words)")
    for read_only in (True, False):
        with pytest.raises(LogDamaged, match=r"another program's|not a Retold log"):
            Log(path, read_only=read_only)

    assert execute(path, "SELECT name FROM sqlite_schema") == [("messages",)]


def test_a_save_is_whole_or_not_there(home: Path) -> None:
    fill(home, 20)
    with Home(home) as opened:
        before = opened.log.head()
        taken = draft("session:s1", 2, e.SessionArchived())
        with pytest.raises(Conflict):
            opened.log.append([draft("session:new", 1, e.SessionCreated(source="cli")), taken])

        assert opened.log.head() == before
        assert opened.log.stream_version("session:new") == 0
        opened.log.append([draft("session:new", 1, e.SessionCreated(source="cli"))])
    assert verify(home).exit_code == 0


def test_a_condition_that_moved_refuses_the_save(home: Path) -> None:
    fill(home, 20)
    with Home(home) as opened:
        head = opened.log.head()
        opened.log.append(drafts(1, sessions=1, prefix="rival"))
        ours = [draft("session:mine", 1, e.SessionCreated(source="cli"))]
        for condition in (
            Condition(head.position, streams=("session:rival0",)),
            Condition(head.position, topics=("session_titled.1",)),
        ):
            with pytest.raises(Conflict, match="has moved"):
                opened.log.append(ours, condition=condition)

        opened.log.append(ours, condition=Condition(head.position, streams=("session:s1",)))


def test_b16_events_keep_the_order_of_their_saves_whatever_their_times(home: Path) -> None:
    times = [500, 500, 500, 100, 500]
    with Home(home) as opened:
        opened.log.append([draft("session:s", 1, e.SessionCreated(source="cli"), 1)])
        for number, at_us in enumerate(times, 2):
            payload = e.MessageAppended(role="user", content=str(number))
            opened.log.append([draft("session:s", number, payload, at_us)])

        events = opened.log.read(1)

    assert [each.at_us for each in events] == times
    assert [each.payload.content for each in events] == ["2", "3", "4", "5", "6"]


# --- a file that is replaced or damaged while it is open ------------------------------------------


def test_b20_a_replaced_file_is_not_written_to_and_nothing_in_it_is_lost(home: Path) -> None:
    fill(home)
    backup = copy_of(home / "events.db", home.with_name("backup.db"))
    expected = backup.read_bytes()
    with Home(home) as opened:
        opened.log.append(drafts(5, prefix="before"))
        old = os.open(home / "events.db", os.O_RDONLY)
        os.replace(backup, home / "events.db")
        with pytest.raises(FileReplaced, match="nothing was written"):
            opened.log.append(drafts(5, prefix="after"))
        with pytest.raises(FileReplaced):
            opened.log.append(drafts(5, prefix="again"))

        assert (home / "events.db").read_bytes() == expected
        os.close(old)


def test_b20_a_removed_file_is_not_written_to(home: Path) -> None:
    fill(home)
    with Home(home) as opened:
        (home / "events.db").unlink()
        with pytest.raises(FileReplaced, match="moved, removed or replaced"):
            opened.log.append(drafts(5, prefix="after"))

    assert not (home / "events.db").exists()


def test_g5_a_damaged_page_that_a_save_needs_refuses_the_save(home: Path) -> None:
    fill(home)
    path = events_file(home)
    damage.overwrite(path, damage.tree(path, "events").leaves[-1])
    with Home(home) as opened, pytest.raises(LogDamaged, match="is damaged") as refused:
        opened.log.append(drafts(5, prefix="after"))

    assert refused.value.exit_code == 5


# --- two writers, and who follows -----------------------------------------------------------------


WRITER = """
import sys
from pathlib import Path
from retold.infrastructure.log import Log
from retold.tests.infrastructure.filled import drafts
log = Log(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[3])):
    log.append(drafts(2, sessions=1, prefix=f"{sys.argv[2]}-{n}-"))
log.close()
"""


def writers(path: Path, saves: int) -> list[subprocess.Popen[str]]:
    found = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, str(saves)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for each in found:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    return found


def test_b28_a_follower_of_two_writing_processes_sees_every_event_and_no_hole(path: Path) -> None:
    log = Log(path)
    log.append(drafts(1, sessions=1, prefix="first"))
    both = writers(path, saves=60)
    for each in both:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    total = 4 + 2 * 60 * 5
    seen: list[int] = []
    with LogApplicationRecorder(log).subscribe(gt=0) as subscription:
        for notification in subscription:
            seen.append(int(notification.id))
            if len(seen) == log.head().position == total:
                break
    told = [each.communicate(timeout=30)[1] for each in both]

    assert told == ["", ""]
    assert seen == list(range(1, total + 1))
    log.close()


def test_b28_a_commit_that_is_delayed_makes_no_hole(path: Path) -> None:
    log, other = Log(path), Log(path)
    log.append(drafts(1, sessions=1, prefix="first"))
    recorder = LogApplicationRecorder(log)
    late = drafts(1, sessions=1, prefix="late")
    rival = threading.Thread(target=other.append, args=(drafts(1, sessions=1, prefix="rival"),))
    with log.transaction() as connection:
        log.append_within(connection, late)
        rival.start()  # it waits for the lock: its position is not known before ours is committed
        during = [each.id for each in recorder.select_notifications(None, 100)]
    rival.join()
    after = [each.id for each in recorder.select_notifications(None, 100)]

    assert during == [1, 2, 3, 4]
    assert after == list(range(1, 13))
    log.close()
    other.close()


def test_g4_two_writing_processes_interleave_in_one_chain(home: Path) -> None:
    fill(home, 5)
    both = writers(home / "events.db", saves=40)
    told = [each.communicate("go\n", timeout=60)[1] for each in both]

    assert told == ["", ""]
    assert verify(home).log.problems == []
    assert verify(home).log.events == 12 + 2 * 40 * 5


# --- a disk that is full --------------------------------------------------------------------------


FULL = """
import os, sys
from pathlib import Path
from retold.domain.errors import NoRoom
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.verify import verify
from retold.cli.main import main

folder = Path(sys.argv[1])
home, ballast = folder / "home", folder / "ballast"
ballast.write_bytes(bytes(1 << 20))
told, refused = {}, 0
with SessionEngine(home) as engine:
    session = engine.create_session("cli").session_id
    for number in range(100_000):
        text = f"message {number} " + os.urandom(2_000).hex()
        try:
            told[engine.append_message(session, "user", text).position] = text
        except NoRoom as error:
            refused += 1
            assert error.exit_code == 4, error
            if refused == 3:
                break
    assert refused == 3, "the disk never filled"
    code = main(["projections", "rebuild", "--home", str(home)])
    ballast.unlink()
    for number in range(5):
        text = f"afterwards {number}"
        told[engine.append_message(session, "user", text).position] = text
    found = {event.position: event.payload.content for event in engine.event_log.read(1, limit=1 << 20)}
    assert found == told, (len(found), len(told))
ok = verify(home)
print(code, ok.log.problems, len(told) > 20)
"""


def test_on_a_full_disk_nothing_is_lost_and_the_next_append_works(tmp_path: Path) -> None:
    done = on_a_small_disk(FULL, tmp_path)

    assert done.stdout == "4 [] True\n", done.stderr


LIMITED = """
import resource, sys
from pathlib import Path
from retold.domain.errors import NoRoom
from retold.infrastructure.log import Log
from retold.tests.infrastructure.filled import drafts
log = Log(Path(sys.argv[1]))
log.append(drafts(20))
before = log.head()
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
try:
    log.append(drafts(3_000, prefix="much"))
except NoRoom as error:
    print(error.kind, log.head() == before)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(drafts(20, prefix="later"))
print(log.head().position)
log.close()
"""


def test_a_save_that_is_too_big_for_the_disk_is_rolled_back_whole(home: Path) -> None:
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(home / "events.db")], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("no_room True\n54\n", "")
    assert verify(home).log.problems == []


def test_a_folder_that_cannot_be_written_is_no_room(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom retold.infrastructure.home import Home\n"
        "from retold.domain.errors import NoRoom\n"
        "try: Home(Path(sys.argv[1], 'home'))\n"
        "except NoRoom as error: print(error.exit_code)"
    )
    tmp_path.chmod(0o555)
    done = as_somebody_else(code, tmp_path)

    assert (done.stdout, done.stderr) == ("4\n", "")


def test_a_folder_where_the_log_should_be_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "events.db").mkdir()

    with pytest.raises(LogDamaged, match="is a folder"):
        Log(tmp_path / "events.db")
