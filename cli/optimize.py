"""`retold sessions optimize`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import home_option, json_option
from .output import emit_json
from .stream import put, say, size
from .writing import writing

if TYPE_CHECKING:
    from ..infrastructure.engine import SessionEngine

EXIT_NOT_DONE = 1


@click.command()
@home_option
@json_option
def optimize(home: Path, as_json: bool) -> int:
    """Tidy the search index, and give space back.

    What `retold maintain` does at its end, at any time: it deletes and erases nothing. Space is given
    back where more than a quarter of the file is free.
    """
    from ..infrastructure.maintenance import optimise_index, vacuum

    with writing(home) as engine:
        before = _bytes(engine.state.path)
        merged = optimise_index(engine.projector)
        if not merged:
            _refuse_where_nothing_can_be_written(engine)
        vacuum(engine.projector)
        after = _bytes(engine.state.path)
    if as_json:
        emit_json({"optimised": merged, "before_bytes": before, "after_bytes": after})
    else:
        if merged:
            put("Optimized the search index.")
        else:
            say(["The search index could not be tidied: another process writes it."])
        reclaimed = f" (reclaimed {size(before - after)})" if after < before else ""
        put(f"Projections: {size(before)} -> {size(after)}{reclaimed}")
    return 0 if merged else EXIT_NOT_DONE


def _refuse_where_nothing_can_be_written(engine: SessionEngine) -> None:
    """A full disk and a folder that cannot be written are no other process.

    Raises:
        NoRoom: it is that.
    """
    from ..domain.errors import StoreBusy

    with contextlib.suppress(StoreBusy), engine.projector.transaction(0) as db:
        db.execute("UPDATE checkpoints SET position = position")


def _bytes(path: Path) -> int:
    return path.stat().st_size
