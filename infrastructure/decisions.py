"""What every command stands on: fresh state to decide on, one save of what was decided, the fold after.

Over 400 lines because it is the one base of every group of commands: state, save, fold, and what is
awaited.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FunctionType, TracebackType
from typing import ClassVar, Literal, NoReturn, Self, TypeVar, cast

import msgspec
from eventsourcing.application import Application
from eventsourcing.persistence import IntegrityError

from ..domain import events as e
from ..domain import gateway, route, session, title_claim
from ..domain.errors import (
    BadTitle,
    DeletedSession,
    EngineClosed,
    NeedsUpgrade,
    NoSuchSession,
    ProjectionsBegunAnew,
    VersionConflict,
)
from ..domain.events import Event, Payload, Recorded, session_stream
from ..domain.gateway import MAIN, Gateway
from ..domain.route import Route
from ..domain.session import Session
from ..domain.shell import shell_word
from ..domain.text import scrub
from ..domain.times import time_us
from ..domain.title_claim import TitleClaim
from ..domain.titles import base_of, next_in_lineage, spellings
from ..projections.find import titles_in_line
from .blame import MET, refuse_blamed
from .clock import now_us
from .config import load_config
from .drafts import draft_of
from .home import EVENTS, make_home
from .log import Condition, Conflict, Draft, Head, Log
from .log_schema import LogIdentity
from .mirror import Mirror
from .persistence import Factory
from .projector import Projector
from .retry import decide_again
from .snapshots import EVERY, keep_snapshot, snapshot_of
from .state_file import StateFile
from .streams import route_stream, title_stream

Result = TypeVar("Result")
HEADS = 10_000
"""Sessions whose state is remembered; past that all are forgotten and loaded again as they are asked for."""


class Saved(msgspec.Struct, frozen=True):
    """What a command did: the session it was about, and the positions of its events."""

    session_id: str
    positions: tuple[int, ...]

    @property
    def position(self) -> int:
        """The last event's position, for one message its id; 0 where nothing had to be written."""
        return self.positions[-1] if self.positions else 0


class Decisions(Application[str]):
    """An open home to decide in. Threads of a process decide one after another, so only processes race."""

    name = "retold"
    env: ClassVar[dict[str, str]] = {
        "PERSISTENCE_MODULE": "retold.infrastructure.persistence",
        "MAPPER_TOPIC": "retold.infrastructure.mapper:PayloadMapper",
    }

    def __init__(
        self,
        home: Path,
        *,
        actor: str = "cli",
        synchronous: Literal["FULL", "NORMAL"] | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """Open `home`, making it where it is not there.

        Args:
            home: the folder; made 0700.
            actor: what kind of writer this is (cli, gateway, import, repair).
            synchronous: FULL (durable on return) or NORMAL (a power cut may lose the last saves); by
                default as config.yaml says, else FULL.
            clock: what says when an event happened, microseconds since the Unix epoch, UTC. When it was
                recorded is always the machine's own time.

        Raises:
            BadConfig, LogDamaged, NeedsUpgrade, NoRoom, StoreBusy.
        """
        make_home(home)
        self.home = home
        self.clock = clock
        self.config = load_config(home)
        self._heads: dict[str, Session] = {}
        self._folded: dict[str, int] = {}
        """Events by which a remembered session was moved on, by id."""
        self._routes: dict[str, Route] = {}
        self._gateways: dict[str, Gateway] = {}
        self._deciding = threading.RLock()
        super().__init__(
            env={
                **type(self).env,
                Factory.LOG: str(home / EVENTS),
                Factory.SYNCHRONOUS: synchronous or self.config.log.synchronous,
                Factory.ACTOR: actor,
            }
        )
        self.event_log: Log = cast("Factory", self.factory).log
        self.state = StateFile(home)
        self.projector = Projector(self.event_log, self.state)
        self._open: StateFile | None = self.state
        self.mirror = Mirror(home, self.event_log, enabled=self.config.mirror.enabled)

    def head(self) -> Head:
        """The log's head."""
        return self.event_log.head()

    def at(self, at_us: int | None = None) -> int:
        """The time that a caller gave, else now: microseconds since the Unix epoch, UTC.

        Raises:
            BadTime: what was given is none in that unit.
        """
        return self.clock() if at_us is None else time_us(at_us)

    def draft(self, event: Event) -> Draft:
        """An event, encoded, hashed and ready for the log."""
        return draft_of(event)

    # --- deciding and saving -----------------------------------------------------------------------

    def decide(self, decision: Callable[[], Result], *, again: bool = True) -> Result:
        """Run `decision` (load, decide, save); where another process was first, again from fresh state.

        Args:
            again: False where the caller said what must not have moved: then a lost race is its answer.
        """
        with self._deciding:
            saves = self.event_log.saves
            try:
                return decide_again(decision) if again else decision()
            except MET as error:
                self._begin_damaged_anew(error, saves)
            return decide_again(decision) if again else decision()

    def _begin_damaged_anew(self, error: Exception, saves: int) -> None:
        """Tell state.db again if its damage is what a decision has met.

        Raises:
            ProjectionsBegunAnew: something had been saved before, which deciding again would repeat.
        """
        try:
            refuse_blamed(self.projector, error, saves=saves)
        except ProjectionsBegunAnew as anew:
            if anew.saved:
                raise
            self.projector.catch_up()
        else:
            raise error

    def save_events(self, events: Sequence[Event], *, condition: Condition | None = None) -> tuple[int, ...]:
        """One save, then the projections. Returns the positions.

        Raises:
            VersionConflict: another writer was first, or `condition` does not hold; nothing was written.
        """
        if not events:
            return ()
        with as_conflict():
            written = self.event_log.write([draft_of(each) for each in events], condition=condition)
        self.projector.follow(written, [each.payload for each in events])
        if any(each.originator_id.startswith("route:") for each in events):
            self.mirror.moved(self.state)
        self.saved()
        return tuple(written.positions)

    def saved(self) -> None:
        """What a writer does for the home after each of its saves."""

    # --- what a decision rests on ------------------------------------------------------------------

    @property
    def identity(self) -> LogIdentity:
        """What names streams without holding their text."""
        return self.event_log.identity

    def exists(self, session_id: str) -> bool:
        """Whether a session of this id was ever created."""
        return self.event_log.stream_version(session_stream(session_id)) > 0

    def session(self, session_id: str, *, deleted: bool = False) -> Session:
        """A session as it stands in the log now; none of its messages is read.

        Args:
            deleted: also one that was deleted.

        Raises:
            NoSuchSession. DeletedSession: it was deleted.
            NeedsUpgrade: a newer program wrote into its stream.
        """
        state = self._session(session_id)
        if state.deleted and not deleted:
            raise was_deleted(session_id, state.erase_after_us)
        return state

    def _session(self, session_id: str) -> Session:
        readable, broken = scrub(session_id)
        if broken:
            raise NoSuchSession(f"there is no session '{readable}'", hint="retold sessions list shows them")
        stream = session_stream(session_id)
        version = self.event_log.stream_version(stream)
        known = self._heads.get(session_id)
        if known is not None and known.version == version:
            return known
        state = self._forwarded(known, stream) or self._loaded(session_id, stream, version)
        if state is None:
            raise NoSuchSession(f"there is no session '{session_id}'", hint="retold sessions list shows them")
        # A message has no part in the state, but each has its version.
        state = msgspec.structs.replace(state, version=max(version, state.version))
        self.remember(state)
        return state

    def _forwarded(self, known: Session | None, stream: str) -> Session | None:
        """A known state with what came since; None after an erasure, which reaches back, and now and then,
        so that there are snapshots of what a process goes on with for long."""
        if known is None or self._folded.get(known.id, 0) >= EVERY:
            return None
        state: Session | None = known
        for event in self._told(stream, f"session {known.id}", after=known.version, without_messages=True):
            if isinstance(event.payload, e.PayloadsErased):
                return None
            state = session.evolve(state, known.id, event.version, event.payload, event.at_us)
            self._folded[known.id] = self._folded.get(known.id, 0) + 1
        return state

    def _loaded(self, session_id: str, stream: str, version: int) -> Session | None:
        """A session's state, from its snapshot where there is one."""
        state = snapshot_of(self.event_log, session_id)
        folded = read_at = 0
        after = 0 if state is None else state.version
        for event in self._told(stream, f"session {session_id}", after=after, without_messages=True):
            state = session.evolve(state, session_id, event.version, event.payload, event.at_us)
            folded, read_at = folded + 1, event.position
        if state is not None and folded >= EVERY:
            # Messages after the last event are none of the state's, so it is kept as of their version.
            state = msgspec.structs.replace(state, version=max(version, state.version))
            keep_snapshot(self.event_log, state, read_at=read_at)
        self._folded.pop(session_id, None)
        return state

    def known(self, session_id: str) -> Session | None:
        """A session as this process knows it, without a look at the log: for who goes on to write its next
        version, which another writer may have taken."""
        return self._heads.get(session_id)

    def remember(self, state: Session) -> None:
        """Keep a session's state as of its version; once the stream has moved on it is loaded again."""
        if len(self._heads) >= HEADS:
            self._heads.clear()
            self._folded.clear()
        self._heads[state.id] = state

    def route(self, key: str) -> Route:
        """Where a key leads."""
        state = Route(scrub(key)[0])
        stream = route_stream(self.identity, state.key)
        version = self.event_log.stream_version(stream)
        known = self._routes.get(state.key)
        if known is not None and known.version == version:
            return known
        for event in self._told(stream, "the route of this key"):
            state = route.evolve(
                state,
                event.version,
                event.payload,
                event.at_us,
                position=event.position,
                caused_by=event.caused_by,
            )
        if len(self._routes) >= HEADS:
            self._routes.clear()
        self._routes[state.key] = state
        return state

    def gateway(self, name: str = MAIN) -> Gateway:
        """A gateway as its stream tells it; one that nobody has heard of yet has never started.

        Raises:
            BadUsage: a name that is none.
        """
        stream = gateway.stream(name)
        version = self.event_log.stream_version(stream)
        state = self._gateways.get(name, Gateway(name))
        if state.version != version:
            state = Gateway(name)
            for event in self._told(stream, f"gateway {name}"):
                state = gateway.evolve(state, event.version, event.payload, event.at_us)
            self._gateways[name] = state
        return state

    def claim(self, title: str) -> TitleClaim:
        """Who holds a title."""
        state = TitleClaim(title)
        for event in self._told(title_stream(self.identity, title), f"the title '{title}'"):
            state = title_claim.evolve(state, event.version, event.payload)
        return state

    def _told(
        self, stream: str, what: str, *, after: int = 0, without_messages: bool = False
    ) -> Iterator[Recorded]:
        for event in self.event_log.stream_events(stream, after=after, without_messages=without_messages):
            if isinstance(event.payload, e.UnknownEvent):
                raise NeedsUpgrade(
                    f"{what} holds an event this program cannot read: #{event.position} ({event.topic})",
                    hint="upgrade retold",
                )
            yield event

    # --- events that several commands need ---------------------------------------------------------

    def rerouted(self, led: Route, payload: Payload, at_us: int) -> Event:
        """The next event of a key's route."""
        return event(route_stream(self.identity, led.key), led.version + 1, payload, at_us)

    def titling(
        self, state: Session, title: str | None, at_us: int, *, by: e.TitledBy = "person"
    ) -> list[Event]:
        """Claim a title for a session and free the one it had; nothing where it bears it already.

        A continuation may take the title of a session that it goes on from, which then has none.

        Raises:
            TitleTaken: another session holds it. BadTitle: a person's that is the id of another session.
        """
        events: list[Event] = []
        if title is not None and title != state.title and by == "person":
            self.refuse_id(title, state.id)
        if title is not None:
            events += self._claiming(state, title, at_us, by)
        if not events and state.title == title:
            return []
        if state.title is not None and state.title != title:
            held = self.claim(state.title)
            released = held.release(state.id)
            if released is not None:
                stream = title_stream(self.identity, state.title)
                events.append(event(stream, held.version + 1, released, at_us))
        titled = e.SessionTitled(title=title, by=by)
        events.append(event(session_stream(state.id), state.version + 1, titled, at_us))
        return events

    def _claiming(self, state: Session, title: str, at_us: int, by: e.TitledBy) -> list[Event]:
        events: list[Event] = []
        for each in spellings(title):
            wanted = self.claim(each)
            stream = title_stream(self.identity, each)
            if wanted.holder not in (None, state.id):
                holder = next((one for one in self._goes_on_from(state) if one.id == wanted.holder), None)
                released = None if holder is None else wanted.release(holder.id)
                if holder is not None and released is not None:
                    events.append(event(stream, wanted.version + 1, released, at_us))
                    untitled = e.SessionTitled(title=None, by=by)
                    events.append(event(session_stream(holder.id), holder.version + 1, untitled, at_us))
                    wanted = title_claim.evolve(wanted, wanted.version + 1, released)
            claimed = wanted.claim(state.id)
            if claimed is not None and each == title:
                events.append(event(stream, wanted.version + 1, claimed, at_us))
        return events

    def is_free(self, title: str) -> bool:
        """Whether a session may be called so: nobody is, however it is written, and no id reads the same."""
        return not self.exists(title) and all(self.claim(each).holder is None for each in spellings(title))

    def refuse_id(self, title: str, session_id: str) -> None:
        """Raise BadTitle where a title would be taken for another session, whose id it is."""
        if title != session_id and self.exists(title):
            raise BadTitle(f"'{title}' is the id of another session", hint="choose another title")

    def _goes_on_from(self, state: Session) -> Iterator[Session]:
        """The sessions that this one continues, nearest first."""
        seen = {state.id}
        while state.parent_kind == "continuation" and state.parent_id is not None:
            if state.parent_id in seen or not self.exists(state.parent_id):
                return
            state = self.session(state.parent_id)
            seen.add(state.id)
            yield state

    def next_title(self, title: str) -> str:
        """The next title of a line that nobody holds: `plan`, else one past the highest of `plan #2` …"""
        self.projector.catch_up()
        taken = set(titles_in_line(self.state.reader(), base_of(title)))
        while True:
            candidate = next_in_lineage(title, taken)
            if self.is_free(candidate):
                return candidate
            taken.add(candidate)

    def ending(self, session_id: str, reason: str, at_us: int) -> list[Event]:
        """End a session that a key led to; nothing where there is none, or a stronger end stands."""
        try:
            state = self.session(session_id)
        except NoSuchSession:
            return []
        payload = state.end(reason)
        if payload is None:
            return []
        return [event(session_stream(session_id), state.version + 1, payload, at_us)]

    # --- closing -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every connection of the home; a second time does nothing.

        Whatever is asked of the engine afterwards raises EngineClosed.
        """
        # The library closes once more when the object is collected; that must open nothing again.
        state: StateFile | None = self.__dict__.pop("_open", None)
        if state is not None:
            self.mirror.close(state)
            state.close()
            self._refuse_all()
        super().close()

    def _refuse_all(self) -> None:
        """A command is refused, and so is what a thread is about to do: files would open again."""
        closed = _Closed(self.home)
        commands = (
            name
            for name in dir(type(self))
            if name[0] != "_" and name != "close" and isinstance(getattr(type(self), name), FunctionType)
        )
        self.__dict__.update(dict.fromkeys(("event_log", "state", "projector", "mirror", *commands), closed))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        try:
            if isinstance(exc_val, MET):
                refuse_blamed(self.projector, exc_val, saves=0)
        finally:
            self.close()


class _Closed:
    """What stands in the place of an engine's commands and files once it is closed."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise EngineClosed(str(self._home))

    def __getattr__(self, name: str) -> NoReturn:
        raise EngineClosed(str(self._home))


def event(
    stream: str, version: int, payload: Payload, at_us: int, *, idempotency_key: bytes | None = None
) -> Event:
    """One event of a decision."""
    return Event(stream, version, payload, at_us, idempotency_key=idempotency_key)


def was_deleted(session_id: str, erase_after_us: int) -> DeletedSession:
    """The refusal of every command on a deleted session but its undeletion."""
    return DeletedSession(
        f"session {session_id} was deleted",
        session_id=session_id,
        erase_after_us=erase_after_us,
        hint=f"until it is erased, this brings it back: retold sessions undelete {shell_word(session_id)}",
    )


@contextlib.contextmanager
def as_conflict() -> Iterator[None]:
    """What stood in the way of an insert, as the error that is decided again."""
    try:
        yield
    except (IntegrityError, Conflict) as error:
        raise VersionConflict(
            f"another writer was first: {error}", hint="nothing was written; try again"
        ) from error
