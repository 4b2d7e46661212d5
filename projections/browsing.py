"""What a picker shows: the conversations of a list with what they can be narrowed by, and who said a text."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from .base import Connection
from .listing import list_sessions
from .search import search
from .sessions import Message, SessionLine, SessionPage, messages, page
from .tree import tip

HEARD = 200
"""Conversations that a search in a picker finds at most."""


class Pick(msgspec.Struct, frozen=True, gc=False):
    """A conversation that can be chosen.

    Attributes:
        chat: what its chat is known by; sessions of one chat bear the same. None outside chats.
        chat_name: how people call that chat.
    """

    line: SessionLine
    chat: str | None
    chat_name: str | None


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A conversation in which a text was said: the session that a list shows of it, and the best hit."""

    session_id: str
    said_in: str
    message_id: int
    snippet: str


def picks(
    db: Connection, *, limit: int | None = None, source: str | None = None, workspace: str | None = None
) -> list[Pick]:
    """The rows of `list_sessions`, with the chat that each belongs to."""
    rows = list_sessions(db, limit=limit, source=source, workspace=workspace).rows
    chats = {
        row[0]: row[1:]
        for row in db.execute(
            "SELECT id, coalesce(session_key, source || char(0) || nullif(chat_id, '')),"
            " coalesce(display_name, chat_id) FROM sessions"
            " WHERE session_key IS NOT NULL OR chat_id IS NOT NULL"
        )
    }
    return [Pick(each, *chats.get(each.id, (None, None))) for each in rows]


def heard(
    db: Connection,
    query: str,
    shown: Collection[str],
    *,
    source: str | None = None,
    marks: tuple[str, str] = ("", ""),
    width: int = 160,
) -> list[Heard]:
    """The conversations among `shown` in which `query` was said, best first.

    A word that is still being typed counts as the beginning of one.

    Args:
        shown: the sessions that the list has, by id.
        marks, width: as those of `search`.
    """
    typed = query.strip()
    if not typed:
        return []
    if typed[-1].isalnum():
        typed += "*"
    hits = search(db, typed, limit=HEARD, source=source, marks=marks, width=width).hits
    found: dict[str, Heard] = {}
    for hit in hits:
        name = hit.session_id if hit.session_id in shown else tip(db, hit.session_id)
        if name in shown:
            found.setdefault(name, Heard(name, hit.session_id, hit.message_id, hit.snippet))
    return list(found.values())


class Glimpse(msgspec.Struct, frozen=True):
    """A part of a conversation.

    Attributes:
        before, after: how many messages of the session there are around it.
    """

    page: SessionPage
    messages: list[Message]
    before: int
    after: int


def glimpse(db: Connection, session_id: str, *, count: int, start: int | None = None) -> Glimpse | None:
    """The last messages of a session, or those from one on; None where the session is gone."""
    if not db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone():
        return None
    if start is None:
        said = list(messages(db, session_id, last=count))
    else:
        said = list(messages(db, session_id, after=start - 1, first=count))
    first, last = (said[0].id, said[-1].id) if said else (0, 0)
    before, after = db.execute(
        "SELECT (SELECT count(*) FROM messages WHERE session_id = ? AND id < ?),"
        " (SELECT count(*) FROM messages WHERE session_id = ? AND id > ?)",
        (session_id, first, session_id, last),
    ).fetchone()
    return Glimpse(page(db, session_id), said, before, after if said else 0)
