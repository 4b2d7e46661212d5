"""The front door: what a program that embeds Retold imports, loaded only when it is used."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` alone costs most of what importing this package may cost
if TYPE_CHECKING:
    from .domain.errors import (
        Ambiguous,
        BadConfig,
        BadIdentifier,
        BadTime,
        BadTitle,
        BadUsage,
        BuiltOn,
        BytesRefused,
        ChangedMeanwhile,
        DeletedSession,
        Draining,
        EditBeginsNothing,
        EngineClosed,
        FileReplaced,
        HandoffRefused,
        IdempotencyMismatch,
        LogDamaged,
        NeedsUpgrade,
        NoHomeChannel,
        NoRoom,
        NoSuchChat,
        NoSuchHome,
        NoSuchMessage,
        NoSuchProjection,
        NoSuchSession,
        NoSuchThing,
        NotAStore,
        NothingToDo,
        NotSent,
        NotUndoable,
        OrphanChanged,
        ProjectionDamaged,
        ProjectionsBegunAnew,
        QueueFull,
        RedactionFailed,
        RepairRefused,
        RetoldError,
        RuleBroken,
        SessionExists,
        SessionOver,
        SourceChanged,
        StoreBusy,
        Suspended,
        TitleTaken,
        TryAgain,
        TurnOver,
        TurnRunning,
        TwoHistories,
        VersionConflict,
    )
    from .domain.events import Attachment
    from .domain.inbound import Update
    from .domain.message import Message
    from .domain.restarts import Resume
    from .domain.session_source import SessionSource
    from .domain.view import View
    from .infrastructure.commands.gateway import (
        Started,
        Stopped,
    )
    from .infrastructure.commands.messages import Appended
    from .infrastructure.commands.routes import Resolved
    from .infrastructure.commands.turns import (
        Begun,
        Finished,
        Queued,
    )
    from .infrastructure.decisions import Saved
    from .infrastructure.engine import (
        SessionEngine,
        open_home,
    )
    from .infrastructure.session_search import SessionSearch, session_search
    from .infrastructure.terminal import terminal_id

__version__ = "0.1.0"
__all__ = [
    "Ambiguous",
    "Appended",
    "Attachment",
    "BadConfig",
    "BadIdentifier",
    "BadTime",
    "BadTitle",
    "BadUsage",
    "Begun",
    "BuiltOn",
    "BytesRefused",
    "ChangedMeanwhile",
    "DeletedSession",
    "Draining",
    "EditBeginsNothing",
    "EngineClosed",
    "FileReplaced",
    "Finished",
    "HandoffRefused",
    "IdempotencyMismatch",
    "LogDamaged",
    "Message",
    "NeedsUpgrade",
    "NoHomeChannel",
    "NoRoom",
    "NoSuchChat",
    "NoSuchHome",
    "NoSuchMessage",
    "NoSuchProjection",
    "NoSuchSession",
    "NoSuchThing",
    "NotAStore",
    "NotSent",
    "NotUndoable",
    "NothingToDo",
    "OrphanChanged",
    "ProjectionDamaged",
    "ProjectionsBegunAnew",
    "QueueFull",
    "Queued",
    "RedactionFailed",
    "RepairRefused",
    "Resolved",
    "Resume",
    "RetoldError",
    "RuleBroken",
    "Saved",
    "SessionEngine",
    "SessionExists",
    "SessionOver",
    "SessionSearch",
    "SessionSource",
    "SourceChanged",
    "Started",
    "Stopped",
    "StoreBusy",
    "Suspended",
    "TitleTaken",
    "TryAgain",
    "TurnOver",
    "TurnRunning",
    "TwoHistories",
    "Update",
    "VersionConflict",
    "View",
    "__version__",
    "open_home",
    "session_search",
    "terminal_id",
]

_ERRORS = ".domain.errors"
_HOME_OF = {
    "Appended": ".infrastructure.commands.messages",
    "Attachment": ".domain.events",
    "Begun": ".infrastructure.commands.turns",
    "Finished": ".infrastructure.commands.turns",
    "Message": ".domain.message",
    "Queued": ".infrastructure.commands.turns",
    "Resolved": ".infrastructure.commands.routes",
    "Resume": ".domain.restarts",
    "Saved": ".infrastructure.decisions",
    "SessionEngine": ".infrastructure.engine",
    "SessionSearch": ".infrastructure.session_search",
    "SessionSource": ".domain.session_source",
    "Started": ".infrastructure.commands.gateway",
    "Stopped": ".infrastructure.commands.gateway",
    "Update": ".domain.inbound",
    "View": ".domain.view",
    "open_home": ".infrastructure.engine",
    "session_search": ".infrastructure.session_search",
    "terminal_id": ".infrastructure.terminal",
}
"""Where each name lives, but for the errors, which all live in one module."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOME_OF.get(name, _ERRORS), __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
