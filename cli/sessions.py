"""`retold sessions list`, `show`, `tree` and `stats`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ..projections.sessions import SessionLine
from .options import COUNT, at_option, home_option, json_option
from .output import Column, cell_width, emit_json, fit, iso_us, plural, relative_time, table, visible
from .stream import PLAIN_WIDTH, answering, is_terminal, put, say, size, terminal_width

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..infrastructure.reading import View
    from ..projections.listing import Listing

_REASONS = {
    "over_limit": ("over the limit", "over the limit"),
    "archived": ("archived", "archived"),
    "older_segments": ("older segment", "older segments"),
    "delegates": ("delegate", "delegates"),
    "children": ("other child", "other children"),
    "tool": ("of source tool", "of source tool"),
}


@click.command("list")
@click.option("--source", metavar="S", help="Only sessions of this source (telegram, cli, tool, …).")
@click.option("--limit", type=COUNT, default=20, show_default=True, help="At most so many.")
@click.option("--workspace", metavar="W", help="Only sessions whose project folder has W in its path.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Archived and child sessions too; and all of them, unless --limit is given.",
)
@home_option
@at_option
@json_option
def list_(
    home: Path,
    at: str | None,
    as_json: bool,
    source: str | None,
    limit: int,
    workspace: str | None,
    everything: bool,
) -> None:
    """List sessions by last activity.

    Each conversation is one row: its last segment, if it was continued. The footer counts what is
    not shown, and why.
    """
    from ..projections.listing import list_sessions, nothing_there

    by_default = click.get_current_context().get_parameter_source("limit") is ParameterSource.DEFAULT
    with answering(home, at) as view:
        listing = list_sessions(
            view.db,
            limit=None if everything and by_default else limit,
            source=source,
            workspace=workspace,
            everything=everything,
        )
        if as_json:
            rows = [summary(each, view) for each in listing.rows]
            emit_json({"sessions": rows, "not_shown": listing.not_shown})
        else:
            put(*_rows(listing, view))
            left_out = [plural(count, *_REASONS[name]) for name, count in listing.not_shown.items() if count]
            if left_out:
                from .paragraphs import wrap

                how = "a larger --limit" if everything else "--all"
                footer = f"Not shown: {', '.join(left_out)}. See them with {how}."
                width = terminal_width() if is_terminal() else PLAIN_WIDTH
                put("", *wrap(footer, width), err=not is_terminal())
        if not listing.rows and limit:
            say(nothing_there(view.db, source=source, workspace=workspace))


def summary(each: SessionLine, view: View) -> dict[str, object]:
    """A session as JSON shows it in a list."""
    return {
        "id": each.id,
        "title": each.title,
        "source": each.source,
        "started_at": iso_us(each.started_us),
        "last_active_at": None if each.last_active_us is None else iso_us(each.last_active_us),
        "message_count": each.message_count,
        "preview": each.preview,
        "archived": each.archived,
        "parent_id": each.parent_id,
        "end_reason": each.end_reason,
        "stale": _is_stale(each, view),
    }


def _is_stale(each: SessionLine, view: View) -> bool:
    from ..domain.retention import is_stale

    last_us = max(each.started_us, each.last_active_us or 0)
    return is_stale(each.end_reason, last_us, view.now_us, view.config.sessions.stale_after_days)


def _rows(listing: Listing, view: View) -> list[str]:
    rows, now_us = listing.rows, view.now_us
    if not rows:
        return ["No sessions to show." if any(listing.not_shown.values()) else "No sessions found."]
    cells = [
        (
            each.title or "—",
            each.preview or "—",
            relative_time(_last_active(each, now_us), now_us),
            each.source + (" (archived)" if each.archived else " (stale)" if _is_stale(each, view) else ""),
            each.id,
        )
        for each in rows
    ]
    title, preview = _widths(cells) if is_terminal() else (None, None)
    if title is not None and title < _LEAST_TITLE:
        return [line for each in cells for line in _stacked(each, terminal_width())]
    columns = [
        Column("Title", title, most=_WIDEST_PADDED),
        Column("Preview", preview, most=_WIDEST_PADDED),
        Column("Last Active"),
        Column("Source", most=_WIDEST_PADDED),
        Column("ID"),
    ]
    if preview == 0:
        columns.pop(1)
        names = [each[1] if each[0] == "—" else each[0] for each in cells]
        cells = [(name, *each[2:]) for name, each in zip(names, cells, strict=True)]  # type: ignore[misc] # one column fewer
    return list(table(cells, columns))


_LEAST_TITLE = 8
_WIDEST_PADDED = 64
"""Piped, a longer cell is whole and the others do not wait for it."""


def _stacked(cells: tuple[str, str, str, str, str], width: int) -> Iterator[str]:
    """A session where no table has room: what it is about, and below it its id, whole, and the rest."""
    title, preview, when, source, session_id = cells
    yield fit(preview if title == "—" else title, width).rstrip()
    line = f"  {visible(session_id)}"
    for each in (when, source):
        if cell_width(line) + 2 + cell_width(each) <= width:
            line += f"  {visible(each)}"
    yield line


def _last_active(each: SessionLine, now_us: int) -> int:
    """When it was used last; no activity counts as later than it was recorded, but a start may be."""
    if each.started_us > now_us:
        return each.started_us
    return each.last_active_us or each.started_us


def _widths(cells: list[tuple[str, str, str, str, str]]) -> tuple[int, int]:
    """Cells for title and preview: what the other columns leave, since an id is never cut."""
    taken = sum(max(len(name), *(len(row[at]) for row in cells)) for at, name in _FIXED)
    room = terminal_width() - taken - 2 * 4
    title = min(32, max(12, room * 2 // 5))
    preview = min(40, room - title)
    return (title, preview) if preview >= 10 else (room + 2, 0)


_FIXED = ((2, "Last Active"), (3, "Source"), (4, "ID"))


@click.command()
@click.argument("session")
@click.option("--first", type=COUNT, metavar="N", help="Only the first N messages.")
@click.option("--last", type=COUNT, metavar="N", help="Only the last N messages.")
@click.option("--after", type=COUNT, metavar="ID", help="Only messages after this one.")
@click.option("--before", type=COUNT, metavar="ID", help="Only messages before this one.")
@click.option("--full", is_flag=True, help="Whole tool calls and results, not one line each.")
@home_option
@at_option
@json_option
def show(
    home: Path,
    at: str | None,
    as_json: bool,
    session: str,
    first: int | None,
    last: int | None,
    after: int | None,
    before: int | None,
    full: bool,
) -> None:
    """Show one session with its messages.

    SESSION is an id, the beginning of one, or a title: of several with one title (plan, plan #2)
    the newest is shown. A page costs what it shows: --last 50, then --last 50 --before ID.
    """
    from ..domain.errors import BadUsage
    from ..projections.find import find_session
    from ..projections.sessions import messages, page
    from . import transcript

    if first is not None and last is not None:
        raise BadUsage("--first and --last exclude each other", hint="give one of them")
    with answering(home, at) as view:
        found = page(view.db, find_session(view.db, session))
        said = messages(view.db, found.line.id, first=first, last=last, after=after, before=before)
        if as_json:
            transcript.emit(summary(found.line, view), found, said)
        else:
            for each in transcript.lines(found, said, full=full):
                put(each)


@click.command()
@click.argument("session")
@home_option
@at_option
@json_option
def tree(home: Path, at: str | None, as_json: bool, session: str) -> None:
    """Show where a session came from and what came of it.

    SESSION is an id, the beginning of one, or a title.
    """
    from ..projections.find import find_session
    from ..projections.tree import tree as walk
    from . import branches

    with answering(home, at) as view:
        asked = find_session(view.db, session)
        nodes = walk(view.db, asked)
        if as_json:
            branches.emit(asked, nodes)
        else:
            width = terminal_width() if is_terminal() else None
            for each in branches.lines(asked, nodes, width):
                put(each)


@click.command()
@home_option
@at_option
@json_option
def stats(home: Path, at: str | None, as_json: bool) -> None:
    """Count sessions and messages, by source.

    Everything counts: archived sessions, children, and messages that were compacted or rewound.
    """
    from ..projections.sessions import counts

    with answering(home, at) as view:
        sources = counts(view.db)
        events = view.known_at
        log_bytes, state_bytes = _on_disk(view.log.path), _on_disk(view.home.state.path)
    sessions, messages = sum(each.sessions for each in sources), sum(each.messages for each in sources)
    if as_json:
        emit_json(
            {
                "sessions": sessions,
                "messages": messages,
                "sources": sources,
                "log": {"events": events, "size_bytes": log_bytes, "size": size(log_bytes)},
                "projections": {"size_bytes": state_bytes, "size": size(state_bytes)},
            }
        )
        return
    put(f"Total sessions: {sessions:,}", f"Total messages: {messages:,}")
    for each in sources:
        said = plural(each.messages, "message")
        put(f"  {each.source}: {plural(each.sessions, 'session')}, {said}")
    put(f"Log: {size(log_bytes)} ({plural(events, 'event')})", f"Projections: {size(state_bytes)}")


def _on_disk(path: Path) -> int:
    """Bytes of a database with its write-ahead log."""
    import contextlib

    total = 0
    for each in (path, path.with_name(path.name + "-wal")):
        with contextlib.suppress(FileNotFoundError):
            total += each.stat().st_size
    return total
