"""The filters that every bulk command shares: options, times as people give them, and words for them."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from datetime import tzinfo
from typing import Any, Final, TypeVar

import click

from ..domain.errors import BadUsage
from ..domain.text import is_blank, scrub
from ..projections.selection import Filters
from .options import COUNT
from .output import local_time

Command = TypeVar("Command", bound=Callable[..., object])

BOUNDS: Final = ("older_than", "newer_than", "before", "after")
FORMS: Final = (
    "Use a duration like '5h', '30m', '2d', '1w', a bare number of days, or an ISO timestamp like"
    " '2026-07-05' or '2026-07-05 14:30'."
)
_DAYS = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_WEEKS = re.compile(r"(?<=[\d\s])wks?$", re.ASCII | re.IGNORECASE)


class _Dollars(click.FloatRange):
    """0 or more; no infinity, and a number at all."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        amount: float = super().convert(value, param, ctx)
        if amount != amount or amount == float("inf"):
            self.fail(f"{value!r} is no amount of dollars.", param, ctx)
        return amount


_DOLLARS = _Dollars(min=0)
_OPTIONS: Final[tuple[tuple[str, str, Any, str], ...]] = (
    ("--older-than", "AGE|TIME", str, "Last active before (5h, 30m, 2d, 1w, 90 for days, 2026-07-05)."),
    ("--newer-than", "AGE|TIME", str, "Last active then or later."),
    ("--before", "AGE|TIME", str, "Begun before."),
    ("--after", "AGE|TIME", str, "Begun then or later."),
    ("--source", "S", str, "Of this source."),
    ("--title", "TEXT", str, "With this in the title."),
    ("--end-reason", "REASON", str, "Ended for this reason."),
    ("--cwd", "DIR", str, "In this folder or below it."),
    ("--min-messages", "N", COUNT, "Of so many messages or more."),
    ("--max-messages", "N", COUNT, "Of so many messages or fewer."),
    ("--model", "TEXT", str, "With this in the model's name."),
    ("--provider", "NAME", str, "Billed by this provider."),
    ("--user", "ID", str, "Of this user."),
    ("--chat-id", "ID", str, "Of this chat."),
    ("--chat-type", "TYPE", str, "Of this type of chat."),
    ("--branch", "TEXT", str, "With this in the git branch."),
    ("--min-tokens", "N", COUNT, "Of so many tokens or more, in and out."),
    ("--max-tokens", "N", COUNT, "Of so many tokens or fewer."),
    ("--min-cost", "USD", _DOLLARS, "At this cost or more."),
    ("--max-cost", "USD", _DOLLARS, "At this cost or less."),
    ("--min-tool-calls", "N", COUNT, "Of so many tool calls or more."),
    ("--max-tool-calls", "N", COUNT, "Of so many tool calls or fewer."),
)
NAMES: Final = frozenset(flag[2:].replace("-", "_") for flag, *_ in _OPTIONS)
"""The parameters that `filter_options` adds."""


def filter_options(command: Command) -> Command:
    """A parameter for each filter; `parsed` reads them."""
    for flag, metavar, kind, text in reversed(_OPTIONS):
        command = click.option(flag, metavar=metavar, type=kind, help=text)(command)
    return command


def is_bare(given: dict[str, Any]) -> bool:
    """Whether no filter was given; one of 0 was."""
    return all(value is None for value in given.values())


def parsed(given: dict[str, Any], *, now_us: int, zone: tzinfo | None) -> Filters:
    """What was given, by parameter.

    Raises:
        BadUsage: a time that is none, a text of nothing, a range that holds nothing; it names the flag.
    """
    for name, value in given.items():
        if isinstance(value, str) and is_blank(value):
            raise BadUsage(f"{_flag(name)} names nothing", hint="give it a value, or leave it out")
    times = {
        name: _time(given[name], name, now_us=now_us, zone=zone)
        for name in BOUNDS
        if given.get(name) is not None
    }
    _refuse_empty_window(times)
    rest = {name: value for name, value in given.items() if name not in BOUNDS}
    for name in ("messages", "tokens", "cost", "tool_calls"):
        least, most = rest.get(f"min_{name}"), rest.get(f"max_{name}")
        if least is not None and most is not None and least > most:
            low, high = _flag(f"min_{name}"), _flag(f"max_{name}")
            raise BadUsage(f"Empty range: {low} {least:g} is more than {high} {most:g}")
    kept: dict[str, Any] = {
        name: scrub(value)[0] if isinstance(value, str) else value for name, value in rest.items()
    }
    if kept.get("cwd") is not None:
        kept["cwd"] = _folder(kept["cwd"])
    return Filters(
        active_before_us=times.get("older_than"),
        active_since_us=times.get("newer_than"),
        started_before_us=times.get("before"),
        started_since_us=times.get("after"),
        **kept,
    )


def described(filters: Filters) -> str:
    """The filters in words, as a question shows them."""
    said = [
        f"{words} {_minute(value)}"
        for words, value in (
            ("last active before", filters.active_before_us),
            ("last active since", filters.active_since_us),
            ("started before", filters.started_before_us),
            ("started after", filters.started_since_us),
        )
        if value is not None
    ]
    said += [
        f"{words} '{value}'"
        for words, value in (
            ("source", filters.source),
            ("title contains", filters.title),
            ("end reason", filters.end_reason),
            ("cwd under", filters.cwd),
            ("model contains", filters.model),
            ("provider", filters.provider),
            ("user", filters.user),
            ("chat", filters.chat_id),
            ("chat type", filters.chat_type),
            ("git branch contains", filters.branch),
        )
        if value is not None
    ]
    said += [
        f"{sign} {unit}{value:,}{counted}"
        for sign, unit, value, counted in (
            (">=", "", filters.min_messages, " messages"),
            ("<=", "", filters.max_messages, " messages"),
            (">=", "", filters.min_tokens, " tokens"),
            ("<=", "", filters.max_tokens, " tokens"),
            (">=", "$", filters.min_cost, ""),
            ("<=", "$", filters.max_cost, ""),
            (">=", "", filters.min_tool_calls, " tool calls"),
            ("<=", "", filters.max_tool_calls, " tool calls"),
        )
        if value is not None
    ]
    return ", ".join(said)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _minute(us: int) -> str:
    return local_time(us)[:-3]


def _folder(text: str) -> str:
    """A folder as sessions have it: `~` and what begins with a dot become whole paths."""
    grown = os.path.expanduser(text)
    return os.path.abspath(grown) if grown.startswith(".") else grown


def _time(text: str, name: str, *, now_us: int, zone: tzinfo | None) -> int:
    from ..infrastructure.when import parse_point

    given = text.strip()
    if _DAYS.fullmatch(given):
        given += "d"
    try:
        at_us = parse_point(_WEEKS.sub("w", given), now_us=now_us, zone=zone).at_us
    except BadUsage:
        at_us = None
    if at_us is None or abs(at_us) >= 1 << 62:
        raise BadUsage(f"Invalid value for {_flag(name)}: '{text}'", hint=FORMS)
    return at_us


def _refuse_empty_window(times: dict[str, int]) -> None:
    """The bounds leave some time between them.

    What began before a time may have been active after it; but nothing was active before it began.
    """
    for low, highs in (("newer_than", ("older_than",)), ("after", ("before", "older_than"))):
        for high in highs:
            if low in times and high in times and times[low] >= times[high]:
                raise BadUsage(
                    f"Empty time window: the {_flag(low)} bound ({_minute(times[low])}) is not earlier than"
                    f" the {_flag(high)} bound ({_minute(times[high])})."
                )
