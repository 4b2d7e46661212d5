"""An event as one line, and as one JSON object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..domain import events as e
from ..domain.events import Recorded
from ..domain.resets import reason
from ..infrastructure.log_lines import Unreadable
from ..projections.search_text import plain_text
from .output import cell_width, fit, iso_us, local_time, plural, visible

SUMMARY_WIDTH = 120
_HASH = re.compile("[0-9a-f]{17,}")
_HASH_CHARS = 8
_ENOUGH_CHARS = 600
"""Of a text of a megabyte so much is enough to fill a line."""
_ENOUGH_ITEMS = 60
_MOST_READ_CHARS = 65_536


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


class Page:
    """Events as lines for a terminal: most of the width is for what happened.

    A day has a heading, and each line only the time; a session is told by the end of its id where the
    terminal is not wide; the type stands before what is said, and with messages the role says it.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._day = ""

    def lines(self, event: Recorded) -> Iterator[str]:
        """The line of an event, after the day's heading where its day is not that of the one before."""
        day, _, clock = local_time(event.at_us).rpartition(" ")
        if day != self._day:
            self._day = day
            yield fit(day, self._width).rstrip()
        no_later = "≤" if event.at_kind == "no_later_than" else " "
        cells = [f"#{event.position:<5}{no_later}{clock}"]
        if self._width >= _NARROW:
            wide = self._width >= _WIDE
            cells.append(_column(_short(event.stream, wide=wide), 24 if wide else 10))
        if self._width >= _MIDDLE:
            cells.append(_column(event.actor.partition(":")[0], 7))
        yield fit(f"{' '.join(cells)} {_told(event)}", self._width).rstrip()


_NARROW, _MIDDLE, _WIDE = 56, 72, 120
"""So many cells a terminal must have to show the stream, who wrote it, and ids as a whole."""


def _column(text: str, width: int) -> str:
    """At least `width` cells, and more rather than cut: it is to be copied."""
    return visible(text) if cell_width(text) > width else fit(text, width)


def _told(event: Recorded) -> str:
    said = summary(event)
    if isinstance(event.payload, e.MessageAppended):
        return said
    kind = bare_type(event.topic).removeprefix("session_")
    return f"{kind}: {said}" if said else kind


def _short(stream: str, *, wide: bool) -> str:
    """A stream so that --stream finds it by what is shown."""
    kind, _, rest = stream.partition(":")
    if kind != "session":
        return f"{kind}:{rest[: 8 if wide else max(1, 9 - len(kind))]}" if _HASH.fullmatch(rest) else stream
    if wide or len(rest) <= 10:
        return rest
    end = rest.rpartition("_")[2]
    return f"…{end}" if 4 <= len(end) <= 8 else f"…{rest[-8:]}"


def line(event: Recorded) -> str:
    """Position, time, stream, type, who, and what it says."""
    no_later = "≤" if event.at_kind == "no_later_than" else " "
    said = fit(summary(event), SUMMARY_WIDTH).rstrip()
    return (
        f"#{event.position:<6} {no_later}{local_time(event.at_us)}  {_padded(_stream(event.stream), 32)}  "
        f"{_padded(bare_type(event.topic), 19)}  {_padded(event.actor.partition(':')[0], 7)}  {said}"
    ).rstrip()


def bare_type(topic: str) -> str:
    """A topic without its version."""
    return topic.rpartition(".")[0] or topic


def _padded(text: str, width: int) -> str:
    shown = visible(text)
    return shown + " " * (width - len(shown))


def _stream(name: str) -> str:
    """A stream's name; of one that is named by a hash the beginning, which --stream takes, too."""
    kind, _, rest = name.partition(":")
    return f"{kind}:{rest[:_HASH_CHARS]}…" if kind != "session" and _HASH.fullmatch(rest) else name


def _text(value: object) -> str:
    """Any value as the head of one line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "yes" if value else "no"
        case dict():
            return f"({_named(value)})" if value else "nothing"
        case list() | tuple():
            return f"({', '.join(_text(each) for each in value[:_ENOUGH_ITEMS])})" if value else "none"
        case bytes():
            return value[:_ENOUGH_CHARS].hex()
    return " ".join(visible(str(value)[:_ENOUGH_CHARS]).split())


def _named(values: Mapping[str, Any]) -> str:
    """Values by name; a time is told as one."""
    told = []
    for name, value in values.items():
        if name.endswith("_us") and isinstance(value, int):
            name, value = name.removesuffix("_us"), local_time(value)
        told.append(f"{name}={_text(value)}")
    return ", ".join(told)


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
        case e.MessageEdited() | e.MessageEnriched() as p:
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
        case e.SessionReset() as p:
            return _reset(p)
        case e.ActivityHeld() | e.ActivityReleased() as p:
            what = f" ({_text(p.what)})" if isinstance(p, e.ActivityHeld) and p.what else ""
            return f"{_text(p.key)}: {_text(p.hold)}{what}"
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
            taken_back = p.now and all(value is None for value in p.now.values())
            return f"was {_named(p.was)}, now nothing" if taken_back else f"now {_named(p.now)}"
        case e.SourceRowGone() as p:
            return f"{p.kind} {_text(p.row)}"
        case e.ImportRan() as p:
            return f"{_text(p.path)}: taken {_named(p.taken) or 'nothing'}"
        case e.PayloadsErased() as p:
            gone = f"{plural(len(p.positions), 'payload')}" if p.positions else ""
            masked = f"{plural(len(p.masked), 'payload')} masked" if p.masked else ""
            return f"{', '.join(each for each in (gone, masked) if each) or 'nothing'}: {_text(p.reason)}"
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


def _reset(p: e.SessionReset) -> str:
    words = [p.rule] if p.rule == "person" else [f"{p.rule}: {reason(p)}"]
    words += [f"due since {local_time(p.boundary_us)}"] if p.boundary_us is not None else []
    words += [f"last used {local_time(p.last_active_us)}"] if p.last_active_us is not None else []
    words += ["put off by a turn"] if p.deferred else []
    words += [f"→ {_text(p.successor)}"] if p.successor else []
    return ", ".join(words)


def _called(tool_calls: str) -> str:
    """What was called with what; the text as it is where it is no such thing, or too long to look into."""
    if len(tool_calls) > _MOST_READ_CHARS:
        return _text(tool_calls)
    from .transcript import calls

    return _text("; ".join(calls(tool_calls)) or tool_calls)


def _message(p: e.MessageAppended) -> str:
    who = f"{_text(p.role)}{f' {_text(p.tool_name)}' if p.tool_name else ''}"
    said = _text(plain_text(p.content)) if p.content else ""
    called = f"→ {_called(p.tool_calls)}" if p.tool_calls else ""
    mark = "" if p.visibility == "live" else f" [{p.visibility}]"
    return f"{who}{mark}: {said}{' ' if said and called else ''}{called}".rstrip(": ")
