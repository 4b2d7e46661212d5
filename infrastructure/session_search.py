"""The search tool of an agent as a Python function: arguments as a model gives them, an answer in JSON."""

from __future__ import annotations

import json
import threading
from datetime import tzinfo
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ..domain.errors import FileReplaced, ProjectionDamaged, ProjectionsBegunAnew, RetoldError
from ..projections.search_tool import Answer, ToolArguments, answer, needs_index, refusal
from .blame import MET, blaming
from .config import load_config
from .foreign import refuse_no_folder
from .home import EVENTS, Home, default_home


class SessionSearch:
    """The search tool on a home that stays open: call it as often as you like, from any thread.

    It only reads. A home that was restored or told again meanwhile is opened again by itself.
    """

    def __init__(self, home: str | Path | None = None) -> None:
        self._path = default_home() if home is None else Path(home).expanduser()
        self._opened: Home | None = None
        self._log: tuple[int, int] | None = None
        self._zone: tzinfo | None = None
        self._lock = threading.Lock()

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
        with self._lock:
            try:
                return _json(self._answer(asked))
            except (ProjectionsBegunAnew, FileReplaced):
                self._close()
            except RetoldError as error:
                return _json(_told(error))
            try:
                return _json(self._answer(asked))
            except RetoldError as error:
                return _json(_told(error))

    def _answer(self, asked: ToolArguments) -> Answer:
        log = _inode(self._path / EVENTS)
        if log != self._log:  # another home was put in its place
            self._close()
        if self._opened is None:
            refuse_no_folder(self._path)
            self._zone = load_config(self._path).zone
            self._opened, self._log = Home(self._path, read_only=True), log
        opened = self._opened
        with blaming(opened.log, lambda: opened.projector, sure=(*MET, ProjectionDamaged)):
            opened.catch_up()
            if needs_index(asked):
                opened.projector.settle()
            return answer(opened.state.reader(), asked, zone=self._zone)

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def close(self) -> None:
        """Close the home; the next call opens it again."""
        with self._lock:
            self._close()

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


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _told(error: RetoldError) -> Answer:
    return refusal(f"{error.message}; {error.hint}" if error.hint else error.message)


def _json(found: Answer) -> str:
    """JSON as it stands; escaped where a text is none that UTF-8 can bear."""
    try:
        return msgspec.json.encode(found).decode()
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return json.dumps(found)
