"""Why a chat leads where it leads, as far as it is on record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...domain import events as e
from ...domain.facts import RouteFacts
from ...infrastructure.happened import UndatedRoute
from ..paragraphs import day_and_clock
from .answer import Answer

_SAID = {
    "first_message": "the chat's first message began it",
    "reset": "a reset of the chat began it",
    "idle": "the chat had been idle for too long, so a new session began",
    "daily": "the daily reset was due, so a new session began",
    "suspended": "the session before had been stopped, so a new one began",
    "resume_expired": "a restart had cut the session before off, for too long to go on with it",
    "delete": "the session before was deleted",
    "undo": "an undo led it here again",
    "compression": "the session before it was compressed, and goes on here",
    "resume": "somebody in the chat went back to it with /resume",
    "branch": "somebody in the chat branched it off",
    "handoff": "it was handed over to this chat",
    "recovery": "the chat had lost its way, and a recovery chose this session",
    "repair": "a repair led the chat here",
}
_CLOSED = {
    "idle": "the chat had been idle for too long; its next message begins a new session",
    "daily": "the daily reset was due; the chat's next message begins a new session",
    "delete": "the session that the chat led to was deleted; its next message begins a new one",
    "repair": "a repair let the chat lead nowhere; its next message begins a new session",
    "undo": "an undo let the chat lead nowhere, as it had before; its next message begins a new session",
}
_FOLLOWS = ("compression",)


def because(answer: Answer, names: Mapping[str, str], now_us: int) -> Iterator[str]:
    """The decision that holds, and the one behind it where it only followed a compression."""
    if answer.key is None or answer.route is None:
        if answer.key is not None:
            history = answer.world.routes.get(answer.key)
            if answer.undated is not None:
                yield _found_later(answer.undated, now_us)
            elif history:
                closed = history[-1]
                why = _CLOSED.get(closed.cause, "the key was closed")
                yield f"{why} (#{closed.position}, {day_and_clock(closed.at_us, now_us)})."
            else:
                yield "no routing table that was imported names this key, and no decision here does."
        return
    for route in reversed(answer.world.routes[answer.key]):
        if route.closed:
            return
        said = list(_decision(answer, route, names, now_us))
        yield from said if route is answer.route else (f"Before that: {said[0]}", *said[1:])
        if route.cause not in _FOLLOWS:
            return


def _decision(answer: Answer, route: RouteFacts, names: Mapping[str, str], now_us: int) -> Iterator[str]:
    where = f"(#{route.position}, {day_and_clock(route.at_us, now_us)})"
    if route.cause == "import":
        yield _imported(answer, route, names, now_us)
        return
    said = _SAID.get(route.cause, f"it was decided: {route.cause}")
    moved = ""
    if route.previous_id == route.session_id:
        said = "a person said that the chat goes on here"
    elif route.previous_id is not None and route.cause in (
        "recovery",
        "resume",
        "branch",
        "handoff",
        "repair",
    ):
        moved = f"; until then it led to {names.get(route.previous_id, route.previous_id)}"
    yield f"{said} {where}{moved}."
    event = answer.told.routes.get(route.position)
    if event is None or not isinstance(event.payload, e.SessionRerouted):
        return
    for candidate in event.payload.candidates:
        name = names.get(candidate.session_id, candidate.session_id)
        used = day_and_clock(candidate.last_active_us, now_us)
        yield f"It weighed {name} (last used {used}): {candidate.verdict}."
    if event.payload.evidence:
        yield f"It went by: {'; '.join(event.payload.evidence)}."


def _found_later(route: UndatedRoute, now_us: int) -> str:
    """Of a time at which nobody can say where the key led."""
    by = f"an import found the key's route later (#{route.position}, {day_and_clock(route.found_us, now_us)})"
    if route.touched_us is None:
        return f"{by}; since when it stood so is not on record."
    touched = day_and_clock(route.touched_us, now_us)
    return f"{by}, last touched {touched} by its own words; where it led before that is not on record."


def _imported(answer: Answer, route: RouteFacts, names: Mapping[str, str], now_us: int) -> str:
    """An import records a route as it stood: who moved the entry, and when, it cannot know."""
    by = f"#{route.position}"
    if route.previous_id is None:
        text = f"Hermes' routing table said so at import ({by})."
    else:
        before = names.get(route.previous_id, route.previous_id)
        text = f"Hermes' routing table led to {before} before; an import found it moved here ({by})."
    text += " Who moved the entry, and when, is not on record"
    if any(finding.kind == "jumped_back" for finding in answer.findings):
        text += "; no reset or /resume is either"
    if route.entry_updated_us is not None:
        text += f". It was last touched {day_and_clock(route.entry_updated_us, now_us)} by its own words"
    return text + "."
