"""A session's own state and what may be decided on it. Never its messages: appending stays O(1)."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from . import events as e
from . import handoff, marks, turns
from .ends import SESSION_RESET, SUPERSEDED, is_hard
from .errors import BadUsage, RuleBroken, SessionOver
from .handoff import Handoff
from .marks import Marks
from .message import Json, message_of, said
from .message import Message as Message
from .text import is_blank, scrub
from .turns import Turns

Why: TypeAlias = Literal["context_full", "turn_cap"]
"""What made a conversation go on in a session of its own."""


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
    titled_by: e.TitledBy | None = None
    """Who named it last, or took its name away; None where nobody ever did."""
    end_reason: str | None = None
    hard_end: bool = False
    successor: str | None = None
    archived: bool = False
    expired: bool = False
    """Its source had marked it as expired, whatever it said of an end (FIELD_CASES A7)."""
    parent_id: str | None = None
    parent_kind: e.ParentKind | None = None
    model_config: str | None = None
    prompt_hash: str | None = None
    pinned: bool = False
    deleted: bool = False
    erase_after_us: int = 0
    marks: Marks = Marks()
    turns: Turns = Turns()
    handoff: Handoff = Handoff()

    @property
    def ended(self) -> bool:
        """Whether an end stands, hard or soft."""
        return self.end_reason is not None or self.successor is not None

    @property
    def over(self) -> bool:
        """Whether it takes no more messages: it ended for good, or goes on as another."""
        return self.successor is not None or self.hard_end

    # --- commands: each returns what would have happened, or refuses --------------------------------

    def append(self, message: Message) -> e.MessageAppended:
        """Record one message. Lone surrogates become U+FFFD, and the event says so.

        Raises:
            SessionOver: it ended hard, or a continuation took over; the error names it.
            RuleBroken, BadUsage, BytesRefused: as `message.said` says.
        """
        self.refuse_over()
        return said(message, where=f"session {self.id}")

    def append_message(self, role: str, content: str | Json | None, **fields: Any) -> e.MessageAppended:
        """`append` for a message that is given by its fields' names."""
        return self.append(message_of({"role": role, "content": content, **fields}))

    def refuse_over(self) -> None:
        """Nothing more is said in a session that is over.

        Raises:
            SessionOver: it ended hard, or a continuation took over; the error names it.
        """
        if self.over:
            raise SessionOver(self.id, successor=self.successor)

    def end(self, reason: str) -> e.SessionEnded | None:
        """End it. None where the end that stands already holds: hard beats soft, else the first wins."""
        hard = is_hard(reason)
        if self.over or (self.end_reason is not None and not hard):
            return None
        return e.SessionEnded(reason=scrub(reason)[0], hard=hard)

    def reopen(self) -> e.SessionReopened | None:
        """Take a soft end back, and a stop. None where it is open.

        Raises:
            SessionOver: it ended hard, or a continuation took over.
        """
        self.refuse_over()
        closed = self.end_reason is not None or self.marks.suspended is not None
        return e.SessionReopened() if closed else None

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

    def compress(self, continuation: str, why: Why = "context_full") -> e.SessionCompressed:
        """Go on as another session.

        Raises:
            SessionOver: a continuation exists (one a parent), or it ended hard.
        """
        self.refuse_over()
        return e.SessionCompressed(continuation=continuation, why=why)

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

    def branch(self) -> e.SessionCreated:
        """A session that goes another way from here: whole identity, like a continuation's."""
        return msgspec.structs.replace(self.continuation(), parent_kind="branch")


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
        RuleBroken: a source without a name. BadUsage: a text that is none, or a name that is no field's.
    """
    texts = {"source": source, "session_key": key, "parent_session_id": parent, **identity}
    for name, value in texts.items():
        # Types are only hints to a caller: whatever is no text is refused before anything is made of it.
        if value is not None and not isinstance(value, str):
            raise BadUsage(
                f"a session: {name} may be a str or None, not {type(value).__name__}",
                hint="nothing was written",
            )
    if is_blank(source):
        raise RuleBroken("a session needs a source", hint="cli, telegram, …")
    clean: dict[str, Any] = {name: None if text is None else scrub(text)[0] for name, text in texts.items()}
    unknown = clean.keys() - set(e.SessionCreated.__struct_fields__)
    if unknown:
        raise BadUsage(f"a session has no {', '.join(sorted(unknown))}", hint="nothing was written")
    return e.SessionCreated(**clean, parent_kind=(parent_kind or "child") if parent else None)


_OF_TURNS = frozenset({e.TurnQueued, e.TurnStarted, e.TurnFinished, e.QueueCleared})
"""Events that change nothing of a session but its turns and its marks."""


def evolve(
    state: Session | None, session_id: str, version: int, payload: object, at_us: int = 0
) -> Session | None:
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
            expired=bool(payload.columns.get("expiry_finalized")),
            parent_id=payload.parent_session_id,
            parent_kind=payload.parent_kind,
            model_config=payload.model_config,
            pinned=bool(payload.columns.get("pinned")),
        )
    if state is None:
        return None
    if type(payload) in _OF_TURNS:  # most events of a long session, each in half the time
        return msgspec.structs.replace(
            state,
            version=version,
            marks=marks.evolve(state.marks, payload, at_us),
            turns=turns.evolve(state.turns, payload, at_us),
        )
    return msgspec.structs.replace(
        state,
        version=version,
        marks=marks.evolve(state.marks, payload, at_us),
        turns=turns.evolve(state.turns, payload, at_us),
        handoff=handoff.evolve(state.handoff, payload, at_us),
        **_changes(state, payload),
    )


def _changes(  # noqa: C901  # one line an event is plainer than a table
    state: Session, payload: object
) -> dict[str, object]:
    match payload:
        case e.SessionTitled():
            return {"title": payload.title, "titled_by": payload.by}
        case e.SessionCompressed():
            return {"successor": payload.continuation, "end_reason": state.end_reason or "compression"}
        case e.SessionEnded(reason=reason, hard=hard):
            if state.hard_end and not hard and reason != SUPERSEDED:
                return {}
            return {"end_reason": reason or "", "hard_end": hard}
        case e.SessionReset():
            return {"end_reason": SESSION_RESET, "hard_end": True}
        case e.SourceRowChanged(kind="session") if "expiry_finalized" in payload.changes:
            if "expiry_finalized" in payload.conflicts:
                return {}
            return {"expired": bool(payload.changes["expiry_finalized"])}
        case e.SessionReopened():
            return {"end_reason": None, "hard_end": False, "expired": False, "successor": None}
        case e.SessionArchived() | e.SessionUnarchived():
            return {"archived": isinstance(payload, e.SessionArchived)}
        case e.SessionPinned() | e.SessionUnpinned():
            return {"pinned": isinstance(payload, e.SessionPinned)}
        case e.SessionDeleted():
            return {"deleted": True, "erase_after_us": payload.erase_after_us}
        case e.SessionUndeleted():
            return {"deleted": False, "erase_after_us": 0}
        case e.PromptChanged():
            return {"prompt_hash": payload.prompt_hash}
        case e.ModelChanged():
            return {"model": payload.model, "model_config": payload.model_config}
        case e.WorkspaceChanged():
            return {
                "cwd": payload.cwd,
                "git_branch": payload.git_branch,
                "git_repo_root": payload.git_repo_root,
            }
        case e.IdentityLost(now=now) | e.IdentityRestored(now=now):
            fields = {
                "session_key": "key",
                "parent_session_id": "parent_id",
                "parent_kind": "parent_kind",
            } | {
                name: name
                for name in (
                    "source",
                    "chat_id",
                    "chat_type",
                    "thread_id",
                    "user_id",
                    "display_name",
                    "origin_json",
                )
            }
            return {fields[name]: value for name, value in now.items() if name in fields}
        case _:
            return {}
