"""Taking a text out of a payload wherever it stands in it, whatever wrote it there.

What is left reads on: a mask stands where the text was. Only what names other things (keys, ids) is
never touched, since nothing would find them again; whoever forgets a text is told so instead.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

MASK: Final = "[forgotten]"
LEAST_CHARACTERS: Final = 4
"""A shorter text stands in too much that has nothing to do with it."""
STRUCTURED: Final = "\0json:"
NAMES: Final = frozenset(
    {
        "session_key",
        "key",
        "parent_session_id",
        "session_id",
        "continuation",
        "successor",
        "previous",
        "with_parent",
        "moved_from",
        "store",
        "turn",
    }
)
"""Fields that say which key, session, turn or store is meant."""
_DIGESTS = frozenset({"seen"})
"""Fields that a text could be guessed back from."""


_ESCAPED: Final = {"\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f"}
_AS_IT_IS: Final = frozenset('"\\/')
"""Characters that JSON escapes by a backslash before them."""


def pattern_of(text: str) -> str:
    """A regular expression for the text as it may be written: composed or not, inside JSON inside JSON …

    Each further level doubles the backslashes before an escape, so any number of them may stand there.
    """
    return "|".join("".join(_character(each) for each in wording) for wording in _wordings(text))


def _wordings(text: str) -> list[str]:
    return list(dict.fromkeys((text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD")))))


def _character(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    escaped = "".join(rf"\\+u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    plain = re.escape(character)
    if character in _AS_IT_IS:
        plain = rf"\\*{plain}"
    short = rf"|\\+{_ESCAPED[character]}" if character in _ESCAPED else ""
    return f"(?:{plain}|{escaped}{short})"


class Masker:
    """Replaces a text in payloads, and hashes that were made of it.

    Attributes:
        named: fields that name something and hold the text: they were left as they are.
    """

    def __init__(self, text: str, hashes: Mapping[str, str] | None = None) -> None:
        """`hashes` are further texts, each with what is to stand in its place."""
        pattern = pattern_of(text)
        self._text = re.compile(pattern)
        self._bytes = re.compile(pattern.encode())
        self._plain = tuple(each.encode() for each in (*_wordings(text), *(hashes or {})))
        self._hashes = dict(hashes or {})
        self.named: set[str] = set()

    def holds(self, plain: bytes) -> bool:
        """Whether it may stand in encoded bytes; MessagePack keeps text as UTF-8."""
        if any(each in plain for each in self._plain):
            return True
        return b"\\" in plain and self._bytes.search(plain) is not None  # only so can it be escaped

    def masked(self, payload: Any) -> Any:
        """The payload with masks where the texts were."""
        return self._value(payload)

    def _value(self, value: Any, field: str = "") -> Any:
        if isinstance(value, str):
            return self._string(value, field)
        if isinstance(value, bytes):
            return self._bytes.sub(MASK.encode(), value)
        if isinstance(value, list | tuple):
            return type(value)(self._value(each, field) for each in value)
        if isinstance(value, dict):
            return {
                self._value(name): self._value(each, name if isinstance(name, str) else "")
                for name, each in value.items()
            }
        if isinstance(value, msgspec.Struct):
            changed = {
                name: None if name in _DIGESTS else self._value(getattr(value, name), name)
                for name in value.__struct_fields__
            }
            return msgspec.structs.replace(value, **changed)
        return value

    def _string(self, text: str, field: str) -> str:
        if not self._in(text):
            return text
        if field in NAMES:
            self.named.add(field)
            return text
        head = STRUCTURED if text.startswith(STRUCTURED) else ""
        replaced = self._replaced(text)
        if text[len(head) :].lstrip()[:1] in ("{", "["):
            decoded = _decoded(text[len(head) :])
            if decoded is not None and _decoded(replaced[len(head) :]) is None:
                return head + json.dumps(self._json(decoded), ensure_ascii=False)
        return replaced

    def _json(self, value: Any) -> Any:
        """A number that is or holds the text becomes the mask: what stands around it stays JSON."""
        if isinstance(value, dict):
            return {self._replaced(name): self._json(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._json(each) for each in value]
        if isinstance(value, str):
            return self._replaced(value)
        if isinstance(value, int | float) and self._in(json.dumps(value)):
            return MASK
        return value

    def _in(self, text: str) -> bool:
        return self._text.search(text) is not None or any(old in text for old in self._hashes)

    def _replaced(self, text: str) -> str:
        for old, new in self._hashes.items():
            text = text.replace(old, new)
        return self._text.sub(MASK, text)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def emptied_calls(tool_calls: str) -> str:
    """A message's tool calls without what was said in them: ids and names stay, so results find them."""
    calls = _decoded(tool_calls)
    if not isinstance(calls, list):
        return json.dumps([])
    return json.dumps([_emptied(each) for each in calls])


def _emptied(value: Any, names: Iterable[str] = ("id", "call_id", "type", "name")) -> Any:
    if isinstance(value, dict):
        return {
            name: each if name in names and isinstance(each, str) else _emptied(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return []
    return json.dumps({}) if isinstance(value, str) else None
