"""A session in the form of Claude Code's logs, which viewers of traces read (REFERENCE.md 5.6)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from ...projections.exported import Fields
from .rows import Rows
from .values import encode

VERSION: Final = "hermes-agent"
"""What Hermes writes there; viewers know it."""
_IMAGES: Final = ("image_url", "image", "input_image")


def write_trace(rows: Rows, session_id: str, write: Callable[[bytes], object]) -> int:
    """A line for each message that a model sees, but for those of the system; message by message.

    Returns how many lines there are.
    """
    parent: str | None = None
    count = 0
    for line in lines(rows, session_id):
        parent, line["parentUuid"] = line["uuid"], parent
        write(encode(line) + b"\n")
        count += 1
    return count


def lines(rows: Rows, session_id: str) -> Iterator[Fields]:
    """The lines, each with an id of its own and not yet with that of the one before."""
    session = rows.session(session_id)
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    for message in rows.live(session_id):
        if message["role"] in ("system", "session_meta"):
            continue
        kind, said = _said(message, session)
        yield {
            "parentUuid": None,
            "isSidechain": False,
            "userType": "external",
            "cwd": session["cwd"] or "",
            "sessionId": session["id"],
            "version": VERSION,
            "gitBranch": session["git_branch"] or "",
            "uuid": str(uuid.uuid4()),
            "timestamp": now,
            "type": kind,
            "message": said,
        }


def _said(message: Fields, session: Fields) -> tuple[str, Fields]:
    role, content = message["role"], message["content"]
    if role == "assistant":
        blocks = [*_blocks(content), *_calls(message["tool_calls"])] or [_text("")]
        return role, {"role": role, "model": session["model"] or "unknown", "content": blocks}
    if role == "tool":
        result = {
            "type": "tool_result",
            "tool_use_id": message["tool_call_id"] or message["tool_name"] or "tool",
            "content": content if isinstance(content, str) else _as_json(content),
        }
        return "user", {"role": "user", "content": [result]}
    return "user", {"role": "user", "content": content if isinstance(content, str) else _blocks(content)}


def _blocks(content: Any) -> list[Fields]:
    if content is None:
        return []
    if isinstance(content, str):
        return [_text(content)]
    return [_block(part) for part in content] if isinstance(content, list) else [_text(_as_json(content))]


def _block(part: Any) -> Fields:
    if not isinstance(part, dict):
        return _text(str(part))
    if part.get("type") == "text":
        return _text(str(part.get("text", "")))
    return _text("[image omitted]" if part.get("type") in _IMAGES else _as_json(part))


def _calls(calls: Any) -> Iterator[Fields]:
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            function = call.get("function")
            function = function if isinstance(function, dict) else {}
            yield {
                "type": "tool_use",
                "id": call.get("id") or f"toolu_{uuid.uuid4().hex[:16]}",
                "name": function.get("name") or call.get("name") or "tool",
                "input": _input(function.get("arguments")),
            }


def _input(arguments: Any) -> Any:
    if isinstance(arguments, dict):
        return arguments
    if not isinstance(arguments, str) or not arguments.strip():
        return {}
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return {"_raw": arguments}


def _text(text: str) -> Fields:
    return {"type": "text", "text": text}


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
