"""Sessions as Markdown to read and to keep: front matter, messages, and a hash to verify it by.

The form is that of REFERENCE.md 5.4, so that what checks a Hermes export checks one of ours.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...domain.text import scrub
from ...projections.base import Connection
from ...projections.exported import (
    Fields,
    count_told,
    last_active,
    session_fields,
    told_messages,
)
from .words import iso

Format = Literal["md", "qmd"]
EXPORTER = "retold sessions export (md/qmd) v1"
_LONGEST_ID = 150
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f:]|\.\.|^\.")


class Page(msgspec.Struct, frozen=True):
    """A conversation to be written: the session that names it, and its segments in order."""

    session: Fields
    segments: list[str]
    lineage: bool
    updated_at: float
    count: int


def page_of(db: Connection, segments: Sequence[str], *, lineage: bool) -> Page:
    """What is known of a conversation before its messages are read; its last segment names it."""
    session_id = segments[-1]
    return Page(
        session_fields(db, session_id),
        list(segments),
        lineage,
        last_active(db, session_id),
        sum(count_told(db, each, segments) for each in segments),
    )


def file_name(session: Fields, form: Format) -> str:
    """Where it goes: its id and its title, as far as a file's name can bear them."""
    title = str(session.get("title") or "session")
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip(".-_").lower() or "session"
    return f"{safe_id(str(session['id']))}-{slug[:60]}.{form}"


def safe_id(session_id: str) -> str:
    """The id, or where a file's name cannot bear it, what is left of it and a hash of all of it."""
    if not _UNSAFE.search(session_id) and len(session_id.encode()) <= _LONGEST_ID:
        return session_id
    digest = hashlib.sha256(session_id.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', session_id)[:_LONGEST_ID]}-{digest}"


def note_in_manifest(folder: Path, page: Page, path: Path, form: Format, *, exported_at: float) -> None:
    """Add the file's line to manifest.jsonl: the hash there is of its bytes as they stand."""
    with path.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    entry = {
        "exported_at": exported_at,
        "format": form,
        "lineage_session_ids": page.segments,
        "message_count": page.count,
        "path": os.fsencode(path).decode(errors="backslashreplace"),
        "session_id": page.session["id"],
        "sha256": digest,
    }
    line = json.dumps(entry, ensure_ascii=False, sort_keys=True)
    handle = os.open(folder / "manifest.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(handle, "ab") as manifest:
        manifest.write(line.encode() + b"\n")


def render(db: Connection, page: Page, form: Format, *, exported_at: float) -> Iterator[bytes]:
    """The file, piece by piece. Its last line holds the hash of all of it, with `pending` in its place."""
    digest = hashlib.sha256()
    for piece in _body(db, page, form, iso(exported_at)):
        encoded = scrub(piece)[0].encode()
        digest.update(encoded)
        yield encoded
    digest.update(_hash_line("pending"))
    yield _hash_line(digest.hexdigest())


def _hash_line(value: str) -> bytes:
    return f"- SHA256 of exported body: `{value}`\n".encode()


def _body(db: Connection, page: Page, form: Format, exported_at: str) -> Iterator[str]:
    session = page.session
    yield "---\n"
    for key, value in _front_matter(page, form, exported_at):
        yield f"{key}: {json.dumps(value, ensure_ascii=False)}\n"
    yield f"---\n\n# {session['title'] or session['id']}\n\nSession ID: `{session['id']}`\n\n"
    if session["source"]:
        yield f"Source: `{session['source']}`\n\n"
    if session["cwd"]:
        yield f"Working directory: `{session['cwd']}`\n\n"
    held = "## Messages\n\n"
    for block in _blocks(db, page):
        yield held
        held = block
    if not page.count:
        yield held
        held = "_No messages in this session._\n"
    yield held.rstrip() + "\n\n## Export verification\n\n"
    yield f"- Session id: `{session['id']}`\n- Exported messages: `{page.count}`\n"
    counted = page.count if page.lineage else session["message_count"]
    yield f"- Source DB message count at export: `{counted}`\n- Exported at: `{exported_at}`\n"


def _front_matter(page: Page, form: Format, exported_at: str) -> Iterator[tuple[str, object]]:
    session = page.session
    yield "session_id", session["id"]
    yield "title", session["title"]
    yield "source", session["source"]
    yield "created_at", iso(session["started_at"])
    yield "updated_at", iso(page.updated_at)
    yield "ended_at", iso(session["ended_at"])
    yield "model", session["model"]
    yield "provider", session["billing_provider"]
    yield "cwd", session["cwd"]
    yield "archived", bool(session["archived"])
    yield "message_count", page.count
    yield "tool_call_count", session["tool_call_count"] or 0
    if page.lineage:
        yield "lineage_session_ids", page.segments
    yield "format", form
    yield "exported_at", exported_at
    yield "exporter", EXPORTER


def _blocks(db: Connection, page: Page) -> Iterator[str]:
    if not page.count:
        return
    for session_id in page.segments:
        if len(page.segments) > 1:
            yield f"## Compression segment: {session_id}\n\n"
        for message in told_messages(db, session_id, page.segments):
            yield _block(message)


def _block(message: Fields) -> str:
    role = str(message["role"] or "message")
    label = role.capitalize()
    if role == "tool" and message["tool_name"]:
        label = f"Tool — {message['tool_name']}"
    when = iso(message["timestamp"])
    block = f"### {label}{' — ' + when if when else ''}\n\n"
    content = message["content"]
    words = content.rstrip() if isinstance(content, str) else "" if content is None else fenced(content)
    if words:
        block += f"{words}\n\n"
    if message["tool_calls"]:
        block += f"\n\n## Tool calls\n\n{fenced(message['tool_calls'])}\n\n"
    return block + "\n"


def fenced(value: Any) -> str:
    """A value as JSON in a fence; JSON escapes line ends, so no text in it closes the fence."""
    return f"```json\n{json.dumps(value, ensure_ascii=False, indent=2)}\n```"
