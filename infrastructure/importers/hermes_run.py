"""One run over a Hermes home: what every phase of the import needs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...domain.errors import BadUsage
from ...domain.events import AtKind, ImportRan, ParentKind, Payload, session_stream
from ...projections.base import Connection
from ..log import Log
from ..streams import source_stream
from .hermes_home import HermesHome
from .report import Findings, Progress
from .writer import Told, Writer


class SessionPlan(msgspec.Struct, gc=False):
    """A session of the home, and what is to be told of it.

    Attributes:
        row, seen: as it is there now, and as it was last seen (None: never); see `packed`.
        left_out: another home brought this id, or it was erased here; `refused`: the former.
        rowless: only its messages still name it.
        begin, began_us: where it stands in the order of time, and when it began, as far as is known.
        first, clock, latest: the earliest time of its messages, the latest reached so far, and the
            last one's (seconds).
        pending, late: new messages read so far, and those of them that known ones come after.
        ending: its end, if that is to be told; `held`: where in time it stands, if it is told last, since
            turns wait here; `later`: what has no time of its own.
    """

    id: str
    number: int
    row: bytes
    seen: bytes | None = None
    left_out: bool = False
    refused: bool = False
    rowless: bool = False
    parent: str | None = None
    kind: ParentKind | None = None
    first: float = float("inf")
    clock: float = float("-inf")
    latest: float = 0.0
    begin: float = float("inf")
    began_us: int = 0
    pending: int = 0
    late: int = 0
    reopens: bool = False
    ending: Payload | None = None
    held: float | None = None
    later: list[Payload] | None = None

    @property
    def stream(self) -> str:
        """Its stream in the log."""
        return session_stream(self.id)

    @property
    def is_new(self) -> bool:
        """Whether it was never seen before."""
        return self.seen is None and not self.left_out


class Run:
    """A run's surroundings, and the few things it counts."""

    def __init__(
        self,
        home: HermesHome,
        log: Log,
        db: Connection,
        store: str,
        *,
        planned_at: int,
        observed_us: int,
        now_us: int,
        findings: Findings,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.home = home
        self.log = log
        self.identity = log.identity
        self.db = db
        self.store = store
        self.observed_us = min(observed_us, now_us)
        self.now_us = now_us
        self.findings = findings
        self._progress = progress
        self.phase, self.done, self.total = "reading", 0, None
        self.source = source_number(db, store)
        self.erased = {bytes(row[0]) for row in db.execute("SELECT ref FROM source_erased")}
        self.writer = Writer(log, planned_at=planned_at, taken=findings.taken, wrote=self._wrote)
        self.waiting = {row[0] for row in rows(db, "SELECT id FROM sessions WHERE waiting IS NOT NULL")}
        self.led_away: set[str] = set()
        """Sessions in which turns wait here, and that this run led their key away from."""
        self.plans: dict[str, SessionPlan] = {}
        self.numbered: list[SessionPlan] = []

    phase: str
    done: int
    total: int | None

    def begin(self, phase: str, total: int | None) -> None:
        """Another phase begins."""
        self.phase, self.done, self.total = phase, 0, total
        self.advance(0)

    def advance(self, by: int) -> None:
        """Say how far the phase has come."""
        self.done += by
        if self._progress is not None:
            self._progress(Progress(self.phase, self.done, self.total))

    def _wrote(self, events: int) -> None:
        if self.phase == "taking in":
            self.advance(events)

    def was_written_by(self, at_us: int) -> None:
        """The home holds something of that time, whatever the date of its file."""
        if at_us <= self.now_us:
            self.observed_us = max(self.observed_us, at_us)

    def ref(self, kind: str, row: str | int) -> bytes:
        """What stays of where an event came from, even when its payload is erased."""
        return self.identity.keyed_hash(self.store, kind, row)

    def told(
        self,
        stream: str,
        payload: Payload,
        row: str | int,
        *,
        kind: str = "",
        at_us: int | None = None,
        at_kind: AtKind = "no_later_than",
    ) -> Told:
        """An event that this home tells; of what has no time of its own, by when it was so."""
        return Told(
            stream,
            payload,
            self.observed_us if at_us is None else at_us,
            at_kind,
            self.ref(kind or payload.topic, row),
        )

    def is_erased(self, kind: str, row: str | int) -> bool:
        """Whether what this row brought was erased here: then it stays erased."""
        return bool(self.erased) and self.ref(kind, row) in self.erased


def source_number(db: Connection, store: str) -> int:
    """The store's number in the projection; 0 for one never seen."""
    row = db.execute("SELECT id FROM source_homes WHERE store = ?", (store,)).fetchone()
    return 0 if row is None else int(row[0])


def readable(path: Path) -> str:
    """The path as text that can be stored, whatever bytes its name has."""
    return os.fsencode(path).decode(errors="backslashreplace")


def file_store(name: str, content: str) -> str:
    """What stands for a home's path where it is a file of exported sessions: its name and its content."""
    return f"{name}#{content}"


def file_of(path: str | None) -> str | None:
    """The file that `file_store` names; None for the path of a home."""
    found = _FILE_STORE.fullmatch(path or "")
    return None if found is None else found[1]


_FILE_STORE = re.compile(r"(.+)#[0-9a-f]{16}", re.DOTALL)


def store_of(log: Log, db: Connection, path: Path, moved_from: Path | None) -> str:
    """The fingerprint of the home at `path`: the same at each run, and after a declared move.

    Raises:
        BadUsage: `moved_from` is no home that was imported.
    """
    # Of several that were at one path, the last one: the others have moved, or were refused there.
    known_homes = "SELECT store, path FROM source_homes WHERE path IS NOT NULL ORDER BY last_run DESC"
    paths: dict[str, str] = dict(db.execute(known_homes))
    for wanted in (path if moved_from is None else moved_from, path):
        for store, known in paths.items():
            if known == readable(wanted) and (wanted == moved_from or _was_at(log, store, moved_from)):
                return store
    if moved_from is not None:
        known_paths = ", ".join(sorted(set(paths.values()))) or "none"
        raise BadUsage(
            f"no home was imported from {readable(moved_from)}", hint=f"imported homes: {known_paths}"
        )
    turn = 0
    while True:
        store = log.identity.keyed_hash("source", os.fsencode(path), turn).hex()
        if store not in paths:
            return store
        turn += 1  # the home that was here has moved on, and goes on under its first fingerprint


def _was_at(log: Log, store: str, path: Path | None) -> bool:
    """Whether a store was once imported from a path; None asks nothing."""
    if path is None:
        return True
    runs = log.stream_events(source_stream(store))
    return any(isinstance(run.payload, ImportRan) and run.payload.path == readable(path) for run in runs)


def rows(db: Connection, sql: str, *values: Any) -> list[Any]:
    """All rows of a query."""
    return db.execute(sql, values).fetchall()


def rows_of(db: Connection, sql: str, column: str, among: Collection[str] | None) -> Iterator[Any]:
    """All rows of a query without a condition; only those whose column is one of `among`, if given."""
    if among is None:
        yield from db.execute(sql)
        return
    texts = msgspec.json.encode(sorted(among)).decode()
    yield from db.execute(f"{sql} WHERE {column} IN (SELECT value FROM json_each(?))", (texts,))


def known_messages(run: Run, columns: str, ids: Sequence[int]) -> Iterator[Any]:
    """Rows of source_messages by a source's ids: at once where these are close together, else one by one."""
    first, last = min(ids), max(ids)
    if last - first < _CLOSE * len(ids):
        sql = f"SELECT {columns} FROM source_messages WHERE source = ? AND source_id BETWEEN ? AND ?"
        yield from run.db.execute(sql, (run.source, first, last))
        return
    sql = f"SELECT {columns} FROM source_messages WHERE source = ? AND source_id = ?"
    for each in ids:
        yield from run.db.execute(sql, (run.source, each))


_CLOSE = 8
