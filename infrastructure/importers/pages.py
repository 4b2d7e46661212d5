"""Reads the pages of a database file as they are, below what SQLite makes of them.

The layout is that of https://sqlite.org/fileformat2.html. Nothing here raises for damage: what
makes no sense is passed over.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import apsw

TABLE_INNER, TABLE_LEAF = 0x05, 0x0D
SCHEMA_ROOT = 1
#: Pages are read this many at once, and the last few such runs are kept.
RUN_PAGES = 64
KEPT_RUNS = 32
UTF8 = 1


#: What the file layer raises for a place that cannot be read.
UNREADABLE = (apsw.Error, OSError)


class Cell(NamedTuple):
    """A row on a leaf: its payload begins at byte `at` of the page."""

    rowid: int
    size_bytes: int
    at: int


class Pages:
    """The pages of one state of a database, by number from 1 on."""

    def __init__(self, read: Callable[[int, int], bytes], total_bytes: int) -> None:
        self._read = read
        self._runs: OrderedDict[int, bytes] = OrderedDict()
        head = read(0, 100)
        size = int.from_bytes(head[16:18], "big")
        self.size_bytes = 65536 if size == 1 else size
        self.usable_bytes = self.size_bytes - head[20]
        self.readable = size in (1, *(1 << power for power in range(9, 16))) and head[20] <= 32
        self.readable = self.readable and head[56:60] == UTF8.to_bytes(4, "big")
        self.count = total_bytes // self.size_bytes if self.readable else 0
        self._first_trunk = int.from_bytes(head[32:36], "big")
        self._free_count = int.from_bytes(head[36:40], "big")

    def get(self, number: int) -> bytes:
        """A page; b"" outside the file."""
        if not 1 <= number <= self.count:
            return b""
        run, place = divmod(number - 1, RUN_PAGES)
        if run in self._runs:
            self._runs.move_to_end(run)
        else:
            self._runs[run] = self._read_run(run * RUN_PAGES)
            if len(self._runs) > KEPT_RUNS:
                self._runs.popitem(last=False)
        return self._runs[run][place * self.size_bytes : (place + 1) * self.size_bytes]

    def _read_run(self, first: int) -> bytes:
        size, count = self.size_bytes, min(RUN_PAGES, self.count - first)
        try:
            return self._read(first * size, count * size)
        except UNREADABLE:  # one bad sector hides only its own page
            return b"".join(self._read_alone(page * size) for page in range(first, first + count))

    def _read_alone(self, offset: int) -> bytes:
        try:
            return self._read(offset, self.size_bytes)
        except UNREADABLE:
            return bytes(self.size_bytes)

    def kind(self, number: int) -> int:
        """The first byte of a page, which tells what it is in a tree; -1 outside the file."""
        page = self.get(number)
        return page[_start(number)] if page else -1

    def free(self) -> tuple[set[int], bool]:
        """The pages that hold nothing (but deleted rows); and whether all of them could be found."""
        found: set[int] = set()
        trunk = self._first_trunk
        while trunk:
            page = self.get(trunk)
            if not page or trunk in found:
                return found, False
            found.add(trunk)
            leaves = int.from_bytes(page[4:8], "big")
            if leaves > self.usable_bytes // 4 - 2:
                return found, False
            found.update(int.from_bytes(page[8 + 4 * i : 12 + 4 * i], "big") for i in range(leaves))
            trunk = int.from_bytes(page[:4], "big")
        whole = len(found) == self._free_count and all(1 <= page <= self.count for page in found)
        return found, whole

    def children(self, number: int) -> tuple[list[tuple[int, int | None]], bool]:
        """(page, highest rowid below it) of an inner page of a table, and whether they are in order.

        The last child has no highest rowid.
        """
        page, start = self.get(number), _start(number)
        found: list[tuple[int, int | None]] = []
        ordered, previous = True, None
        for at in _pointers(page, start, start + 12, self.usable_bytes):
            key, end = varint(page, at + 4)
            if at == 0 or end > self.usable_bytes:
                ordered = False
                continue
            key = signed(key)
            ordered = ordered and (previous is None or key > previous)
            previous = key
            found.append((int.from_bytes(page[at : at + 4], "big"), key))
        found.append((int.from_bytes(page[start + 8 : start + 12], "big"), None))
        return found, ordered

    def cells(self, number: int) -> Iterator[Cell]:
        """The rows of a leaf of a table."""
        page, start = self.get(number), _start(number)
        for at in _pointers(page, start, start + 8, self.usable_bytes):
            if at == 0:
                continue
            size, after = varint(page, at)
            rowid, after = varint(page, after)
            if after <= self.usable_bytes and size <= self.count * self.size_bytes:
                local = self._local(size)
                if after + local + (4 if local < size else 0) <= self.usable_bytes:
                    yield Cell(signed(rowid), size, after)

    def payload(self, number: int, cell: Cell, closed: Callable[[int], bool]) -> bytes | None:
        """The record of a row with all that flowed over; None if that cannot be followed.

        `closed` tells of a page that it cannot be part of a row.
        """
        page, local = self.get(number), self._local(cell.size_bytes)
        start = page[cell.at : cell.at + local]
        if local == cell.size_bytes:
            return start
        parts, missing = [start], cell.size_bytes - local
        following = int.from_bytes(page[cell.at + local : cell.at + local + 4], "big")
        passed: set[int] = set()
        while missing:
            page = self.get(following)
            if not page or following in passed or closed(following):
                return None
            passed.add(following)
            parts.append(page[4 : min(4 + missing, self.usable_bytes)])
            missing -= len(parts[-1])
            following = int.from_bytes(page[:4], "big")
        return b"".join(parts) if following == 0 else None

    def _local(self, size_bytes: int) -> int:
        """How much of a record lies on its leaf."""
        usable = self.usable_bytes
        if size_bytes <= usable - 35:
            return size_bytes
        least = (usable - 12) * 32 // 255 - 23
        fitting = least + (size_bytes - least) % (usable - 4)
        return fitting if fitting <= usable - 35 else least


def _start(number: int) -> int:
    return 100 if number == SCHEMA_ROOT else 0


def _pointers(page: bytes, start: int, first: int, usable: int) -> Iterator[int]:
    """Where the cells of a page lie; 0 for one that cannot lie there."""
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    if not page or first + 2 * count > usable:
        return
    for i in range(first, first + 2 * count, 2):
        at = page[i] << 8 | page[i + 1]
        yield at if first + 2 * count <= at <= usable - 4 else 0


def varint(content: bytes, at: int) -> tuple[int, int]:
    """A number and the place behind it; behind the end if the content ends within it."""
    value = 0
    for place in range(at, min(at + 8, len(content))):
        byte = content[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    if at + 9 <= len(content):
        return value << 8 | content[at + 8], at + 9
    return 0, len(content) + 1


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def open_pages(db: apsw.Connection) -> Pages | None:
    """The pages that a connection sees; None if there is no way to them.

    Beside a write-ahead log, only SQLite can tell which version of a page counts: it then makes a
    copy in memory. Call it within a read transaction.
    """
    try:
        pages = _of_file(db) or _of_copy(db)
    except (*UNREADABLE, MemoryError):
        return None
    return pages if pages is not None and pages.readable else None


def _of_file(db: apsw.Connection) -> Pages | None:
    try:
        name, wal = db.filename, db.filename_wal
    except UnicodeDecodeError:
        return None
    if not name or (os.path.exists(wal) and os.path.getsize(wal) > 0):
        return None

    # Through SQLite's own file layer: any other way, closing the file would drop our locks on it.
    def opened() -> apsw.VFSFile:
        return apsw.VFSFile("", name, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])

    def read(offset: int, amount: int) -> bytes:
        file = opened()
        try:
            return file.xRead(amount, offset)
        finally:
            file.xClose()

    file = opened()
    try:
        total = file.xFileSize()
    finally:
        file.xClose()
    return Pages(read, total)


def _of_copy(db: apsw.Connection) -> Pages | None:
    content: bytes | None = db.serialize("main")
    if not content:
        return None
    copy = content
    return Pages(lambda offset, amount: copy[offset : offset + amount], len(copy))
