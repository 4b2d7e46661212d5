"""How `retold sessions show` looks: a transcript to read, or JSON written message by message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..domain.message import STRUCTURED, attachment_note, attachments_given, content_given, json_given
from ..projections.sessions import Message, SessionPage, UnderWay
from .output import cell_width, fit, iso_us, local_time, plural, visible
from .paragraphs import fold, hanging
from .stream import PLAIN_WIDTH, bold, is_terminal, raw_json, terminal_width, write_object

_IMAGES = frozenset({"image", "image_url", "input_image"})
_TEXTS = frozenset({"text", "input_text", "output_text"})


# --- JSON -----------------------------------------------------------------------------------------


def emit(summary: dict[str, object], page: SessionPage, messages: Iterable[Message]) -> None:
    """The session's object, its messages last."""
    write_object(fields(summary, page), "messages", map(as_json, messages))


def fields(summary: dict[str, object], page: SessionPage) -> dict[str, object]:
    """What is told of a session besides its messages."""
    return {
        **summary,
        "lineage": [{"session_id": each.session_id, "kind": each.kind} for each in page.lineage],
        "route": page.route,
        **_under_way(page.under_way),
    }


def _under_way(now: UnderWay) -> dict[str, object]:
    """Its turn, its queue, its marks and its handoff; null where there is none."""
    turn: dict[str, object] | None = None
    if now.turn is not None:
        turn = {
            "id": now.turn,
            "started_at": _iso(now.turn_since_us),
            "lease_until_at": _iso(now.lease_until_us),
            "gateway": now.gateway,
        }
    resume: dict[str, object] | None = None
    if now.resume is not None:
        marked_at = _iso(now.resume_marked_us)
        resume = {"reason": now.resume, "marked_at": marked_at, "restarts": now.restarts}
    handoff: dict[str, object] | None = None
    if now.handoff is not None:
        handoff = {"state": now.handoff, "platform": now.handoff_platform, "error": now.handoff_error}
    return {
        "turn": turn,
        "queued": now.waiting,
        "resume": resume,
        "suspended": now.suspended,
        "handoff": handoff,
    }


def _iso(at_us: int | None) -> str | None:
    return None if at_us is None else iso_us(at_us)


def as_json(message: Message) -> dict[str, object]:
    """A message: structured content and tool calls decoded where they can be."""
    return {
        "id": message.id,
        "role": message.role,
        "content": _decoded(message.content, STRUCTURED),
        "at": None if message.at_us is None else iso_us(message.at_us),
        "tool_calls": _decoded(message.tool_calls, ""),
        "tool_name": message.tool_name,
        "visibility": message.visibility,
        "copy_of": message.copy_of,
        "summary": message.summary,
        "attachments": _decoded(message.attachments, "") or [],
    }


def _decoded(text: str | None, prefix: str) -> object:
    if text is None or not text.startswith(prefix):
        return text
    try:
        return raw_json(text[len(prefix) :])
    except (ValueError, RecursionError):
        return text


# --- words ----------------------------------------------------------------------------------------


def lines(page: SessionPage, messages: Iterable[Message], *, full: bool) -> Iterator[str]:
    """A header, then each message under its role, time and id."""
    yield from _header(page)
    some = False
    for each in messages:
        some = True
        yield ""
        yield from _message(each, full=full)
    if not some:
        yield from ("", "No messages.")


def _header(page: SessionPage) -> Iterator[str]:
    line = page.line
    yield bold(line.title or "(no title)")
    started, active = local_time(line.started_us), local_time(line.last_active_us)
    facts = {
        "id": line.id,
        "source": " · ".join(filter(None, (line.source, page.display_name, page.model))),
        "started": f"{started}, last active {active}",
        "state": _state(page),
        "messages": f"{line.message_count:,} live",
        "workspace": line.workspace or "",
        "route": _route(page),
        "lineage": _lineage(page),
        "turn": _turn(page.under_way),
        "resume": _marks(page.under_way),
        "handoff": _handoff(page.under_way),
        "usage": _usage(page),
    }
    for name, value in facts.items():
        if value:
            yield from _fact(name, visible(value))


def _fact(name: str, value: str) -> Iterator[str]:
    if is_terminal() and cell_width(value) > terminal_width() - 12:
        yield from hanging(name, [value], indent=12, width=terminal_width())
    else:
        yield f"  {name:<10}{value}"


def _state(page: SessionPage) -> str:
    state = "open"
    if page.ended_us is not None or page.line.end_reason is not None:
        state = f"ended {local_time(page.ended_us)}, {page.line.end_reason or 'no reason given'}"
    return f"{state}; archived" if page.line.archived else state


def _turn(now: UnderWay) -> str:
    waits = f"{now.waiting:,} queued" if now.waiting else ""
    if now.turn is None:
        return waits
    by = f", gateway {now.gateway}" if now.gateway else ""
    runs = f"{now.turn} since {local_time(now.turn_since_us)}{by}"
    until = f"counts as cut off after {local_time(now.lease_until_us)}"
    return "; ".join(filter(None, (runs, until, waits)))


def _marks(now: UnderWay) -> str:
    if now.suspended is not None:
        return f"suspended ({now.suspended}): the chat's next message begins a new session"
    if now.resume is None:
        return ""
    again = f", {plural(now.restarts, 'restart')} in a row" if now.restarts else ""
    return f"to be gone on with ({now.resume}), marked {local_time(now.resume_marked_us)}{again}"


def _handoff(now: UnderWay) -> str:
    if now.handoff is None:
        return ""
    to = f" to {now.handoff_platform}" if now.handoff_platform else ""
    return f"{now.handoff}{to}{f': {now.handoff_error}' if now.handoff_error else ''}"


def _route(page: SessionPage) -> str:
    if page.route is not None:
        return f"{page.route} leads here"
    if page.key is None:
        return ""
    if page.leads_to is None:
        return f"it bears {page.key}, which leads nowhere"
    return f"it bears {page.key}, which leads to {page.leads_to}"


def _lineage(page: SessionPage) -> str:
    if len(page.lineage) == 1 and page.line.parent_id is None:
        return ""
    named = ["this one" if each.session_id == page.line.id else each.session_id for each in page.lineage]
    kind = page.lineage[0].kind
    came = f"{kind} of {page.line.parent_id}: " if kind != "root" and named[0] == "this one" else ""
    return came + " → ".join(named)


def _usage(page: SessionPage) -> str:
    if not (page.input_tokens or page.output_tokens or page.cost_usd):
        return ""
    cost = f", ${page.cost_usd:,.4f}" if page.cost_usd else ""
    return f"{page.input_tokens:,} tokens in, {page.output_tokens:,} out{cost}"


def _message(each: Message, *, full: bool) -> Iterator[str]:
    marks: list[str] = [] if each.visibility == "live" else [each.visibility]
    if each.summary:
        marks.append("summary")
    if each.copy_of is not None:
        marks.append(f"copy of #{each.copy_of}")
    mark = f"  [{', '.join(marks)}]" if marks else ""
    name = f" {each.tool_name}" if each.tool_name else ""
    yield bold(f"{each.role}{name}") + f"  {local_time(each.at_us)}  #{each.id}{mark}"
    text = readable(each.content).rstrip("\n")
    if each.role == "tool" and not full:
        yield "  " + one_line(text, _width() - 2)
    else:
        yield from (line for part in _split(text) for line in _said(part))
    for attachment in attachments_given(each.attachments):
        yield from (line for part in _split(attachment_note(attachment)) for line in _said(part))
    for call in calls(each.tool_calls):
        yield "  → " + (visible(call) if full else one_line(call, _width() - 4))


def _said(part: str) -> list[str]:
    """A line of a message; a terminal is not left to break it within a word."""
    line = f"  {visible(part)}".rstrip()
    return fold(line, terminal_width(), indent=2) if is_terminal() else [line]


def _width() -> int:
    return terminal_width() if is_terminal() else PLAIN_WIDTH


def _split(text: str) -> list[str]:
    """Lines as their writer broke them; nothing for nothing."""
    return text.replace("\r\n", "\n").split("\n") if text else []


def one_line(text: str, width: int) -> str:
    """The first line, cut to `width` cells, with a count of what follows."""
    head, _, rest = text.strip().partition("\n")
    more = f" (+{plural(rest.count(chr(10)) + 1, 'line')})" if rest else ""
    shown = fit(head, max(8, width - cell_width(more))).rstrip()
    return shown + more


def readable(content: str | None) -> str:
    """What a person reads of content: text, and a word for each thing that is none."""
    value = content_given(content)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else [value]
    return "\n".join(filter(None, map(_part, parts)))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return str(part)
    kind = str(part.get("type", ""))
    if kind in _IMAGES:
        return "[image]"
    text = part.get("text")
    if isinstance(text, str) and (kind in _TEXTS or not kind):
        return text
    return f"[{kind or 'data'}]" + (f" {text}" if isinstance(text, str) else "")


def calls(tool_calls: str | None) -> list[str]:
    """Each call as `name(arguments)`; the text as it is where it is malformed."""
    value = json_given(tool_calls)
    if value is None or value == []:
        return []
    return [_call(each) for each in value] if isinstance(value, list) else [_call(value)]


def _call(call: Any) -> str:
    if not isinstance(call, dict):
        return str(call)
    function = call.get("function")
    named = function if isinstance(function, dict) else call
    arguments = named.get("arguments", named.get("input", ""))
    if not isinstance(arguments, str):
        import json

        arguments = json.dumps(arguments, ensure_ascii=False)
    return f"{named.get('name', '?')}({arguments})"
