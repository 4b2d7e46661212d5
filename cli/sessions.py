"""`retold sessions list`, `show`, `tree` and `stats`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ..projections.sessions import SessionLine
from .options import COUNT, at_option, home_option, json_option
from .output import emit_json, iso_us, plural
from .stream import PLAIN_WIDTH, answering, is_terminal, put, say, size, terminal_width

if TYPE_CHECKING:
    from collections.abc import Iterable

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
@click.option("--offset", type=COUNT, default=0, help="Pass over so many.")
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
    offset: int,
    workspace: str | None,
    everything: bool,
) -> None:
    """List sessions by last activity.

    Each conversation is one row: its last segment, if it was continued. What is pinned comes first. The
    footer counts what is not shown, and why; retold where says it of one session.
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
            offset=offset,
        )
        if as_json:
            rows = [summary(each, view) for each in listing.rows]
            emit_json({"sessions": rows, "not_shown": listing.not_shown})
        else:
            put(*_rows(listing, view, asked=workspace is not None))
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
        "pinned": each.pinned,
        "workspace": each.workspace,
        "stale": _is_stale(each, view),
    }


def _is_stale(each: SessionLine, view: View) -> bool:
    from ..domain.retention import is_stale

    last_us = max(each.started_us, each.last_active_us or 0)
    return is_stale(each.end_reason, last_us, view.now_us, view.config.sessions.stale_after_days)


def _rows(listing: Listing, view: View, *, asked: bool) -> Iterable[str]:
    from . import listed

    rows = listing.rows
    if not rows:
        return ["No sessions to show." if any(listing.not_shown.values()) else "No sessions found."]
    return listed.rows(
        [listed.cells_of(each, view.now_us, stale=_is_stale(each, view)) for each in rows],
        titles=any(each.title for each in rows),
        workspaces=asked or any(each.workspace for each in rows),
        asked=asked,
    )


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
    from ..projections.sessions import archived_count, counts

    with answering(home, at) as view:
        sources = counts(view.db)
        archived = archived_count(view.db)
        events = view.known_at
        log_bytes, state_bytes = _on_disk(view.log.path), _on_disk(view.home.state.path)
    sessions, messages = sum(each.sessions for each in sources), sum(each.messages for each in sources)
    if as_json:
        emit_json(
            {
                "sessions": sessions,
                "messages": messages,
                "archived": archived,
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
    put(
        f"Database size: {(log_bytes + state_bytes) / 1e6:,.1f} MB",
        f"Archived: {plural(archived, 'session')}",
    )


def _on_disk(path: Path) -> int:
    """Bytes of a database with its write-ahead log."""
    import contextlib

    total = 0
    for each in (path, path.with_name(path.name + "-wal")):
        with contextlib.suppress(FileNotFoundError):
            total += each.stat().st_size
    return total
