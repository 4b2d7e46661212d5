"""Sums of what was counted, as a column can hold them."""

from __future__ import annotations

from typing import Final

MOST: Final = (1 << 63) - 1
"""The greatest whole number of a column; a sum that would be greater stays there."""


def added(before: float | None, more: float | None) -> float | None:
    """Two amounts together; one that is not known changes nothing."""
    if more is None:
        return before
    total = (before or 0) + more
    return max(-MOST, min(total, MOST)) if isinstance(total, int) else total
