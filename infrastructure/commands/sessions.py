"""A session begins, ends, is reopened, is put away and taken out again."""

from __future__ import annotations

from ...domain import events as e
from ...domain import session
from ...domain.events import session_stream
from ...domain.session import Session
from ...domain.titles import clean_title
from ..clock import now_us
from ..decisions import Saved, event
from .base import Commands, new_session_id, usable

_ENDS_BY_CAUSE: dict[e.Cause, str] = {"reset": "session_reset", "idle": "idle", "daily": "daily"}
"""How the session that a key led to ends, where a new one takes its place for this cause."""


class SessionCommands(Commands):
    """What happens to a session as a whole."""

    def create_session(
        self,
        source: str,
        *,
        session_id: str | None = None,
        key: str | None = None,
        cause: e.Cause = "first_message",
        title: str | None = None,
        parent: str | None = None,
        parent_kind: e.ParentKind | None = None,
        at_us: int | None = None,
        **identity: str | None,
    ) -> Saved:
        """Begin a session, with its whole identity; with a key, lead the key to it in the same save.

        Args:
            source: cli, telegram, … (REFERENCE.md 1.2).
            key: the routing key of the chat; a session that it led to before ends hard where
                `cause` is a reset (by a person, idle or daily).
            identity: chat_id, chat_type, thread_id, user_id, display_name, origin_json, model, cwd,
                git_branch, git_repo_root, profile_name.

        Raises:
            SessionExists, TitleTaken, BadTitle, VersionConflict, …
        """
        at = now_us() if at_us is None else at_us
        made = usable(session_id or new_session_id(at))
        created = session.created(source, key=key, parent=parent, parent_kind=parent_kind, **identity)
        wanted = None if title is None else clean_title(title)

        def decision() -> Saved:
            self.refuse_existing(made)
            events = [event(session_stream(made), 1, created, at)]
            if wanted is not None:
                events += self.titling(Session(id=made, version=1, source=source), wanted, at)
            if key is not None:
                led = self.route(key)
                if cause in _ENDS_BY_CAUSE and led.session_id is not None:
                    events += self.ending(led.session_id, _ENDS_BY_CAUSE[cause], at)
                moved = led.lead_to(made, cause)
                if moved is not None:
                    events.append(self.rerouted(led, moved, at))
            return Saved(made, self.save_events(events))

        return self.decide(decision)

    def end_session(self, session_id: str, reason: str, *, at_us: int | None = None) -> Saved:
        """End a session; a hard reason beats a soft one, else the first end stands and nothing is written."""
        return self.change_session(session_id, lambda state: state.end(reason), at_us)

    def reopen_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Take a soft end back.

        Raises:
            SessionOver: it ended hard, or a continuation took over.
        """
        return self.change_session(session_id, lambda state: state.reopen(), at_us)

    def archive_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Hide a session from lists; search still finds it."""
        return self.change_session(session_id, lambda state: state.archive(), at_us)

    def unarchive_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Show an archived session in lists again."""
        return self.change_session(session_id, lambda state: state.unarchive(), at_us)
