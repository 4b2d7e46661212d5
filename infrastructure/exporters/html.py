"""Conversations as one page that loads nothing and runs nothing but its own script (REFERENCE.md 5.3).

The page is written message by message. Its policy names its style and its script by their hashes: whatever a
message holds, a browser that keeps to the policy runs no other script, applies no other style and asks nobody
for anything. Without scripts everything can still be read; what needs one is not shown then.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from ...projections.exported import Fields, count_told, last_active
from .html_message import card, folded, moment
from .html_text import escaped, plain
from .rows import Rows

META: Final = "session_meta"
"""A role of notes about a session, which nobody said."""
UNTITLED: Final = "Untitled Session"
_TITLE: Final = 50
"""Characters of a title in the sidebar."""
_NOTHING: Final = '<p class="nothing">No sessions to show.</p>\n'


class Part(msgspec.Struct, frozen=True):
    """A conversation of the page: the session that names it, its segments in order, how many messages."""

    session: Fields
    segments: Sequence[str]
    anchor: str
    begun: object
    active: object
    count: int


class Page(msgspec.Struct):
    """What is to be written, and what was.

    Attributes:
        conversations: the segments of each, in the order of the page.
        zone: of its times; the machine's own where it is None.
        exported_at: in seconds since the epoch.
        written: messages that are on the page so far.
    """

    conversations: Sequence[Sequence[str]]
    zone: tzinfo | None = None
    exported_at: float = 0.0
    written: int = 0
    anchors: Counter[str] = msgspec.field(default_factory=Counter)


def render(rows: Rows, page: Page) -> Iterator[bytes]:
    """The page, piece by piece."""
    parts = [_part(rows, page, each) for each in page.conversations]
    yield _head(parts).encode()
    yield _bar(parts).encode()
    if len(parts) > 1:
        yield from (each.encode() for each in _sidebar(parts, page.zone))
    yield b'<main id="content" tabindex="-1">\n'
    if not parts:
        yield _NOTHING.encode()
    for part in parts:
        yield from (each.encode() for each in _conversation(rows, page, part))
    yield b"</main>\n"
    yield _foot(page, parts).encode()


def _part(rows: Rows, page: Page, segments: Sequence[str]) -> Part:
    tip = segments[-1]
    session = rows.session(tip)
    count = sum(count_told(rows.db, each, segments, but_role=META) for each in segments)
    begun = _begun(rows, segments[0])
    return Part(session, segments, _anchor(page, "s", tip), begun, last_active(rows.db, tip), count)


def _begun(rows: Rows, session_id: str) -> object:
    return rows.db.execute("SELECT started_at FROM sessions WHERE id = ?", (session_id,)).fetchone()[0]


def _anchor(page: Page, kind: str, named: object) -> str:
    """An id that no other thing of the page has, and the same in every export of the same conversations."""
    anchor = f"{kind}-{quote(str(named), safe='', errors='replace')}"
    page.anchors[anchor] += 1
    again = page.anchors[anchor]
    return anchor if again == 1 else f"{anchor}~{again}"


# --- the frame --------------------------------------------------------------------------------------


@cache
def _own(name: str) -> tuple[str, str]:
    """A file of the page, and the hash by which its policy names it."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    return text, b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _head(parts: Sequence[Part]) -> str:
    style, style_hash = _own("page.css")
    _, script_hash = _own("page.js")
    policy = (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    title = _title(parts[0]) if len(parts) == 1 else f"{len(parts):,} conversations"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="generator" content="Retold">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n"
    )


def _bar(parts: Sequence[Part]) -> str:
    wide = ' class="many"' if len(parts) > 1 else ""
    menu = (
        '<button type="button" id="menu" aria-controls="sidebar" aria-expanded="false">Conversations</button>'
    )
    return (
        f'<body{wide}>\n<a class="skip" href="#content">Skip to the conversation</a>\n'
        f'<header class="bar" hidden>{menu if len(parts) > 1 else ""}\n'
        '<search><label class="unseen" for="find">Search messages</label>'
        '<input id="find" type="search" placeholder="Search messages" autocomplete="off" spellcheck="false">'
        '<output id="found" for="find" aria-live="polite"></output>'
        '<button type="button" id="previous" aria-label="Previous match" disabled>↑</button>'
        '<button type="button" id="next" aria-label="Next match" disabled>↓</button></search>\n'
        '<div class="tools"><button type="button" id="unfold" aria-pressed="false">Expand all</button>'
        '<button type="button" id="theme">Theme: auto</button></div></header>\n'
    )


def _sidebar(parts: Sequence[Part], zone: tzinfo | None) -> Iterator[str]:
    yield (
        '<nav id="sidebar" aria-label="Conversations">\n'
        '<div class="filter" hidden><label class="unseen" for="filter">Filter conversations</label>'
        '<input id="filter" type="search" placeholder="Filter conversations" autocomplete="off"></div>\n'
        "<ol>\n"
    )
    for part in parts:
        tip = str(part.session["id"])
        about = " · ".join(filter(None, (escaped(str(part.session["source"] or "")), escaped(tip[:8]))))
        yield (
            f'<li><a href="#{part.anchor}" title="{escaped(tip)}"><span class="name" dir="auto">'
            f"{escaped(_title(part)[:_TITLE])}</span>"
            f'<span class="about">{about} · {moment(part.active, zone, "%Y-%m-%d")}</span></a></li>\n'
        )
    yield '</ol>\n<p class="nothing" hidden>No conversation matches.</p>\n</nav>\n'


def _foot(page: Page, parts: Sequence[Part]) -> str:
    script, _ = _own("page.js")
    zone = datetime.fromtimestamp(page.exported_at, UTC).astimezone(page.zone).tzname() or "local time"
    conversations = f"{len(parts):,} conversation{'' if len(parts) == 1 else 's'}"
    messages = f"{page.written:,} message{'' if page.written == 1 else 's'}"
    exported = f"Exported {moment(page.exported_at, page.zone)} {escaped(zone)}"
    return (
        f'<footer class="foot"><p>{conversations}, {messages}. {exported} '
        "with Retold; each time shows itself in UTC when pointed at.</p></footer>\n"
        f'<div id="said" class="unseen" role="status"></div>\n<script>{script}</script>\n</body>\n</html>\n'
    )


# --- a conversation ---------------------------------------------------------------------------------


def _title(part: Part) -> str:
    return " ".join(str(part.session["title"] or "").split()) or UNTITLED


def _conversation(rows: Rows, page: Page, part: Part) -> Iterator[str]:
    yield (
        f'<section class="conversation" id="{part.anchor}" aria-labelledby="{part.anchor}-title">\n'
        f'<header class="head"><h2 id="{part.anchor}-title" dir="auto">{escaped(_title(part))}</h2>\n<dl>'
    )
    for name, value in _facts(part, page.zone):
        yield f"<div><dt>{name}</dt><dd>{value}</dd></div>"
    yield "</dl></header>\n"
    prompt = part.session["system_prompt"]
    if isinstance(prompt, str) and prompt.strip():
        yield folded("prompt", "System prompt", plain(prompt), peek=prompt)
    for session_id in part.segments:
        if len(part.segments) > 1:
            yield _segment(rows, page, part, session_id)
        for message in rows.told(session_id, part.segments):
            if message["role"] != META:
                page.written += 1
                yield card(message, _anchor(page, "m", message["id"]), page.zone)
    if not part.count:
        yield '<p class="nothing">No messages in this session.</p>\n'
    yield "</section>\n"


def _facts(part: Part, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    session = part.session
    for name, column in (("Source", "source"), ("Model", "model")):
        if session[column]:
            yield name, escaped(str(session[column]))
    yield "Started", moment(part.begun, zone)
    if session["ended_at"] is not None:
        reason = f" ({escaped(str(session['end_reason']))})" if session["end_reason"] else ""
        yield "Ended", moment(session["ended_at"], zone) + reason
    else:
        yield "Last active", moment(part.active, zone)
    yield "Messages", f"{part.count:,}"
    if session["cwd"]:
        yield "Folder", f"<code>{escaped(str(session['cwd']))}</code>"
    yield "Session", f"<code>{escaped(str(session['id']))}</code>"


def _segment(rows: Rows, page: Page, part: Part, session_id: str) -> str:
    """Where a compression cut the conversation."""
    named = "" if session_id == part.segments[-1] else f' id="{_anchor(page, "s", session_id)}"'
    return (
        f'<h3 class="segment"{named}>Compression segment: <code>{escaped(session_id)}</code> '
        f"{moment(_begun(rows, session_id), page.zone)}</h3>\n"
    )
