"""What text may enter the log: valid Unicode, and what counts as blank."""

from __future__ import annotations

import re

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn around what is shown after them."""
_SURROGATES = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def scrub(text: str) -> tuple[str, bool]:
    """`text` with each lone surrogate replaced by U+FFFD, and whether there was one.

    A lone surrogate has no UTF-8 form: one of them would make the message, and all that are saved
    with it, impossible to store (FIELD_CASES B9).
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub(REPLACEMENT, text), True
    return text, False


def is_unseen(text: str) -> bool:
    """Whether it holds control characters, or any that turn around what is shown after them."""
    return _UNSEEN.search(text) is not None


def seen(text: str) -> str:
    """`text` with each of those replaced by U+FFFD."""
    return _UNSEEN.sub(REPLACEMENT, text)


def in_one_line(text: str) -> str:
    """A reason or a remark as it is kept: valid text in one line, nothing unseen in it."""
    return seen(" ".join(scrub(text)[0].split()))


def is_blank(text: str | None) -> bool:
    """Nothing but white space, or nothing at all."""
    return text is None or not text.strip()
