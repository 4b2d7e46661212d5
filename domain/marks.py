"""What a restart left on a session: to be resumed by itself, or suspended (REFERENCE.md 8.3)."""

from __future__ import annotations

import msgspec

from . import events as e


class Marks(msgspec.Struct, frozen=True):
    """The marks that stand on a session.

    Attributes:
        resume: why its turn was cut off; None where it needs no resuming.
        marked_us: when it was marked, microseconds since the Unix epoch.
        restarts: restarts in a row that cut its turns off; a turn that succeeds ends the row.
        suspended: why the next message begins a new session; None where it does not.
    """

    resume: e.ResumeReason | None = None
    marked_us: int = 0
    restarts: int = 0
    suspended: str | None = None


def carried(state: Marks) -> list[e.Payload]:
    """The marks, for the continuation that compression makes of the session: what counts goes along."""
    found: list[e.Payload] = []
    if state.resume is not None:
        found.append(e.ResumeMarked(state.resume, state.restarts))
    if state.suspended is not None:
        found.append(e.SessionSuspended("stuck" if state.suspended == "stuck" else "stop", state.restarts))
    return found


def evolve(state: Marks, payload: object, at_us: int) -> Marks:
    """The state after an event of the session."""
    match payload:
        case e.ResumeMarked():
            return msgspec.structs.replace(
                state, resume=payload.reason, marked_us=at_us, restarts=payload.restarts
            )
        case e.ResumeCleared():
            restarts = 0 if payload.why == "turn_succeeded" else state.restarts
            return msgspec.structs.replace(state, resume=None, marked_us=0, restarts=restarts)
        case e.TurnFinished(outcome="done"):
            return msgspec.structs.replace(state, restarts=0) if state.restarts else state
        case e.SessionSuspended():
            return Marks(suspended=payload.why, restarts=payload.restarts)
        case e.SessionCompressed():
            return Marks(suspended=state.suspended)
        case e.SessionReset() | e.SessionEnded(hard=True) if state.resume is not None:
            return msgspec.structs.replace(state, resume=None, marked_us=0)
        case e.SessionReopened():
            return msgspec.structs.replace(state, suspended=None) if state.suspended else state
        case _:
            return state
