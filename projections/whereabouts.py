"""Where a session is shown: which lists leave it out, and why."""

from __future__ import annotations

from itertools import chain as one_after_another
from typing import Literal, TypeAlias

import msgspec

from .base import Connection
from .conversations import Conversations
from .latest import TERMINAL_SOURCES, used_last
from .listing import PINNED_FIRST, Hidden, conversations, hidden_by
from .tree import tip

Place: TypeAlias = Literal["list", "list_all", "search", "latest", "chat"]


class Standing(msgspec.Struct, frozen=True):
    """How a session stands to one way of finding sessions.

    Attributes:
        why: what leaves it out, by the names of a list's account or by these: `source` (it is of no
            terminal), `unused` (another was used later), `no_key`, `leads_elsewhere`, `leads_nowhere`.
        instead: the session that is shown in its place.
        rank: which row of the list it is, from 1.
    """

    place: Place
    shown: bool
    why: str | None = None
    instead: str | None = None
    rank: int | None = None


class Whereabouts(msgspec.Struct, frozen=True):
    """A session and each way of finding it."""

    session_id: str
    title: str | None
    source: str
    key: str | None
    parent: str | None
    standings: list[Standing]


def whereabouts(db: Connection, session_id: str) -> Whereabouts:
    """How a session that exists stands to every list."""
    title, source, key, parent = db.execute(
        "SELECT title, source, session_key, parent_session_id FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    standings = [
        _in_list(db, session_id),
        Standing("list_all", shown=True),
        _in_search(db, session_id, source),
        _as_latest(db, session_id, source),
        _by_chat(db, session_id, key),
    ]
    return Whereabouts(session_id, title, source, key, parent, standings)


def _in_list(db: Connection, session_id: str) -> Standing:
    why = hidden_by(db, session_id)
    if why is None:
        return Standing("list", shown=True, rank=_rank(db, session_id))
    instead = tip(db, session_id) if why == "older_segments" else None
    if instead is None:
        return Standing("list", shown=False, why=why)
    there: Hidden | None = hidden_by(db, instead)
    return Standing("list", shown=False, why=there or why, instead=instead, rank=_rank(db, instead))


def _rank(db: Connection, session_id: str) -> int | None:
    rows = one_after_another.from_iterable(conversations(db, each) for each in PINNED_FIRST)
    return next((number for number, each in enumerate(rows, 1) if each.id == session_id), None)


def _in_search(db: Connection, session_id: str, source: str) -> Standing:
    if session_id not in Conversations(db, [session_id]).hidden(None):
        return Standing("search", shown=True)
    return Standing("search", shown=False, why="tool" if source == "tool" else "delegates")


def _as_latest(db: Connection, session_id: str, source: str) -> Standing:
    if source not in TERMINAL_SOURCES:
        return Standing("latest", shown=False, why="source")
    sources = ",".join(f"'{each}'" for each in TERMINAL_SOURCES)
    first = used_last(db, f"+s.source IN ({sources})")
    last = tip(db, session_id)
    if first is not None and first.id == last:
        return Standing("latest", shown=True, instead=None if last == session_id else last)
    why = hidden_by(db, last)
    if why is not None:
        return Standing("latest", shown=False, why=why)
    return Standing("latest", shown=False, why="unused", instead=None if first is None else first.id)


def _by_chat(db: Connection, session_id: str, key: str | None) -> Standing:
    here = db.execute("SELECT 1 FROM routes WHERE session_id = ? LIMIT 1", (session_id,)).fetchone()
    if here is not None:
        return Standing("chat", shown=True)
    if key is None:
        return Standing("chat", shown=False, why="no_key")
    led = db.execute("SELECT session_id FROM routes WHERE key = ?", (key,)).fetchone()
    if led is None or led[0] is None:
        return Standing("chat", shown=False, why="leads_nowhere")
    return Standing("chat", shown=False, why="leads_elsewhere", instead=led[0])
