"""Emptying payloads so that nothing of their text is left: in the log, the projections, caches and WALs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import apsw

from ..domain import events as e
from ..domain.errors import RuleBroken
from ..domain.events import Recorded
from .history import forget_cache
from .log import Log
from .projector import Projector
from .sqlite import READ_WRITE, connect, one

WAIT_MS = 2_000
"""How long to wait for readers that keep a WAL from being emptied."""


def messages_at(log: Log, positions: Iterable[int]) -> list[Recorded]:
    """The messages at `positions`, without those that are empty already.

    Raises:
        RuleBroken: a position that is no message.
    """
    found = []
    for position in sorted(set(positions)):
        events = log.read(position - 1, limit=1, upto=position)
        if not events or events[0].topic != e.MessageAppended.topic:
            raise RuleBroken(f"#{position} is no message", hint="retold sessions show prints message ids")
        if isinstance(events[0].payload, e.MessageAppended):
            found.append(events[0])
    return found


def with_what_quotes(log: Log, messages: Iterable[Recorded]) -> list[Recorded]:
    """The messages, and the events of their streams that hold their text again: edits and copies."""
    wanted = {event.position: event for event in messages}
    rows = {str(event.payload.source_id) for event in wanted.values()}
    for stream in sorted({event.stream for event in wanted.values()}):
        for event in log.stream_events(stream):
            payload = event.payload
            match payload:
                case e.MessageAppended(copy_of=int() as original) if original in wanted:
                    wanted[event.position] = event
                case e.MessageEdited(message=message) if message in wanted:
                    wanted[event.position] = event
                case e.SourceRowChanged(kind="message", row=row) if payload.changes and row in rows:
                    wanted[event.position] = event
                case _:
                    pass
    return [wanted[position] for position in sorted(wanted)]


def erased(events: list[Recorded], reason: str) -> e.PayloadsErased:
    """What is put on record of the emptied events: which, why, and what still counts of them."""
    return e.PayloadsErased(
        [event.position for event in events],
        reason,
        [event.source_ref for event in events],
        [_mark(event) for event in events],
    )


def _mark(event: Recorded) -> e.ErasedMark:
    if not isinstance(event.payload, e.MessageAppended):
        return e.ErasedMark(event.session_id, None, None)
    return e.ErasedMark(event.session_id, event.payload.role, min(event.at_us, event.recorded_at_us))


def sweep(log: Log, projector: Projector, home: Path) -> tuple[str, ...]:
    """After an erasure was saved: let it reach every file. Returns the files that still hold the text.

    A reader in a snapshot from before keeps a WAL from being emptied; whoever sweeps next does it.
    """
    head = projector.catch_up(wait_ms=WAIT_MS)
    forget_cache(home)
    left = []
    if not log.empty_wal(wait_ms=WAIT_MS):
        left.append(log.path.name)
    current = projector.state.path
    if head.events or head.detached or not _empty_wal(current):
        left.append(current.name)
    # Left by a damaged or replaced state.db: nobody folds into them any more.
    left += sorted(path.name for path in home.glob("state.*.db") if path.name != current.name)
    return tuple(left)


def _empty_wal(path: Path) -> bool:
    connection = connect(path, flags=READ_WRITE, busy_timeout_ms=WAIT_MS)
    try:
        # A connection that has read nothing does not know of the WAL, and would empty nothing.
        one(connection, "PRAGMA schema_version")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True
