"""`retold search`: messages by their words, one hit a conversation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..domain.shell import shell_word
from .options import COUNT, at_option, home_option, json_option, with_home
from .output import cell_width, emit_json, fit, iso_us, plural, relative_time, visible
from .stream import PLAIN_WIDTH, answering, bold, has_color, is_terminal, put, say, terminal_width

if TYPE_CHECKING:
    from ..projections.search import Hit, SearchResult, Sort

_MARKS = (">>>", "<<<")
_BOLD = ("\x1b[1m", "\x1b[0m")
_AROUND = len("  assistant: ……")
_LEAST_TITLE = 20


@click.command(context_settings={"ignore_unknown_options": True})  # `--force` is a fine thing to look for
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=COUNT, default=10, show_default=True, help="At most so many.")
@click.option("--offset", type=COUNT, default=0, metavar="N", help="Pass over the first N.")
@click.option("--role", "roles", multiple=True, metavar="R", help="Only what this role said; repeatable.")
@click.option("--source", metavar="S", help="Only sessions of this source.")
@click.option(
    "--sort",
    type=click.Choice(["relevance", "newest", "oldest"]),
    default="relevance",
    show_default=True,
    help="What comes first.",
)
@click.option("--all", "hidden", is_flag=True, help="In the sessions of delegates and tools, too.")
@home_option
@at_option
@json_option
def search(
    home: Path,
    at: str | None,
    as_json: bool,
    query: tuple[str, ...],
    limit: int,
    offset: int,
    roles: tuple[str, ...],
    source: str | None,
    sort: Sort,
    hidden: bool,
) -> None:
    """Find messages by their words.

    Every word must be there; OR, NOT and "a phrase" work, a star at the end means "begins with",
    and all else is taken as it is typed. Each conversation gives its best hit. Archived sessions
    are searched; what was undone is found and marked.
    """
    from ..projections.search import search as find

    _refuse_slips(query)
    marks = _BOLD if has_color() and not as_json else _MARKS
    line = terminal_width() if is_terminal() else PLAIN_WIDTH
    with answering(home, at, settle=True) as view:
        result = find(
            view.db,
            " ".join(query),
            limit=limit,
            offset=offset,
            roles=roles,
            source=source,
            sort=sort,
            hidden=hidden,
            marks=marks,
            width=160 if as_json else max(8, line - _AROUND - (0 if marks is _BOLD else len("".join(marks)))),
        )
        if as_json:
            emit_json({"hits": [_as_json(each) for each in result.hits], "ranked_over": result.ranked_over})
        else:
            _tell(result, " ".join(query), offset, view.now_us, with_home(home))
        say(result.notes)


def _refuse_slips(query: tuple[str, ...]) -> None:
    """A word that is nearly an option of this command is a slip, not a thing to look for."""
    if not any(word.startswith("--") for word in query):
        return
    from difflib import get_close_matches

    ctx = click.get_current_context()
    known = [name for param in ctx.command.params for name in param.opts if name.startswith("--")]
    for word in query:
        near = get_close_matches(word.partition("=")[0], known, cutoff=0.85) if word.startswith("--") else []
        if near:
            raise click.NoSuchOption(word, possibilities=near, ctx=ctx)


def _as_json(hit: Hit) -> dict[str, object]:
    return {
        "session_id": hit.session_id,
        "message_id": hit.message_id,
        "role": hit.role,
        "snippet": hit.snippet,
        "title": hit.title,
        "source": hit.source,
        "at": None if hit.at_us is None else iso_us(hit.at_us),
        "visibility": hit.visibility,
        "more": hit.more,
    }


def _tell(result: SearchResult, query: str, offset: int, now_us: int, there: str) -> None:
    if not result.hits:
        where = f" beyond the first {offset}" if offset and result.conversations else ""
        put(f"Nothing was found for '{visible(query)}'{where}.")
        return
    for index, hit in enumerate(result.hits):
        if index:
            put("")
        when = relative_time(hit.at_us, now_us)
        mark = "" if hit.visibility == "live" else f"  [{hit.visibility}]"
        put(_heading(hit.title or "—", f"  {when}  {hit.source}", f"  {hit.session_id}", mark))
        put(f"  {visible(hit.role)}: {hit.snippet}")
        more = f"  (and {plural(hit.more, 'further hit')} there)" if hit.more else ""
        put(f"  retold sessions show {shell_word(hit.session_id)}{there}{more}")
    left = result.conversations - offset - len(result.hits)
    if left > 0:
        next_page = f"--offset {offset + len(result.hits)}"
        put("", f"{plural(left, 'more conversation')}: {next_page}", err=not is_terminal())


def _heading(title: str, where: str, session_id: str, mark: str) -> str:
    """Title, time, source and id on one line of a terminal; the command below has the id, too."""
    where, session_id = visible(where), visible(session_id)
    if not is_terminal():
        return f"{bold(title)}{where}{session_id}{mark}"
    room = terminal_width() - cell_width(where) - cell_width(mark)
    if min(cell_width(title), _LEAST_TITLE) + cell_width(session_id) > room:
        session_id = ""
    return f"{bold(fit(title, max(1, room - cell_width(session_id))).rstrip())}{where}{session_id}{mark}"
