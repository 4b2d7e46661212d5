"""SessionEngine: every command on sessions, routes and titles, each one decision and one save."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from .commands.base import new_session_id
from .commands.branches import BranchCommands
from .commands.compression import CompressionCommands
from .commands.conflicts import ConflictCommands
from .commands.context import ContextCommands
from .commands.erasure import Erased
from .commands.gateway import GatewayCommands
from .commands.handoffs import HandoffCommands
from .commands.maintenance import MaintenanceCommands
from .commands.messages import MessageCommands
from .commands.reversal import ReversalCommands
from .commands.routes import RouteCommands
from .commands.sessions import SessionCommands
from .commands.settings import SettingCommands
from .commands.titles import TitleCommands
from .decisions import Saved
from .home import default_home

__all__ = ["Erased", "Saved", "SessionEngine", "new_session_id", "open_home"]


class SessionEngine(
    SessionCommands,
    MessageCommands,
    TitleCommands,
    SettingCommands,
    ContextCommands,
    BranchCommands,
    CompressionCommands,
    RouteCommands,
    GatewayCommands,
    MaintenanceCommands,
    HandoffCommands,
    ConflictCommands,
    ReversalCommands,
):
    """Every write to a home, thread-safe, any number of processes on one home at once.

    A command is one decision and one save: durable on return, all or nothing. A lost race is decided
    again from fresh state.

    Times (`at_us`) are whole microseconds since the Unix epoch, UTC, by default now; a message's id is the
    position of its event. Beside the errors of its own, which stand under `Raises`, a command may meet those
    that any can, and has then written nothing: NoSuchSession, DeletedSession; BadUsage, BadTime and
    BadIdentifier, for what is no text, time or id; EngineClosed, once the engine was closed; VersionConflict
    and StoreBusy, once trying again took too long; NoRoom, FileReplaced, LogDamaged, NeedsUpgrade,
    ProjectionDamaged. Each is a RetoldError with `kind`, `message`, `hint` and `exit_code`.
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
