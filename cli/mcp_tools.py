"""The tools of `retold mcp`: what an agent may ask of a home, and what the commands would answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..domain.errors import Ambiguous, BadUsage, ProjectionsBegunAnew, RetoldError
from ..domain.text import scrub
from ..infrastructure.mcp_server import Arguments, Tool
from ..infrastructure.reading import View, reading
from ..infrastructure.session_search import SessionSearch
from .stream import encode

if TYPE_CHECKING:
    Reply = Callable[[View, Arguments], dict[str, object]]

INSTRUCTIONS = (
    "What was said in earlier conversations of this user's agents, from a Retold home. Nothing here can be"
    " changed. Call session_search before you say that you do not remember."
)
MOST = 200
_TEXT: dict[str, Any] = {"type": "string"}
_AT: dict[str, Any] = {
    "type": "string",
    "description": "Answer as of a position (#120) or a time (ISO 8601, or 2d for two days ago).",
}


def tools(home: Path) -> list[Tool]:
    """All tools, on one home that the search tool keeps open."""
    return [_search_tool(home), *map(_strict, _others(home))]


def _others(home: Path) -> list[Tool]:
    return [
        Tool(
            name="list_sessions",
            description="List conversations by last activity. Call it when the user asks which conversations"
            " there are, of which source or project; to find one by what was said, call session_search.",
            parameters={
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "default": 20},
                "source": _TEXT | {"description": "Only this source: telegram, cli, cron, …"},
                "workspace": _TEXT | {"description": "Only where the project folder's path has this in it."},
                "everything": {
                    "type": "boolean",
                    "default": False,
                    "description": "Archived and children, too.",
                },
                "at": _AT,
            },
            call=_answering(home, _list),
        ),
        Tool(
            name="show_session",
            description="Show one session with its facts (state, lineage, route, what waits) and a page of"
            " its messages, the last 50 by default. Call it when you know the session's id or title.",
            parameters={
                "session": _TEXT | {"description": "An id, the beginning of one, or a title."},
                "first": {"type": "integer", "maximum": MOST, "description": "The first so many messages."},
                "last": {"type": "integer", "maximum": MOST, "description": "The last so many messages."},
                "after": {"type": "integer", "description": "Only messages after this id."},
                "before": {"type": "integer", "description": "Only messages before this id."},
                "at": _AT,
            },
            required=("session",),
            call=_answering(home, _show),
        ),
        Tool(
            name="why",
            description="Explain which session a chat leads to, and why, with the events that led it there."
            " Call it when a user says that a chat went back in time, lost its talk or answers from another"
            " one.",
            parameters={
                "chat": _TEXT
                | {"description": "A routing key or a part of one, a session's id, or a title."},
                "at": _AT,
            },
            required=("chat",),
            call=_answering(home, _why),
        ),
    ]


# --- session_search -------------------------------------------------------------------------------

_SEARCH = """\
Search what was said in past conversations, or read in one of them. It gives the messages themselves; no model
is asked.

Call it when the user speaks of something that is not in this conversation: "as we discussed", "last time",
"what did we do about X", "where did we leave Y"; and before you say that you do not remember, or ask for what
the user may have told before. It knows what was said then, not what is so now: look at a file, a page or an
account itself where you can.

- Find: `query`. Every word must be there; OR, NOT, "a phrase" and begin* work, all else is taken as it is
  typed. Each find is another conversation, with its best message (`match_message_id`, `snippet`), the
  messages around it and how the conversation began (`bookend_start`) and ended (`bookend_end`).
- Scroll: `session_id` and `around_message_id`: the messages around one. Go on from the last id of a window,
  or back from the first; fewer before or after than `window` is the beginning or the end.
- Read: `session_id`: the whole session, of a long one its first 20 and last 10 messages.
- Browse: without any of these, the conversations in use last.
"""
_SEARCH_PARAMETERS: dict[str, dict[str, Any]] = {
    "query": {"type": "string", "description": "What to find. Passed over where session_id is given."},
    "role_filter": {
        "type": "string",
        "description": "Whose messages, with commas: user,assistant by default; tool for results of tools.",
    },
    "limit": {
        "type": "integer",
        "default": 3,
        "minimum": 1,
        "maximum": 10,
        "description": "Conversations at most.",
    },
    "sort": {
        "type": "string",
        "enum": ["newest", "oldest"],
        "description": "By time: newest for where something was left, oldest for how it began.",
    },
    "session_id": {"type": "string", "description": "The session to read or to scroll in."},
    "around_message_id": {"type": "integer", "description": "The message to scroll around."},
    "window": {
        "type": "integer",
        "default": 5,
        "minimum": 1,
        "maximum": 20,
        "description": "Messages on each side when scrolling.",
    },
    "current_session_id": {
        "type": "string",
        "description": "The id of the conversation that you are in, where you know it: it is left out.",
    },
    "profile": {"type": "string", "description": "Leave it out; there are no profiles."},
    "detail": {"type": "string", "description": "Without effect: every find is whole."},
}


def _search_tool(home: Path) -> Tool:
    search = SessionSearch(home)

    def call(arguments: Arguments) -> tuple[str, bool]:
        try:
            _refuse_unknown(arguments, _SEARCH_PARAMETERS)
        except RetoldError as error:
            return _error(error)
        answer = search(**arguments)
        return answer, answer.startswith('{"error"')

    return Tool(name="session_search", description=_SEARCH, parameters=_SEARCH_PARAMETERS, call=call)


# --- the others: what the commands answer with --json -----------------------------------------------


def _answering(home: Path, reply: Reply) -> Callable[[Arguments], tuple[str, bool]]:
    """A tool that opens the home for each call; once more where it had to begin the projections anew."""

    def once(arguments: Arguments) -> tuple[str, bool]:
        with reading(home, _text(arguments, "at")) as view:
            answer = reply(view, arguments)
            if remarks := view.remarks():
                answer["remarks"] = remarks
            return encode(answer).decode(), False

    def call(arguments: Arguments) -> tuple[str, bool]:
        try:
            try:
                return once(arguments)
            except ProjectionsBegunAnew:
                return once(arguments)
        except RetoldError as error:
            return _error(error)

    return call


def _list(view: View, arguments: Arguments) -> dict[str, object]:
    from ..projections.listing import list_sessions
    from .sessions import summary

    listing = list_sessions(
        view.db,
        limit=_count(arguments, "limit", 20),
        source=_text(arguments, "source"),
        workspace=_text(arguments, "workspace"),
        everything=bool(arguments.get("everything")),
    )
    return {"sessions": [summary(each, view) for each in listing.rows], "not_shown": listing.not_shown}


def _show(view: View, arguments: Arguments) -> dict[str, object]:
    from ..projections.find import find_session
    from ..projections.sessions import messages, page
    from . import transcript
    from .sessions import summary

    session = _needed(arguments, "session")
    first, last = _count(arguments, "first", None), _count(arguments, "last", None)
    if first is not None and last is not None:
        raise BadUsage("first and last exclude each other", hint="give one of them")
    found = page(view.db, find_session(view.db, session))
    said = messages(
        view.db,
        found.line.id,
        first=first,
        last=50 if first is None and last is None else last,
        after=_number(arguments, "after"),
        before=_number(arguments, "before"),
    )
    fields = transcript.fields(summary(found.line, view), found)
    return fields | {"messages": [transcript.as_json(each) for each in said]}


def _why(view: View, arguments: Arguments) -> dict[str, object]:
    from .chats.answer import answer_for
    from .why import why_json

    return why_json(answer_for(view, _needed(arguments, "chat")))


# --- arguments and errors -------------------------------------------------------------------------


def _strict(tool: Tool) -> Tool:
    """A tool that names an argument which it has not."""

    def call(arguments: Arguments) -> tuple[str, bool]:
        try:
            _refuse_unknown(arguments, tool.parameters)
        except RetoldError as error:
            return _error(error)
        return tool.call(arguments)

    return replace(tool, call=call)


def _refuse_unknown(arguments: Arguments, known: Mapping[str, object]) -> None:
    unknown = [name for name in arguments if name not in known]
    if unknown:
        raise BadUsage(f"there is no argument '{unknown[0]}'", hint=f"there are: {', '.join(known)}")


def _text(arguments: Arguments, name: str) -> str | None:
    value = arguments.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str):
        raise BadUsage(f"{name} has to be a text")
    return scrub(value)[0]


def _needed(arguments: Arguments, name: str) -> str:
    value = _text(arguments, name)
    if value is None:
        raise BadUsage(f"{name} is missing")
    return value


def _number(arguments: Arguments, name: str) -> int | None:
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise BadUsage(f"{name} has to be a whole number, 0 or more")
    return value


def _count(arguments: Arguments, name: str, default: int | None) -> int | None:
    value = _number(arguments, name)
    return default if value is None else min(value, MOST)


def _error(error: RetoldError) -> tuple[str, bool]:
    told: dict[str, object] = {"error": error.message, "kind": error.kind, "hint": error.hint}
    if isinstance(error, Ambiguous):
        told["candidates"] = error.candidates
    return encode(told | {"success": False}).decode(), True
