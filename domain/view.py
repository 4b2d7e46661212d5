"""What a model sees of a session: a sequence of messages that every model's API takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from .context import Line, answered, call_ids
from .events import Attachment, Visibility
from .message import Json, attachment_note, holds_bytes

NO_RESULT = "[no result of this call is on record]"


class Seen(msgspec.Struct, frozen=True, gc=False):
    """A message as it is seen. Times are microseconds since the Unix epoch, UTC.

    `kind` "summary" stands for what was compressed; "placeholder" for a result that is not on record (its
    `id` is its call's). `copy_of` is the message that this one repeats after a compression.
    """

    id: int
    session_id: str
    role: str
    content: str | Json | None
    at_us: int | None = None
    kind: Literal["message", "summary", "placeholder"] = "message"
    tool_calls: Any = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    platform_message_id: str | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: Any = None
    codex_reasoning_items: Any = None
    codex_message_items: Any = None
    effect_disposition: str | None = None
    api_content: str | None = None
    token_count: int | None = None
    attachments: list[Attachment] = []
    observed: bool = False
    visibility: Visibility = "live"
    copy_of: int | None = None

    @property
    def line(self) -> Line:
        """What the rules of a context need to know of it."""
        return Line(
            id=self.id,
            role=self.role,
            visibility=self.visibility,
            copy_of=self.copy_of,
            summary=self.kind == "summary",
            observed=self.observed,
            calls=call_ids(self.tool_calls),
            answers=self.tool_call_id,
        )


class View(msgspec.Struct, frozen=True):
    """Messages in order, and what a reader must know of them, a sentence each."""

    session_id: str
    messages: list[Seen]
    warnings: list[str] = []
    version: int = 0
    """The version of the session that was read: what `expected_version` means."""

    def for_model(self) -> list[dict[str, Any]]:
        """The messages as most models' APIs take them: role, content, tool_calls, tool_call_id, name.

        A file is told by its path and by what was read out of it; bytes that another store kept in a
        message are told to the turn they came with only (REFERENCE.md 1.11).
        """
        last = max((index for index, each in enumerate(self.messages) if each.line.begins_turn), default=0)
        return [_given(each, with_bytes=index >= last) for index, each in enumerate(self.messages)]


def valid(messages: Sequence[Seen]) -> tuple[list[Seen], list[str]]:
    """A sequence in which each call is followed by its results, and no result stands without its call.

    A call without a result gets a placeholder; a result without its call is left out. Both are said.
    """
    call_of = answered(each.line for each in messages)
    by_id = {each.id: each for each in messages}
    result_of = {call: by_id[result] for result, call in call_of.items()}
    shown: list[Seen] = []
    warnings: list[str] = []
    for each in messages:
        if each.role == "tool":
            if each.id not in call_of:
                warnings.append(f"#{each.id}, a tool's result, was left out: its call is not in this view")
            continue
        shown.append(each)
        for index, call_id in enumerate(each.line.calls):
            result = result_of.pop((each.id, call_id), None)
            if result is None:
                result = _placeholder(each, index, call_id)
                warnings.append(f"#{each.id}: no result of its call {call_id} is on record")
            shown.append(result)
    return shown, warnings


def _placeholder(caller: Seen, index: int, call: str) -> Seen:
    made = caller.tool_calls[index]
    function = made.get("function", made) if isinstance(made, dict) else {}
    name = function.get("name") if isinstance(function, dict) else None
    return Seen(
        id=caller.id,
        session_id=caller.session_id,
        role="tool",
        content=NO_RESULT,
        at_us=caller.at_us,
        kind="placeholder",
        tool_name=name if isinstance(name, str) else None,
        tool_call_id=call,
    )


def _given(seen: Seen, *, with_bytes: bool) -> dict[str, Any]:
    content = seen.content if with_bytes else _without_bytes(seen.content)
    if seen.attachments:
        notes = "\n".join(map(attachment_note, seen.attachments))
        if isinstance(content, list):
            content = [*content, {"type": "text", "text": notes}]
        else:
            content = f"{content}\n{notes}" if content else notes
    given: dict[str, Any] = {"role": seen.role, "content": content}
    if seen.tool_calls:
        given["tool_calls"] = seen.tool_calls
    if seen.tool_call_id is not None:
        given["tool_call_id"] = seen.tool_call_id
    if seen.role == "tool" and seen.tool_name is not None:
        given["name"] = seen.tool_name
    return given


def _without_bytes(content: str | Json | None) -> str | Json | None:
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": f"[{each.get('type', 'file')}]"}
        if isinstance(each, dict) and holds_bytes(each)
        else each
        for each in content
    ]
