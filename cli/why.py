"""`retold why` and `retold audit`: which session a chat leads to, and where that is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import at_option, home_option, json_option, with_home
from .output import emit_json, iso_us
from .stream import put, say

if TYPE_CHECKING:
    from ..domain.audit import Finding
    from ..domain.chats import Candidate
    from .chats.answer import Answer


@click.command()
@click.argument("chat")
@home_option
@at_option
@json_option
def why(chat: str, home: Path, at: str | None, as_json: bool) -> int:
    """Explain which session a chat leads to, and why.

    CHAT is a routing key or a unique part of one, a session id (or the beginning of one), or a title.
    Exits 1 where something is wrong with the chat.
    """
    from ..infrastructure.reading import reading
    from .chats.answer import answer_for

    with reading(home, at) as view:
        answer = answer_for(view, chat)
        say(view.remarks())
        if as_json:
            emit_json(why_json(answer))
        else:
            from .chats.text import lines

            put(*lines(view, answer, with_home(home)))
    return 1 if answer.findings else 0


@click.command()
@home_option
@at_option
@json_option
def audit(home: Path, at: str | None, as_json: bool) -> int:
    """Find every chat that leads to the wrong place.

    Exits 1 where something is found.
    """
    from ..domain.audit import audit as audit_world
    from ..infrastructure.reading import reading
    from ..projections.world import world

    with reading(home, at) as view:
        known = world(view.db)
        findings = audit_world(known)
        chats = len({*known.routes, *known.by_key})
        say(view.remarks())
        if as_json:
            emit_json({"findings": [finding_json(each) for each in findings], "chats": chats})
        else:
            from .chats.audit_text import lines

            put(*lines(known, findings, chats, now_us=view.now_us, home=with_home(home)))
    return 1 if findings else 0


def why_json(answer: Answer) -> dict[str, Any]:
    """An answer as the contract has it."""
    from .chats.timeline import named

    route = answer.route
    decision = None
    if route is not None:
        decision = {"position": route.position, "at": iso_us(route.at_us), "cause": route.cause}
    return {
        "key": answer.key,
        "session_id": answer.session_id,
        "decision": decision,
        "candidates": _candidates_json(answer.candidates),
        "timeline": [
            {
                "position": moment.position,
                "at": iso_us(moment.at_us),
                "session_id": moment.session_id,
                "text": named(moment.text, answer.names),
            }
            for moment in answer.told.moments
        ],
        "findings": [finding_json(each) for each in answer.findings],
        "undated_route": None if answer.undated is None else answer.undated.position,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding as the contract has it."""
    return {
        "kind": finding.kind,
        "key": finding.key,
        "session_id": finding.session_id,
        "detail": finding.detail,
        "evidence": list(finding.evidence),
        "candidates": _candidates_json(finding.candidates),
        "remedy": finding.remedy,
        "rivals": _candidates_json(finding.rivals),
    }


def _candidates_json(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    return [
        {
            "session_id": each.session_id,
            "verdict": each.verdict,
            "last_active_at": None if each.last_active_us is None else iso_us(each.last_active_us),
        }
        for each in candidates
    ]
