"""Takes in the session logs of coding agents, or what is new in them; runs it as often as one likes.

A log only grows, and its tool deletes it after a while: what came in stays. All logs of one tool are one
store, wherever they lie, since their ids are their own: a folder that moved, a single file and a copy of
it bring nothing twice.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias, cast

import msgspec

from ...domain import events as e
from ...domain.errors import NotAStore
from ...domain.events import Event
from ...domain.text import scrub
from ..blame import blaming
from ..clock import now_us
from ..drafts import draft_of
from ..fold_ahead import folding_ahead
from ..projector import Projector
from ..retry import decide_again
from ..streams import source_stream
from .agent_sessions import LogSession
from .agent_taking import Taking
from .file_kind import kinds_of
from .hermes import WAIT_S, Target
from .hermes_run import readable
from .log_lines import Line, Record, lines_of
from .report import Findings, ImportReport, Progress, at_most
from .turn import my_turn

Heads: TypeAlias = dict[str, str]
"""Titles by the message that they were made at, from whatever file they stand in."""
_BYTES_A_LINE: Final = 1_500
_TIME: Final = re.compile(rb'"timestamp" ?: ?"([^"]{10,40})"')


class LogKind(ABC):
    """How one tool writes its logs.

    Attributes:
        name: the source of its sessions; `title`: the tool, for a person.
        column: of a message, holds what no other column bears of its line.
    """

    name: str
    column: str
    title: str

    @abstractmethod
    def files(self, root: Path) -> list[Path]:
        """The logs below a folder."""

    @abstractmethod
    def is_record(self, record: Record) -> bool:
        """Whether an object found in a damaged line is a whole record."""

    @abstractmethod
    def session_of(self, path: Path, lines: Iterable[Line]) -> str | None:
        """The session that a file is of; None for a file of something else."""

    @abstractmethod
    def head(self, record: Record, heads: Heads) -> None:
        """Take up what a line says of another session."""

    @abstractmethod
    def read(self, session_id: str, files: Iterable[tuple[Path, Iterator[Line]]], found: Found) -> None:
        """Give `found` the session of these files, and those that stand in it."""


class Found:
    """What reading finds on its way."""

    def __init__(self, heads: Heads, findings: Findings, tell: Callable[[LogSession], None]) -> None:
        self.heads = heads
        self.lost: dict[str, None] = {}
        self.session = tell
        self._findings = findings

    def skip(self, line: str) -> None:
        """Put down what was left out."""
        self._findings.skip(line)

    def takes(self, path: Path, line: Line) -> bool:
        """Whether there is a record in the line; what is wrong with it is put down."""
        where = f"{readable(path)}:{line.number}"
        if line.half:
            self._findings.note(f"{where}: the last line is not whole yet; it was left for the next import")
        elif line.why is not None:
            rest = "what is whole in it was taken in" if line.record is not None else "it was passed over"
            self.lost[scrub(f"{where}: {line.why}; {rest}")[0]] = None
        return line.record is not None


def logs_at(kind: LogKind, path: Path) -> list[Path]:
    """The logs of one tool at `path`, a folder or a file.

    Raises:
        NotAStore: there are none.
    """
    try:
        found = [path] if path.is_file() else kind.files(path) if path.is_dir() else None
    except OSError as error:
        raise NotAStore(f"{path} cannot be read: {error.strerror or error}") from error
    if found is None:
        raise NotAStore(
            f"there is no {path}", hint=f"name a folder with logs of {kind.title}, or one of them"
        )
    if not found:
        raise NotAStore(
            f"{path} holds no logs of {kind.title}", hint="name the folder that they are in, or one of them"
        )
    reason = ""
    for each in found:
        reason = _is_other(kind, each)
        if not reason:
            return found
    where = "" if path.is_file() else f"{readable(path)} holds no log of {kind.title}: "
    raise NotAStore(
        f"{where}{readable(found[-1])} {reason}",
        hint=f"name a folder with logs of {kind.title}, or one of them",
    )


def _is_other(kind: LogKind, path: Path) -> str:
    """Why a file is no log of this tool, whatever its name; "" for one that may be, or is empty."""
    try:
        if not path.stat().st_size:
            return ""
        kinds = kinds_of(path)
        if any(each.command == kind.name for each in kinds):
            return ""
        if kinds:
            first = kinds[0]
            how = f"; take it in with: retold import {first.command}" if first.command else ""
            return f"is {first.words}, not a log of {kind.title}{how}"
        if kind.session_of(path, lines_of(path, kind.is_record)) is None:
            return f"is no log of {kind.title}: no line of it is one"
    except OSError:
        pass  # told of where it is read
    return ""


def import_logs(
    target: Target, kind: LogKind, path: Path, *, progress: Callable[[Progress], None] | None = None
) -> ImportReport:
    """Take in the logs at `path`, a folder or a file; nothing there is written.

    Raises:
        NotAStore: there are none.
        VersionConflict, StoreBusy, NoRoom: what was taken so far stands; run it again.
    """
    files = logs_at(kind, path)
    projector = target.projector
    folder = projector.log.path.parent

    def waiting() -> None:
        if progress is not None:
            progress(Progress("waiting for another import", 0, None))

    with my_turn(folder, waiting=waiting, timeout_s=WAIT_S), blaming(projector.log, lambda: projector):
        return _import(projector, kind, path, files, progress)


def _import(
    projector: Projector,
    kind: LogKind,
    path: Path,
    files: list[Path],
    progress: Callable[[Progress], None] | None,
) -> ImportReport:
    started_s = time.monotonic()
    log = projector.log
    store = log.identity.keyed_hash("source", f"logs of {kind.name}").hex()
    findings = Findings()
    lost = decide_again(lambda: _take(projector, kind, store, files, findings, progress))
    ran = e.ImportRan(
        readable(path),
        None,
        dict(findings.taken),
        dict(findings.unchanged),
        at_most(list(findings.conflicts)),
        [],  # what is lost of a store may be of any chat of it, says `why`; no chat is in these logs
        at_most([*lost, *findings.skipped]),
        at_most(list(findings.notes)),
    )

    def append() -> int:
        stream = source_stream(store)
        version = log.stream_version(stream) + 1
        return log.append([draft_of(Event(stream, version, ran, now_us()))])[0]

    position = decide_again(append)
    projector.catch_up()
    return findings.report(readable(path), position, started_s, lost=lost)


def _take(
    projector: Projector,
    kind: LogKind,
    store: str,
    files: list[Path],
    findings: Findings,
    progress: Callable[[Progress], None] | None,
) -> list[str]:
    """Read and write, session by session, the one that began first at first; what could not be read."""
    log = projector.log
    planned_at = log.head().position
    projector.catch_up()
    findings.begin_again()
    db = projector.state.reader()
    db.execute("BEGIN")  # what was seen stays as it was, whoever folds meanwhile
    try:
        taking = Taking(log, db, store, kind.name, kind.column, planned_at=planned_at, findings=findings)
        heads: Heads = {}
        found = Found(heads, findings, taking.tell)
        sessions, size_bytes = _by_session(kind, files, found)
        done = 0
        with folding_ahead(projector, size_bytes // _BYTES_A_LINE):
            for session_id, paths in sessions:
                kind.read(session_id, _opened(kind, paths, found), found)
                done += len(paths)
                if progress is not None:
                    progress(Progress("taking in", done, len(files)))
            taking.writer.flush()
        if taking.beside:
            findings.taken["messages"] -= taking.beside
            findings.taken["other lines"] += taking.beside
            findings.taken += Counter()  # without what came to nothing
        return list(found.lost)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _by_session(kind: LogKind, files: list[Path], found: Found) -> tuple[list[tuple[str, list[Path]]], int]:
    """The files of each session in order of their first times, and how large they are altogether."""
    sessions: dict[str, list[tuple[bytes, Path]]] = {}
    size_bytes = 0
    for path in files:
        try:
            size = path.stat().st_size
            if reason := _is_other(kind, path):
                found.skip(f"{readable(path)}: it {reason}")
                continue
            session_id = kind.session_of(path, lines_of(path, kind.is_record)) if size else None
            first = _first_time(kind, path, found.heads)
        except OSError as error:
            found.lost[f"{readable(path)}: it cannot be read: {error.strerror or error}"] = None
            continue
        size_bytes += size
        if session_id is not None:
            sessions.setdefault(session_id, []).append((first, path))
    ordered = sorted((min(paths), session_id) for session_id, paths in sessions.items())
    return [(each, [path for _, path in sorted(sessions[each])]) for _, each in ordered], size_bytes


def _first_time(kind: LogKind, path: Path, heads: Heads) -> bytes:
    first = None
    with path.open("rb") as file:
        for raw in file:
            if first is None and (named := _TIME.search(raw)):
                first = named[1]
            if b'"leafUuid"' in raw:
                with suppress(msgspec.DecodeError):
                    record = msgspec.json.decode(raw)
                    if isinstance(record, dict):
                        kind.head(cast("Record", record), heads)
    return first or b"~"


def _opened(kind: LogKind, paths: list[Path], found: Found) -> Iterator[tuple[Path, Iterator[Line]]]:
    for path in paths:
        yield path, _read(kind, path, found)


def _read(kind: LogKind, path: Path, found: Found) -> Iterator[Line]:
    try:
        yield from lines_of(path, kind.is_record)
    except OSError as error:
        found.lost[f"{readable(path)}: it cannot be read on: {error.strerror or error}"] = None
