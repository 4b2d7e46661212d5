"""What several commands share: ids, one event of one session, state that moved on."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from ...domain.errors import BadUsage, SessionExists
from ...domain.events import Payload, session_stream
from ...domain.session import Session
from ...domain.text import scrub
from ..clock import now_us
from ..decisions import Decisions, Saved, event


class Commands(Decisions):
    """Base of every group of commands."""

    def refuse_existing(self, session_id: str) -> None:
        if self.exists(session_id):
            raise SessionExists(f"session {session_id} exists already", hint="choose another id")

    def change_session(
        self, session_id: str, choose: Callable[[Session], Payload | None], at_us: int | None
    ) -> Saved:
        """One event of one session, or none where nothing changes."""

        def decision() -> Saved:
            state = self.session(session_id)
            payload = choose(state)
            if payload is None:
                return Saved(session_id, ())
            at = now_us() if at_us is None else at_us
            changed = event(session_stream(session_id), state.version + 1, payload, at)
            return Saved(session_id, self.save_events([changed]))

        return self.decide(decision)


def new_session_id(at_us: int) -> str:
    """YYYYMMDD_HHMMSS_<8 hex>, local time (REFERENCE.md 1.1)."""
    local = datetime.fromtimestamp(at_us / 1e6, UTC).astimezone()
    return f"{local:%Y%m%d_%H%M%S}_{os.urandom(4).hex()}"


def usable(session_id: str) -> str:
    """An id that can name a stream."""
    readable, broken = scrub(session_id)
    if broken:
        raise BadUsage(f"'{readable}' cannot be a session's id: it is no valid text", hint="give another id")
    return session_id


def moved(state: Session, events: int) -> Session:
    """The state after events that change nothing but the version."""
    return msgspec.structs.replace(state, version=state.version + events)
