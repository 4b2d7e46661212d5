"""Which sessions lost their routing identity, and which keyed session each would take it from.

The rules and the words are those of `hermes sessions repair-routing` (REFERENCE.md 8.6). Nothing is
guessed: what more than one session could own, or more than one could have left, is refused.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from .ends import SUPERSEDED
from .facts import SessionFacts, World

NO_LINEAGE: Final = "parent session carries no gateway identity of this source"
TWO_DONORS: Final = "ambiguous: more than one keyed predecessor matches this window"
CONTESTED: Final = "ambiguous: more than one unkeyed session claims this predecessor"


class Record(Struct, frozen=True, kw_only=True):
    """One session without its key, and what can be done about it.

    Attributes:
        donor_id: whose key it would take; stays when the record is contested.
        donor_ids: every session that the window matched, the donor among them.
        reason: why it cannot be adopted; "" when it can.
    """

    orphan_id: str
    source: str
    message_count: int
    started_us: int
    last_active_us: int
    donor_id: str | None = None
    session_key: str | None = None
    evidence: Literal["lineage", "contiguity", ""] = ""
    adoptable: bool = False
    reason: str = ""
    donor_ids: tuple[str, ...] = ()


def repair_records(world: World, gap_seconds: float | None = None) -> list[Record]:
    """A record for every session that is missing its key, by start; keyless sources included.

    Args:
        gap_seconds: the window for contiguity; the world's own if None.
    """
    gap = world.gap_seconds if gap_seconds is None else gap_seconds
    donors = Donors(world)
    records = [_record(world, donors, orphan, gap) for orphan in world.orphans]
    claims = Counter(record.donor_id for record in records if record.adoptable)
    return [
        replace(record, adoptable=False, reason=CONTESTED)
        if record.adoptable and claims[record.donor_id] + len(adopted_from(world, record.donor_id)) > 1
        else record
        for record in records
    ]


def adopted_from(world: World, donor_id: str | None) -> list[SessionFacts]:
    """Those that took this session's key in an earlier repair: they claimed it, too."""
    donor = world.sessions.get(donor_id or "")
    if donor is None or donor.end_reason != SUPERSEDED:
        return []
    return [child for child in world.children(donor.id) if child.key is not None and child.key == donor.key]


def last_seen_us(session: SessionFacts) -> int:
    """The freshest activity of a session as repair counts it: any message, else its start."""
    known = [at for at in (session.last_active_us, session.last_message_us) if at is not None]
    return max(known, default=session.started_us)


class Donors:
    """The keyed sessions of each source by when they fell quiet."""

    def __init__(self, world: World) -> None:
        self._world = world
        named = {session.profile for session in world.sessions.values() if session.profile}
        sole = named.pop() if len(named) == 1 else "default"
        self._own_profile = world.profile or sole
        self._by_source: dict[str, list[tuple[int, str]]] = {}
        for session in world.sessions.values():
            if session.key is not None:
                quiet = (last_seen_us(session), session.id)
                self._by_source.setdefault(session.source, []).append(quiet)
        for quiet_times in self._by_source.values():
            quiet_times.sort()

    def within(self, orphan: SessionFacts, gap_seconds: float) -> list[SessionFacts]:
        """Those that fell quiet within the gap of the orphan's start, on either side."""
        quiet_times = self._by_source.get(orphan.source, [])
        gap_us = gap_seconds * 1_000_000
        first = bisect_left(quiet_times, orphan.started_us - gap_us, key=lambda quiet: quiet[0])
        last = bisect_right(quiet_times, orphan.started_us + gap_us, key=lambda quiet: quiet[0])
        found = (self._world.sessions[donor_id] for _, donor_id in quiet_times[first:last])
        return [donor for donor in found if self._may_give(donor, orphan)]

    def last_before(self, orphan: SessionFacts) -> SessionFacts | None:
        """The one that fell quiet last before the orphan began, however long before."""
        quiet_times = self._by_source.get(orphan.source, [])
        end = bisect_right(quiet_times, orphan.started_us, key=lambda quiet: quiet[0])
        for _, donor_id in reversed(quiet_times[:end]):
            if self._may_give(self._world.sessions[donor_id], orphan):
                return self._world.sessions[donor_id]
        return None

    def _may_give(self, donor: SessionFacts, orphan: SessionFacts) -> bool:
        users = (donor.user_id or "", orphan.user_id or "")
        return (
            donor.id != orphan.id
            and ("" in users or users[0] == users[1])
            and self.same_profile(donor, orphan)
            and last_seen_us(donor) < last_seen_us(orphan)
        )

    def same_profile(self, donor: SessionFacts, orphan: SessionFacts) -> bool:
        return self._profile(donor) == self._profile(orphan)

    def _profile(self, session: SessionFacts) -> str:
        return session.profile or self._own_profile


def _record(world: World, donors: Donors, orphan: SessionFacts, gap_seconds: float) -> Record:
    record = Record(
        orphan_id=orphan.id,
        source=orphan.source,
        message_count=orphan.message_count,
        started_us=orphan.started_us,
        last_active_us=last_seen_us(orphan),
    )
    if orphan.parent_id:
        parent = world.sessions.get(orphan.parent_id)
        if (
            parent is None
            or parent.key is None
            or parent.source != orphan.source
            or not donors.same_profile(parent, orphan)
        ):
            return replace(record, reason=NO_LINEAGE)
        return _adopted(record, parent, "lineage")
    found = donors.within(orphan, gap_seconds)
    if len(found) == 1:
        return _adopted(record, found[0], "contiguity")
    none = f"no keyed predecessor fell quiet within {gap_seconds:g}s of this session's start"
    ids = tuple(sorted(donor.id for donor in found))
    return replace(record, reason=TWO_DONORS if found else none, donor_ids=ids)


def _adopted(record: Record, donor: SessionFacts, evidence: Literal["lineage", "contiguity"]) -> Record:
    return replace(
        record,
        donor_id=donor.id,
        session_key=donor.key,
        evidence=evidence,
        adoptable=True,
        donor_ids=(donor.id,),
    )
