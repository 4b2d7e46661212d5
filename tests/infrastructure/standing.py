"""How a home stands, for tests that put it back: its rows without the places where events of theirs lie."""

from __future__ import annotations

from typing import Any

from retold.infrastructure.engine import SessionEngine

_PLACES = {"version", "ended_position", "identity_position", "rewind_count", "position", "at_us", "at_kind"}
"""Where in the log something was told, and how often something was taken back: no undo takes that back."""
_ROUTE = {"previous", "cause"}
"""Why a route stands: an undo says that it was one."""
_TABLES = {"sessions": "id", "messages": "id", "edges": "child", "routes": "key"}


def standing(engine: SessionEngine, titles: tuple[str, ...] = ()) -> dict[str, list[dict[str, Any]]]:
    """Rows by table, in order; and who holds each of `titles`."""
    engine.projector.catch_up()
    found: dict[str, list[dict[str, Any]]] = {}
    for table, key in _TABLES.items():
        db = engine.state.reader()
        rows = db.execute(f"SELECT * FROM {table} ORDER BY {key}").fetchall()
        names = [str(name) for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
        left_out = _PLACES | (_ROUTE if table == "routes" else set())
        found[table] = [{n: v for n, v in zip(names, row, strict=True) if n not in left_out} for row in rows]
    there = {each["id"] for each in found["sessions"]}
    found["edges"] = [each for each in found["edges"] if each["child"] in there]
    found["titles"] = [{title: engine.claim(title).holder for title in titles}]
    return found
