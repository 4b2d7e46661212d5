"""A gateway as its stream tells it: since when it runs, whether it runs dry, where home channels are."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from . import events as e
from .errors import BadUsage, Draining
from .ids import refuse_unsafe_peer
from .text import is_blank, scrub

MAIN: Final = "main"
"""The gateway of a home that has one; what belongs to the home as a whole stands in its stream."""
DRAIN: Final = "drain"
"""The setting that holds who lets the gateway run dry."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KEPT: Final = 16
"""Times of starts that are remembered: more than any loop guard counts."""


class HomeChannel(msgspec.Struct, frozen=True):
    """Where a platform's handoffs and deliveries go."""

    platform: str
    chat_id: str
    thread_id: str | None = None
    name: str | None = None
    chat_type: str = "dm"


class Drain(msgspec.Struct, frozen=True):
    """No new turn begins: who said so, since when, and when it lapses by itself (FIELD_CASES I4)."""

    owner: str
    since_us: int
    until_us: int


class Gateway(msgspec.Struct, frozen=True):
    """One gateway's stream.

    Attributes:
        running: it started and did not stop since; `started`: it ever did.
        left_clean: its last stop was one that it chose, and nothing was left running.
        resumed_us: when its latest starts had sessions to resume: what the loop guard counts.
        offered: sessions that its last start was given to go on with; `offered_us`: when.
        channels: home channels by platform.
        deaths: how often it was started again after a stop that it had not chosen.
    """

    name: str
    version: int = 0
    running: bool = False
    started: bool = False
    started_us: int = 0
    left_clean: bool = False
    offered: frozenset[str] = frozenset()
    offered_us: int = 0
    drain: Drain | None = None
    resumed_us: tuple[int, ...] = ()
    channels: dict[str, HomeChannel] = {}
    deaths: int = 0

    def takes_turns(self, at_us: int) -> e.SettingChanged | None:
        """Nothing where turns may begin; the end of a drain where one has lapsed, to be recorded.

        Raises:
            Draining: it runs dry; the error says on whose word and until when.
        """
        if self.drain is None:
            return None
        if at_us < self.drain.until_us:
            raise Draining(self.name, owner=self.drain.owner, until_us=self.drain.until_us)
        return e.SettingChanged(DRAIN, None, lapsed=True)

    def in_loop(self, at_us: int, *, most: int, window_us: int) -> bool:
        """Whether a start with sessions to resume is one too many; `most` 0 lets every start resume."""
        if most <= 0:
            return False
        return 1 + sum(at_us - each <= window_us for each in self.resumed_us) >= most


def stream(name: object) -> str:
    """The stream of a gateway.

    Raises:
        BadUsage: a name that is none: it stands in a file's name too.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadUsage(
            f"'{scrub(str(name))[0]}' cannot be a gateway's name",
            hint="letters, digits, '-', '_' and '.', at most 64 of them",
        )
    return f"gateway:{name}"


def home_channel(
    platform: str, chat_id: str | None, *, thread_id: str | None, name: str | None, chat_type: str
) -> e.HomeChannelSet:
    """A platform's home channel from now on; `chat_id` None: it has none.

    Raises:
        BadUsage: a platform or a chat without a name. BadIdentifier: an id is a path.
    """
    if is_blank(platform) or (chat_id is not None and is_blank(chat_id)):
        raise BadUsage("a home channel needs a platform and a chat", hint="nothing was written")
    said = e.HomeChannelSet(
        scrub(platform)[0],
        None if chat_id is None else scrub(chat_id)[0],
        None if thread_id is None else scrub(thread_id)[0],
        None if name is None else scrub(name)[0],
        scrub(chat_type)[0],
    )
    for what in ("platform", "chat_id", "thread_id", "chat_type"):
        refuse_unsafe_peer(f"a home channel: {what}", getattr(said, what))
    return said


def evolve(state: Gateway, version: int, payload: object, at_us: int) -> Gateway:
    """The state after an event of the stream."""
    changes: dict[str, object] = {}
    match payload:
        case e.GatewayStarted():
            died = state.started and not payload.clean
            changes = {
                "running": True,
                "started": True,
                "started_us": at_us,
                "deaths": state.deaths + died,
                "offered": frozenset[str](),
            }
        case e.GatewayStopped():
            changes = {"running": False, "left_clean": payload.clean}
        case e.RecoveryRan() if payload.resumed or payload.loop:
            changes = {
                "resumed_us": (*state.resumed_us, at_us)[-_KEPT:],
                "offered": frozenset(payload.resumed),
                "offered_us": at_us,
            }
        case e.SettingChanged(name="drain", value=None):
            changes = {"drain": None}
        case e.SettingChanged(name="drain"):
            changes = {"drain": Drain(str(payload.value), at_us, payload.until_us or at_us)}
        case e.HomeChannelSet():
            kept = {name: each for name, each in state.channels.items() if name != payload.platform}
            if payload.chat_id is not None:
                kept[payload.platform] = HomeChannel(
                    payload.platform, payload.chat_id, payload.thread_id, payload.name, payload.chat_type
                )
            changes = {"channels": kept}
        case _:
            pass
    return msgspec.structs.replace(state, version=version, **changes)
