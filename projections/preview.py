"""The line that lists show for a session: its first real message."""

from __future__ import annotations

import re

from ..domain.text import scrub
from .search_text import plain_text

PREVIEW_CHARS = 60
_SUMMARY = re.compile(r"\s*\[CONTEXT (?:COMPACTION|SUMMARY)", re.IGNORECASE)
"""How Hermes begins the message that stands for compacted turns."""
_BLANKS = re.compile(r"\s+")


def is_summary(content: str | None) -> bool:
    """Whether a message only stands for what was compacted."""
    return content is not None and _SUMMARY.match(content) is not None


def preview_of(content: str | None) -> str | None:
    """The first 60 characters on one line, `…` where cut; None for blank ones and summaries."""
    if content is None or is_summary(content):
        return None
    # Four times the width is room enough for white space that folds away.
    text = _BLANKS.sub(" ", plain_text(content)[: PREVIEW_CHARS * 4]).strip()
    text = scrub(text)[0]  # JSON escapes may spell a lone surrogate that no row could hold
    if not text:
        return None
    return text if len(text) <= PREVIEW_CHARS else text[:PREVIEW_CHARS].rstrip() + "…"
