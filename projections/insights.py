"""How much was used: tokens, cost, tools and models, and when people and agents were at it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final

import msgspec

from .base import Connection

_QUARTER_S: Final = 900
"""Offsets of zones are whole quarters of an hour, so that what falls into one is of one hour everywhere."""
_HOURS, _WEEKDAYS = 24, 7
_DAY_US: Final = 86_400_000_000
_COUNTED: Final = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    "api_call_count",
)  # fmt: skip
_COSTS: Final = ("estimated_cost_usd", "actual_cost_usd")


class Amounts(msgspec.Struct):
    """What was used of a model, a source or all. Costs are as they were recorded: none is guessed at."""

    sessions: int = 0
    messages: int = 0
    tool_calls: int = 0
    api_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    """Of input and output, cached ones included."""
    cost_usd: float = 0.0
    """What was charged, where that is on record, else the estimate."""


class At(msgspec.Struct, frozen=True):
    """What fell into an hour, a weekday or a day."""

    sessions: int
    messages: int


class Insights(msgspec.Struct, frozen=True):
    """Of the sessions that began in a span of time.

    `by_weekday` is from Monday on, `by_hour` from midnight; `by_day` holds each day of the span in which
    anything was. Their messages are those of users and assistants, by when they were said, each once.
    """

    since_us: int
    until_us: int
    total: Amounts
    user_messages: int
    models: dict[str, Amounts]
    sources: dict[str, Amounts]
    tools: dict[str, int]
    by_day: dict[str, At]
    by_weekday: list[At]
    by_hour: list[At]
    longest_streak: int
    """Days in a row on which a session began."""
    unused: int
    """Sessions with an answer of which no use is on record."""


def insights(
    db: Connection, *, now_us: int, days: int, source: str | None = None, zone: tzinfo | None = None
) -> Insights:
    """What the sessions that began in the last days used (as `hermes insights` counts it).

    Delegates, archived sessions and older segments count: they were paid for.

    Args:
        zone: whose hours and days; the machine's own by default.
    """
    since_us = now_us - days * _DAY_US
    where = "s.started_us >= ? AND s.started_us <= ?"
    values: list[Any] = [since_us, now_us]
    if source is not None:
        where, values = f"{where} AND s.source = ?", [*values, source]
    span = _Span(db, where, values)
    total, sources = span.sessions()
    models = span.models()
    for name in (
        *_COUNTED[:5],
        "total_tokens",
        "cost_usd",
    ):  # what ran beside the talk is in the models' rows
        setattr(total, name, sum(getattr(each, name) for each in models.values()))
    total.api_calls = sum(each.api_calls for each in models.values())
    days_of, weekdays, hours = span.activity(zone)
    return Insights(
        since_us=since_us,
        until_us=now_us,
        total=total,
        user_messages=span.user_messages(),
        models=_most_first(models),
        sources=dict(sorted(sources.items(), key=lambda each: (-each[1].sessions, each[0]))),
        tools=span.tools(),
        by_day=days_of,
        by_weekday=weekdays,
        by_hour=hours,
        longest_streak=_longest_streak(days_of),
        unused=span.unused(),
    )


def _most_first(models: dict[str, Amounts]) -> dict[str, Amounts]:
    def rank(each: tuple[str, Amounts]) -> tuple[int, int, str]:
        return -each[1].total_tokens, -each[1].sessions, each[0]

    return dict(sorted(models.items(), key=rank))


class _Span:
    """The sessions that began in it, and what is asked of them."""

    def __init__(self, db: Connection, where: str, values: list[Any]) -> None:
        self._db, self._where, self._values = db, where, values

    def _rows(self, sql: str) -> Iterator[Any]:
        return iter(self._db.execute(sql.replace("{where}", self._where), self._values))

    def sessions(self) -> tuple[Amounts, dict[str, Amounts]]:
        """All of them together, and by source."""
        sources: dict[str, Amounts] = {}
        total = Amounts()
        for name, sessions, messages, tool_calls, tokens_in, tokens_out, read, written, cost in self._rows(
            "SELECT source, count(*), sum(coalesce(message_count, 0)), sum(coalesce(tool_call_count, 0)),"
            " sum(coalesce(input_tokens, 0)), sum(coalesce(output_tokens, 0)),"
            " sum(coalesce(cache_read_tokens, 0)), sum(coalesce(cache_write_tokens, 0)),"
            " sum(coalesce(nullif(actual_cost_usd, 0), estimated_cost_usd, 0))"
            " FROM sessions s WHERE {where} GROUP BY source"
        ):
            sources[name] = Amounts(
                sessions=sessions,
                messages=messages,
                tool_calls=tool_calls,
                input_tokens=tokens_in,
                output_tokens=tokens_out,
                cache_read_tokens=read,
                cache_write_tokens=written,
                total_tokens=tokens_in + tokens_out + read + written,
                cost_usd=cost,
            )
            total.sessions += sessions
            total.messages += messages
            total.tool_calls += tool_calls
        return total, sources

    def models(self) -> dict[str, Amounts]:
        """By model: what each is known to have used, and what a session used of which no row tells more."""
        found: defaultdict[str, Amounts] = defaultdict(Amounts)
        of: defaultdict[str, set[str]] = defaultdict(set)
        told: dict[str, list[float]] = {}
        columns = ", ".join(f"u.{each}" for each in (*_COUNTED, *_COSTS))
        for session_id, model, *amounts in self._rows(
            f"SELECT u.session_id, u.model, {columns} FROM session_model_usage u"
            " JOIN sessions s ON s.id = u.session_id WHERE {where}"
        ):
            numbers = [_number(each) for each in amounts]
            sums = told.setdefault(session_id, [0.0] * len(numbers))
            told[session_id] = [before + more for before, more in zip(sums, numbers, strict=True)]
            _add(found[short_name(model)], numbers)
            of[short_name(model)].add(session_id)
        columns = ", ".join(f"s.{each}" for each in (*_COUNTED, *_COSTS))
        for session_id, model, tool_calls, *amounts in self._rows(
            f"SELECT s.id, s.model, s.tool_call_count, {columns} FROM sessions s WHERE {{where}}"
        ):
            known = told.get(session_id, [0.0] * len(amounts))
            rest = [max(0, _number(each) - before) for each, before in zip(amounts, known, strict=True)]
            rest[4] = 0  # thoughts are part of the output: what is not told apart is not added
            if any(each > 1e-9 for each in rest):
                _add(found[short_name(model)], rest)
                of[short_name(model)].add(session_id)
            if tool_calls:
                found[short_name(model)].tool_calls += tool_calls
        for name, sessions in of.items():
            found[name].sessions = len(sessions)
        return dict(found)

    def unused(self) -> int:
        """How many sessions have an answer and no use on record."""
        row = next(
            self._rows(
                "SELECT count(*) FROM sessions s WHERE {where}"
                f" AND {' + '.join(f'coalesce(s.{each}, 0)' for each in _COUNTED)} = 0"
                " AND NOT EXISTS (SELECT 1 FROM session_model_usage u WHERE u.session_id = s.id)"
                " AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND m.role = 'assistant')"
            )
        )
        return int(row[0])

    def user_messages(self) -> int:
        """How many messages are of users; copies that a compression carried along count once."""
        row = next(
            self._rows(
                "SELECT count(*) FROM messages m JOIN sessions s ON s.id = m.session_id WHERE {where}"
                " AND m.role = 'user' AND m.copy_of IS NULL"
            )
        )
        return int(row[0])

    def tools(self) -> dict[str, int]:
        """How often each tool was called, the most used first.

        By its results or by the calls of it, whichever are more: not every source names it in both.
        """
        results: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        for name, count in self._rows(
            "SELECT m.tool_name, count(*) FROM messages m JOIN sessions s ON s.id = m.session_id"
            " WHERE {where} AND m.role = 'tool' AND m.tool_name IS NOT NULL AND m.copy_of IS NULL GROUP BY 1"
        ):
            results[str(name)] += count
        for (made,) in self._rows(
            "SELECT m.tool_calls FROM messages m JOIN sessions s ON s.id = m.session_id"
            " WHERE {where} AND m.role = 'assistant' AND m.tool_calls IS NOT NULL AND m.copy_of IS NULL"
        ):
            calls.update(_names(made))
        every = {name: max(results[name], calls[name]) for name in results | calls}
        return dict(sorted(every.items(), key=lambda each: (-each[1], each[0])))

    def activity(self, zone: tzinfo | None) -> tuple[dict[str, At], list[At], list[At]]:
        """By day, by weekday and by hour."""
        begun = self._quarters("SELECT s.started_us / 1000000 / 900, count(*) FROM sessions s WHERE {where}")
        said = self._quarters(
            "SELECT CAST(m.timestamp / 900 AS INTEGER), count(*) FROM messages m"
            " JOIN sessions s ON s.id = m.session_id WHERE {where} AND m.role IN ('user', 'assistant')"
            " AND m.copy_of IS NULL AND m.summary = 0 AND typeof(m.timestamp) IN ('real', 'integer')"
        )
        by: defaultdict[tuple[str, str | int], list[int]] = defaultdict(lambda: [0, 0])
        for which, quarters in enumerate((begun, said)):
            for quarter, count in quarters:
                moment = _moment(quarter * _QUARTER_S, zone)
                if moment is None:
                    continue
                for name, value in (
                    ("day", f"{moment:%Y-%m-%d}"), ("weekday", moment.weekday()), ("hour", moment.hour),
                ):  # fmt: skip
                    by[name, value][which] += count
        by_day = {str(value): At(*both) for (name, value), both in by.items() if name == "day"}
        weekdays = [At(*by["weekday", each]) for each in range(_WEEKDAYS)]
        hours = [At(*by["hour", each]) for each in range(_HOURS)]
        return dict(sorted(by_day.items())), weekdays, hours

    def _quarters(self, sql: str) -> list[tuple[int, int]]:
        return [(int(row[0]), int(row[1])) for row in self._rows(f"{sql} GROUP BY 1")]


def _add(to: Amounts, numbers: list[Any]) -> None:
    tokens_in, tokens_out, read, written, thoughts, calls, estimated, actual = numbers
    to.input_tokens += int(tokens_in)
    to.output_tokens += int(tokens_out)
    to.cache_read_tokens += int(read)
    to.cache_write_tokens += int(written)
    to.reasoning_tokens += int(thoughts)
    to.total_tokens += int(tokens_in + tokens_out + read + written)
    to.api_calls += int(calls)
    to.cost_usd += float(actual or estimated)


def short_name(model: str | None) -> str:
    """A model without the provider before it; "unknown" for none."""
    return (model or "").rpartition("/")[2] or "unknown"


def _names(tool_calls: object) -> Iterator[str]:
    try:
        made = json.loads(tool_calls) if isinstance(tool_calls, str | bytes) else None
    except (ValueError, RecursionError):
        return
    for each in made if isinstance(made, list) else ():
        function = each.get("function", each) if isinstance(each, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str) and name:
            yield name


def _moment(seconds: int, zone: tzinfo | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return None


def _number(value: object) -> float:
    """An amount; what a source holds there and is none counts nothing."""
    return value if isinstance(value, int | float) else 0


def _longest_streak(by_day: dict[str, At]) -> int:
    longest = run = 0
    before: date | None = None
    for each in sorted(day for day, at in by_day.items() if at.sessions):
        today = date.fromisoformat(each)
        run = run + 1 if before is not None and today - before == timedelta(days=1) else 1
        longest, before = max(longest, run), today
    return longest
