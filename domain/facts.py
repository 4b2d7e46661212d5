"""What the rules of audit and repair may know: plain facts that projections fill from the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, Protocol

from msgspec import Struct

from .keys import platform_of

ChildKind = Literal["continuation", "branch", "delegate", "tool", "reset", "child"]

NEVER_ROUTED: Final = frozenset({"cron", "subagent", "tool"})
"""Sources whose sessions run by themselves: what a person writes never goes to one."""

SIDE_CHILDREN: Final = frozenset({"branch", "delegate", "tool"})
"""Kinds of child that are no part of the conversation they were made from."""


class SessionFacts(Struct, frozen=True, kw_only=True):
    """One session as the log tells it. Positions are evidence, times are microseconds UTC.

    Attributes:
        lost_key: the key it bore before it lost it; None if it never did, or bears one again.
        last_active_us: the latest user or assistant message, never after it was recorded.
        last_message_us: the latest message of any role, if that is known apart.
        source_gone: its row vanished from the store it was imported from.
    """

    id: str
    source: str
    started_us: int
    created_position: int
    key: str | None = None
    lost_key: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    profile: str | None = None
    last_active_us: int | None = None
    last_message_us: int | None = None
    message_count: int = 0
    ended_us: int | None = None
    end_reason: str | None = None
    parent_id: str | None = None
    parent_kind: ChildKind | None = None
    archived: bool = False
    last_message_position: int | None = None
    ended_position: int | None = None
    lost_position: int | None = None
    source_gone: bool = False
    title: str | None = None

    @property
    def bears(self) -> str | None:
        """The key it bears, or bore before it lost it."""
        return self.key if self.key is not None else self.lost_key

    @property
    def has_messages(self) -> bool:
        return self.message_count > 0 or self.last_message_position is not None


class RouteFacts(Struct, frozen=True, kw_only=True):
    """One time that a key came to lead to a session, or its route as an import found it.

    Attributes:
        at_kind: "exact", or else `at_us` is only a latest possible time.
        entry_created_us, entry_updated_us: what the imported entry says of itself.
        closed: the key leads nowhere since.
        by_person: a person said in this chat, or by a repair, that it is to lead there.
        undoes: of an undo the first position of the save that it took back, where it names that.
    """

    key: str
    session_id: str
    position: int
    at_us: int
    cause: str
    at_kind: str = "exact"
    previous_id: str | None = None
    entry_created_us: int | None = None
    entry_updated_us: int | None = None
    closed: bool = False
    by_person: bool = False
    undoes: int | None = None


class ConflictFacts(Struct, frozen=True, kw_only=True):
    """A value that changed in the source after it had been changed here; ours stays."""

    column: str
    ours: str | None
    theirs: str | None
    position: int
    session_id: str | None = None
    key: str | None = None


class Activity(Protocol):
    """User and assistant messages by time; asked about few sessions, so it may query."""

    def last_before(self, session_id: str, at_us: int) -> int | None:
        """The latest at or before `at_us`."""
        ...

    def first_after(self, session_id: str, at_us: int) -> int | None:
        """The earliest strictly after `at_us`."""
        ...


class World(Struct, frozen=True, dict=True, kw_only=True):
    """All facts of one store at one position, with indexes made when first asked for.

    Attributes:
        routes: per key all its routes, oldest first.
        gap_seconds: how far apart a keyed session may fall quiet and a keyless one begin.
        profile: the store's own profile; a session without one is of it.
    """

    sessions: Mapping[str, SessionFacts]
    routes: Mapping[str, Sequence[RouteFacts]]
    activity: Activity
    conflicts: Sequence[ConflictFacts] = ()
    gap_seconds: float = 900
    profile: str | None = None

    @cached_property
    def by_key(self) -> dict[str, list[SessionFacts]]:
        """The sessions that bear a key, oldest first."""
        found: dict[str, list[SessionFacts]] = {}
        for session in self.in_order:
            if session.key is not None:
                found.setdefault(session.key, []).append(session)
        return found

    @cached_property
    def in_order(self) -> list[SessionFacts]:
        return sorted(self.sessions.values(), key=lambda s: (s.started_us, s.id))

    @cached_property
    def _children(self) -> dict[str, list[SessionFacts]]:
        found: dict[str, list[SessionFacts]] = {}
        for session in self.in_order:
            if session.parent_id is not None:
                found.setdefault(session.parent_id, []).append(session)
        return found

    def children(self, session_id: str, kind: ChildKind | None = None) -> list[SessionFacts]:
        """The children of a session, oldest first; of one kind if that is given."""
        found = self._children.get(session_id, [])
        return [child for child in found if kind is None or child.parent_kind == kind]

    @cached_property
    def keyed_sources(self) -> frozenset[str]:
        """Sources of which this store has a session with a key of that very platform.

        A run of another source may bear the key of the chat it reports to (a cron job, a chat
        handed over); that does not make keys usual for its source.
        """
        return frozenset(
            session.source
            for session in self.sessions.values()
            if session.bears is not None and platform_of(session.bears) in (session.source, None)
        )

    @cached_property
    def orphans(self) -> list[SessionFacts]:
        """Sessions with messages and no key that are no branch, delegate or tool run."""
        return [
            session
            for session in self.in_order
            if session.key is None
            and session.has_messages
            and session.source != "tool"
            and session.parent_kind not in SIDE_CHILDREN
        ]

    def standing_routes(self, key: str) -> Sequence[RouteFacts]:
        """A key's routes without those that were undone: an undo puts back what stood before."""
        known = self._standing.get(key)
        if known is None:
            known = self._standing[key] = _standing(self.routes.get(key, ()))
        return known

    @cached_property
    def _standing(self) -> dict[str, Sequence[RouteFacts]]:
        return {}

    def route_of(self, key: str) -> RouteFacts | None:
        """Where a key leads, None if nowhere."""
        history = self.routes.get(key, ())
        return history[-1] if history and not history[-1].closed else None


class _Stood(Struct, frozen=True):
    """A route that stood, and what stood before it."""

    before: _Stood | None
    route: RouteFacts

    @property
    def leads_to(self) -> str | None:
        return None if self.route.closed else self.route.session_id


def _standing(history: Sequence[RouteFacts]) -> Sequence[RouteFacts]:
    if all(route.cause != "undo" for route in history):
        return history
    stood: list[_Stood | None] = [None]  # before each route; what stands now is the last
    for route in history:
        back = _undone_by(history, stood, route) if route.cause == "undo" else None
        stood.append(_Stood(stood[-1], route) if back is None else stood[back])
    standing: list[RouteFacts] = []
    at = stood[-1]
    while at is not None:
        standing.append(at.route)
        at = at.before
    return standing[::-1]


def _undone_by(history: Sequence[RouteFacts], stood: Sequence[_Stood | None], undo: RouteFacts) -> int | None:
    """Which of the routes an undo took back: the one that it names, else the last that it can have been."""
    so_far = range(len(stood) - 1)
    if undo.undoes is not None:
        return next((each for each in so_far if history[each].position >= undo.undoes), None)
    leads_to = None if undo.closed else undo.session_id
    for each in reversed(so_far):
        before = stood[each]
        if (None if before is None else before.leads_to) == leads_to:
            return each
    return None


def keyless_by_nature(world: World, source: str) -> bool:
    """Whether sessions of this source have no key here (cli, cron, api and the like)."""
    return source not in world.keyed_sources
