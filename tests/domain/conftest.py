"""The story that findings are told of."""

from __future__ import annotations

import pytest

from retold.tests.domain.findings_told import OTHER
from retold.tests.domain.worlds import Story


@pytest.fixture
def story() -> Story:
    """With a sound chat that comes before all others: positions 10, 11 and 20."""
    told = Story()
    told.talk("sound", OTHER, 0.1)
    told.route(OTHER, "sound")
    return told
