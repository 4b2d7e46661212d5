"""How a session's identity changed, in words: what it got, what it lost, and what it goes on from."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...domain import events as e
from ...domain.events import Recorded

_WORDS = {"session_key": "key", "chat_id": "chat", "user_id": "user", "thread_id": "thread"}
_NOT_OWN = ("parent_session_id", "parent_kind", "source")
_KINDS = {"continuation": "the continuation", "branch": "a branch", "reset": "what a reset began"}


def netted(events: Sequence[Recorded], undoes: Container[int]) -> Iterator[Recorded]:
    """The events of a session, where an undo changed its identity told by its last event of that alone.

    The reverse of a repair may name another key in between, which nobody ever saw there.

    Args:
        undoes: positions of undos.
    """
    nets: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
    last = {each.save: each.position for each in events if _is_identity(each.payload)}
    for each in events:
        payload = each.payload
        if not isinstance(payload, (e.IdentityLost, e.IdentityRestored)) or each.position not in undoes:
            yield each
            continue
        was, now = nets.get(each.save, ({}, {}))
        nets[each.save] = was, now = payload.was | was, now | payload.now
        if last[each.save] == each.position:
            yield replace(each, payload=type(payload)(was, now))


def changed(payload: e.IdentityLost | e.IdentityRestored, marked: Callable[[str], str]) -> str:
    """What is different now: "gets its key and chat".

    Args:
        marked: how a session that is named is written.
    """
    was, now = payload.was, payload.now
    if isinstance(payload, e.IdentityLost):
        return f"loses its {_columns([name for name in was if now.get(name) is None] or list(was))}"
    own = [name for name in now if name not in _NOT_OWN]
    gets = [name for name in own if now[name] is not None and was.get(name) is None]
    loses = [name for name in own if now[name] is None and was.get(name) is not None]
    other = [name for name in own if now[name] is not None and was.get(name) not in (None, now[name])]
    said = [f"gets its {_columns(gets)}"] if gets else []
    said += [f"gets another {_columns(other)}"] if other else []
    said += [f"has no {_columns(loses, ' or ')} any more"] if loses else []
    if not said or loses:
        said += _lineage(was, now, marked)
    return " and ".join(said) or "has another identity"


def _lineage(was: Mapping[str, Any], now: Mapping[str, Any], marked: Callable[[str], str]) -> list[str]:
    before, parent = was.get("parent_session_id"), now.get("parent_session_id")
    if "parent_session_id" in now and parent is None and before is not None:
        return [f"no longer names {marked(before)} as what it comes from"]
    kind = _KINDS.get(str(now.get("parent_kind")))
    if parent is not None and parent != before:
        return [f"is {kind or 'a child'} of {marked(parent)} now"]
    return [f"is {kind or 'another child'} of what it comes from now"] if "parent_kind" in now else []


def _columns(names: Sequence[str], last: str = " and ") -> str:
    words = [_WORDS[name] for name in _WORDS if name in names]
    return last.join([", ".join(words[:-1]), words[-1]] if words[1:] else words) or "routing identity"


def _is_identity(payload: object) -> bool:
    return isinstance(payload, (e.IdentityLost, e.IdentityRestored))
