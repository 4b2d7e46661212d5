"""Damages a named table or index of a database file on purpose, as a bad disk would."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import apsw

#: What a damaged sector reads as here: no page kind, no sensible count or offset.
GARBAGE = bytes(range(0xA0, 0xE0))


class Tree(NamedTuple):
    """The pages of one table or index, in key order."""

    root: int
    interior: list[int]
    leaves: list[int]
    overflow: list[int]


def tree(database: Path, name: str) -> Tree:
    """Where the b-tree `name` lies. The file must be sound so far, and not in use."""
    db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        sql = "SELECT pageno, pagetype FROM dbstat WHERE name = ? ORDER BY path"
        pages = [(int(str(page)), str(kind)) for page, kind in db.execute(sql, (name,))]
        root = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).get
    finally:
        db.close()

    def of(kind: str) -> list[int]:
        return [page for page, each in pages if each == kind]

    return Tree(1 if root is None else int(str(root)), of("internal"), of("leaf"), of("overflow"))


def page_size(database: Path) -> int:
    with database.open("rb") as file:
        file.seek(16)
        size = int.from_bytes(file.read(2), "big")
    return 65536 if size == 1 else size


def overwrite(database: Path, page: int, *, at: int = 0, garbage: bytes = GARBAGE) -> None:
    """Write garbage into a page, from byte `at` on."""
    with database.open("r+b") as file:
        file.seek((page - 1) * page_size(database) + at)
        file.write(garbage)


def flip(database: Path, page: int, *, at: int, bit: int = 0) -> None:
    """Turn one bit of a page over."""
    with database.open("r+b") as file:
        file.seek((page - 1) * page_size(database) + at)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1 << bit]))


def rowids(database: Path, page: int) -> list[int]:
    """The rowids on a leaf page of a table."""
    with database.open("rb") as file:
        file.seek((page - 1) * page_size(database))
        content = file.read(page_size(database))
    assert content[0] == 0x0D, "not a leaf of a table"
    cells = [
        int.from_bytes(content[8 + 2 * i : 10 + 2 * i], "big")
        for i in range(int.from_bytes(content[3:5], "big"))
    ]
    return [_varint(content, _varint(content, cell)[1])[0] for cell in cells]


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for length in range(1, 10):
        byte = content[at + length - 1]
        if length == 9:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + length
    raise AssertionError
