"""Repair: a chat's key goes back to the session that it belongs to, one save a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...domain import events as e
from ...domain import turns
from ...domain.adoption import Evidence, Sides, because, put_aside, restored, retired, verify
from ...domain.chats import Chats
from ...domain.ends import SUPERSEDED
from ...domain.errors import BadUsage, NoSuchSession, OrphanChanged, RepairRefused, TwoHistories
from ...domain.events import Event, Payload, RouteCandidate, session_stream
from ...domain.facts import World
from ...domain.recovery import takes_messages
from ...domain.repair import Record, repair_records
from ...domain.route import Route
from ...domain.session import Session
from ...domain.shell import shell_word
from ...projections.world import chat_sources, platform_sides, world
from ..decisions import Saved, event
from ..log import Condition
from ..streams import route_stream
from .base import Commands

GAP_SECONDS = 900.0
MOVES = (e.SessionCreated.topic, e.IdentityLost.topic, e.IdentityRestored.topic)
"""What can make another session claim the same key, or give it."""


class Adopted(Saved, frozen=True):
    """A session that bears its chat's key again.

    Attributes:
        donor: whose key it took; it ended as superseded_by_repair, unless it was chosen to go on.
        leads_to: where the key leads now; None where nowhere, since the session had ended for good.
        left: where it led before.
        ended: the end for good of the session, for which its chat does not go on in it; else None.
        evidence: all that spoke for it.
    """

    key: str = ""
    donor: str = ""
    leads_to: str | None = None
    left: str | None = None
    ended: str | None = None
    evidence: tuple[str, ...] = ()


class Asked(NamedTuple):
    """What a person said of a repair, so that a command that is named says it again."""

    orphan_id: str
    donor: str | None
    choose: str | None
    gap_seconds: float

    def again(self, *, donor: str | None = None, choose: str | None = None) -> str:
        """The command, and what else is to be said."""
        said = ["retold sessions repair-routing --apply", shell_word(self.orphan_id)]
        if self.gap_seconds != GAP_SECONDS:
            said.append(f"--max-gap-seconds {self.gap_seconds:g}")
        for option, value in (("--from", donor or self.donor), ("--choose", choose or self.choose)):
            if value is not None:
                said.append(f"{option} {shell_word(value)}")
        return " ".join(said)


class Batch:
    """Events of one save: versions of a stream count up from where it stands."""

    def __init__(self, at_us: int) -> None:
        self.at_us = at_us
        self.events: list[Event] = []
        self._versions: dict[str, int] = {}

    def add(self, stream: str, version: int, payload: Payload | None, *, at_us: int | None = None) -> None:
        """The next event of a stream that stands at `version` without this save; nothing for None."""
        if payload is None:
            return
        now = self._versions.get(stream, version) + 1
        self._versions[stream] = now
        self.events.append(event(stream, now, payload, self.at_us if at_us is None else at_us))

    def session(self, state: Session, payload: Payload | None) -> None:
        """The next event of a session."""
        self.add(session_stream(state.id), state.version, payload)

    def queue(self, left: Session, to: Session) -> None:
        """What waits in a session that its chat leaves waits on in another."""
        self.session(left, turns.cleared(left.turns, "moved"))
        for each in turns.moved(left.turns, left.id):
            self.session(to, each)


class RepairCommands(Commands):
    """Mending where chats lead."""

    def repair(
        self,
        orphan_id: str,
        *,
        donor: str | None = None,
        choose: str | None = None,
        reported: tuple[str | None, str | None] | None = None,
        key: str | None = None,
        gap_seconds: float = GAP_SECONDS,
        at_us: int | None = None,
        before_saving: Callable[[], object] | None = None,
    ) -> Adopted:
        """Give a session that lost it its chat's key back, and lead the key to it (REFERENCE.md 8.6).

        One save, decided on what the log says at that moment: the session takes key, chat and user of
        its donor where it has none; the donor ends as superseded_by_repair whatever end it had, the key
        leads to the session, and what it led to by mistake ends softly. A session that has its donor's
        key, and its chat, already is left as it is: nothing is written.

        Args:
            donor: a session that a person named as what it goes on from, where the rules find none or
                more than one.
            choose: which session goes on, where the chat was written to in two.
            reported: donor and key as a report had them: any other are refused.
            key: the key that it is to bear, where that is known: any other is refused.
            gap_seconds: how far apart the donor may have fallen quiet and the session have begun.
            before_saving: called once it is known that something will be saved; again where the decision
                is made again.

        Raises:
            NoSuchSession. OrphanChanged: it is not as it was reported. RepairRefused: the rules find no
            donor, or more than one. TwoHistories: `choose` must say which goes on. BadUsage: `choose`
            names neither.
        """

        def decision() -> Adopted:
            read_at = self.projector.catch_up().position
            orphan = self.session(orphan_id)
            db = self.state.reader()
            known = world(db, gap_seconds=gap_seconds, sources=chat_sources(db, session_id=orphan_id))
            asked = Asked(orphan_id, donor, choose, gap_seconds)
            giver, evidence = self._giver(known, orphan, asked, reported)
            its = giver.key
            if its is None or key not in (None, its):
                raise OrphanChanged(orphan_id)
            led = self.route(its)
            if orphan.key == its:
                self._refuse_otherwise(orphan, giver, led, choose)
                return Adopted(
                    orphan_id, (), key=its, donor=giver.id, leads_to=led.session_id, ended=_for_good(orphan)
                )
            verify(orphan, giver, its, own_profile=known.profile or "default")
            wrong = self.known_session(led.session_id)
            tip = self.tip_of(orphan)
            goes_on = self._who_goes_on(known, (orphan, giver), tip, wrong, asked)
            sides = Sides(*platform_sides(db, giver.id, orphan_id))
            told = tuple(because(orphan, giver, evidence, sides, choose))
            batch = Batch(self.at(at_us))
            continued = bool(known.children(giver.id, "continuation"))
            batch.session(orphan, restored(orphan, giver, continued=continued))
            self._retire_others(batch, orphan, giver, wrong, goes_on)
            leads_to = self._lead_to_chosen(batch, known, led, goes_on, (tip, orphan, giver, wrong), told)
            streams = {session_stream(each.id) for each in (orphan, tip, giver, wrong) if each is not None}
            moved = Condition(read_at, (*sorted(streams), route_stream(self.identity, its)), MOVES)
            if before_saving is not None:
                before_saving()
            positions = self.save_events(batch.events, condition=moved)
            return Adopted(
                orphan_id,
                positions,
                key=its,
                donor=giver.id,
                leads_to=leads_to,
                left=led.session_id,
                ended=_for_good(tip),
                evidence=told,
            )

        return self.decide(decision)

    # --- who gives the key ---------------------------------------------------------------------------

    def _giver(
        self,
        known: World,
        orphan: Session,
        asked: Asked,
        reported: tuple[str | None, str | None] | None,
    ) -> tuple[Session, Evidence]:
        named = asked.donor
        record = next((each for each in repair_records(known) if each.orphan_id == orphan.id), None)
        done = None if reported is None or reported[1] != orphan.key else self.known_session(reported[0])
        if done is not None and done.key == orphan.key is not None:
            return done, "lineage"  # it stands already, whoever did it
        if reported is not None and (
            record is None or not record.adoptable or (record.donor_id, record.session_key) != reported
        ):
            raise OrphanChanged(orphan.id)
        if named is not None:
            giver = self.session(named)
            agreed = record is not None and record.adoptable and record.donor_id == named
            evidence = record.evidence if agreed and record is not None else ""
            self._refuse_donor(known, orphan, giver)
            return giver, evidence or "choice"
        if record is not None and record.adoptable and record.donor_id is not None:
            return self.session(record.donor_id), record.evidence or "choice"
        before = None if orphan.parent_id is None else self.known_session(orphan.parent_id)
        if orphan.key is not None and before is not None and before.key == orphan.key:
            return before, "lineage"
        raise self._not_adoptable(orphan, record, asked)

    def _refuse_donor(self, known: World, orphan: Session, giver: Session) -> None:
        facts = known.sessions.get(orphan.id)
        if facts is None or (facts not in known.orphans and orphan.key is None):
            raise RepairRefused(
                f"{orphan.id} can take no key: it is a branch, a run of its own, or has no messages",
                hint="nothing was written",
            )
        if giver.key is None:
            raise RepairRefused(f"{giver.id} has no key to give", hint="name a session that bears one")
        if giver.source != orphan.source:
            raise RepairRefused(
                f"{giver.id} is a session of {giver.source}, {orphan.id} one of {orphan.source}",
                hint="name a session of the same platform",
            )

    def _not_adoptable(self, orphan: Session, record: Record | None, asked: Asked) -> RepairRefused:
        if orphan.key is not None:
            return RepairRefused(f"{orphan.id} bears the key {orphan.key}", hint="nothing was written")
        hint = f"if you know better: {asked.again(donor='SESSION')}"
        why = "it is no session that lost a key" if record is None else record.reason
        return RepairRefused(f"{orphan.id} cannot be adopted: {why}", hint=hint)

    def _refuse_otherwise(self, orphan: Session, giver: Session, led: Route, choose: str | None) -> None:
        """Refuse what is said of a session that bears its key, and is not so."""
        before = self.known_session(orphan.parent_id)
        follows = before is not None and before.key == orphan.key
        if giver.id != orphan.parent_id and (follows or giver.end_reason != SUPERSEDED):
            raise RepairRefused(
                f"{orphan.id} bears {orphan.key} already, and did not take it from {giver.id}",
                hint="nothing was written",
            )
        wanted = None if choose is None else self.known_session(choose)
        if choose is not None and led.session_id not in (choose, wanted and self.tip_of(wanted).id):
            goes_on = f"goes on in {led.session_id}" if led.session_id else "leads nowhere"
            raise RepairRefused(
                f"{orphan.id} bears {orphan.key} already, and its chat {goes_on}, not in {choose}",
                hint=f"to lead it there: retold sessions route {shell_word(led.key)} {shell_word(choose)}",
            )

    # --- which session goes on -----------------------------------------------------------------------

    def _who_goes_on(
        self,
        known: World,
        both: tuple[Session, Session],
        tip: Session,
        wrong: Session | None,
        asked: Asked,
    ) -> Session | None:
        """The session that the key is to lead to; None for none.

        Args:
            both: whom the key is given, and who gives it.
        """
        choose, (orphan, giver) = asked.choose, both
        ours = {orphan.id, tip.id}
        if wrong is not None and choose == wrong.id and choose not in ours:
            if wrong.hard_end:
                raise RepairRefused(
                    f"{wrong.id} ended for good ({wrong.end_reason}), so it cannot go on",
                    hint=f"choose {orphan.id}",
                )
            return wrong
        if choose is not None and choose not in ours:
            names = [orphan.id, *([wrong.id] if wrong is not None else [])]
            raise BadUsage(f"{choose} is none of the two that could go on", hint=f"one of {', '.join(names)}")
        if choose is None and wrong is not None and wrong.id not in ours:
            last_us = _latest(known, (orphan.id, tip.id))
            led = _led_on_purpose(known, wrong.id, orphan, giver)
            if led or _is_later(known, wrong.id, last_us):
                ids = (orphan.id, wrong.id)
                ways = tuple(asked.again(choose=each) for each in ids)
                raise TwoHistories(orphan.id, ids, ways, led=led)
        return None if tip.hard_end or not takes_messages(tip.source, tip.parent_kind) else tip

    def tip_of(self, state: Session) -> Session:
        """What a session goes on as, in the end."""
        seen = {state.id}
        while state.successor is not None and state.successor not in seen:
            seen.add(state.successor)
            following = self.known_session(state.successor)
            if following is None:
                break
            state = following
        return state

    def known_session(self, session_id: str | None) -> Session | None:
        """A session that may not be here, or not any more."""
        if session_id is None:
            return None
        try:
            return self.session(session_id)
        except NoSuchSession:
            return None

    # --- what changes --------------------------------------------------------------------------------

    def _retire_others(
        self, batch: Batch, orphan: Session, giver: Session, wrong: Session | None, goes_on: Session | None
    ) -> None:
        """Whoever gave the key, or had it by mistake, cannot win it again."""
        going = None if goes_on is None else goes_on.id
        if giver.id != going:
            batch.session(giver, retired(giver))
        if wrong is not None and wrong.id not in (going, giver.id, orphan.id):
            batch.session(wrong, put_aside(wrong))
        if wrong is not None and wrong.id == going != orphan.id:
            batch.session(orphan, put_aside(orphan))
        for each in {left.id: left for left in (giver, wrong, orphan) if left is not None}.values():
            if goes_on is not None and each.id != going:
                batch.queue(each, goes_on)

    def _lead_to_chosen(
        self,
        batch: Batch,
        known: World,
        led: Route,
        goes_on: Session | None,
        weighed: Iterable[Session | None],
        evidence: tuple[str, ...],
    ) -> str | None:
        """Lead the key; that a person left it where it is goes on record, too."""
        stream = route_stream(self.identity, led.key)
        if goes_on is None:
            batch.add(stream, led.version, led.close("repair"))
            return None
        going = goes_on.id
        seen: dict[str, RouteCandidate] = {}
        for each in weighed:
            if each is not None and each.id not in seen:
                last_us = known.sessions[each.id].last_active_us if each.id in known.sessions else None
                seen[each.id] = RouteCandidate(each.id, _verdict(each, going, led.session_id), last_us)
        batch.add(stream, led.version, led.settle(going, "repair", list(seen.values()), list(evidence)))
        return going


def _for_good(state: Session) -> str | None:
    return state.end_reason if state.hard_end else None


def _verdict(state: Session, going: str, led_to: str | None) -> str:
    if state.id == going:
        return "goes on"
    if state.id == led_to:
        return "the key led here"
    if state.successor is not None:
        return f"compressed; goes on as {state.successor}"
    return "gave its key" if state.key is not None else "adopted, and put aside"


def _latest(known: World, ids: Iterable[str]) -> int | None:
    times = [known.sessions[each].last_active_us for each in ids if each in known.sessions]
    return max((at for at in times if at is not None), default=None)


def _led_on_purpose(known: World, led_to: str, orphan: Session, giver: Session) -> bool:
    """Whether a person led the key where it leads, and not to what the session goes on from."""
    chats, facts = Chats(known), known.sessions.get(orphan.id)
    chosen = chats.chosen(giver.key)
    before = {giver.id, *(each.id for each in ([] if facts is None else chats.chain(facts)))}
    return chosen is not None and chosen.id == led_to and led_to not in before


def _is_later(known: World, session_id: str, last_us: int | None) -> bool:
    """Whether a session was written to after that time."""
    facts = known.sessions.get(session_id)
    if facts is None or facts.last_active_us is None:
        return False
    return last_us is None or facts.last_active_us > last_us
