"""What is no home of ours is refused, and nothing in it is changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

from retold.domain.errors import BadUsage, LogDamaged
from retold.infrastructure.home import Home, make_home, refuse_foreign
from retold.infrastructure.log import Log
from retold.tests.infrastructure.filled import execute, fill
from retold.tests.infrastructure.hard_places import as_somebody_else, on_a_small_disk

if TYPE_CHECKING:
    from retold.tests.conftest import Run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


def test_another_programs_database_is_refused_and_stays_byte_for_byte(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "events.db"))
    db.execute("CREATE TABLE theirs (id INTEGER)")
    db.close()
    before = contents(tmp_path)
    with pytest.raises(LogDamaged, match="another program's database"):
        Log(tmp_path / "events.db")

    assert contents(tmp_path) == before


def test_a_hermes_home_is_never_made_a_home(hermes_home: Path, run: Run) -> None:
    before = contents(hermes_home)
    done = run("import", "hermes", hermes_home, "--home", hermes_home)
    read = run("sessions", "list", "--home", hermes_home)

    assert (done.exit_code, read.exit_code) == (2, 2)
    assert "another folder with --home" in done.stderr
    assert "give another folder with --home" in read.stderr
    assert contents(hermes_home) == before


def test_who_makes_a_home_refuses_hermes_home(hermes_home: Path, home: Path) -> None:
    for refused in (refuse_foreign, make_home, Home):
        with pytest.raises(BadUsage, match="is a Hermes home"):
            refused(hermes_home)
    fill(home, 5)

    refuse_foreign(home)


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_lost_log_is_told_by_readers_and_writers_alike(home: Path, run: Run, how: str) -> None:
    fill(home)
    for tail in ("-wal", "-shm"):
        Path(f"{home / 'events.db'}{tail}").unlink(missing_ok=True)
    (home / "events.db").unlink()
    if how == "empty":
        (home / "events.db").touch()
    with pytest.raises(LogDamaged, match=how):
        Home(home)
    for argv in (
        ["sessions", "list"],
        ["log"],
        ["verify"],
        ["why", "s0"],
        ["sessions", "list", "--at", "2d"],
    ):
        done = run(*argv)

        assert (done.exit_code, f"events.db is {how}" in done.stderr) == (5, True), done
        assert "restore a backup" in done.stderr


def test_a_file_is_no_home(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").write_text("x")
    for argv in (["sessions", "list"], ["log"], ["verify"], ["import", "hermes", tmp_path]):
        done = run(*argv, "--home", tmp_path / "file")

        assert done.exit_code == 2, done
        assert argv[0] == "import" or "is a file, not a folder" in done.stderr


UNREADABLE = """
import sys
from retold.cli.main import main
for argv in (["verify"], ["projections", "status"], ["sessions", "list"], ["log"]):
    print("code", main([*argv, "--home", sys.argv[1]]))
"""


def test_a_home_that_may_not_be_read_is_said_to_be_so(home: Path) -> None:
    fill(home)
    home.chmod(0o700 if os.getuid() == 0 else 0)
    done = as_somebody_else(UNREADABLE, home)
    home.chmod(0o700)

    assert done.stdout == "code 4\n" * 4, done.stderr
    assert done.stderr.count("cannot be read") == 4
    assert done.stderr.count("permissions") == 4


def test_a_folder_in_the_place_of_a_file_is_called_one(home: Path, run: Run) -> None:
    fill(home)
    (home / "state.db").unlink()
    (home / "state.db").mkdir()
    found = run("verify")

    assert (found.exit_code, "it is a folder" in found.stdout) == (1, True)
    assert run("sessions", "list").exit_code == 0
    assert run("verify").exit_code == 0

    (home / "events.db").rename(home / "away")
    (home / "events.db").mkdir()
    for argv in (["sessions", "list"], ["log"], ["verify"], ["projections", "status"]):
        done = run(*argv)

        assert (done.exit_code, "is a folder" in done.stderr) == (5, True), done


FULL = """
import contextlib, sys
from pathlib import Path
from retold.cli.main import main
from retold.tests.infrastructure.filled import fill
home = Path(sys.argv[1]) / "home"
fill(home)
fill(home, 1, prefix="t", fold=False)
with contextlib.suppress(OSError), (home.parent / "ballast").open("wb", buffering=0) as file:
    while file.write(b"x" * 4096):
        pass
for argv in (["sessions", "list"], ["sessions", "show", "s1"], ["sessions", "tree", "s1"],
             ["sessions", "stats"], ["log"], ["search", "harbour"], ["why", "k"], ["audit"],
             ["projections", "status"], ["verify"], ["sessions", "list", "--at", "#9"]):
    print("code", main([*argv, "--home", str(home)]))
"""


def test_a_full_disk_can_be_read_and_is_said_to_be_what_holds_the_answer_up(tmp_path: Path) -> None:
    done = on_a_small_disk(FULL, tmp_path)
    codes = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("code ")]

    assert codes == ["0"] * 11, done.stdout[-500:] + done.stderr
    assert "event(s) behind the log" in done.stderr
    assert "no room to" in done.stderr
    assert "another process" not in done.stderr


def test_a_home_that_cannot_be_written_is_said_to_hold_the_answer_up(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home)
    fill(home, 1, prefix="t", fold=False)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK or Path(path) != home)
    said = run("sessions", "list").stderr

    assert "event(s) behind the log" in said
    assert f"{home} cannot be written" in said


def test_an_emptied_log_with_nothing_beside_it_is_begun(home: Path) -> None:
    home.mkdir()
    (home / "events.db").touch()
    Home(home).close()

    assert execute(home / "events.db", "SELECT count(*) FROM events") == [(0,)]
