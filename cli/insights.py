"""`retold insights`: what was used, of what and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from .options import at_option, home_option, json_option
from .output import Column, cell_width, emit_json, fit, iso_us, plural, table, visible
from .paragraphs import fold, wrap
from .stream import PLAIN_WIDTH, answering, bold, is_terminal, put, say, terminal_width

if TYPE_CHECKING:
    from datetime import tzinfo

    from ..projections.insights import At, Insights

_MOST_DAYS: Final = 36_500
_TOOLS, _MODELS = 15, 15
_BAR: Final = "█▏▎▍▌▋▊▉"
_WIDEST_BAR, _LEAST_BAR, _LEAST_NAME = 30, 6, 10
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LAST_DAYS: Final = 14
_FOUND_LATER: Final = "what an import found later, without a time, is not counted"


@click.command()
@click.option(
    "--days",
    type=click.IntRange(1, _MOST_DAYS),
    default=30,
    show_default=True,
    help="Of the sessions that began in the last so many days.",
)
@click.option("--source", metavar="S", help="Only sessions of this source (telegram, cli, …).")
@home_option
@at_option
@json_option
def insights(home: Path, at: str | None, as_json: bool, days: int, source: str | None) -> None:
    """Show how much was used, of what and when.

    Tokens, cost, models, sources and tools of the sessions that began in the last days, and at which hours
    and on which days people and agents were at it. Costs are those that were recorded.
    """
    from ..projections.insights import insights as gather
    from ..projections.listing import nothing_there

    with answering(home, at) as view:
        zone = view.config.zone
        found = gather(view.db, now_us=view.now_us, days=days, source=source, zone=zone)
        if as_json:
            emit_json(_fields(found, days, source))
        elif not found.total.sessions:
            of = f" of source {visible(source)}" if source is not None else ""
            put(f"No sessions began in the last {plural(days, 'day')}{of}.")
        else:
            put(*_lines(found, days, source, zone))
        if view.as_of is not None and found.unused:
            which = plural(found.unused, "session")
            say([f"of {which} with answers no tokens and costs are on record as of then; {_FOUND_LATER}"])
        if not found.total.sessions:
            say(nothing_there(view.db, source=source))


def _fields(found: Insights, days: int, source: str | None) -> dict[str, object]:
    def at(each: At) -> dict[str, object]:
        return {"sessions": each.sessions, "messages": each.messages}

    return {
        "days": days,
        "source": source,
        "since_at": iso_us(found.since_us),
        "until_at": iso_us(found.until_us),
        "total": found.total,
        "user_messages": found.user_messages,
        "models": [{"model": name} | msgspec.structs.asdict(each) for name, each in found.models.items()],
        "sources": [{"source": name} | msgspec.structs.asdict(each) for name, each in found.sources.items()],
        "tools": [{"tool": name, "calls": count} for name, count in found.tools.items()],
        "by_day": [{"day": day} | at(each) for day, each in found.by_day.items()],
        "by_weekday": [
            {"weekday": day} | at(each) for day, each in zip(_WEEKDAYS, found.by_weekday, strict=True)
        ],
        "by_hour": [{"hour": hour} | at(each) for hour, each in enumerate(found.by_hour)],
        "longest_streak": found.longest_streak,
    }


# --- words ----------------------------------------------------------------------------------------


def _lines(found: Insights, days: int, source: str | None, zone: tzinfo | None) -> Iterator[str]:
    of = f", source {visible(source)}" if source is not None else ""
    yield bold(f"The last {plural(days, 'day')}{of}")
    yield from _overview(found)
    if found.models:
        yield from _section("Models")
        yield from _models(found)
    yield from _section("Sources")
    yield from _sources(found)
    if found.tools:
        yield from _section("Tools")
        yield from _bars(list(found.tools.items())[:_TOOLS], sum(found.tools.values()))
        yield from _more(len(found.tools) - _TOOLS, "tool")
    yield from _section(f"Messages by weekday ({_zone_name(zone)})")
    yield from _activity(list(zip(_WEEKDAYS, found.by_weekday, strict=True)))
    yield from _section("Messages by hour")
    yield from _activity([(f"{hour:02d}:00", each) for hour, each in enumerate(found.by_hour)])
    yield from _section("Messages by day")
    yield from _activity(list(found.by_day.items())[-_LAST_DAYS:])
    yield from _more(len(found.by_day) - _LAST_DAYS, "earlier day")


def _zone_name(zone: tzinfo | None) -> str:
    return str(zone) if zone is not None else "local time"


def _section(name: str) -> Iterator[str]:
    yield ""
    yield from map(bold, wrap(name, terminal_width()) if is_terminal() else [name])


def _overview(found: Insights) -> Iterator[str]:
    total = found.total
    facts = [
        ("sessions", f"{total.sessions:,}"),
        ("messages", f"{total.messages:,} live, {found.user_messages:,} of users"),
        ("tool calls", f"{total.tool_calls:,}"),
        ("tokens", f"{total.total_tokens:,}: {total.input_tokens:,} in, {total.output_tokens:,} out"),
    ]
    if total.cache_read_tokens or total.cache_write_tokens:
        facts.append(("cached", f"{total.cache_read_tokens:,} read, {total.cache_write_tokens:,} written"))
    facts.append(("cost", f"${total.cost_usd:,.2f} on record"))
    active = sum(1 for each in found.by_day.values() if each.sessions)
    row = f", {found.longest_streak:,} in a row at best" if found.longest_streak > 1 else ""
    facts.append(("active", f"on {plural(active, 'day')}{row}"))
    for name, value in facts:
        line = f"  {name:<10}  {value}"
        yield from fold(line, terminal_width(), indent=14) if is_terminal() else [line]


def _models(found: Insights) -> Iterable[str]:
    rows = [
        (
            name,
            f"{each.sessions:,}",
            f"{each.total_tokens:,}",
            f"${each.cost_usd:,.2f}",
            f"{each.api_calls:,}",
        )
        for name, each in list(found.models.items())[:_MODELS]
    ]
    names = ("Model", "Sessions", "Tokens", "Cost", "API calls")
    yield from _table(rows, names)
    yield from _more(len(found.models) - _MODELS, "model")


def _sources(found: Insights) -> Iterable[str]:
    rows = [
        (name, f"{each.sessions:,}", f"{each.messages:,}", f"{each.total_tokens:,}")
        for name, each in found.sources.items()
    ]
    yield from _table(rows, ("Source", "Sessions", "Messages", "Tokens"))


def _table(rows: Sequence[tuple[str, ...]], names: tuple[str, ...]) -> Iterator[str]:
    """A table two cells in; on a terminal the first column is what the others leave; the last go first."""
    widths = [max(cell_width(row[at]) for row in (names, *rows)) for at in range(len(names))]
    if is_terminal():
        while len(widths) > 1 and terminal_width() - sum(widths[1:]) - 2 * len(widths) < _LEAST_NAME:
            widths.pop()
        widths[0] = min(widths[0], terminal_width() - sum(widths[1:]) - 2 * len(widths))
    columns = [
        Column(name, width, right=at > 0) for at, (name, width) in enumerate(zip(names, widths, strict=False))
    ]
    yield from (f"  {line}" for line in table([row[: len(widths)] for row in rows], columns))


def _bars(rows: Sequence[tuple[str, int]], total: int) -> Iterator[str]:
    percent = [(name, count, f"{count:,}  {100 * count / total:.1f} %") for name, count in rows]
    yield from _drawn(percent)


def _activity(rows: Sequence[tuple[str, At]]) -> Iterator[str]:
    if rows:
        yield from _drawn([(name, each.messages, _both(each)) for name, each in rows])


def _both(each: At) -> str:
    begun = f", {plural(each.sessions, 'session')} begun" if each.sessions else ""
    return f"{each.messages:,}{begun}"


def _drawn(rows: Sequence[tuple[str, int, str]]) -> Iterator[str]:
    """A name, a bar and what it stands for a line, within the width of the terminal."""
    width = terminal_width() if is_terminal() else PLAIN_WIDTH
    most = max(count for _, count, _ in rows)
    words = max(cell_width(said) for _, _, said in rows)
    name_width = min(max(cell_width(name) for name, _, _ in rows), max(8, width // 3))
    room = min(_WIDEST_BAR, width - name_width - words - 6)
    for name, count, said in rows:
        bar = fit(_bar(count, most, room), room) + "  " if room >= _LEAST_BAR else ""
        yield f"  {fit(name, name_width)}  {bar}{said}".rstrip()


def _bar(count: int, most: int, cells: int) -> str:
    """So long as its part of the most, to an eighth of a cell; the least there is can be seen."""
    if count <= 0 or cells <= 0:
        return ""
    eighths = max(1, round(count / most * cells * 8))
    whole, rest = divmod(eighths, 8)
    return _BAR[0] * whole + (_BAR[rest] if rest else "")


def _more(count: int, what: str) -> Iterator[str]:
    if count > 0:
        yield f"  and {plural(count, f'more {what}')}"
