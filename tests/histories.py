"""Builds logs event by event, for tests that need a history without an importer or an engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from retold.domain import events as e
from retold.infrastructure import codec
from retold.infrastructure.home import EVENTS, Home
from retold.infrastructure.log import Draft, Log

T0_US = 1_778_000_000_000_000
"""2026-05-05T16:53:20Z: when the first event of a history happens, unless it says otherwise."""
SECOND_US, MINUTE_US, HOUR_US, DAY_US = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000


def draft(
    stream: str,
    version: int,
    payload: e.Payload,
    at_us: int,
    *,
    at_kind: e.AtKind = "exact",
    caused_by: int | None = None,
) -> Draft:
    """An event ready to be appended."""
    plain = codec.encode(payload)
    salt = os.urandom(codec.SALT_BYTES)
    return Draft(
        stream,
        version,
        payload.topic,
        codec.pack(plain),
        codec.payload_hash(plain, salt),
        salt,
        at_us,
        at_kind=1 if at_kind == "no_later_than" else 0,
        caused_by=caused_by,
    )


class History:
    """Appends to a log, one second after another; every method returns the position it wrote.

    Within `together()` events are written as one save, and the positions are those they will have.
    """

    def __init__(self, log: Log, *, now_us: int = T0_US) -> None:
        self.log = log
        self.now_us = now_us
        self._versions: dict[str, int] = {}
        self._held: list[Draft] | None = None

    def append(
        self,
        stream: str,
        payload: e.Payload,
        *,
        at_us: int | None = None,
        at_kind: e.AtKind = "exact",
        caused_by: int | None = None,
    ) -> int:
        """Any event."""
        if at_us is None:
            self.now_us += SECOND_US
        else:
            self.now_us = at_us
        version = self._versions.get(stream)
        version = 1 + (self.log.stream_version(stream) if version is None else version)
        self._versions[stream] = version
        made = draft(stream, version, payload, self.now_us, at_kind=at_kind, caused_by=caused_by)
        if self._held is None:
            return self.log.append([made])[0]
        self._held.append(made)
        return self._first + len(self._held) - 1

    @contextmanager
    def together(self) -> Iterator[None]:
        """Hold what is appended and write it at the end: one sync instead of many."""
        self._first = self.log.head().position + 1
        self._held = []
        try:
            yield
            self.log.append(self._held)
        finally:
            self._held = None

    def session(self, session_id: str, *, at_us: int | None = None, **fields: Any) -> int:
        """SessionCreated; `title` is claimed in the same breath."""
        title = fields.pop("title", None)
        fields.setdefault("source", "cli")
        position = self.append(f"session:{session_id}", e.SessionCreated(**fields), at_us=at_us)
        if title is not None:
            self.title(session_id, title, at_us=at_us)
        return position

    def say(
        self,
        session_id: str,
        content: str | None,
        role: str = "user",
        *,
        at_us: int | None = None,
        **fields: Any,
    ) -> int:
        """MessageAppended."""
        payload = e.MessageAppended(role=role, content=content, **fields)
        return self.append(f"session:{session_id}", payload, at_us=at_us)

    def title(self, session_id: str, title: str | None, *, at_us: int | None = None) -> int:
        """SessionTitled."""
        return self.append(f"session:{session_id}", e.SessionTitled(title), at_us=at_us)

    def end(
        self, session_id: str, reason: str | None, *, hard: bool = False, at_us: int | None = None
    ) -> int:
        """SessionEnded."""
        return self.append(f"session:{session_id}", e.SessionEnded(reason, hard), at_us=at_us)

    def archive(self, session_id: str) -> int:
        """SessionArchived."""
        return self.append(f"session:{session_id}", e.SessionArchived())

    def compress(self, session_id: str, continuation: str, **fields: Any) -> int:
        """SessionCompressed, and the continuation it names."""
        position = self.append(f"session:{session_id}", e.SessionCompressed(continuation))
        self.session(continuation, parent_session_id=session_id, parent_kind="continuation", **fields)
        return position

    def rewind(self, session_id: str, messages: Sequence[int]) -> int:
        """MessagesRewound."""
        return self.append(f"session:{session_id}", e.MessagesRewound(list(messages)))

    def compact(self, session_id: str, messages: Sequence[int]) -> int:
        """MessagesCompacted."""
        return self.append(f"session:{session_id}", e.MessagesCompacted(list(messages)))

    def route(
        self,
        key: str,
        session_id: str,
        *,
        previous: str | None = None,
        cause: e.Cause = "first_message",
        at_us: int | None = None,
    ) -> int:
        """SessionRerouted, on the stream that the key's hash names."""
        stream = f"route:{self.log.identity.keyed_hash('route', key).hex()}"
        return self.append(stream, e.SessionRerouted(key, session_id, previous, cause), at_us=at_us)

    def erase(self, positions: Sequence[int], stream: str = "source:erasing") -> int:
        """PayloadsErased, and the payloads emptied."""
        payload = e.PayloadsErased(list(positions), "test")
        version = 1 + self.log.stream_version(stream)
        self._versions[stream] = version
        return self.log.erase(positions, draft(stream, version, payload, self.now_us))[0]


@contextmanager
def history(home: Path) -> Iterator[History]:
    """Write a history into `home`, made where it is not there; closed and folded by nobody."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = Log(home / EVENTS)
    try:
        yield History(log)
    finally:
        log.close()


def many_sessions(
    told: History,
    sessions: int,
    messages: int,
    *,
    texts: Iterable[str] = ("how do I keep a boat dry", "with a tarp, and by airing it"),
    source: str = "cli",
    prefix: str = "s",
) -> None:
    """`sessions` sessions of `messages` messages each, written in saves of some thousand events."""
    said = tuple(texts)
    for first in range(0, sessions, 500):
        with told.together():
            for number in range(first, min(first + 500, sessions)):
                session_id = f"{prefix}{number:06d}"
                told.session(session_id, source=source)
                for index in range(messages):
                    text = said[index % len(said)]
                    told.say(session_id, text, "assistant" if index % 2 else "user")


@contextmanager
def folded(home: Path) -> Iterator[Home]:
    """`home` open, its projections caught up and its search index too."""
    with Home(home) as opened:
        opened.catch_up(wait_ms=10_000)
        opened.projector.settle(wait_ms=10_000)
        yield opened
