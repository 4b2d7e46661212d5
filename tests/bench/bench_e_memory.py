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


def test_exports_of_a_long_session(store: MakeStore, told: Callable[[Path], Path], tmp_path: Path) -> None:
    home = told(store(3 * SIZE, sessions=1))
    everything = ["sessions", "export", "--home", str(home), "--all"]
    for name, to in (
        ("JSON lines", ["x.jsonl"]),
        ("JSON lines, sanitized", ["s.jsonl", "--sanitize"]),
        ("Markdown", ["md/", "--format", "md"]),
        ("HTML", ["x.html", "--format", "html"]),
        ("user prompts", ["p.jsonl", "--only", "user-prompts"]),
    ):
        done = run_child([*everything, str(tmp_path / to[0]), *to[1:]])
        what = f"one session of {3 * SIZE:,} messages, whole commands"
        note(what, f"export as {name}, peak memory", "MB", done.peak_mb, at_most=200)
        note(what, f"export as {name}", "s", done.wall_s)
