"""Whether a message is live, compacted or rewound, as every reader tells it."""

from __future__ import annotations

from ..domain.events import Visibility

LIVE = "active"
"""In the context: what a model sees."""
NOT_UNDONE = "(active OR compacted)"
"""What search and windows around a hit show: what left the context by compaction too, not what was undone."""


def visibility(active: int | None, compacted: int | None) -> Visibility:
    """The one rule every reader uses: live, compacted (still found) or rewound (undone)."""
    if active:
        return "live"
    return "compacted" if compacted else "rewound"
