"""Snapshots of sessions: one of ten thousand turns is loaded from its last two hundred events.

Never needed, and never trusted on its word: a snapshot names the event that it was taken at by version and
chain value, which the log holds it to. It may hold what a session's events hold, so every erasure empties the
table (`Log.erase`), and none is kept that was read before an erasure and written after it.
"""

from __future__ import annotations

import contextlib
from functools import cache

import apsw
import msgspec

from ..domain.errors import RetoldError
from ..domain.events import PayloadsErased, session_stream
from ..domain.handoff import Handoff
from ..domain.marks import Marks
from ..domain.session import Session
from ..domain.turns import Turns, Waiting
from .log import Condition, Conflict, Log
from .sqlite import one, translated

EVERY = 200
"""Events that a load folds before it is worth a snapshot: some 2 ms (tests/bench/bench_f_load.py)."""
FOLD = 1
"""Raised where `session.evolve` makes another state of events than it did."""
_CHAIN = "SELECT chain FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?) AND version = ?"


class _Kept(msgspec.Struct, frozen=True):
    chain: bytes
    state: Session


_encode = msgspec.msgpack.Encoder().encode


@cache
def _decoder() -> msgspec.msgpack.Decoder[_Kept]:
    return msgspec.msgpack.Decoder(_Kept)


@cache
def _topic() -> str:
    """Names the fold and the shape of what was kept: another's is passed over."""
    from hashlib import blake2b

    shape = repr([each.__annotations__ for each in (Session, Marks, Turns, Waiting, Handoff)]).encode()
    return f"session.{FOLD}.{blake2b(shape, digest_size=6).hexdigest()}"


def snapshot_of(log: Log, session_id: str) -> Session | None:
    """A session as it was kept last; None where there is nothing of this fold, log and shape."""
    stream = session_stream(session_id)
    with translated(str(log.path)):
        row = (
            log.reader()
            .execute(
                "SELECT version, state FROM snapshots WHERE originator = ? AND topic = ?", (stream, _topic())
            )
            .fetchone()
        )
        if row is None:
            return None
        chain = one(log.reader(), _CHAIN, (stream, row[0]))
    try:
        kept = _decoder().decode(row[1])
    except (msgspec.MsgspecError, TypeError):
        return None
    if chain is None or (kept.state.version, kept.chain) != (row[0], bytes(chain)):
        return None
    return kept.state


def keep_snapshot(log: Log, state: Session, *, read_at: int) -> None:
    """Keep a state whose last event is at position `read_at`, in place of an earlier one.

    Where that cannot be now, or something was erased after that event, nothing is kept.
    """
    if log.read_only:
        return
    stream = session_stream(state.id)
    with contextlib.suppress(RetoldError, Conflict, apsw.Error), log.transaction() as connection:
        log.append_within(connection, (), condition=Condition(read_at, topics=(PayloadsErased.topic,)))
        chain = one(connection, _CHAIN, (stream, state.version))
        if chain is not None:
            connection.execute("DELETE FROM snapshots WHERE originator = ?", (stream,))
            connection.execute(
                "INSERT INTO snapshots VALUES (?, ?, ?, ?)",
                (stream, state.version, _topic(), _encode(_Kept(bytes(chain), state))),
            )
