"""Emptying payloads so that nothing of their text is left: in the log, the projections, caches and WALs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import apsw

from ..domain import events as e
from ..domain.errors import NoRoom, RuleBroken, StoreBusy
from ..domain.events import Recorded
from . import codec
from .history import forget_cache
from .log import Log, Masked
from .new_tables import NEW
from .projector import Projector
from .sqlite import READ_WRITE, connect, one
from .state_file import BESIDE, StateFile

WAIT_MS = 2_000
"""How long to wait for readers that keep a WAL from being emptied."""
PENDING = "erasing.pending"
"""A file that is there from before an erasure is saved until nothing of it is left anywhere."""


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
                case e.MessageEdited(message=message) | e.MessageEnriched(message=message) if (
                    message in wanted
                ):
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


def gone(session_id: str, events: Iterable[Recorded], *, prompts: list[str], reason: str) -> e.PayloadsErased:
    """What is put on record of a session that was emptied as a whole."""
    emptied = list(events)
    return e.PayloadsErased(
        [event.position for event in emptied],
        reason,
        [event.source_ref for event in emptied],
        session=session_id,
        prompts=prompts,
        store=next(
            (event.payload.store for event in emptied if isinstance(event.payload, e.SessionCreated)), None
        ),
    )


def in_place_of(payload: e.Payload) -> Masked:
    """A payload as it is to stand where another was, with a salt of its own."""
    plain = codec.encode(payload)
    salt = os.urandom(codec.SALT_BYTES)
    return Masked(codec.pack(plain), codec.payload_hash(plain, salt), salt)


def _mark(event: Recorded) -> e.ErasedMark:
    if not isinstance(event.payload, e.MessageAppended):
        return e.ErasedMark(event.session_id, None, None)
    return e.ErasedMark(event.session_id, event.payload.role, min(event.at_us, event.recorded_at_us))


def begin_sweep(home: Path) -> None:
    """Note, before an erasure is saved, that files will have to be swept: whoever comes next may have to.

    Raises:
        NoRoom: the home cannot be written.
    """
    try:
        os.close(os.open(home / PENDING, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise NoRoom(
            f"{home} cannot be written: {error.strerror}", hint="nothing was erased; make room and try again"
        ) from error


def is_pending(home: Path) -> bool:
    """Whether a sweep has begun here and not come to its end."""
    return os.path.exists(f"{home}/{PENDING}")  # asked after each save: no Path is made


def sweep(log: Log, projector: Projector, home: Path, *, wait_ms: int | None = None) -> tuple[str, ...]:
    """After an erasure was saved: let it reach every file. Returns the files that still hold the text.

    A reader in a snapshot from before keeps a WAL from being emptied; whoever sweeps next does it.
    """
    wait_ms = WAIT_MS if wait_ms is None else wait_ms
    head = projector.catch_up(wait_ms=wait_ms)
    forget_cache(home)
    left = []
    if not log.empty_wal(wait_ms=wait_ms):
        left.append(log.path.name)
    unfinished = not _drop_unfinished(projector, wait_ms)
    current = projector.state.path
    if head.events or head.detached or unfinished or not _empty_wal(current, wait_ms):
        left.append(current.name)
    # Left by a damaged or replaced state.db: nobody folds into them any more.
    left += sorted(path.name for path in home.glob("state.*.db") if path.name != current.name)
    if not left:
        (home / PENDING).unlink(missing_ok=True)
    return tuple(left)


def _drop_unfinished(projector: Projector, wait_ms: int) -> bool:
    """Drop what an interrupted rebuild has left, which holds what was so then; False where one is at it."""
    state = projector.state
    try:
        with projector.telling_again(timeout_s=wait_ms / 1000):
            if (state.home / BESIDE).is_symlink():
                StateFile(state.home, name=BESIDE).drop_beside()
            with projector.transaction(wait_ms) as db:
                if one(db, "SELECT count(*) FROM checkpoints WHERE projection GLOB 'new_*'"):
                    for each in projector.projections.values():
                        each(NEW).drop(db)
                    db.execute("DELETE FROM checkpoints WHERE projection GLOB 'new_*'")
    except StoreBusy:
        return False
    return True


def _empty_wal(path: Path, wait_ms: int) -> bool:
    connection = connect(path, flags=READ_WRITE, busy_timeout_ms=wait_ms)
    try:
        # A connection that has read nothing does not know of the WAL, and would empty nothing.
        one(connection, "PRAGMA schema_version")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True
