"""Text in cells on whose number every terminal agrees, so that no row stands out of its column."""

from __future__ import annotations

import re
from typing import Final

from ..output import visible

_PICTURE: Final = "[\u2190-\u2bff\U0001f000-\U0001faff]"
_JOINED: Final = re.compile(f"(?<={_PICTURE})\u200d{_PICTURE}?")
"""What a joiner adds to a picture: some terminals draw one picture, some draw all."""
_MARKS: Final = re.compile("[\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
"""How a picture looks: its color, its form, whose flag it is."""
_LETTERS: Final = re.compile("[\U0001f1e6-\U0001f1ff]")
_FIRST: Final = 0x1F1E6


def steady(text: str) -> str:
    """`visible(text)` with plain pictures: a family is its first person, a flag its two letters."""
    shown = visible(text)
    if shown.isascii():
        return shown
    shown = _JOINED.sub("", _MARKS.sub("", shown))
    return _LETTERS.sub(lambda found: chr(ord(found[0]) - _FIRST + ord("A")), shown)
