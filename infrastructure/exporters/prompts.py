"""What people asked, and nothing else: a record a prompt, or a page to read (REFERENCE.md 5.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...projections.base import Connection
from ...projections.exported import Fields, session_fields, told_messages
from .values import encode
from .words import seconds_iso


def records(db: Connection, session_id: str) -> Iterator[Fields]:
    """The prompts of a session in order; what stands for a compressed conversation is none."""
    index = 0
    for message in told_messages(db, session_id):
        if message["role"] != "user" or message.get("summary"):
            continue
        index += 1
        record: Fields = {
            "session_id": session_id,
            "index": index,
            "created_at": seconds_iso(message["timestamp"]),
            "role": "user",
            "text": text_of(message["content"]),
            "message_id": message["id"],
        }
        if message["platform_message_id"]:
            record["event_id"] = message["platform_message_id"]
        yield record


def as_jsonl(db: Connection, ids: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """(a line, 1) for each prompt."""
    for session_id in ids:
        for record in records(db, session_id):
            yield encode(record) + b"\n", 1


def as_markdown(db: Connection, ids: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """(a piece of the page, how many prompts it holds)."""
    pieces = _pieces(db, ids)
    held, count = next(pieces)
    for text, more in pieces:
        yield f"{held}\n".encode(), count
        held, count = text, more
    yield f"{held.rstrip(chr(10))}\n".encode(), count


def _pieces(db: Connection, ids: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Blocks that end where an empty line follows, so that the last one can go without it."""
    single = len(ids) == 1
    if not single:
        yield "# User prompts export\n", 0
    for session_id in ids:
        name = " ".join(session_id.split()) or "unknown"
        head = f"# User prompts for session {name}" if single else f"## Session {name}"
        yield "\n".join([head, *_metadata(session_fields(db, session_id)), ""]), 0
        some = False
        for record in records(db, session_id):
            some = True
            when = record["created_at"] or "timestamp unavailable"
            heading = f"{'##' if single else '###'} {record['index']}. {when}"
            yield f"{heading}\nMessage ID: `{record['message_id']}`\n\n{record['text']}\n", 1
        if not some:
            yield "_No user prompts found._\n", 0
    if not ids:
        yield "_No user prompts found._\n", 0


def _metadata(session: Fields) -> Iterator[str]:
    yield f"- Session ID: `{session['id']}`"
    for name, column in (("Source", "source"), ("Model", "model")):
        if session[column]:
            yield f"- {name}: `{session[column]}`"
    if session["title"]:
        yield f"- Title: {' '.join(str(session['title']).splitlines()).strip()}"
    if started := seconds_iso(session["started_at"]):
        yield f"- Started: {started}"
    yield f"- Messages: {session['message_count']}"


def text_of(content: Any) -> str:
    """The words of a message's content, whatever its shape."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "\n".join(filter(None, map(_part, content)))
    return _part(content)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        for key in ("text", "content"):
            if isinstance(part.get(key), str):
                return str(part[key])
        import json

        return json.dumps(part, ensure_ascii=False, sort_keys=True)
    return str(part)
