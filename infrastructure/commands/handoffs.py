"""Handoff: a conversation goes on in another place, taken there by exactly one gateway (REFERENCE.md 10).

The side that asks: `request_handoff`, then it watches `handoff_of`. A gateway: `pending_handoffs`,
`claim_handoff`, `heartbeat_handoff` while it is at it, `complete_handoff` or `fail_handoff`.
"""

from __future__ import annotations

from typing import Any

from ...domain import events as e
from ...domain import gateway as gateways
from ...domain import handoff, turns
from ...domain.errors import BadUsage, NoHomeChannel
from ...domain.events import Event, Payload
from ...domain.gateway import MAIN, HomeChannel
from ...domain.handoff import Handoff
from ...domain.ids import refuse_unsafe_peers
from ...domain.recovery import refuse_run_of_its_own
from ...domain.route import Route
from ...domain.session import Session
from ...domain.session_source import refuse_unsafe_origin
from ...domain.text import is_blank, scrub
from ...projections import gateway as told
from ...projections.chat_facts import keys_of
from ..decisions import Saved, event
from ..log import Condition
from .base import Commands, following

_PEER = ("chat_id", "chat_type", "thread_id", "user_id", "display_name", "origin_json")


class HandedOff(Saved, frozen=True):
    """A handoff was completed: the key leads to the session, and `previous` was left for it."""

    key: str = ""
    previous: str | None = None


class HandoffCommands(Commands):
    """How a conversation changes its place."""

    def set_home_channel(
        self,
        platform: str,
        chat_id: str | None,
        *,
        thread_id: str | None = None,
        name: str | None = None,
        chat_type: str = "dm",
        at_us: int | None = None,
    ) -> Saved:
        """A person's /sethome: where a platform's handoffs and deliveries go; None: nowhere any more."""
        payload = gateways.home_channel(
            platform, chat_id, thread_id=thread_id, name=name, chat_type=chat_type
        )

        def decision() -> Saved:
            home = self.gateway(MAIN)
            wanted = gateways.evolve(home, home.version, payload, 0).channels
            if wanted == home.channels:
                return Saved("", ())
            at = self.at(at_us)
            said = event(gateways.stream(MAIN), home.version + 1, payload, at)
            return Saved("", self.save_events([said]))

        return self.decide(decision)

    def home_channels(self) -> list[HomeChannel]:
        """Where each platform's handoffs and deliveries go, by platform."""
        return [each for _, each in sorted(self.gateway(MAIN).channels.items())]

    def request_handoff(self, session_id: str, platform: str, *, at_us: int | None = None) -> Saved:
        """Ask for a session to go on on `platform`; it waits 60 seconds for a gateway.

        Raises:
            HandoffRefused: one is under way. TurnRunning: the session is in the middle of a turn.
            BadUsage: no such platform. NoHomeChannel: it has none yet. SessionOver, NoSuchSession.
            RuleBroken: it runs by itself (cron, subagent, tool, a delegate), and no person writes there.
        """
        wanted = scrub(platform)[0].strip()

        def decision() -> Saved:
            read_at = self.head().position
            state = self.session(session_id)
            state.refuse_over()
            refuse_run_of_its_own(state.id, state.source, state.parent_kind)
            if wanted not in self.gateway(MAIN).channels:
                if is_blank(wanted) or wanted not in handoff.PLATFORMS:
                    raise BadUsage(
                        f"there is no platform '{wanted}' to hand a conversation to",
                        hint=f"known are {', '.join(sorted(handoff.PLATFORMS))}",
                    )
                raise NoHomeChannel(
                    f"{wanted} has no home channel to hand the conversation to",
                    hint=f"write /sethome in a chat on {wanted} first",
                )
            at = self.at(at_us)
            turns.refuse_running(state.turns, session_id=session_id, at_us=at)
            payloads = handoff.request(state.handoff, wanted, session_id=session_id, at_us=at)
            settled = Condition(read_at, streams=(gateways.stream(MAIN),))
            return Saved(session_id, self.save_events(following(state, payloads, at), condition=settled))

        return self.decide(decision)

    def claim_handoff(self, session_id: str, gateway: str = MAIN, *, at_us: int | None = None) -> Saved:
        """Take a handoff on: of several gateways one gets it; it must be heard of within 60 seconds.

        Raises:
            HandoffRefused: another was first, it is overdue, or nobody asked for one.
        """
        gateways.stream(gateway)

        def choose(state: Session) -> Payload:
            return handoff.claim(state.handoff, gateway, session_id=session_id, at_us=self.at(at_us))

        return self.change_session(session_id, choose, at_us)

    def heartbeat_handoff(self, session_id: str, gateway: str = MAIN, *, at_us: int | None = None) -> Saved:
        """Say that a claimed handoff is still being worked at: 60 seconds more, 15 minutes in all.

        Raises:
            HandoffRefused: this gateway does not hold it (any more).
        """

        def choose(state: Session) -> Payload:
            return handoff.heartbeat(state.handoff, gateway, session_id=session_id, at_us=self.at(at_us))

        return self.change_session(session_id, choose, at_us)

    def complete_handoff(
        self,
        session_id: str,
        gateway: str = MAIN,
        *,
        key: str,
        at_us: int | None = None,
        **peer: str | None,
    ) -> HandedOff:
        """The conversation goes on under `key`: every later message of that chat lands in this session.

        One save. The session that the key led to is left (session_switch) and what waits there moves
        along; this session is opened again however it ended, becomes one of the platform that was asked
        for and takes the peer's identity; whatever key led to it before leads nowhere any more.

        Args:
            key: of the chat or thread that it goes to.
            peer: chat_id, chat_type, thread_id, user_id, display_name, origin_json of that place.

        Raises:
            HandoffRefused: this gateway does not hold the handoff (any more), or the key is no chat's of
            the platform that was asked. BadUsage: an unknown field.
            BadIdentifier: an id of the place is a path, or holds control characters.
            SessionOver: it was compressed meanwhile; the error names its continuation.
        """
        unknown = peer.keys() - set(_PEER)
        if unknown or is_blank(key):
            raise BadUsage(
                f"a handoff knows no {', '.join(sorted(unknown)) or 'blank key'}",
                hint=f"key, {', '.join(_PEER)}",
            )
        refuse_unsafe_peers("a handoff's", peer)
        refuse_unsafe_origin("a handoff's", peer.get("origin_json"))
        place = scrub(key)[0]

        def decision() -> HandedOff:
            read_at = self.head().position
            state = self.session(session_id)
            if state.successor is not None:
                state.refuse_over()
            refuse_run_of_its_own(state.id, state.source, state.parent_kind)
            at = self.at(at_us)
            led = self.named_route(place)
            previous = led.session_id if led.session_id != session_id else None
            done = handoff.complete(state.handoff, gateway, place, previous, session_id=session_id, at_us=at)
            mine: list[Payload] = [] if (opened := state.resume()) is None else [opened]
            mine += _taken_over(state, place, peer)
            events: list[Event] = []
            if previous is not None:
                left, moved = self.leaving(previous, at)
                events += left
                mine += moved
            mine.append(done)
            events += following(state, mine, at)
            events += self._rerouted_to(state, led, at)
            settled = Condition(read_at, topics=(e.SessionRerouted.topic,))
            return HandedOff(session_id, self.save_events(events, condition=settled), place, previous)

        return self.decide(decision)

    def fail_handoff(
        self, session_id: str, reason: str, *, gateway: str | None = None, at_us: int | None = None
    ) -> Saved:
        """Give a handoff up: the session is as it was. Of the reason 500 characters are kept.

        Args:
            gateway: who says so; None for the side that asked and waits no longer.
        """

        def choose(state: Session) -> Payload:
            return handoff.fail(state.handoff, reason, gateway=gateway, session_id=session_id)

        return self.change_session(session_id, choose, at_us)

    def handoff_of(self, session_id: str) -> Handoff:
        """How the latest handoff of a session stands."""
        return self.session(session_id).handoff

    def pending_handoffs(self, *, at_us: int | None = None) -> list[str]:
        """Sessions that wait for a gateway, the one that began first, first."""
        at = self.at(at_us)
        found = []
        for session_id in self._open_handoffs():
            asked = self.session(session_id).handoff
            if asked.state == "pending" and not asked.overdue(at):
                found.append(session_id)
        return found

    def expire_handoffs(self, *, at_us: int | None = None) -> list[str]:
        """Fail every handoff whose deadline has passed; the sessions that were freed so."""
        at = self.at(at_us)
        failed = []
        for session_id in self._open_handoffs():
            saved = self.change_session(session_id, lambda state: handoff.expire(state.handoff, at_us=at), at)
            if saved.positions:
                failed.append(session_id)
        return failed

    # --- what these share ---------------------------------------------------------------------------

    def _open_handoffs(self) -> list[str]:
        return told.open_handoffs(self.caught_up("transcripts"))

    def _rerouted_to(self, state: Session, led: Route, at_us: int) -> list[Event]:
        events: list[Event] = []
        moved = led.lead_to(state.id, "handoff")
        if moved is not None:
            events.append(self.rerouted(led, moved, at_us))
        for key in keys_of(self.caught_up("routing"), state.id):
            before = self.route(key)
            if key != led.key and before.session_id == state.id:
                closed = e.RouteClosed(key, state.id, "handoff")
                events.append(self.rerouted(before, closed, at_us))
        return events


def _taken_over(state: Session, key: str, peer: dict[str, str | None]) -> list[Payload]:
    """The identity that a session takes over with its new place: what of it changes."""
    was: dict[str, Any] = {"source": state.source, "session_key": state.key}
    was |= {name: getattr(state, name) for name in _PEER}
    clean = {name: None if value is None else scrub(value)[0] for name, value in peer.items()}
    now = {**dict.fromkeys(_PEER), **clean, "source": state.handoff.platform, "session_key": key}
    changed = {name: value for name, value in now.items() if was[name] != value}
    if not changed:
        return []
    return [e.IdentityRestored({name: was[name] for name in changed}, changed)]
