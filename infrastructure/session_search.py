"""The search tool of an agent as a Python function: arguments as a model gives them, an answer in JSON."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ..domain.errors import RetoldError
from ..projections.base import Connection
from ..projections.search_tool import Answer, ToolArguments, answer, needs_index, refusal
from .home import default_home
from .standing import StandingHome


class SessionSearch:
    """The search tool on a home that stays open: call it as often as you like, from any thread.

    It only reads. A home that was restored or told again meanwhile is opened again by itself.
    """

    def __init__(self, home: str | Path | None = None) -> None:
        self._standing = StandingHome(default_home() if home is None else Path(home).expanduser())

    def __call__(
        self,
        query: object = "",
        role_filter: object = None,
        limit: object = 3,
        session_id: object = None,
        around_message_id: object = None,
        window: object = 5,
        sort: object = None,
        *,
        current_session_id: object = None,
        profile: object = None,
        detail: object = None,
    ) -> str:
        """Search past sessions, scroll in one, read one, or list the latest (REFERENCE.md 6).

        Never raises for what it is asked: the answer is a JSON object, `{"error", "success": false}` where
        it cannot be given.

        Args:
            query: what to find; blank lists the sessions in use last.
            role_filter: roles, separated by commas; user and assistant by default.
            limit: sessions at most: 3 by default, 1 to 10.
            session_id: the session to read, or to scroll in around `around_message_id`.
            window: messages on each side when scrolling: 5 by default, 1 to 20.
            sort: "newest" or "oldest"; else what fits best comes first.
            current_session_id: the session that asks, whose lineage is left out.
            profile: refused where it is not part of a link to a session: a home has no profiles.
            detail: without effect: every find is whole.
        """
        asked = ToolArguments(
            query=query,
            role_filter=role_filter,
            limit=limit,
            session_id=session_id,
            around_message_id=around_message_id,
            window=window,
            sort=sort,
            current_session_id=current_session_id,
            profile=profile,
            detail=detail,
        )
        try:
            return _json(self._standing.ask(partial(self._answer, asked), settle=needs_index(asked)))
        except RetoldError as error:
            return _json(_told(error))

    def _answer(self, asked: ToolArguments, db: Connection) -> Answer:
        return answer(db, asked, zone=self._standing.zone)

    def close(self) -> None:
        """Close the home; the next call opens it again."""
        self._standing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def session_search(
    query: object = "",
    role_filter: object = None,
    limit: object = 3,
    session_id: object = None,
    around_message_id: object = None,
    window: object = 5,
    sort: object = None,
    *,
    home: str | Path | None = None,
    **more: Any,
) -> str:
    """`SessionSearch` for one call, on `home` (else `RETOLD_HOME`, else ~/.retold).

    Args:
        more: `current_session_id`, `profile`, `detail`.
    """
    with SessionSearch(home) as tool:
        return tool(query, role_filter, limit, session_id, around_message_id, window, sort, **more)


def _told(error: RetoldError) -> Answer:
    return refusal(f"{error.message}; {error.hint}" if error.hint else error.message)


def _json(found: Answer) -> str:
    """JSON as it stands; escaped where a text is none that UTF-8 can bear."""
    try:
        return msgspec.json.encode(found).decode()
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return json.dumps(found)
