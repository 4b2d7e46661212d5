"""Messages that came before: edited, shown otherwise, gone or back in the home since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...domain import events as e
from ...domain.events import Recorded, Visibility, session_stream
from ...domain.source_messages import (
    digest,
    message_after,
    message_edited,
    shown,
    source_row_of,
    with_visibility,
)
from ...domain.source_values import Row
from ...projections.sources import EDITED_HERE, SHOWN_HERE, STATES
from ..sqlite import translated
from .hermes_plan import Plan, in_chunks
from .hermes_rows import plain
from .hermes_run import Run, known_messages, rows

CHUNK = 1_000
_SHOWN = ("active", "compacted")
_SHOWING = {
    "compacted": e.MessagesCompacted,
    "rewound": e.MessagesRewound,
    "live": e.MessagesRestored,
}


class Known(NamedTuple):
    """A message as last seen in the home."""

    message: int
    digest: bytes
    state: int
    gone: int
    changed_here: int


class Shown:
    """Messages of one session that the home shows otherwise, by position."""

    def __init__(self) -> None:
        self.to: dict[Visibility, list[int]] = {"compacted": [], "rewound": [], "live": []}
        self.back: list[int] = []
        self.gone: list[int] = []


def tell_known(run: Run, plan: Plan) -> None:
    """Compare every known message; edits are told at once, the rest session by session."""
    run.begin("comparing", len(plan.known))
    changed: defaultdict[str, Shown] = defaultdict(Shown)
    for ids in in_chunks(plan.known, CHUNK):
        states = _states(run, ids)
        for message_id, row in fetched(run, ids):
            known = states.get(message_id)
            if known is not None:
                _compare(run, plan, row, message_id, known, changed)
        run.advance(len(ids))
    for stream, positions in _owners(run, plan.gone_messages):
        changed[stream].gone += positions
    sessions_gone = {session_stream(each): each for each in plan.gone_sessions}
    gone_with_it = {stream: changed[stream].gone if stream in changed else [] for stream in sessions_gone}
    for stream in sorted(changed, key=lambda each: _place(run, each)):
        _tell(run, stream, changed[stream], with_session=stream in sessions_gone)
    for stream, session_id in sessions_gone.items():
        payload = e.SourceRowGone("session", session_id, gone_with_it[stream])
        run.writer.add(run.told(stream, payload, session_id))
    for session in run.numbered:
        if session.reopens:
            run.writer.add(run.told(session.stream, e.SessionReopened(), session.id))


def fetched(run: Run, ids: Sequence[int]) -> Iterator[tuple[int, Row]]:
    """The rows of these ids that can be read, in this order."""
    found = run.home.messages(ids)
    if len(found) == len(ids):
        yield from ((i, plain(row)) for i, row in zip(ids, found, strict=True))
        return
    for row in found:
        message_id = row.get("id")
        if isinstance(message_id, int):
            yield message_id, plain(row)


def _states(run: Run, ids: list[int]) -> dict[int, Known]:
    return {
        row[0]: Known(*row[1:])
        for row in known_messages(run, "source_id, message, digest, state, gone, changed_here", ids)
    }


def _compare(
    run: Run, plan: Plan, row: Row, message_id: int, known: Known, changed: defaultdict[str, Shown]
) -> None:
    if run.is_erased("message", message_id):
        run.findings.unchanged["messages erased here"] += 1
        return
    now, visibility = digest(row), shown(row)
    edited, moved = now != known.digest, STATES[visibility] != known.state
    if not (edited or moved or known.gone):
        run.findings.unchanged["messages"] += 1
        return
    event = _appended(run, known.message)
    if event is None or not isinstance(event.payload, e.MessageAppended):
        return  # erased here, and stays so
    session_id = str(row.get("session_id"))
    if session_id != event.session_id:
        # Its id names a message of another session now: that one is new, and the old one has gone.
        changed[event.stream].gone.append(known.message)
        owner = run.plans[session_id]
        plan.timeline.message(message_id, owner.number, owner.clock)
        return
    if (edited and _is_edited_here(run, event, known)) or (moved and _is_shown_otherwise(run, known)):
        _conflict(run, event, row, message_id, known)
        return
    if edited:
        said_us = plan.said_us(message_id, run.plans[session_id])
        edit = message_edited(_last_seen(run, event), row, message=known.message, at_us=said_us)
        edit = edit or e.MessageEdited(known.message, {}, now)
        run.writer.add(run.told(event.stream, edit, message_id, kind="message"))
    if known.gone:
        changed[event.stream].back.append(known.message)
    if moved or (known.gone and visibility != "rewound"):
        changed[event.stream].to[visibility].append(known.message)


def _appended(run: Run, position: int) -> Recorded | None:
    found = run.log.read(position - 1, limit=1, upto=position)
    return found[0] if found else None


def _is_edited_here(run: Run, event: Recorded, known: Known) -> bool:
    """Whether it says something else here than its source said last; an edit may have been taken back."""
    if not known.changed_here & EDITED_HERE:
        return False
    return message_edited(_last_seen(run, event), _here(run, event), message=known.message) is not None


def _is_shown_otherwise(run: Run, known: Known) -> bool:
    """Whether it is shown otherwise here than its source showed it last; a rewind may have been redone."""
    if not known.changed_here & SHOWN_HERE:
        return False
    here = rows(run.db, "SELECT active, compacted FROM messages WHERE id = ?", known.message)
    told = [STATES[shown({"active": active, "compacted": compacted})] for active, compacted in here]
    return told != [known.state]


def _here(run: Run, event: Recorded) -> Row:
    """The row as it is here."""
    row = source_row_of(event.payload, at_us=event.at_us, session_id=event.session_id)
    after = event.position
    while found := run.log.read(after, stream=event.stream, topics=(e.MessageEdited.topic,)):
        after = found[-1].position
        for each in found:
            if isinstance(each.payload, e.MessageEdited) and each.payload.message == event.position:
                row = message_after(row, each.payload)
    return row


def _last_seen(run: Run, event: Recorded) -> Row:
    """The row as the home had it when it was last read: its event, and the edits since."""
    row = source_row_of(event.payload, at_us=event.at_us, session_id=event.session_id)
    after = event.position
    topics = (e.MessageEdited.topic, e.SourceRowChanged.topic)
    while found := run.log.read(after, stream=event.stream, topics=topics):
        after = found[-1].position
        for each in found:
            payload = each.payload
            ours = each.source_ref is None
            if (isinstance(payload, e.MessageEdited) and payload.message == event.position and not ours) or (
                isinstance(payload, e.SourceRowChanged) and event.position in payload.messages
            ):
                row = message_after(row, payload)
    return row


def _conflict(run: Run, event: Recorded, row: Row, message_id: int, known: Known) -> None:
    """Changed there and here: ours stays, what the source says is only remembered.

    What is the same on both sides by now is no conflict.
    """
    edit = message_edited(_last_seen(run, event), row, message=known.message)
    changes: dict[str, Any] = dict(edit.changes) if edit else {}
    apart = message_edited(_here(run, event), row, message=known.message)
    conflicts = set(changes) & set(apart.changes if apart else ())
    if STATES[shown(row)] != known.state:
        told = with_visibility({}, shown(row))
        changes.update({column: told[column] for column in _SHOWN})
        conflicts.update(_SHOWN)
    payload = e.SourceRowChanged(
        "message",
        str(message_id),
        changes,
        conflicts=sorted(conflicts),
        odd=edit.odd if edit else {},
        seen=digest(row),
        messages=[known.message],
    )
    run.writer.add(run.told(event.stream, payload, message_id, kind="message"))
    if not conflicts:
        return
    run.findings.conflict(
        f"session {event.session_id}, message {message_id} (#{known.message}):"
        f" {', '.join(sorted(conflicts))} changed in the source and here; ours stays"
    )


def _owners(run: Run, source_ids: list[int]) -> Iterator[tuple[str, list[int]]]:
    """Positions of gone messages, by the stream that holds them."""
    for chunk in in_chunks(source_ids, 500):
        marks = ",".join("?" * len(chunk))
        positions = [
            row[0]
            for row in rows(
                run.db,
                f"SELECT message FROM source_messages WHERE source = ? AND source_id IN ({marks})",
                run.source,
                *chunk,
            )
        ]
        by_stream: defaultdict[str, list[int]] = defaultdict(list)
        sql = (
            "SELECT s.name, e.position FROM events e JOIN streams s ON s.id = e.stream"
            f" WHERE e.position IN ({','.join('?' * len(positions))}) ORDER BY e.position"
        )
        with translated(str(run.log.path)):
            held: list[Any] = run.log.reader().execute(sql, tuple(positions)).fetchall()
        for stream, position in held:
            by_stream[stream].append(position)
        yield from by_stream.items()


def _place(run: Run, stream: str) -> tuple[int, str]:
    plan = run.plans.get(stream.removeprefix("session:"))
    return (plan.number if plan else len(run.numbered), stream)


def _tell(run: Run, stream: str, changed: Shown, *, with_session: bool) -> None:
    """`with_session`: what is gone is told with its session, which is gone too."""
    session_id = stream.removeprefix("session:")
    unit = []
    if changed.back:
        payload = e.SourceRowChanged("message", "", {}, messages=sorted(changed.back))
        unit.append(run.told(stream, payload, session_id, kind="back"))
    for visibility, positions in changed.to.items():
        if positions:
            showing = _SHOWING[visibility](sorted(positions))
            unit.append(run.told(stream, showing, session_id))
    if changed.gone and not with_session:
        gone = e.SourceRowGone("message", "", sorted(changed.gone))
        unit.append(run.told(stream, gone, session_id, kind="gone"))
    if unit:
        run.writer.add(*unit)
