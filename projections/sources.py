"""What each imported row was when its source was last read: the memory of the three-way comparison.

An event that says what a source says bears a `source_ref`; one without was decided here and moves
nothing but the mark that a message was changed here.

Over 400 lines because it is one fold: which event says what of which kind of row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from ..domain import events as e
from ..domain.events import Recorded, Visibility
from ..domain.source_messages import shown
from ..domain.source_rows import packed, seen_after, unpacked
from .base import Connection, OfMessages, Projection
from .bulk import inserts

STATES: dict[Visibility, int] = {"live": 0, "compacted": 1, "rewound": 2}
VISIBILITY: dict[int, Visibility] = {state: word for word, state in STATES.items()}
SHOWN_HERE, EDITED_HERE = 1, 2
"""Bits of `changed_here`: its visibility, its content."""

_SHOWING = ("active", "compacted")
_pack = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder().encode
_unpack_key = msgspec.msgpack.Decoder(tuple[str, str, str, str, str]).decode


class Sources(Projection):
    """Stores that were imported, their rows as last seen, and what was changed on both sides."""

    name: ClassVar[str] = "sources"
    version: ClassVar[int] = 3
    of_messages: ClassVar[OfMessages] = "imported"
    tables: ClassVar[dict[str, str]] = {
        "source_homes": (
            "(id INTEGER PRIMARY KEY, store TEXT NOT NULL UNIQUE, path TEXT, schema_version INTEGER,"
            " last_run INTEGER, last_run_us INTEGER)"
        ),
        "source_sessions": (
            "(session_id TEXT PRIMARY KEY, source INTEGER NOT NULL, created INTEGER NOT NULL UNIQUE,"
            " seen BLOB NOT NULL, gone INTEGER NOT NULL) WITHOUT ROWID"
        ),
        "source_messages": (
            "(message INTEGER PRIMARY KEY, source INTEGER NOT NULL, source_id INTEGER NOT NULL,"
            " digest BLOB NOT NULL, state INTEGER NOT NULL, gone INTEGER NOT NULL,"
            " changed_here INTEGER NOT NULL, UNIQUE (source, source_id))"
        ),
        "source_usage": (
            "(session_id TEXT NOT NULL, key BLOB NOT NULL, digest BLOB NOT NULL,"
            " PRIMARY KEY (session_id, key)) WITHOUT ROWID"
        ),
        "source_routes": (
            "(source INTEGER NOT NULL, key TEXT NOT NULL, session_id TEXT, entry BLOB,"
            " gone INTEGER NOT NULL, PRIMARY KEY (source, key)) WITHOUT ROWID"
        ),
        "source_prompts": "(hash TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID",
        "source_conflicts": (
            "(position INTEGER NOT NULL, kind TEXT NOT NULL, session_id TEXT, row TEXT NOT NULL,"
            ' "column" TEXT NOT NULL, ours TEXT, theirs TEXT, source INTEGER,'
            ' PRIMARY KEY (position, "column")) WITHOUT ROWID'
        ),
        "source_erased": "(ref BLOB PRIMARY KEY) WITHOUT ROWID",
    }

    def ordered(self) -> dict[str, str]:
        """Whole content in a fixed order."""
        keys = {
            "source_homes": "id",
            "source_sessions": "session_id",
            "source_messages": "message",
            "source_usage": "session_id, key",
            "source_routes": "source, key",
            "source_prompts": "hash",
            "source_conflicts": 'position, "column"',
            "source_erased": "ref",
        }
        return {table: f"SELECT * FROM {{p}}{table} ORDER BY {key}" for table, key in keys.items()}

    def __init__(self, prefix: str = "") -> None:
        super().__init__(prefix)
        self._left: _Batch | None = None
        """With the messages of the last fold, where a rebuild leaves them to `settle`."""

    def settle(self, db: Connection) -> None:  # noqa: ARG002  # it is the one that was folded with
        """Write the messages that a rebuild left."""
        left, self._left = self._left, None
        if left is not None:
            left.flush()

    def fold(self, events: Sequence[Recorded], db: Connection) -> None:
        """Fold a batch; messages, most of all events, in bulk."""
        self.settle(db)
        batch = _Batch(db, self.prefix)
        for event in events:
            payload = event.payload
            if type(payload) is not e.MessageAppended:
                batch.fold(event)
            elif event.source_ref is not None and payload.source_id is not None:
                batch.append(event, payload)
        if self.prefix:
            self._left = batch
        else:
            batch.flush()


class _Batch:
    """One batch of events on its way into the tables."""

    def __init__(self, db: Connection, prefix: str) -> None:
        self.db = db
        self.p = prefix
        self.messages: list[tuple[Any, ...]] = []
        self.source_of: dict[str, int | None] = {}

    def append(self, event: Recorded, payload: e.MessageAppended) -> None:
        """A message that came from a source."""
        session_id = event.stream[8:]
        try:
            source = self.source_of[session_id]
        except KeyError:
            found = self.db.execute(
                f"SELECT source FROM {self.p}source_sessions WHERE session_id = ?", (session_id,)
            ).fetchone()
            source = self.source_of[session_id] = found[0] if found else None
        if source is not None:  # else the event that created its session was emptied
            state = STATES[payload.visibility]
            self.messages.append(
                (event.position, source, payload.source_id, payload.seen or b"", state, 0, 0)
            )

    def flush(self) -> None:
        """Write the messages so far, so that SQL sees them."""
        messages, self.messages = self.messages, []
        for sql, bound in inserts(f"INSERT OR REPLACE INTO {self.p}source_messages", messages):
            self.db.execute(sql, bound)

    def fold(self, event: Recorded) -> None:
        """Any other event."""
        payload = event.payload
        match payload:
            case e.PayloadsErased():
                self.erase(payload)
            case e.ErasedEvent():
                if event.source_ref is not None:
                    self.db.execute(
                        f"INSERT OR IGNORE INTO {self.p}source_erased VALUES (?)", (event.source_ref,)
                    )
            case e.PromptChanged(prompt_hash=str() as known, text=str()):
                self.db.execute(
                    f"INSERT OR IGNORE INTO {self.p}source_prompts VALUES (?, ?)",
                    (known, event.position),
                )
            case e.ImportRan():
                self.ran(event, payload)
        if event.stream.startswith("session:"):
            self.fold_session(event, payload)
        elif event.stream.startswith("route:"):
            self.fold_route(event, payload)

    # --- sessions and messages -----------------------------------------------------------------------

    def fold_session(self, event: Recorded, payload: Any) -> None:
        """An event of a session's stream."""
        if event.source_ref is None:
            self.changed_here(event, payload)
            return
        match payload:
            case e.SessionCreated(store=str() as store):
                self.source_of.pop(event.session_id, None)
                self.db.execute(
                    f"INSERT OR REPLACE INTO {self.p}source_sessions VALUES (?,?,?,?,0)",
                    (
                        event.session_id,
                        self.source(store),
                        event.position,
                        packed(seen_after({}, payload, event.at_us)),
                    ),
                )
            case e.MessageEdited():
                self.edited(payload.message, payload.seen)
                self.outdated_messages(event, (payload.message,), payload.changes)
            case e.MessagesRewound():
                self.show(payload.messages, "rewound")
                self.outdated_messages(event, payload.messages, _SHOWING)
            case e.MessagesRestored():
                self.show(payload.messages, "live")
                self.outdated_messages(event, payload.messages, _SHOWING)
            case e.MessagesCompacted():
                self.show(payload.messages, "compacted")
                self.outdated_messages(event, payload.messages, _SHOWING)
            case e.SourceRowGone():
                self.gone(payload.messages, 1)
                if payload.kind == "session":
                    self.set_gone(event.session_id, 1)
            case e.SourceRowChanged(kind="message"):
                self.message_changed(event, payload)
            case e.UsageRecorded(model=str()):
                self.db.execute(
                    f"INSERT OR REPLACE INTO {self.p}source_usage VALUES (?, ?, ?)",
                    (event.session_id, usage_key(payload), usage_digest(payload)),
                )
            case e.UsageRowGone():
                self.db.execute(
                    f"DELETE FROM {self.p}source_usage WHERE session_id = ? AND key = ?",
                    (event.session_id, usage_key(payload)),
                )
            case e.Payload():
                self.session(event, payload)

    def session(self, event: Recorded, payload: e.Payload) -> None:
        """What a source says of a session now."""
        found = self.db.execute(
            f"SELECT seen FROM {self.p}source_sessions WHERE session_id = ?", (event.session_id,)
        ).fetchone()
        if found is None:
            return  # the event that created it was emptied
        before = unpacked(found[0])
        after = seen_after(before, payload, event.at_us)
        self.db.execute(
            f"UPDATE {self.p}source_sessions SET seen = ? WHERE session_id = ?",
            (packed(after), event.session_id),
        )
        if isinstance(payload, e.SourceRowChanged):
            self.set_gone(event.session_id, 0)
            self.gone(payload.messages, 0)
            self.conflicts(event, payload)
        else:
            moved = [column for column in after if column not in before or before[column] != after[column]]
            self.outdated("session", event.session_id, event.session_id, moved)

    def set_gone(self, session_id: str, gone: int) -> None:
        """Whether the session's row is still in its source."""
        self.db.execute(
            f"UPDATE {self.p}source_sessions SET gone = ? WHERE session_id = ?", (gone, session_id)
        )

    def edited(self, message: int, seen: bytes | None) -> None:
        """A source's row has other values."""
        self.flush()
        self.db.execute(
            f"UPDATE {self.p}source_messages SET digest = ?, gone = 0 WHERE message = ?",
            (seen or b"", message),
        )

    def show(self, messages: Iterable[int], to: Visibility) -> None:
        """A source shows rows otherwise."""
        self.flush()
        self.db.executemany(
            f"UPDATE {self.p}source_messages SET state = ?, gone = 0 WHERE message = ?",
            [(STATES[to], message) for message in messages],
        )

    def gone(self, messages: Iterable[int], gone: int) -> None:
        """Rows left their source, or are back."""
        self.flush()
        self.db.executemany(
            f"UPDATE {self.p}source_messages SET gone = ? WHERE message = ?",
            [(gone, message) for message in messages],
        )

    def message_changed(self, event: Recorded, payload: e.SourceRowChanged) -> None:
        """Rows that are back, or that were changed on both sides: only what was seen moves."""
        self.gone(payload.messages, 0)
        self.conflicts(event, payload)
        to = shown(payload.changes) if "active" in payload.changes else None
        for message in payload.messages:
            if payload.seen is not None:
                self.edited(message, payload.seen)
            if to is not None:
                self.show((message,), to)

    def changed_here(self, event: Recorded, payload: Any) -> None:
        """Something was decided here about messages that a source may know too."""
        match payload:
            case e.MessageEdited():
                self.mark((payload.message,), EDITED_HERE)
            case e.MessageEnriched():
                self.mark((payload.message,), EDITED_HERE)
            case e.MessagesRewound():
                self.mark((*payload.messages, *payload.restored), SHOWN_HERE)
            case e.MessagesRestored():
                self.mark((*payload.messages, *payload.compacted), SHOWN_HERE)
            case e.MessagesCompacted():
                self.mark(payload.messages, SHOWN_HERE)
            case e.SourceRowChanged(conflicts=[]):
                self.settled(event)
            case e.SourceRowChanged():  # that it was settled was undone
                self.conflicts(event, payload)

    def settled(self, event: Recorded) -> None:
        """A person settled a conflict: the event was caused by the one that found it."""
        self.db.execute(f"DELETE FROM {self.p}source_conflicts WHERE position = ?", (event.caused_by,))

    def mark(self, messages: Iterable[int], bit: int) -> None:
        """Remember it."""
        self.flush()
        self.db.executemany(
            f"UPDATE {self.p}source_messages SET changed_here = changed_here | ? WHERE message = ?",
            [(bit, message) for message in messages],
        )

    # --- routes, runs, conflicts, erasures -----------------------------------------------------------

    def fold_route(self, event: Recorded, payload: Any) -> None:
        """What a source says of where a key leads; `store` names the source."""
        store = getattr(payload, "store", None)
        if store is None:
            if isinstance(payload, e.SourceRowChanged):
                self.settled(event)
            return
        routes = f"{self.p}source_routes"
        match payload:
            case e.SessionRerouted():
                self.db.execute(
                    f"INSERT OR REPLACE INTO {routes} VALUES (?,?,?,?,0)",
                    (self.source(store), payload.key, payload.session_id, entry_digest(payload.entry)),
                )
                self.outdated("route", None, payload.key, ("session_id", "entry_json"), self.source(store))
            case e.RouteClosed(key=key) | e.SourceRowGone(row=key):
                self.db.execute(
                    f"UPDATE {routes} SET gone = 1 WHERE source = ? AND key = ?", (self.source(store), key)
                )
            case e.SourceRowChanged():
                changes = payload.changes
                self.db.execute(
                    f"INSERT INTO {routes} VALUES (?1,?2,?3,?4,0) ON CONFLICT DO UPDATE SET"
                    " session_id = coalesce(?3, session_id), entry = coalesce(?4, entry), gone = 0",
                    (
                        self.source(store),
                        payload.row,
                        changes.get("session_id"),
                        entry_digest(changes.get("entry_json")),
                    ),
                )
                self.conflicts(event, payload)

    def source(self, store: str) -> int:
        """The number of the store: the same whichever of its events are left to be told."""
        select = f"SELECT id FROM {self.p}source_homes WHERE store = ?"
        found = self.db.execute(select, (store,)).fetchone()
        if found is None:
            insert = f"INSERT INTO {self.p}source_homes (id, store) VALUES (?, ?)"
            self.db.execute(insert, (store_number(store), store))
            found = self.db.execute(select, (store,)).fetchone()
        return int(found[0])

    def ran(self, event: Recorded, payload: e.ImportRan) -> None:
        """A run over a store came to its end."""
        if not event.stream.startswith("source:"):
            return
        self.db.execute(
            f"UPDATE {self.p}source_homes SET path = ?, schema_version = ?, last_run = ?, last_run_us = ?"
            " WHERE id = ?",
            (
                payload.path,
                payload.schema_version,
                event.position,
                event.at_us,
                self.source(event.stream[7:]),
            ),
        )

    def conflicts(self, event: Recorded, payload: e.SourceRowChanged) -> None:
        """What was changed on both sides; a source has one last word on each column of a row."""
        session_id = event.session_id if event.stream.startswith("session:") else None
        source = None if payload.store is None else self.source(payload.store)
        self.outdated(payload.kind, session_id, payload.row, payload.changes, source)
        self.db.executemany(
            f"INSERT OR REPLACE INTO {self.p}source_conflicts VALUES (?,?,?,?,?,?,?,?)",
            [
                (
                    event.position,
                    payload.kind,
                    session_id,
                    payload.row,
                    column,
                    payload.ours.get(column),
                    _text(payload.changes.get(column)),
                    source,
                )
                for column in payload.conflicts
            ],
        )

    def outdated(
        self, kind: str, session_id: str | None, row: str, columns: Iterable[str], source: int | None = None
    ) -> None:
        """The source says something else by now than in a conflict of before."""
        self.db.executemany(
            f"DELETE FROM {self.p}source_conflicts WHERE kind = ? AND session_id IS ? AND row = ?"
            ' AND "column" = ? AND source IS ?',
            [(kind, session_id, row, column, source) for column in columns],
        )

    def outdated_messages(self, event: Recorded, messages: Iterable[int], columns: Iterable[str]) -> None:
        """As `outdated`, for messages by their positions."""
        self.flush()
        self.db.execute(
            f"DELETE FROM {self.p}source_conflicts WHERE kind = 'message' AND session_id = ?"
            ' AND "column" IN (SELECT value FROM json_each(?)) AND row IN'
            f" (SELECT CAST(source_id AS TEXT) FROM {self.p}source_messages"
            " WHERE message IN (SELECT value FROM json_each(?)))",
            (event.session_id, _to_json(list(columns)).decode(), _to_json(list(messages)).decode()),
        )

    def erase(self, payload: e.PayloadsErased) -> None:
        """Emptied events: their references stay, so that no import brings them again."""
        self.flush()
        self.source_of.clear()
        self.db.executemany(
            f"INSERT OR IGNORE INTO {self.p}source_erased VALUES (?)",
            [(ref,) for ref in payload.source_refs if ref is not None],
        )
        if payload.store is not None:
            self.source(payload.store)
        if payload.session is not None:
            self.db.execute(
                f"UPDATE {self.p}source_routes SET entry = ? WHERE session_id = ?",
                (entry_digest(None), payload.session),
            )
            for table in ("source_sessions", "source_usage"):
                self.db.execute(f"DELETE FROM {self.p}{table} WHERE session_id = ?", (payload.session,))
        for position in payload.masked:  # what is left of it is none of the source's
            self.db.execute(f"DELETE FROM {self.p}source_messages WHERE message = ?", (position,))
        at = [(position,) for position in payload.positions]
        for table, column in (
            ("source_messages", "message"),
            ("source_prompts", "position"),
            ("source_conflicts", "position"),
        ):
            self.db.executemany(f"DELETE FROM {self.p}{table} WHERE {column} = ?", at)
        for position in payload.positions:
            found = self.db.execute(
                f"SELECT session_id FROM {self.p}source_sessions WHERE created = ?", (position,)
            ).fetchone()
            if found is not None:
                for table in ("source_sessions", "source_usage"):
                    self.db.execute(f"DELETE FROM {self.p}{table} WHERE session_id = ?", found)


def store_number(store: str) -> int:
    """What stands for a store in the rows of its messages: four bytes, whatever came before it."""
    return int.from_bytes(hashlib.blake2b(store.encode(), digest_size=4).digest(), "big")


def usage_key(payload: e.UsageRecorded | e.UsageRowGone) -> bytes:
    """Which of a session's rows by model it is."""
    return _pack(
        (
            payload.model,
            payload.billing_provider,
            payload.billing_base_url,
            payload.billing_mode,
            payload.task,
        )
    )


def usage_row_gone(key: bytes) -> e.UsageRowGone:
    """The event that tells that the row of this `usage_key` has gone."""
    return e.UsageRowGone(*_unpack_key(key))


def usage_digest(payload: e.UsageRecorded) -> bytes:
    """8 bytes over all that the row says."""
    return hashlib.blake2b(_pack(payload), digest_size=8).digest()


def entry_digest(entry: object) -> bytes | None:
    """8 bytes over a routing entry's text."""
    return None if not isinstance(entry, str) else hashlib.blake2b(entry.encode(), digest_size=8).digest()


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) else repr(value)
