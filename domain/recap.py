"""What a person is reminded of when a conversation is gone on with: who said what last, cut short."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

_ESCAPES: Final = re.compile(
    "\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[PX^_][^\x1b]*(?:\x1b\\\\)?|[ -/]*[0-~])"
    "|\x9b[0-?]*[ -/]*[@-~]|\x9d[^\x07\x9c]*[\x07\x9c]?"
)
"""Escape sequences of terminals, whole (ECMA-48)."""
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_THOUGHTS: Final = "think|thinking|reasoning|reasoning_scratchpad|thought"
_THOUGHT: Final = re.compile(rf"<({_THOUGHTS})>.*?(?:</\1>\s*|\Z)", re.DOTALL | re.IGNORECASE)
_STRAY: Final = re.compile(rf"</(?:{_THOUGHTS})>\s*", re.IGNORECASE)
NAMED_TOOLS: Final = 4
CUT: Final = "..."


class Limits(msgspec.Struct, frozen=True):
    """How much is shown, as Hermes' `display` settings have it (REFERENCE.md 3)."""

    exchanges: int = 10
    user_chars: int = 300
    assistant_chars: int = 200
    assistant_lines: int = 3
    skip_tool_only: bool = True

    @property
    def entries(self) -> int:
        """So many entries at most: two an exchange."""
        return 2 * self.exchanges


class Entry(msgspec.Struct, frozen=True):
    """One message: as it is shown, and whole."""

    role: Literal["user", "assistant"]
    text: str
    whole: str


def entry(role: str, content: Any, tool_calls: Any, limits: Limits) -> Entry | None:
    """A message as an entry; None where it is shown to nobody.

    Args:
        content: text, or a list of parts.
        tool_calls: the calls that it makes, where it makes any.
    """
    if role == "user":
        whole = plain(_said(content))
        text = whole if len(whole) <= limits.user_chars else whole[: limits.user_chars] + CUT
        return Entry("user", text, whole) if whole.strip() else None
    if role != "assistant":
        return None
    whole = plain(without_thoughts(_said(content)))
    calls = [_calls(tool_calls)] if isinstance(tool_calls, list) and tool_calls else []
    if not whole.strip() and (limits.skip_tool_only or not calls):
        return None
    text = whole
    if len(lines := text.splitlines()) > limits.assistant_lines:
        text = "\n".join(lines[: limits.assistant_lines]) + f" {CUT}"
    if len(text) > limits.assistant_chars:
        text = text[: limits.assistant_chars] + CUT
    return Entry("assistant", " ".join(filter(None, [text, *calls])), " ".join(filter(None, [whole, *calls])))


def plain(text: str) -> str:
    """`text` without what a terminal would obey; line breaks and tabs stay."""
    if text.isprintable():
        return text
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", text)


def without_thoughts(text: str) -> str:
    """An answer without what a model thought aloud, in tags, before it."""
    return _STRAY.sub("", _THOUGHT.sub("", text)).strip() if "<" in text else text


def _said(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else str(content)
    return " ".join(filter(None, map(_part, content)))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    if "image" in str(part.get("type", "")):
        return "[image]"
    text = part.get("text")
    return text if isinstance(text, str) else ""


def _calls(tool_calls: list[Any]) -> str:
    """ "[3 tool calls: read_file, terminal]": all are counted, each name stands once."""
    names: dict[str, None] = {}
    for each in tool_calls:
        function = each.get("function", each) if isinstance(each, dict) else {}
        name = function.get("name") if isinstance(function, dict) else None
        names.setdefault(plain(name) if isinstance(name, str) and name else "unknown")
    shown = ", ".join(list(names)[:NAMED_TOOLS]) + (f", {CUT}" if len(names) > NAMED_TOOLS else "")
    return f"[{len(tool_calls)} tool {'call' if len(tool_calls) == 1 else 'calls'}: {shown}]"
