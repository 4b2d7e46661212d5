"""A clock that stands until it is turned, for engines whose times a test chooses."""

from __future__ import annotations

from retold.tests.histories import SECOND_US, T0_US


class Clock:
    """Called, it says the time: microseconds since the Unix epoch, UTC."""

    def __init__(self, now_us: int = T0_US) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        return self.now_us

    def turn(self, seconds: float) -> int:
        """Let so many seconds pass; the time then."""
        self.now_us += round(seconds * SECOND_US)
        return self.now_us
