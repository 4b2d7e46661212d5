"""Titles: who bears which."""

from __future__ import annotations

from ...domain.titles import clean_title
from ..clock import now_us
from ..decisions import Saved
from .base import Commands


class TitleCommands(Commands):
    """What sessions are called."""

    def title_session(self, session_id: str, title: str, *, at_us: int | None = None) -> Saved:
        """Give a session a title, and free the one it had.

        Raises:
            BadTitle: empty after cleaning, or over 100 characters. TitleTaken: names the holder.
        """
        wanted = clean_title(title)

        def decision() -> Saved:
            state = self.session(session_id)
            at = now_us() if at_us is None else at_us
            return Saved(session_id, self.save_events(self.titling(state, wanted, at)))

        return self.decide(decision)
