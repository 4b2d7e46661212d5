"""Opens a home that is there for a command that writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..infrastructure.engine import SessionEngine


@contextlib.contextmanager
def writing(home: Path, *, upkeep: bool = True) -> Iterator[SessionEngine]:
    """The engine of `home`, its projections caught up; upkeep that is due is done after the command.

    Upkeep ends no session: what a crash left open is a gateway's to end when it starts, or a person's word
    (`retold maintain`).

    Args:
        upkeep: false for a command that mends or takes back: it changes what it names and nothing else.

    Raises:
        NoSuchHome: there is none; it is not made. LogDamaged, NeedsUpgrade, NoRoom, StoreBusy, …
    """
    from ..infrastructure.engine import open_home
    from ..infrastructure.foreign import EVENTS, refuse_no_log

    refuse_no_log(home / EVENTS)
    with open_home(home) as engine:
        engine.projector.catch_up()
        yield engine
        if upkeep:
            engine.maintain_if_due(reap=False)
