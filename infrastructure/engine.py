"""SessionEngine: every command on sessions, routes and titles, each one decision and one save."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..domain import events as e
from ..domain import session
from ..domain.errors import BadUsage, IdempotencyMismatch, NeedsUpgrade, SessionExists
from ..domain.events import Event, Payload, session_stream
from ..domain.session import Session
from ..domain.text import scrub
from ..domain.titles import clean_title
from .clock import now_us
from .decisions import Decisions, Saved, as_conflict, event
from .erasing import erased, messages_at, sweep, with_what_quotes
from .home import default_home
from .log import Condition

__all__ = ["Erased", "Saved", "SessionEngine", "new_session_id", "open_home"]

_ENDS_BY_CAUSE: dict[e.Cause, str] = {"reset": "session_reset", "idle": "idle", "daily": "daily"}
"""How the session that a key led to ends, where a new one takes its place for this cause."""


class Erased(Saved, frozen=True):
    """What was emptied; `pending` names files that hold the text until their readers leave."""

    pending: tuple[str, ...] = ()


class SessionEngine(Decisions):
    """Every write to a home, thread-safe, any number of processes on one home at once.

    A command is one decision and one save: durable on return, all or nothing. A lost race is decided
    again from fresh state.
    """

    # --- sessions ----------------------------------------------------------------------------------

    def create_session(
        self,
        source: str,
        *,
        session_id: str | None = None,
        key: str | None = None,
        cause: e.Cause = "first_message",
        title: str | None = None,
        parent: str | None = None,
        parent_kind: e.ParentKind | None = None,
        at_us: int | None = None,
        **identity: str | None,
    ) -> Saved:
        """Begin a session, with its whole identity; with a key, lead the key to it in the same save.

        Args:
            source: cli, telegram, … (REFERENCE.md 1.2).
            key: the routing key of the chat; a session that it led to before ends hard where
                `cause` is a reset (by a person, idle or daily).
            identity: chat_id, chat_type, thread_id, user_id, display_name, origin_json, model, cwd,
                git_branch, git_repo_root, profile_name.

        Raises:
            SessionExists, TitleTaken, BadTitle, VersionConflict, …
        """
        at = now_us() if at_us is None else at_us
        made = _usable(session_id or new_session_id(at))
        created = session.created(source, key=key, parent=parent, parent_kind=parent_kind, **identity)
        wanted = None if title is None else clean_title(title)

        def decision() -> Saved:
            self._refuse_existing(made)
            events = [event(session_stream(made), 1, created, at)]
            if wanted is not None:
                events += self.titling(Session(id=made, version=1, source=source), wanted, at)
            if key is not None:
                led = self.route(key)
                if cause in _ENDS_BY_CAUSE and led.session_id is not None:
                    events += self.ending(led.session_id, _ENDS_BY_CAUSE[cause], at)
                moved = led.lead_to(made, cause)
                if moved is not None:
                    events.append(self.rerouted(led, moved, at))
            return Saved(made, self.save_events(events))

        return self.decide(decision)

    def append_message(
        self,
        session_id: str,
        role: str,
        content: str | None,
        *,
        idempotency_key: str | None = None,
        at_us: int | None = None,
        **fields: Any,
    ) -> Saved:
        """Append one message; durable on return. Its id is the position that comes back.

        Args:
            idempotency_key: the same key with the same content is one message, whose position is
                returned again; with other content it is an error (FIELD_CASES B27).
            at_us: when it was said, microseconds since the Unix epoch, UTC; now by default.
            fields: tool_calls (JSON text), tool_name, tool_call_id, platform_message_id,
                finish_reason, reasoning, token_count.

        Raises:
            NoSuchSession, SessionOver, RuleBroken, IdempotencyMismatch, VersionConflict, …
        """
        return self.append_messages(
            session_id,
            [{"role": role, "content": content, **fields}],
            idempotency_keys=None if idempotency_key is None else [idempotency_key],
            at_us=at_us,
        )

    def append_messages(
        self,
        session_id: str,
        messages: Sequence[dict[str, Any]],
        *,
        idempotency_keys: Sequence[str | None] | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Append several messages in one save, in this order: all of them or none.

        Each is a dict of `role`, `content` and the fields of `append_message`. The positions that
        come back are the messages' own, in their order, also of those that were there before.
        """
        keys: list[bytes | None] = [
            None if key is None else self.identity.keyed_hash("idempotency", session_id, scrub(key)[0])
            for key in (idempotency_keys or [None] * len(messages))
        ]

        def decision() -> Saved:
            state = self.session(session_id)
            at = now_us() if at_us is None else at_us
            places, fresh = self._appended(state, messages, keys, at)
            saved = self.save_events(fresh)
            if fresh:
                self.remember(_moved(state, len(fresh)))
            return Saved(session_id, tuple(each if each > 0 else saved[~each] for each in places))

        return self.decide(decision)

    def _appended(
        self, state: Session, messages: Sequence[dict[str, Any]], keys: Sequence[bytes | None], at_us: int
    ) -> tuple[list[int], list[Event]]:
        """For each message its position, or ~index into the events that will bring it; and those."""
        stream = session_stream(state.id)
        places: list[int] = []
        events: list[Event] = []
        mine: dict[bytes, int] = {}
        for message, key in zip(messages, keys, strict=True):
            if key is not None:
                # A redelivered message is answered even where its session has ended since.
                before = self.event_log.by_idempotency_key(stream, key)
                if before is not None:
                    places.append(_same(before.payload, before.position, message, state.id))
                    continue
                if key in mine:
                    _same(events[mine[key]].payload, self.head().position + 1, message, state.id)
                    places.append(~mine[key])
                    continue
                mine[key] = len(events)
            payload = state.append_message(**message)
            places.append(~len(events))
            version = state.version + len(events) + 1
            events.append(event(stream, version, payload, at_us, idempotency_key=key))
        return places, events

    def title_session(self, session_id: str, title: str, *, at_us: int | None = None) -> Saved:
        """Give a session a title, and free the one it had.

        Raises:
            BadTitle: empty after cleaning, or over 100 characters. TitleTaken: names the holder.
        """
        wanted = clean_title(title)

        def decision() -> Saved:
            state = self.session(session_id)
            at = now_us() if at_us is None else at_us
            return Saved(session_id, self.save_events(self.titling(state, wanted, at)))

        return self.decide(decision)

    def end_session(self, session_id: str, reason: str, *, at_us: int | None = None) -> Saved:
        """End a session; a hard reason beats a soft one, else the first end stands and nothing is written."""
        return self._change(session_id, lambda state: state.end(reason), at_us)

    def reopen_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Take a soft end back.

        Raises:
            SessionOver: it ended hard, or a continuation took over.
        """
        return self._change(session_id, lambda state: state.reopen(), at_us)

    def archive_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Hide a session from lists; search still finds it."""
        return self._change(session_id, lambda state: state.archive(), at_us)

    def unarchive_session(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Show an archived session in lists again."""
        return self._change(session_id, lambda state: state.unarchive(), at_us)

    def compress_session(
        self, session_id: str, summary: str, *, continuation_id: str | None = None, at_us: int | None = None
    ) -> Saved:
        """Let a session go on as a new one that begins with `summary`; returns the continuation.

        One save: the parent's SessionCompressed, the child with the whole identity, its title
        (`name #2`), the summary, and the chat's key led to it.

        Raises:
            SessionOver: a continuation exists already; the error names it.
        """

        def decision() -> Saved:
            state = self.session(session_id)
            at = now_us() if at_us is None else at_us
            child = _usable(continuation_id or new_session_id(at))
            compressed = state.compress(child)
            self._refuse_existing(child)
            stream = session_stream(child)
            events = [
                event(session_stream(session_id), state.version + 1, compressed, at),
                event(stream, 1, state.continuation(), at),
            ]
            fresh = Session(id=child, version=1, source=state.source)
            if state.title is not None:
                events += self.titling(fresh, self.next_title(state.title), at)
                fresh = _moved(fresh, sum(each.originator_id == stream for each in events) - 1)
            events.append(event(stream, fresh.version + 1, fresh.append_message("user", summary), at))
            if state.key is not None:
                led = self.route(state.key)
                moved = led.lead_to(child, "compression") if led.session_id == session_id else None
                if moved is not None:
                    events.append(self.rerouted(led, moved, at))
            return Saved(child, self.save_events(events))

        return self.decide(decision)

    def _refuse_existing(self, session_id: str) -> None:
        if self.exists(session_id):
            raise SessionExists(f"session {session_id} exists already", hint="choose another id")

    def _change(
        self, session_id: str, choose: Callable[[Session], Payload | None], at_us: int | None
    ) -> Saved:
        """One event of one session, or none where nothing changes."""

        def decision() -> Saved:
            state = self.session(session_id)
            payload = choose(state)
            if payload is None:
                return Saved(session_id, ())
            at = now_us() if at_us is None else at_us
            changed = event(session_stream(session_id), state.version + 1, payload, at)
            return Saved(session_id, self.save_events([changed]))

        return self.decide(decision)

    # --- routes ------------------------------------------------------------------------------------

    def route_of(self, key: str) -> str | None:
        """The session that a key leads to."""
        return self.route(key).session_id

    def reroute(
        self,
        key: str,
        session_id: str,
        cause: e.Cause,
        *,
        candidates: Sequence[e.RouteCandidate] = (),
        evidence: Sequence[str] = (),
        condition: Condition | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Lead a key to a session, with the cause and what was weighed.

        A resume is a person's own choice: it opens the session again, in the same save, however it ended.

        Args:
            condition: what was read to choose that session. If any of it has moved since, nothing is
                written, and it is not decided again here: the choice is the caller's.

        Raises:
            NoSuchSession: there is none of this id. VersionConflict: `condition` does not hold.
        """

        def decision() -> Saved:
            state = self.session(session_id)
            led = self.route(key)
            at = now_us() if at_us is None else at_us
            reopened = state.resume() if cause == "resume" else None
            moved = led.lead_to(session_id, cause, candidates=list(candidates), evidence=list(evidence))
            events: list[Event] = []
            if reopened is not None:
                events.append(event(session_stream(session_id), state.version + 1, reopened, at))
            if moved is not None:
                events.append(self.rerouted(led, moved, at))
            return Saved(session_id, self.save_events(events, condition=condition))

        return self.decide(decision, again=condition is None)

    # --- erasing -----------------------------------------------------------------------------------

    def erase_messages(self, positions: Sequence[int], *, reason: str) -> Erased:
        """Empty the payloads of messages for good, and of their edits and copies.

        That they were, and when, stays on record. Backups and exports made before are not reached.

        Raises:
            RuleBroken: a position that is no message.
        """

        def decision() -> Erased:
            read_at = self.head().position
            events = with_what_quotes(self.event_log, messages_at(self.event_log, positions))
            if not events:
                return Erased("", ())
            stream = events[0].stream
            version = self.event_log.stream_version(stream) + 1
            record = event(stream, version, erased(events, scrub(reason)[0]), now_us())
            moved = Condition(read_at, streams=tuple({each.stream for each in events}))
            with as_conflict():
                position = self.event_log.erase(
                    [each.position for each in events], self.draft(record), condition=moved
                )
            pending = sweep(self.event_log, self.projector, self.home)
            return Erased(events[0].session_id, (position,), pending)

        return self.decide(decision)


def open_home(
    path: Path | str | None = None,
    *,
    actor: str = "cli",
    synchronous: Literal["FULL", "NORMAL"] | None = None,
) -> SessionEngine:
    """Open the home at `path` (by default RETOLD_HOME, else ~/.retold) for reading and writing."""
    home = default_home() if path is None else Path(path).expanduser()
    return SessionEngine(home, actor=actor, synchronous=synchronous)


def new_session_id(at_us: int) -> str:
    """YYYYMMDD_HHMMSS_<8 hex>, local time (REFERENCE.md 1.1)."""
    local = datetime.fromtimestamp(at_us / 1e6, UTC).astimezone()
    return f"{local:%Y%m%d_%H%M%S}_{os.urandom(4).hex()}"


def _usable(session_id: str) -> str:
    """An id that can name a stream."""
    readable, broken = scrub(session_id)
    if broken:
        raise BadUsage(f"'{readable}' cannot be a session's id: it is no valid text", hint="give another id")
    return session_id


def _moved(state: Session, events: int) -> Session:
    """The state after events that change nothing but the version."""
    return msgspec.structs.replace(state, version=state.version + events)


def _same(payload: object, position: int, message: dict[str, Any], session_id: str) -> int:
    """The position of the message that bears this idempotency key, if it is this one."""
    if isinstance(payload, e.ErasedEvent):
        return position  # erased stays erased
    if isinstance(payload, e.UnknownEvent):
        raise NeedsUpgrade(f"event #{position} is of a newer kind: {payload.topic}", hint="upgrade retold")
    # Written through the same rules as the first time, on a session that takes anything.
    again = Session(id=session_id, version=0, source="").append_message(**message)
    if again != payload:
        raise IdempotencyMismatch(
            f"session {session_id}: this idempotency key was used for another message (#{position})",
            hint="give each message a key of its own",
        )
    return position
