"""What is wrong with the chats of a store, and why each key leads where it leads.

One function a kind of finding (DESIGN.md, "Asking why"). The three that need to know which sessions
make up one conversation ask `Chats`. Nothing here is inferred from "is not the most recent" alone:
a key that moved forward, and a person's own reset, /resume or handoff, are sound.

Over 400 lines because it is one catalogue: a rule a kind of finding, each beside the remedy that it names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from .chats import CHOSEN_CAUSES, Candidate, Chats, Lead, evidence_of
from .ends import SWITCH, is_hard, is_reset
from .facts import ConflictFacts, RouteFacts, SessionFacts, World
from .findings import Finding as Finding
from .findings import Kind as Kind
from .findings import concerns as concerns
from .keys import canonical_whatsapp
from .recovery import takes_messages
from .repair import CONTESTED, Donors, Record, adopted_from, last_seen_us
from .shell import shell_word

_RESETS: Final = frozenset({"reset", "idle", "daily", "suspended", "resume_expired", "new_session"})
"""Causes of a route by which a chat began anew."""


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a key leads where it leads.

    Attributes:
        route: the decision, None where the key leads nowhere.
        sessions: the ids of the conversation, oldest first.
    """

    key: str
    route: RouteFacts | None
    candidates: tuple[Candidate, ...]
    findings: tuple[Finding, ...]
    sessions: tuple[str, ...]


def audit(world: World) -> list[Finding]:
    """Every finding of the store, each once, jumps first."""
    return _audit(Chats(world))


def _audit(chats: Chats) -> list[Finding]:
    return [
        *jumped_back(chats),
        *reset_undone(chats),
        *routed_to_ended(chats),
        *dangling_route(chats),
        *two_continuations(chats),
        *crossed_key(chats),
        *identity_lost(chats),
        *stranded(chats),
        *source_conflict(chats),
    ]


def explain(world: World, key: str) -> Explanation:
    """The decision, the candidates and the findings of one key."""
    chats = Chats(world)
    route = world.route_of(key)
    members = list(chats.members(key))
    claimants = [
        world.sessions[record.orphan_id]
        for record in chats.records.values()
        if any(world.sessions[donor].key == key for donor in record.donor_ids)
    ]
    known = {session.id: session for session in (*members, *claimants)}
    if route is not None and route.session_id in world.sessions:
        known.setdefault(route.session_id, world.sessions[route.session_id])
    ordered = sorted(known.values(), key=lambda s: (s.started_us, s.id))
    findings = tuple(finding for finding in _audit(chats) if finding.key == key or concerns(finding, known))
    return Explanation(
        key=key,
        route=route,
        candidates=tuple(chats.candidate(session, key) for session in ordered),
        findings=findings,
        sessions=tuple(session.id for session in ordered),
    )


def jumped_back(chats: Chats) -> Iterator[Finding]:
    """A key came to lead to a session while another of its conversation had later activity."""
    for lead in chats.leads:
        rivals = lead.rivals()
        if not rivals:
            continue
        last_us, owner = rivals[0]
        target = lead.target
        before_us = lead.active_before(last_us)
        facts: dict[str, str | int] = {
            "leads_to": target.id,
            "belongs_to": owner.id,
            "belongs_last_us": last_us,
            "cause": lead.came.cause,
            "passed_over": len(rivals),
        }
        if before_us is not None:
            facts["leads_to_last_us"] = before_us
        detail = (
            f"The key leads to {target.id}, while {owner.id} of the same conversation was in use"
            " later; no reset, resume or handoff is on record that explains it."
        )
        after_us = chats.world.activity.first_after(target.id, last_us)
        if after_us is not None:
            facts |= {"second_history": 1, "second_history_us": after_us}
            detail += f" {target.id} has been written to since, so the chat has two histories."
        passed = {session.id: session for _, session in rivals[:_MOST_NAMED]}
        for session in chats.chain(owner):
            passed.setdefault(session.id, session)
        yield Finding(
            kind="jumped_back",
            key=lead.key,
            session_id=owner.id,
            detail=detail,
            evidence=evidence_of(target, *passed.values(), routes=(lead.came, lead.route)),
            candidates=tuple(chats.candidate(s, lead.key) for s in {**passed, target.id: target}.values()),
            remedy=_back_to(chats, lead.key, owner, target, undecided=after_us is not None),
            facts=facts,
        )


def reset_undone(chats: Chats) -> Iterator[Finding]:
    """A key leads to a session that was last in use before a reset of the same key."""
    for lead in chats.leads:
        if lead.came.cause in CHOSEN_CAUSES:
            continue
        target = lead.target
        undone = []
        for at_us, fence in lead.boundaries:
            if not is_reset(fence.end_reason) or target.started_us >= at_us:
                continue
            if any(left_us >= at_us and s.end_reason == SWITCH for left_us, s in lead.boundaries):
                continue
            fence_us = chats.world.activity.last_before(fence.id, at_us)
            ours_us = lead.active_before(at_us)
            if (target.started_us if ours_us is None else ours_us) < (fence_us or fence.started_us):
                undone.append((at_us, fence))
        left = None if undone else _left_by_reset(lead)
        if left is not None:
            begun = chats.world.sessions.get(left.session_id)
            passed = (target,) if begun is None else (begun, target)
            yield Finding(
                kind="reset_undone",
                key=lead.key,
                session_id=target.id,
                detail=f"The key leads to {target.id}, which a reset of this chat had left"
                f" for {left.session_id}.",
                evidence=evidence_of(target, *passed[:-1], routes=(left, lead.came, lead.route)),
                candidates=tuple(chats.candidate(each, lead.key) for each in passed),
                remedy=_onward(chats, lead.key, target, left.at_us),
                facts={"leads_to": target.id, "fence": target.id, "reset_us": left.at_us},
            )
        if undone:
            at_us, fence = max(undone, key=lambda pair: (pair[0], pair[1].id))
            weighed = {session.id: session for _, session in undone} | {target.id: target}
            yield Finding(
                kind="reset_undone",
                key=lead.key,
                session_id=target.id,
                detail=f"The key leads to {target.id}, which was last in use before the reset that"
                f" ended {fence.id} ({fence.end_reason}) in the same chat.",
                evidence=evidence_of(target, fence, routes=(lead.came, lead.route)),
                candidates=tuple(chats.candidate(s, lead.key) for s in weighed.values()),
                remedy=_onward(chats, lead.key, target, at_us),
                facts={"leads_to": target.id, "fence": fence.id, "reset_us": at_us},
            )


def _left_by_reset(lead: Lead) -> RouteFacts | None:
    """The reset that led the key away from where it leads again, though the session was opened since."""
    behind = {session.id for session in lead.behind}
    for route in reversed(lead.world.standing_routes(lead.key)):
        if route.position < lead.came.position and route.cause in _RESETS and route.previous_id in behind:
            return route
    return None


def routed_to_ended(chats: Chats) -> Iterator[Finding]:
    """A key leads to a session that ended hard.

    It came to lead there after the end, or an import says so. Where a session ends for good here, its
    key stays, and the chat's next message begins a new one by rule: that is no fault (FIELD_CASES A1).
    """
    for lead in chats.leads:
        target = lead.target
        if is_hard(target.end_reason) and not _ended_since(lead):
            others = [s for s in chats.members(lead.key) if s.id != target.id]
            yield Finding(
                kind="routed_to_ended",
                key=lead.key,
                session_id=target.id,
                detail=f"The key leads to {target.id}, which ended for good ({target.end_reason}).",
                evidence=evidence_of(target, routes=(lead.came, lead.route)),
                candidates=tuple(chats.candidate(s, lead.key) for s in (target, *others)),
                remedy=_onward(chats, lead.key, target, target.ended_us or target.started_us),
                facts={"leads_to": target.id, "ended_us": target.ended_us or 0},
            )


def _ended_since(lead: Lead) -> bool:
    """Whether the session ended after the key was led to it by a decision here."""
    ended = lead.target.ended_position
    return lead.route.cause != "import" and ended is not None and ended > lead.route.position


def dangling_route(chats: Chats) -> Iterator[Finding]:
    """A key leads to a session that does not exist."""
    for key in chats.world.routes:
        route = chats.world.route_of(key)
        if route is None:
            continue
        target = chats.world.sessions.get(route.session_id)
        if target is not None and not target.source_gone:
            continue
        known = sorted(
            (s for s in chats.members(key) if s.id != route.session_id),
            key=lambda s: (s.last_active_us or s.started_us, s.id),
            reverse=True,
        )
        what = "does not exist" if target is None else "is gone from the store it came from"
        last = f" The chat's last known session is {known[0].id}." if known else ""
        facts: dict[str, str | int] = {"leads_to": route.session_id}
        yield Finding(
            kind="dangling_route",
            key=key,
            session_id=route.session_id,
            detail=f"The key leads to {route.session_id}, which {what}.{last}",
            evidence=evidence_of(*known[:1], routes=(route,)),
            candidates=tuple(chats.candidate(session, key) for session in known),
            remedy=_lead(key, known[0]) if known and _takes(chats, known[0]) else _unroute(key),
            facts=facts | ({"last_known": known[0].id} if known else {}),
        )


def two_continuations(chats: Chats) -> Iterator[Finding]:
    """A compressed session goes on in more than one other."""
    for parent in chats.world.in_order:
        twins = chats.world.children(parent.id, "continuation")
        if len(twins) < 2:
            continue
        key = chats.key_of(parent) or next((twin.bears for twin in twins if twin.bears), None)
        recent = max(twins, key=lambda s: (not is_hard(s.end_reason), s.last_active_us or s.started_us, s.id))
        route = None if key is None else chats.world.route_of(key)
        leads = f" The key leads to {route.session_id}." if route else ""
        facts: dict[str, str | int] = {"parent": parent.id, "most_recent": recent.id}
        yield Finding(
            kind="two_continuations",
            key=key,
            session_id=parent.id,
            detail=f"{parent.id} is continued by {len(twins)} sessions:"
            f" {', '.join(twin.id for twin in twins)}; {recent.id} was in use last.{leads}",
            evidence=evidence_of(parent, *twins, routes=(route,) if route else ()),
            candidates=tuple(chats.candidate(twin, key) for twin in twins),
            remedy=f"retold sessions continuation {shell_word(recent.id)}",
            facts=facts | ({"leads_to": route.session_id} if route else {}),
        )


def crossed_key(chats: Chats) -> Iterator[Finding]:
    """A continuation bears another key, chat or user than the session it continues."""
    for child in chats.world.in_order:
        parent = chats.world.sessions.get(child.parent_id or "")
        if parent is None or child.parent_kind != "continuation":
            continue
        differing = [
            f"{name} {theirs} instead of {ours}"
            for name, ours, theirs in _identities(parent, child)
            if ours and theirs and ours != theirs
        ]
        if differing:
            yield Finding(
                kind="crossed_key",
                key=child.key or parent.key,
                session_id=child.id,
                detail=f"{child.id} continues {parent.id} but bears {', '.join(differing)}.",
                evidence=evidence_of(parent, child),
                candidates=tuple(chats.candidate(s) for s in (parent, child)),
                remedy=_restore(child.id),
                facts={"parent": parent.id},
            )


def _identities(parent: SessionFacts, child: SessionFacts) -> Iterator[tuple[str, str | None, str | None]]:
    yield "key", parent.bears, child.bears
    same_key = parent.bears is not None and parent.bears == child.bears
    names = (("chat", parent.chat_id, child.chat_id), ("user", parent.user_id, child.user_id))
    for name, ours, theirs in names:
        if same_key and name == "user" and "dm" not in (parent.chat_type, child.chat_type):
            continue  # a room or thread that its people share: whoever spoke
        if same_key and "whatsapp" in (parent.source, child.source):
            ours, theirs = canonical_whatsapp(ours), canonical_whatsapp(theirs)
        yield name, ours, theirs


def identity_lost(chats: Chats) -> Iterator[Finding]:
    """A session had a key and lost it."""
    for session in chats.world.in_order:
        if session.lost_key is not None and session.key is None:
            yield Finding(
                kind="identity_lost",
                key=session.lost_key,
                session_id=session.id,
                detail=f"{session.id} bore the key {session.lost_key} and has lost it.",
                evidence=evidence_of(session),
                candidates=(chats.candidate(session, session.lost_key),),
                remedy=_given_back(chats, session),
            )


def stranded(chats: Chats) -> Iterator[Finding]:
    """A session with messages and no key, of a source whose sessions have keys here."""
    donors = Donors(chats.world)
    claims: dict[str | None, list[Record]] = {}
    for record in chats.records.values():
        claims.setdefault(record.donor_id, []).append(record)
    for record in chats.records.values():
        orphan = chats.world.sessions[record.orphan_id]
        if orphan.source_gone:
            continue
        named = [chats.world.sessions[donor_id] for donor_id in record.donor_ids]
        facts: dict[str, str | int] = {"claims": len(named)}
        remedy = _adopt_for(chats, orphan, [each.key for each in named], "--from SESSION")
        key = None
        outside: list[Candidate] = []
        rivals: list[SessionFacts] = []
        if record.adoptable and record.donor_id is not None:
            key = record.session_key
            remedy = _adopt_for(chats, orphan, [key])
            detail = f"Only {record.donor_id} can be what it goes on from ({record.evidence})."
            facts["evidence"] = record.evidence
        elif record.reason == CONTESTED:
            claimants = [chats.world.sessions[each.orphan_id] for each in claims[record.donor_id]]
            claimants += adopted_from(chats.world, record.donor_id)
            rivals = [each for each in claimants if each.id != orphan.id][:_MOST_NAMED]
            others = rivals[0].id if len(claimants) == 2 else f"{len(claimants) - 1} others"
            detail = f"It could go on from {record.donor_id}, and so could {others}."
        elif named:
            detail = f"It could go on from any of {', '.join(s.id for s in named)}."
        elif orphan.parent_id:
            ancestor = next((s for s in chats.chain(orphan)[1:] if s.bears is not None), None)
            detail = f"Its parent {orphan.parent_id} has no key of this source to give."
            if ancestor is not None:
                key = ancestor.bears
                named = [ancestor]
                if ancestor.key is None:  # it lost it, so nothing can be adopted from it yet
                    detail += f" Further up, {ancestor.id} bore one: give it back first."
                    remedy = _restore(ancestor.id)
                else:
                    detail += f" Further up, {ancestor.id} bears one: adopt its parent first."
                    chain = chats.chain(orphan)
                    first = chain[chain.index(ancestor) - 1]
                    remedy = _adopt_for(chats, first, [key])
        else:
            detail = "No session with a key fell quiet when it began."
            nearest = donors.last_before(orphan)
            if nearest is not None:
                apart_us = orphan.started_us - last_seen_us(nearest)
                detail += f" The last one before it is {nearest.id}."
                facts |= {"last_keyed": nearest.id, "apart_us": apart_us}
                needed_s = math.ceil(apart_us / 1_000_000)
                how = f"fell quiet {needed_s} s before it began; outside the window"
                outside = [Candidate(nearest.id, how, nearest.last_active_us)]
                if [donor.id for donor in donors.within(orphan, needed_s)] == [nearest.id]:
                    remedy = _adopt_for(chats, orphan, [nearest.key], f"--max-gap-seconds {needed_s}")
        if orphan.lost_key is not None:
            remedy = _given_back(chats, orphan)
        givers = [*named, *(each for each in rivals if each.key is not None)]
        yield Finding(
            kind="stranded",
            key=key,
            session_id=orphan.id,
            detail=f"{orphan.id} has messages but no key to be found by. {detail}",
            evidence=evidence_of(orphan, *named),
            candidates=(*(chats.candidate(each, each.key) for each in givers), *outside),
            rivals=tuple(chats.candidate(each) for each in rivals if each.key is None),
            remedy=remedy,
            facts=facts,
        )


def source_conflict(chats: Chats) -> Iterator[Finding]:
    """The source changed what was also changed here."""
    grouped: dict[tuple[str | None, str | None], list[ConflictFacts]] = {}
    for conflict in chats.world.conflicts:
        grouped.setdefault((conflict.session_id, conflict.key), []).append(conflict)
    for (session_id, key), conflicts in grouped.items():
        columns = ", ".join(dict.fromkeys(conflict.column for conflict in conflicts))
        what = session_id or key or "the store"
        facts: dict[str, str | int] = {}
        for conflict in conflicts:
            facts[f"ours_{conflict.column}"] = conflict.ours or ""
            facts[f"theirs_{conflict.column}"] = conflict.theirs or ""
        yield Finding(
            kind="source_conflict",
            key=key,
            session_id=session_id,
            detail=f"The source changed {columns} of {what}, as was done here too; ours stays.",
            evidence=tuple(sorted({conflict.position for conflict in conflicts})),
            remedy=f"retold sessions resolve-conflict {conflicts[0].position} --keep ours",
            facts=facts,
        )


_MOST_NAMED: Final = 20  # a chat may hold thousands of sessions that nobody ended


# --- remedies: commands that exist --------------------------------------------------------------------


def _back_to(chats: Chats, key: str, owner: SessionFacts, target: SessionFacts, *, undecided: bool) -> str:
    """Lead the key back to the session that the chat belongs to; where there are two, a person says which."""
    record = chats.records.get(owner.id)
    if record is not None and record.adoptable and record.session_key == key:
        return _adopt(owner.id, "--choose SESSION" if undecided else "")
    tip = _goes_on_as(chats, owner)
    if undecided or tip.id == target.id:
        return f"retold sessions route {shell_word(key)} SESSION"
    return _lead(key, tip)


def _onward(chats: Chats, key: str, target: SessionFacts, after_us: int) -> str:
    """Lead the key on to what the chat began since, or nowhere, so that its next message begins anew."""
    since = [
        session
        for session in chats.members(key)
        if session.id != target.id and session.started_us >= after_us and _takes(chats, session)
    ]
    latest = max(since, key=lambda s: (s.last_active_us or s.started_us, s.id), default=None)
    return _unroute(key) if latest is None else _lead(key, latest)


def _takes(chats: Chats, session: SessionFacts) -> bool:
    """Whether the next message of a chat may go there, without a person having opened it again."""
    return (
        takes_messages(session.source, session.parent_kind)
        and not session.source_gone
        and not is_hard(session.end_reason)
        and not chats.world.children(session.id, "continuation")
    )


def went_on(chats: Chats, key: str | None, orphan: SessionFacts) -> SessionFacts | None:
    """What the key leads to, where that was written to after the session that lost it, or a person led it
    there; else None."""
    route = None if key is None else chats.world.route_of(key)
    target = None if route is None else chats.world.sessions.get(route.session_id)
    if target is None or orphan in chats.chain(target):
        return None
    if target not in chats.chain(orphan) and target == chats.chosen(key):
        return target
    if target.last_active_us is None:
        return None
    own = (orphan, _goes_on_as(chats, orphan))
    last_us = max((s.last_active_us for s in own if s.last_active_us is not None), default=None)
    later = target not in own and (last_us is None or target.last_active_us > last_us)
    return target if later else None


def _goes_on_as(chats: Chats, session: SessionFacts) -> SessionFacts:
    """The end of the chain of continuations, where each has one."""
    seen = {session.id}
    while len(following := chats.world.children(session.id, "continuation")) == 1:
        if following[0].id in seen:
            break
        session = following[0]
        seen.add(session.id)
    return session


def _adopt(session_id: str, how: str) -> str:
    return " ".join(filter(None, ("retold sessions repair-routing --apply", shell_word(session_id), how)))


def _adopt_for(chats: Chats, orphan: SessionFacts, keys: Iterable[str | None], how: str = "") -> str:
    """Give a session one of these keys; where the chat went on elsewhere, a person says which goes on."""
    elsewhere = any(went_on(chats, key, orphan) for key in keys)
    return _adopt(orphan.id, " ".join(filter(None, (how, "--choose SESSION" if elsewhere else ""))))


def _lead(key: str, session: SessionFacts) -> str:
    return f"retold sessions route {shell_word(key)} {shell_word(session.id)}"


def _unroute(key: str) -> str:
    return f"retold sessions unroute {shell_word(key)}"


def _given_back(chats: Chats, session: SessionFacts) -> str:
    """Give a session the key that it lost: where its chat jumped back from it, by what mends that, too."""
    record = chats.records.get(session.id)
    if record is not None and record.adoptable and record.session_key == session.lost_key:
        for lead in (each for each in chats.leads if each.key == session.lost_key):
            for last_us, owner in lead.rivals()[:1]:
                if owner.id == session.id:
                    again_us = chats.world.activity.first_after(lead.target.id, last_us)
                    return _back_to(chats, lead.key, owner, lead.target, undecided=again_us is not None)
    return _restore(session.id)


def _restore(session_id: str) -> str:
    return f"retold sessions restore-identity {shell_word(session_id)}"
