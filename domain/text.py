"""What text may enter the log: valid Unicode, and what counts as blank."""

from __future__ import annotations

import re

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


def is_blank(text: str | None) -> bool:
    """Nothing but white space, or nothing at all."""
    return text is None or not text.strip()
