"""A session begins, ends, is reopened, is put away and taken out again."""

from __future__ import annotations

from typing import Literal

from ...domain import events as e
from ...domain import session, turns
from ...domain.ends import is_compression
from ...domain.errors import BadIdentifier, BadUsage, RuleBroken, SessionOver
from ...domain.events import Event, session_stream
from ...domain.ids import refuse_unsafe_identity
from ...domain.message import refuse_no_json
from ...domain.recovery import refuse_run_of_its_own
from ...domain.session import Session
from ...domain.session_source import refuse_unsafe_origin
from ...domain.text import in_one_line, is_blank
from ...domain.titles import clean_title
from ...projections.tree import continuations
from ..decisions import Saved, event
from ..log import Condition
from .base import Closed, following, new_session_id, queued_in, usable
from .resetting import Resetting

_RULES: dict[e.Cause, e.ResetRule] = {"reset": "person", "idle": "idle", "daily": "daily"}
"""The rule by which the session that a key led to is reset, where a new one takes its place so."""


class SessionCommands(Resetting):
    """What happens to a session as a whole."""

    def create_session(
        self,
        source: str,
        *,
        session_id: str | None = None,
        key: str | None = None,
        cause: e.Cause = "first_message",
        title: str | None = None,
        if_taken: Literal["refuse", "number", "leave"] = "refuse",
        parent: str | None = None,
        parent_kind: e.ParentKind | None = None,
        at_us: int | None = None,
        **identity: str | None,
    ) -> Saved:
        """Begin a session, with its whole identity; with a key, lead the key to it in the same save.

        Args:
            source: cli, telegram, … (REFERENCE.md 1.2).
            key: the routing key of the chat; a session that it led to before ends hard where
                `cause` is a reset (by a person, idle or daily). What waits there waits on in this one,
                unless a person's reset clears it.
            title: what it is called from the start, such as one that waited for the first message.
            if_taken: where another session holds the title: refuse, take the next number (`plan #2`, as
                a run of a scheduled job does), or begin without one.
            identity: chat_id, chat_type, thread_id, user_id, display_name, origin_json, model, cwd,
                git_branch, git_repo_root, profile_name.

        Raises:
            SessionExists, TitleTaken, BadTitle, VersionConflict, …
            BadIdentifier: an id, a key, a profile or the parent is a path, or holds control characters.
            RuleBroken: a key for a run of its own (cron, subagent, tool, a delegate); or a continuation of
            what is not ended by compression. `compress_session` is the way to make one.
            SessionOver: a continuation of what has one, and the error names it.
        """
        at = self.at(at_us)
        made = usable(new_session_id(at) if session_id is None else session_id)
        created = session.created(source, key=key, parent=parent, parent_kind=parent_kind, **identity)
        refuse_unsafe_identity(created)
        refuse_unsafe_origin("a session's", created.origin_json)
        refuse_no_json("model_config", created.model_config)
        if key is not None and is_blank(key):
            raise BadIdentifier("a blank key is no chat's", hint="give the chat's key, or none")
        wanted = None if title is None else clean_title(title)
        if key is not None:
            refuse_run_of_its_own(made, source, created.parent_kind)

        def decision() -> Saved:
            self.refuse_existing(made)
            only = None if created.parent_kind != "continuation" else self._only_continuation(created)
            events = [event(session_stream(made), 1, created, at)]
            if wanted is not None:
                events += self._titled(Session(id=made, version=1, source=source), wanted, if_taken, at)
            if key is not None:
                led = self.route(key)
                if cause in _RULES and led.session_id is not None:
                    events += self.reset_by(_RULES[cause], led.session_id, made, at, after=events)
                elif led.session_id is not None:
                    left, waiting = self.leaving(led.session_id, at, ends_it=False)
                    events += [*left, *queued_in(made, waiting, at, after=events)]
                moved = led.lead_to(made, cause)
                if moved is not None:
                    events.append(self.rerouted(led, moved, at))
            return Saved(made, self.save_events(events, condition=only))

        return self.decide(decision)

    def _only_continuation(self, created: e.SessionCreated) -> Condition:
        """What must not move for a session to be the one continuation of its parent.

        Raises:
            SessionOver: that has one, and the error names it. RuleBroken: it is not ended by compression.
            NoSuchSession: it is not there.
        """
        read_at = self.head().position
        parent = self.session(created.parent_session_id or "")
        known = continuations(self.caught_up("transcripts"), parent.id, deleted=True)
        if parent.successor is not None or known:
            raise SessionOver(parent.id, successor=parent.successor or known[0])
        if not is_compression(parent.end_reason):
            raise RuleBroken(
                f"session {parent.id} is not compressed: nothing continues it",
                hint="compress_session makes the continuation in the save that ends it",
            )
        topics = (e.SessionCreated.topic, e.IdentityRestored.topic)
        return Condition(read_at, streams=(session_stream(parent.id),), topics=topics)

    def _titled(
        self, fresh: Session, title: str, if_taken: Literal["refuse", "number", "leave"], at_us: int
    ) -> list[Event]:
        if if_taken != "refuse" and not self.is_free(title):
            if if_taken == "leave":
                return []
            return self.titling(fresh, self.next_title(title), at_us, by="lineage")
        return self.titling(fresh, title, at_us)

    def end_session(self, session_id: str, reason: str, *, at_us: int | None = None) -> Closed:
        """End a session; a hard reason beats a soft one, else the first end stands and nothing is written.

        What waits in one that ends for good is cleared in the same save, and named in the answer; after a
        soft end it still runs.

        Raises:
            BadUsage: a blank reason.
        """
        if is_blank(why := in_one_line(reason)):
            raise BadUsage("an end needs a reason", hint="cli_close, agent_close, …; nothing was written")

        def decision() -> Closed:
            state = self.session(session_id)
            ended = state.end(why)
            if ended is None:
                return Closed(session_id, ())
            cleared = turns.cleared(state.turns, "person") if ended.hard else None
            payloads = [ended] if cleared is None else [cleared, ended]
            saved = self.save_events(following(state, payloads, self.at(at_us)))
            return Closed(session_id, saved, () if cleared is None else tuple(cleared.turns))

        return self.decide(decision)

    def reopen_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Take a soft end back, and a stop: what waits may run.

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
