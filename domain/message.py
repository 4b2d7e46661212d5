"""A message as a caller gives it, and the event that records it: what may be said, and how it is kept.

Over 400 lines because what a message may hold and how it is kept have to agree, field by field.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from . import events as e
from .errors import BadUsage, BytesRefused, RuleBroken
from .events import Attachment
from .text import is_blank, scrub

STRUCTURED: Final = "\0json:"
"""What marks content that is no plain text: a list or an object as JSON follows (REFERENCE.md 1.4)."""
ROLES: Final = ("user", "assistant", "tool", "system")
"""Who speaks in a conversation here; a store that was imported may know others."""
Json: TypeAlias = list[Any] | dict[str, Any]
_ENCODED: Final = re.compile(
    r"\s*data:[\w.+-]*(?:/[\w.+-]*)?(?:\s*;\s*[\w.+-]+=[^;,]{0,100})*\s*;\s*base64,", re.IGNORECASE
)
"""How a text begins that is a file's bytes."""
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89abAB]")
_MADE: Final = (
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "effect_disposition",
    "api_content",
)
"""What a model's answer bears beside its content."""
TEXTS: Final = ("content", "tool_name", "tool_calls", "tool_call_id", "platform_message_id", *_MADE)
"""The columns of a message that hold text, or JSON as text."""
_WORDS: Final = (
    "role",
    "tool_name",
    "tool_call_id",
    "platform_message_id",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "effect_disposition",
    "api_content",
)
_JSON: Final = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
ENRICHED: Final = ("platform_message_id", "token_count", *_MADE)
"""What a second delivery of a message may know that the first did not."""


class Message(msgspec.Struct, frozen=True):
    """One message, by whoever said it.

    Attributes:
        role: user, assistant, tool or system.
        content: text, or structured content: a list or a dict of whatever JSON can hold.
        tool_calls: the calls that an assistant makes, a list of dicts, or its JSON text.
        tool_name, tool_call_id: of a tool's result, which tool, and which call it answers.
        platform_message_id: the platform's own id of it.
        finish_reason, reasoning, reasoning_content: as the model's API said.
        reasoning_details, codex_reasoning_items, codex_message_items: lists or dicts, or JSON text.
        effect_disposition: what became of a tool's effect.
        api_content: the exact text that went over the wire, where it differs from `content`.
        token_count: how many tokens it is.
        attachments: files that came with it: `Attachment`s, or dicts of path, kind and text. Where a file
            lies and what was read out of it, never its bytes (REFERENCE.md 1.11).
        observed: heard in the chat, and not said to the agent.
    """

    role: str
    content: str | Json | None = None
    tool_calls: str | Json | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    platform_message_id: str | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: str | Json | None = None
    codex_reasoning_items: str | Json | None = None
    codex_message_items: str | Json | None = None
    effect_disposition: str | None = None
    api_content: str | None = None
    token_count: int | None = None
    attachments: Sequence[Attachment | Mapping[str, Any]] = ()
    observed: bool = False


def message_of(given: Message | Mapping[str, Any]) -> Message:
    """A message that a caller gave by its fields' names.

    Raises:
        BadUsage: a name that is no field's, or no role.
    """
    if isinstance(given, Message):
        return given
    try:
        return Message(**given)
    except TypeError as error:
        known = ", ".join(Message.__struct_fields__)
        raise BadUsage(
            f"this is no message: {error}", hint=f"a message has {known}; nothing was written"
        ) from None


def said(message: Message, *, where: str) -> e.MessageAppended:
    """The event that records a message. Lone surrogates become U+FFFD at any depth, and the event says so.

    Args:
        where: whom an error is about: "session S".

    Raises:
        RuleBroken: no role, or none of the four; or blank content, and neither tool calls nor attachments
            nor a tool's result.
        BytesRefused: bytes, or a file's bytes in text form, where a path should be.
        BadUsage: a value of another type than the field's, or one that JSON has no form for.
    """
    taken: dict[str, Any] = {}
    scrubbed = False
    for name in _WORDS:
        value = getattr(message, name)
        if value is None:
            continue
        taken[name], broken = _text(value, name, where)
        scrubbed = scrubbed or broken
    for name, mark in (("content", STRUCTURED), *((each, "") for each in _JSON)):
        value = getattr(message, name)
        if value is None or (name == "tool_calls" and value == []):
            continue
        taken[name], broken = _text_or_json(value, mark, name, where)
        scrubbed = scrubbed or broken
    attachments, broken = _attachments(message.attachments, where) if message.attachments else ([], False)
    if is_blank(taken.get("role")):
        raise RuleBroken(f"{where}: a message needs a role", hint="user, assistant, tool or system")
    if taken["role"] not in ROLES:
        raise RuleBroken(
            f"{where}: a message's role is user, assistant, tool or system, not '{taken['role'][:60]}'",
            hint="nothing was written",
        )
    calls = message.tool_calls
    if isinstance(calls, str) and calls and not isinstance(json_given(calls), (list, dict)):
        raise BadUsage(
            f"{where}: tool_calls may be a list, or the JSON text of one, not '{scrub(calls[:60])[0]}'",
            hint="nothing was written",
        )
    silent = not message.content or is_blank(taken["content"])
    if silent and not taken.get("tool_calls") and not attachments and message.role != "tool":
        raise RuleBroken(f"{where}: a message needs content or tool calls", hint="nothing was written")
    return e.MessageAppended(
        **taken,
        token_count=_count(message.token_count, where),
        observed=int(bool(message.observed)),
        attachments=attachments,
        scrubbed=scrubbed or broken,
    )


def content_kept(content: str | Json | None, *, where: str) -> str | None:
    """Content as the log and the tables keep it.

    Raises:
        BytesRefused, BadUsage.
    """
    return None if content is None else _text_or_json(content, STRUCTURED, "content", where)[0]


def content_given(kept: str | None) -> Any:
    """Content as its caller gave it: structured content decoded, all else as it is."""
    if kept is None or not kept.startswith(STRUCTURED):
        return kept
    text = kept[len(STRUCTURED) :]
    value = json_given(text)
    return kept if value is text else value


def json_given(kept: str | None) -> Any:
    """The value of a JSON text, or the text itself where it is malformed."""
    if kept is None:
        return None
    try:
        # Not msgspec: Python's json.dumps writes lone surrogates and NaN, and only its own reader
        # takes them back.
        return json.loads(kept)
    except (ValueError, RecursionError):
        return kept


def enriched(known: e.MessageAppended, again: e.MessageAppended) -> dict[str, e.Scalar] | None:
    """What a second delivery of a message adds to it: {} for nothing, None where it is another message."""
    changes: dict[str, e.Scalar] = {}
    for name in ENRICHED:
        before, after = getattr(known, name), getattr(again, name)
        if before is None and after is not None:
            changes[name] = after
        elif after is not None and not _alike(before, after):
            return None
    for name in ("role", "tool_name", "tool_call_id", "observed"):
        if getattr(known, name) != getattr(again, name):
            return None
    if not _alike(known.content, again.content) or not _alike(known.tool_calls, again.tool_calls):
        return None
    if again.attachments and again.attachments != known.attachments:
        if known.attachments and not _read_since(known.attachments, again.attachments):
            return None
        changes["attachments"] = attachments_kept(again.attachments)
    return changes


def _read_since(known: Sequence[Attachment], again: Sequence[Attachment]) -> bool:
    """Whether these are the same files, with text for some that had none."""
    return len(known) == len(again) and all(
        (one.path, one.kind) == (other.path, other.kind) and one.text in (None, other.text)
        for one, other in zip(known, again, strict=True)
    )


def changed(message: e.MessageAppended, changes: Mapping[str, Any]) -> e.MessageAppended:
    """A message as later events about it left it."""
    values = {name: value for name, value in changes.items() if name in e.MessageAppended.__struct_fields__}
    if isinstance(values.get("attachments"), str):
        values["attachments"] = attachments_given(values["attachments"])
    return msgspec.structs.replace(message, **values)


def _alike(one: str | None, other: str | None) -> bool:
    """Whether two texts say the same: of JSON its value counts, not how it was written."""
    if one == other:
        return True
    if one is None or other is None or not {one[:1], other[:1]} <= {"\0", "[", "{"}:
        return False
    values = (json_given(each.removeprefix(STRUCTURED)) for each in (one, other))
    first, second = values
    return not isinstance(first, str) and one.startswith("\0") == other.startswith("\0") and first == second


# --- attachments -----------------------------------------------------------------------------------


def attachments_kept(attachments: Sequence[Attachment]) -> str | None:
    """Attachments as the tables keep them: a JSON list of objects."""
    if not attachments:
        return None
    objects = [{"path": each.path, "kind": each.kind, "text": each.text} for each in attachments]
    return json.dumps(objects, ensure_ascii=False)


def attachments_given(kept: str | None) -> list[Attachment]:
    """Attachments from a table's column; nothing for what is no such list."""
    found = json_given(kept)
    if not isinstance(found, list):
        return []
    return [
        Attachment(str(each.get("path", "")), str(each.get("kind", "")), each.get("text"))
        for each in found
        if isinstance(each, dict)
    ]


def attachment_note(attachment: Attachment) -> str:
    """What a model is told of a file in later turns: what was read out of it, and where it lies."""
    head = f"[{attachment.kind}: {attachment.path}]"
    return f"{head}\n{attachment.text}" if attachment.text else head


def _attachments(given: object, where: str) -> tuple[list[Attachment], bool]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise _wrong("attachments", "a list", given, where)
    kept: list[Attachment] = []
    scrubbed = False
    for each in given:
        values = (
            each
            if isinstance(each, Mapping)
            else msgspec.structs.asdict(each)
            if isinstance(each, Attachment)
            else None
        )
        if values is None:
            raise _wrong("an attachment", "a retold.Attachment or a dict of path, kind and text", each, where)
        strange = values.keys() - {"path", "kind", "text"}
        if strange or not {"path", "kind"} <= values.keys():
            if any(isinstance(value, (bytes, bytearray, memoryview)) for value in values.values()):
                raise _bytes("an attachment", where)
            raise BadUsage(
                f"{where}: an attachment has a path, a kind and perhaps a text, not {sorted(values)}",
                hint="nothing was written",
            )
        path = values["path"]
        path, one = _text(os.fspath(path) if isinstance(path, os.PathLike) else path, "a path", where)
        kind, two = _text(values["kind"], "an attachment's kind", where)
        text, three = (
            (None, False)
            if values.get("text") is None
            else _text(values["text"], "an attachment's text", where)
        )
        if is_blank(path) or is_blank(kind):
            raise RuleBroken(f"{where}: an attachment needs a path and a kind", hint="nothing was written")
        kept.append(Attachment(path, kind, text))
        scrubbed = scrubbed or one or two or three
    return kept, scrubbed


# --- values ----------------------------------------------------------------------------------------


def _text(value: object, name: str, where: str) -> tuple[str, bool]:
    if isinstance(value, str):
        refuse_encoded(value, name, where)
        if name == "api_content" and "base64" in value and holds_bytes(json_given(value)):
            raise _bytes(name, where)
        return scrub(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise _bytes(name, where)
    raise _wrong(name, "a str or None", value, where)


def _text_or_json(value: object, mark: str, name: str, where: str) -> tuple[str, bool]:
    """A text, or a list or dict as JSON after `mark`; both without lone surrogates, written or escaped."""
    if isinstance(value, str):
        refuse_encoded(value, name, where)
        if name == "content" and value.startswith(mark) and holds_bytes(json_given(value[len(mark) :])):
            raise _bytes(name, where)
        if value.startswith(mark) and _ESCAPED_SURROGATE.search(value):
            text, broken = scrub(_unescaped(value, mark))
            return (text, True) if broken else scrub(value)
        return scrub(value)
    if not isinstance(value, (list, tuple, dict)):
        if isinstance(value, (bytes, bytearray, memoryview)):
            raise _bytes(name, where)
        raise _wrong(name, "a str, a list, a dict or None", value, where)
    try:
        if name == "content" and holds_bytes(value):
            raise _bytes(name, where)
        for each in _within(value):
            if isinstance(each, (bytes, bytearray, memoryview)):
                raise _bytes(name, where)
            if isinstance(each, dict) and not all(isinstance(key, str) for key in each):
                raise BadUsage(f"{where}: {name} has a key that is no text", hint="nothing was written")
        return scrub(mark + json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadUsage(
            f"{where}: {name} holds what JSON has no form for: {error}", hint="nothing was written"
        ) from None


def _unescaped(value: str, mark: str) -> str:
    """JSON text with its escapes resolved; as it is where it is none."""
    try:
        return mark + json.dumps(json.loads(value[len(mark) :]), ensure_ascii=False)
    except (ValueError, RecursionError):
        return value


def _within(value: object) -> Iterator[object]:
    """A value and all that is in it. What holds itself ends in the encoder's own refusal."""
    waiting, seen = [value], set[int]()
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, (list, tuple, dict)) and id(each) not in seen:
            seen.add(id(each))
            waiting.extend(each.values() if isinstance(each, dict) else each)


def holds_bytes(value: object) -> bool:
    """Whether a file's bytes are anywhere in a structured value."""
    return any(map(_is_file, _within(value)))


def _is_file(value: object) -> bool:
    """Whether it is a file's bytes in text form, as the APIs of models take them."""
    if isinstance(value, str):
        return _is_encoded(value)
    if not isinstance(value, dict):
        return False
    audio = value.get("input_audio")
    return (value.get("type") == "base64" and "data" in value) or (
        isinstance(audio, dict) and "data" in audio
    )


def _is_encoded(text: str) -> bool:
    return _ENCODED.match(text) is not None


def refuse_encoded(text: str, name: str, where: str) -> None:
    """Refuse a text that is a file's bytes.

    Raises:
        BytesRefused.
    """
    if _is_encoded(text):
        raise _bytes(name, where)


def refuse_no_json(name: str, text: str | None) -> None:
    """Refuse a text where a JSON object should stand.

    Raises:
        BadUsage.
    """
    if text is not None and not isinstance(json_given(text), dict):
        raise BadUsage(
            f"{name} is the text of a JSON object, not '{scrub(text)[0][:60]}'", hint="nothing was written"
        )


def _count(value: object, where: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63):
        return value
    raise _wrong("token_count", "a whole number from 0 on, or None", value, where)


def _wrong(name: str, wanted: str, value: object, where: str) -> BadUsage:
    return BadUsage(
        f"{where}: {name} may be {wanted}, not {type(value).__name__}", hint="nothing was written"
    )


def _bytes(name: str, where: str) -> BytesRefused:
    return BytesRefused(
        f"{where}: {name} holds a file's bytes, which no message keeps",
        hint="write the file somewhere and give an attachment: its path, its kind, and the text read from it",
    )
