"""How much memory a million messages take to be taken in, told again and written as a Hermes home."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from retold.tests.bench.conftest import SIZE, MakeStore, run_child
from retold.tests.bench.figures import TAKEN_IN, note

MILLION = 10 * SIZE


def test_a_million_messages(store: MakeStore, told: Callable[[Path], Path], tmp_path: Path) -> None:
    home = told(store(MILLION))
    taken = TAKEN_IN[home]
    again = run_child(["projections", "rebuild", "--home", str(home)])
    written = run_child(["export", "hermes", str(tmp_path / "out"), "--home", str(home)])

    note("a million messages, whole commands", "import, peak memory", "MB", taken.peak_mb, at_most=500)
    note("a million messages, whole commands", "import", "messages/s", MILLION / taken.wall_s)
    note(
        "a million messages, whole commands",
        "rebuild and compare, peak memory",
        "MB",
        again.peak_mb,
        at_most=500,
    )
    note("a million messages, whole commands", "rebuild and compare", "messages/s", MILLION / again.wall_s)
    note(
        "a million messages, whole commands",
        "export as a Hermes home, peak memory",
        "MB",
        written.peak_mb,
        at_most=500,
    )
    note(
        "a million messages, whole commands",
        "export as a Hermes home",
        "messages/s",
        MILLION / written.wall_s,
    )
