"""A message as a card of a page: who said it, when, and each thing in it; what is long is folded away."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from ...projections.exported import Fields
from .html_text import code, escaped, markdown, plain, shown
from .words import seconds_iso

IMAGE: Final = "[Image Attachment]"
_IMAGES: Final = frozenset({"image", "image_url", "input_image"})
_TEXTS: Final = frozenset({"text", "input_text", "output_text"})
_PEEK: Final = 96
"""Characters of what is folded away that its heading shows."""
_FOLDED: Final = 600
"""Characters of a tool's output up to which it stands open."""


def card(message: Fields, anchor: str, zone: tzinfo | None) -> str:
    """One message; `anchor` is what leads to it."""
    role = str(message["role"] or "message")
    name = f"message-{re.sub(r'[^A-Za-z0-9_-]', '', role) or 'other'}"
    kinds = " ".join(("message", name, *(kind for kind, _, _ in _marks(message))))
    marks = "".join(f' <span class="mark" title="{why}">{word}</span>' for _, word, why in _marks(message))
    tool = f" <code>{escaped(message['tool_name'])}</code>" if message.get("tool_name") else ""
    return (
        f'<article class="{kinds}" id="{anchor}">\n'
        f'<header><h3 class="role">{escaped(role.capitalize())}{tool}</h3>{marks} '
        f"{moment(message['timestamp'], zone)} "
        f'<a class="permalink" href="#{anchor}" title="Link to this message">#{anchor.removeprefix("m-")}</a>'
        f'</header>\n<div class="said">\n{"".join(_said(message, role))}</div>\n</article>\n'
    )


def moment(value: object, zone: tzinfo | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time where the export was made; its title tells it in UTC."""
    utc = seconds_iso(value)
    if utc is None:
        return '<span class="time">no time</span>'
    local = datetime.fromisoformat(utc).astimezone(zone)
    title = datetime.fromisoformat(utc).astimezone(UTC)
    return f'<time datetime="{utc}" title="{title:%Y-%m-%d %H:%M:%S} UTC">{local:{form}}</time>'


def folded(kind: str, heading: str, inner: str, *, peek: str = "", is_open: bool = False) -> str:
    """What opens where its heading is clicked."""
    first = shown(peek).strip().partition("\n")[0][:_PEEK]
    more = f' <span class="peek" dir="auto">{escaped(first)}</span>' if first else ""
    opened = " open" if is_open else ""
    return (
        f'<details class="{kind}"{opened}><summary><span class="label">{heading}</span>{more}</summary>\n'
        f'<div class="folded">{inner}</div></details>\n'
    )


def _marks(message: Fields) -> Iterator[tuple[str, str, str]]:
    """(class, word, what it means) for what sets a message apart."""
    if message.get("summary"):
        yield "summary", "Summary", "Stands for what was compacted before it"
    if message.get("compacted") and not message.get("active"):
        yield "compacted", "Compacted", "No longer in the context: a summary stands for it"
    if message.get("observed"):
        yield "observed", "Overheard", "Heard in the chat, and not said to the agent"


def _said(message: Fields, role: str) -> Iterator[str]:
    if reasoning := _reasoning(message):
        yield folded("reasoning", "Reasoning", markdown(reasoning), peek=reasoning)
    words, rest = _words(message["content"])
    if role == "tool":
        if words:
            yield _output(words)
    elif words:
        yield f'<div class="body">{markdown(words) if role == "assistant" else plain(words)}</div>\n'
    yield from (f'<p class="attachment">{escaped(each)}</p>\n' for each in rest)
    yield from map(_attachment, _list(message.get("attachments")))
    yield from map(_call, _list(message["tool_calls"]))


def _output(words: str) -> str:
    count = words.count("\n") + 1
    size = f"{count:,} lines" if count > 1 else f"{len(words):,} characters"
    heading = f'Output <span class="size">{size}</span>'
    return folded("output", heading, code(words), peek=words, is_open=len(words) <= _FOLDED)


def _reasoning(message: Fields) -> str:
    for column in ("reasoning", "reasoning_content"):
        if isinstance(message.get(column), str) and message[column].strip():
            return str(message[column])
    details = message.get("reasoning_details")
    if isinstance(details, str):
        try:
            details = json.loads(details)
        except (ValueError, RecursionError):
            return ""
    texts = (each.get("text") or each.get("summary") for each in _list(details) if isinstance(each, dict))
    return "\n\n".join(each for each in texts if isinstance(each, str))


def _words(content: Any) -> tuple[str, list[str]]:
    """The text of a message's content, and a word for each thing in it that is none."""
    texts, rest = list[str](), list[str]()
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            kind, text = str(part.get("type") or ""), part.get("text")
            if kind in _IMAGES:
                rest.append(IMAGE)
            elif isinstance(text, str) and (kind in _TEXTS or not kind):
                texts.append(text)
            else:
                texts.append(f"```json\n{_json(part)}\n```")
        elif part is not None:
            texts.append(_json(part))
    return "\n".join(texts) if any(each.strip() for each in texts) else "", rest


def _attachment(attachment: Any) -> str:
    """A file that came with a message: what it is, where it lies, and what was read out of it."""
    if not isinstance(attachment, dict):
        return f'<p class="attachment">{escaped(str(attachment))}</p>\n'
    kind = str(attachment.get("kind") or "file")
    label = IMAGE if kind in ("image", "photo") else f"[{kind.capitalize()} Attachment]"
    heading = f"{escaped(label)} <code>{escaped(str(attachment.get('path') or ''))}</code>"
    text = attachment.get("text")
    if not isinstance(text, str) or not text:
        return f'<p class="attachment">{heading}</p>\n'
    return folded("attachment", heading, plain(text), peek=text)


def _call(call: Any) -> str:
    """A call of a tool: its name, and what it was called with."""
    function = call.get("function") if isinstance(call, dict) else None
    named = function if isinstance(function, dict) else call
    if not isinstance(named, dict):
        return folded("call", "Tool Call: <code>?</code>", code(str(call)), peek=str(call))
    arguments = named.get("arguments", named.get("input", ""))
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    name = escaped(str(named.get("name") or "?"))
    text = arguments if isinstance(arguments, str) else _json(arguments)
    return folded("call", f"Tool Call: <code>{name}</code>", code(text), peek=_gist(arguments))


def _gist(arguments: Any) -> str:
    """The first argument that is worth reading."""
    if isinstance(arguments, dict):
        return next((each for each in arguments.values() if isinstance(each, str) and each.strip()), "")
    return arguments if isinstance(arguments, str) else ""


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [] if value in (None, "", {}) else [value]


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return str(value)
