"""The one retry policy: a lost race or a busy database, decided again from fresh state, with a limit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from ..domain.errors import StoreBusy, VersionConflict

if TYPE_CHECKING:
    from tenacity import Retrying

Result = TypeVar("Result")
ATTEMPTS = 12
LIMIT_S = 30.0
"""A busy database is waited for by SQLite as well (BUSY_TIMEOUT_MS), each time."""


@cache
def _policy() -> Retrying:
    import tenacity  # only where something is written: start-up is imports

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((VersionConflict, StoreBusy)),
        wait=tenacity.wait_random(0.0, 0.02) + tenacity.wait_exponential(multiplier=0.001, max=0.25),
        stop=tenacity.stop_after_attempt(ATTEMPTS - 1) | tenacity.stop_after_delay(LIMIT_S),
        reraise=True,
    )


def decide_again(decide: Callable[[], Result]) -> Result:
    """Run `decide` (load, decide, save) until it is not beaten by another writer.

    Only the insert may be retried with it: snapshots and notices come after the commit, and a retry
    around them would store one command twice.

    Raises:
        VersionConflict, StoreBusy: after the last attempt; nothing was written.
    """
    try:
        return decide()  # most are not beaten, and making a policy's state takes as long as an insert
    except (VersionConflict, StoreBusy):
        return _policy().copy()(decide)
