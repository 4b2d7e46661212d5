"""What a Hermes home looks like at a glance, and what is to be read of it since the glance before.

A glance costs a read of the sessions, of an index of the messages and of the newest messages, never of
all messages: it tells which sessions changed, and of those only is anything read whole. What it cannot
see is an older message that was changed in place and in nothing that an index holds; Hermes changes only
the newest so. An import of everything, which a follower makes now and then, finds that, too.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import apsw
import msgspec

from .hermes_home import HermesHome
from .hermes_scope import Scope
from .salvage import DAMAGE, Row, Value, quoted

NEWEST = 300
"""So many messages are looked at whole at each glance."""
_UNTOLD = frozenset({"id", "message_count", "tool_call_count"})
_MASK = (1 << 20) - 1


class Sums(NamedTuple):
    """What an index says of a session's messages; equal where nothing it holds has changed."""

    messages: int
    last: int
    ids: int
    active: int
    active_ids: int
    times: float
    first_s: float | None
    latest_s: float | None


class Glance(msgspec.Struct, frozen=True):
    """Hashes and sums; they mean something only beside another glance of this process."""

    sessions: dict[str, int]
    parents: dict[str, str]
    messages: dict[str, Sums]
    newest: dict[int, tuple[str, int]]
    usage: dict[str, int]
    routes: int


class FollowedHome(HermesHome):
    """A home of which an import may see only what is in `scope`; None: all of it."""

    def glance(self) -> Glance | None:
        """What it looks like; None for a home that can only be read whole: damaged, or made by a tool."""
        tables = ("sessions", "session_model_usage", "messages")
        if not all(self._has_rowids(each) for each in tables if self.columns(each)):
            return None
        if not ({"session_id", "id"} <= set(self.columns("messages")) and self._ids_are_rowids()):
            return None
        try:
            rows, parents = self._glance_sessions()
            messages = {each[0]: _sums(each) for each in self._db.execute(self._summed(""))}
            if not all(isinstance(each, str) for each in messages):
                return None
            return Glance(
                rows,
                parents,
                messages,
                self._newest(),
                self._hashed("session_model_usage"),
                hash((self._table_hash("gateway_routing"), self._mirror_stamp())),
            )
        except (*DAMAGE, apsw.SQLError, UnicodeDecodeError, TypeError):
            return None

    def _glance_sessions(self) -> tuple[dict[str, int], dict[str, str]]:
        columns = [column for column in self.columns("sessions") if column not in _UNTOLD]
        parent = "parent_session_id" if "parent_session_id" in columns else "NULL"
        # A prompt is long, in each session, and hardly ever another of the same length.
        told = ["length(system_prompt)" if c == "system_prompt" else _exact(c) for c in columns]
        rows: dict[str, int] = {}
        parents: dict[str, str] = {}
        for session_id, above, *values in self._db.execute(
            f"SELECT id, {parent}, {', '.join(told)} FROM sessions"
        ):
            if not isinstance(session_id, str) or session_id in rows:
                raise TypeError(session_id)
            rows[session_id] = hash(tuple(values))
            if isinstance(above, str):
                parents[session_id] = above
        return rows, parents

    def _summed(self, where: str) -> str:
        """Sums by session, over columns that one index of Hermes' holds."""
        columns = set(self.columns("messages"))
        active = "active" if "active" in columns else "1"
        at = "timestamp" if "timestamp" in columns else "NULL"
        number = f"CASE WHEN typeof({at}) IN ('real', 'integer') THEN {at} END"
        return (
            f"SELECT session_id, count(*), max(id), sum(id & {_MASK}), total({active}),"
            f" total((id & {_MASK}) * {active}), total({at}), min({number}), max({number})"
            f" FROM messages {where} GROUP BY session_id"
        )

    def _newest(self) -> dict[int, tuple[str, int]]:
        told = ", ".join(_exact(column) for column in self.columns("messages"))
        sql = f"SELECT id, session_id, {told} FROM messages ORDER BY id DESC LIMIT {NEWEST}"
        return {row[0]: (row[1], hash(row)) for row in self._db.execute(sql)}

    def _hashed(self, table: str) -> dict[str, int]:
        """Rows of a table by session, as one number each."""
        found: defaultdict[str, int] = defaultdict(int)
        columns = self.columns(table)
        if columns:
            told = ", ".join(_exact(column) for column in columns)
            for session_id, *row in self._db.execute(f"SELECT session_id, {told} FROM {quoted(table)}"):
                found[str(session_id)] ^= hash(tuple(row))
        return dict(found)

    def _table_hash(self, table: str) -> int:
        columns = self.columns(table)
        if not columns:
            return 0
        told = ", ".join(_exact(column) for column in columns)
        return hash(frozenset(self._db.execute(f"SELECT {told} FROM {quoted(table)}")))

    def _mirror_stamp(self) -> tuple[int, ...]:
        try:
            found = os.stat(self.path / "sessions" / "sessions.json")
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def scope_since(self, before: Glance, now: Glance) -> Scope:
        """What is to be read, where `before` was taken in and `now` is this home's glance."""
        changed = _differing(before.sessions, now.sessions) | _differing(before.usage, now.usage)
        whole: set[str] = set()
        since: dict[str, int] = {}
        for session_id in _differing(before.messages, now.messages):
            old = before.messages.get(session_id)
            if old is not None and session_id in now.messages and self._only_grew(session_id, old):
                since[session_id] = old.last
            else:
                whole.add(session_id)
        again = {
            each
            for each, (session_id, _) in now.newest.items()
            if each in before.newest and before.newest[each] != now.newest[each] and session_id not in whole
        }
        touched = changed | whole | since.keys() | {now.newest[each][0] for each in again}
        sessions = _related(touched, before.parents, now.parents)
        spoke = {
            each: (old.first_s, old.latest_s)
            for each in sessions - whole
            if (old := before.messages.get(each)) is not None
            and old.first_s is not None
            and old.latest_s is not None
        }
        return Scope(sessions, whole, since, again, spoke, before.routes != now.routes)

    def _only_grew(self, session_id: str, old: Sums) -> bool:
        sql = self._summed("WHERE session_id = ? AND id <= ?")
        found = self._db.execute(sql, (session_id, old.last)).fetchall()
        return len(found) == 1 and _sums(found[0]) == old

    # --- what an import sees -------------------------------------------------------------------------

    def sessions(self) -> Iterator[Row]:
        """The sessions of the scope."""
        if self.scope is None:
            yield from super().sessions()
        else:
            yield from self._of_sessions("sessions", "id")

    def model_usage(self) -> Iterator[Row]:
        """Their usage."""
        if self.scope is None:
            yield from super().model_usage()
        elif self.columns("session_model_usage"):
            yield from self._of_sessions("session_model_usage", "session_id")

    def message_heads(self) -> Iterator[tuple[int, str, Value]]:
        """The heads of the messages that are new or to be compared, by id."""
        if self.scope is None:
            yield from super().message_heads()
            return
        at = "timestamp" if "timestamp" in self.columns("messages") else "NULL"
        heads: list[tuple[int, str, Value]] = []
        wanted = [(each, -(2**63)) for each in self.scope.whole] + list(self.scope.since.items())
        for session_id, last in wanted:
            sql = f"SELECT id, session_id, {at} FROM messages WHERE session_id = ? AND id > ?"
            heads += self._db.execute(sql, (session_id, last))
        for each in self.scope.again:
            heads += self._db.execute(f"SELECT id, session_id, {at} FROM messages WHERE id = ?", (each,))
        yield from sorted(set(heads), key=lambda head: head[0])

    def _of_sessions(self, table: str, column: str) -> Iterator[Row]:
        assert self.scope is not None
        columns = self.columns(table)
        scan = self._scan(table, columns)
        rowids: list[int] = []
        for some in _chunks(sorted(self.scope.sessions), 500):
            marks = ",".join("?" * len(some))
            sql = f"SELECT rowid FROM {quoted(table)} WHERE {column} IN ({marks})"
            rowids += [row[0] for row in self._db.execute(sql, tuple(some))]
        for rowid in sorted(rowids):
            if (found := scan.one(rowid)) is not None:
                yield dict(zip(columns, found[1], strict=True))


def _sums(row: tuple[Any, ...]) -> Sums:
    """A row of the sums by session, without the session."""
    return Sums(*row[1:])


def _exact(column: str) -> str:
    """A column as bytes where it is a text: not every text is valid."""
    name = quoted(column)
    return f"iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name})"


def _differing(before: dict[str, Any], now: dict[str, Any]) -> set[str]:
    return {each for each in before.keys() | now.keys() if before.get(each) != now.get(each)}


def _related(touched: set[str], *parents: dict[str, str]) -> set[str]:
    """With each session all that it is kin to: what one is to its parent is judged by both."""
    if not touched:
        return set()
    kin: defaultdict[str, set[str]] = defaultdict(set)
    for above in parents:
        for child, parent in above.items():
            kin[child].add(parent)
            kin[parent].add(child)
    found, upcoming = set(touched), list(touched)
    while upcoming:
        for each in kin.get(upcoming.pop(), ()):
            if each not in found:
                found.add(each)
                upcoming.append(each)
    return found


def _chunks(items: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
