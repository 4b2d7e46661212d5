"""Every refusal that a caller or a user can meet, with its exit code and what mends it."""

from __future__ import annotations

from typing import ClassVar


class RetoldError(Exception):
    """Base of all refusals.

    Attributes:
        kind: a stable word for programs (`error.kind` in JSON).
        exit_code: what the command line answers with; DESIGN.md's table.
        hint: what to do about it, one sentence, or "".
    """

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


# --- 2: bad usage, no such thing, or ambiguous ---------------------------------------------------


class BadUsage(RetoldError):
    """An argument or option that cannot be read."""

    kind = "bad_usage"
    exit_code = 2


class BadConfig(BadUsage):
    """A configuration file with an unknown key or a bad value; the message names the line."""

    kind = "bad_config"


class NoSuchThing(RetoldError):
    """A name that nothing here bears."""

    kind = "not_found"
    exit_code = 2


class NoSuchSession(NoSuchThing):
    """No session bears this id, prefix or title."""

    kind = "no_such_session"


class NoSuchChat(NoSuchThing):
    """No key, session or title matches what was asked about."""

    kind = "no_such_chat"


class NoSuchHome(NoSuchThing):
    """A folder that is not a Retold home (it holds no events.db)."""

    kind = "no_such_home"


class NoSuchProjection(NoSuchThing):
    """No projection bears this name."""

    kind = "no_such_projection"


class Ambiguous(RetoldError):
    """More than one thing matches; `candidates` lists them."""

    kind = "ambiguous"
    exit_code = 2

    def __init__(self, message: str, *, candidates: list[str], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.candidates = candidates


class NotAStore(RetoldError):
    """What was named as a store to import is none: no folder, no database, no sessions table."""

    kind = "not_a_store"
    exit_code = 2


# --- 3: a rule forbids it --------------------------------------------------------------------------


class RuleBroken(RetoldError):
    """A rule of the domain forbids the command; nothing was written."""

    kind = "rule_broken"
    exit_code = 3


class SessionOver(RuleBroken):
    """The session ended hard, or a continuation took over; `successor` names it if there is one."""

    kind = "session_over"

    def __init__(self, session_id: str, *, successor: str | None = None) -> None:
        where = f"it goes on as {successor}" if successor else "it ended for good"
        super().__init__(
            f"session {session_id} takes no more messages: {where}",
            hint=f"append to {successor}" if successor else "start a new session",
        )
        self.session_id = session_id
        self.successor = successor


class SessionExists(RuleBroken):
    """A session of this id was created before."""

    kind = "session_exists"


class TitleTaken(RuleBroken):
    """The title belongs to another session; `holder` names it."""

    kind = "title_taken"

    def __init__(self, title: str, *, holder: str) -> None:
        super().__init__(
            f"Title '{title}' is already in use by session {holder}",
            hint="choose another title, or rename that session first",
        )
        self.title = title
        self.holder = holder


class BadTitle(RuleBroken):
    """A title that is empty after cleaning, or over 100 characters."""

    kind = "bad_title"


class IdempotencyMismatch(RuleBroken):
    """The idempotency key was used before for other content."""

    kind = "idempotency_mismatch"


class NeedsUpgrade(RuleBroken):
    """Written by a newer program: this one must not decide on it or fold into it."""

    kind = "needs_upgrade"


# --- 4: busy, conflict or no room: try again -------------------------------------------------------


class TryAgain(RetoldError):
    """Nothing is wrong with the request; the moment was."""

    kind = "try_again"
    exit_code = 4


class VersionConflict(TryAgain):
    """Another writer was first; nothing was written."""

    kind = "version_conflict"


class StoreBusy(TryAgain):
    """The database stayed locked longer than the limit."""

    kind = "busy"


class NoRoom(TryAgain):
    """The disk is full or the folder cannot be written."""

    kind = "no_room"


class SourceChanged(TryAgain):
    """The store that was being read changed underneath; what was taken so far stands."""

    kind = "source_changed"


class FileReplaced(TryAgain):
    """The log file was moved or replaced while it was open; nothing was written to either."""

    kind = "file_replaced"


# --- 5: the log is damaged -------------------------------------------------------------------------


class LogDamaged(RetoldError):
    """The log cannot be read or its chain does not hold; writing stops until it is restored."""

    kind = "log_damaged"
    exit_code = 5


# --- 1: a projection is damaged (mended by rebuilding) ---------------------------------------------


class ProjectionDamaged(RetoldError):
    """A projection cannot be read; the log is untouched and tells it again."""

    kind = "projection_damaged"
    exit_code = 1
