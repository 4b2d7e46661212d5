"""Takes the records of a table apart, and tells those that could be its rows from others."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import apsw
import msgspec

from .pages import varint
from .salvage import DAMAGE, RawText, Value, ask, quoted

VIRTUAL, STORED = 2, 3
#: Bytes of the numbers of serial types 1 to 6.
INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
FLOAT, ZERO, ONE = 7, 8, 9


class Column(msgspec.Struct, frozen=True):
    """What the schema says of a column.

    Attributes:
        key: it must hold a text.
        needed: a record without it is no row of the table.
    """

    name: str
    affinity: str
    is_rowid: bool
    key: bool
    needed: bool
    not_null: bool
    default: Value


class Shape(msgspec.Struct, frozen=True):
    """The columns of a table in the order of its records."""

    columns: tuple[Column, ...]

    def serials(self, start: bytes, size_bytes: int) -> list[int] | None:
        """The serial types at the start of a record of this size, if it can be a row of the table."""
        length, at = varint(start, 0)
        if not at <= length <= min(len(start), size_bytes):
            return None
        types: list[int] = []
        body = size_bytes - length
        while at < length:
            serial, at = varint(start, at)
            types.append(serial)
            body -= _width(serial)
        if at != length or body != 0 or len(types) > len(self.columns):
            return None
        return types if all(map(_suits, self.columns, types + [-1] * len(self.columns))) else None

    def values(self, record: bytes, rowid: int, wanted: Sequence[str]) -> tuple[Value, ...] | None:
        """What the wanted columns hold."""
        types = self.serials(record, len(record))
        if types is None:
            return None
        places: dict[str, Value] = {}
        at = varint(record, 0)[0]
        for i, column in enumerate(self.columns):
            if i >= len(types):
                places[column.name] = column.default
                continue
            width = _width(types[i])
            if column.is_rowid:
                places[column.name] = rowid
            elif column.name in wanted:
                places[column.name] = _value(types[i], record[at : at + width], column.affinity)
            at += width
        return tuple(places[name] for name in wanted)


def _suits(column: Column, serial: int) -> bool:
    if serial == -1:
        return not column.needed
    if column.is_rowid:
        return serial == 0
    if serial in (10, 11) or (serial == 0 and column.not_null):
        return False
    is_text = serial >= 13 and serial % 2 == 1
    if column.key:
        return is_text
    return not (column.affinity == "TEXT" and 0 < serial < 10)


def _width(serial: int) -> int:
    if serial >= 12:
        return (serial - 12) // 2
    return 8 if serial == FLOAT else INTEGERS.get(serial, 0)


def _value(serial: int, content: bytes, affinity: str) -> Value:
    if serial == 0:
        return None
    if serial >= 12:
        if serial % 2 == 0:
            return content
        try:
            return content.decode()
        except UnicodeDecodeError:
            return RawText(content)
    if serial == FLOAT:
        number: float = struct.unpack(">d", content)[0]
        return None if math.isnan(number) else number
    whole = serial - ZERO if serial in (ZERO, ONE) else int.from_bytes(content, "big", signed=True)
    # A whole number in a REAL column is kept as an integer, which is shorter.
    return float(whole) if affinity == "REAL" else whole


def read_shape(db: apsw.Connection, table: str, keys: Sequence[str]) -> Shape | None:
    """What a row of `table` must look like; `keys` are columns that always hold a text.

    None if the schema does not tell.
    """
    try:
        info = ask(db, f"PRAGMA table_xinfo({quoted(table)})")
    except (*DAMAGE, apsw.SQLError, UnicodeDecodeError):
        return None
    key_count = sum(1 for row in info if row[5])
    columns: list[Column] = []
    for _, name, kind, not_null, default, key, hidden in info:
        if hidden == VIRTUAL:
            continue
        affinity = _affinity(kind)
        value = _default(affinity, default)
        is_rowid = bool(key) and key_count == 1 and kind.upper() == "INTEGER"
        needed = is_rowid or name in keys or hidden == STORED or (bool(not_null) and value is None)
        columns.append(Column(name, affinity, is_rowid, name in keys, needed, bool(not_null), value))
    return Shape(tuple(columns)) if columns else None


def _affinity(kind: str) -> str:
    """https://sqlite.org/datatype3.html#determination_of_column_affinity"""
    name = kind.upper()
    if "INT" in name:
        return "INTEGER"
    if any(each in name for each in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if not name or "BLOB" in name:
        return "BLOB"
    return "REAL" if any(each in name for each in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _default(affinity: str, default: str | None) -> Value:
    """What SQLite shows in rows that are older than the column."""
    if default is None:
        return None
    db = apsw.Connection(":memory:")
    try:
        db.execute("CREATE TABLE old (a); INSERT INTO old VALUES (1)")
        db.execute(f"ALTER TABLE old ADD COLUMN b {affinity} DEFAULT {default}")
        value: Value = db.execute("SELECT b FROM old").get
    except (apsw.Error, UnicodeDecodeError):
        return None  # one that no column can be added with: then no row is older than it
    finally:
        db.close()
    return value
