"""JSON that any reader takes: UTF-8 on one line, nothing in it that ends a line, no NaN."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...domain.text import scrub

_encode = msgspec.json.Encoder().encode
_NEL, _LINE, _PARAGRAPH = (each.encode() for each in "\x85\u2028\u2029")
_LINE_ENDS = re.compile(b"|".join((_NEL, _LINE, _PARAGRAPH)))


def encode(value: object) -> bytes:
    """One value; a lone surrogate becomes U+FFFD."""
    try:
        encoded = _encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        import json

        text = json.dumps(_clean(value), ensure_ascii=False, separators=(",", ":"))
        encoded = text.encode()
    if _NEL in encoded or _LINE in encoded or _PARAGRAPH in encoded:  # nearly never; to look so is faster
        return _LINE_ENDS.sub(_escaped, encoded)
    return encoded


def _escaped(end: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(end[0].decode())


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return scrub(value)[0]
    if isinstance(value, dict):
        return {scrub(str(key))[0]: _clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(each) for each in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value
