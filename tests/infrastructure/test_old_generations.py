"""Generations of the projections' file that are left behind: removed where that loses and harms nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retold.domain.errors import ProjectionDamaged
from retold.infrastructure.home import Home
from retold.infrastructure.old_generations import GRACE_S
from retold.tests.infrastructure.filled import execute, fill

_HOLDER = """
import apsw, sys
held = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
print(held.execute("SELECT count(*) FROM messages").get, flush=True)
sys.stdin.readline()
"""


def generations(home: Path) -> list[str]:
    """The files of projections in the home, with whatever lies beside them."""
    return sorted(each.name for each in home.glob("state.*.db*"))


def age(home: Path) -> None:
    """The link was moved a while ago."""
    then = time.time() - GRACE_S - 1
    os.utime(home / "state.db", (then, then), follow_symlinks=False)


def look(home: Path) -> None:
    """As a read command does."""
    with Home(home, read_only=True) as opened:
        opened.catch_up()


@pytest.fixture
def superseded(home: Path) -> Path:
    """A home whose second generation has told all that the first had, a while ago."""
    fill(home)
    with Home(home) as opened:
        opened.catch_up()
        opened.projector.supersede(ProjectionDamaged("a page is broken", hint=""))
        opened.catch_up()
    age(home)
    return home


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process has read the file and keeps it open, with no transaction."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "300\n"
        yield
        holder.communicate("\n")


def test_one_that_nobody_holds_is_removed_with_what_lies_beside_it(superseded: Path) -> None:
    (superseded / "state.1.db-wal").touch()
    look(superseded)

    assert [each for each in generations(superseded) if each.startswith("state.1.")] == []
    assert execute(superseded / "state.2.db", "SELECT count(*) FROM messages") == [(300,)]


def test_one_that_another_process_holds_stays_until_it_lets_go(superseded: Path) -> None:
    with held(superseded / "state.1.db"):
        look(superseded)

        assert "state.1.db" in generations(superseded)
    look(superseded)

    assert "state.1.db" not in generations(superseded)


def test_one_that_was_left_just_now_stays_for_whoever_follows_the_link(superseded: Path) -> None:
    os.utime(superseded / "state.db", follow_symlinks=False)
    look(superseded)

    assert "state.1.db" in generations(superseded)


@pytest.mark.parametrize(
    "lack",
    [
        "UPDATE checkpoints SET position = position - 1 WHERE projection = 'routing'",
        "UPDATE checkpoints SET log_id = 'another'",
        "UPDATE checkpoints SET passed_over = '[[3, 4]]'",
        "UPDATE checkpoints SET detached = 'it failed'",
        "DELETE FROM checkpoints WHERE projection = 'transcripts'",
    ],
)
def test_one_that_may_hold_what_nothing_else_does_stays(superseded: Path, lack: str) -> None:
    execute(superseded / "state.2.db", lack)
    Home(superseded).close()

    assert "state.1.db" in generations(superseded)


def test_one_that_cannot_be_read_stays(superseded: Path) -> None:
    (superseded / "state.1.db").write_bytes(os.urandom(8192))
    look(superseded)

    assert "state.1.db" in generations(superseded)


def test_the_number_of_one_that_was_removed_is_never_used_again(superseded: Path) -> None:
    look(superseded)
    with Home(superseded) as opened:
        opened.projector.supersede(ProjectionDamaged("a page is broken", hint=""))

    assert (superseded / "state.db").readlink() == Path("state.3.db")


def test_one_that_another_link_leads_to_stays(superseded: Path) -> None:
    (superseded / "state.beside").symlink_to("state.1.db")
    look(superseded)

    assert "state.1.db" in generations(superseded)


def test_what_somebody_put_there_is_not_removed(superseded: Path) -> None:
    for name in ("state.replaced.1.db", "state.old.db", "state.0.db.bak"):
        (superseded / name).write_text("mine")
    look(superseded)

    assert {"state.replaced.1.db", "state.old.db", "state.0.db.bak"} <= set(generations(superseded))
