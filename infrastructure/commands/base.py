"""What several commands share: ids, one event of one session, state that moved on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import FunctionType
from typing import Any

import msgspec

from ...domain import turns
from ...domain.arguments import checked
from ...domain.ends import SWITCH
from ...domain.errors import BadIdentifier, NoSuchSession, ProjectionDamaged, SessionExists
from ...domain.events import (
    Event,
    Payload,
    SessionCompressed,
    SessionDeleted,
    SessionReopened,
    TurnQueued,
    session_stream,
)
from ...domain.ids import refuse_unsafe_peer, refuse_unsafe_session
from ...domain.route import Route
from ...domain.session import Session
from ...domain.text import is_blank
from ...projections.base import Connection
from ..decisions import Decisions, Saved, event


class Closed(Saved, frozen=True):
    """Something was closed; `cleared` are the turns that waited there and will not run."""

    cleared: tuple[str, ...] = ()


class Commands(Decisions):
    """Base of every group of commands, each of which refuses arguments of another type than it says."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, command in list(vars(cls).items()):
            if isinstance(command, FunctionType) and not name.startswith("_"):
                setattr(cls, name, checked(command))

    def refuse_existing(self, session_id: str) -> None:
        """Raise SessionExists where a session of this id was ever created."""
        if self.exists(session_id):
            raise SessionExists(f"session {session_id} exists already", hint="choose another id")

    def caught_up(self, *projections: str) -> Connection:
        """The projections as of now, for a decision that asks those that are named.

        Raises:
            ProjectionDamaged: one of them is set aside, and what it would say is not known.
            StoreBusy: another process folds for longer than the limit.
        """
        aside = self.projector.catch_up().detached
        for name in projections:
            if name in aside:
                raise ProjectionDamaged(
                    f"the projection {name} cannot be told: {aside[name]}; nothing was written",
                    hint=f"tell it again with: retold projections rebuild {name}",
                )
        return self.state.reader()

    def named_route(self, key: str) -> Route:
        """Where a key leads that a caller gives; one that was never heard of is made sure to be a key.

        Raises:
            BadIdentifier: it is blank, a path, or holds control characters.
        """
        led = self.route(key)
        if led.version == 0:
            if is_blank(led.key):
                raise BadIdentifier("a blank key is no chat's", hint="give the chat's key")
            refuse_unsafe_peer("a key:", led.key)
        return led

    def change_session(
        self, session_id: str, choose: Callable[[Session], Payload | None], at_us: int | None
    ) -> Saved:
        """One event of one session, or none where nothing changes."""

        def decision() -> Saved:
            state = self.session(session_id)
            payload = choose(state)
            if payload is None:
                return Saved(session_id, ())
            at = self.at(at_us)
            changed = event(session_stream(session_id), state.version + 1, payload, at)
            return Saved(session_id, self.save_events([changed]))

        return self.decide(decision)

    def went_on_without(self, state: Session) -> bool:
        """Whether what a deleted session continued was opened again since: it has one continuation."""
        if state.parent_kind != "continuation" or state.parent_id is None:
            return False
        gone = self.event_log.read(
            stream=session_stream(state.id), topics=[SessionDeleted.topic], limit=sys.maxsize
        )
        since = self.event_log.read(
            gone[-1].position if gone else 0,
            stream=session_stream(state.parent_id),
            topics=[SessionReopened.topic, SessionCompressed.topic],
        )
        return any(
            not isinstance(each.payload, SessionCompressed) or each.payload.continuation != state.id
            for each in since
        )

    def leaving(
        self, session_id: str, at_us: int, *, ends_it: bool = True
    ) -> tuple[list[Event], list[TurnQueued]]:
        """The events by which a chat leaves a session for another, and what of its queue waits on there.

        Args:
            ends_it: whether the session ends with that, as one that was left.
        """
        try:
            state = self.session(session_id)
        except NoSuchSession:
            return [], []
        ends = (turns.cleared(state.turns, "moved"), state.end(SWITCH) if ends_it else None)
        events = following(state, [each for each in ends if each is not None], at_us)
        return events, turns.moved(state.turns, session_id)


def following(state: Session, payloads: Sequence[Payload], at_us: int) -> list[Event]:
    """The next events of a session."""
    stream = session_stream(state.id)
    return [event(stream, version, each, at_us) for version, each in enumerate(payloads, state.version + 1)]


def queued_in(
    session_id: str, waiting: Sequence[TurnQueued], at_us: int, *, after: Sequence[Event]
) -> list[Event]:
    """What waits on in a session that is begun by `after`."""
    stream = session_stream(session_id)
    version = sum(each.originator_id == stream for each in after)
    return [event(stream, version + n, each, at_us) for n, each in enumerate(waiting, 1)]


def new_session_id(at_us: int) -> str:
    """YYYYMMDD_HHMMSS_<8 hex>, local time (REFERENCE.md 1.1)."""
    local = datetime.fromtimestamp(at_us / 1e6, UTC).astimezone()
    return f"{local:%Y%m%d_%H%M%S}_{os.urandom(4).hex()}"


def usable(session_id: str) -> str:
    """An id that may name a stream.

    Raises:
        BadIdentifier: it is no valid text, a path, or holds control characters.
    """
    refuse_unsafe_session(session_id)
    return session_id


def moved(state: Session, events: int) -> Session:
    """The state after events that change nothing but the version."""
    return msgspec.structs.replace(state, version=state.version + events)
