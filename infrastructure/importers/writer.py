"""Writes an import's events in batches, each a transaction, at the versions that were planned on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Literal, NamedTuple

from ...domain import events as e
from ...domain.errors import VersionConflict
from ...domain.events import AtKind, Event, Payload
from ..drafts import draft_of
from ..log import Conflict, Draft, Log, default_actor
from ..log_schema import stored_name
from ..sqlite import translated

BATCH = 1_500
BATCH_BYTES = 8 << 20

_WORDS: dict[type[Payload], str] = {
    e.SessionCreated: "sessions",
    e.MessageAppended: "messages",
    e.MessageEdited: "messages edited",
    e.MessagesCompacted: "messages compacted",
    e.MessagesRewound: "messages rewound",
    e.MessagesRestored: "messages restored",
    e.SessionTitled: "titles",
    e.SessionEnded: "ends",
    e.SessionCompressed: "compressions",
    e.SessionReopened: "reopened",
    e.SessionArchived: "archived",
    e.SessionUnarchived: "unarchived",
    e.SessionPinned: "pinned",
    e.SessionUnpinned: "unpinned",
    e.IdentityLost: "identities lost",
    e.IdentityRestored: "identities changed",
    e.WorkspaceChanged: "workspaces",
    e.ModelChanged: "models",
    e.PromptChanged: "prompts",
    e.UsageRecorded: "usage",
    e.UsageRowGone: "usage rows gone",
    e.SessionRerouted: "routes",
    e.RouteClosed: "routes closed",
}


class Told(NamedTuple):
    """An event, but for its version."""

    stream: str
    payload: Payload
    at_us: int
    at_kind: AtKind
    source_ref: bytes | None


class Writer:
    """One run's writing. What it decides on is the log up to `planned_at`.

    Raises (every method that writes):
        VersionConflict: a stream moved since then; the batches before stand, this one does not.
    """

    def __init__(
        self, log: Log, *, planned_at: int, taken: Counter[str], wrote: Callable[[int], None]
    ) -> None:
        self._log = log
        self._planned_at = planned_at
        self._taken = taken
        self._wrote = wrote
        self._actor = default_actor("import")
        self._versions: dict[str, int] = {}
        self._drafts: list[Draft] = []
        self._size_bytes = 0
        self._words: Counter[str] = Counter()

    def version(self, stream: str) -> int:
        """The version that the stream stands at, this run's events included; 0 of a new one."""
        found = self._versions.get(stream)
        if found is None:
            version, position = self._event_of(stream, "DESC")
            self._refuse_later(position)
            found = self._versions[stream] = version
        return found

    def is_new(self, stream: str) -> bool:
        """Whether nothing was ever written to the stream, this run's events apart."""
        version, position = self._event_of(stream, "ASC")
        self._refuse_later(position)  # whoever wrote it may have taken it from the same row
        return version == 0

    def decided_on(self, stream: str, version: int) -> None:
        """The stream was read just now, at `version`."""
        self._versions.setdefault(stream, version)

    def add(self, *unit: Told) -> None:
        """Events of one decision: they come in one save."""
        for told in unit:
            stream = told.stream
            version = (self._versions.get(stream) or self.version(stream)) + 1
            self._versions[stream] = version
            draft = draft_of(Event(stream, version, told.payload, told.at_us, told.at_kind, told.source_ref))
            self._drafts.append(draft)
            self._size_bytes += len(draft.payload)
            self._count(told.payload)
        if len(self._drafts) >= BATCH or self._size_bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> int:
        """Write what is pending; the last position."""
        if not self._drafts:
            return self._planned_at
        try:
            positions = self._log.append(self._drafts, actor=self._actor)
        except Conflict as error:
            raise VersionConflict(
                f"another writer was first: {error}",
                hint="what was taken so far stands; run the import again",
            ) from error
        self._taken.update(self._words)
        self._drafts, self._size_bytes, self._words = [], 0, Counter()
        self._wrote(len(positions))
        return positions[-1]

    def _count(self, payload: Payload) -> None:
        if type(payload) is e.MessageAppended:
            self._words["messages"] += 1
            return
        match payload:
            case e.MessagesCompacted() | e.MessagesRewound() | e.MessagesRestored():
                self._words[_WORDS[type(payload)]] += len(payload.messages)
            case e.SourceRowGone(kind="message"):
                self._words["messages gone"] += len(payload.messages)
            case e.SourceRowGone():
                self._words[f"{payload.kind}s gone"] += 1
            case e.SourceRowChanged():
                self._words[f"other {payload.kind} changes"] += 1
            case _ if type(payload) in _WORDS:
                self._words[_WORDS[type(payload)]] += 1

    def _refuse_later(self, position: int) -> None:
        if position > self._planned_at:
            raise VersionConflict(
                f"another writer was first: event #{position}",
                hint="what was taken so far stands; run the import again",
            )

    def _event_of(self, stream: str, order: Literal["ASC", "DESC"]) -> tuple[int, int]:
        """(version, position) of the stream's first or last event; zeros where it has none."""
        with translated(os.fspath(self._log.path)):
            row = (
                self._log.reader()
                .execute(
                    "SELECT version, position FROM events WHERE stream ="
                    f" (SELECT id FROM streams WHERE name = ?) ORDER BY version {order} LIMIT 1",
                    (stored_name(self._log.reader(), stream),),
                )
                .fetchone()
            )
        return (0, 0) if row is None else (row[0], row[1])
