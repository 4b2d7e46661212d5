"""`retold demo`: short, fast, and true."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

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
