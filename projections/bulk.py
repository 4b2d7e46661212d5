"""Writing many rows by few statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

BOUND: Final = 32_766
"""How many values one statement of SQLite binds at most (https://sqlite.org/limits.html)."""


def inserts(into: str, rows: Sequence[Sequence[Any]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """`into` ("INSERT INTO t (a, b)") for all of `rows`, as statements with what they bind.

    Between two statements SQLite waits for Python, in which another thread may be busy.
    """
    if not rows:
        return
    width = len(rows[0])
    places = f"({','.join('?' * width)})"
    step = BOUND // width
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        yield f"{into} VALUES {','.join([places] * len(some))}", tuple(chain.from_iterable(some))
