"""`retold sessions prune`, `archive`, `unarchive`, `pin` and `unpin`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from .bulk_run import Wish, carry_out, included
from .filters import filter_options, is_bare
from .options import home_option, json_option

PRUNED_AFTER: Final = "90"
"""Days without activity after which `prune` without any filter takes a session (REFERENCE.md 4.4)."""


def _bulk(command: Any) -> Any:
    command = click.option("--dry-run", is_flag=True, help="Only show what it would do.")(command)
    command = click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)
    return filter_options(home_option(json_option(command)))


@click.command()
@click.option("--include-archived", is_flag=True, help="Archived ones, too.")
@click.option("--include-pinned", is_flag=True, help="Pinned ones, too.")
@click.option("--now", is_flag=True, help="Erase them at once; nothing brings them back.")
@click.option("--reason", default="pruned", show_default=True, metavar="TEXT", help="Why; kept on record.")
@_bulk
def prune(
    home: Path,
    as_json: bool,
    dry_run: bool,
    yes: bool,
    include_archived: bool,
    include_pinned: bool,
    now: bool,
    reason: str,
    **given: Any,
) -> int:
    """Delete the ended sessions that pass every filter.

    Without a filter: those that were last active 90 days ago or earlier. A conversation that was
    compressed goes only if all of it matches, and delegates go with their parent. What goes can be
    brought back with `retold sessions undelete` for seven days (sessions.erase_after).
    """
    if is_bare(given):
        given = given | {"older_than": PRUNED_AFTER}
    include = included(archived=include_archived, pinned=include_pinned)
    wish = Wish("prune", given, (), include, reason, now, dry_run, yes)
    return carry_out(home, wish, as_json=as_json)


@click.command()
@click.argument("session", nargs=-1, metavar="[SESSION]...")
@click.option("--include-pinned", is_flag=True, help="Pinned ones that match, too.")
@_bulk
def archive(
    home: Path,
    as_json: bool,
    session: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    include_pinned: bool,
    **given: Any,
) -> int:
    """Hide conversations from lists; search still finds them.

    Name sessions by id, the beginning of one, or title, or give filters: then those that ended and
    pass every filter. A conversation is archived as a whole.
    """
    include = included(archived=True, pinned=include_pinned)
    wish = Wish("archive", given, session, include, dry_run=dry_run, yes=yes)
    return carry_out(home, wish, as_json=as_json)


@click.command()
@click.argument("session", nargs=-1, metavar="[SESSION]...")
@_bulk
def unarchive(
    home: Path, as_json: bool, session: tuple[str, ...], dry_run: bool, yes: bool, **given: Any
) -> int:
    """Show archived conversations in lists again.

    Name sessions by id, the beginning of one, or title, or give filters.
    """
    return carry_out(home, Wish("unarchive", given, session, dry_run=dry_run, yes=yes), as_json=as_json)


@click.command()
@click.argument("session", nargs=-1, metavar="[SESSION]...")
@_bulk
def pin(home: Path, as_json: bool, session: tuple[str, ...], dry_run: bool, yes: bool, **given: Any) -> int:
    """Keep conversations from every bulk removal.

    Name sessions by id, the beginning of one, or title, or give filters.
    """
    return carry_out(home, Wish("pin", given, session, dry_run=dry_run, yes=yes), as_json=as_json)


@click.command()
@click.argument("session", nargs=-1, metavar="[SESSION]...")
@_bulk
def unpin(home: Path, as_json: bool, session: tuple[str, ...], dry_run: bool, yes: bool, **given: Any) -> int:
    """Let bulk removals have conversations again.

    Name sessions by id, the beginning of one, or title, or give filters.
    """
    return carry_out(home, Wish("unpin", given, session, dry_run=dry_run, yes=yes), as_json=as_json)
