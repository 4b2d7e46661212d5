"""`retold sessions repair-routing --into`: shows, asks, writes into a Hermes home, tells the way back."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.domain.errors import NoRoom
from retold.tests.cli.repaired import LINEAGE, REPAIR, TRUTH, answer, backups, head

if TYPE_CHECKING:
    from retold.tests.conftest import Run


def test_into_carries_what_was_repaired_and_tells_the_way_back(
    run: Run, imported: Path, hermes_home: Path
) -> None:
    done = run(*REPAIR, "--apply", "--yes", "--into", hermes_home)
    again = run(*REPAIR, "--into", hermes_home, "--json", "--yes")

    assert done.exit_code == 0
    assert f"✓ {LINEAGE['adopts_key']} leads to {LINEAGE['orphan']} in {hermes_home}\n" in done.stdout
    assert "take it back, with Hermes stopped, by:\n" in done.stdout
    assert f"cp -p {hermes_home}/state.db.before-repair-" in done.stdout
    assert again.json["into"] == {
        "path": str(hermes_home),
        "done": [],
        "refused": [],
        "backup": None,
        "back": [],
    }


def files(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


def test_into_shows_what_would_be_written_and_writes_nothing_without_a_yes(
    run: Run, imported: Path, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*REPAIR, "--apply", "--yes", LINEAGE["orphan"])
    at, before = head(imported), files(hermes_home)
    for said in ("", "n\n", "what?\n"):
        answer(monkeypatch, said)
        done = run(*REPAIR, "--into", hermes_home)

        assert done.exit_code == 1
        assert f"This would be written into {hermes_home}, after a copy of its database:\n" in done.stdout
        assert f"  {LINEAGE['adopts_key']} leads to {LINEAGE['orphan']}\n" in done.stdout
        assert done.stdout.endswith(f"Nothing was written into {hermes_home}.\n")
        assert done.stderr.startswith(f"Write it into {hermes_home}? [y/N] ")
        assert (head(imported), files(hermes_home)) == (at, before)
    answer(monkeypatch, "y\n")
    written = run(*REPAIR, "--into", hermes_home)
    assert written.exit_code == 0
    assert f"✓ {LINEAGE['adopts_key']} leads to {LINEAGE['orphan']} in {hermes_home}\n" in written.stdout


def test_into_asks_nothing_where_nothing_is_to_be_changed(
    run: Run, imported: Path, hermes_home: Path
) -> None:
    done = run(*REPAIR, "--into", hermes_home)

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"\nNothing was to be changed in {hermes_home}.\n"


def test_into_with_json_has_to_be_told_yes(run: Run, imported: Path, hermes_home: Path) -> None:
    run(*REPAIR, "--apply", "--yes", LINEAGE["orphan"])
    before = files(hermes_home)
    refused = run(*REPAIR, "--into", hermes_home, "--json")

    assert (refused.exit_code, refused.json["error"]["kind"]) == (2, "bad_usage")
    assert files(hermes_home) == before


def test_a_repair_that_is_agreed_to_stands_where_carrying_it_is_not(
    run: Run, imported: Path, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(hermes_home)
    answer(monkeypatch, "y\nn\n")
    done = run(*REPAIR, "--apply", "--into", hermes_home, LINEAGE["orphan"])

    assert done.exit_code == 1
    assert f"✓ {LINEAGE['orphan']} now owns {LINEAGE['adopts_key']}\n" in done.stdout
    assert "A backup from before lies in " in done.stderr
    assert done.stdout.endswith(f"Nothing was written into {hermes_home}.\n")
    assert files(hermes_home) == before
    assert run("sessions", "repair-routing", LINEAGE["orphan"]).stdout.startswith("✓ No gateway sessions")


@contextlib.contextmanager
def held_by_another(hermes_home: Path) -> Iterator[None]:
    """As a Hermes that is idle holds it."""
    code = (
        "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n"
        "db.execute('SELECT count(*) FROM sessions').fetchone()\n"
        "print('held', flush=True)\nsys.stdin.readline()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(hermes_home / "state.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        yield
    finally:
        holder.communicate("\n")


@pytest.mark.parametrize("told", [(), ("--json",)])
def test_into_a_home_that_is_held_nothing_is_done_here_either(
    run: Run, imported: Path, hermes_home: Path, told: tuple[str, ...]
) -> None:
    before = head(imported)
    with held_by_another(hermes_home):
        done = run(*REPAIR, "--apply", "--yes", "--into", hermes_home, *told)

    assert done.exit_code == 4
    assert "nothing was changed there" in (done.stdout if told else done.stderr)
    assert (head(imported), backups(imported)) == (before, [])


def test_what_was_done_here_is_told_where_it_cannot_be_carried(
    run: Run, imported: Path, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise NoRoom("no room there", hint="make some")

    monkeypatch.setattr("retold.infrastructure.exporters.hermes_repair.copied", full)
    done = run(*REPAIR, "--apply", "--yes", "--into", hermes_home, LINEAGE["orphan"])
    again = run(*REPAIR, "--apply", "--yes", "--into", hermes_home, TRUTH["contiguity"]["orphan"], "--json")

    assert (done.exit_code, again.exit_code) == (4, 4)
    assert "Repaired 1 of 1 session(s).\n" in done.stdout
    assert "take it back with: retold undo " in done.stdout
    assert "A backup from before lies in " in done.stderr
    assert "retold: no room there\n" in done.stderr
    assert again.json["adopted"][0]["positions"]
    assert Path(again.json["backup"]).is_dir()
    assert again.json["into"] == {
        "path": str(hermes_home),
        "done": [],
        "refused": [],
        "backup": None,
        "back": [],
        "error": {"kind": "no_room", "message": "no room there", "hint": "make some"},
    }


def test_into_a_home_that_was_never_imported_is_refused(run: Run, imported: Path, tmp_path: Path) -> None:
    for asked in ((*REPAIR,), (*REPAIR, "--apply")):
        done = run(*asked, "--into", tmp_path)

        assert done.exit_code == 2
        assert "was never imported here" in done.stderr
        assert "[y/N]" not in done.stderr
