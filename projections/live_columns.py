"""What is under way in a session, as columns of its row: its turn, its queue, its marks, its handoff.

The rules are the domain's own (`turns`, `marks`, `handoff`): a row is read into their states, one event
further, and written back. Of what waits only ids are kept here; the texts stay in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from ..domain import events as e
from ..domain import handoff, marks, turns
from ..domain.handoff import Handoff
from ..domain.marks import Marks
from ..domain.turns import Turns, Waiting

if TYPE_CHECKING:
    from .session_rows import SessionRow

_TURNS: Final = (e.TurnQueued, e.TurnStarted, e.TurnFinished, e.QueueCleared)
_MARKS: Final = (e.ResumeMarked, e.ResumeCleared, e.SessionSuspended)
_HANDOFFS: Final = (e.HandoffRequested, e.HandoffClaimed, e.HandoffCompleted, e.HandoffFailed)
_ENDS: Final = (e.SessionEnded, e.SessionReset, e.SessionCompressed, e.SessionReopened)
LIVE: Final = frozenset({*_TURNS, *_MARKS, *_HANDOFFS, *_ENDS})
"""Events that move what is under way."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[tuple[str, turns.Lane]]).decode


def fold_live(row: SessionRow, payload: object, at_us: int) -> None:
    """One event of `LIVE`."""
    if not isinstance(payload, _HANDOFFS):
        _follow_turns(row, payload, at_us)
        _follow_marks(row, payload, at_us)
    else:
        _follow_handoff(row, payload, at_us)


def _follow_turns(row: SessionRow, payload: object, at_us: int) -> None:
    before = Turns(
        running=row["running_turn"],
        lease_until_us=row["lease_until_us"] or 0,
        since_us=row["turn_since_us"] or 0,
        waiting=tuple(Waiting(turn, "", lane) for turn, lane in waiting_of(row["waiting"])),
        gateway=row["turn_gateway"],
    )
    now = turns.evolve(before, payload, at_us)
    if now is before:
        return
    runs = now.running is not None
    row["running_turn"] = now.running
    row["lease_until_us"] = now.lease_until_us if runs else None
    row["turn_since_us"] = now.since_us if runs else None
    row["turn_gateway"] = now.gateway
    waits = [(each.turn, each.lane) for each in now.waiting]
    row["waiting"] = _encode(waits).decode() if waits else None


def waiting_of(waiting: str | None) -> list[tuple[str, turns.Lane]]:
    """The turns that wait, by id and lane, in order."""
    return _decode(waiting) if waiting else []


def _follow_marks(row: SessionRow, payload: object, at_us: int) -> None:
    before = Marks(
        resume=row["resume_reason"],
        marked_us=row["resume_marked_us"] or 0,
        restarts=row["restarts"],
        suspended=row["suspended"],
    )
    now = marks.evolve(before, payload, at_us)
    if now is before:
        return
    row["resume_reason"] = now.resume
    row["resume_marked_us"] = None if now.resume is None else now.marked_us
    row["restarts"] = now.restarts
    row["suspended"] = now.suspended


def _follow_handoff(row: SessionRow, payload: object, at_us: int) -> None:
    state = row["handoff_state"]
    before = Handoff(
        state=cast("Any", state),
        platform=row["handoff_platform"],
        gateway=row["handoff_gateway"],
        deadline_us=row["handoff_deadline_us"] or 0,
        claimed_us=row["handoff_claimed_us"] or 0,
        error=row["handoff_error"],
    )
    now = handoff.evolve(before, payload, at_us)
    row["handoff_state"] = now.state
    row["handoff_platform"] = now.platform
    row["handoff_error"] = now.error
    row["handoff_gateway"] = now.gateway
    row["handoff_deadline_us"] = now.deadline_us if now.open else None
    row["handoff_claimed_us"] = now.claimed_us if now.state == "running" else None
