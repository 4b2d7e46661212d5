"""The session used last: of a terminal, else of a project folder, else of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from .base import Connection
from .listing import WORKSPACE, conversations
from .sessions import SessionLine

Scope: TypeAlias = Literal["terminal", "workspace", "all"]
TERMINAL_SOURCES: Final = ("cli", "tui", "claude", "codex")
"""Where a person sits at a terminal: what a chat or a scheduler began is gone on with by name only."""


class Latest(msgspec.Struct, frozen=True):
    """A session, and of what it is the last."""

    line: SessionLine
    scope: Scope


def latest(
    db: Connection, *, terminal: str | None = None, workspaces: Sequence[str] = (), only: bool = False
) -> Latest | None:
    """The conversation of a terminal that was in use last (REFERENCE.md 3), None where there is none.

    Args:
        terminal: whose sessions come first (the `chat_id` of a session of source cli).
        workspaces: names of the project folder whose sessions come next.
        only: no other scope than those that are named.
    """
    scopes: list[tuple[Scope, str, list[Any]]] = []
    if terminal is not None:
        scopes.append(("terminal", "s.chat_id = ?", [terminal]))
    if workspaces:
        marks = ",".join("?" * len(workspaces))
        scopes.append(("workspace", f"{WORKSPACE} IN ({marks})", list(workspaces)))
    if not only:
        scopes.append(("all", "1", []))
    sources = ",".join(f"'{each}'" for each in TERMINAL_SOURCES)
    for scope, where, values in scopes:
        line = used_last(db, f"{where} AND +s.source IN ({sources})", values)
        if line is not None:
            return Latest(line, scope)
    return None


def used_last(db: Connection, where: str, values: Sequence[Any] = ()) -> SessionLine | None:
    """The conversation in use last of those that pass `where`.

    What was said in a branch before it was begun keeps its time; who begins a branch uses it then.
    """
    first = next(conversations(db, where, values), None)
    if first is None:
        return None
    active = first.started_us if first.last_active_us is None else first.last_active_us
    begun = conversations(
        db, f"{where} AND +s.parent_kind = 'branch' AND +s.started_us > ?", [*values, active]
    )
    return max(begun, key=lambda each: (each.started_us, each.id), default=first)
