"""Every refusal that a caller or a user can meet, with its exit code and what mends it.

Over 400 lines because it is one catalogue: an error a class, a few lines each.
"""

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


class BytesRefused(BadUsage):
    """A file's bytes where a message keeps a path, a kind and a text (REFERENCE.md 1.11)."""

    kind = "bytes_refused"


class BadIdentifier(BadUsage):
    """An id that is a path or holds control characters; the message says which and why."""

    kind = "bad_identifier"


class BadTime(BadUsage):
    """A time that is none in microseconds since the Unix epoch, such as one in seconds."""

    kind = "bad_time"


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


class DeletedSession(NoSuchSession):
    """The session was deleted; `erase_after_us` says until when that can be undone."""

    kind = "deleted_session"

    def __init__(self, message: str, *, session_id: str, erase_after_us: int, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.session_id = session_id
        self.erase_after_us = erase_after_us


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


class NoSuchMessage(RuleBroken):
    """The session has no such message, or none of the kind that the command needs."""

    kind = "no_such_message"


class ChangedMeanwhile(RuleBroken):
    """A session is not as it was shown to whoever said what is to be done with it."""

    kind = "changed_meanwhile"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id} changed meanwhile", hint="nothing was written; look at it again"
        )
        self.session_id = session_id


class NothingToDo(RuleBroken):
    """There is nothing to undo, to redo or to compress; the message says what stands in the way."""

    kind = "nothing_to_do"


class IdempotencyMismatch(RuleBroken):
    """The idempotency key was used before for other content."""

    kind = "idempotency_mismatch"


class TurnOver(RuleBroken):
    """The turn is finished, or was counted as cut off; `outcome` says how it ended."""

    kind = "turn_over"

    def __init__(self, session_id: str, turn: str, outcome: str) -> None:
        super().__init__(
            f"session {session_id}: turn {turn} is over ({outcome})",
            hint="a turn ends once; begin another",
        )
        self.session_id = session_id
        self.turn = turn
        self.outcome = outcome


class Suspended(RuleBroken):
    """The session was stopped, or got stuck: the next message of its chat begins a new one."""

    kind = "suspended"

    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(
            f"session {session_id} is suspended ({why}): it takes no more turns",
            hint="resolve the chat again: it goes on in a new session",
        )
        self.session_id = session_id
        self.why = why


class EditBeginsNothing(RuleBroken):
    """An edited message is an edit of what was said, never a turn or a command (FIELD_CASES B24)."""

    kind = "edit_begins_nothing"


class HandoffRefused(RuleBroken):
    """The handoff does not stand where this step may be taken; `state` says where it stands."""

    kind = "handoff_refused"

    def __init__(self, message: str, *, state: str | None, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.state = state


class NoHomeChannel(RuleBroken):
    """The platform has no channel that a handoff could go to."""

    kind = "no_home_channel"


class RepairRefused(RuleBroken):
    """The session cannot be given its chat's key, or the key cannot be led there; the message says why."""

    kind = "repair_refused"


class OrphanChanged(RepairRefused):
    """What was reported of a session that lost its key does not hold any more."""

    kind = "orphan_changed"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"{session_id} was not adopted (the row changed since it was reported)",
            hint="nothing was written; see: retold sessions repair-routing",
        )
        self.session_id = session_id


class TwoHistories(RepairRefused):
    """The chat was written to in two sessions, or a person led it on; `candidates` could go on.

    `ways` is a command for each, as the repair was asked for and with the choice in it.
    """

    kind = "two_histories"

    def __init__(
        self, session_id: str, candidates: tuple[str, ...], ways: tuple[str, ...], *, led: bool = False
    ) -> None:
        on = f"its chat has two histories, and went on in {candidates[-1]} since"
        if led:
            on = f"a person led its chat to {candidates[-1]}"
        super().__init__(
            f"{session_id} was not adopted: {on}; a person must say which goes on", hint=" or: ".join(ways)
        )
        self.session_id = session_id
        self.candidates = candidates
        self.ways = ways


class NotUndoable(RuleBroken):
    """The save is none that can be undone; nothing was written."""

    kind = "not_undoable"


class BuiltOn(NotUndoable):
    """Later events build on the save; `positions` names them."""

    kind = "built_on"

    def __init__(self, message: str, *, positions: tuple[int, ...], hint: str) -> None:
        super().__init__(message, hint=hint)
        self.positions = positions


class RedactionFailed(RuleBroken):
    """What was to be masked could not be looked through, so none of it leaves."""

    kind = "redaction_failed"

    def __init__(self, session_id: str, message_id: int | str | None, what: str = "content") -> None:
        self.session_id, self.message_id = session_id, message_id
        super().__init__(
            f"Redaction failed; refusing to export unredacted {what}.",
            hint=f"session {session_id}" + (f", message {message_id}" if message_id is not None else ""),
        )


class EngineClosed(RuleBroken):
    """The engine was closed, by `close` or at the end of its `with`: it answers nothing any more."""

    kind = "engine_closed"

    def __init__(self, home: str) -> None:
        super().__init__(
            f"the engine of {home} is closed",
            hint="open the home again: retold.open_home; nothing was written",
        )
        self.home = home


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


class NotSent(TryAgain):
    """A hub could not be reached, or did not take what was to be sent."""

    kind = "not_sent"


class TurnRunning(TryAgain):
    """Another turn is under way in the session.

    Attributes:
        turn, gateway: which one, and which gateway runs it (None: no gateway does).
        since_us, lease_until_us: when it began, and when it counts as cut off if nobody renews it.
    """

    kind = "turn_running"

    def __init__(
        self, session_id: str, *, turn: str, gateway: str | None, since_us: int, lease_until_us: int
    ) -> None:
        by = f" by gateway {gateway}" if gateway else ""
        super().__init__(
            f"session {session_id} is in turn {turn}, run{by}",
            hint="queue what is to be said, or wait for the turn's end",
        )
        self.session_id = session_id
        self.turn = turn
        self.gateway = gateway
        self.since_us = since_us
        self.lease_until_us = lease_until_us


class QueueFull(TryAgain):
    """As many turns wait as may; nothing was queued."""

    kind = "queue_full"

    def __init__(self, session_id: str, cap: int) -> None:
        super().__init__(
            f"session {session_id}: the queue is full ({cap} turns wait); this one was not queued",
            hint="wait until some have run, or clear the queue",
        )
        self.session_id = session_id
        self.cap = cap


class Draining(TryAgain):
    """The gateway begins no turns for now; `owner` said so, until `until_us`."""

    kind = "draining"

    def __init__(self, gateway: str, *, owner: str, until_us: int) -> None:
        super().__init__(
            f"gateway {gateway} begins no turns now: {owner} lets it run dry",
            hint="queue it: it runs once the gateway takes turns again",
        )
        self.gateway = gateway
        self.owner = owner
        self.until_us = until_us


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


class ProjectionsBegunAnew(ProjectionDamaged):
    """The projections were damaged, and a new file of them is begun: whoever asks next tells it.

    `saved` is whether something was written before that was found out.
    """

    def __init__(self, message: str, *, saved: bool) -> None:
        before = "what was saved stays; " if saved else ""
        super().__init__(message, hint=f"{before}give the command again: they are told again from the log")
        self.saved = saved
