"""What a session is to the one it names as its parent, judged when it is first seen and as that one ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from .ends import RESET, is_compression
from .events import ParentKind
from .source_values import Row

_decode = msgspec.json.Decoder().decode


def markers(row: Row) -> dict[str, Any]:
    """The object in `model_config`; {} where there is none."""
    config = row.get("model_config")
    if not isinstance(config, str) or '"_' not in config:
        return {}
    try:
        found = _decode(config)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def parent_kind(child: Row, parent: Row | None) -> ParentKind | None:
    """The kind of child, by the store's own rules (REFERENCE.md 1.10); None without a parent.

    Clocks decide nothing but the oldest kind of branch, which bears no other mark.
    """
    if not child.get("parent_session_id"):
        return None
    marks = markers(child)
    parent = parent or {}
    if marks.get("_branched_from") or _branched(child, parent):
        return "branch"
    if marks.get("_delegate_from"):
        return "delegate"
    if child.get("source") == "tool":
        return "tool"
    reason = parent.get("end_reason")
    if isinstance(reason, str) and is_compression(reason):
        return "continuation"
    key = child.get("session_key")
    if marks.get("_reset_from") or (key and key == parent.get("session_key") and reason in RESET):
        return "reset"
    return "child"


def kind_again(known: ParentKind | None, judged: ParentKind | None) -> ParentKind | None:
    """What a child that was seen before is from here on, now that it is judged again.

    A parent that was open told nothing of its child; its end may. A parent that is open again, or
    gone, takes no kind back, and a continuation that the log has named stays one.
    """
    return known if known == "continuation" or judged in (None, "child") else judged


def _branched(child: Row, parent: Row) -> bool:
    began, ended = child.get("started_at"), parent.get("ended_at")
    return (
        parent.get("end_reason") == "branched"
        and isinstance(began, (int, float))
        and isinstance(ended, (int, float))
        and began >= ended
    )


def cycles(ids: Iterable[str], parent_of: Callable[[str], str | None]) -> list[list[str]]:
    """Circles among the parents, each once, beginning at its least id."""
    found: list[list[str]] = []
    done: set[str] = set()
    for start in ids:
        path: dict[str, None] = {}
        at: str | None = start
        while at is not None and at not in done and at not in path:
            path[at] = None
            at = parent_of(at)
        if at is not None and at in path:
            circle = list(path)[list(path).index(at) :]
            least = circle.index(min(circle))
            found.append(circle[least:] + circle[:least])
        done.update(path)
    return found
