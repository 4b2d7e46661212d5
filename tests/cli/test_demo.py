"""`retold demo`: short, fast, and true."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from retold.cli.output import cell_width

if TYPE_CHECKING:
    from pathlib import Path

    from retold.tests.conftest import Run, RunProcess


def test_the_demo_fits_a_terminal_and_takes_under_three_seconds(run_process: RunProcess) -> None:
    began_s = time.monotonic()
    ran = run_process("demo")
    took_s = time.monotonic() - began_s

    assert ran.exit_code == 0, ran.stderr
    lines = ran.stdout.rstrip("\n").split("\n")
    assert len(lines) <= 40
    assert max(cell_width(line) for line in lines) <= 80
    assert took_s < 3
    assert "JUMPED BACK" in ran.stdout
    assert "adopt into agent:main:telegram:dm:1001" in ran.stdout
    assert "equal to what was there" in ran.stdout
    assert lines[-1].startswith("Yours next: retold import hermes")


def test_a_home_to_keep_must_be_named(run: Run) -> None:
    done = run("demo", "--keep", "")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("retold: --keep names no folder\n")


def test_a_folder_that_cannot_be_made_is_one_sentence(run_process: RunProcess) -> None:
    done = run_process("demo", "--keep", "/proc/x")

    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr.startswith("retold: the home /proc/x cannot be made: ")
    assert len(done.stderr.splitlines()) == 2


def test_a_gateway_that_fails_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retold.cli.demo.GATEWAY", "retold.cli.no_such_gateway")
    done = run("demo")

    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr.startswith("retold: the demo's gateway could not write its chat: ")
    assert "Traceback" not in done.stderr


def test_what_the_killed_gateway_was_told_is_stored(run: Run) -> None:
    answer = run("demo", "--json").json

    assert answer["acknowledged"] == 6
    assert [each["kind"] for each in answer["why"]["findings"]] == ["jumped_back", "stranded"]


def test_a_kept_home_takes_the_commands_that_a_user_types(run: Run, tmp_path: Path) -> None:
    home = str(tmp_path / "kept")
    run("demo", "--keep", home)

    assert run("why", "1001", "--home", home).exit_code == 1
    assert run("verify", "--home", home).exit_code == 0
    again = run("demo", "--keep", home)
    assert again.exit_code == 2
    assert "already" in again.stderr
