"""What an export takes of sessions: their columns under Hermes' names, and their messages one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec

from ..domain.message import STRUCTURED
from .base import Connection
from .message_columns import MESSAGE_COLUMNS
from .session_rows import SOURCE_COLUMNS
from .tree import chain

Fields = dict[str, Any]

_OURS: Final = ("copy_of", "source_id", "attachments", "summary", "extra")
_SESSION: Final = tuple(column for column in SOURCE_COLUMNS if column != "system_prompt_hash")
_MESSAGE: Final = tuple(column for column in MESSAGE_COLUMNS if column not in _OURS)
_LAST_ACTIVE: Final = (
    "coalesce((SELECT max(timestamp) FROM messages m WHERE m.session_id = s.id AND m.active), s.started_at)"
)
_PROMPT: Final = (
    "coalesce(s.system_prompt, (SELECT prompt FROM system_prompts p WHERE p.hash = s.system_prompt_hash))"
)
_decode = msgspec.json.Decoder().decode
_unpack = msgspec.msgpack.Decoder().decode


def last_used_first(db: Connection, ids: Collection[str] | None = None) -> list[str]:
    """Sessions that are not deleted, archived, child and open ones too; only those of `ids`, if given."""
    rows = db.execute(
        f"SELECT s.id FROM sessions s ORDER BY {_LAST_ACTIVE} DESC, s.started_at DESC, s.id DESC"
    )
    return [row[0] for row in rows if ids is None or row[0] in ids]


def segments(db: Connection, session_id: str) -> list[str]:
    """The conversation that a session is a segment of, in order, whichever of them was named."""
    return [each.session_id for each in chain(db, session_id)]


def conversations(db: Connection, ids: Sequence[str]) -> list[list[str]]:
    """The conversations that sessions are segments of, in the order of `ids`; each session stands in one.

    Of several continuations the one that the conversation goes on as is told with what came before it; of
    another one only what no other conversation tells, unless it alone was asked for.
    """
    found: dict[str, list[str]] = {}
    others: list[tuple[str, list[str]]] = []
    told: set[str] = set()
    for each in ids:
        if each in told:
            continue
        path = segments(db, each)
        if path[0] == each or each in segments(db, path[0]):
            found[each] = path
            told.update(path)
        else:
            others.append((each, path))
    for each, path in others:
        if each not in told:
            found[each] = [segment for segment in path if segment not in told]
            told.update(path)
    return [found[each] for each in ids if each in found]


def session_fields(db: Connection, session_id: str) -> Fields:
    """A session's columns, and those of its source that no column here can bear."""
    columns = ", ".join(_PROMPT if column == "system_prompt" else f"s.{column}" for column in _SESSION)
    row = db.execute(f"SELECT {columns}, s.extra FROM sessions s WHERE s.id = ?", (session_id,)).fetchone()
    return _with_extra(dict(zip(_SESSION, row, strict=False)), row[-1])


def last_active(db: Connection, session_id: str) -> float:
    """When anything was last said in it, or when it began, in seconds since the epoch."""
    row = db.execute(f"SELECT {_LAST_ACTIVE} FROM sessions s WHERE s.id = ?", (session_id,)).fetchone()
    return float(row[0])


def live_messages(db: Connection, session_id: str) -> Iterator[Fields]:
    """What a model sees of a session, whole rows."""
    yield from _messages(db, session_id, "m.active")


def told_messages(db: Connection, session_id: str, among: Sequence[str] = ()) -> Iterator[Fields]:
    """What a person saw of a session: what was compacted too, each message once, and nothing undone.

    Args:
        among: the segments of the conversation that are told with it; a copy of what one of them holds
            is not told again.
    """
    yield from _messages(db, session_id, _TOLD, _json([session_id, *among]))


def count_told(
    db: Connection, session_id: str, among: Sequence[str] = (), *, but_role: str | None = None
) -> int:
    """How many `told_messages` gives, but for those of a role."""
    sql = f"SELECT count(*) FROM messages m WHERE m.session_id = ?1 AND {_TOLD} AND m.role IS NOT ?3"
    return int(db.execute(sql, (session_id, _json([session_id, *among]), but_role)).fetchone()[0])


_TOLD: Final = (
    "(m.active OR m.compacted) AND (m.copy_of IS NULL OR NOT EXISTS"
    " (SELECT 1 FROM messages o WHERE o.id = m.copy_of AND (o.active OR o.compacted)"
    " AND o.session_id IN (SELECT value FROM json_each(?2))))"
)


def _json(ids: Sequence[str]) -> str:
    return msgspec.json.encode(list(ids)).decode()


def _messages(db: Connection, session_id: str, which: str, *bound: str) -> Iterator[Fields]:
    columns = ", ".join(f"m.{column}" for column in (*_MESSAGE, *_OURS))
    sql = f"SELECT {columns} FROM messages m WHERE m.session_id = ?1 AND {which} ORDER BY m.id"
    for row in db.execute(sql, (session_id, *bound)):
        yield _message(row)


def _message(row: Any) -> Fields:
    fields = dict(zip(_MESSAGE, row, strict=False))
    _, source_id, attachments, summary, extra = row[len(_MESSAGE) :]
    if source_id is not None:
        fields["id"] = source_id  # it keeps the id that it came with, through every export and import
    content = fields["content"]
    if type(content) is str and content.startswith(STRUCTURED):  # few are
        fields["content"] = decoded(content, STRUCTURED)
    if fields["tool_calls"]:
        fields["tool_calls"] = decoded(fields["tool_calls"])
    if attachments is not None:
        fields["attachments"] = decoded(attachments)
    if summary:
        fields["summary"] = summary
    if extra is not None:
        _with_extra(fields, extra)
        if isinstance(fields.get("attachments"), str):
            fields["attachments"] = decoded(fields["attachments"])
    return fields


def _with_extra(fields: Fields, extra: bytes | None) -> Fields:
    """Further columns of a source's row; where a value was no valid UTF-8 its readable text stands."""
    if extra is not None:
        columns, odd = _unpack(extra)
        for column, value in columns.items():
            fields.setdefault(column, value)
        if any(kind == "text" for kind, _ in odd.values()):
            fields[NOT_UTF8] = sorted(column for column, (kind, _) in odd.items() if kind == "text")
    return fields


NOT_UTF8: Final = "not_utf8"
"""Of a row: columns whose bytes were no valid UTF-8 in the source; U+FFFD stands for those."""


def decoded(text: Any, prefix: str = "") -> Any:
    """The value of JSON text that bears the prefix; anything else as it is."""
    if not isinstance(text, str) or not text or not text.startswith(prefix):
        return text
    try:
        return _decode(text[len(prefix) :])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    import json

    try:  # what Python's own JSON writes: NaN, lone surrogates
        return json.loads(text[len(prefix) :])
    except (ValueError, RecursionError):
        return text
