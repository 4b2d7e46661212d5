"""Reads the rows of a table from its leaf pages where the pages above them are damaged."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import apsw

from .pages import SCHEMA_ROOT, TABLE_INNER, TABLE_LEAF, Cell, Pages, open_pages
from .records import Shape, read_shape
from .salvage import DAMAGE, HIGHEST, LOWEST, Found, Guide, ask

__all__ = ["TableLeaves", "find_leaves"]


class Bounds(NamedTuple):
    """The rowids that the pages above a leaf expect on it: above `low`, up to `high`."""

    low: int
    high: int


class Places:
    """Where rows lie: by rowid the page, the size and the start of the record."""

    def __init__(self) -> None:
        self.rowids, self.numbers, self.sizes, self.starts = array("q"), array("L"), array("Q"), array("L")

    def add(self, number: int, cell: Cell) -> None:
        self.rowids.append(cell.rowid)
        self.numbers.append(number)
        self.sizes.append(cell.size_bytes)
        self.starts.append(cell.at)

    def cell(self, place: int) -> Cell:
        return Cell(self.rowids[place], self.sizes[place], self.starts[place])


class TableLeaves:
    """The rows of one table, wherever their leaves lie.

    Attributes:
        rowids: in ascending order.
        adopted: rows that no walk from the root of the table leads to.
        left_out: rows that cannot be told from deleted ones.
    """

    def __init__(self, pages: Pages, shape: Shape, closed: set[int], placed: Places, loose: Places) -> None:
        self.left_out = 0
        self._pages = pages
        self._shape = shape
        self._closed = closed
        self._places, self.adopted = _merged(placed, loose)

    @property
    def rowids(self) -> Sequence[int]:
        return self._places.rowids

    def rows(self, start: int, columns: Sequence[str]) -> Iterator[Found]:
        """The rows from `start` on, by rowid."""
        for place in range(bisect_left(self.rowids, start), len(self.rowids)):
            found = self._at(place, columns)
            if found is not None:
                yield found

    def row(self, rowid: int, columns: Sequence[str]) -> Found | None:
        """The row of this rowid; None if there is none that can be read."""
        place = bisect_left(self.rowids, rowid)
        if place == len(self.rowids) or self.rowids[place] != rowid:
            return None
        return self._at(place, columns)

    def gaps(self, highest: int | None, guide: Guide, seen: Iterable[int]) -> list[tuple[int, int]]:
        """Where a leaf may be missing: between two of them, and behind the last, up to `highest`.

        An index that was read whole tells in which of these places rows are missing.
        """
        ends, previous = [0], 0
        for rowid, number in zip(self.rowids, self._places.numbers, strict=True):
            if number != previous:
                ends += [rowid, 0]
            ends[-1], previous = rowid, number
        ends.append(HIGHEST if highest is None else highest + 1)
        gaps = [
            (last + 1, first - 1)
            for last, first in zip(ends[::2], ends[1::2], strict=True)
            if first - last > 1
        ]
        if guide.whole:
            missing = sorted(guide.owners.keys() - set(seen))
            gaps = [gap for gap in gaps if bisect_left(missing, gap[0]) < bisect_right(missing, gap[1])]
        return gaps

    def _at(self, place: int, columns: Sequence[str]) -> Found | None:
        cell, number = self._places.cell(place), self._places.numbers[place]
        record = self._pages.payload(number, cell, self._closed.__contains__)
        values = None if record is None else self._shape.values(record, cell.rowid, columns)
        return None if values is None else (cell.rowid, values)


def _merged(placed: Places, loose: Places) -> tuple[Places, int]:
    """All rows by rowid, and how many of the loose ones: those of which there is only one."""
    merged, adopted = Places(), 0
    pool = [(rowid, 0, place) for place, rowid in enumerate(placed.rowids)]
    pool += [(rowid, 1, place) for place, rowid in enumerate(loose.rowids)]
    pool.sort()
    for _, same in groupby(pool, itemgetter(0)):
        (_, is_loose, place), *others = same
        if is_loose and others:
            continue
        adopted += is_loose
        origin = loose if is_loose else placed
        merged.add(origin.numbers[place], origin.cell(place))
    return merged, adopted


def find_leaves(db: apsw.Connection, table: str, keys: Sequence[str], guide: Guide) -> TableLeaves | None:
    """The rows of `table` from its leaves; None where its inner pages lead to each of them.

    What a leaf holds that no page leads to counts as a row where the index names it or, without an
    index that can be read whole, where the list of free pages tells that the leaf is none of them.
    """
    shape, roots = read_shape(db, table, keys), _roots(db)
    if shape is None or table not in roots:
        return None
    pages = open_pages(db)
    if pages is None:
        return None
    others: set[int] = set()
    for name, root in {"sqlite_schema": SCHEMA_ROOT, **roots}.items():
        if name != table:
            others |= _below(pages, root)
    free, free_known = pages.free()
    closed = others | free
    bounds = _bounds(pages, roots[table], closed)
    placed, loose, left_out = Places(), Places(), 0
    for number in range(1, pages.count + 1):
        if number in closed or pages.kind(number) != TABLE_LEAF:
            continue
        if within := bounds.get(number):
            for cell in pages.cells(number):
                if within.low < cell.rowid <= within.high:
                    placed.add(number, cell)
                elif cell.rowid in guide.owners and _fits(pages, shape, number, cell):
                    loose.add(number, cell)
            continue
        cells = _rows_of(pages, shape, number)
        ordered = all(one.rowid < other.rowid for one, other in pairwise(cells))
        for cell in cells:
            if cell.rowid in guide.owners or (ordered and free_known and not guide.whole):
                loose.add(number, cell)
            else:
                left_out += 1
    if not loose.rowids:
        return None
    leaves = TableLeaves(pages, shape, closed, placed, loose)
    leaves.left_out = left_out
    return leaves if leaves.adopted else None


def _rows_of(pages: Pages, shape: Shape, number: int) -> list[Cell]:
    """The rows on a leaf; [] if most of what it holds has another shape."""
    cells = list(pages.cells(number))
    fitting = [cell for cell in cells if _fits(pages, shape, number, cell)]
    return fitting if 2 * len(fitting) > len(cells) else []


def _fits(pages: Pages, shape: Shape, number: int, cell: Cell) -> bool:
    start = pages.get(number)[cell.at : pages.usable_bytes]
    if shape.serials(start, cell.size_bytes) is not None:
        return True
    if cell.size_bytes <= len(start):
        return False
    record = pages.payload(number, cell, lambda _: False)  # its head itself may have flowed over
    return record is not None and shape.serials(record, cell.size_bytes) is not None


def _roots(db: apsw.Connection) -> dict[str, int]:
    """Where the tables begin; an index has no leaves of that kind."""
    try:
        listed = ask(db, "SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'")
    except (*DAMAGE, apsw.SQLError, UnicodeDecodeError):
        return {}
    return {
        name: root
        for name, root in listed
        if isinstance(name, str) and isinstance(root, int) and root > SCHEMA_ROOT
    }


def _below(pages: Pages, root: int) -> set[int]:
    """Every page that a walk of a table from its root leads to."""
    found: set[int] = set()
    waiting = [root]
    while waiting:
        number = waiting.pop()
        kind = pages.kind(number)
        if number in found or kind not in (TABLE_INNER, TABLE_LEAF):
            continue
        found.add(number)
        if kind == TABLE_INNER:
            waiting += [child for child, _ in pages.children(number)[0]]
    return found


def _bounds(pages: Pages, root: int, closed: set[int]) -> dict[int, Bounds]:
    """The leaves that a walk leads to in good order, and what each of them may hold."""
    bounds: dict[int, Bounds] = {}
    passed: set[int] = set()
    waiting = [(root, Bounds(LOWEST, HIGHEST))]
    while waiting:
        number, (low, high) = waiting.pop()
        kind = pages.kind(number)
        if number in passed or number in closed or kind not in (TABLE_INNER, TABLE_LEAF):
            continue
        passed.add(number)
        if kind == TABLE_LEAF:
            bounds[number] = Bounds(low, high)
            continue
        children, ordered = pages.children(number)
        if not ordered or any(key is not None and not low < key <= high for _, key in children):
            continue
        for child, key in children:
            waiting.append((child, Bounds(low, high if key is None else key)))
            low = high if key is None else key
    return bounds
