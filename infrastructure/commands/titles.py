"""Titles: who bears which."""

from __future__ import annotations

from ...domain.errors import BadTitle
from ...domain.titles import clean_title, made_title, spellings
from ..decisions import Saved
from .base import Commands


class TitleCommands(Commands):
    """What sessions are called."""

    def title_session(self, session_id: str, title: str, *, at_us: int | None = None) -> Saved:
        """Give a session a title, and free the one it had.

        A continuation may take the title of a session that it goes on from, which then has none.

        Raises:
            BadTitle: empty after cleaning, over 100 characters, or the id of another session.
            TitleTaken: names the holder.
        """
        wanted = clean_title(title)

        def decision() -> Saved:
            state = self.session(session_id)
            return Saved(session_id, self.save_events(self.titling(state, wanted, self.at(at_us))))

        return self.decide(decision)

    def untitle_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Take a session's title away; no model gives it one again."""

        def decision() -> Saved:
            state = self.session(session_id)
            return Saved(session_id, self.save_events(self.titling(state, None, self.at(at_us))))

        return self.decide(decision)

    def auto_title(self, session_id: str, title: str, *, at_us: int | None = None) -> Saved:
        """Give a session the title that a model made for it, once: no positions where it has or had one.

        A person's title is never changed, not even one that was taken away again; what is too long is cut
        where a character ends; a title that is taken gets the next number. Nothing is written where
        nothing to read is left of it.
        """
        try:
            wanted = made_title(title)
        except BadTitle:
            return Saved(session_id, ())

        def decision() -> Saved:
            state = self.session(session_id)
            if state.title is not None or state.titled_by is not None or state.parent_kind == "branch":
                return Saved(session_id, ())
            free = wanted if self.is_free(wanted) else self.next_title(wanted)
            titled = self.titling(state, free, self.at(at_us), by="model")
            return Saved(session_id, self.save_events(titled))

        return self.decide(decision)

    def check_title(self, title: str, *, session_id: str | None = None) -> str:
        """A title as it would be stored, for one that waits until its session's first message.

        Args:
            session_id: the session that is to bear it, if it is there already.

        Raises:
            BadTitle, TitleTaken.
        """
        wanted = clean_title(title)
        self.refuse_id(wanted, session_id or "")
        for each in spellings(wanted):
            self.claim(each).claim(session_id or "")
        return wanted
