"""A shareable export: the structure of sessions without a word of what was said in them (FIELD_CASES E2).

Ids, roles, times, counts, models and the names of tools stay. Every other text gives way to a placeholder
that names its column and whose it is, and what identifies people and chats to a number: the same one
wherever the same stands. What is not known to be structure is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from ...projections.exported import NOT_UTF8, Fields

_IDS: Final = frozenset({"id", "session_id", "parent_session_id", "platform_message_id", NOT_UTF8})
_WORDS: Final = frozenset(
    {
        "source", "chat_type", "end_reason", "model", "billing_provider", "billing_mode", "cost_status",
        "cost_source", "pricing_version", "handoff_state", "handoff_platform", "role", "tool_call_id",
        "tool_name", "finish_reason", "effect_disposition",
    }
)  # fmt: skip
"""Columns that hold a word of a program's; what is none in them is text, too."""
_WORD: Final = re.compile(r"[A-Za-z0-9_.:/@+#-]{1,120}")
_PEOPLE: Final = frozenset({"session_key", "user_id", "chat_id", "thread_id"})
_MARKS: Final = ("_branched_from", "_delegate_from", "_reset_from")
"""Of `model_config`: what kind of child a session is."""


class Sanitized:
    """A change of rows, for one export: it knows which people and chats it has met."""

    def __init__(self) -> None:
        self._met: dict[tuple[str, object], int] = {}
        self._count: dict[str, int] = {}

    def __call__(self, kind: Literal["session", "message"], fields: Fields) -> Fields:
        """The row without its texts."""
        whose = fields["id"]
        return {name: self._kept(kind, name, value, whose) for name, value in fields.items()}

    def _kept(self, kind: str, name: str, value: Any, whose: object) -> Any:
        if value is None or isinstance(value, int | float) or name in _IDS:
            return value
        if name in _PEOPLE:
            return self._numbered(name, value)
        if kind == "session" and name == "model_config":
            return _marks(value)
        if name in _WORDS:
            return _word(name, value, whose)
        if isinstance(value, list) and (shape := _SHAPES.get(name)) is not None:
            return [shape(each, whose) for each in value]
        return value if value == "" else _placeholder(name, whose)

    def _numbered(self, name: str, value: object) -> str:
        known = self._met.get((name, value))
        if known is None:
            known = self._met[name, value] = self._count[name] = self._count.get(name, 0) + 1
        return f"{name.removesuffix('_id').replace('_', '-')}-{known}"


def _placeholder(name: str, whose: object) -> str:
    return f"[{name} {whose}]"


def _word(name: str, value: object, whose: object) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else _placeholder(name, whose)


def _marks(config: object) -> str | None:
    try:
        found = json.loads(config) if isinstance(config, str) else config
    except (ValueError, RecursionError):
        return None
    marks = {mark: found[mark] for mark in _MARKS if found.get(mark)} if isinstance(found, dict) else {}
    return json.dumps(marks) if marks else None


def _part(part: object, whose: object) -> Fields:
    """A part of a structured content: its type, and that there was something."""
    kind = part.get("type", "text") if isinstance(part, dict) else "text"
    return {"type": _word("type", kind, whose), "text": _placeholder("content", whose)}


def _call(call: object, whose: object) -> Fields:
    """A call of a tool: which one, and its id; its arguments are text."""
    made: Fields = {}
    if not isinstance(call, dict):
        return made
    made |= _words(call, ("id", "call_id", "type", "name"), whose)
    function = call.get("function")
    if isinstance(function, dict):
        made["function"] = {**_words(function, ("name",), whose), "arguments": "{}"}
    return made


def _words(fields: Fields, names: Iterable[str], whose: object) -> Fields:
    return {name: _word(name, fields[name], whose) for name in names if isinstance(fields.get(name), str)}


def _attachment(attachment: object, whose: object) -> Fields:
    if not isinstance(attachment, dict):
        return {}
    texts = {name: _placeholder(name, whose) for name in ("path", "text") if attachment.get(name)}
    return {**_words(attachment, ("kind",), whose), **texts}


_SHAPES: Final[dict[str, Callable[[object, object], Fields]]] = {
    "content": _part,
    "tool_calls": _call,
    "attachments": _attachment,
}
"""Lists whose shape is kept."""
