"""Routes: which session a chat's key leads to, and where the chat's next message goes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from ...domain import events as e
from ...domain import resets, restarts, session
from ...domain.ends import SETTLED, is_reset
from ...domain.errors import NoSuchSession, ProjectionDamaged, SessionOver, VersionConflict
from ...domain.events import Event, session_stream
from ...domain.identity import identity_of
from ...domain.keys import Linked
from ...domain.recovery import Choice, recover, refuse_run_of_its_own, takes_messages
from ...domain.resets import CAUSES, RESETS, Due
from ...domain.route import Route
from ...domain.session import Session
from ...domain.session_source import SessionSource
from ...projections.chat_facts import SameChat, claimants
from ..decisions import Saved
from ..log import Condition
from ..whatsapp import linked_in
from .base import following, new_session_id
from .expiry import ExpiryCommands
from .resets import Asked


class Resolved(Saved, frozen=True):
    """Where a chat's next message goes: to `session_id`.

    Attributes:
        key: the chat's routing key.
        cause: why the key leads to another session than before; None where it leads where it led.
        created: the session is new.
        resumed: it had ended, and was opened again.
        previous: the session that the key led to before, where it leads elsewhere now.
        reset: the rule that ended the session before; None where none did.
        notice: what to tell the people in the chat; None where nothing is to be said.
        note: what to tell the model with this message: that the chat began anew, or that a restart had
            cut the session's last turn off. None where neither is so.
        due: a reset that is due, and waits for a turn or for work in the background.
        resume: why the session's turn was cut off, while it is still to be taken up again.
        hook_error: what went wrong in the turn before the reset.
    """

    key: str = ""
    cause: e.Cause | None = None
    created: bool = False
    resumed: bool = False
    previous: str | None = None
    reset: e.ResetRule | None = None
    notice: str | None = None
    note: str | None = None
    due: e.ResetRule | None = None
    resume: e.ResumeReason | None = None
    hook_error: str | None = None


class Resumed(Saved, frozen=True):
    """A chat that went to another session of a person's choice.

    Attributes:
        key: the chat's.
        asked: the session that was named; `session_id` is where it goes on.
        previous: the session that was left; None where the key led nowhere.
    """

    key: str = ""
    asked: str = ""
    previous: str | None = None


class RouteCommands(ExpiryCommands):
    """Where a chat goes on."""

    def key_of(self, source: SessionSource) -> str:
        """The routing key of a chat, by this home's configuration."""
        group, thread = self._apart(source.platform)
        return source.key(
            group_sessions_per_user=group,
            thread_sessions_per_user=thread,
            linked=self._linked if source.platform == "whatsapp" else None,
        )

    def resolve(self, source: SessionSource, *, at_us: int | None = None) -> Resolved:
        """Where the next message of a chat goes; whatever it needs for that is one save.

        The key leads to a session that is open: there, and nothing is written. That one ended softly:
        it is opened again. It was compressed: where it goes on. It ended for good, was deleted, or
        takes no person's messages: to a new one. The key leads nowhere though sessions of the chat are
        here: to the one of them with the most recent activity that no reset fences off. A reset that
        is due comes first in every case: it ends the session, and the message begins a new one.

        Args:
            at_us: when the message came, microseconds since the Unix epoch, UTC; now by default.
        """
        key = self.key_of(source)
        found, failed = self.after_a_turn(lambda told: self._resolved(source, key, self.at(at_us), told))
        return found if failed is None else msgspec.structs.replace(found, hook_error=failed)

    def _resolved(
        self, source: SessionSource, key: str, at_us: int, told: dict[str, Due]
    ) -> Resolved | Asked:
        led = self.route(key)
        state = self._open_to_messages(led)
        choice = Choice(None, ())
        condition: Condition | None = None
        if state is None and led.closed not in _FENCED:
            read_at = self.head().position
            choice = self._recovered(source, key)
            state = None if choice.session_id is None else self._chosen(choice.session_id)
            weighed = tuple(session_stream(each.session_id) for each in choice.candidates)
            condition = Condition(read_at, streams=weighed) if weighed else None
        if state is None:
            return self._begun(source, led, choice, condition, at_us)
        policy = self.reset_policy(source.platform, source.chat_type)
        due, held = self.due_reset(led, state, policy, at_us, told)
        due = told.get(state.id, due)
        if due is None or held:
            waits = None if due is None else due.rule
            return self._goes_on(source, led, state, choice, condition, at_us, waits)
        if self._asks(due.rule, state.id, told):
            return Asked(state.id, due)
        return self._begun(source, led, choice, condition, at_us, old=state, due=due)

    def _open_to_messages(self, led: Route) -> Session | None:
        """The session that a key leads to, if a person's message may go there."""
        state = self.led_to(led)
        if state is None or state.hard_end or state.expired or state.end_reason in SETTLED:
            return None
        return state if takes_messages(state.source, state.parent_kind) else None

    def _chosen(self, session_id: str) -> Session:
        try:
            return self.session(session_id)
        except NoSuchSession as error:
            raise VersionConflict(f"session {session_id} was deleted just now", hint="try again") from error

    def _recovered(self, source: SessionSource, key: str) -> Choice:
        """Who could be led to. Where that cannot be told a new session begins: no message is lost."""
        try:
            told = self.caught_up("transcripts")
        except ProjectionDamaged as error:
            return Choice(None, (), (error.message,))
        chat = None
        if source.chat_id and source.chat_type:
            person = source.user_id
            chat = SameChat(
                source.platform, source.chat_id, source.chat_type, source.thread_id, person, source.profile
            )
        return recover(claimants(told, key, chat), source.platform)

    def _goes_on(
        self,
        source: SessionSource,
        led: Route,
        state: Session,
        choice: Choice,
        condition: Condition | None,
        at_us: int,
        waits: e.ResetRule | None,
    ) -> Resolved:
        payloads: list[e.Payload] = []
        events: list[Event] = []
        if state.ended:
            payloads.append(e.SessionReopened())
        group, thread = self._apart(source.platform)
        shared = source.shared(group_sessions_per_user=group, thread_sessions_per_user=thread)
        restored = identity_of(state, source, led.key, shared=shared)
        if restored is not None:
            payloads.append(restored)
        if led.session_id not in (None, state.id):
            events, waiting = self.leaving(led.session_id or "", at_us, ends_it=False)
            payloads += waiting
        events += following(state, payloads, at_us)
        cause: e.Cause = "recovery" if choice.session_id is not None else "compression"
        moved = led.lead_to(state.id, cause, candidates=list(choice.candidates))
        if moved is not None:
            events.append(self.rerouted(led, moved, at_us))
        return Resolved(
            state.id,
            self.save_events(events, condition=condition),
            key=led.key,
            cause=None if moved is None else cause,
            resumed=state.ended,
            previous=None if moved is None else led.session_id,
            due=waits,
            resume=state.marks.resume,
            note=restarts.note_for(state, None),
        )

    def _begun(
        self,
        source: SessionSource,
        led: Route,
        choice: Choice,
        condition: Condition | None,
        at_us: int,
        *,
        old: Session | None = None,
        due: Due | None = None,
    ) -> Resolved:
        """A new session, in the place of `old` where a reset of it is due."""
        made = new_session_id(at_us)
        self.refuse_existing(made)
        events: list[Event] = []
        waiting: list[e.TurnQueued] = []
        reset: e.SessionReset | None = None
        cause: e.Cause = "first_message"
        if led.session_id is not None and (old is None or old.id != led.session_id):
            events, waiting = self.leaving(led.session_id, at_us, ends_it=False)
        if old is not None and due is not None:
            ending = self.ending_for(old, due, made, at_us)
            events, reset, waiting = [*events, *ending.events], ending.reset, [*waiting, *ending.waiting]
            cause = CAUSES[due.rule]
        else:
            old, reset, cause = self._ended_before(led)
        created = session.created(
            source.platform,
            key=led.key,
            parent=None if old is None else old.id,
            parent_kind="reset",
            **source.identity(),
        )
        events += self.beginning(made, created, at_us, waiting=waiting)
        moved = led.lead_to(made, cause, candidates=list(choice.candidates), evidence=list(choice.evidence))
        if moved is not None:
            events.append(self.rerouted(led, moved, at_us))
        policy = self.reset_policy(source.platform, source.chat_type)
        return Resolved(
            made,
            self.save_events(events, condition=condition),
            key=led.key,
            cause=cause,
            created=True,
            previous=led.session_id or led.left,
            reset=None if reset is None else reset.rule,
            notice=None if reset is None else resets.notice(policy, source.platform, reset),
            note=None if reset is None else resets.note(reset),
        )

    def _ended_before(self, led: Route) -> tuple[Session | None, e.SessionReset | None, e.Cause]:
        """The session that a reset ended before this message, the reset, and the cause to go by."""
        before = led.session_id or led.left
        try:
            old = None if before is None else self.session(before)
        except NoSuchSession:
            old = None
        if old is None or not (is_reset(old.end_reason) or old.expired):
            return None, None, "first_message"
        if led.closed not in RESETS:
            return old, None, "reset"
        told = self.event_log.stream_events(session_stream(old.id), without_messages=True)
        reset = next(
            (each.payload for each in reversed(told) if isinstance(each.payload, e.SessionReset)), None
        )
        return old, reset, led.closed

    # --- a person's choice ---------------------------------------------------------------------------

    def resume(self, key: str, session_id: str, *, at_us: int | None = None) -> Resumed:
        """Go to another session of a person's choice (/resume), however it ended.

        One save: the session that the key led to ends as one that was left, the chosen one is opened
        again, the key leads to it, and what waits in the chat waits on there. Only continuations are
        followed from the session that was named (FIELD_CASES A14).

        Raises:
            NoSuchSession: there is none of this id. RuleBroken: no person's message goes there.
        """

        def decision() -> Resumed:
            asked = self.session(session_id)
            target = self.last_of(asked)
            refuse_run_of_its_own(target.id, target.source, target.parent_kind)
            led = self.named_route(key)
            at = self.at(at_us)
            events: list[Event] = []
            mine: list[e.Payload] = [e.SessionReopened()] if target.ended else []
            if led.session_id not in (None, target.id, asked.id):
                events, waiting = self.leaving(led.session_id or "", at)
                mine += waiting
            events += following(target, mine, at)
            moved = led.lead_to(target.id, "resume")
            if moved is not None:
                events.append(self.rerouted(led, moved, at))
            saved = self.save_events(events)
            return Resumed(target.id, saved, key=key, asked=session_id, previous=led.session_id)

        return self.decide(decision)

    def resume_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Open a session again for a person who goes on with it outside of chats, however it ended.

        Of a conversation that was compressed it is the last segment, and the answer names it. No key is led
        anywhere, and nothing is written where it is open.

        Raises:
            NoSuchSession: there is none of this id. SessionOver: what it goes on as is not here.
        """

        def decision() -> Saved:
            target = self.last_of(self.session(session_id))
            if target.successor is not None:
                raise SessionOver(target.id, successor=target.successor)
            closed = target.ended or target.marks.suspended is not None
            opened = [e.SessionReopened()] if closed else []
            return Saved(target.id, self.save_events(following(target, opened, self.at(at_us))))

        return self.decide(decision)

    # --- plainly -------------------------------------------------------------------------------------

    def route_of(self, key: str) -> str | None:
        """The session that a key leads to."""
        return self.route(key).session_id

    def reroute(
        self,
        key: str,
        session_id: str,
        cause: e.Cause,
        *,
        candidates: Sequence[e.RouteCandidate] = (),
        evidence: Sequence[str] = (),
        condition: Condition | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Lead a key to a session, with the cause and what was weighed.

        A resume is a person's own choice: it opens the session again, in the same save, however it ended.
        What waits where the key led before waits on in this one, unless it is over: then it runs where it is.

        Args:
            condition: what was read to choose that session. If any of it has moved since, nothing is
                written, and it is not decided again here: the choice is the caller's.

        Raises:
            NoSuchSession: there is none of this id. VersionConflict: `condition` does not hold.
            RuleBroken: no person's message goes there.
        """

        def decision() -> Saved:
            state = self.session(session_id)
            refuse_run_of_its_own(state.id, state.source, state.parent_kind)
            led = self.named_route(key)
            at = self.at(at_us)
            reopened = state.resume() if cause == "resume" else None
            mine: list[e.Payload] = [] if reopened is None else [reopened]
            moved = led.lead_to(session_id, cause, candidates=list(candidates), evidence=list(evidence))
            events: list[Event] = []
            if led.session_id not in (None, state.id) and (reopened is not None or not state.over):
                events, waiting = self.leaving(led.session_id or "", at, ends_it=False)
                mine += waiting
            events += following(state, mine, at)
            if moved is not None:
                events.append(self.rerouted(led, moved, at))
            return Saved(session_id, self.save_events(events, condition=condition))

        return self.decide(decision, again=condition is None)

    # --- what the configuration says -----------------------------------------------------------------

    def _apart(self, platform: str) -> tuple[bool, bool]:
        """Whether people have sessions of their own in a platform's groups, and in its threads."""
        config, theirs = self.config, self.config.platforms.get(platform)
        group, thread = config.group_sessions_per_user, config.thread_sessions_per_user
        if theirs is None:
            return group, thread
        return (
            group if theirs.group_sessions_per_user is None else theirs.group_sessions_per_user,
            thread if theirs.thread_sessions_per_user is None else theirs.thread_sessions_per_user,
        )

    @cached_property
    def _linked(self) -> Linked | None:
        theirs = self.config.platforms.get("whatsapp")
        if theirs is None or theirs.session_dir is None:
            return None
        return linked_in(self.home / theirs.session_dir)


_FENCED = frozenset({"delete", *RESETS})
"""A key that was closed for such a cause leads nowhere on purpose: nothing older is brought back."""
