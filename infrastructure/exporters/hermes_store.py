"""Fills the database of a Hermes home from what is told here: rows as they came, ids and all."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...domain.events import session_stream
from ...domain.parents import parent_kind
from ...projections.base import Connection
from ..log import Log
from ..mirror import entries
from ..sqlite import CREATE, connect, translated
from . import hermes_schema as schema

CHUNK = 5_000
"""So many rows go in between two looks at how far it has come."""

GATHERED_BYTES = 32 << 20
"""Of a search index that is being filled."""

Progress = Callable[[str, int, int], None]
"""(what is being done, done, total)"""
Values = dict[str, Any]

_MARKS = {"branch": "_branched_from", "delegate": "_delegate_from", "reset": "_reset_from"}
"""By which key of `model_config` Hermes tells children of a kind from others."""
_REWOUND = "SELECT session_id FROM messages WHERE active = 0 AND compacted = 0"
_SINCE = (
    "FROM messages m WHERE m.session_id = sessions.id AND (m.active OR (NOT m.compacted AND m.id >"
    " coalesce((SELECT max(c.id) FROM messages c WHERE c.session_id = sessions.id AND c.compacted), 0)))"
)
_COUNTED = (
    f"UPDATE sessions SET message_count = (SELECT count(*) {_SINCE}), tool_call_count ="
    " (SELECT coalesce(sum(CASE WHEN json_valid(m.tool_calls) AND json_type(m.tool_calls) = 'array'"
    f" THEN json_array_length(m.tool_calls) ELSE 0 END), 0) {_SINCE}) WHERE id IN ({_REWOUND})"
)
"""As Hermes counts: a compaction begins anew, and what was taken back counts on."""
_unpack = msgspec.msgpack.Decoder().decode
_decode = msgspec.json.Decoder().decode


class Counts(msgspec.Struct):
    """What was written; what has no place there, a sentence each."""

    sessions: int = 0
    messages: int = 0
    routes: int = 0
    usage: int = 0
    notes: list[str] = []


class HermesStore:
    """One export: `db` holds still in a read transaction, `path` is the database to be made."""

    def __init__(
        self, db: Connection, log: Log, path: Path, *, scope: str, progress: Progress | None
    ) -> None:
        self._db = db
        self._log = log
        self._path = path
        self._scope = scope
        self._progress = progress
        self._here: dict[str, str] = {}
        """Sessions that are written, and the source of each."""
        self._left: Counter[str] = Counter()
        self._untitled: list[str] = []
        self.counts = Counts()

    def write(self) -> dict[str, Any]:
        """Make and fill it; what its `sessions.json` is to hold.

        Raises:
            NoRoom: it cannot be written.
        """
        os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with contextlib.closing(Out(self._path)) as to:
            # Until it is whole nobody looks at it, and what is not whole is thrown away.
            to.execute("PRAGMA journal_mode = off")
            to.execute("PRAGMA synchronous = off")
            to.execute("BEGIN")
            for statement in schema.tables():
                to.execute(statement)
            to.execute("INSERT INTO schema_version (version) VALUES (?)", (schema.VERSION,))
            self._sessions(to)
            self._messages(to)
            self._usage(to)
            routes = self._routes(to)
            self._search(to)
            for statement in (*schema.indexes(), *schema.triggers()):
                to.execute(statement)
            to.execute(_COUNTED)
            to.execute("COMMIT")
            to.execute("PRAGMA synchronous = full")
            to.execute("PRAGMA journal_mode = wal")
        self._note()
        return routes

    # --- rows ----------------------------------------------------------------------------------------

    def _sessions(self, to: Out) -> None:
        names = tuple(schema.SESSIONS)
        prompt = (
            "coalesce(s.system_prompt, (SELECT prompt FROM system_prompts p WHERE p.hash ="
            " s.system_prompt_hash))"
        )
        wanted = ", ".join(prompt if name == "system_prompt" else f"s.{name}" for name in names)
        (total,) = self._db.execute("SELECT count(*) FROM sessions").fetchone()
        self._here = dict(self._db.execute("SELECT id, source FROM sessions"))
        holders = self._titles()
        into = Into(to, "sessions", schema.SESSIONS)
        for found in self._advancing(
            "sessions",
            total,
            self._db.execute(
                f"SELECT {wanted}, s.parent_kind, s.extra FROM sessions s ORDER BY s.started_us, s.id"
            ),
        ):
            values: Values = dict(zip(names, found, strict=False))
            kind, extra = found[len(names) :]
            odd = self._exact(values, extra, schema.SESSIONS)
            title = values["title"]
            if isinstance(title, str) and holders.get(title, values["id"]) != values["id"]:
                values["title"] = None
                self._untitled.append(values["id"])
            self._parent(values, kind)
            into.add(values, odd)
        into.flush()
        self.counts.sessions = total

    def _titles(self) -> dict[str, str]:
        """Who bears a title that several bear: a Hermes store has each once."""
        twice = self._db.execute(
            "SELECT title, id FROM sessions WHERE title IN (SELECT title FROM sessions"
            " WHERE title IS NOT NULL GROUP BY title HAVING count(*) > 1)"
            " ORDER BY title_claimed, started_us, id"
        )
        return {title: session_id for title, session_id in twice if isinstance(title, str)}

    def _parent(self, values: Values, kind: str | None) -> None:
        """A parent that was taken away here is named no more; a child that began here is marked as one."""
        parent = values["parent_session_id"]
        if not isinstance(parent, str):
            return
        if parent not in self._here and self._log.stream_version(session_stream(parent)):
            values["parent_session_id"] = None
            return
        mark = _MARKS.get(kind or "")
        if mark is None or self._is_imported(values["id"]):
            return
        if parent_kind(values, self._row(parent)) != kind:
            config = _object(values["model_config"])
            if config is not None:
                values["model_config"] = msgspec.json.encode({**config, mark: parent}).decode()

    def _is_imported(self, session_id: str) -> bool:
        asked = self._db.execute("SELECT 1 FROM source_sessions WHERE session_id = ?", (session_id,))
        return asked.fetchone() is not None

    def _row(self, session_id: str) -> Values | None:
        names = ("session_key", "ended_at", "end_reason")
        found = self._db.execute(
            f"SELECT {', '.join(names)} FROM sessions WHERE id = ?", (session_id,)
        ).fetchone()
        return None if found is None else dict(zip(names, found, strict=True))

    def _messages(self, to: Out) -> None:
        keeper, last = self._ids()
        names = tuple(schema.MESSAGES)
        wanted = ", ".join(f"m.{name}" for name in names if name != "id")
        (total,) = self._db.execute("SELECT count(*) FROM messages").fetchone()
        into = Into(to, "messages", schema.MESSAGES)
        # A masked message is none of its source's any more, and stays in its place all the same.
        kept = (
            "CASE WHEN o.source = ?1 THEN o.source_id WHEN o.source IS NULL AND s.source = ?1 AND NOT EXISTS"
            " (SELECT 1 FROM source_messages x WHERE x.source = ?1 AND x.source_id = m.source_id)"
            " THEN m.source_id END"
        )
        for found in self._advancing(
            "messages",
            total,
            self._db.execute(
                f"SELECT {kept}, {wanted}, m.attachments, m.extra FROM messages m LEFT JOIN source_messages o"
                " ON o.message = m.id LEFT JOIN source_sessions s ON s.session_id = m.session_id"
                " ORDER BY m.id",
                (keeper,),
            ),
        ):
            values: Values = dict(zip(names, found, strict=False))
            attachments, extra = found[len(names) :]
            if values["session_id"] not in self._here:
                continue
            if values["id"] is None:
                last += 1
                values["id"] = last
            self._left["attachments of messages"] += attachments is not None
            into.add(values, self._exact(values, extra, schema.MESSAGES))
        into.flush()
        ((self.counts.messages,),) = to.execute("SELECT count(*) FROM messages")

    def _ids(self) -> tuple[int | None, int]:
        """The source whose messages keep their ids, that with the most; and the highest of them."""
        found = self._db.execute(
            "SELECT source, max(source_id) FROM source_messages GROUP BY source"
            " ORDER BY count(*) DESC, min(message) LIMIT 1"
        ).fetchone()
        if found is None:
            return None, 0
        (masked,) = self._db.execute(
            "SELECT max(m.source_id) FROM messages m JOIN source_sessions s ON s.session_id = m.session_id"
            " WHERE s.source = ?",
            (found[0],),
        ).fetchone()
        others = self._db.execute("SELECT count(DISTINCT source) FROM source_messages").fetchone()[0] - 1
        if others:
            self.counts.notes.append(
                "messages of other stores have new ids: only those of the store with the most keep theirs"
            )
        return int(found[0]), max(int(found[1]), int(masked or 0), 0)

    def _usage(self, to: Out) -> None:
        names = tuple(schema.USAGE)
        into = Into(to, "session_model_usage", schema.USAGE)
        for *found, extra in self._db.execute(f"SELECT {', '.join(names)}, extra FROM session_model_usage"):
            values = dict(zip(names, found, strict=True))
            if values["session_id"] not in self._here:
                continue
            odd = self._exact(values, None if extra is None else _pack_pair(extra), schema.USAGE)
            into.add(
                {name: 0 if v is None and _needed(schema.USAGE, name) else v for name, v in values.items()},
                odd,
            )
            self.counts.usage += 1
        into.flush()

    def _routes(self, to: Out) -> dict[str, Any]:
        """Where each key leads: the entry as it came, where it still says so."""
        told = entries(self._db)
        into = Into(to, "gateway_routing", schema.ROUTING)
        kept: dict[str, Any] = {}
        for key, session_id, entry, at_us in self._db.execute(
            "SELECT key, session_id, entry, at_us FROM routes ORDER BY key"
        ):
            if session_id not in self._here and self._log.stream_version(session_stream(session_id)):
                continue  # it was taken away here
            text, value = entry, _object(entry)
            if entry is None or value is None or value.get("session_id") != session_id:
                value = told[key]
                text = msgspec.json.encode(value).decode()
            kept[key] = value
            into.add(
                {"scope": self._scope, "session_key": key, "entry_json": text, "updated_at": at_us / 1e6}, {}
            )
        into.flush()
        self.counts.routes = len(kept)
        return kept

    def _search(self, to: Out) -> None:
        """What Hermes' search looks in, as its own triggers would have filled it."""
        done, total = 0, self.counts.messages * len(schema.SEARCH)
        for name in schema.SEARCH:
            # Words are gathered in memory, and seldom merged on disk: that takes a third of the time. The
            # setting would stay in the file.
            to.execute(f"INSERT INTO {name}({name}, rank) VALUES ('hashsize', {GATHERED_BYTES})")
            last: Any = -(2**63)
            while last is not None:
                ((upto, count),) = to.execute(
                    "SELECT max(id), count(*) FROM"
                    " (SELECT id FROM messages WHERE id > ? ORDER BY id LIMIT ?)",
                    (last, CHUNK),
                )
                if upto is not None:
                    to.execute(
                        f"INSERT INTO {name}(rowid, content) SELECT id, {schema.indexed_text()}"
                        " FROM messages WHERE id > ? AND id <= ? ORDER BY id",
                        (last, upto),
                    )
                last, done = upto, done + count
                if self._progress is not None:
                    self._progress("search index", done, total)
            to.execute(f"DELETE FROM {name}_config WHERE k = 'hashsize'")

    # --- values --------------------------------------------------------------------------------------

    def _exact(self, values: Values, extra: bytes | None, table: Mapping[str, str]) -> Values:
        """Put the exact values of what our columns cannot bear; raw texts come back by column."""
        if extra is None:
            return {}
        columns, odd = _unpack(extra)
        texts: Values = {}
        for name, value in columns.items():
            if name not in table:
                self._left[f"column {name}"] += 1
            elif value is not None or not _needed(table, name):
                values[name] = value
        for name, (kind, value) in odd.items():
            if name not in table or (value is None and _needed(table, name)):
                self._left[f"odd values of {name}"] += 1
            elif kind == "text":
                texts[name] = value
            else:
                values[name] = value
        return texts

    def _advancing(self, what: str, total: int, rows: Iterable[Any]) -> Iterator[Any]:
        for number, row in enumerate(rows):
            if self._progress is not None and number % CHUNK == 0:
                self._progress(what, number, total)
            yield row

    def _note(self) -> None:
        for what, column in (
            ("pins of sessions", "pinned = 1"),
            ("queues of sessions", "waiting IS NOT NULL"),
        ):
            (self._left[what],) = self._db.execute(f"SELECT count(*) FROM sessions WHERE {column}").fetchone()
        if self._untitled:
            named = ", ".join(self._untitled[:3]) + (", …" if len(self._untitled) > 3 else "")
            self.counts.notes.append(
                f"a title that two sessions bear went to one of them: {len(self._untitled):,} went without"
                f" ({named})"
            )
        for what, count in sorted(self._left.items()):
            if count:
                self.counts.notes.append(f"no place in a Hermes 0.19 store, left out: {what} ({count:,})")


class Out:
    """The database that is made; what goes wrong with it is told as its own."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        with translated(self._path):
            self._db = connect(path, flags=CREATE)

    def execute(self, sql: str, bound: tuple[Any, ...] = ()) -> list[Any]:
        """Run a statement; its rows.

        Raises:
            NoRoom: it cannot be written.
        """
        with translated(self._path):
            return self._db.execute(sql, bound).fetchall()

    def executemany(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        """Run a statement for each row."""
        with translated(self._path):
            self._db.executemany(sql, rows)

    def close(self) -> None:
        """Close it."""
        self._db.close()


class Into:
    """Rows on their way into a table, those with raw texts one by one."""

    def __init__(self, to: Out, table: str, columns: Mapping[str, str]) -> None:
        self._to = to
        self._table = table
        self._columns = tuple(columns)
        self._rows: list[tuple[Any, ...]] = []

    def add(self, values: Values, texts: Values) -> None:
        """One row; `texts` are bytes that stand as text, valid or not."""
        if texts:
            self._to.execute(
                self._insert(texts), tuple({**values, **texts}[column] for column in self._columns)
            )
            return
        self._rows.append(tuple(values[column] for column in self._columns))
        if len(self._rows) >= CHUNK // 10:
            self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        rows, self._rows = self._rows, []
        self._to.executemany(self._insert({}), rows)

    def _insert(self, texts: Iterable[str]) -> str:
        marks = ", ".join("CAST(? AS TEXT)" if column in texts else "?" for column in self._columns)
        return f"INSERT INTO {self._table} ({', '.join(self._columns)}) VALUES ({marks})"


def _needed(table: Mapping[str, str], name: str) -> bool:
    return "NOT NULL" in table[name]


def _object(text: object) -> dict[str, Any] | None:
    """The object that JSON text is; an empty one for no text, None for anything else."""
    if text is None:
        return {}
    if not isinstance(text, str):
        return None
    try:
        value = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _pack_pair(columns: bytes) -> bytes:
    """Further columns of a usage row, in the form that other rows keep theirs in."""
    return msgspec.msgpack.encode([_unpack(columns), {}])
