"""A session is handed from one place to another, by exactly one gateway (REFERENCE.md 10)."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from . import events as e
from .errors import HandoffRefused
from .keys import platform_of
from .text import in_one_line

HandoffState = Literal["pending", "running", "completed", "failed"]

UNCLAIMED_US: Final = 60_000_000
"""So long a request waits for a gateway, and a gateway may be silent."""
LONGEST_US: Final = 15 * 60_000_000
"""So long a claimed handoff may take, however often its gateway is heard of."""
REASON_CHARS: Final = 500
NOBODY: Final = "timed out waiting for gateway"

PLATFORMS: Final = frozenset(
    {
        "telegram",
        "discord",
        "slack",
        "whatsapp",
        "signal",
        "matrix",
        "mattermost",
        "email",
        "sms",
        "dingtalk",
        "feishu",
        "wecom",
        "weixin",
        "bluebubbles",
        "qqbot",
        "homeassistant",
        "teams",
    }
)
"""Where a person can be met (REFERENCE.md 1.2). A platform with a home channel needs not be one of them."""


class Handoff(msgspec.Struct, frozen=True):
    """How a session's latest handoff stands.

    Attributes:
        state: None where there never was one.
        gateway: who claimed it.
        deadline_us: until when it must be claimed, or the claimant be heard of again.
        claimed_us: when it was claimed.
        error: why it failed.
    """

    state: HandoffState | None = None
    platform: str | None = None
    gateway: str | None = None
    deadline_us: int = 0
    claimed_us: int = 0
    error: str | None = None

    @property
    def open(self) -> bool:
        """Whether it is under way: asked for, or claimed."""
        return self.state in ("pending", "running")

    def overdue(self, at_us: int) -> bool:
        """Whether it is under way and its deadline has passed."""
        return self.open and at_us >= self.deadline_us


def request(state: Handoff, platform: str, *, session_id: str, at_us: int) -> list[e.Payload]:
    """Ask for the session to go on elsewhere; an overdue request before it is failed in the same breath.

    Raises:
        HandoffRefused: one is under way.
    """
    events: list[e.Payload] = []
    if state.open:
        late = expire(state, at_us=at_us)
        if late is None:
            raise _refused(state, session_id, "a handoff is under way already")
        events.append(late)
    return [*events, e.HandoffRequested(platform, at_us + UNCLAIMED_US)]


def claim(state: Handoff, gateway: str, *, session_id: str, at_us: int) -> e.HandoffClaimed:
    """Take it on.

    Raises:
        HandoffRefused: none is pending: nobody asked, another gateway was first, or it is overdue.
    """
    if state.state != "pending" or state.overdue(at_us):
        raise _refused(state, session_id, "there is no handoff to be claimed")
    return e.HandoffClaimed(gateway, at_us + UNCLAIMED_US)


def heartbeat(state: Handoff, gateway: str, *, session_id: str, at_us: int) -> e.HandoffClaimed:
    """Say that the claimant is still at it: the deadline moves, up to 15 minutes from the claim.

    Raises:
        HandoffRefused: this gateway does not hold it (any more).
    """
    _refuse_others(state, gateway, session_id, at_us)
    return e.HandoffClaimed(gateway, min(at_us + UNCLAIMED_US, state.claimed_us + LONGEST_US))


def complete(
    state: Handoff, gateway: str, key: str, previous: str | None, *, session_id: str, at_us: int
) -> e.HandoffCompleted:
    """The session goes on under `key`.

    Raises:
        HandoffRefused: this gateway does not hold it (any more), or the key is no chat's of the platform
            that was asked.
    """
    _refuse_others(state, gateway, session_id, at_us)
    platform = platform_of(key)
    if platform != state.platform:
        whose = "no key of a chat" if platform is None else f"a key of {platform}"
        raise HandoffRefused(
            f"session {session_id}: the handoff was asked for to {state.platform}, and '{key}' is {whose}",
            state=state.state,
            hint=f"complete it with a key of {state.platform}, or fail it",
        )
    return e.HandoffCompleted(key, state.platform or "", previous)


def fail(state: Handoff, reason: str, *, gateway: str | None, session_id: str) -> e.HandoffFailed:
    """It did not work out; the session is as it was. Of the reason 500 characters are kept.

    Args:
        gateway: who says so; None for the side that asked.

    Raises:
        HandoffRefused: none is under way, or another gateway holds it.
    """
    if not state.open or (gateway is not None and state.gateway not in (None, gateway)):
        raise _refused(state, session_id, "there is no handoff to give up")
    return e.HandoffFailed(in_one_line(reason)[:REASON_CHARS].rstrip() or "no reason given")


def expire(state: Handoff, *, at_us: int) -> e.HandoffFailed | None:
    """Its failure where the deadline has passed; None where it has not."""
    if not state.overdue(at_us):
        return None
    if state.state == "pending":
        return e.HandoffFailed(NOBODY)
    if state.deadline_us >= state.claimed_us + LONGEST_US:
        return e.HandoffFailed("the gateway took longer than 15 minutes")
    return e.HandoffFailed("the gateway fell silent")


def _refuse_others(state: Handoff, gateway: str, session_id: str, at_us: int) -> None:
    if state.state != "running" or state.gateway != gateway or state.overdue(at_us):
        raise _refused(state, session_id, f"gateway {gateway} holds no handoff of it")


def _refused(state: Handoff, session_id: str, why: str) -> HandoffRefused:
    by = f" by gateway {state.gateway}" if state.gateway else ""
    stands = f"the last one is {state.state}{by}" if state.state else "there never was one"
    return HandoffRefused(
        f"session {session_id}: {why}; {stands}", state=state.state, hint="retold sessions show says more"
    )


def evolve(state: Handoff, payload: object, at_us: int = 0) -> Handoff:
    """The state after an event of the session."""
    match payload:
        case e.HandoffRequested():
            return Handoff("pending", payload.platform, deadline_us=payload.deadline_us)
        case e.HandoffClaimed():
            return msgspec.structs.replace(
                state,
                state="running",
                gateway=payload.gateway,
                deadline_us=payload.deadline_us,
                claimed_us=state.claimed_us if state.state == "running" else at_us,
            )
        case e.HandoffCompleted():
            return Handoff("completed", payload.platform)
        case e.HandoffFailed():
            return Handoff("failed", state.platform, error=payload.reason)
        case _:
            return state
