"""Where each key leads, and every time that changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from ..domain.events import (
    ActivityHeld,
    ActivityReleased,
    ErasedEvent,
    Recorded,
    RouteClosed,
    SessionRerouted,
    SourceRowChanged,
    SourceRowGone,
)
from .base import Connection, OfMessages, Projection

_json = msgspec.json.Encoder().encode


class Routing(Projection):
    """The routing index, and its history."""

    name: ClassVar[str] = "routing"
    version: ClassVar[int] = 1
    of_messages: ClassVar[OfMessages] = "none"
    tables: ClassVar[dict[str, str]] = {
        "routes": (
            "(key TEXT PRIMARY KEY, stream TEXT NOT NULL, session_id TEXT NOT NULL, previous TEXT,"
            " cause TEXT NOT NULL, position INTEGER NOT NULL, at_us INTEGER NOT NULL, at_kind TEXT NOT NULL,"
            " version INTEGER NOT NULL, entry TEXT, entry_created_us INTEGER, entry_updated_us INTEGER,"
            " source_gone INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID"
        ),
        "route_history": (
            "(position INTEGER PRIMARY KEY, key TEXT NOT NULL, session_id TEXT, previous TEXT,"
            " cause TEXT NOT NULL, at_us INTEGER NOT NULL, at_kind TEXT NOT NULL, recorded_at_us INTEGER"
            " NOT NULL, candidates TEXT NOT NULL, evidence TEXT NOT NULL, entry_created_us INTEGER,"
            " entry_updated_us INTEGER)"
        ),
    }
    indexes: ClassVar[dict[str, str]] = {
        "routes_by_session": "routes (session_id)",
        "routes_by_stream": "routes (stream)",
        "route_history_by_key": "route_history (key, position)",
    }

    def ordered(self) -> dict[str, str]:
        """Whole content in a fixed order."""
        return {
            "routes": "SELECT * FROM {p}routes ORDER BY key",
            "route_history": "SELECT * FROM {p}route_history ORDER BY position",
        }

    def fold(self, events: Sequence[Recorded], db: Connection) -> None:
        """Follow each key."""
        for event in events:
            if not event.stream.startswith("route:"):
                continue
            match event.payload:
                case SessionRerouted():
                    self._lead(event, event.payload, db)
                case RouteClosed():
                    self._close(event, event.payload, db)
                case SourceRowChanged(kind="route") if event.source_ref is not None:
                    self._entry(event, event.payload, db)
                case SourceRowGone():
                    db.execute(
                        f"UPDATE {self.t('routes')} SET source_gone = 1, version = ? WHERE stream = ?",
                        (event.version, event.stream),
                    )
                case SourceRowChanged() | ActivityHeld() | ActivityReleased():
                    db.execute(
                        f"UPDATE {self.t('routes')} SET version = ? WHERE stream = ?",
                        (event.version, event.stream),
                    )
                case ErasedEvent() | _:
                    pass

    def _lead(self, event: Recorded, p: SessionRerouted, db: Connection) -> None:
        db.execute(
            f"INSERT OR REPLACE INTO {self.t('routes')} VALUES (?,?,?,?,?,?,?,?,?,?,?,?,0)",
            (
                p.key,
                event.stream,
                p.session_id,
                p.previous,
                p.cause,
                event.position,
                event.at_us,
                event.at_kind,
                event.version,
                p.entry,
                p.entry_created_us,
                p.entry_updated_us,
            ),
        )
        self._remember(event, p.key, p.session_id, p.previous, p.cause, db, p)

    def _close(self, event: Recorded, p: RouteClosed, db: Connection) -> None:
        db.execute(f"DELETE FROM {self.t('routes')} WHERE key = ?", (p.key,))
        self._remember(event, p.key, None, p.previous, p.cause, db, None)

    def _remember(
        self,
        event: Recorded,
        key: str,
        session_id: str | None,
        previous: str | None,
        cause: str,
        db: Connection,
        led: SessionRerouted | None,
    ) -> None:
        db.execute(
            f"INSERT INTO {self.t('route_history')} VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                event.position,
                key,
                session_id,
                previous,
                cause,
                event.at_us,
                event.at_kind,
                event.recorded_at_us,
                _json(led.candidates if led else []).decode(),
                _json(led.evidence if led else []).decode(),
                led.entry_created_us if led else None,
                led.entry_updated_us if led else None,
            ),
        )

    def _entry(self, event: Recorded, p: SourceRowChanged, db: Connection) -> None:
        """The source's own entry changed in a way that leads nowhere else."""
        columns = {
            "entry": p.changes.get("entry_json"),
            "entry_created_us": p.changes.get("entry_created_us"),
            "entry_updated_us": p.changes.get("entry_updated_us"),
        }
        named = {k: v for k, v in columns.items() if v is not None and "entry_json" not in p.conflicts}
        sets = "".join(f", {name} = ?" for name in named)
        db.execute(
            f"UPDATE {self.t('routes')} SET source_gone = 0, version = ?{sets} WHERE stream = ?",
            (event.version, *named.values(), event.stream),
        )
