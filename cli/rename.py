"""`retold sessions rename`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import home_option, json_option, with_home
from .output import emit_json
from .stream import put, say
from .writing import writing

if TYPE_CHECKING:
    from ..infrastructure.decisions import Saved
    from ..infrastructure.engine import SessionEngine


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
        yielded = _yielded(engine, done)
    if as_json:
        fields = {"session_id": found, "title": now, "previous": before, "yielded": yielded}
        emit_json(fields | {"positions": done.positions})
        return
    if not done.positions:
        put(f"Session '{found}' is called so already: {now}")
        return
    put(f"Session '{found}' renamed to: {now}")
    say([f"It goes on from {each}, which had that title and has none now." for each in yielded])
    say([f"This takes it back: retold undo {done.position}{with_home(home)}"])


def _yielded(engine: SessionEngine, done: Saved) -> list[str]:
    """The older segments that gave their title up for it."""
    from ..domain.events import SessionTitled, session_stream

    if not done.positions:
        return []
    told = engine.projector.log.read(after=done.positions[0] - 1, upto=done.positions[-1])
    changed = {each.stream for each in told if isinstance(each.payload, SessionTitled)}
    return sorted(each.removeprefix("session:") for each in changed - {session_stream(done.session_id)})
