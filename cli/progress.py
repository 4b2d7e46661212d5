"""A progress bar with rate and time left, on standard error and only where that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Report = Callable[[str, int, int], None]
"""(what is being done, done, total)"""


@contextlib.contextmanager
def progress_bar(unit: str = "events") -> Iterator[Report | None]:
    """Yields what to call as work goes on, or None where nobody watches."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for task in tasks.values():
                    bar.remove_task(task)
                tasks.clear()
                tasks[what] = bar.add_task(what, total=total, rate="")
            bar.update(tasks[what], completed=done, total=total)
            speed = next(each.speed for each in bar.tasks if each.id == tasks[what])
            if speed:
                bar.update(tasks[what], rate=f"{speed:,.0f} {unit}/s")

        yield report
