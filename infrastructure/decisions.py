"""What every command stands on: fresh state to decide on, one save of what was decided, the fold after."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import msgspec
from eventsourcing.application import Application
from eventsourcing.persistence import IntegrityError

from ..domain import events as e
from ..domain import route, session, title_claim
from ..domain.errors import NeedsUpgrade, NoSuchSession, VersionConflict
from ..domain.events import Event, Payload, Recorded, session_stream
from ..domain.route import Route
from ..domain.session import Session
from ..domain.text import scrub
from ..domain.title_claim import TitleClaim
from ..domain.titles import next_in_lineage
from .config import load_config
from .home import EVENTS, make_home
from .log import Condition, Conflict, Draft, Head, Log
from .log_schema import LogIdentity
from .mirror import Mirror
from .persistence import Factory
from .projector import Projector
from .recorders import draft
from .retry import decide_again
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
        self, home: Path, *, actor: str = "cli", synchronous: Literal["FULL", "NORMAL"] | None = None
    ) -> None:
        """Open `home`, making it where it is not there.

        Args:
            home: the folder; made 0700.
            actor: what kind of writer this is (cli, gateway, import, repair).
            synchronous: FULL (durable on return) or NORMAL (a power cut may lose the last saves); by
                default as config.yaml says, else FULL.

        Raises:
            BadConfig, LogDamaged, NeedsUpgrade, NoRoom, StoreBusy.
        """
        make_home(home)
        self.home = home
        self.config = load_config(home)
        self._heads: dict[str, Session] = {}
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

    def draft(self, event: Event) -> Draft:
        """An event, encoded, hashed and ready for the log."""
        return draft(self.mapper.to_stored_event(cast("Any", event)))

    # --- deciding and saving -----------------------------------------------------------------------

    def decide(self, decision: Callable[[], Result], *, again: bool = True) -> Result:
        """Run `decision` (load, decide, save); where another process was first, again from fresh state.

        Args:
            again: False where the caller said what must not have moved: then a lost race is its answer.
        """
        with self._deciding:
            return decide_again(decision) if again else decision()

    def save_events(self, events: Sequence[Event], *, condition: Condition | None = None) -> tuple[int, ...]:
        """One save, then the projections. Returns the positions.

        Raises:
            VersionConflict: another writer was first, or `condition` does not hold; nothing was written.
        """
        if not events:
            return ()
        with as_conflict():
            recordings = self.save(*cast("Any", events), condition=condition)
        self.projector.follow()
        if any(each.originator_id.startswith("route:") for each in events):
            self.mirror.moved(self.state)
        return tuple(each.notification.id for each in recordings)

    # --- what a decision rests on ------------------------------------------------------------------

    @property
    def identity(self) -> LogIdentity:
        """What names streams without holding their text."""
        return self.event_log.identity

    def exists(self, session_id: str) -> bool:
        """Whether a session of this id was ever created."""
        return self.event_log.stream_version(session_stream(session_id)) > 0

    def session(self, session_id: str) -> Session:
        """A session as it stands in the log now; none of its messages is read.

        Raises:
            NoSuchSession. NeedsUpgrade: a newer program wrote into its stream.
        """
        readable, broken = scrub(session_id)
        if broken:
            raise NoSuchSession(f"there is no session '{readable}'", hint="retold sessions list shows them")
        stream = session_stream(session_id)
        version = self.event_log.stream_version(stream)
        known = self._heads.get(session_id)
        if known is not None and known.version == version:
            return known
        state: Session | None = None
        for event in self._told(stream, f"session {session_id}", without_messages=True):
            state = session.evolve(state, session_id, event.version, event.payload)
        if state is None:
            raise NoSuchSession(f"there is no session '{session_id}'", hint="retold sessions list shows them")
        # A message has no part in the state, but each has its version.
        state = msgspec.structs.replace(state, version=max(version, state.version))
        self.remember(state)
        return state

    def remember(self, state: Session) -> None:
        """Keep a session's state as of its version; once the stream has moved on it is loaded again."""
        if len(self._heads) >= HEADS:
            self._heads.clear()
        self._heads[state.id] = state

    def route(self, key: str) -> Route:
        """Where a key leads."""
        state = Route(scrub(key)[0])
        for event in self._told(route_stream(self.identity, state.key), "the route of this key"):
            state = route.evolve(state, event.version, event.payload)
        return state

    def claim(self, title: str) -> TitleClaim:
        """Who holds a title."""
        state = TitleClaim(title)
        for event in self._told(title_stream(self.identity, title), f"the title '{title}'"):
            state = title_claim.evolve(state, event.version, event.payload)
        return state

    def _told(self, stream: str, what: str, *, without_messages: bool = False) -> Iterator[Recorded]:
        for event in self.event_log.stream_events(stream, without_messages=without_messages):
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

    def titling(self, state: Session, title: str, at_us: int) -> list[Event]:
        """Claim a title for a session and free the one it had; nothing where it bears it already.

        Raises:
            TitleTaken: another session holds it.
        """
        wanted = self.claim(title)
        claimed = wanted.claim(state.id)
        if claimed is None and state.title == title:
            return []
        events: list[Event] = []
        if claimed is not None:
            events.append(event(title_stream(self.identity, title), wanted.version + 1, claimed, at_us))
        if state.title is not None and state.title != title:
            held = self.claim(state.title)
            released = held.release(state.id)
            if released is not None:
                stream = title_stream(self.identity, state.title)
                events.append(event(stream, held.version + 1, released, at_us))
        titled = e.SessionTitled(title=title)
        events.append(event(session_stream(state.id), state.version + 1, titled, at_us))
        return events

    def next_title(self, title: str) -> str:
        """The next title of a lineage that nobody holds: `plan #2`, `plan #3` …"""
        taken: set[str] = {title}
        while True:
            candidate = next_in_lineage(title, taken)
            if self.claim(candidate).holder is None:
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
        """Close every connection of the home."""
        # The library closes once more when the object is collected; that must open nothing again.
        state: StateFile | None = self.__dict__.pop("_open", None)
        if state is not None:
            self.mirror.close(state)
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


def event(
    stream: str, version: int, payload: Payload, at_us: int, *, idempotency_key: bytes | None = None
) -> Event:
    """One event of a decision."""
    return Event(stream, version, payload, at_us, idempotency_key=idempotency_key)


@contextlib.contextmanager
def as_conflict() -> Iterator[None]:
    """What stood in the way of an insert, as the error that is decided again."""
    try:
        yield
    except (IntegrityError, Conflict) as error:
        raise VersionConflict(
            f"another writer was first: {error}", hint="nothing was written; try again"
        ) from error
