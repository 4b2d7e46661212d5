"""Finding the chat that a person means: by a key, a part of one, a session id or a title."""

from __future__ import annotations

from msgspec import Struct

from ..domain.errors import Ambiguous, NoSuchChat
from .base import Connection

_SHOWN = 12


class Named(Struct, frozen=True):
    """What a text named: a key, or else a session."""

    key: str | None = None
    session_id: str | None = None


def find_chat(db: Connection, text: str) -> Named:
    """The one chat or session that `text` names; the more exact reading wins.

    An exact key, id or title comes first, then a whole piece of a key ("1001"), then an id that a key
    leads to and that is not here, then a part of a key, the beginning of an id, or a part of a title.

    Raises:
        Ambiguous: more than one; its candidates say which. NoSuchChat.
    """
    wanted = text.strip()
    if not wanted:
        raise NoSuchChat("an empty text names no chat", hint=_HINT)
    keys = [key for (key,) in db.execute(_KEYS)]
    if wanted in keys:
        return Named(key=wanted)
    for column in ("id", "title"):
        found = _sessions(db, f"s.{column} = ?", wanted)
        if found:
            return _only(wanted, found, [])
    pieces = [key for key in keys if f":{wanted}:" in f"{key}:"]
    if pieces:
        return _only(wanted, [], pieces)
    led = [key for (key,) in db.execute(_LED, (wanted,))]
    if led:  # an id that a route names, though no session of that id is here
        return _only(wanted, [], led)
    folded = wanted.casefold()
    parts = [key for key in keys if folded in key.casefold()]
    begun = _sessions(db, "substr(s.id, 1, length(?1)) = ?1", wanted)
    titled = [row for row in _sessions(db, "s.title IS NOT ?", None) if folded in (row[1] or "").casefold()]
    return _only(wanted, [*begun, *(each for each in titled if each not in begun)], parts)


_HINT = "give a routing key or a part of one, a session id or a title; retold sessions list --all shows them"
_KEYS = """
SELECT key FROM routes
UNION SELECT key FROM route_history
UNION SELECT session_key FROM sessions WHERE session_key IS NOT NULL
UNION SELECT lost_key FROM sessions WHERE lost_key IS NOT NULL
ORDER BY 1
"""
_LED = """
SELECT DISTINCT key FROM route_history WHERE session_id = ?1 OR previous = ?1 ORDER BY 1
"""

_Row = tuple[str, str | None, str | None]


def _sessions(db: Connection, where: str, value: str | None) -> list[_Row]:
    """(id, title, key) of the sessions that a condition chooses."""
    select = "SELECT s.id, s.title, coalesce(s.session_key, s.lost_key) FROM sessions s"
    return list(db.execute(f"{select} WHERE {where} ORDER BY s.started_us, s.id", (value,)))


def _only(wanted: str, sessions: list[_Row], keys: list[str]) -> Named:
    if not sessions and not keys:
        raise NoSuchChat(f"no key, session or title here matches '{wanted}'", hint=_HINT)
    chats = {*keys, *(key for _, _, key in sessions if key is not None)}
    keyless = [row for row in sessions if row[2] is None]
    if len(sessions) == 1 and not keys:
        return Named(key=sessions[0][2], session_id=sessions[0][0])
    if len(chats) == 1 and not keyless:
        return Named(key=chats.pop())
    named = sorted(keys) + [f"{row[0]}  {row[1] or ''}".rstrip() for row in sessions if row[2] not in keys]
    more = len(named) - _SHOWN
    shown = named if more <= 0 else [*named[:_SHOWN], f"… and {more} more"]
    raise Ambiguous(
        f"'{wanted}' matches {len(named)} chats and sessions",
        candidates=shown,
        hint="give more of the one you mean",
    )
