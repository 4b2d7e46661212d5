"""What people asked, and nothing else: a record a prompt, or a page to read (REFERENCE.md 5.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...projections.exported import Fields
from ...projections.preview import is_summary
from .rows import Rows
from .values import encode
from .words import seconds_iso

_PRIOR: Final = re.compile(r"\A\[PRIOR CONTEXT\b[^\]]*\]\s*")
_SUMMARY_BELOW: Final = re.compile(r"^\[END OF PRIOR CONTEXT\b[^\]]*\]\s*", re.MULTILINE)
_SUMMARY_END: Final = re.compile(r"^--- END OF CONTEXT SUMMARY\b.*---$", re.MULTILINE)


def records(rows: Rows, session_id: str) -> Iterator[Fields]:
    """The prompts of a session in order; what stands for a compressed conversation is none."""
    index = 0
    for message in rows.told(session_id):
        if message["role"] != "user" or message.get("summary"):
            continue
        text = _asked(text_of(message["content"]))
        if text is None:
            continue
        index += 1
        record: Fields = {
            "session_id": session_id,
            "index": index,
            "created_at": seconds_iso(message["timestamp"]),
            "role": "user",
            "text": text,
            "message_id": message["id"],
        }
        if message["platform_message_id"]:
            record["event_id"] = message["platform_message_id"]
        yield record


def _asked(text: str) -> str | None:
    """What a person said in a message; None where it only stands for turns that were compacted.

    Where a summary would have had no place of its own, Hermes puts what the person said before it, or
    after its end (`agent/context_compressor.py` of 0.19).
    """
    before = _SUMMARY_BELOW.search(text)
    if before is not None and is_summary(text[before.end() :]):
        return _PRIOR.sub("", text[: before.start()]).strip() or None
    if not is_summary(text):
        return text
    end = _SUMMARY_END.search(text)
    return None if end is None else text[end.end() :].strip() or None


def as_jsonl(rows: Rows, ids: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """(a line, 1) for each prompt."""
    for session_id in ids:
        for record in records(rows, session_id):
            yield encode(record) + b"\n", 1


def as_markdown(rows: Rows, ids: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """(a piece of the page, how many prompts it holds)."""
    pieces = _pieces(rows, ids)
    held, count = next(pieces)
    for text, more in pieces:
        yield f"{held}\n".encode(), count
        held, count = text, more
    yield f"{held.rstrip(chr(10))}\n".encode(), count


def _pieces(rows: Rows, ids: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Blocks that end where an empty line follows, so that the last one can go without it."""
    single = len(ids) == 1
    if not single:
        yield "# User prompts export\n", 0
    for session_id in ids:
        name = " ".join(session_id.split()) or "unknown"
        head = f"# User prompts for session {name}" if single else f"## Session {name}"
        yield "\n".join([head, *_metadata(rows.session(session_id)), ""]), 0
        some = False
        for record in records(rows, session_id):
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
