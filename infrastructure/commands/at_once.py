"""Messages appended on what this process knows of their session, without a look at it first.

The look costs as much as the insert, and the insert looks by itself: it takes the next version of the
session's stream, so that whatever another writer has done to the session meanwhile is in its way; and a key
that was used before is, too. Then nothing was written, and all is decided from fresh state.

Only for a session that is known to be open: what would be refused is looked at, since a refusal writes
nothing that could be in anybody's way.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.errors import BadUsage, RuleBroken, VersionConflict
from ...domain.events import session_stream
from ...domain.message import Message
from ...domain.session import Session
from ..decisions import Decisions, event
from .base import moved


def append_at_once(
    engine: Decisions,
    state: Session | None,
    messages: Sequence[Message],
    keys: Sequence[bytes | None],
    at_us: int,
) -> tuple[int, ...] | None:
    """Append to a session as it is known; None, with nothing written, where it has to be looked at."""
    if state is None or state.ended or state.deleted:
        return None
    if any(keys) and (len(keys) > 1 or state.parent_kind == "continuation"):
        return None  # where it was said before: twice in one save, or before the session went on as this one
    stream = session_stream(state.id)
    try:
        events = [
            event(stream, version, state.append(message), at_us, idempotency_key=key)
            for version, (message, key) in enumerate(zip(messages, keys, strict=True), state.version + 1)
        ]
        positions = engine.save_events(events)
    except (VersionConflict, RuleBroken, BadUsage):
        return None
    engine.remember(moved(state, len(events)))
    return positions
