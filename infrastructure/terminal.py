"""Which terminal and which project folder a command is given in: where "the last session" is looked for."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

VARIABLE = "RETOLD_TERMINAL"
"""Whoever sets it says which terminal this is."""
_PANES = (("TMUX", "TMUX_PANE"), ("STY", "WINDOW"), ("TERM_SESSION_ID",), ("WT_SESSION",))
"""What terminals and multiplexers tell of the pane that a program runs in; all of a group, or none of it."""


def terminal_id() -> str | None:
    """The terminal that this process belongs to, one name for as long as it stays open; None without one.

    A session is a terminal's where its program says so as it begins it:
    `engine.create_session("cli", chat_id=retold.terminal_id())`. The name is a hash: no path, no host.
    """
    told = os.environ.get(VARIABLE, "").strip()
    facts = [told] if told else _pane() or _tty()
    if not facts:
        return None
    named = "\0".join((os.uname().nodename, *facts))
    return f"terminal-{hashlib.blake2b(named.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def _pane() -> list[str]:
    for names in _PANES:
        values = [os.environ.get(name, "") for name in names]
        if all(values):
            return values
    return []


def _tty() -> list[str]:
    """The device, and the process that leads its session: devices are numbered again and again."""
    for stream in (0, 1, 2):
        try:
            return [os.ttyname(stream), str(os.getsid(0))]
        except OSError:
            continue
    return []


def workspaces(folder: Path) -> tuple[str, ...]:
    """What a session may call the project that `folder` is in: its repository's root, else itself.

    Nothing but the file system is asked: the root is the nearest folder that holds a `.git`.
    """
    found: dict[str, None] = {}
    for each in (folder, Path(os.path.realpath(folder))):
        root = next((up for up in (each, *each.parents) if (up / ".git").exists()), each)
        found.setdefault(str(root))
    return tuple(found)
