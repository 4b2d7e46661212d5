"""What is said of a conversation that is gone on with: to a person, to a program, to a model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from ..domain.shell import shell_word
from .output import emit_json, plural, visible
from .stream import put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..domain.view import View
    from ..projections.base import Connection
    from ..projections.latest import Scope


class Chosen(msgspec.Struct, frozen=True):
    """The session that is gone on with, and what was done for that."""

    session_id: str
    asked: str
    """The session that was meant by the name."""
    scope: Scope | None = None
    branch_of: str | None = None
    was: str | None = None
    """How it had ended, where it was opened again."""
    positions: tuple[int, ...] = ()


class Facts(msgspec.Struct, frozen=True):
    """What there is to know of it."""

    title: str | None
    source: str
    archived: bool
    end_reason: str | None
    cwd: str | None
    key: str | None
    leads_to: str | None
    running: str | None


def facts_of(db: Connection, session_id: str) -> Facts:
    """What there is to know of a session for who goes on with it."""
    row = db.execute(
        "SELECT title, source, archived, end_reason, nullif(cwd, ''), session_key, running_turn,"
        " (SELECT session_id FROM routes WHERE key = session_key) FROM sessions WHERE id = ?",
        (session_id,),
    ).fetchone()
    title, source, archived, end_reason, cwd, key, running, leads_to = row
    return Facts(title, source, bool(archived), end_reason, cwd, key, leads_to, running)


# --- for a model ----------------------------------------------------------------------------------


def given(view: View | None, form: str | None) -> dict[str, Any]:
    """The fields of JSON that hold what a model should see; null where it was not asked for."""
    if view is None or form is None:
        return {"system": None, "messages": None}
    if form == "text":
        return {"system": None, "messages": list(text_lines(view)), "warnings": list(view.warnings)}
    from ..domain.view_formats import as_anthropic, as_openai

    request = as_openai(view) if form == "openai" else as_anthropic(view)
    return {
        "system": request.system,
        "messages": request.messages,
        "warnings": [*view.warnings, *request.warnings],
    }


def put_view(view: View, form: str) -> None:
    """The part of a request that holds the conversation, or the conversation as text."""
    if form == "text":
        for each in text_lines(view):
            put(each)
        return
    request = given(view, form)
    system = {} if request["system"] is None else {"system": request["system"]}
    emit_json({**system, "messages": request["messages"]})


def text_lines(view: View) -> Iterator[str]:
    """Who said what, a line of it a line, for agents that take a text."""
    from ..domain.view_formats import calls_of, text_of

    kinds = {"summary": " (a summary of what was said before)", "placeholder": " (nothing is on record)"}
    for each, said in zip(view.messages, view.for_model(), strict=True):
        name = f" {each.tool_name}" if each.tool_name else ""
        yield f"[{each.role}{name}{kinds.get(each.kind, '')}]"
        yield from text_of(said["content"]).splitlines()
        for call in calls_of(said, each.line.calls):
            yield f"-> {call.name}({call.arguments})"
        yield ""


# --- words ----------------------------------------------------------------------------------------


def fields(chosen: Chosen, facts: Facts) -> dict[str, Any]:
    return {
        "session_id": chosen.session_id,
        "asked": chosen.asked,
        "scope": chosen.scope,
        "title": facts.title,
        "source": facts.source,
        "end_reason": facts.end_reason,
        "branch_of": chosen.branch_of,
        "reopened_from": chosen.was,
        "positions": list(chosen.positions),
        "cwd": facts.cwd,
    }


def tell(chosen: Chosen, facts: Facts, *, err: bool) -> None:
    """Which one it is, where that was not said."""
    here = {
        "terminal": "the last session of this terminal",
        "workspace": f"the last session of {facts.cwd or 'this folder'}",
        "all": "the last session of any terminal; this folder has none",
        None: "",
    }[chosen.scope]
    if here:
        put(f"{here[0].upper()}{here[1:]}.", err=err)
    if chosen.session_id != chosen.asked and chosen.branch_of is None:
        put(
            f"Session {visible(chosen.asked)} was compressed into {visible(chosen.session_id)}; resuming the"
            " descendant with your transcript.",
            err=err,
        )


def counts(users: int | None, messages: int) -> str:
    total = f"{messages:,} total messages"
    return total if users is None else f"{plural(users, 'user message')}, {total}"


def remarks(chosen: Chosen, facts: Facts) -> Iterator[str]:
    back = f"This takes it back: retold undo {chosen.positions[-1]}" if chosen.positions else ""
    if chosen.branch_of is not None:
        yield f"A branch of {chosen.branch_of} as it stood then; that one stays as it is. {back}"
    elif chosen.was is not None:
        yield f"It had ended ({chosen.was}) and is open again. {back}"
    elif back:
        yield f"It was stopped and is open again. {back}"
    if facts.archived:
        yield f"It is archived, so lists hide it: retold sessions unarchive {shell_word(chosen.session_id)}"
    if facts.running is not None:
        yield f"A turn runs in it ({facts.running}): what is said now comes in between."
    if facts.key is not None and facts.leads_to != chosen.session_id:
        leads = "nowhere" if facts.leads_to is None else f"to {facts.leads_to}"
        yield f"Its chat, {facts.key}, leads {leads}; that is left as it is."


def place(where: str | None, there: str | None, *, runs: bool) -> Iterator[str]:
    """Where it works, if that is not here."""
    here = os.getcwd()
    if where is None or os.path.realpath(where) == os.path.realpath(here):
        return
    if there is None:
        yield f"⚠ session's recorded dir is gone ({where}); staying in {here}"
    elif runs:
        yield f"↪ restored workspace dir: {there}"
    else:
        yield f"↪ its workspace dir: cd {shell_word(there)}"
