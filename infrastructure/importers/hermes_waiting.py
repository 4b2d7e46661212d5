"""What waits here in sessions that a Hermes home has ended or left: it goes where their chat goes on.

What was acknowledged as queued runs once, or is said to be dropped. So the end of a session in which turns
wait is told last of all, once it is known where its key leads, in one save with what becomes of them.
"""

from __future__ import annotations

from ...domain import route, session, turns
from ...domain.events import Payload, session_stream
from ...domain.recovery import takes_messages
from ...domain.session import Session
from ..streams import route_stream
from .hermes_new import end_told
from .hermes_run import Run
from .writer import Told


def tell_waiting(run: Run) -> None:
    """Tell the ends that were held back, and move what waits out of sessions that their chat has left."""
    run.writer.flush()  # where a key leads now is read from the log
    for plan in run.numbered:
        if plan.held is not None and plan.ending is not None:
            _end(run, plan.id, plan.ending, end_told(run, plan, plan.ending, plan.held))
    for session_id in sorted(run.waiting & (run.plans.keys() | run.led_away)):
        left = _session(run, session_id)
        if left is not None and left.turns.waiting and (left.over or session_id in run.led_away):
            _move(run, left, left)


def _end(run: Run, session_id: str, ending: Payload, told: Told) -> None:
    """End a session; what waits there is moved or cleared, and after a soft end still runs there."""
    state = _session(run, session_id)
    ended = session.evolve(state, session_id, 0, ending)
    if state is None or ended is None or not ended.over or not state.turns.waiting:
        run.writer.add(told)
    else:
        _move(run, state, ended, told)


def _move(run: Run, left: Session, now: Session, *told: Told) -> None:
    """One save: what waits leaves a session, the end of that one, and what waits in the next one.

    Args:
        left, now: the session as it is here, and as it is with what is `told`.
    """
    to = _goes_on(run, now)
    if to is None and not now.over:
        return
    cleared = turns.cleared(left.turns, "reset" if to is None else "moved")
    assert cleared is not None
    unit = [_said(run, left.id, cleared), *told]
    if to is None:
        run.findings.note(
            f"session {left.id}: it ended in the source ({now.end_reason}), so what waited there"
            f" will not run: {', '.join(cleared.turns)}"
        )
    else:
        unit += [_said(run, to.id, each) for each in turns.moved(left.turns, left.id)]
        named = ", ".join(cleared.turns)
        run.findings.note(f"session {left.id}: what waited there waits in session {to.id} now: {named}")
    run.writer.add(*unit)
    run.writer.flush()  # whoever comes next reads what waits there now


def _goes_on(run: Run, state: Session) -> Session | None:
    """Where a session's chat goes on: in its continuation, or else where its key leads."""
    seen = {state.id}
    for begin in (state.successor, None if state.key is None else _led_to(run, state.key)):
        following = begin
        while following is not None and following not in seen:
            seen.add(following)
            found = _session(run, following)
            if found is None or found.deleted:
                break
            if not found.over:
                return found if takes_messages(found.source, found.parent_kind) else None
            following = found.successor
    return None


def _session(run: Run, session_id: str) -> Session | None:
    state: Session | None = None
    stream = session_stream(session_id)
    for each in run.log.stream_events(stream, without_messages=True):
        state = session.evolve(state, session_id, each.version, each.payload, each.at_us)
    run.writer.version(stream)  # refuses what came after the plan
    return state


def _led_to(run: Run, key: str) -> str | None:
    state = route.Route(key)
    stream = route_stream(run.identity, key)
    for each in run.log.stream_events(stream):
        state = route.evolve(state, each.version, each.payload, each.at_us)
    run.writer.version(stream)
    return state.session_id


def _said(run: Run, session_id: str, payload: Payload) -> Told:
    """An event that follows from what the home says, and stands in no row of it."""
    return Told(session_stream(session_id), payload, run.now_us, "exact", None)
