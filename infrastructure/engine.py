"""SessionEngine: every command on sessions, routes and titles, each one decision and one save."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from .commands.base import new_session_id
from .commands.compression import CompressionCommands
from .commands.erasure import Erased, ErasureCommands
from .commands.messages import MessageCommands
from .commands.routes import RouteCommands
from .commands.sessions import SessionCommands
from .commands.titles import TitleCommands
from .decisions import Saved
from .home import default_home

__all__ = ["Erased", "Saved", "SessionEngine", "new_session_id", "open_home"]


class SessionEngine(
    SessionCommands,
    MessageCommands,
    TitleCommands,
    CompressionCommands,
    RouteCommands,
    ErasureCommands,
):
    """Every write to a home, thread-safe, any number of processes on one home at once.

    A command is one decision and one save: durable on return, all or nothing. A lost race is decided
    again from fresh state.
    """


def open_home(
    path: Path | str | None = None,
    *,
    actor: str = "cli",
    synchronous: Literal["FULL", "NORMAL"] | None = None,
) -> SessionEngine:
    """Open the home at `path` (by default RETOLD_HOME, else ~/.retold) for reading and writing."""
    home = default_home() if path is None else Path(path).expanduser()
    return SessionEngine(home, actor=actor, synchronous=synchronous)
