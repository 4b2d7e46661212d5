"""What may name a session, or a place and a person of a platform: never a path, never unseen characters."""

from __future__ import annotations

import re
from typing import Final

from .errors import BadIdentifier
from .text import scrub

_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
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


def _shown(value: str) -> str | None:
    """A text that holds what cannot be seen, as it can be shown; None for any other."""
    readable, broken = scrub(value)
    if not broken and not _UNSEEN.search(value):
        return None
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", readable)
