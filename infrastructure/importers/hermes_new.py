"""New sessions and messages, and ends, in the order in which they happened."""

from __future__ import annotations

from ...domain.events import Payload
from ...domain.source_messages import message_appended, message_time_us
from ...domain.source_rows import session_created, unpacked
from ...domain.source_values import Row, time_us
from .hermes_known import fetched
from .hermes_plan import Plan
from .hermes_run import Run, SessionPlan
from .merge import BEGIN
from .writer import Told

CHUNK = 1_000


def tell_new(run: Run, plan: Plan) -> None:
    """Tell the timeline."""
    marks = plan.timeline.marks()
    run.begin("taking in", len(plan.timeline) + len(marks))
    upcoming = iter(marks)
    mark = next(upcoming, None)
    for keys, ids, owners in plan.timeline.chunks(CHUNK):
        found = dict(fetched(run, ids))
        for key, message_id, owner in zip(keys, ids, owners, strict=True):
            while mark is not None and mark < key:
                _tell_mark(run, mark)
                mark = next(upcoming, None)
            row = found.get(message_id)
            if row is not None:
                _tell_message(run, plan, run.numbered[owner], message_id, row)
    while mark is not None:
        _tell_mark(run, mark)
        mark = next(upcoming, None)
    run.writer.flush()


def _tell_mark(run: Run, mark: tuple[float, int, int]) -> None:
    key, kind, number = mark
    session = run.numbered[number]
    if kind == BEGIN:
        _begin(run, session)
    elif session.ending is not None:
        run.writer.add(end_told(run, session, session.ending, key))


def end_told(run: Run, session: SessionPlan, ending: Payload, reached: float) -> Told:
    """The end of a session; `reached` is where it stands in the order of time, in seconds."""
    at_us = time_us(getattr(ending, "ended_at", None))
    return run.told(
        session.stream,
        ending,
        session.id,
        at_us=time_us(reached) if at_us is None else at_us,
        at_kind="no_later_than" if at_us is None else "exact",
    )


def _begin(run: Run, session: SessionPlan) -> None:
    row = unpacked(session.row)
    at_us = session.began_us
    exact = time_us(row.get("started_at")) is not None
    created = session_created(row, at_us=at_us, parent_kind=session.kind, store=run.store)
    run.writer.add(
        run.told(
            session.stream,
            created,
            session.id,
            kind="session",
            at_us=at_us,
            at_kind="exact" if exact else "no_later_than",
        )
    )


def _tell_message(run: Run, plan: Plan, session: SessionPlan, message_id: int, row: Row) -> None:
    if run.is_erased("message", message_id):
        run.findings.unchanged["messages erased here"] += 1
        return
    at_us = message_time_us(row)
    exact = at_us is not None
    if at_us is None:
        at_us = plan.said_us(message_id, session)
    run.writer.add(
        run.told(
            session.stream,
            message_appended(row, at_us=at_us),
            message_id,
            kind="message",
            at_us=at_us,
            at_kind="exact" if exact else "no_later_than",
        )
    )
