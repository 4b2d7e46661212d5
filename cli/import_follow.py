"""`retold import hermes --follow`: a line for each import, until somebody ends it."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .output import plural, visible
from .stream import encode, put, say, write_bytes

if TYPE_CHECKING:
    from ..infrastructure.importers.hermes import Target
    from ..infrastructure.importers.hermes_follow import Followed
    from ..infrastructure.importers.report import ImportReport, Progress


def follow(
    target: Target,
    path: Path,
    *,
    moved_from: Path | None,
    as_json: bool,
) -> int:
    """Take in what changes in the Hermes home at `path` until SIGINT or SIGTERM comes."""
    from ..infrastructure.importers.hermes_follow import Follower
    from .import_ import lines
    from .progress import progress_bar

    begun = False
    bar = contextlib.ExitStack()
    shown = bar.enter_context(progress_bar("rows"))

    def imported(report: ImportReport) -> None:
        nonlocal begun
        bar.close()
        if as_json:
            write_bytes(encode(report) + b"\n")
        elif begun:
            put(_line(report))
        else:
            put(*lines(report, None))
            say([f"following {visible(str(path))}; end it with Ctrl-C"])
        begun = True
        sys.stdout.flush()

    def advance(at: Progress) -> None:
        if shown is not None and not begun:
            shown(at.phase, at.done, at.done if at.total is None else at.total)

    with bar, _until_told() as stop:
        done = Follower(
            target,
            path,
            imported=imported,
            said=lambda sentence: say([f"{time.strftime('%H:%M:%S')}  {visible(sentence)}"]),
            stop=stop,
            moved_from=moved_from,
            progress=advance,
        ).run()
    if as_json:
        write_bytes(encode({"followed": done}) + b"\n")
    else:
        put(_totals(done))
    return 0


@contextlib.contextmanager
def _until_told() -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets; a second one ends the program as ever."""
    stop = threading.Event()
    before: dict[signal.Signals, object] = {}

    def told(number: int, frame: object) -> None:  # noqa: ARG001  # as signal calls it
        stop.set()
        _restore(before)

    for each in (signal.SIGINT, signal.SIGTERM):
        before[each] = signal.signal(each, told)
    try:
        yield stop
    finally:
        _restore(before)


def _restore(before: dict[signal.Signals, object]) -> None:
    for each, handler in before.items():
        signal.signal(each, handler)  # type: ignore[arg-type]  # what it gave itself


def _line(report: ImportReport) -> str:
    """One import: what it took in, and what of it needs a look."""
    told = _counted(report.taken) or "nothing"
    for found, word in (
        (report.conflicts, "conflict"),
        (report.lost, "loss"),
        (report.skipped, "skipped row"),
    ):
        if found:
            told += f"; {plural(len(found), word, 'losses' if word == 'loss' else None)}"
    return f"{time.strftime('%H:%M:%S')}  {told}  #{report.position}"


def _totals(done: Followed) -> str:
    spent = f"{done.duration_s:,.0f} s"
    if not done.imports:
        return f"followed {visible(done.path)} for {spent}; nothing was taken in"
    taken = _counted(done.taken) or "nothing new"
    return f"followed {visible(done.path)} for {spent}: {taken} in {plural(done.imports, 'import')}"


def _counted(taken: dict[str, int]) -> str:
    from .import_ import counted

    return ", ".join(counted(count, words) for words, count in taken.items() if count)
