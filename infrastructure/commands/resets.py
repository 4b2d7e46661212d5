"""Beginning anew: a person's reset, and the turn that the agent gets before any reset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from ...domain import events as e
from ...domain import session
from ...domain.ends import is_compression
from ...domain.errors import NoSuchChat, NoSuchSession, ProjectionDamaged
from ...domain.events import Event, session_stream
from ...domain.keys import split_key
from ...domain.resets import CAUSES, Due
from ...domain.route import Route
from ...domain.session import Session
from ...domain.session_source import SessionSource
from ...domain.titles import clean_title
from ...projections.tree import tip
from ..asking import claim, is_claimed
from ..decisions import Saved, event
from .base import new_session_id, usable
from .resetting import Resetting

NEVER_ASKED = ("suspended", "resume_expired")
"""Rules whose session is stuck, or was cut off: it gets no turn before it ends."""
_IDENTITY = ("chat_id", "chat_type", "thread_id", "user_id", "display_name", "origin_json", "profile_name")
_PLACE = ("cwd", "git_branch", "git_repo_root")
TOO_LATE = "the session was ended by another while it had its turn: what came after that is not saved"
Result = TypeVar("Result")


class Reset(Saved, frozen=True):
    """A chat that began anew: `session_id` is the new session.

    Attributes:
        key: the chat's.
        previous: the session that it led to before; None where it led nowhere.
        hook_error: what went wrong in the turn before the reset; None where nothing did.
        cleared: turns that waited in that session, and will not run.
    """

    key: str = ""
    previous: str | None = None
    hook_error: str | None = None
    cleared: tuple[str, ...] = ()


class Asked(msgspec.Struct, frozen=True):
    """Before this reset is written, its session gets a turn."""

    session_id: str
    due: Due


class ResetCommands(Resetting):
    """Beginning anew."""

    before_reset: Callable[[str, e.ResetRule], object] | None = None
    """Called with a session's id and the rule before it is reset, so that its agent may save what is to
    be remembered: it may append to the session, and may take its time. The reset follows whatever it
    does; an error of its own is told in the answer (`hook_error`) and stops nothing. Of several threads
    and processes one at a time asks, for a quarter of an hour at most; meanwhile no policy resets the
    session. A person's reset does, and `hook_error` tells whoever was asking."""

    # --- a person's reset ----------------------------------------------------------------------------

    def reset(
        self,
        key: str,
        *,
        rule: e.ResetRule = "person",
        title: str | None = None,
        source: SessionSource | None = None,
        session_id: str | None = None,
        at_us: int | None = None,
    ) -> Reset:
        """Begin a chat anew (/new, /reset): the session that the key leads to ends for good.

        One save: the old session's SessionReset and the end of what waits in it, the new session with
        the whole identity of the old one, its title, and the key led to it.

        Args:
            rule: who or what resets it.
            title: what the new session is called.
            source: who asks and where; without it the identity is the old session's.
            session_id: the new session's id; made by default.

        Raises:
            TitleTaken, BadTitle, SessionExists; NoSuchChat: the text is no key of a chat.
        """
        wanted = None if title is None else clean_title(title)

        def decision(told: dict[str, Due]) -> Reset | Asked:
            led = self.named_route(key)
            at = self.at(at_us)
            old = self.led_to(led)
            if old is not None and not old.hard_end and self._asks(rule, old.id, told):
                return Asked(old.id, Due(rule))
            made = usable(new_session_id(at) if session_id is None else session_id)
            self.refuse_existing(made)
            created = _taking_the_place_of(old, key, source)
            events: list[Event] = []
            waiting: list[e.TurnQueued] = []
            if old is not None:
                events, _, waiting = self.ending_for(old, Due(rule), made, at)
            events += self.beginning(made, created, at, waiting=waiting, title=wanted)
            moved = led.lead_to(made, CAUSES[rule])
            if moved is not None:
                events.append(self.rerouted(led, moved, at))
            gone = [each.payload for each in events if isinstance(each.payload, e.QueueCleared)]
            cleared = tuple(turn for each in gone if each.why == "reset" for turn in each.turns)
            saved = self.save_events(events)
            return Reset(made, saved, key=key, previous=old.id if old else None, cleared=cleared)

        found, failed = self.after_a_turn(decision)
        return msgspec.structs.replace(found, hook_error=failed)

    def beginning(
        self,
        made: str,
        created: e.SessionCreated,
        at_us: int,
        *,
        waiting: Sequence[e.TurnQueued] = (),
        title: str | None = None,
    ) -> list[Event]:
        """A new session, with what waits in it from the start."""
        stream = session_stream(made)
        payloads: list[e.Payload] = [created, *waiting]
        events = [event(stream, n, each, at_us) for n, each in enumerate(payloads, 1)]
        if title is not None:
            fresh = Session(id=made, version=len(events), source=created.source)
            events += self.titling(fresh, title, at_us)
        return events

    def led_to(self, led: Route) -> Session | None:
        """The session that a key leads to, or what that one goes on as; None where there is none."""
        if led.session_id is None:
            return None
        try:
            return self.last_of(self.session(led.session_id))
        except NoSuchSession:
            return None

    def last_of(self, state: Session) -> Session:
        """Where a session goes on; itself where it was not compressed, or its continuation is not there."""
        if state.successor is None and not is_compression(state.end_reason):
            return state
        with contextlib.suppress(ProjectionDamaged):
            state = self.session(tip(self.caught_up("transcripts"), state.id))
        # Another process may have compressed it between the two looks: the log has the last word.
        seen = {state.id}
        while (following := self._successor(state)) is not None and following.id not in seen:
            seen.add(following.id)
            state = following
        return state

    def _successor(self, state: Session) -> Session | None:
        """What a session goes on as; None where that is nothing, or was deleted."""
        if state.successor is None:
            return None
        try:
            return self.session(state.successor)
        except NoSuchSession:
            return None

    # --- the turn before ---------------------------------------------------------------------------

    def after_a_turn(self, decision: Callable[[dict[str, Due]], Result | Asked]) -> tuple[Result, str | None]:
        """Decide; where that asks for a turn of the session first, let it have one and decide again.

        What was due before the turn is due after it, though the turn is activity. Returns the outcome
        and what went wrong in the turn.
        """
        told: dict[str, Due] = {}
        failed: str | None = None
        with contextlib.ExitStack() as claims:
            while True:
                found = self.decide(lambda: decision(told))
                if not isinstance(found, Asked):
                    return found, failed
                if claims.enter_context(self._claim(found.session_id)):
                    told[found.session_id] = found.due
                    failed = self._ask(found)

    def _asks(self, rule: e.ResetRule, session_id: str, told: dict[str, Due]) -> bool:
        if self.before_reset is None or rule in NEVER_ASKED:
            return False
        return session_id not in told and not self._is_asked(session_id)

    def _is_asked(self, session_id: str) -> bool:
        """Whether a session has its turn before a reset just now, in this process or another."""
        return session_id in self._asking or is_claimed(self.home, session_id)

    @contextlib.contextmanager
    def _claim(self, session_id: str) -> Iterator[bool]:
        with claim(self.home, session_id) as mine:
            if mine:
                self._asking.add(session_id)
            try:
                yield mine
            finally:
                if mine:
                    self._asking.discard(session_id)

    def _ask(self, asked: Asked) -> str | None:
        """The turn; what went wrong in it, None where nothing did."""
        try:
            if self.before_reset is not None:
                self.before_reset(asked.session_id, asked.due.rule)
        except Exception as error:  # noqa: BLE001  # a chat must not be stuck for an agent's fault
            return f"{type(error).__name__}: {error}"
        try:
            is_there = not self.session(asked.session_id).hard_end
        except NoSuchSession:
            is_there = False
        return None if is_there else TOO_LATE

    @cached_property
    def _asking(self) -> set[str]:
        """Sessions that have their turn before a reset just now, in this process."""
        return set()


def _taking_the_place_of(old: Session | None, key: str, source: SessionSource | None) -> e.SessionCreated:
    """The creation of a session that takes another's place in a chat: its place and people are the same.

    Raises:
        NoSuchChat: nothing says what chat it is.
    """
    parts = split_key(key)
    platform = source.platform if source is not None else parts[0] if parts else old and old.source
    if not platform:
        raise NoSuchChat(f"'{key}' is no key of a chat", hint="retold sessions list shows what is here")
    identity: dict[str, str | None] = {"chat_type": parts[1] if parts else None}
    if old is not None:
        identity = {name: getattr(old, name) for name in (*_IDENTITY, *_PLACE)}
    if source is not None:
        identity |= source.identity()
    parent = None if old is None else old.id
    return session.created(platform, key=key, parent=parent, parent_kind="reset", **identity)
