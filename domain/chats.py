"""Which sessions make up one conversation, and whether its key leads past the right one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

from msgspec import Struct

from .ends import SUPERSEDED, SWITCH, is_compression, is_hard
from .facts import NEVER_ROUTED, RouteFacts, SessionFacts, World, keyless_by_nature
from .repair import Record, repair_records

CHOSEN_CAUSES: Final = frozenset(
    {
        "reset",
        "idle",
        "daily",
        "suspended",
        "resume_expired",
        "new_session",
        "resume",
        "branch",
        "handoff",
        "repair",
        "delete",
        "undo",
    }
)
"""Causes of a route that explain it: a person or a policy chose where the key leads."""


_LEADS: Final = "the key leads here"
_QUARTER_US: Final = 15 * 60 * 1_000_000
_WIDEST_ZONE_US: Final = 14 * 60 * 60 * 1_000_000
_SAME_MOMENT_US: Final = 5 * 1_000_000


class Candidate(Struct, frozen=True):
    """A session that a key could lead to, and in words how it stands."""

    session_id: str
    verdict: str
    last_active_us: int | None


class Chats:
    """Which sessions belong to one conversation, told from keys, lineage and repair's rules."""

    def __init__(self, world: World) -> None:
        self.world = world

    @cached_property
    def records(self) -> dict[str, Record]:
        """Repair's record of each keyless session whose source has keys here."""
        return {
            record.orphan_id: record
            for record in repair_records(self.world)
            if not keyless_by_nature(self.world, record.source)
        }

    def before(self, session: SessionFacts) -> SessionFacts | None:
        """The session that this one goes on from: by lineage, else as repair would adopt it."""
        parent = self.world.sessions.get(session.parent_id or "")
        if parent is not None and session.parent_kind in ("continuation", "child"):
            keys = {session.bears, parent.bears} - {None}
            same = len(keys) < 2 and session.source == parent.source
            return parent if same and (session.key is None or session.parent_kind != "child") else None
        record = self.records.get(session.id)
        if record is None or not record.adoptable or record.donor_id is None:
            return None
        return self.world.sessions[record.donor_id]

    def chain(self, session: SessionFacts) -> list[SessionFacts]:
        """The session, what it goes on from, and so back to the first."""
        chain, seen = [session], {session.id}
        while (previous := self.before(chain[-1])) is not None and previous.id not in seen:
            chain.append(previous)
            seen.add(previous.id)
        return chain

    def key_of(self, session: SessionFacts) -> str | None:
        """The key of the conversation that a session belongs to."""
        return next((s.bears for s in self.chain(session) if s.bears is not None), None)

    @cached_property
    def _members(self) -> dict[str, list[SessionFacts]]:
        found: dict[str, dict[str, SessionFacts]] = {}
        for session in self.world.in_order:
            key = self.key_of(session)
            if key is not None:
                found.setdefault(key, {})[session.id] = session
        for key in self.world.routes:
            for route in self.world.standing_routes(key):
                led_to = self.world.sessions.get(route.session_id)
                if led_to is not None and led_to.bears is None:
                    found.setdefault(key, {})[led_to.id] = led_to
        return {key: list(sessions.values()) for key, sessions in found.items()}

    def members(self, key: str) -> list[SessionFacts]:
        """The sessions that bear a key, go on from one that does, or that it once led to."""
        return self._members.get(key, [])

    def chosen(self, key: str | None) -> SessionFacts | None:
        """What a key leads to, where a person said so of it, or of what was compressed into it."""
        wanted = None if key is None else self.world.route_of(key)
        target = None if wanted is None else self.world.sessions.get(wanted.session_id)
        at = None if target is None else target.id
        for route in reversed(self.world.standing_routes(key or "")):
            if route.closed:
                return None
            if route.session_id != at:
                continue
            if route.cause != "compression" or route.previous_id is None:
                return target if route.by_person else None
            at = route.previous_id
        return None

    @cached_property
    def leads(self) -> list[Lead]:
        """Every key that leads to a session that exists."""
        routes = filter(None, map(self.world.route_of, self.world.routes))
        return [
            Lead(self, route, self.world.sessions[route.session_id])
            for route in routes
            if route.session_id in self.world.sessions
        ]

    def candidate(self, session: SessionFacts, key: str | None = None) -> Candidate:
        return Candidate(session.id, self._verdict(session, key), session.last_active_us)

    def _verdict(self, session: SessionFacts, key: str | None) -> str:
        words = []
        route = None if key is None else self.world.route_of(key)
        if route is not None and route.session_id == session.id:
            words.append(_LEADS)
        goes_on = self.world.children(session.id, "continuation")
        if session.source_gone:
            words.append("gone from the source")
        if is_compression(session.end_reason) or goes_on:
            names = " and ".join(child.id for child in goes_on)
            how = "gave its key away" if session.end_reason == SUPERSEDED else "compressed"
            words.append(f"{how}; goes on as {names}" if names else how)
        elif session.end_reason == SWITCH:
            words.append("left by a /resume or a handoff")
        elif is_hard(session.end_reason):
            words.append(f"ended for good ({session.end_reason})")
        elif session.end_reason is not None:
            words.append(f"ended ({session.end_reason}), may go on")
        if session.key is None:
            words.append("no key" if words[:1] == [_LEADS] else "no key, so routing cannot see it")
        if not session.has_messages:
            words.append("no messages")
        record = self.records.get(session.id)
        if record is not None and record.reason:
            words.append(record.reason)
        return "; ".join(words) or "open, bears the key"


class Lead:
    """A key that leads to a session, seen against the rest of its conversation.

    The moment is when the key came to lead there: exact for routes decided here, else unknown, and
    each rival is then judged at its own last activity: what was written afterwards hides nothing.
    """

    def __init__(self, chats: Chats, route: RouteFacts, target: SessionFacts) -> None:
        self.chats, self.world = chats, chats.world
        self.key, self.route, self.target = route.key, route, target
        self.behind = chats.chain(target)
        self._behind_ids = {session.id for session in self.behind}
        self.came = self._came_by()
        exact = self.came.at_kind == "exact" and self.came.cause != "import"
        self.moment_us = self.came.at_us if exact else None

    def _came_by(self) -> RouteFacts:
        """The route by which the key came to the target or to what the target goes on from."""
        came = self.route
        for route in reversed(self.world.standing_routes(self.key)):
            if route.closed or route.session_id not in self._behind_ids:
                break
            came = route
            if route.cause in CHOSEN_CAUSES:
                break  # whatever led there before, this is why it is to lead there
        return came

    @cached_property
    def others(self) -> list[SessionFacts]:
        """The sessions of the conversation that the target does not go on from."""
        return [
            session
            for session in self.chats.members(self.key)
            if session.id not in self._behind_ids
            and session.parent_kind not in ("delegate", "tool")
            and session.source not in NEVER_ROUTED
        ]

    @cached_property
    def boundaries(self) -> list[tuple[int, SessionFacts]]:
        """The hard ends in the rest of the conversation."""
        return [
            (session.ended_us, session)
            for session in self.others
            if session.ended_us is not None
            and is_hard(session.end_reason)
            and (self.moment_us is None or session.ended_us <= self.moment_us)
        ]

    def active_before(self, at_us: int, *sessions: SessionFacts) -> int | None:
        """The latest activity of the target's chain (or of `sessions`) at or before a time."""
        found = (self.world.activity.last_before(s.id, at_us) for s in sessions or self.behind)
        return max((at for at in found if at is not None), default=None)

    def rivals(self) -> list[tuple[int, SessionFacts]]:
        """The sessions in use later that nothing on record explains leaving, newest first."""
        if self.came.cause in CHOSEN_CAUSES:
            return []
        fence_us = max((at_us for at_us, _ in self.boundaries), default=-1)
        found = []
        for rival in self.others:
            last_us = rival.last_active_us
            if last_us is None or not rival.has_messages or is_hard(rival.end_reason):
                continue
            if self.moment_us is not None:
                last_us = self.world.activity.last_before(rival.id, self.moment_us)
            # The session just left was not left by an earlier /resume or reset of another.
            left = rival.id == self.came.previous_id
            since_us = max(self.behind[-1].started_us, -1 if left else fence_us)
            if last_us is None or last_us <= since_us:
                continue
            ours_us = self.active_before(last_us if self.moment_us is None else self.moment_us)
            if (ours_us is None or ours_us < last_us) and self._passed_over(rival, last_us, ours_us):
                found.append((last_us, rival))
        return sorted(found, key=lambda pair: (pair[0], pair[1].id), reverse=True)

    def _passed_over(self, rival: SessionFacts, last_us: int, ours_us: int | None) -> bool:
        """Whether the key did lead past the target to the rival before it came back."""
        chain = self.chats.chain(rival)
        if self.target in chain:
            return self._came_back(chain[: chain.index(self.target)], last_us)
        own = [session for session in chain if session.id not in self._behind_ids]
        joint = next((session for session in chain if session.id in self._behind_ids), None)
        head = self.behind[-1]
        if joint is not None:
            head = self.behind[self.behind.index(joint) - 1]
            if own[-1].parent_kind == head.parent_kind == "continuation":
                return False  # two continuations of one parent: a finding of its own
        known = [s for s in own if s.bears == self.key or self._was_led_to(s)]
        if any(session.started_us > head.started_us for session in known):
            return True
        # It began before the target, yet was in use while the target lay idle.
        idle_us = last_us - (head.started_us if ours_us is None else ours_us)
        return bool(known) and idle_us > self.world.gap_seconds * 1_000_000

    def _was_led_to(self, session: SessionFacts) -> bool:
        return any(route.session_id == session.id for route in self.world.standing_routes(self.key))

    def _came_back(self, later: list[SessionFacts], last_us: int) -> bool:
        """Whether the key went on to what the target goes on as, nearest last, and came back."""
        if any(session.bears == self.key or self._was_led_to(session) for session in later):
            return True
        first = later[-1]
        if self.target.last_active_us is not None and first.parent_kind == "continuation":
            return True
        made_us, touched_us = self._entry_times()
        moved_us = self.moment_us if self.moment_us is not None else made_us
        moved = self.came.previous_id is not None or made_us > self.target.started_us
        if moved and moved_us > first.started_us:
            return self._silent(first.started_us, moved_us)
        if first.parent_kind != "child" or not self._silent(first.started_us, last_us):
            return False
        after_us = self.world.activity.first_after(self.target.id, last_us)
        return touched_us >= first.started_us or after_us is not None

    def _entry_times(self) -> tuple[int, int]:
        """When the entry was made and last touched, by its own words; -1 where it has none.

        Hermes writes them as local time of its host without naming the zone. An entry made whole
        quarters of an hour from the start of the session it leads to was made with that session,
        and read in the wrong zone.
        """
        made_us = self.came.entry_created_us
        if made_us is None:
            return -1, -1
        apart_us = made_us - self.target.started_us
        zone_us = round(apart_us / _QUARTER_US) * _QUARTER_US
        if abs(zone_us) > _WIDEST_ZONE_US or abs(apart_us - zone_us) > _SAME_MOMENT_US:
            zone_us = 0
        touched_us = self.came.entry_updated_us
        made_us -= zone_us
        if abs(made_us - self.target.started_us) <= _SAME_MOMENT_US:
            made_us = self.target.started_us
        return made_us, -1 if touched_us is None else touched_us - zone_us

    def _silent(self, from_us: int, to_us: int) -> bool:
        before = self.world.activity.last_before(self.target.id, to_us)
        return before is None or before <= from_us


def evidence_of(*sessions: SessionFacts, routes: Iterable[RouteFacts] = ()) -> tuple[int, ...]:
    """The positions of the events that show how these sessions and routes stand."""
    positions = {route.position for route in routes}
    for session in sessions:
        known = (
            session.created_position,
            session.last_message_position,
            session.ended_position,
            session.lost_position,
        )
        positions.update(position for position in known if position is not None)
    return tuple(sorted(positions))
