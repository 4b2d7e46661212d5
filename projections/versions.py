"""Which folds this program has, and their versions, for readers who need no more than that."""

from __future__ import annotations

from typing import Final
from unicodedata import unidata_version

FOLDS: Final[dict[str, int]] = {
    "transcripts": 3,
    "routing": 1,
    "lineage": 1,
    "usage": 1,
    "sources": 3,
    "gateway": 1,
}
"""By name. A fold that changes gets the next number, and is told again from the log."""
UNICODE: Final = unidata_version
"""Of the tables by which this Python normalizes text."""
NORMALIZED: Final = frozenset({"transcripts"})
"""Folds that hold normalized text. What one version of the tables has put into the search index, another
may not find again to take it out."""


def other_tables(name: str, unicode: str) -> bool:
    """Whether the fold was made with other tables than those that it would be made with now."""
    return name in NORMALIZED and unicode != UNICODE
