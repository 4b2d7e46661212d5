"""`retold sessions rename`."""

from __future__ import annotations

from pathlib import Path

import click

from .options import home_option, json_option, with_home
from .output import emit_json
from .stream import put, say
from .writing import writing


@click.command()
@click.argument("session")
@click.argument("title", nargs=-1, required=True)
@home_option
@json_option
def rename(session: str, title: tuple[str, ...], home: Path, as_json: bool) -> None:
    """Set or change a session's title.

    SESSION is an id, the beginning of one, or a title. The words of the new title need no quotes; put
    -- before one that begins with a dash.
    """
    from ..projections.find import find_session

    with writing(home) as engine:
        found = find_session(engine.state.reader(), session, exact=True)
        before = engine.session(found).title
        done = engine.title_session(found, " ".join(title))
        now = engine.session(found).title
    if as_json:
        emit_json({"session_id": found, "title": now, "previous": before, "positions": done.positions})
        return
    if not done.positions:
        put(f"Session '{found}' is called so already: {now}")
        return
    put(f"Session '{found}' renamed to: {now}")
    say([f"This takes it back: retold undo {done.position}{with_home(home)}"])
