"""Timed resets: the policy of a chat, what is due by it, and what holds it up."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from functools import cached_property

import msgspec

from ...domain import events as e
from ...domain import resets, restarts
from ...domain.errors import NoSuchSession, RuleBroken
from ...domain.gateway import MAIN
from ...domain.holds import blocking
from ...domain.keys import split_key
from ...domain.resets import CAUSES, Due, Policy, Zone
from ...domain.route import Route
from ...domain.session import Session
from ...projections.chat_facts import Occupied, occupied
from ..config import ResetLevel
from ..decisions import Saved
from .resets import NEVER_ASKED, Asked, ResetCommands


class Expired(Saved, frozen=True):
    """A session that its policy ended while nobody wrote: its chat's next message begins a new one.

    Attributes:
        hook_error: what went wrong in the turn before the reset; None where nothing did. Without positions
            the session was not ended here: another did that meanwhile, or somebody wrote.
    """

    key: str = ""
    rule: e.ResetRule = "idle"
    hook_error: str | None = None


class Held(Saved, frozen=True):
    """Work in the background of a chat, noted or over."""

    key: str = ""


class ExpiryCommands(ResetCommands):
    """Beginning anew because the time has come."""

    def reset_policy(self, platform: str, chat_type: str) -> Policy:
        """The reset policy of a chat: its platform's, else that of its kind of chat, else the default.

        What a level leaves open, the next one says.
        """
        known = self._policies.get((platform, chat_type))
        if known is None:
            default = self.config.session_reset
            theirs = self.config.platforms.get(platform)
            known = self._policies[platform, chat_type] = resets.settled(
                None if theirs is None else _said(theirs.session_reset),
                _said(default.chat_types.get(chat_type)),
                _said(default),
            )
        return known

    def due_reset(
        self, led: Route, state: Session, policy: Policy, at_us: int, told: Collection[str] = ()
    ) -> tuple[Due | None, bool]:
        """The reset of a session that is due, and whether something holds it up for now.

        Args:
            told: sessions that had their turn before it, by this very command.
        """
        if state.marks.suspended is not None:
            return Due("suspended"), False
        if policy.mode == "none":
            return None, False
        window_us = round(self.config.agent.gateway_auto_continue_freshness * 1_000_000)
        if restarts.expired(state.marks, window_us=window_us, mode=policy.mode, at_us=at_us):
            return Due("resume_expired"), False
        activity = self.activity_of(state)
        found = resets.due(
            policy,
            last_active_us=activity.in_use_us,
            now_us=at_us,
            zone=self._zone,
            turn=state.turns.before,
        )
        if found is None:
            return None, False
        hours = policy.bg_process_max_age_hours
        holds = blocking(led.holds, at_us, hours, lambda name: self.gateway(name).deaths)
        asked = state.id not in told and self._is_asked(state.id)
        return found, state.turns.runs_at(at_us) or asked or holds is not None

    def expire_due(self, *, at_us: int | None = None) -> list[Expired]:
        """End every session whose reset is due though nobody writes; for a watcher, every few minutes.

        Each is one save of its own: the SessionReset, and the key leads nowhere until the chat's next
        message, which begins a new session and is told of the reset. A session that a turn, work in
        the background or a message that waits holds up is left for later. One whose agent had its turn
        (`before_reset`) and could not save all of it is in the answer, with `hook_error`, in any case.
        """
        at = self.at(at_us)
        levels: list[ResetLevel] = [self.config.session_reset]
        levels += self.config.session_reset.chat_types.values()
        levels += [each.session_reset for each in self.config.platforms.values()]
        if all(each.mode in (None, "none") for each in levels):
            return []
        chats = occupied(self.caught_up("transcripts", "routing"))
        found = (self._expire(each.key, at) for each in chats if self._may_be_due(each, at))
        return [each for each in found if each is not None]

    def _may_be_due(self, chat: Occupied, at_us: int) -> bool:
        """Whether it is worth deciding: many chats are asked about, and of few a reset is due."""
        platform, chat_type, _ = split_key(chat.key) or (chat.source, chat.chat_type, ())
        policy = self.reset_policy(platform, chat_type)
        if policy.mode == "none":
            return False
        if resets.due(policy, last_active_us=chat.in_use_us, now_us=at_us, zone=self._zone) is not None:
            return True
        with contextlib.suppress(NoSuchSession):
            return policy.mode != "idle" and self.session(chat.session_id).turns.before is not None
        return False

    def _expire(self, key: str, at_us: int) -> Expired | None:
        asked: dict[str, Due] = {}

        def decision(told: dict[str, Due]) -> Expired | Asked | None:
            asked.update(told)
            led = self.named_route(key)
            state = self.led_to(led)
            if state is None or state.hard_end or state.turns.waiting:
                return None
            platform, chat_type, _ = split_key(key) or (state.source, state.chat_type or "dm", ())
            due, held = self.due_reset(led, state, self.reset_policy(platform, chat_type), at_us, told)
            due = told.get(state.id, due)
            if due is None or held or due.rule in NEVER_ASKED:
                return None
            if self._asks(due.rule, state.id, told):
                return Asked(state.id, due)
            events, reset, _ = self.ending_for(state, due, None, at_us)
            closed = led.close(CAUSES[due.rule])
            if reset is None or closed is None:
                return None
            events.append(self.rerouted(led, closed, at_us))
            return Expired(state.id, self.save_events(events), key=key, rule=due.rule)

        found, failed = self.after_a_turn(decision)
        if found is None and failed is not None:
            session_id, due = next(iter(asked.items()))
            return Expired(session_id, (), key=key, rule=due.rule, hook_error=failed)
        return found if found is None else msgspec.structs.replace(found, hook_error=failed)

    @cached_property
    def _policies(self) -> dict[tuple[str, str], Policy]:
        return {}

    @cached_property
    def _zone(self) -> Zone:
        return Zone(self.config.timezone, self.config.zone)

    # --- work in the background ----------------------------------------------------------------------

    def hold(
        self,
        key: str,
        name: str,
        *,
        what: str = "",
        gateway: str | None = MAIN,
        at_us: int | None = None,
    ) -> Held:
        """Note that work goes on in the background of a chat: until it is let go, no policy resets it.

        It holds for `bg_process_max_age_hours` at most, counted from when it was first noted, and no longer
        than its gateway lives: a start of that one after a crash lets go of all that it held before.

        Args:
            gateway: who watches over the work, and will let it go; None for none.

        Raises:
            RuleBroken: the key leads nowhere. BadUsage: a gateway's name that is none.
        """

        def decision() -> Held:
            led = self.named_route(key)
            deaths = 0 if gateway is None else self.gateway(gateway).deaths
            noted = led.hold(name, what, gateway=gateway, deaths=deaths)
            if led.session_id is None:
                raise RuleBroken("the chat has no session that could be held", hint="resolve it first")
            events = [] if noted is None else [self.rerouted(led, noted, self.at(at_us))]
            return Held(led.session_id, self.save_events(events), key=key)

        return self.decide(decision)

    def let_go(self, key: str, name: str, *, at_us: int | None = None) -> Held:
        """That work is over; nothing happens where none of this name is noted."""

        def decision() -> Held:
            led = self.named_route(key)
            over = led.release(name)
            events = [] if over is None else [self.rerouted(led, over, self.at(at_us))]
            return Held(led.session_id or "", self.save_events(events), key=key)

        return self.decide(decision)


def _said(level: ResetLevel | None) -> dict[str, object] | None:
    """What a level of the configuration says; nothing of what it leaves open."""
    if level is None:
        return None
    named = {name: getattr(level, name) for name in ResetLevel.__struct_fields__}
    return {name: value for name, value in named.items() if value is not None}
