"""What may name a session, or a place and a person of a platform: never a path, never unseen characters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from . import events as e
from .errors import BadIdentifier, BadUsage
from .text import is_blank, is_unseen, scrub, seen

PEER_IDS: Final = ("session_key", "chat_id", "chat_type", "thread_id", "user_id", "profile_name")
"""The columns of a session that name a place, a person or a profile."""
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
    elif is_blank(session_id):
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
    refuse_unsafe_peers("a session's", {name: getattr(identity, name) for name in ("source", *PEER_IDS)})
    if identity.parent_session_id is not None:
        refuse_unsafe_session(identity.parent_session_id)


def refuse_unsafe_peers(whose: str, named: Mapping[str, str | None]) -> None:
    """`refuse_unsafe_peer` for each of the words that name a place and a person; others are no ids.

    Raises:
        BadIdentifier: one of them is a path, or holds control characters.
    """
    for name, value in named.items():
        if name in PEER_IDS or name in ("source", "platform"):
            refuse_unsafe_peer(f"{whose} {name}", value)


def refuse_blank_key(key: str | None) -> None:
    """Refuse an idempotency key that names nothing: whatever came under it would be one and the same.

    Raises:
        BadUsage: it is blank.
    """
    if key is not None and is_blank(key):
        raise BadUsage("an idempotency key cannot be blank", hint="give another, or none")


def _shown(value: str) -> str | None:
    """A text that holds what cannot be seen, as it can be shown; None for any other."""
    readable, broken = scrub(value)
    return seen(readable) if broken or is_unseen(value) else None
