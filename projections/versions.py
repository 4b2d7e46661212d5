"""Which folds this program has, and their versions, for readers who need no more than that."""

from __future__ import annotations

from typing import Final

FOLDS: Final[dict[str, int]] = {"transcripts": 1, "routing": 1, "lineage": 1, "usage": 1, "sources": 1}
"""By name. A fold that changes gets the next number, and is told again from the log."""
