"""An event as one line, and as one JSON object."""

from __future__ import annotations

from typing import Any

import msgspec

from ..domain import events as e
from ..domain.events import Recorded
from ..infrastructure.log_lines import Unreadable
from ..projections.search_text import plain_text
from .output import fit, iso_us, local_time, plural, visible

SUMMARY_WIDTH = 120
_HASH_CHARS = 8
_ENOUGH_CHARS = 600
"""Of a text of a megabyte so much is enough to fill a line."""


# --- JSON -----------------------------------------------------------------------------------------


def as_json(event: Recorded) -> dict[str, object]:
    """The envelope and the payload by field names; bytes are hexadecimal."""
    state = "here"
    payload: object = None
    match event.payload:
        case e.ErasedEvent():
            state = "erased"
        case e.UnknownEvent():
            state = "unknown"
        case Unreadable():
            state = "unreadable"
        case here:
            payload = by_name(here)
    return {
        "position": event.position,
        "stream": event.stream,
        "version": event.version,
        "type": event.topic,
        "at": iso_us(event.at_us),
        "at_kind": event.at_kind,
        "recorded_at": iso_us(event.recorded_at_us),
        "actor": event.actor,
        "caused_by": event.caused_by,
        "save": event.save,
        "payload": payload,
        "payload_state": state,
    }


def by_name(value: Any) -> Any:
    """Array-like structs as objects, through and through."""
    if isinstance(value, msgspec.Struct):
        return {name: by_name(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): by_name(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [by_name(each) for each in value]
    return value


# --- a line ---------------------------------------------------------------------------------------


def line(event: Recorded, *, width: int | None = None) -> str:
    """Position, time, stream, type, who, and what it says; cut to `width` cells if that is given."""
    no_later = "≤" if event.at_kind == "no_later_than" else " "
    said = fit(summary(event), SUMMARY_WIDTH).rstrip()
    text = (
        f"#{event.position:<6} {no_later}{local_time(event.at_us)}  {_padded(_stream(event.stream), 32)}  "
        f"{_padded(event.topic.rpartition('.')[0] or event.topic, 19)}  "
        f"{_padded(event.actor.partition(':')[0], 7)}  {said}"
    )
    return text.rstrip() if width is None else fit(text, width).rstrip()


def _padded(text: str, width: int) -> str:
    shown = visible(text)
    return shown + " " * (width - len(shown))


def _stream(name: str) -> str:
    """A stream's name; of one that is named by a hash the beginning, which --stream takes, too."""
    kind, _, rest = name.partition(":")
    return (
        f"{kind}:{rest[:_HASH_CHARS]}…" if kind in ("route", "title", "source") and len(rest) > 16 else name
    )


def _text(value: object) -> str:
    """Any value as the head of one line."""
    if value is None:
        return "nothing"
    return " ".join(visible(str(value)[:_ENOUGH_CHARS]).split())


def _named(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in values.items())


def _these(messages: list[int]) -> str:
    if not messages:
        return "no messages"
    ends = f"#{messages[0]}" if len(messages) == 1 else f"#{min(messages)}–#{max(messages)}"
    return f"{plural(len(messages), 'message')} ({ends})"


def summary(event: Recorded) -> str:  # noqa: C901  # one line an event is plainer than a table
    """What an event says, short and on one line."""
    match event.payload:
        case e.MessageAppended() as p:
            return _message(p)
        case e.SessionCreated() as p:
            came = (
                f", {p.parent_kind or 'child'} of {_text(p.parent_session_id)}" if p.parent_session_id else ""
            )
            return f"{_text(p.source)}{f', key {_text(p.session_key)}' if p.session_key else ''}{came}"
        case e.MessageEdited() as p:
            return f"#{p.message}: {_named(p.changes)}"
        case e.MessagesRewound() | e.MessagesRestored() | e.MessagesCompacted() as p:
            return _these(p.messages)
        case e.UsageRecorded() as p:
            which = _text(p.model) if p.model is not None else "in all"
            return f"{which}: {p.input_tokens:,} tokens in, {p.output_tokens:,} out ({p.mode})"
        case e.SessionTitled() as p:
            return (
                "no title" if p.title is None else f"“{_text(p.title)}”{'' if p.claimed else ' (unclaimed)'}"
            )
        case e.SessionCompressed() as p:
            return f"goes on as {_text(p.continuation)}"
        case e.SessionEnded() as p:
            return f"{_text(p.reason or 'no reason given')}{' (hard)' if p.hard else ''}"
        case e.SessionRerouted() as p:
            left = f", before {_text(p.previous)}" if p.previous else ""
            return f"{_text(p.key)} → {_text(p.session_id)} ({p.cause}{left})"
        case e.RouteClosed() as p:
            return f"{_text(p.key)} leads nowhere ({p.cause})"
        case e.TitleClaimed() | e.TitleReleased() as p:
            return f"“{_text(p.title)}” by {_text(p.session_id)}"
        case e.IdentityLost() as p:
            return f"was {_named(p.was)}"
        case e.IdentityRestored() as p:
            return f"now {_named(p.now)}"
        case e.SourceRowGone() as p:
            return f"{p.kind} {_text(p.row)}"
        case e.ImportRan() as p:
            return f"{_text(p.path)}: taken {_named(p.taken) or 'nothing'}"
        case e.PayloadsErased() as p:
            return f"{plural(len(p.positions), 'payload')}: {_text(p.reason)}"
        case e.ErasedEvent():
            return "(erased)"
        case e.UnknownEvent():
            return "(of a type that this version does not know)"
        case Unreadable() as p:
            return f"(damaged: {_text(p.why)})"
        case other:
            return _named(
                {name: value for name, value in by_name(other).items() if value not in (None, [], {})}
            )


def _message(p: e.MessageAppended) -> str:
    who = f"{_text(p.role)}{f' {_text(p.tool_name)}' if p.tool_name else ''}"
    said = _text(plain_text(p.content)) if p.content else ""
    called = f"→ {_text(p.tool_calls)}" if p.tool_calls else ""
    mark = "" if p.visibility == "live" else f" [{p.visibility}]"
    return f"{who}{mark}: {said}{' ' if said and called else ''}{called}".rstrip(": ")
