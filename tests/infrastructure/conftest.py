"""An engine under a clock that is turned, for whatever asks for no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retold.infrastructure.engine import SessionEngine
from retold.tests.infrastructure.routing import Clock, opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(home: Path, clock: Clock) -> Iterator[SessionEngine]:
    with opened(home, clock) as found:
        yield found
