"""What the logs of coding agents have in common: sessions of messages, and lines that nobody said."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from ...domain.errors import BadIdentifier
from ...domain.events import Attachment, TitledBy, Visibility
from ...domain.ids import refuse_unsafe_session
from ...domain.message import STRUCTURED, holds_bytes
from ...domain.source_values import Row

BESIDE: Final = "meta"
"""The role of a line that nobody said: it is kept, and stands in no conversation."""
_DATA: Final = re.compile(r"\s*data:([\w.+/-]*)")
_encode = msgspec.json.Encoder().encode
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


class Said(msgspec.Struct, gc=False):
    """One message of a log, or a line that is kept beside the conversation.

    Attributes:
        key: what names it in its session, the same at each run.
        row: its columns, but for when it was said.
        line: 8 bytes over the line that it came from.
    """

    key: str
    row: Row
    line: bytes
    at_us: int | None = None
    visibility: Visibility = "live"
    summary: bool = False
    attachments: list[Attachment] = []


class LogSession(msgspec.Struct):
    """A session as its log has it.

    Attributes:
        parent: the session whose delegate it is.
        usage: tokens by model, under the names of the columns.
        began_us: the first time that the log names.
    """

    id: str
    parent: str | None = None
    said: list[Said] = []
    title: str | None = None
    titled_by: TitledBy = "model"
    model: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    usage: dict[str, Counter[str]] = {}
    began_us: int | None = None
    keys: dict[str, bytes] = {}

    @property
    def has_words(self) -> bool:
        """Whether anything was said in it."""
        return any(each.row["role"] != BESIDE for each in self.said)

    def add(self, said: Said) -> bool:
        """Take a message in; False for one that is here already, as a copy of the log has it.

        One of the same name that says something else gets a name of its own: nothing is lost.
        """
        known = self.keys.get(said.key)
        if known == said.line:
            return False
        if known is not None:
            said.key += "#" + said.line.hex()
            if said.key in self.keys:
                return False
        self.keys[said.key] = said.line
        self.said.append(said)
        if said.at_us is not None and (self.began_us is None or said.at_us < self.began_us):
            self.began_us = said.at_us
        return True

    def leave_context(self, keep: tuple[int, int] | None = None) -> None:
        """What is live so far was compressed, but for the messages at `keep`: from, to."""
        for index, each in enumerate(self.said):
            kept = keep is not None and keep[0] <= index <= keep[1]
            if each.visibility == "live" and not kept:
                each.visibility = "compacted"

    def roll_back(self, turns: int) -> None:
        """The last turns that are live were undone."""
        starts = [
            index
            for index, each in enumerate(self.said)
            if each.row["role"] == "user" and each.visibility == "live" and not each.summary
        ]
        if turns > 0 and starts:
            for each in self.said[starts[-min(turns, len(starts))] :]:
                each.visibility = "rewound"


def time_of(text: object) -> int | None:
    """An ISO time as microseconds since the epoch."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    try:
        return round(at.timestamp() * 1e6)
    except (OverflowError, OSError, ValueError):
        return None


def as_json(value: object) -> str:
    """A value as JSON text."""
    return _encode(value).decode()


def safe_id(text: str) -> str:
    """An id of a log's own, or one made of it where that could lead out of a folder."""
    try:
        refuse_unsafe_session(text)
    except BadIdentifier:
        mark = hashlib.blake2b(text.encode(errors="replace"), digest_size=4).hexdigest()
        return f"{_UNSAFE.sub('-', text)[:80].strip('-') or 'session'}-{mark}"
    return text


# --- bytes -------------------------------------------------------------------------------------------


class Stripper:
    """Takes files' bytes out of what a line holds, and names the line as the place where they are.

    No message keeps bytes (REFERENCE.md 1.11).
    """

    def __init__(self, where: str, *, needed: bool) -> None:
        self._where = where
        self._needed = needed
        self._attachments: list[Attachment] = []

    def attached(self) -> list[Attachment]:
        """The files of the blocks since this was asked last."""
        found, self._attachments = self._attachments, []
        return found

    def block(self, value: Any) -> Any:
        """A block of a message's content."""
        if not self._needed:
            return value
        if isinstance(value, dict) and holds_bytes(value) and not isinstance(value.get("content"), list):
            return {"type": "text", "text": self._note(value)}
        return self.rest(value)

    def rest(self, value: Any) -> Any:
        """Any other part of a line."""
        return self._stripped(value) if self._needed else value

    def _stripped(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._note(value, attach=False) if holds_bytes(value) else value
        if isinstance(value, list):
            return [self._stripped(each) for each in value]
        if not isinstance(value, dict):
            return value
        if value.get("type") == "base64" and isinstance(value.get("data"), str):
            return {**value, "type": "omitted", "data": self._note(value, attach=False)}
        omitted = {
            key: self._note({"data": value[key], **value}, attach=False)
            for key in ("base64", "input_audio")
            if key in value and isinstance(value[key], (str, dict))
        }
        return {**{key: self._stripped(each) for key, each in value.items() if key not in omitted}, **omitted}

    def _note(self, value: Any, *, attach: bool = True) -> str:
        kind, data = _kind_and_data(value)
        if attach:
            self._attachments.append(Attachment(self._where, kind))
        return f"[{kind}, {len(data) * 3 // 4:,} bytes, left in the log]"


def _kind_and_data(value: Any) -> tuple[str, str]:
    """What kind of file it is, and its bytes as text."""
    texts: list[str] = []
    kinds: list[str] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            kinds += [str(each[key]) for key in ("media_type", "mime_type") if each.get(key)]
            waiting += each.values()
    data = max(texts, key=len, default="")
    named = _DATA.match(data)
    kind = kinds[0] if kinds else named[1] if named and named[1] else "file"
    return kind, data.partition(",")[2] if named else data


# --- content -----------------------------------------------------------------------------------------


def content_of(blocks: list[Any], texts: tuple[str, ...] = ("text",)) -> str | None:
    """Blocks as a message's content: plain text where there is one block of it, else structured."""
    if not blocks:
        return None
    if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].get("type") in texts:
        text = blocks[0].get("text")
        if isinstance(text, str) and set(blocks[0]) <= {"type", "text"}:
            return plain(text)
    return STRUCTURED + as_json(blocks)


def plain(text: str) -> str:
    """A text that is not taken for structured content."""
    return text.lstrip("\0") if text.startswith(STRUCTURED) else text


def call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    """A call of a tool, as messages keep it."""
    kind: Literal["function"] = "function"
    given = arguments if isinstance(arguments, str) else as_json(arguments)
    return {"id": str(call_id), "type": kind, "function": {"name": str(name), "arguments": given}}
