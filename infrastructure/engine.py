"""SessionEngine: decides on sessions, routes and titles, saves, and keeps the projections equal."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar, cast

import msgspec
from eventsourcing.application import Application
from eventsourcing.persistence import IntegrityError

from ..domain import events as e
from ..domain import route, session, title_claim
from ..domain.errors import (
    IdempotencyMismatch,
    NeedsUpgrade,
    NoSuchSession,
    RetoldError,
    RuleBroken,
    SessionExists,
    VersionConflict,
)
from ..domain.events import Event, Payload, Recorded, session_stream
from ..domain.route import Route
from ..domain.session import Session
from ..domain.title_claim import TitleClaim
from ..domain.titles import clean_title, next_in_lineage
from .clock import now_us
from .home import EVENTS, default_home, make_home
from .log import Condition, Draft, Head, Log
from .persistence import Factory
from .projector import READER_WAIT_MS, Projector
from .retry import decide_again
from .state_file import StateFile
from .streams import route_stream, title_stream

Result = TypeVar("Result")


class Saved(msgspec.Struct, frozen=True):
    """What a command did: the session it was about, and the positions of its events."""

    session_id: str
    positions: tuple[int, ...]

    @property
    def position(self) -> int:
        """The last event's position; for one message, the message's id."""
        return self.positions[-1]


class SessionEngine(Application[str]):
    """Every write to a home, thread-safe, any number of processes on one home at once.

    A command is one decision and one save: durable on return, all or nothing. A lost race is decided
    again from fresh state.
    """

    name = "retold"
    env: ClassVar[dict[str, str]] = {
        "PERSISTENCE_MODULE": "retold.infrastructure.persistence",
        "MAPPER_TOPIC": "retold.infrastructure.mapper:PayloadMapper",
    }

    def __init__(self, home: Path, *, actor: str = "cli", synchronous: str = "FULL") -> None:
        """Open `home`, making it where it is not there.

        Args:
            home: the folder; made 0700.
            actor: what kind of writer this is (cli, gateway, import, repair).
            synchronous: FULL (durable on return) or NORMAL (a power cut may lose the last saves).

        Raises:
            LogDamaged, NeedsUpgrade, NoRoom, StoreBusy.
        """
        make_home(home)
        self.home = home
        self._heads: dict[str, Session] = {}
        self._heads_lock = threading.Lock()
        super().__init__(
            env={
                **type(self).env,
                Factory.LOG: str(home / EVENTS),
                Factory.SYNCHRONOUS: synchronous,
                Factory.ACTOR: actor,
            }
        )
        self.event_log: Log = cast("Factory", self.factory).log
        self.state = StateFile(home)
        self.projector = Projector(self.event_log, self.state)

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
                `cause` is a reset.
            identity: chat_id, chat_type, thread_id, user_id, display_name, origin_json, model, cwd,
                git_branch, git_repo_root, profile_name.

        Raises:
            SessionExists, TitleTaken, BadTitle, VersionConflict, …
        """
        at = now_us() if at_us is None else at_us
        made = session_id or new_session_id(at)

        def decide() -> Saved:
            if self.event_log.stream_version(session_stream(made)):
                raise SessionExists(f"session {made} exists already", hint="choose another id")
            created = e.SessionCreated(
                source=source,
                session_key=key,
                parent_session_id=parent,
                parent_kind=(parent_kind or "child") if parent else None,
                **identity,
            )
            events = [_event(session_stream(made), 1, created, at)]
            if title is not None:
                events += self._titling(Session(id=made, version=1, source=source), clean_title(title), at)
            if key is not None:
                led = self._route(key)
                if cause == "reset" and led.session_id is not None:
                    events += self._ending(led.session_id, "session_reset", at)
                moved = led.lead_to(made, cause)
                if moved is not None:
                    events.append(_event(route_stream(self._identity, key), led.version + 1, moved, at))
            return Saved(made, self._save(events))

        return self._command(decide)

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
        idempotency_keys: Sequence[str] | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Append several messages in one save, in this order: all of them or none.

        Each is a dict of `role`, `content` and the fields of `append_message`.
        """
        stream = session_stream(session_id)
        keys: list[bytes | None] = [
            None if key is None else self._identity.keyed_hash("idempotency", session_id, key)
            for key in (idempotency_keys or [None] * len(messages))
        ]

        def decide() -> Saved:
            state = self._session(session_id)
            at = now_us() if at_us is None else at_us
            events: list[Event] = []
            positions: list[int] = []
            for message, key in zip(messages, keys, strict=True):
                # A redelivered message is answered even where its session has ended since.
                known = None if key is None else self.event_log.by_idempotency_key(stream, key)
                if known is not None:
                    positions.append(_same(known, message, session_id))
                    continue
                payload = state.append_message(**message)
                events.append(
                    _event(stream, state.version + len(events) + 1, payload, at, idempotency_key=key)
                )
            if events:
                saved = self._save(events)
                positions += saved
                self._remember(msgspec.structs.replace(state, version=state.version + len(events)))
            return Saved(session_id, tuple(positions))

        return self._command(decide, session_id)

    def title_session(self, session_id: str, title: str, *, at_us: int | None = None) -> Saved:
        """Give a session a title, and free the one it had.

        Raises:
            BadTitle: empty after cleaning, or over 100 characters. TitleTaken: names the holder.
        """
        wanted = clean_title(title)

        def decide() -> Saved:
            state = self._session(session_id)
            at = now_us() if at_us is None else at_us
            return Saved(session_id, self._save(self._titling(state, wanted, at)))

        return self._command(decide, session_id)

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

        def decide() -> Saved:
            state = self._session(session_id)
            at = now_us() if at_us is None else at_us
            child = continuation_id or new_session_id(at)
            stream = session_stream(child)
            if self.event_log.stream_version(stream):
                raise SessionExists(f"session {child} exists already", hint="choose another id")
            events = [
                _event(session_stream(session_id), state.version + 1, state.compress(child), at),
                _event(stream, 1, state.continuation(), at),
            ]
            fresh = Session(id=child, version=1, source=state.source)
            if state.title is not None:
                titled = self._titling(fresh, self._next_title(state.title), at)
                events += titled
                fresh = msgspec.structs.replace(
                    fresh, version=1 + sum(1 for each in titled if each.originator_id == stream)
                )
            events.append(_event(stream, fresh.version + 1, fresh.append_message("user", summary), at))
            if state.key is not None:
                led = self._route(state.key)
                moved = led.lead_to(child, "compression") if led.session_id == session_id else None
                if moved is not None:
                    events.append(_event(route_stream(self._identity, state.key), led.version + 1, moved, at))
            return Saved(child, self._save(events))

        return self._command(decide, session_id)

    # --- routes ------------------------------------------------------------------------------------

    def route_of(self, key: str) -> str | None:
        """The session that a key leads to."""
        return self._route(key).session_id

    def reroute(
        self,
        key: str,
        session_id: str,
        cause: e.Cause,
        *,
        candidates: Sequence[e.RouteCandidate] = (),
        evidence: Sequence[str] = (),
        at_us: int | None = None,
    ) -> Saved:
        """Lead a key to a session, with the cause and what was weighed.

        Raises:
            NoSuchSession: there is none of this id.
        """

        def decide() -> Saved:
            self._session(session_id)
            led = self._route(key)
            moved = led.lead_to(session_id, cause, candidates=list(candidates), evidence=list(evidence))
            if moved is None:
                return Saved(session_id, ())
            at = now_us() if at_us is None else at_us
            return Saved(
                session_id,
                self._save([_event(route_stream(self._identity, key), led.version + 1, moved, at)]),
            )

        return self._command(decide)

    # --- erasing -----------------------------------------------------------------------------------

    def erase_messages(self, positions: Sequence[int], *, reason: str) -> Saved:
        """Empty the payloads of messages for good; that they were, and when, stays on record.

        Raises:
            RuleBroken: a position that is no message.
        """
        found: dict[int, Recorded] = {}
        for position in positions:
            events = self.event_log.read(position - 1, limit=1)
            if not events or events[0].position != position or events[0].topic != e.MessageAppended.topic:
                raise RuleBroken(f"#{position} is no message", hint="retold sessions show prints message ids")
            if isinstance(events[0].payload, e.MessageAppended):
                found[position] = events[0]
        if not found:
            return Saved("", ())
        chosen = sorted(found)
        marks = [
            e.ErasedMark(
                found[each].session_id,
                found[each].payload.role,
                min(found[each].at_us, found[each].recorded_at_us),
            )
            for each in chosen
        ]
        stream = found[chosen[0]].stream

        def decide() -> Saved:
            payload = e.PayloadsErased(chosen, reason, [found[each].source_ref for each in chosen], marks)
            event = _event(stream, self.event_log.stream_version(stream) + 1, payload, now_us())
            with _as_conflict():
                position = self.event_log.erase(chosen, self.draft(event))
            with self._heads_lock:
                self._heads.pop(found[chosen[0]].session_id, None)
            self._fold()
            return Saved(found[chosen[0]].session_id, (position,))

        return decide_again(decide)

    # --- below the commands ------------------------------------------------------------------------

    @property
    def _identity(self) -> Any:
        return self.event_log.identity

    def draft(self, event: Event) -> Draft:
        """An event, encoded, hashed and ready for the log."""
        from .recorders import draft

        return draft(self.mapper.to_stored_event(cast("Any", event)))

    def head(self) -> Head:
        """The log's head."""
        return self.event_log.head()

    def _command(self, decide: Callable[[], Result], session_id: str | None = None) -> Result:
        """Decide and save; a refusal that rests on a remembered state is decided again from fresh state."""
        remembered = session_id is not None and session_id in self._heads

        def attempt() -> Result:
            try:
                return decide()
            except VersionConflict:
                self._forget(session_id)
                raise

        try:
            return decide_again(attempt)
        except RuleBroken:
            if not remembered:
                raise
            self._forget(session_id)
            return decide_again(attempt)

    def _change(
        self, session_id: str, decide: Callable[[Session], Payload | None], at_us: int | None
    ) -> Saved:
        def once() -> Saved:
            state = self._session(session_id)
            payload = decide(state)
            if payload is None:
                return Saved(session_id, ())
            at = now_us() if at_us is None else at_us
            saved = self._save([_event(session_stream(session_id), state.version + 1, payload, at)])
            return Saved(session_id, saved)

        return self._command(once, session_id)

    def _save(self, events: Sequence[Event], condition: Condition | None = None) -> tuple[int, ...]:
        """One save, then the projections; only the insert can fail for another writer."""
        with _as_conflict():
            recordings = self.save(*cast("Any", events), condition=condition)
        for event in events:
            if not isinstance(event.payload, e.MessageAppended) and event.originator_id.startswith(
                "session:"
            ):
                self._forget(event.originator_id[8:])
        self._fold()
        return tuple(each.notification.id for each in recordings)

    def _fold(self) -> None:
        """Inline folding: what it cannot do now is caught up later; the log never waits for it."""
        with contextlib.suppress(RetoldError):
            self.projector.catch_up(wait_ms=READER_WAIT_MS)

    def _session(self, session_id: str) -> Session:
        known = self._heads.get(session_id)
        if known is not None:
            return known
        stream = session_stream(session_id)
        state: Session | None = None
        for event in self.event_log.stream_events(stream, without_messages=True):
            if isinstance(event.payload, e.UnknownEvent):
                raise NeedsUpgrade(
                    f"session {session_id} holds an event this program cannot read: {event.topic}",
                    hint="upgrade retold",
                )
            state = session.evolve(state, session_id, event.version, event.payload)
        if state is None:
            raise NoSuchSession(f"there is no session '{session_id}'", hint="retold sessions list shows them")
        state = msgspec.structs.replace(state, version=self.event_log.stream_version(stream))
        self._remember(state)
        return state

    def _remember(self, state: Session) -> None:
        with self._heads_lock:
            if len(self._heads) > 10_000:
                self._heads.clear()
            self._heads[state.id] = state

    def _forget(self, session_id: str | None) -> None:
        if session_id is not None:
            with self._heads_lock:
                self._heads.pop(session_id, None)

    def _route(self, key: str) -> Route:
        state = Route(key)
        for event in self.event_log.stream_events(route_stream(self._identity, key)):
            state = route.evolve(state, event.version, event.payload)
        return state

    def _claim(self, title: str) -> TitleClaim:
        state = TitleClaim(title)
        for event in self.event_log.stream_events(title_stream(self._identity, title)):
            state = title_claim.evolve(state, event.version, event.payload)
        return state

    def _titling(self, state: Session, title: str, at_us: int) -> list[Event]:
        events: list[Event] = []
        wanted = self._claim(title)
        claimed = wanted.claim(state.id)
        if claimed is not None:
            events.append(_event(title_stream(self._identity, title), wanted.version + 1, claimed, at_us))
        if state.title is not None and state.title != title:
            held = self._claim(state.title)
            released = held.release(state.id)
            if released is not None:
                events.append(
                    _event(title_stream(self._identity, state.title), held.version + 1, released, at_us)
                )
        events.append(
            _event(session_stream(state.id), state.version + 1, e.SessionTitled(title=title), at_us)
        )
        return events

    def _next_title(self, title: str) -> str:
        taken: set[str] = {title}
        while True:
            candidate = next_in_lineage(title, taken)
            if self._claim(candidate).holder is None:
                return candidate
            taken.add(candidate)

    def _ending(self, session_id: str, reason: str, at_us: int) -> list[Event]:
        try:
            state = self._session(session_id)
        except NoSuchSession:
            return []
        payload = state.end(reason)
        if payload is None:
            return []
        return [_event(session_stream(session_id), state.version + 1, payload, at_us)]

    def close(self) -> None:
        """Close every connection of the home."""
        state: StateFile | None = getattr(self, "state", None)
        if state is not None:
            state.close()
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()


def open_home(
    path: Path | str | None = None, *, actor: str = "cli", synchronous: str = "FULL"
) -> SessionEngine:
    """Open the home at `path` (by default RETOLD_HOME, else ~/.retold) for reading and writing."""
    home = default_home() if path is None else Path(path).expanduser()
    return SessionEngine(home, actor=actor, synchronous=synchronous)


def new_session_id(at_us: int) -> str:
    """YYYYMMDD_HHMMSS_<8 hex>, local time (REFERENCE.md 1.1)."""
    return f"{datetime.fromtimestamp(at_us / 1e6):%Y%m%d_%H%M%S}_{os.urandom(4).hex()}"


def _event(
    stream: str, version: int, payload: Payload, at_us: int, *, idempotency_key: bytes | None = None
) -> Event:
    return Event(stream, version, payload, at_us, idempotency_key=idempotency_key)


def _same(known: Recorded, message: dict[str, Any], session_id: str) -> int:
    """The position of the message that was saved under this key, if it is this one."""
    if isinstance(known.payload, e.ErasedEvent):
        return known.position  # erased stays erased
    # Written through the same rules as the first time, on a session that takes anything.
    again = Session(id=session_id, version=0, source="").append_message(**message)
    if again != known.payload:
        raise IdempotencyMismatch(
            f"session {session_id}: this idempotency key was used for another message (#{known.position})",
            hint="give each message a key of its own",
        )
    return known.position


@contextlib.contextmanager
def _as_conflict() -> Any:
    from .log import Conflict

    try:
        yield
    except (IntegrityError, Conflict) as error:
        raise VersionConflict(
            f"another writer was first: {error}", hint="nothing was written; try again"
        ) from error
