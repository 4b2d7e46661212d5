"""Findings in plain words, with the times that people go by."""

from __future__ import annotations

from typing import Any

from ...domain.audit import Finding
from ...domain.facts import World
from ..paragraphs import day, day_and_clock


def headline(kind: str) -> str:
    """ "JUMPED BACK"."""
    return kind.replace("_", " ").upper()


def verdict(finding: Finding, world: World, now_us: int) -> str:
    """What a finding means for whoever writes in the chat."""
    words = _WORDS.get(finding.kind)
    return f"{headline(finding.kind)}: {words(finding, world, now_us) if words else finding.detail}"


def _jumped_back(finding: Finding, world: World, now_us: int) -> str:
    facts: dict[str, Any] = finding.facts
    owner = world.sessions[facts["belongs_to"]]
    before_us = facts.get("leads_to_last_us") or world.sessions[facts["leads_to"]].started_us
    old, new = day(before_us, now_us), day(facts["belongs_last_us"], now_us)
    if old == new:
        old, new = day_and_clock(before_us, now_us), day_and_clock(facts["belongs_last_us"], now_us)
    lost = "has lost its key" if owner.key is None else "was passed over"
    if "second_history_us" in facts:
        again = day_and_clock(facts["second_history_us"], now_us)
        return (
            f"the chat went back to a talk last used on {old}; the one you were having, last used on {new},"
            f" {lost}. Since {again} the old one has been written to again: there are two histories."
        )
    return (
        f"the next message would reopen a talk last used on {old}; the one you were having, last used on"
        f" {new}, {lost}."
    )


def _reset_undone(finding: Finding, world: World, now_us: int) -> str:
    facts: dict[str, Any] = finding.facts
    target = world.sessions[facts["leads_to"]]
    used = day(target.last_active_us or target.started_us, now_us)
    return (
        f"the chat was reset on {day(facts['reset_us'], now_us)}, and yet leads to a talk from before that,"
        f" last used on {used}; the next message would bring it back."
    )


def _routed_to_ended(finding: Finding, world: World, now_us: int) -> str:
    target = world.sessions[str(finding.facts["leads_to"])]
    return (
        f"the chat leads to a talk that ended for good on {day(target.ended_us, now_us)}"
        f" ({target.end_reason}); a message must begin a new one, not reopen it."
    )


def _dangling_route(finding: Finding, world: World, now_us: int) -> str:
    facts: dict[str, Any] = finding.facts
    gone = "is gone from the store it came from" if facts["leads_to"] in world.sessions else "does not exist"
    text = f"the chat leads to {facts['leads_to']}, which {gone}."
    known = world.sessions.get(facts.get("last_known", ""))
    if known is not None:
        text += (
            f" The last talk known of it was used on {day(known.last_active_us or known.started_us, now_us)}."
        )
    return text


def _two_continuations(finding: Finding, world: World, now_us: int) -> str:
    facts: dict[str, Any] = finding.facts
    recent = world.sessions[facts["most_recent"]]
    text = (
        f"one talk was compressed and goes on in {len(finding.candidates)} others; {recent.id} was used last,"
        f" on {day_and_clock(recent.last_active_us or recent.started_us, now_us)}"
    )
    leads_to = facts.get("leads_to")
    if leads_to is None:
        return f"{text}."
    return f"{text}, and the chat leads to {'it' if leads_to == recent.id else leads_to}."


def _stranded(finding: Finding, world: World, now_us: int) -> str:
    session = world.sessions[finding.session_id or ""]
    used = day(session.last_active_us or session.started_us, now_us)
    rest = finding.detail.removeprefix(f"{session.id} has messages but no key to be found by.").strip()
    return f"{session.id}, last used on {used}, has no key, so no chat can find it. {rest}"


_WORDS = {
    "jumped_back": _jumped_back,
    "reset_undone": _reset_undone,
    "routed_to_ended": _routed_to_ended,
    "dangling_route": _dangling_route,
    "two_continuations": _two_continuations,
    "stranded": _stranded,
}
