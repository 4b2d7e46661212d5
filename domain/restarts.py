"""What a gateway's start and stop do to sessions: marked to be resumed, suspended, offered, passed over.

REFERENCE.md 8.1 to 8.3. Pure: the sessions and the times are given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from . import events as e
from .marks import Marks
from .session import Session
from .turns import CUT_OFF, Turns, Waiting

ACTIVE_WITHIN_US: Final = 120_000_000
"""A crash cut off whoever was active so shortly before the start that follows it."""
STRIKES: Final = 3
"""So many restarts in a row that cut a session's turns off, and it is suspended as stuck."""
DRAINED: Final[tuple[e.ResumeReason, ...]] = ("restart_timeout", "shutdown_timeout")

StopReason = Literal["restart", "shutdown"]
TIMED_OUT: Final[dict[StopReason, e.ResumeReason]] = {
    "restart": "restart_timeout",
    "shutdown": "shutdown_timeout",
}
NoteKind = Literal["new_message", "ask", "go_on"]
_UNATTENDED: Final = frozenset({"webhook", "msgraph_webhook", "api-server", "api_server", "cron", "batch"})
"""Sources where nobody is there to be asked."""
_CAUSES: Final[dict[e.ResumeReason, str]] = {
    "restart_interrupted": "the program that runs you stopped without warning",
    "restart_timeout": "the program that runs you was restarted and did not wait for the end",
    "shutdown_timeout": "the program that runs you was shut down and did not wait for the end",
}


class Resume(msgspec.Struct, frozen=True):
    """A session to be gone on with after a start.

    Attributes:
        key: the chat that leads to it.
        turn: the turn that was cut off, None where none was; it is over and does not start again.
        text, about: what that turn was queued with; None and {} where it was not.
        kind: which kind of recovery note the model gets where no new message has come meanwhile.
    """

    session_id: str
    key: str
    reason: e.ResumeReason
    turn: str | None = None
    text: str | None = None
    about: dict[str, e.Scalar] = {}
    kind: NoteKind = "ask"

    @property
    def note(self) -> str:
        """What to tell the model, in its context and not as a person's message, where no new one has come."""
        return recovery_note(self.reason, self.kind)


def after_start(
    state: Session, *, gateway: str, clean: bool, last_active_us: int | None, at_us: int
) -> list[e.Payload]:
    """What a start of `gateway` has to say of a session.

    A turn that this gateway ran, or whose lease has lapsed, was cut off: it is finished as lost. After
    an unclean stop a session that was active shortly before is marked too (REFERENCE.md 8.2).
    """
    events: list[e.Payload] = []
    marks = state.marks
    cut = state.turns.cut_off_at(at_us, gateway=gateway)
    if cut and state.turns.running is not None:
        events.append(e.TurnFinished(state.turns.running, "lost", CUT_OFF))
    if marks.suspended is not None or state.ended or state.deleted:
        return events
    restarts = marks.restarts + cut
    if restarts >= STRIKES and (cut or marks.resume is not None):
        return [*events, e.SessionSuspended("stuck", restarts)]
    if cut or (marks.resume is None and not clean and _active(last_active_us, at_us)):
        events.append(e.ResumeMarked("restart_interrupted", restarts))
    return events


class Others(msgspec.Struct, frozen=True):
    """The other gateways of a home, as a start finds them.

    Attributes:
        living: those that run.
        cut_off: those that do not, and whose last run did not end as one that was chosen: a stop that left
            work undone, or a crash that a lease which lapsed tells of.
        stopped: those that were stopped, and left nothing undone.
        offered: sessions that the last start of a living one was given to go on with, and when.
    """

    living: frozenset[str] = frozenset()
    cut_off: frozenset[str] = frozenset()
    stopped: frozenset[str] = frozenset()
    offered: dict[str, int] = {}


def left_to_others(state: Session, *, gateway: str, served: bool, others: Others, at_us: int) -> bool:
    """Whether somebody else sees to a session, so that a start of `gateway` leaves it as it is.

    That is who runs a turn in it, the living gateway that ran the last one or was given it to go on with,
    and of those in which no gateway ran one whoever serves its platform where this one does not.
    """
    runs = state.turns
    if runs.running is not None:
        return runs.gateway != gateway and runs.runs_at(at_us)
    offered_us = others.offered.get(state.id)
    if offered_us is not None and offered_us >= (runs.before or (0, 0))[0]:
        return True
    if runs.gateway is None:
        return bool(others.living) and not served
    return runs.gateway != gateway and runs.gateway in others.living


def left_clean(state: Session, *, gateway: str, clean: bool, first: bool, others: Others) -> bool:
    """Whether what was active in a session shortly before a start was not cut off.

    Args:
        clean: this gateway's own last stop was one that it chose.
        first: it never started before. Where others did, there was nothing of its own to be cut off.
    """
    ran = state.turns.gateway
    if ran is None:
        return clean or (first and bool(others.living or others.stopped) and not others.cut_off)
    return clean if ran == gateway else ran in others.stopped


def _active(last_active_us: int | None, at_us: int) -> bool:
    return last_active_us is not None and last_active_us >= at_us - ACTIVE_WITHIN_US


def before_drain(state: Session, *, gateway: str, why: StopReason) -> e.ResumeMarked | None:
    """The mark of a session whose turn the drain waits for: taken back once that turn has ended in time."""
    if state.turns.running is None or state.turns.gateway != gateway:
        return None
    if state.marks.suspended is not None or state.marks.resume is not None:
        return None
    return e.ResumeMarked(TIMED_OUT[why], state.marks.restarts)


def at_stop(
    state: Session, *, gateway: str, why: StopReason, draining_since_us: int | None
) -> list[e.Payload]:
    """What the end of a drain has to say of a session: cut off now, or finished in time.

    Its strikes are counted here and judged at the next start.
    """
    if state.turns.gateway != gateway:
        return []
    marks = state.marks
    if state.turns.running is not None:
        events: list[e.Payload] = [
            e.TurnFinished(state.turns.running, "interrupted", f"the {why} did not wait for its end")
        ]
        if marks.suspended is None:
            events.append(e.ResumeMarked(TIMED_OUT[why], marks.restarts + 1))
        return events
    drained = draining_since_us is not None and marks.marked_us >= draining_since_us
    return [e.ResumeCleared("drained")] if drained and marks.resume in DRAINED else []


def passed_over(
    state: Session, marks: Marks, *, platforms: Iterable[str], window_us: int, at_us: int
) -> str | None:
    """Why a marked session is not resumed by this start, in words; None where it is."""
    served = set(platforms)
    if marks.suspended is not None:
        return f"suspended ({marks.suspended})"
    if state.deleted or state.ended:
        return "it is over"
    if served and state.source not in served:
        return f"{state.source} is not served here"
    if window_us <= 0:
        return "resuming by itself is switched off"
    if at_us - marks.marked_us > window_us:
        return "marked longer ago than agent.gateway_auto_continue_freshness"
    return None


def expired(marks: Marks, *, window_us: int, mode: str, at_us: int) -> bool:
    """Whether a session was to be resumed so long ago that the next message begins a new one.

    Args:
        window_us: agent.gateway_auto_continue_freshness; 0 lets no mark expire.
        mode: of the chat's reset policy; with "none" the session is gone on with however late.
    """
    if marks.resume is None or window_us <= 0 or mode == "none":
        return False
    return at_us - marks.marked_us > window_us


def resume_of(state: Session, before: Turns, key: str, reason: e.ResumeReason) -> Resume:
    """What is offered for a session.

    Args:
        before: its turns as they were before the start.
    """
    asked: Waiting | None = before.asked
    return Resume(
        state.id,
        key,
        reason,
        turn=before.running or before.cut_off,
        text=None if asked is None else asked.text,
        about={} if asked is None else asked.about,
        kind=note_kind(state.source, new_message=False),
    )


def note_kind(source: str, *, new_message: bool) -> NoteKind:
    """Which recovery note a session of this source gets."""
    if new_message:
        return "new_message"
    return "go_on" if source in _UNATTENDED else "ask"


def note_for(state: Session, asked: Waiting | None) -> str | None:
    """What to tell the model in a turn that is begun now; None where no restart had cut the one before off.

    Args:
        asked: what the turn was queued with. The very words of the one that was cut off are no new message.
    """
    if state.marks.resume is None:
        return None
    before = state.turns.asked
    again = None not in (before, asked) and _words(before) == _words(asked)
    return recovery_note(state.marks.resume, note_kind(state.source, new_message=not again))


def _words(turn: Waiting | None) -> object:
    return None if turn is None else (turn.text, turn.about)


def recovery_note(reason: e.ResumeReason, kind: NoteKind) -> str:
    """What the agent is told, in its context and never as a message of the person's."""
    what = {
        "new_message": (
            "A new message has come since: answer that first. Do not repeat what your tools did before."
        ),
        "ask": (
            "Nobody has written since. Say that the conversation is restored, in one sentence what was under"
            " way, and ask how to go on. Do not repeat what your tools did before."
        ),
        "go_on": (
            "Nobody is there to be asked: go on with the task from where it stands. Look at what your tools"
            " did before, and do not repeat it."
        ),
    }[kind]
    return f"Your last turn here was cut off: {_CAUSES[reason]}. {what}"
