"""`retold where`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..domain.shell import shell_word
from .options import at_option, home_option, json_option
from .output import cell_width, emit_json
from .stream import answering, bold, is_terminal, put, terminal_width

if TYPE_CHECKING:
    from ..projections.whereabouts import Standing, Whereabouts

DEFAULT_LIMIT: Final = 20
_NAMES: Final = {
    "list": "sessions list",
    "list_all": "sessions list --all",
    "search": "search",
    "latest": "retold -c",
    "chat": "its chat",
}
_WHY: Final = {
    "archived": "it is archived; retold sessions unarchive {id} shows it again",
    "older_segments": "it is an older segment of a conversation, which is shown as {instead}",
    "delegates": "it is a delegate of {parent}; --all shows it",
    "children": "it is a child of {parent}; --all shows it",
    "tool": "it is of source tool; --source tool shows it",
    "source": "it is of source {source}, which is no terminal; retold -r {id} goes on with it",
    "unused": "{instead} was used later; retold -r {id} goes on with it",
    "no_key": "it has no key, so no chat leads to it",
    "leads_nowhere": "{key} leads nowhere",
    "leads_elsewhere": "{key} leads to {instead}",
}


@click.command()
@click.argument("session")
@home_option
@at_option
@json_option
def where(session: str, home: Path, at: str | None, as_json: bool) -> None:
    """Say which lists hide a session, and why.

    SESSION is an id, the beginning of one, or a title.
    """
    from ..projections.find import find_session
    from ..projections.whereabouts import whereabouts

    with answering(home, at) as view:
        session_id = find_session(view.db, session, exact=True)
        found = whereabouts(view.db, session_id)
    if as_json:
        emit_json(
            {
                "session_id": found.session_id,
                "title": found.title,
                "source": found.source,
                "places": [
                    {
                        "place": each.place,
                        "shown": each.shown,
                        "why": each.why,
                        "session_id": each.instead,
                        "rank": each.rank,
                    }
                    for each in found.standings
                ],
            }
        )
        return
    put(bold(f"{found.title or '(no title)'}  {found.session_id}"))
    width = max(map(len, _NAMES.values()))
    for each in found.standings:
        for line in _told(f"  {_NAMES[each.place]:<{width}}  ", _words(each, found)):
            put(line)


def _told(lead: str, words: str) -> Iterator[str]:
    if not is_terminal():
        yield lead + words
        return
    from .paragraphs import wrap

    first, *more = wrap(words, max(20, terminal_width() - cell_width(lead)))
    yield lead + first
    yield from (" " * cell_width(lead) + line for line in more)


def _words(each: Standing, found: Whereabouts) -> str:
    if each.shown:
        return _shown(each)
    why = _WHY[each.why or ""].format(
        id=shell_word(found.session_id),
        instead=each.instead,
        parent=found.parent or "another session",
        source=found.source,
        key=found.key,
    )
    if each.instead is not None and each.why not in ("older_segments", "unused", "leads_elsewhere"):
        why = f"its conversation goes on as {each.instead}, and that is hidden: {each.why}"
    place = f" ({_row(each.rank)})" if each.rank is not None else ""
    return f"hidden: {why}{place}"


def _shown(each: Standing) -> str:
    if each.place == "list":
        return f"shown, {_row(each.rank)}"
    if each.place == "search":
        return "found"
    if each.place == "chat":
        return "leads here"
    if each.place == "latest":
        return "goes on with it" + (f", as {each.instead}" if each.instead else "")
    return "shown"


def _row(rank: int | None) -> str:
    if rank is None:
        return "in no row"
    if rank > DEFAULT_LIMIT:
        return f"row {rank:,}, past the {DEFAULT_LIMIT} that are shown: --limit {rank}"
    return f"row {rank:,}"
