"""Reads a table row by row around its damage, and says which rows it could not read."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import apsw
import msgspec

#: What SQLite raises for a page, a record or a length that makes no sense.
DAMAGE = (apsw.CorruptError, apsw.IOError, apsw.NotADBError, apsw.TooBigError, apsw.NoMemError)

LOWEST, HIGHEST = -(2**63), 2**63 - 1
BATCH = 256
#: How many ids past the last readable row are tried where nothing names the highest one.
REACH = 10_000
#: How many ids in a row are tried one by one in a damaged range before the steps grow.
PATIENCE = 200_000


class RawText(msgspec.Struct, frozen=True):
    """A TEXT value that is no valid UTF-8, as its bytes."""

    raw: bytes


Value: TypeAlias = "int | float | str | bytes | RawText | None"
Row: TypeAlias = dict[str, Value]
Found: TypeAlias = tuple[int, tuple[Value, ...]]


class Lost(msgspec.Struct, frozen=True):
    """Rows that could not be read.

    Attributes:
        first, last: rowids; None when not even these are known (a `first` alone: from there on).
        session_id: whose they were, where an index still tells it.
        rows: how many; None when only the range is known.
    """

    table: str
    first: int | None
    last: int | None
    session_id: str | None
    detail: str
    rows: int | None = None


def ask(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    return db.execute(sql, tuple(values)).fetchall()


def be_lenient(db: apsw.Connection) -> None:
    """Take in as much of a damaged schema, or of a file that was cut off, as there is.

    Of a connection that cannot write, this changes nothing but what SQLite refuses to read
    (https://sqlite.org/pragma.html#pragma_writable_schema).
    """
    db.execute("PRAGMA writable_schema = ON")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class TableScan:
    """One pass over a rowid table, in rowid order, that goes on behind every damaged page.

    Attributes:
        unreadable: ranges of rowids that raised; gaps between rows may be among them.
            What `from_leaves` gives in place of a tree that cannot be walked is not among them.
        misplaced: rows that a damaged page showed under a rowid which is not theirs.
    """

    def __init__(
        self,
        db: apsw.Connection,
        table: str,
        columns: Sequence[str],
        known_highest: Callable[[], int | None],
        from_leaves: Callable[[int], Iterator[Found] | None] = lambda _: None,
    ) -> None:
        self._db = db
        self._table = table
        self._columns = columns
        self._known_highest = known_highest
        self._from_leaves = from_leaves
        self._edge: int | None = None
        self._limit: int | None = None
        plain = ", ".join(quoted(c) for c in columns)
        told = ", ".join(
            f"typeof({c}), CASE typeof({c}) WHEN 'text' THEN CAST({c} AS BLOB) ELSE {c} END"
            for c in map(quoted, columns)
        )
        # NOT INDEXED: the table itself, whatever state its indexes are in.
        source = f"FROM {quoted(table)} NOT INDEXED WHERE rowid"
        self._from = f"SELECT rowid, {plain} {source} >= ? ORDER BY rowid LIMIT ?"
        self._from_raw = f"SELECT rowid, {told} {source} >= ? ORDER BY rowid LIMIT ?"
        self._one = f"SELECT rowid, {plain} {source} = ? LIMIT ?"
        self._one_raw = f"SELECT rowid, {told} {source} = ? LIMIT ?"
        self._between = f"SELECT rowid, {plain} {source} BETWEEN ? AND ? ORDER BY rowid"
        self.unreadable: list[tuple[int, int]] = []
        self.misplaced = 0

    def rows(self) -> Iterator[Found]:
        start: int | None = LOWEST
        while start is not None:
            found, broken = self._read(self._from, self._from_raw, start, BATCH)
            sound = self._sound(found, start)
            broken = broken or len(sound) < len(found)
            if broken and (rest := self._from_leaves(start)) is not None:
                yield from rest
                return
            yield from sound
            if sound:
                if sound[-1][0] == HIGHEST:
                    return
                start = sound[-1][0] + 1
            if broken:
                start = self._behind_damage(start)
            elif len(found) < BATCH:
                return

    def one(self, rowid: int) -> Found | None:
        """The row of this rowid, or None if there is none.

        Raises:
            apsw.CorruptError: it cannot be read.
        """
        found, broken = self._read(self._one, self._one_raw, rowid, 1)
        if broken:
            raise apsw.CorruptError(f"row {rowid} of {self._table} cannot be read")
        return found[0] if found else None

    def between(self, first: int, last: int) -> list[Found]:
        """The rows of a range in one query; [] if some row in it needs to be read alone."""
        try:
            rows = ask(self._db, self._between, (first, last))
        except (*DAMAGE, UnicodeDecodeError):
            return []
        in_order = all(a[0] < b[0] for a, b in pairwise(rows))
        return [(row[0], row[1:]) for row in rows] if in_order else []

    def _read(self, sql: str, raw: str, key: int, limit: int) -> tuple[list[Found], bool]:
        found: list[Found] = []
        try:
            for row in self._db.execute(sql, (key, limit)):
                found.append((row[0], row[1:]))  # noqa: PERF401 - what came before an error counts
        except UnicodeDecodeError:
            return self._read_raw(raw, key, limit)
        except DAMAGE:
            return found, True
        return found, False

    def _read_raw(self, raw: str, key: int, limit: int) -> tuple[list[Found], bool]:
        found: list[Found] = []
        try:
            for row in self._db.execute(raw, (key, limit)):
                values = tuple(map(_told, row[1::2], row[2::2]))
                found.append((row[0], values))
        except DAMAGE:
            return found, True
        return found, False

    def _sound(self, found: list[Found], start: int) -> list[Found]:
        """Those rows that stand where their rowid says; a damaged page may show others."""
        previous = start - 1
        for rowid, _ in found:
            if rowid <= previous:
                break
            previous = rowid
        else:
            return found
        sound = {row[0]: row for row in found if row[0] >= start and self._stands(row)}
        self.misplaced += len(found) - len(sound)
        previous = max(start - 1, 0)
        for rowid in sorted(sound):
            self._note(previous + 1, rowid - 1)
            previous = rowid
        return [sound[rowid] for rowid in sorted(sound)]

    def _stands(self, row: Found) -> bool:
        again, broken = self._read(self._one, self._one_raw, row[0], 1)
        return not broken and again == [row]

    def _behind_damage(self, start: int) -> int | None:
        """The rowid of the first readable row from `start` on, trying every id; None at the end."""
        first = 1 if start == LOWEST else start
        limit = self._highest_known(first)
        tried, tries, step = first, 0, 1
        while tried <= limit:
            found, broken = self._read(self._from, self._from_raw, tried, 1)
            if not broken and not found:
                break
            if not broken and found[0][0] >= tried:
                self._note(first, found[0][0] - 1)
                return found[0][0]
            tries += 1
            step = step * 2 if tries > PATIENCE else 1
            tried += step
        self._note(first, limit if self._limit == limit else HIGHEST)
        return None

    def _note(self, first: int, last: int) -> None:
        if last < first:
            return
        if self.unreadable and self.unreadable[-1][1] + 1 >= first:
            first = self.unreadable.pop()[0]
        self.unreadable.append((first, last))

    def _right_edge(self) -> int:
        """The highest rowid of the table; HIGHEST if that end of it cannot be read."""
        if self._edge is None:
            sql = f"SELECT rowid FROM {quoted(self._table)} NOT INDEXED ORDER BY rowid DESC LIMIT 1"
            try:
                edge: int | None = self._db.execute(sql).get
                self._edge = LOWEST if edge is None else edge
            except DAMAGE:
                self._edge = HIGHEST
        return self._edge

    def _highest_known(self, first: int) -> int:
        """Up to where rows may be looked for; a bounded stretch if nothing names the highest."""
        if self._limit is None:
            named, edge = self._known_highest(), self._right_edge()
            if named is None or named < edge <= named + PATIENCE:
                self._limit = edge
            else:  # a right edge that is unreadable, or far off: then itself a sign of damage
                self._limit = named
        return first + REACH if self._limit == HIGHEST else self._limit


def _told(kind: str, value: Any) -> Value:
    if kind != "text":
        told: Value = value
        return told
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        return RawText(value)


class Guide(msgspec.Struct):
    """What the indexes of a table still know of its rows.

    Attributes:
        owners: rowid -> what the index says of the row.
        whole: every entry of at least one index was read.
    """

    owners: dict[int, str]
    whole: bool
    broken: list[str]


def guiding_indexes(db: apsw.Connection, table: str, column: str) -> list[str]:
    """The complete indexes of `table` that begin with `column`."""
    names: list[str] = []
    try:
        for _, name, _, _, partial in ask(db, f"PRAGMA index_list({quoted(table)})"):
            columns = ask(db, f"PRAGMA index_info({quoted(name)})")
            if not partial and columns and columns[0][2] == column:
                names.append(name)
    except (*DAMAGE, apsw.SQLError):
        return names
    return sorted(names)


def read_guide(db: apsw.Connection, table: str, column: str, telling: str) -> Guide:
    """What the indexes that begin with `column` say in `telling` of each row.

    One whose middle is damaged is read from both its ends.
    """
    guide = Guide({}, False, [])
    for index in guiding_indexes(db, table, column):
        try:
            for order in ("", " DESC"):
                sql = (
                    f"SELECT rowid, CAST({quoted(telling)} AS BLOB) FROM {quoted(table)}"
                    f" INDEXED BY {quoted(index)} ORDER BY {quoted(column)}{order}"
                )
                try:
                    for rowid, owner in db.execute(sql):
                        guide.owners[rowid] = (owner or b"").decode(errors="replace")
                except DAMAGE:
                    if index not in guide.broken:
                        guide.broken.append(index)
                else:
                    guide.whole = True
                    break
        except apsw.SQLError:
            continue  # its expression or collation is not ours to know
        if guide.whole:
            break
    return guide


def index_count(db: apsw.Connection, table: str, column: str) -> int | None:
    """How many rows the first guiding index counts; None without one that can be read."""
    for index in guiding_indexes(db, table, column):
        try:
            count: int = db.execute(f"SELECT count(*) FROM {quoted(table)} INDEXED BY {quoted(index)}").get
            return count
        except (*DAMAGE, apsw.SQLError):
            continue
    return None


def account(scan: TableScan, table: str, seen: array[int], guide: Guide) -> tuple[list[Lost], list[str]]:
    """Name what a finished scan did not deliver; the second list is damage that cost nothing."""
    if scan.unreadable and not seen:
        known = guide.owners or {}
        first, last = min(known, default=None), max(known, default=None)
        rows = len(known) if guide.whole else None
        return [Lost(table, first, last, None, "the whole table is unreadable", rows)], []
    have = set(seen)
    missing = sorted(rowid for rowid in guide.owners if rowid not in have)
    lost: list[Lost] = []
    for first, last, owner in _runs(missing, guide.owners):
        torn = any(a <= last and first <= b for a, b in scan.unreadable)
        detail = "on a damaged page" if torn else "named by an index, but the table does not show it"
        lost.append(Lost(table, first, last, owner, detail, _between(missing, first, last)))
    free: list[str] = []
    for first, last in scan.unreadable:
        if guide.whole:
            if not _between(missing, first, last):
                free.append(f"table {table}: a page around row {first} is damaged, no row is lost")
        else:
            detail = "on a damaged page; how many rows there were is not known"
            end = None if last == HIGHEST else last
            lost.append(Lost(table, first, end, None, detail))
    if scan.misplaced:
        detail = "a damaged page shows these rows under other rows' numbers"
        lost.append(Lost(table, None, None, None, detail, scan.misplaced))
    return lost, free


def _runs(missing: list[int], owners: dict[int, str]) -> Iterator[tuple[int, int, str]]:
    """Neighbours among the missing that belong together, as (first, last, owner)."""
    run: list[int] = []
    for rowid in missing:
        if run and (rowid != run[-1] + 1 or owners[rowid] != owners[run[0]]):
            yield run[0], run[-1], owners[run[0]]
            run = []
        run.append(rowid)
    if run:
        yield run[0], run[-1], owners[run[0]]


def _between(numbers: list[int], first: int, last: int) -> int:
    return bisect_right(numbers, last) - bisect_left(numbers, first)
