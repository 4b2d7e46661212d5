"""Typed access to the tables and the mirror of a Hermes home, whatever version wrote it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import apsw
import msgspec

from ..past_damage import ranges
from .hermes_mirror import Mirror, read_mirror
from .hermes_scope import Scope
from .leaves import TableLeaves, find_leaves
from .salvage import (
    DAMAGE,
    Found,
    Guide,
    Lost,
    RawText,
    Row,
    TableScan,
    Value,
    account,
    ask,
    index_count,
    quoted,
    read_guide,
)

__all__ = ["HermesReader", "Lost", "Mirror", "RawText", "Row", "Value", "read_mirror"]

#: The columns by which an index still tells what a lost row was: it begins with the first, and
#: the second names the session (of a route: the key).
GUIDED = {
    "messages": ("session_id", "session_id"),
    "sessions": ("id", "id"),
    "session_model_usage": ("session_id", "session_id"),
    "gateway_routing": ("scope", "session_key"),
}


class HermesReader:
    """Reads through one connection; what cannot be read is named in `lost` while reading.

    Attributes:
        lost: rows that could not be read. Complete for a table once its iterator is exhausted.
        damage: objects that are damaged although nothing may be lost, one sentence each.
        scope: what is read of it; None: everything.
    """

    scope: Scope | None = None

    def __init__(self, path: Path, db: apsw.Connection, tables: set[str]) -> None:
        self.path = path
        self.tables = tables
        self.lost: list[Lost] = []
        self.damage: list[str] = []
        self._db = db
        self._named: set[Lost] = set()
        self._columns: dict[str, tuple[str, ...]] = {}
        self._guides: dict[str, Guide] = {}
        self._leaves: dict[str, TableLeaves | None] = {}
        self._rowid_of: dict[int, int] | None = None
        self._session_ids: set[str] = set()
        self._owner_of: dict[int, str] = {}
        self._messages: TableScan | None = None
        self.schema_version = self._read_schema_version()

    def has_lost(self, table: str) -> bool:
        """Whether rows of the table could not be read so far."""
        return any(each.table == table for each in self.lost)

    def has_session(self, session_id: str) -> bool:
        """Whether there is a row for the session, in the scope or not."""
        return self._db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).get is not None

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns that the table really has; () if there is no such table."""
        if table not in self._columns:
            found: tuple[str, ...] = ()
            if table in self.tables:
                info = ask(self._db, f"PRAGMA table_info({quoted(table)})")
                found = tuple(column[1] for column in info)
            self._columns[table] = found
        return self._columns[table]

    def sessions(self) -> Iterator[Row]:
        """Every readable session, all columns, by rowid."""
        columns = self.columns("sessions")
        place, phantoms = columns.index("id"), array("q")
        owners = self._guide("sessions").owners
        for rowid, values in self._whole_table("sessions", columns):
            row = dict(zip(columns, values, strict=True))
            session_id = values[place]
            if isinstance(session_id, str):
                session_id = self._true_session(session_id, owners.get(rowid, session_id))
                row["id"] = session_id
                self._session_ids.add(session_id)
                yield row
            else:
                phantoms.append(rowid)
        self._skip_phantoms("sessions", phantoms)

    def message_heads(self) -> Iterator[tuple[int, str, Value]]:
        """(id, session id, timestamp) of every readable message, by id.

        Read the sessions first: what a damaged row says of its session is held against them.
        """
        columns = self.columns("messages")
        if "session_id" not in columns:
            return
        wanted = ["session_id", "timestamp" if "timestamp" in columns else "session_id"]
        keyed = self._ids_are_rowids()
        if not keyed:
            self._rowid_of = {}
            wanted.append("id")
        phantoms = array("q")
        for rowid, values in self._whole_table("messages", wanted):
            session_id, at = values[0], values[1] if "timestamp" in columns else None
            message_id = rowid if keyed else values[2]
            if not isinstance(session_id, str) or not isinstance(message_id, int):
                phantoms.append(rowid)
            elif self._rowid_of is not None and (self._rowid_of.setdefault(message_id, rowid) != rowid):
                detail = f"a second message with the id {message_id}"
                self._add(Lost("messages", rowid, rowid, session_id, detail, 1))
            else:
                yield message_id, self._true_owner(rowid, session_id), at
        self._skip_phantoms("messages", phantoms)

    def messages(self, ids: Sequence[int]) -> list[Row]:
        """The messages of these ids, all columns, in this order.

        What cannot be read (again) is left out, and named in `lost`.
        """
        columns = self.columns("messages")
        if self._messages is None:
            self._messages = self._scan("messages", columns)
        if self._rowid_of is not None:
            ids = [self._rowid_of[i] for i in ids if i in self._rowid_of]
        if not ids:
            return []
        found: dict[int, tuple[Value, ...]] = {}
        if leaves := self._leaves.get("messages"):
            found.update(each for i in ids if (each := leaves.row(i, columns)))
        for first, last in _stretches(ids) if leaves is None else ():
            if last > first:
                found.update(self._messages.between(first, last))
        found.update(self._one_by_one(i for i in ids if i not in found))
        rows = [(i, dict(zip(columns, found[i], strict=True))) for i in ids if i in found]
        for rowid, row in rows:
            if rowid in self._owner_of:
                row["session_id"] = self._owner_of[rowid]
        return [row for _, row in rows]

    def routes(self) -> list[Row]:
        """The rows of gateway_routing; [] where there is no such table."""
        return list(self._rows("gateway_routing"))

    def model_usage(self) -> Iterator[Row]:
        """The rows of session_model_usage."""
        return self._rows("session_model_usage")

    def system_prompts(self) -> dict[str, str]:
        """Prompt texts by hash, where the schema keeps them apart (30 and later)."""
        prompts: dict[str, str] = {}
        for row in self._rows("system_prompts"):
            key, prompt = row.get("hash"), row.get("prompt")
            if isinstance(key, str) and isinstance(prompt, str):
                prompts[key] = prompt
            else:
                name = key.raw.decode(errors="replace") if isinstance(key, RawText) else key
                detail = f"a system prompt that is no text (hash {name!r})"
                self._add(Lost("system_prompts", None, None, None, detail, 1))
        return prompts

    def mirror(self) -> Mirror:
        """The routing mirror beside the database."""
        return read_mirror(self.path / "sessions" / "sessions.json")

    def _rows(self, table: str) -> Iterator[Row]:
        columns = self.columns(table)
        if not columns:
            return
        for _, values in self._whole_table(table, columns):
            yield dict(zip(columns, values, strict=True))

    def _whole_table(self, table: str, columns: Sequence[str]) -> Iterator[Found]:
        """Scan a table, then hold what came against what its indexes know."""
        if not self._has_rowids(table):
            yield from self._keyless(table, columns)
            return
        scan, seen = self._scan(table, columns), array("q")
        for found in scan.rows():
            seen.append(found[0])
            yield found
        guided = table in GUIDED
        counted = index_count(self._db, table, GUIDED[table][0]) if guided else None
        damaged = scan.unreadable or scan.misplaced or self._leaves.get(table)
        if damaged or counted not in (None, len(seen)):
            yield from self._missed(scan, table, columns, seen)
            guide = self._guide_of(table)
            lost, harmless = account(scan, table, seen, guide)
            for one in map(_route, lost) if table == "gateway_routing" else lost:
                self._add(one)
            for sentence in harmless + [f"index {name} is damaged" for name in guide.broken]:
                self._add_damage(sentence)

    def _missed(
        self, scan: TableScan, table: str, columns: Sequence[str], seen: array[int]
    ) -> Iterator[Found]:
        """What a finished scan has missed although it stands on some leaf of the table."""
        leaves = self._leaves_of(table)
        if leaves is None:
            return
        have = set(seen)
        for rowid in leaves.rowids:
            if rowid not in have and (found := leaves.row(rowid, columns)):
                seen.append(rowid)
                yield found
        scan.misplaced = 0  # they have come from their own leaves
        scan.unreadable = leaves.gaps(self._highest_known(table), self._guide_of(table), seen)

    def _from_leaves(self, table: str, columns: Sequence[str], start: int) -> Iterator[Found] | None:
        leaves = self._leaves_of(table)
        return None if leaves is None else leaves.rows(start, columns)

    def _leaves_of(self, table: str) -> TableLeaves | None:
        """The rows of a damaged table from its leaves, where its inner pages do not lead to all of them."""
        if table not in self._leaves:
            keys = GUIDED.get(table, ())
            leaves = self._leaves[table] = find_leaves(self._db, table, keys, self._guide_of(table))
            if leaves is not None:
                rows = f"{leaves.adopted} rows were read from its leaves"
                self._add_damage(f"an inner page of {table} is damaged; {rows}")
                if leaves.left_out:
                    detail = "on pages that no page leads to: they cannot be told from deleted ones, left out"
                    self._add(Lost(table, None, None, None, detail, leaves.left_out))
        return self._leaves[table]

    def _keyless(self, table: str, columns: Sequence[str]) -> Iterator[Found]:
        """A table without rowids has no other way than its key; nothing follows a damaged page."""
        names = ", ".join(map(quoted, columns))
        try:
            for values in self._db.execute(f"SELECT {names} FROM {quoted(table)}"):
                yield 0, values
        except (*DAMAGE, UnicodeDecodeError):
            self._add(Lost(table, None, None, None, "the rows behind a damaged page"))

    def _one_by_one(self, ids: Iterable[int]) -> Iterator[Found]:
        assert self._messages is not None
        for rowid in ids:
            try:
                found = self._messages.one(rowid)
            except apsw.CorruptError:
                found = None
            if found is None and (leaves := self._leaves_of("messages")):
                found = leaves.row(rowid, self.columns("messages"))
            if found is not None:
                yield found
            else:
                detail = "part of it is on a damaged page"
                self._add(Lost("messages", rowid, rowid, self._session_of(rowid), detail, 1))

    def _true_session(self, told: str, indexed: str) -> str:
        """Which of two ids a session bears, where its row and the index of the table disagree."""
        if told == indexed or self._has_messages(told) or not self._has_messages(indexed):
            return told
        self._add_damage(f"session {indexed}: the row says {told!r}; its index and messages do not")
        return indexed

    def _has_messages(self, session_id: str) -> bool:
        try:
            sql = "SELECT 1 FROM messages WHERE session_id = ? LIMIT 1"
            return self._db.execute(sql, (session_id,)).get is not None
        except (*DAMAGE, apsw.SQLError):
            return False

    def _true_owner(self, rowid: int, told: str) -> str:
        """The session of a message; of a session that nobody knows, the index has the last word."""
        if told in self._session_ids or not self._session_ids:
            return told
        indexed = self._guide("messages").owners.get(rowid, told)
        if indexed == told or indexed not in self._session_ids:
            return told
        self._owner_of[rowid] = indexed
        self._add_damage(f"message {rowid}: the row says session {told!r}, its index {indexed}")
        return indexed

    def _session_of(self, rowid: int) -> str | None:
        try:
            sql = "SELECT session_id FROM messages NOT INDEXED WHERE rowid = ?"
            owner = self._db.execute(sql, (rowid,)).get
        except (*DAMAGE, UnicodeDecodeError):
            owner = self._guide("messages").owners.get(rowid)
        return owner if isinstance(owner, str) else None

    def _scan(self, table: str, columns: Sequence[str]) -> TableScan:
        return TableScan(
            self._db,
            table,
            columns,
            lambda: self._highest_known(table),
            lambda start: self._from_leaves(table, columns, start),
        )

    def _highest_known(self, table: str) -> int | None:
        known = list(self._guide(table).owners) if table in GUIDED else []
        try:
            sql = "SELECT seq FROM sqlite_sequence WHERE name = ?"
            seq = self._db.execute(sql, (table,)).get
        except (*DAMAGE, apsw.SQLError, UnicodeDecodeError):
            seq = None
        if isinstance(seq, int):
            known.append(seq)
        return max(known, default=None)

    def _guide_of(self, table: str) -> Guide:
        return self._guide(table) if table in GUIDED else Guide({}, False, [])

    def _guide(self, table: str) -> Guide:
        if table not in self._guides:
            self._guides[table] = read_guide(self._db, table, *GUIDED[table])
        return self._guides[table]

    def _has_rowids(self, table: str) -> bool:
        try:
            self._db.execute(f"SELECT rowid FROM {quoted(table)} LIMIT 0").fetchall()
        except apsw.SQLError:
            return False
        except DAMAGE:
            return True
        return True

    def _ids_are_rowids(self) -> bool:
        """False for a table that was copied without its primary key, as recovery tools do."""
        info = ask(self._db, "PRAGMA table_info(messages)")
        keys = [(name, kind.upper()) for _, name, kind, _, _, key in info if key]
        return keys == [("id", "INTEGER")] or "id" not in self.columns("messages")

    def _read_schema_version(self) -> int | None:
        try:
            version = self._db.execute("SELECT max(version) FROM schema_version").get
        except (*DAMAGE, apsw.SQLError, UnicodeDecodeError):
            return None
        return version if isinstance(version, int) else None

    def _skip_phantoms(self, table: str, rowids: array[int]) -> None:
        detail = "without a usable id or session id (damage leaves such rows behind), skipped"
        for first, last in ranges(rowids):
            self._add(Lost(table, first, last, None, detail, last - first + 1))

    def _add(self, lost: Lost) -> None:
        if lost not in self._named:
            self._named.add(lost)
            self.lost.append(lost)

    def _add_damage(self, sentence: str) -> None:
        if sentence not in self.damage:
            self.damage.append(sentence)


def _route(lost: Lost) -> Lost:
    """Of a route, the index tells the key, not the session."""
    if lost.session_id is None:
        return lost
    detail = f"the route of {lost.session_id}: {lost.detail}"
    return msgspec.structs.replace(lost, session_id=None, detail=detail)


def _stretches(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges that cover the ids, each at least half full, so that one query reads many rows."""
    wanted = sorted(set(ids))
    first, count = wanted[0], 1
    for previous, current in pairwise(wanted):
        if current - first + 1 > 2 * (count + 1):
            yield first, previous
            first, count = current, 0
        count += 1
    yield first, wanted[-1]
