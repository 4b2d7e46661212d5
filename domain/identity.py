"""What a session still lacks of its chat's identity, or has in an older form."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from . import events as e
from .errors import BadUsage
from .session import Session
from .session_source import SessionSource

_FILLED = ("chat_id", "chat_type", "thread_id", "user_id")


def identity_of(
    state: Session, source: SessionSource, key: str, *, shared: bool
) -> e.IdentityRestored | None:
    """What the next message of a chat sets right in its session; None where nothing is amiss.

    What is missing is filled in, as after a crash between a session and its identity; the chat's name
    and origin follow the platform's. What a session has is never exchanged for another chat's.

    Args:
        shared: several people speak in this session; none of them is its user.
    """
    if state.key not in (None, key) or state.chat_id not in (None, "", source.chat_id):
        return None
    wanted = source.identity()
    now: dict[str, Any] = {} if state.key == key else {"session_key": key}
    now |= {name: wanted[name] for name in _FILLED if wanted[name] and getattr(state, name) is None}
    if source.chat_name and source.chat_name != state.display_name:
        now["display_name"] = source.chat_name
    elif state.display_name is None and wanted["display_name"] and not shared:
        now["display_name"] = wanted["display_name"]
    known = _known(state.origin_json, shared)
    said = {name: value for name, value in source.of_the_chat(shared=shared).to_dict().items() if value}
    if known | said != known:
        kept = {name: value for name, value in _known(state.origin_json, shared=False).items() if value}
        merged = source.to_dict() | kept | said
        now["origin_json"] = SessionSource.from_dict(merged).to_json()
    if not now:
        return None
    columns = {"session_key": "key"}
    return e.IdentityRestored(was={n: getattr(state, columns.get(n, n)) for n in now}, now=now)


@lru_cache(maxsize=4096)
def _known(origin_json: str | None, shared: bool) -> dict[str, Any]:
    """An origin as it was stored, without what is another at each message."""
    if origin_json is None:
        return {}
    try:
        return SessionSource.from_json(origin_json).of_the_chat(shared=shared).to_dict()
    except (BadUsage, msgspec.MsgspecError, TypeError):
        return {}
