"""What may name a session, or a place and a person of a platform: never a path, never unseen characters."""

from __future__ import annotations

import re
from typing import Final

from . import events as e
from .errors import BadIdentifier
from .text import scrub

_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn around what is shown after them."""
_LONGEST: Final = 255
"""Bytes of a file's name: a session's id may stand in one."""
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
_DRIVE_OF_A_FILE: Final = re.compile(r"[A-Za-z]:")


def refuse_unsafe_session(session_id: str) -> None:
    """Refuse an id of a session that could lead out of a folder (REFERENCE.md 1.1).

    Raises:
        BadIdentifier: it is empty, a path or part of one, or holds control characters.
    """
    shown = _shown(session_id)
    why = None
    if shown is not None:
        why = "it holds control characters or no valid text"
    elif not session_id:
        why = "it is empty"
    elif session_id == ".":
        why = "it is a path"
    elif len(session_id.encode()) > _LONGEST:
        why, shown = f"it is longer than {_LONGEST} bytes", f"{session_id[:40]}…"
    elif any(part in session_id for part in ("..", "/", "\\")) or _DRIVE_OF_A_FILE.match(session_id):
        why = "it is a path"
    if why is not None:
        shown = session_id if shown is None else shown
        raise BadIdentifier(f"'{shown}' cannot be a session's id: {why}", hint="give another id")


def refuse_unsafe_peer(name: str, value: str | None) -> None:
    """Refuse an id of a chat, thread or person that is a path. Some platforms have a '/' inside theirs.

    Args:
        name: what the id is of, for the message.

    Raises:
        BadIdentifier: it is a path, or holds control characters.
    """
    if value is None:
        return
    shown = _shown(value)
    if shown is not None:
        what = f"'{shown}' holds control characters or no valid text"
    elif ".." in value or value[:1] in ("/", "\\") or _DRIVE.match(value):
        what = f"'{value}' is a path"
    else:
        return
    raise BadIdentifier(f"{name} {what}", hint="give the id as the platform has it")


def refuse_unsafe_identity(identity: e.SessionCreated) -> None:
    """Refuse a session whose source, chat, person or key, as a caller names them, could not be theirs.

    Raises:
        BadIdentifier: one of them is a path, or holds control characters.
    """
    for name in ("source", "session_key", "chat_id", "chat_type", "thread_id", "user_id"):
        refuse_unsafe_peer(f"a session's {name}", getattr(identity, name))


def _shown(value: str) -> str | None:
    """A text that holds what cannot be seen, as it can be shown; None for any other."""
    readable, broken = scrub(value)
    if not broken and not _UNSEEN.search(value):
        return None
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", readable)
