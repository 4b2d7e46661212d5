"""Sessions as Markdown to read and to keep: front matter, messages, and a hash to verify it by.

The form is that of REFERENCE.md 5.4, so that what checks a Hermes export checks one of ours.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...domain.text import scrub
from ...projections.exported import Fields, count_told, last_active
from .output_file import add_line, keep_last
from .rows import Rows
from .words import iso

EXPORTER = "retold sessions export (md/qmd) v1"
MANIFEST = "manifest.jsonl"
_LONGEST_ID = 150
_LONGEST_NAME = 255
_LONGEST_END = 64 * 1024
_HASH = b"- SHA256 of exported body: `"
_END = "## Export verification\n\n"
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f:]|\.\.|^\.")


class Page(msgspec.Struct, frozen=True):
    """A conversation to be written: the session that names it, and its segments in order."""

    session: Fields
    segments: list[str]
    lineage: bool
    updated_at: float
    count: int


def page_of(rows: Rows, segments: Sequence[str], *, lineage: bool) -> Page:
    """What is known of a conversation before its messages are read; its last segment names it."""
    session_id = segments[-1]
    return Page(
        rows.session(session_id),
        list(segments),
        lineage,
        last_active(rows.db, session_id),
        sum(count_told(rows.db, each, segments) for each in segments),
    )


def file_name(session: Fields, form: str) -> str:
    """Where it goes: its id and its title, as far as a file's name can bear them."""
    name = safe_id(str(session["id"]))
    room = _LONGEST_NAME - len(f"{name}-.{form}".encode())
    return f"{name}-{slug_of(str(session.get('title') or 'session'), size_bytes=room)}.{form}"


def slug_of(title: str, *, size_bytes: int) -> str:
    """A title as a part of a file's name: letters and digits of every script stay, with their marks.

    Args:
        size_bytes: of UTF-8 at most; never more than 60 characters and 200 bytes.
    """
    lowered = unicodedata.normalize("NFC", unicodedata.normalize("NFC", scrub(title)[0]).lower())
    kept = "".join(each if _names(each) else "\0" for each in lowered)
    slug = re.sub("\0+", "-", kept).strip(".-_")
    cut = min(60, len(slug))
    while cut and (
        len(slug[:cut].encode()) > min(200, size_bytes) or (cut < len(slug) and _is_mark(slug[cut]))
    ):
        cut -= 1
    return slug[:cut].rstrip(".-_") or "session"


def _names(char: str) -> bool:
    return char.isalnum() or char in "._-" or _is_mark(char)


def _is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] == "M"


def safe_id(session_id: str) -> str:
    """The id, or where a file's name cannot bear it, what is left of it and a hash of all of it."""
    if not _UNSAFE.search(session_id) and len(session_id.encode()) <= _LONGEST_ID:
        return session_id
    digest = hashlib.sha256(session_id.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', session_id)[:_LONGEST_ID]}-{digest}"


def note_in_manifest(folder: Path, page: Page, path: Path, form: str, *, exported_at: float) -> None:
    """Add the file's line to the manifest: the hash there is of its bytes as they stand."""
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
    add_line(folder / MANIFEST, json.dumps(entry, ensure_ascii=False, sort_keys=True).encode() + b"\n")


def tidy_manifest(folder: Path) -> None:
    """Of files that were written over, keep their last line in the manifest."""
    keep_last(folder / MANIFEST, _path_in)


def _path_in(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    path = entry.get("path") if isinstance(entry, dict) else None
    return path if isinstance(path, str) else None


def failure(path: Path, session_id: str, count: int) -> str | None:
    """Why a page on disk is not whole, or not that of a session of so many messages; None for a sound one."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST_END))
            tail = file.read()
            body, marker, value = tail.rpartition(_HASH)
            if not marker or not re.fullmatch(rb"[0-9a-f]{64}`\n", value):
                return "sha256 marker missing"
            digest = hashlib.sha256()
            file.seek(0)
            left = path.stat().st_size - len(marker) - len(value)
            while left > 0 and (piece := file.read(min(left, 1 << 20))):
                digest.update(piece)
                left -= len(piece)
    except OSError:
        return "file missing"
    digest.update(_hash_line("pending"))
    if digest.hexdigest().encode() != value[:64]:
        return "sha256 mismatch"
    end = body[body.rfind(_END.encode()) :].decode(errors="replace")
    if f"\n- Exported messages: `{count}`\n" not in end:
        return "message count mismatch"
    return None if f"\n- Session id: `{session_id}`\n" in end else "session id mismatch"


def render(rows: Rows, page: Page, form: str, *, exported_at: float) -> Iterator[bytes]:
    """The file, piece by piece. Its last line holds the hash of all of it, with `pending` in its place."""
    digest = hashlib.sha256()
    for piece in _body(rows, page, form, iso(exported_at)):
        encoded = scrub(piece)[0].encode()
        digest.update(encoded)
        yield encoded
    digest.update(_hash_line("pending"))
    yield _hash_line(digest.hexdigest())


def _hash_line(value: str) -> bytes:
    return _HASH + f"{value}`\n".encode()


def _body(rows: Rows, page: Page, form: str, exported_at: str) -> Iterator[str]:
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
    for block in _blocks(rows, page):
        yield held
        held = block
    if not page.count:
        yield held
        held = "_No messages in this session._\n"
    yield f"{held.rstrip()}\n\n{_END}"
    yield f"- Session id: `{session['id']}`\n- Exported messages: `{page.count}`\n"
    counted = page.count if page.lineage else session["message_count"]
    yield f"- Source DB message count at export: `{counted}`\n- Exported at: `{exported_at}`\n"


def _front_matter(page: Page, form: str, exported_at: str) -> Iterator[tuple[str, object]]:
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


def _blocks(rows: Rows, page: Page) -> Iterator[str]:
    if not page.count:
        return
    for session_id in page.segments:
        if len(page.segments) > 1:
            yield f"## Compression segment: {session_id}\n\n"
        for message in rows.told(session_id, page.segments):
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
