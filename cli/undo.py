"""`retold undo`: takes a change back."""

from __future__ import annotations

from pathlib import Path

import click

from ..domain.errors import BadUsage
from ..domain.shell import shell_word
from .options import MOST, home_option, json_option, with_home
from .output import emit_json, plural
from .stream import put, say
from .writing import writing


@click.command()
@click.argument("position")
@home_option
@json_option
def undo(position: str, home: Path, as_json: bool) -> None:
    """Take a change back.

    POSITION is any event of it (120 or #120): what was saved together is undone together. Titles,
    archive, pins, ends, stops, resets, routes, rewinds, repairs and deletions can be undone, unless
    later events build on them: those are named. What was undone since does not build on it. An undo
    can be undone.
    """
    with writing(home, upkeep=False) as engine:
        done = engine.undo(position_of(position))
    if as_json:
        emit_json(
            {
                "undone": done.undone,
                "positions": done.positions,
                "sessions": done.sessions,
                "keys": done.keys,
                "left": done.left,
                "carried_into": done.carried,
            }
        )
        return
    first, last = done.undone[0], done.undone[-1]
    which = f"#{first}" if first == last else f"#{first}-{last}"
    put(f"Undone: {which} ({plural(len(done.undone), 'event')}), by #{done.positions[0]}.")
    say(done.left)
    say(
        [
            f"It was carried into {each} and stands there; with Hermes stopped, this takes it back there,"
            f" too: retold sessions repair-routing --into {shell_word(each)}{with_home(home)}"
            for each in done.carried
        ]
    )
    say([f"This takes the undo back: retold undo {done.positions[0]}{with_home(home)}"])


def position_of(text: str) -> int:
    """120 of "120" and of "#120".

    Raises:
        BadUsage: it is no position.
    """
    digits = text.strip().removeprefix("#")
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits[:20]) <= MOST:
        raise BadUsage(f"'{text}' is no position of an event", hint="retold log shows them, as #120")
    return int(digits)
