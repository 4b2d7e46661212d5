"""A view as the APIs of models take it: messages of OpenAI's chat completions, and of Anthropic's.

Both are made of `View.for_model`, so that a call is followed by its results; what only one of them asks for
is seen to here. Nothing is made up: what has no place in a form is left out, and said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from .view import View

_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)
_LONGEST_NAME: Final = 64
_PARTS: Final = frozenset({"text", "image_url", "input_audio", "file"})
"""Kinds of parts that OpenAI takes of a user."""
LEFT_OUT: Final = "[what was said before is left out here]"


class Given(msgspec.Struct, frozen=True):
    """Messages in a form, the system's words apart where the form wants that, and what was left out."""

    messages: list[dict[str, Any]]
    system: str | None = None
    warnings: list[str] = []


# --- OpenAI -----------------------------------------------------------------------------------------


def as_openai(view: View) -> Given:
    """`messages` of a request to chat completions."""
    shown: list[dict[str, Any]] = []
    warnings: list[str] = []
    for each, said in zip(view.messages, view.for_model(), strict=True):
        role = "system" if said["role"] == "developer" else said["role"]
        if role == "assistant":
            calls = calls_of(said, each.line.calls)
            text = text_of(said["content"])
            message: dict[str, Any] = {"role": role, "content": text or (None if calls else "")}
            if calls:
                message["tool_calls"] = [_openai_call(call) for call in calls]
            shown.append(message)
        elif role == "tool":
            text = text_of(said["content"])
            shown.append({"role": role, "tool_call_id": said.get("tool_call_id"), "content": text})
        elif role in ("user", "system"):
            shown.append({"role": role, "content": _openai_content(said["content"], role)})
        else:
            warnings.append(f"#{each.id}, of the role {role}, was left out: models know no such role")
    return Given(shown, None, warnings)


def _openai_content(content: Any, role: str) -> Any:
    if role != "user" or not isinstance(content, list):
        return text_of(content)
    return [
        each
        if isinstance(each, dict) and each.get("type") in _PARTS
        else {"type": "text", "text": text_of([each])}
        for each in content
    ]


def _openai_call(call: Call) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


# --- Anthropic --------------------------------------------------------------------------------------


def as_anthropic(view: View) -> Given:
    """`system` and `messages` of a request to Anthropic's API.

    Turns alternate, and the first is the user's; ids and names of calls are of the letters that it takes.
    """
    shown: list[dict[str, Any]] = []
    system: list[str] = []
    warnings: list[str] = []
    ids = _Ids()
    for each, said in zip(view.messages, view.for_model(), strict=True):
        role = said["role"]
        if role in ("system", "developer"):
            system.append(text_of(said["content"]))
        elif role == "assistant":
            blocks = [*_words(said["content"])]
            for call in calls_of(said, each.line.calls):
                use = {"type": "tool_use", "id": ids.made(call.id), "name": _name(call.name)}
                blocks.append(use | {"input": _object(call.arguments)})
            _turn(shown, "assistant", blocks)
        elif role == "tool":
            found = {"type": "tool_result", "tool_use_id": ids.answered(str(said.get("tool_call_id")))}
            text = text_of(said["content"])
            _turn(shown, "user", [found | ({"content": text} if text.strip() else {})])
        elif role == "user":
            _turn(shown, "user", [*_anthropic_blocks(said["content"])])
        else:
            warnings.append(f"#{each.id}, of the role {role}, was left out: models know no such role")
    if shown and shown[0]["role"] != "user":
        shown.insert(0, {"role": "user", "content": [{"type": "text", "text": LEFT_OUT}]})
    if shown and shown[-1]["role"] == "assistant" and shown[-1]["content"][-1]["type"] == "text":
        last = shown[-1]["content"][-1]
        last["text"] = last["text"].rstrip()  # or the API refuses it as the beginning of an answer
    return Given(shown, "\n\n".join(filter(None, system)) or None, warnings)


class _Ids:
    """Ids of calls, each another one, of the letters that the API takes; a result bears its call's."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._open: dict[str, list[str]] = {}

    def made(self, call: str) -> str:
        plain = _NO_NAME.sub("_", call) or "call"
        made, number = plain, 1
        while made in self._taken:
            number += 1
            made = f"{plain}_{number}"
        self._taken.add(made)
        self._open.setdefault(call, []).append(made)
        return made

    def answered(self, call: str) -> str:
        waiting = self._open.get(call)
        return waiting.pop(0) if waiting else _NO_NAME.sub("_", call)


def _turn(shown: list[dict[str, Any]], role: str, blocks: list[dict[str, Any]]) -> None:
    """Blocks join the turn of the same speaker before them; a turn of nothing is none."""
    if not blocks:
        return
    if shown and shown[-1]["role"] == role:
        shown[-1]["content"] += blocks
    else:
        shown.append({"role": role, "content": blocks})


def _words(content: Any) -> Iterable[dict[str, Any]]:
    text = text_of(content)
    if text.strip():
        yield {"type": "text", "text": text}


def _anthropic_blocks(content: Any) -> Iterable[dict[str, Any]]:
    if not isinstance(content, list):
        yield from _words(content)
        return
    for each in content:
        image = _image(each) if isinstance(each, dict) else None
        if image is None:
            yield from _words([each])
        else:
            yield {"type": "image", "source": image}


def _image(part: dict[str, Any]) -> dict[str, Any] | None:
    if part.get("type") == "image" and isinstance(part.get("source"), dict):
        return dict(part["source"])
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, dict) else given
    if part.get("type") not in ("image_url", "input_image") or not isinstance(url, str):
        return None
    if encoded := _DATA_URL.fullmatch(url):
        return {"type": "base64", "media_type": encoded[1], "data": encoded[2]}
    return {"type": "url", "url": url} if url.startswith(("https://", "http://")) else None


def _name(name: str) -> str:
    return _NO_NAME.sub("_", name)[:_LONGEST_NAME] or "unknown"


def _object(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": value}


# --- what both need ---------------------------------------------------------------------------------


class Call(msgspec.Struct, frozen=True):
    """A call of a tool."""

    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it; where it is none, that."""


def calls_of(said: dict[str, Any], ids: tuple[str, ...]) -> list[Call]:
    """The calls of a message as `View.for_model` gives it, each under the id that its result bears."""
    calls = said.get("tool_calls")
    if not isinstance(calls, list):
        return []
    return [_call(each, call_id) for each, call_id in zip(calls, ids, strict=True)]


def _call(call: Any, call_id: str) -> Call:
    if not isinstance(call, dict):
        return Call(call_id, "unknown", _json(call))
    function = call.get("function")
    named = function if isinstance(function, dict) else call
    arguments = named.get("arguments", named.get("input", {}))
    name = named.get("name")
    given = arguments if isinstance(arguments, str) else _json(arguments)
    return Call(call_id, name if isinstance(name, str) and name else "unknown", given)


def text_of(content: Any) -> str:
    """What is text of content, and a word for each part that is none."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    return "\n".join(filter(None, map(_part, parts)))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return _json(part)
    if isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type")
    return f"[{kind}]" if isinstance(kind, str) else _json(part)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
