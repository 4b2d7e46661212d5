"""Cuts from a message the one line that shows why it was found."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from .search_text import STRUCTURED, plain_text

ELLIPSIS = "…"
_MAX_LITERALS = 32  # of a pasted page, enough are marked with these
_MAX_TRIES = 1000  # inside words, before a literal is taken wherever it stands
_CHUNK_CHARS = 65_536
_MAX_CLUSTER_CHARS = 64  # longer than any emoji; what piles up more marks on a letter may be cut

# Line ends and other controls become spaces; so do those that turn the writing direction of a terminal's line.
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\ufeff]")
_SPACES = re.compile("[ \u3000]{2,}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ACCENT = re.compile("[\u0300-\u036f]+")
_WORD = re.compile(r"[^\W_]+")


def snippet(
    text: str, literals: Sequence[str], *, width: int = 160, start: str = ">>>", end: str = "<<<"
) -> str:
    """One line of at most `width` characters around the first match, with every literal in it marked.

    Markers and ellipses are not counted. A literal that stands nowhere as typed is marked word by word. Letter case,
    Latin accents and full-width forms make no difference. Without a match it is the head of the text.
    """
    if text.startswith(STRUCTURED):
        text = plain_text(text)
    needles = [literal for literal in literals if literal.strip()][:_MAX_LITERALS]
    words = list(dict.fromkeys(word for needle in needles for word in _WORD.findall(needle)))[:_MAX_LITERALS]
    found = _first(text, needles)
    if found is None:
        found = _first(text, words)
    at = found or 0
    low, high = max(0, at - 2 * width), at + 4 * width
    line = _one_line(text[low:high])
    spans = _spans(line, needles, _shift(text[low:at])) 
    first, last = _window(line, spans, width)
    ...
