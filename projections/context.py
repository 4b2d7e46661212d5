"""What a model should see of a session, and what a person saw of it: one rule of visibility for both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ..domain import events as e
from ..domain.context import Line, call_ids
from ..domain.message import TEXTS, attachments_given, content_given, json_given
from ..domain.view import Seen, View, valid
from .base import Connection
from .sessions import micros
from .tree import chain, tip
from .visibility import LIVE, NOT_UNDONE, visibility

_SEEN = (
    "id, session_id, role, content, timestamp, summary, tool_calls, tool_name, tool_call_id,"
    " platform_message_id, finish_reason, reasoning, reasoning_content, reasoning_details,"
    " codex_reasoning_items, codex_message_items, effect_disposition, api_content, token_count, attachments,"
    " observed, active, compacted, copy_of"
)
_unpack = msgspec.msgpack.Decoder(tuple[dict[str, Any], dict[str, e.Odd]]).decode
_LINE = "id, role, active, compacted, copy_of, summary, observed, tool_calls, tool_call_id"


def active_view(db: Connection, session_id: str, *, follow: bool = False, last: int | None = None) -> View:
    """What a model should see: the last summary, if there was a compression, and all that came later.

    A valid sequence of messages (domain/view.py), in the order in which they were appended, whatever
    their times say.

    Args:
        follow: go to where the conversation goes on, if the session was compressed into another.
        last: at most so many messages from the end, read from there; a summary in front of them is left out,
            too.
    """
    at = tip(db, session_id) if follow else session_id
    version = _version(db, at)
    rows: Iterable[Sequence[Any]]
    if last is None:
        rows = db.execute(_messages(LIVE), (at,))
    else:
        newest = db.execute(f"{_messages(LIVE)} DESC LIMIT ?", (at, last))
        rows = reversed(newest.fetchall())
    found = [_seen(row) for row in rows]
    messages, warnings = valid(found)
    return View(at, messages, [*_broken(db, at, len(found) if last is None else None), *warnings], version)


def live_count(db: Connection, session_id: str) -> int:
    """How many messages a session has in its context, as they were counted."""
    row = db.execute("SELECT message_count FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return int(row[0] or 0) if row else 0


def display_history(db: Connection, session_id: str, *, follow: bool = True) -> View:
    """Everything a person saw, once: what was compressed too, not what was undone.

    A message that a compression repeated stands where it was first said; the summary stands where it was
    made. Live is what is in the context of the last segment.

    Args:
        follow: the whole conversation, from its first segment to its last; else this session alone.
    """
    ids = [each.session_id for each in chain(db, session_id)] if follow else [session_id]
    shown: dict[int, Seen] = {}
    warnings: list[str] = []
    version = _version(db, session_id)
    for at in ids:
        warnings += _broken(db, at, None)
        for row in db.execute(_messages(NOT_UNDONE), (at,)):
            each = _seen(row)
            if at != ids[-1] and each.visibility == "live":
                each = msgspec.structs.replace(each, visibility="compacted")
            first = shown.setdefault(each.line.root, each)
            if first.visibility != each.visibility == "live":
                shown[first.line.root] = msgspec.structs.replace(first, visibility="live")
    return View(session_id, list(shown.values()), warnings, version)


def window(db: Connection, session_id: str, around: int, *, before: int = 5, after: int = 5) -> list[Seen]:
    """A message of a session and those around it that are not undone, in order; copies are left out."""
    where = f"session_id = ? AND copy_of IS NULL AND {NOT_UNDONE}"
    earlier = db.execute(
        f"SELECT {_SEEN} FROM messages WHERE {where} AND id <= ? ORDER BY id DESC LIMIT ?",
        (session_id, around, before + 1),
    ).fetchall()
    later = db.execute(
        f"SELECT {_SEEN} FROM messages WHERE {where} AND id > ? ORDER BY id LIMIT ?",
        (session_id, around, after),
    )
    return [_seen(row) for row in (*reversed(earlier), *later)]


def lines(db: Connection, session_id: str) -> list[Line]:
    """Every message of a session as the rules of a context see it, in order."""
    rows = db.execute(f"SELECT {_LINE} FROM messages WHERE session_id = ? ORDER BY id", (session_id,))
    return [_line(row) for row in rows]


def kin(db: Connection, session_id: str, roots: Iterable[int]) -> dict[str, list[Line]]:
    """Messages of these roots in the sessions that this one continues, but for those undone: by session."""
    above = [each.session_id for each in chain(db, session_id)]
    found: dict[str, list[Line]] = {}
    for at in above[: above.index(session_id)]:
        wanted = set(roots)
        those = [each for each in lines(db, at) if each.root in wanted and each.visibility != "rewound"]
        if those:
            found[at] = those
    return found


def appended(db: Connection, ids: Sequence[int]) -> dict[int, tuple[e.MessageAppended, int]]:
    """Messages as they stand now, each as the event that would bring it so, and when it was said."""
    columns = ("id", "role", "timestamp", "token_count", "observed", "attachments", "extra", *TEXTS)
    found: dict[int, tuple[e.MessageAppended, int]] = {}
    for row in db.execute(
        f"SELECT {', '.join(columns)} FROM messages WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (_ids(ids),),
    ):
        values = dict(zip(columns, row, strict=True))
        at_us = micros(values["timestamp"])
        exact = at_us is not None and at_us / 1e6 == values["timestamp"]
        extra, odd = _extra(values["extra"])
        texts: dict[str, Any] = {name: _text(values[name]) for name in TEXTS}
        payload = e.MessageAppended(
            role=_text(values["role"]) or "",
            **texts,
            token_count=values["token_count"] if isinstance(values["token_count"], int) else None,
            observed=values["observed"] if isinstance(values["observed"], int) else 0,
            timestamp=None if exact or not isinstance(values["timestamp"], float) else values["timestamp"],
            columns=extra,
            odd=odd,
            attachments=attachments_given(values["attachments"]),
        )
        found[values["id"]] = (payload, at_us or 0)
    return found


class Copy(msgspec.Struct, frozen=True):
    """A message or a copy of it, where it stands and what it says."""

    session_id: str
    id: int
    content: str | None


def by_platform_id(db: Connection, session_id: str, platform_message_id: str) -> list[Copy]:
    """A message of a conversation that a platform knows by this id, and its copies."""
    rows = db.execute(
        "SELECT session_id, id, content FROM messages"
        " WHERE session_id IN (SELECT value FROM json_each(?)) AND platform_message_id = ? ORDER BY id",
        (_upto(db, session_id), platform_message_id),
    )
    return [Copy(row[0], row[1], _text(row[2])) for row in rows]


def same_message(db: Connection, session_id: str, message: int) -> list[Copy]:
    """A message of a conversation and its copies, by the id of any of them."""
    rows = db.execute(
        "SELECT session_id, id, content FROM messages"
        " WHERE session_id IN (SELECT value FROM json_each(?1)) AND coalesce(copy_of, id) ="
        " (SELECT coalesce(copy_of, id) FROM messages WHERE id = ?2) ORDER BY id",
        (_upto(db, session_id), message),
    )
    return [Copy(row[0], row[1], _text(row[2])) for row in rows]


def copies(db: Connection, messages: Iterable[int]) -> list[int]:
    """These messages and all that are the same, in whatever session, a deleted one too: ids in order."""
    both = "(SELECT id, copy_of FROM messages UNION ALL SELECT id, copy_of FROM deleted_messages)"
    rows = db.execute(
        f"SELECT id FROM {both} WHERE coalesce(copy_of, id) IN"
        f" (SELECT coalesce(copy_of, id) FROM {both} WHERE id IN (SELECT value FROM json_each(?)))",
        (_ids(messages),),
    )
    return sorted(row[0] for row in rows)


def _upto(db: Connection, session_id: str) -> str:
    """A session and those that it goes on from, as JSON."""
    ids = [each.session_id for each in chain(db, session_id)]
    return msgspec.json.encode(ids[: ids.index(session_id) + 1]).decode()


# --- rows ------------------------------------------------------------------------------------------


def _messages(where: str) -> str:
    return f"SELECT {_SEEN} FROM messages WHERE session_id = ? AND {where} ORDER BY id"


def _version(db: Connection, session_id: str) -> int:
    row = db.execute("SELECT version FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return int(row[0]) if row else 0


def _broken(db: Connection, session_id: str, live: int | None) -> list[str]:
    """What is wrong around a session, a sentence each (FIELD_CASES B22, I10)."""
    row = db.execute(
        "SELECT s.parent_session_id, s.parent_kind, p.id, s.message_count FROM sessions s"
        " LEFT JOIN sessions p ON p.id = s.parent_session_id WHERE s.id = ?",
        (session_id,),
    ).fetchone()
    if row is None:
        return [f"there is no session {session_id}"]
    said: list[str] = []
    parent, kind, there, counted = row
    if kind == "continuation" and there is None:
        said.append(
            f"session {session_id} goes on from {parent}, which is not here: what came before is missing"
        )
    if live is not None and counted != live:
        said.append(f"session {session_id} has {live} messages where {counted} were counted: retold verify")
    return said


def _seen(row: Sequence[Any]) -> Seen:
    return Seen(
        id=row[0],
        session_id=row[1],
        role=_text(row[2]) or "",
        content=content_given(_text(row[3])),
        at_us=micros(row[4]),
        kind="summary" if row[5] else "message",
        tool_calls=json_given(_text(row[6])),
        tool_name=_text(row[7]),
        tool_call_id=_text(row[8]),
        platform_message_id=_text(row[9]),
        finish_reason=_text(row[10]),
        reasoning=_text(row[11]),
        reasoning_content=_text(row[12]),
        reasoning_details=json_given(_text(row[13])),
        codex_reasoning_items=json_given(_text(row[14])),
        codex_message_items=json_given(_text(row[15])),
        effect_disposition=_text(row[16]),
        api_content=_text(row[17]),
        token_count=row[18] if isinstance(row[18], int) else None,
        attachments=attachments_given(_text(row[19])),
        observed=bool(row[20]),
        visibility=visibility(row[21], row[22]),
        copy_of=row[23],
    )


def _line(row: Sequence[Any]) -> Line:
    return Line(
        id=row[0],
        role=_text(row[1]) or "",
        visibility=visibility(row[2], row[3]),
        copy_of=row[4],
        summary=bool(row[5]),
        observed=bool(row[6]),
        calls=call_ids(json_given(_text(row[7]))) if row[7] else (),
        answers=_text(row[8]),
    )


def _text(value: object) -> str | None:
    """A source may hold bytes or a number where text should be."""
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _ids(ids: Iterable[int]) -> str:
    return f"[{','.join(map(str, ids))}]"


def _extra(packed: bytes | None) -> tuple[dict[str, Any], dict[str, e.Odd]]:
    return _unpack(packed) if packed else ({}, {})
