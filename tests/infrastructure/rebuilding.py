"""Telling the projections of a home again, to the end or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from retold.infrastructure.home import Home
from retold.infrastructure.projector import PROJECTIONS, Progress
from retold.infrastructure.rebuild import Rebuilt, rebuild

NAMES = [each.name for each in PROJECTIONS]


def tell_again(home: Path, *names: str) -> dict[str, Rebuilt]:
    with Home(home) as opened:
        told = rebuild(opened.projector, names or NAMES)
    return {each.name: each for each in told}


def interrupted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild that is stopped at event 400, in batches of 50."""
    monkeypatch.setattr("retold.infrastructure.new_tables.BATCH", 50)

    def stop(at: Progress) -> None:
        if at.done >= 400:
            raise KeyboardInterrupt

    with Home(home) as opened, pytest.raises(KeyboardInterrupt):
        rebuild(opened.projector, NAMES, progress=stop)
