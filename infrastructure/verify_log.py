"""Checks the log from its first row to its last: chain, gaps, payloads; damage never hides what follows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

import apsw
import msgspec

from ..domain.errors import BadUsage, LogDamaged
from ..domain.events import BY_TOPIC, PayloadsErased
from . import codec
from .log import Head, Log
from .log_schema import AT_UNSAID, link
from .past_damage import DAMAGED, Row, Unreadable, end_of_table, last_position, ranges, rows
from .sqlite import one, translated

RESTORE = "restore a backup of events.db"
_STEP = 2_000
_EXPECTED = re.compile(r"#?(\d{1,18}):([0-9a-fA-F]{8,64})")
_PAGE_OF = re.compile(r"Tree (\d+)")
_ROW_OF = re.compile(r"row (\d+) missing from index")

Progress = Callable[[str, int, int], None]
"""(what is being checked, done, total)"""


class Problem(msgspec.Struct, frozen=True):
    """Something that does not hold."""

    kind: str
    positions: list[list[int]]
    """Where in the log, as [first, last] of each unbroken run; [] where it is no position's."""
    detail: str
    cure: str


class Expected(msgspec.Struct, frozen=True):
    """A head that an earlier verify, a backup or an export printed."""

    position: int
    hash: str
    """At least the first 8 hexadecimal digits."""

    @classmethod
    def parse(cls, text: str) -> Expected:
        """`#POS:HASH`; the # may be left out, since a shell takes it for a comment.

        Raises:
            BadUsage: it is of another form.
        """
        found = _EXPECTED.fullmatch(text.strip())
        if found is None:
            raise BadUsage(
                f"'{text}' is not of the form #POSITION:HASH (at least 8 hexadecimal digits)",
                hint="retold verify prints one as the head",
            )
        return cls(int(found[1]), found[2].lower())


class LogReport(msgspec.Struct, frozen=True):
    """What the log is found to be."""

    ok: bool
    events: int
    head: Head
    problems: list[Problem]
    unknown_topics: list[str]
    """Of a newer program; their payloads could be hashed but not decoded."""
    readable: bool
    """Whether every event can be read: else a fold from nothing says nothing about projections."""


class _Walk:
    """One pass over the rows, remembering what the next row is held against."""

    def __init__(self, genesis: bytes, db: apsw.Connection) -> None:
        self.db = db
        self.found: dict[str, list[list[int]]] = {}
        self.details: dict[str, str] = {}
        self.last = 0
        self.stored = self.computed = genesis
        self.linked = True
        """Whether the row before is known, so that the link to it can be checked."""
        self.last_hole = 0
        self.last_read = 0
        self.save: tuple[int, int, str] | None = None
        self.streams: dict[int, tuple[str, int, int]] = {}
        """id -> name, last version, position of it"""
        self.emptied: list[int] = []
        self.erased: set[int] = set()
        self.others: dict[int, bytes] = {}
        """Hashes of payloads that are not those that were written."""
        self.doubtful: dict[int, PayloadsErased] = {}
        """Records of erasures among them: to be believed once another names them."""
        self.masked: dict[int, bytes] = {}
        self.events = 0
        self.unknown: set[str] = set()

    def blame(self, kind: str, first: int, detail: str, last: int | None = None) -> None:
        runs = self.found.setdefault(kind, [])
        if runs and first <= runs[-1][1] + 1:
            runs[-1][1] = max(runs[-1][1], last or first)
        else:
            runs.append([first, last or first])
        self.details.setdefault(kind, detail)

    def hole(self, upto: int) -> None:
        self.last_hole = upto
        self.linked = False

    def unreadable(self, what: Unreadable) -> None:
        self.blame("unreadable", what.position, what.detail)
        self.gap(what.position)
        self.hole(what.position)
        self.last = what.position

    def gap(self, position: int) -> None:
        """Name the positions between the last row and this one."""
        if position > self.last + 1:
            self.blame("gap", self.last + 1, "no event stands there", position - 1)
            self.hole(position - 1)

    def row(self, row: Row) -> None:
        self.events += 1
        if row.position <= self.last:
            self.blame("order", row.position, f"it comes after #{self.last} in the file")
            return
        self.gap(row.position)
        try:
            self.envelope(row)
        except (TypeError, ValueError, OverflowError) as error:
            self.blame("chain", row.position, f"a column holds what no event can: {error}")
            self.hole(row.position)
        try:
            self.payload(row)
        except (TypeError, ValueError) as error:
            self.blame("payload", row.position, str(error))
        self.last = self.last_read = row.position

    def envelope(self, row: Row) -> None:
        known = self.streams.get(row.stream)
        if known is None:
            known = (self.named(row), 0, 0)
        columns = (
            row.position,
            known[0],
            row.version,
            row.topic,
            row.at_us,
            row.at_kind,
            row.recorded_at_us,
            row.actor,
            row.caused_by,
            row.save,
            row.source_ref,
            row.idempotency_key,
            row.payload_hash,
        )
        follows = link(self.stored, columns)
        if self.linked and follows != row.chain:
            # Where the row before lies about its own value only, this one follows the true value.
            if self.stored == self.computed or link(self.computed, columns) != row.chain:
                self.blame("chain", row.position, "its chain value is not that of its columns")
            else:
                follows = row.chain
        self.stored, self.computed, self.linked = row.chain, follows, True
        self.version(row, known)
        self.group(row)

    def named(self, row: Row) -> str:
        """The name of the row's stream, or "" where it has none that can be read."""
        try:
            name: str | None = one(self.db, "SELECT name FROM streams WHERE id = ?", (row.stream,))
        except DAMAGED as error:
            self.blame("stream", row.position, f"the name of its stream cannot be read: {error}")
            return ""
        if name is None:
            self.blame("stream", row.position, f"it belongs to stream {row.stream}, which has no name")
        return name or ""

    def version(self, row: Row, known: tuple[str, int, int]) -> None:
        name, version, at = known
        self.streams[row.stream] = (name, max(row.version, version), row.position)
        if row.at_kind == AT_UNSAID or row.version == version + 1:
            return  # other applications of the library number as they like
        if row.version > version and self.last_hole > at:
            return  # what is missing in between is named already
        self.blame("version", row.position, f"version {row.version} follows {version} in its stream")

    def group(self, row: Row) -> None:
        before, self.save = self.save, (row.save, row.recorded_at_us, row.actor)
        if row.save == row.position or before == self.save:
            return
        if row.save < row.position and self.last_hole >= row.save:
            return
        self.blame("save", row.position, f"it says that it was saved together with #{row.save}")

    def payload(self, row: Row) -> None:
        if row.payload is None:
            self.emptied.append(row.position)
            return
        if row.salt is None:
            self.blame("payload", row.position, "its salt is gone, and its payload is not")
            return
        plain = row.payload
        if codec.payload_hash(plain, row.salt) != row.payload_hash:
            try:
                plain = codec.unpack(row.payload)
            except Exception as error:  # noqa: BLE001  # zstd's, whose class differs between Python versions
                self.blame("payload", row.position, f"its bytes cannot be unpacked: {error}")
                return
            if codec.payload_hash(plain, row.salt) != row.payload_hash:
                self.others[row.position] = codec.payload_hash(plain, row.salt)
                self.doubt(row, plain)
                return
        if row.at_kind == AT_UNSAID:
            return
        try:
            payload = codec.decode(row.topic, plain, position=row.position)
        except LogDamaged as error:
            self.blame("undecodable", row.position, error.message)
            return
        if isinstance(payload, PayloadsErased):
            self.erased.update(payload.positions)
            self.masked.update(payload.masked)
        elif row.topic not in BY_TOPIC:
            self.unknown.add(row.topic)

    def doubt(self, row: Row, plain: bytes) -> None:
        """A payload that may be masked, or may have been tampered with; the end tells."""
        with contextlib.suppress(LogDamaged):
            payload = codec.decode(row.topic, plain, position=row.position)
            if isinstance(payload, PayloadsErased):
                self.doubtful[row.position] = payload

    def believe(self) -> None:
        """Take the word of records that were masked themselves, where one that stands unchanged says so."""
        named = [at for at in self.doubtful if self.masked.get(at) == self.others[at]]
        while named:
            record = self.doubtful.pop(named[0])
            self.erased.update(record.positions)
            self.masked = {**record.masked, **self.masked}
            named = [at for at in self.doubtful if self.masked.get(at) == self.others[at]]

    def end(self) -> None:
        first = self.last_read + 1
        self.blame("end", first, f"from #{first} on nothing can be read", max(first, self.last))

    def finish(self) -> None:
        self.believe()
        for position in self.emptied:
            if position not in self.erased:
                self.blame("emptied", position, "its payload is empty, and no PayloadsErased names it")
        for position, found in self.others.items():
            if self.masked.get(position) != found:
                self.blame("payload", position, "its bytes are not those that were hashed")


def verify_log(log: Log, expect: Expected | None = None, progress: Progress | None = None) -> LogReport:
    """Hold every row against the one before it, and every payload against its hash."""
    with translated(str(log.path)):
        db = log.reader()
        db.execute("BEGIN")
        try:
            upto = last_position(db)
            walk = _Walk(log.identity.genesis, db)
            for at in rows(db, upto):
                if isinstance(at, Unreadable):
                    walk.unreadable(at)
                else:
                    walk.row(at)
                if progress is not None and walk.events % _STEP == 0:
                    progress("log", walk.last, upto)
            walk.finish()
            if end_of_table(db) is None:
                walk.end()
            problems = [Problem(kind, runs, walk.details[kind], RESTORE) for kind, runs in walk.found.items()]
            if progress is not None:
                progress("file of the log", upto, upto)
            problems += _file(db)
            head = Head(walk.last, walk.stored)
            if expect is not None:
                problems += _expected(db, expect, head, log)
        finally:
            with contextlib.suppress(apsw.Error):
                db.execute("COMMIT")
    unread = {"unreadable", "gap", "order", "payload", "undecodable", "emptied", "stream", "end"}
    return LogReport(
        not problems,
        walk.events,
        head,
        problems,
        sorted(walk.unknown),
        not any(problem.kind in unread for problem in problems),
    )


def sqlite_says(db: apsw.Connection, pragma: str) -> list[str]:
    """What a check of SQLite's own answers; it may fail half way, with its first answers given."""
    said: list[str] = []
    try:
        said.extend(str(row[0]) for row in db.execute(pragma))
    except (apsw.CorruptError, apsw.IOError) as error:
        if not said:
            said.append(str(error))
    return said


def _file(db: apsw.Connection) -> list[Problem]:
    """What SQLite itself says, by table or index."""
    said = sqlite_says(db, "PRAGMA integrity_check(1000)")
    if said == ["ok"]:
        return []
    roots: dict[int, str] = {}
    with contextlib.suppress(apsw.Error):
        sql = "SELECT rootpage, type, name FROM sqlite_schema"
        roots = {row[0]: f"{row[1]} {row[2]}" for row in db.execute(sql)}
    by_object: dict[str, list[str]] = {}
    positions: dict[str, list[int]] = {}
    for line in (" ".join(part.split()) for each in said for part in each.split("\n")):
        if line.startswith("***") or not line:
            continue
        tree, index = _PAGE_OF.search(line), re.search(r"index (\w+)", line)
        name = roots.get(int(tree[1]), "a table") if tree else f"index {index[1]}" if index else "events.db"
        by_object.setdefault(name, []).append(line)
        if row := _ROW_OF.search(line):
            positions.setdefault(name, []).append(int(row[1]))
    return [
        Problem(
            "index" if name.startswith("index ") else "file",
            ranges(positions.get(name, [])),
            f"{name}: {lines[0]}" + (f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""),
            RESTORE,
        )
        for name, lines in by_object.items()
    ]


def _expected(db: apsw.Connection, expect: Expected, head: Head, log: Log) -> list[Problem]:
    where = [[expect.position, expect.position]]
    told = f"#{expect.position}:{expect.hash}"
    if expect.position > head.position:
        detail = f"{told} was expected, and the log ends at #{head.position}: events are missing"
        return [Problem("expected", where, detail, RESTORE)]
    found = chain_at(db, expect.position, log)
    if found is not None and found.startswith(expect.hash):
        return []
    held = "cannot be read there" if found is None else f"holds {found} there"
    return [Problem("expected", where, f"{told} was expected, and the log {held}", RESTORE)]


def chain_at(db: apsw.Connection, position: int, log: Log) -> str | None:
    """The chain value at a position in hexadecimal digits, or None where it cannot be read."""
    if position == 0:
        return log.identity.genesis.hex()
    try:
        found = db.execute("SELECT chain FROM events WHERE position = ?", (position,)).fetchone()
    except (apsw.CorruptError, apsw.IOError):
        return None
    return None if found is None else bytes(found[0]).hex()
