"""A session's own state and what may be decided on it. Never its messages: appending stays O(1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from . import events as e
from .ends import is_hard
from .errors import BadUsage, RuleBroken, SessionOver
from .text import is_blank, scrub


class Session(msgspec.Struct, frozen=True):
    """What a decision needs to know. `version` counts every event of the stream, messages too."""

    id: str
    version: int
    source: str
    key: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    display_name: str | None = None
    origin_json: str | None = None
    model: str | None = None
    profile_name: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    git_repo_root: str | None = None
    title: str | None = None
    end_reason: str | None = None
    hard_end: bool = False
    successor: str | None = None
    archived: bool = False

    @property
    def ended(self) -> bool:
        """Whether an end stands, hard or soft."""
        return self.end_reason is not None or self.successor is not None

    # --- commands: each returns what would have happened, or refuses --------------------------------

    def append_message(
        self,
        role: str,
        content: str | None,
        *,
        tool_calls: str | None = None,
        tool_name: str | None = None,
        tool_call_id: str | None = None,
        platform_message_id: str | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        token_count: int | None = None,
    ) -> e.MessageAppended:
        """Record one message. Lone surrogates become U+FFFD, and the event says so.

        Raises:
            SessionOver: it ended hard, or a continuation took over; the error names it.
            RuleBroken: blank content and no tool calls, or a role without a name.
            BadUsage: content, or another text, that is none.
        """
        texts = {
            "role": role,
            "content": content,
            "tool_calls": tool_calls,
            "tool_name": tool_name,
            "tool_call_id": tool_call_id,
            "platform_message_id": platform_message_id,
            "finish_reason": finish_reason,
            "reasoning": reasoning,
        }
        _refuse_no_text(f"session {self.id}", texts)
        if self.successor is not None or self.hard_end:
            raise SessionOver(self.id, successor=self.successor)
        if is_blank(role):
            raise RuleBroken(
                f"session {self.id}: a message needs a role", hint="user, assistant, tool or system"
            )
        if is_blank(content) and not tool_calls and role != "tool":
            raise RuleBroken(
                f"session {self.id}: a message needs content or tool calls", hint="nothing was written"
            )
        clean, scrubbed = _scrubbed(texts)
        return e.MessageAppended(token_count=token_count, scrubbed=scrubbed, **clean)

    def end(self, reason: str) -> e.SessionEnded | None:
        """End it. None where the end that stands already holds: hard beats soft, else the first wins."""
        hard = is_hard(reason)
        if self.successor is not None or self.hard_end or (self.end_reason is not None and not hard):
            return None
        return e.SessionEnded(reason=scrub(reason)[0], hard=hard)

    def reopen(self) -> e.SessionReopened | None:
        """Take a soft end back. None where it is open.

        Raises:
            SessionOver: it ended hard, or a continuation took over.
        """
        if self.successor is not None or self.hard_end:
            raise SessionOver(self.id, successor=self.successor)
        return e.SessionReopened() if self.end_reason is not None else None

    def resume(self) -> e.SessionReopened | None:
        """Take any end back, since a person chose to go on with it. None where nothing is to be opened.

        A session that goes on as another stays closed: it has one continuation, which takes the messages.
        """
        if self.successor is not None or self.end_reason is None:
            return None
        return e.SessionReopened()

    def archive(self) -> e.SessionArchived | None:
        """Hide it from lists. None where it is archived."""
        return None if self.archived else e.SessionArchived()

    def unarchive(self) -> e.SessionUnarchived | None:
        """Show it in lists. None where it is not archived."""
        return e.SessionUnarchived() if self.archived else None

    def compress(self, continuation: str) -> e.SessionCompressed:
        """Go on as another session.

        Raises:
            SessionOver: a continuation exists (one a parent), or it ended hard.
        """
        if self.successor is not None or self.hard_end:
            raise SessionOver(self.id, successor=self.successor)
        return e.SessionCompressed(continuation=continuation)

    def continuation(self) -> e.SessionCreated:
        """The session that goes on after compression: it inherits the whole identity."""
        return e.SessionCreated(
            source=self.source,
            session_key=self.key,
            chat_id=self.chat_id,
            chat_type=self.chat_type,
            thread_id=self.thread_id,
            user_id=self.user_id,
            display_name=self.display_name,
            origin_json=self.origin_json,
            parent_session_id=self.id,
            parent_kind="continuation",
            model=self.model,
            profile_name=self.profile_name,
            cwd=self.cwd,
            git_branch=self.git_branch,
            git_repo_root=self.git_repo_root,
        )


def created(
    source: str,
    *,
    key: str | None = None,
    parent: str | None = None,
    parent_kind: e.ParentKind | None = None,
    **identity: str | None,
) -> e.SessionCreated:
    """The session begins, with its whole identity. Lone surrogates become U+FFFD.

    Args:
        identity: chat_id, chat_type, thread_id, user_id, display_name, origin_json, model,
            model_config, cwd, git_branch, git_repo_root, profile_name.

    Raises:
        RuleBroken: a source without a name. BadUsage: a text that is none.
    """
    _refuse_no_text("a session", {"source": source, "key": key, "parent": parent, **identity})
    if is_blank(source):
        raise RuleBroken("a session needs a source", hint="cli, telegram, …")
    clean, _ = _scrubbed({"source": source, "session_key": key, "parent_session_id": parent, **identity})
    return e.SessionCreated(**clean, parent_kind=(parent_kind or "child") if parent else None)


def _refuse_no_text(what: str, values: Mapping[str, object]) -> None:
    """Types are only hints to a caller: whatever is no text is refused before anything is made of it."""
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            hint = "nothing was written"
            if name in ("content", "tool_calls"):
                hint = "structured content is text for now: '\\0json:' and its JSON; tool calls are JSON text"
            raise BadUsage(f"{what}: {name} may be a str or None, not {type(value).__name__}", hint=hint)


def _scrubbed(texts: dict[str, str | None]) -> tuple[dict[str, Any], bool]:
    clean: dict[str, Any] = {}
    any_scrubbed = False
    for name, text in texts.items():
        if text is None:
            clean[name] = None
            continue
        clean[name], scrubbed = scrub(text)
        any_scrubbed = any_scrubbed or scrubbed
    return clean, any_scrubbed


def evolve(state: Session | None, session_id: str, version: int, payload: object) -> Session | None:
    """The state after an event; never refuses one, for what is on disk has happened."""
    if isinstance(payload, e.SessionCreated):
        return Session(
            id=session_id,
            version=version,
            source=payload.source,
            key=payload.session_key,
            chat_id=payload.chat_id,
            chat_type=payload.chat_type,
            thread_id=payload.thread_id,
            user_id=payload.user_id,
            display_name=payload.display_name,
            origin_json=payload.origin_json,
            model=payload.model,
            profile_name=payload.profile_name,
            cwd=payload.cwd,
            git_branch=payload.git_branch,
            git_repo_root=payload.git_repo_root,
            archived=bool(payload.columns.get("archived")),
        )
    if state is None:
        return None
    return msgspec.structs.replace(state, version=version, **_changes(state, payload))


def _changes(state: Session, payload: object) -> dict[str, object]:
    match payload:
        case e.SessionTitled():
            return {"title": payload.title}
        case e.SessionCompressed():
            return {"successor": payload.continuation, "end_reason": state.end_reason or "compression"}
        case e.SessionEnded(reason=reason, hard=hard):
            if state.hard_end and not hard:
                return {}
            return {"end_reason": reason or "", "hard_end": hard}
        case e.SessionReopened():
            return {"end_reason": None, "hard_end": False, "successor": None}
        case e.SessionArchived() | e.SessionUnarchived():
            return {"archived": isinstance(payload, e.SessionArchived)}
        case e.ModelChanged():
            return {"model": payload.model}
        case e.WorkspaceChanged():
            return {
                "cwd": payload.cwd,
                "git_branch": payload.git_branch,
                "git_repo_root": payload.git_repo_root,
            }
        case e.IdentityLost(now=now) | e.IdentityRestored(now=now):
            fields = {"session_key": "key"} | {
                name: name
                for name in ("chat_id", "chat_type", "thread_id", "user_id", "display_name", "origin_json")
            }
            return {fields[name]: value for name, value in now.items() if name in fields}
        case _:
            return {}
