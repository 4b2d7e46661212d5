"""Who holds a title: one session at a time, by the title's own stream."""

from __future__ import annotations

import msgspec

from . import events as e
from .errors import TitleTaken


class TitleClaim(msgspec.Struct, frozen=True):
    """One title's stream."""

    title: str
    version: int = 0
    holder: str | None = None

    def claim(self, session_id: str) -> e.TitleClaimed | None:
        """Take it for a session. None where that session holds it.

        Raises:
            TitleTaken: another session holds it.
        """
        if self.holder == session_id:
            return None
        if self.holder is not None:
            raise TitleTaken(self.title, holder=self.holder)
        return e.TitleClaimed(title=self.title, session_id=session_id)

    def release(self, session_id: str) -> e.TitleReleased | None:
        """Give it up. None where that session does not hold it."""
        if self.holder != session_id:
            return None
        return e.TitleReleased(title=self.title, session_id=session_id)


def evolve(state: TitleClaim, version: int, payload: object) -> TitleClaim:
    """The state after an event."""
    match payload:
        case e.TitleClaimed():
            return TitleClaim(state.title, version, payload.session_id)
        case e.TitleReleased() | e.ErasedEvent():  # what was erased of a claim was given up before
            return TitleClaim(state.title, version, None)
        case _:
            return msgspec.structs.replace(state, version=version)
