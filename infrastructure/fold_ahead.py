"""Folds a large import in a second process while the first one writes it.

Both are bound by one core each. The child fills new tables beside the live ones, as a rebuild does,
and swaps nothing: whoever catches up next goes on from where it stopped, with or without its help.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .projector import BULK_FROM

if TYPE_CHECKING:
    from .projector import Projector

POLL_S = 0.05


@contextlib.contextmanager
def folding_ahead(projector: Projector, coming: int) -> Iterator[None]:
    """Fold meanwhile, where `coming` events are so many more than are told that this pays."""
    told = projector.lag().position
    if coming < BULK_FROM or coming <= 2 * told or (os.cpu_count() or 1) < 2:
        yield
        return
    child = subprocess.Popen(  # noqa: S603 # this program itself
        [sys.executable, "-m", __name__, str(projector.state.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=child_env(),
    )
    try:
        yield
    finally:
        if child.stdin is not None:
            child.stdin.close()  # the end of its input is its sign to stop, also if this process is killed
        child.wait()


def child_env() -> dict[str, str]:
    """An environment in which a child finds this very package, however this process found it."""
    package = sys.modules[__name__.partition(".")[0]]
    root = str(Path(package.__path__[0]).parent)
    path = os.pathsep.join(each for each in (root, os.environ.get("PYTHONPATH", "")) if each)
    return {**os.environ, "PYTHONPATH": path}


def main(home: Path) -> None:
    """The child: fold until standard input ends."""
    from ..domain.errors import RetoldError
    from .home import Home
    from .rebuild import fill_while

    def more() -> bool:
        readable, _, _ = select.select([sys.stdin], [], [], POLL_S)
        return not readable

    # Whatever stands in the way here, the parent meets again when it catches up, and says so.
    with contextlib.suppress(RetoldError, KeyboardInterrupt), Home(home, read_only=True) as opened:
        fill_while(opened.projector, list(opened.projector.projections), more)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
