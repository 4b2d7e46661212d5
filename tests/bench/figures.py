"""What was measured: gathered in one run, and shown as the table of docs/performance.md."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


class Figure(NamedTuple):
    """One line of the table; `ratio` is Retold to Hermes (or, without one, to the floor)."""

    group: str
    what: str
    unit: str
    retold: float
    hermes: float | None
    floor: float | None
    bar: str
    met: bool | None


class Child(NamedTuple):
    """A process that ended."""

    wall_s: float
    peak_mb: float
    stdout: bytes


TAKEN_IN: dict[Path, Child] = {}
"""By Retold home, the process that made it of a Hermes home."""
FIGURES: list[Figure] = []
FACTS: dict[str, str] = {}


def note(
    group: str,
    what: str,
    unit: str,
    retold: float,
    *,
    hermes: float | None = None,
    floor: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    ratio_at_most: float | None = None,
    ratio_at_least: float | None = None,
    ratio: float | None = None,
) -> None:
    """Keep a figure.

    Args:
        at_least, at_most: the bar for Retold's own figure.
        ratio_at_most, ratio_at_least: the bar for its ratio to Hermes'; `ratio` where that is a median of
            pairs.
    """
    bar, met = "", None
    if at_least is not None:
        bar, met = f"≥ {_number(at_least)}", retold >= at_least
    elif at_most is not None:
        bar, met = f"< {_number(at_most)}", retold < at_most
    elif ratio_at_most is not None and hermes:
        bar, met = f"≤ {ratio_at_most} × Hermes", (ratio or retold / hermes) <= ratio_at_most
    elif ratio_at_least is not None and hermes:
        bar, met = f"≥ {ratio_at_least} × Hermes", (ratio or retold / hermes) >= ratio_at_least
    FIGURES.append(Figure(group, what, unit, retold, hermes, floor, bar, met))
    if ratio is not None:
        _RATIOS[len(FIGURES) - 1] = ratio


_RATIOS: dict[int, float] = {}


def rate(count: int, work: Callable[[], object]) -> float:
    """How many a second `work` does, once."""
    began_s = perf_counter()
    work()
    return count / (perf_counter() - began_s)


def time_ms(work: Callable[[], object], *, times: int = 15) -> float:
    """The median time that `work` takes, after a first time that does not count."""
    return median(each_ms(work, times))


def each_ms(work: Callable[[], object], times: int = 40) -> list[float]:
    """How long `work` takes each time, after a first time that does not count."""
    work()
    taken = []
    for _ in range(times):
        began_s = perf_counter()
        work()
        taken.append((perf_counter() - began_s) * 1e3)
    return taken


# --- the table ------------------------------------------------------------------------------------


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _rows() -> Iterator[list[str]]:
    group = ""
    for index, each in enumerate(FIGURES):
        if each.group != group:
            group = each.group
            yield [f"**{group}**", *[""] * 6]
        beside = each.hermes or each.floor
        ratio = _RATIOS.get(index) or (each.retold / beside if beside else None)
        yield [
            f"{each.what}, {each.unit}",
            _number(each.retold),
            _number(each.hermes),
            _number(each.floor),
            "" if ratio is None else f"{ratio:.2f}" + ("" if each.hermes else " of the floor"),
            each.bar,
            {True: "yes", False: "NO", None: ""}[each.met],
        ]


def table() -> list[str]:
    """The table in Markdown, with its columns aligned for who reads it as text."""
    rows = [["what", "Retold", "Hermes", "floor", "ratio", "bar", "met"], *_rows()]
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    aligned = [
        "| "
        + " | ".join(
            cell.ljust(width) if column in (0, 5, 6) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    ]
    rule = (
        "|"
        + "|".join(
            f" {'-' * width} " if column in (0, 5, 6) else f" {'-' * (width - 1)}: "
            for column, width in enumerate(widths)
        )
        + "|"
    )
    return [aligned[0], rule, *aligned[1:]]


def machine() -> str:
    """What it was measured on; nothing that names the machine."""
    import apsw

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[1] if hasattr(os, "getloadavg") else 0.0
    return (
        f"Measured on {cores} cores ({platform.system()} {platform.machine()}), CPython"
        f" {platform.python_version()}, SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()});"
        f" {FACTS.get('peer', 'Hermes was not measured')}."
        f" Load of the machine over the last five minutes when it ended: {load:.1f}."
    )


def text() -> str:
    """All that stands between the markers."""
    return "\n".join([machine(), "", *table()])


def keep() -> None:
    """Write the table into the document."""
    document = DOCUMENT.read_text(encoding="utf-8")
    head, _, rest = document.partition(BEGIN)
    _, _, tail = rest.partition(END)
    DOCUMENT.write_text(f"{head}{BEGIN}\n\n{text()}\n\n{END}{tail}", encoding="utf-8")


def program() -> list[str]:
    """How this environment's `retold` is started, as a user's shell would."""
    script = Path(sys.executable).with_name("retold")
    return [str(script)] if script.exists() else [sys.executable, "-m", "retold"]
