"""Asks a home from a thread of its own, so that the screen never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from ...infrastructure.standing import StandingHome
from ...projections.base import Connection

Answer = TypeVar("Answer")


class Reader:
    """One thread with one connection. A question that is cancelled before its turn is never asked."""

    def __init__(self, home: Path) -> None:
        self.standing = StandingHome(home)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="browse")

    async def ask(self, question: Callable[[Connection], Answer], *, settle: bool = False) -> Answer:
        """The answer, from rows that are caught up."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: self.standing.ask(question, settle=settle))

    def close(self) -> None:
        """Let what is being asked end, and close the home."""
        self._pool.shutdown(cancel_futures=True)
        self.standing.close()
