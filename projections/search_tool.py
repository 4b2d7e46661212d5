"""What an agent's search tool answers: finds, windows, recent sessions and whole ones (REFERENCE.md 6)."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any, TypeAlias

import msgspec

from ..domain.text import scrub
from .base import Connection
from .conversations import HIDDEN_SOURCES, Conversations
from .find import titled
from .listing import list_sessions
from .search import search
from .search_tool_rows import COLUMNS, Meta, around, message_of, meta_of, owner_of, session_meta, when
from .sessions import SessionLine
from .tree import chain_root
from .visibility import LIVE, NOT_UNDONE

Answer: TypeAlias = dict[str, Any]
LIMIT, MOST_RESULTS = 3, 10
WINDOW, MOST_AROUND = 5, 20
BOOKEND = 3
"""Messages of the beginning and of the end that a find shows besides its window."""
HEAD, TAIL = 20, 10
"""What is shown of a session that has more messages than both together."""
ROLES = ("user", "assistant")
SNIPPET_CHARS = 240
_QUOTES = "`'\""


class ToolArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may pass, as it came: a model's arguments may be of any type.

    Attributes:
        current_session_id: the session that asks; what belongs to it is in its context already.
        profile, detail: of Hermes; a home has no profiles, and every find is shown in full.
    """

    query: object = ""
    role_filter: object = None
    limit: object = LIMIT
    session_id: object = None
    around_message_id: object = None
    window: object = WINDOW
    sort: object = None
    current_session_id: object = None
    profile: object = None
    detail: object = None


def needs_index(asked: ToolArguments) -> bool:
    """Whether the answer looks into the search index."""
    return not _text(asked.session_id) and bool(_text(asked.query))


def answer(db: Connection, asked: ToolArguments, *, zone: tzinfo | None = None) -> Answer:
    """Scroll where there is a session and an anchor, read where there is a session, find where there is
    a query, else browse; `success` is false where that cannot be, and `error` says why.

    Args:
        zone: for the times that a person reads; None is the machine's own.
    """
    session_id, query = _text(asked.session_id), _text(asked.query)
    current = _text(asked.current_session_id) or None
    if session_id:
        session_id = _without_profile(db, session_id)
        if asked.around_message_id is None:
            return _read(db, session_id, zone)
        return _scroll(db, session_id, asked, current, zone)
    if profile := _text(asked.profile):
        return refusal(f"profile '{profile}': a Retold home has no profiles; leave it out")
    limit = _clamped(asked.limit, LIMIT, MOST_RESULTS)
    if query:
        return _discover(db, query, asked, limit, current, zone)
    if asked.around_message_id is not None:
        return refusal("scroll requires session_id")
    return _browse(db, limit, current)


def refusal(why: str) -> Answer:
    """The answer where there is none."""
    return {"error": why, "success": False}


# --- arguments ------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return scrub(value)[0].strip() if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    if not isinstance(value, int | float | str):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def _clamped(value: object, default: int, most: int) -> int:
    number = _number(value)
    return max(1, min(default if number is None else number, most))


def _without_profile(db: Connection, session_id: str) -> str:
    """The id in a link `@session:profile/id`; an id of a session that is here is itself."""
    if "/" not in session_id or meta_of(db, session_id) is not None:
        return session_id
    return session_id.partition("/")[2] or session_id


# --- finds ----------------------------------------------------------------------------------------


def _discover(
    db: Connection, query: str, asked: ToolArguments, limit: int, current: str | None, zone: tzinfo | None
) -> Answer:
    """The best find of each conversation, a title that is meant before all else."""
    given = asked.role_filter  # a client that has a list of them means it
    given = ",".join(map(_text, given)) if isinstance(given, list | tuple) else _text(given)
    roles = [each.strip() for each in given.split(",") if each.strip()]
    by_time = _text(asked.sort).lower()
    passed_over = None if current is None else _root(db, current)
    results = []
    by_title = _of_title(db, query, passed_over, zone)
    if by_title is not None:
        results.append(by_title)
    found = search(
        db,
        query,
        limit=limit + 2,  # the conversation that asks and the one with the title are not counted twice
        roles=roles or ROLES,
        sort=by_time if by_time in ("newest", "oldest") else "relevance",  # type: ignore[arg-type] # mypy does not narrow by `in`
        cron_last=True,
        counted=False,
        width=SNIPPET_CHARS,
    )
    notes = [each for each in found.notes if each]
    if not found.hits and by_title is None:
        none: Answer = {"success": True, "mode": "discover", "query": query, "results": [], "count": 0}
        return none | {"message": "No matching sessions found."} | ({"notes": notes} if notes else {})
    roots = Conversations(db, {each.session_id for each in found.hits}).roots()
    taken = {passed_over, None if by_title is None else _root(db, by_title["session_id"])}
    for hit in found.hits:
        root = roots.get(hit.session_id, hit.session_id)
        if len(results) == limit:
            break
        if root not in taken and hit.session_id != current:
            about = (hit.role, hit.message_id, hit.snippet)
            results.append(_find(db, hit.session_id, root, about, hit.title, zone))
    return {
        "success": True,
        "mode": "discover",
        "query": query,
        "results": results,
        "count": len(results),
        "sessions_searched": len(results),
        **({"notes": notes} if notes and found.hits else {}),
    }


def _of_title(db: Connection, query: str, passed_over: str | None, zone: tzinfo | None) -> Answer | None:
    """The session whose title the query is, anchored on its first message."""
    title = query.strip(_QUOTES).strip()
    session_id = titled(db, title) if title else None
    if session_id is None:
        return None
    root = _root(db, session_id)
    if root == passed_over or Conversations(db, {session_id}).hidden(None):
        return None
    first = db.execute(
        f"SELECT id FROM messages WHERE session_id = ? AND {LIVE} ORDER BY id LIMIT 1", (session_id,)
    ).fetchone()
    anchor = None if first is None else first[0]
    found = _find(db, session_id, root, ("session_title", anchor, ""), title, zone)
    return found | {"snippet": f"Session title matched: {found['title']}"}


def _find(
    db: Connection,
    session_id: str,
    root: str,
    about: tuple[str, int | None, str],
    title: str | None,
    zone: tzinfo | None,
) -> Answer:
    """What is shown of a conversation: where the match stands, and how it began and ended."""
    role, anchor, snippet = about
    meta = meta_of(db, root)
    if meta is None:  # what the session came from never was here
        meta = meta_of(db, session_id) or Meta(None, "unknown", None, title)
    found = {
        "session_id": session_id,
        "when": when(meta.started_us, zone),
        "source": meta.source or "unknown",
        "model": meta.model or "unknown",
        "title": meta.title or (title if role == "session_title" else None),
        "matched_role": role,
        "match_message_id": anchor,
        "snippet": snippet,
        **_anchored(db, session_id, anchor),
    }
    return found if root == session_id else found | {"parent_session_id": root}


def _anchored(db: Connection, session_id: str, anchor: int | None) -> Answer:
    """The window of what people and assistants said around a message, and the two ends outside of it.

    What was undone is in none of them, but for the anchor itself (FIELD_CASES B15).
    """
    before, after = (
        ([], [])
        if anchor is None
        else around(db, session_id, anchor, WINDOW, f"({NOT_UNDONE} OR id = {anchor:d})")
    )
    window = [*before, *after]
    first, last = (window[0][0], window[-1][0]) if window else (0, 2**63 - 1)
    said = (
        f"SELECT {COLUMNS} FROM messages WHERE session_id = ? AND id {{}} ?"
        f" AND role IN ('user', 'assistant') AND {NOT_UNDONE} AND length(content) > 0"
        f" ORDER BY id {{}} LIMIT {BOOKEND}"
    )
    start = db.execute(said.format("<", "ASC"), (session_id, first)).fetchall()
    end = db.execute(said.format(">", "DESC"), (session_id, last)).fetchall()
    return {
        "bookend_start": [message_of(each) for each in start],
        "messages": [message_of(each, anchor) for each in window if each[1] in ROLES or each[0] == anchor],
        "bookend_end": [message_of(each) for each in reversed(end)],
        "messages_before": max(0, len(before) - 1),
        "messages_after": len(after),
    }


# --- windows, sessions, the latest ------------------------------------------------------------------


def _scroll(
    db: Connection, session_id: str, asked: ToolArguments, current: str | None, zone: tzinfo | None
) -> Answer:
    """A window around a message, whatever its role and whether it was undone or not."""
    anchor = _number(asked.around_message_id)
    if anchor is None:
        return refusal("scroll requires integer around_message_id")
    window = _clamped(asked.window, WINDOW, MOST_AROUND)
    if current is not None and _root(db, session_id) == _root(db, current):
        return refusal(
            "scroll rejected: anchor lives in the current session lineage (already in your active context)"
        )
    meta = meta_of(db, session_id)
    if meta is None:
        return refusal(f"session_id not found: {session_id}")
    owner = owner_of(db, anchor)
    warning = None
    if owner is not None and owner != session_id and _root(db, owner) == _root(db, session_id):
        warning = (
            f"message {anchor} is in {owner}, of the same lineage as {session_id}; the window is from there"
        )
        session_id, meta = owner, meta_of(db, owner) or meta
    if owner != session_id:
        return refusal(f"around_message_id {anchor} not in session_id {session_id}")
    before, after = around(db, session_id, anchor, window, "1")
    found: Answer = {
        "success": True,
        "mode": "scroll",
        "session_id": session_id,
        "around_message_id": anchor,
        "session_meta": session_meta(meta, zone),
        "window": window,
        "messages": [message_of(each, anchor) for each in (*before, *after)],
        "messages_before": len(before) - 1,
        "messages_after": len(after),
    }
    return found if warning is None else found | {"warning": warning}


def _read(db: Connection, session_id: str, zone: tzinfo | None) -> Answer:
    """A session as it stands: all of it, or its two ends."""
    meta = meta_of(db, session_id)
    if meta is None:
        return refusal(f"session_id not found: {session_id}")
    live = f"SELECT {COLUMNS} FROM messages WHERE session_id = ? AND {LIVE} ORDER BY id"
    shown = db.execute(f"{live} LIMIT ?", (session_id, HEAD + TAIL + 1)).fetchall()
    total, truncated = len(shown), len(shown) > HEAD + TAIL
    if truncated:
        total = db.execute("SELECT message_count FROM sessions WHERE id = ?", (session_id,)).fetchone()[0]
        end = db.execute(f"{live} DESC LIMIT ?", (session_id, TAIL)).fetchall()
        shown = [*shown[:HEAD], *reversed(end)]
    found: Answer = {
        "success": True,
        "mode": "read",
        "session_id": session_id,
        "session_meta": session_meta(meta, zone),
        "message_count": total,
        "truncated": truncated,
        "messages": [message_of(each) for each in shown],
    }
    if truncated:
        found["message"] = (
            f"These are the first {HEAD} and the last {TAIL} of {total} messages."
            " To read on between them, pass an id from above as around_message_id."
        )
    return found


def _browse(db: Connection, limit: int, current: str | None) -> Answer:
    """The conversations that were in use last, but for the one that asks."""
    own = None if current is None else _root(db, current)
    results: list[Answer] = []
    fetched = limit + 5
    while True:
        listing = list_sessions(db, limit=fetched)
        rows = [each for each in listing.rows if each.source not in HIDDEN_SOURCES]
        roots = {} if own is None else Conversations(db, {each.id for each in rows}).roots()
        rows = [each for each in rows if own is None or roots.get(each.id, each.id) != own]
        if len(rows) >= limit or not listing.not_shown["over_limit"]:
            break
        fetched *= 4
    for each in rows[:limit]:
        active_us = each.started_us if each.last_active_us is None else each.last_active_us
        results.append(
            {
                "session_id": each.id,
                "title": each.title or None,
                "source": each.source,
                "started_at": _started(db, each) / 1e6,
                "last_active": active_us / 1e6,
                "message_count": each.message_count,
                "preview": each.preview or "",
            }
        )
    return {
        "success": True,
        "mode": "browse",
        "results": results,
        "count": len(results),
        "message": (
            f"The {len(results)} sessions in use last. Pass query to search, session_id to read one, or"
            " session_id and around_message_id to scroll."
        ),
    }


def _started(db: Connection, each: SessionLine) -> int:
    """When the conversation began of which a row of the list is the last segment."""
    first = meta_of(db, chain_root(db, each.id))
    return each.started_us if first is None or first.started_us is None else first.started_us


def _root(db: Connection, session_id: str) -> str:
    """What the session is counted with: where its lineage began."""
    return Conversations(db, {session_id}).roots().get(session_id, session_id)
