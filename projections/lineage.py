"""Which session came from which, and how: every edge with its kind, as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..domain.events import (
    IdentityLost,
    IdentityRestored,
    PayloadsErased,
    Recorded,
    SessionCompressed,
    SessionCreated,
    SourceRowChanged,
)
from .base import Connection, OfMessages, Projection


class Lineage(Projection):
    """Edges from child to parent, never inferred from clocks."""

    name: ClassVar[str] = "lineage"
    version: ClassVar[int] = 1
    of_messages: ClassVar[OfMessages] = "none"
    tables: ClassVar[dict[str, str]] = {
        "edges": (
            "(child TEXT PRIMARY KEY, parent TEXT NOT NULL, kind TEXT NOT NULL, position INTEGER NOT NULL)"
            " WITHOUT ROWID"
        ),
        "compressions": (
            "(position INTEGER PRIMARY KEY, parent TEXT NOT NULL, continuation TEXT NOT NULL,"
            " at_us INTEGER NOT NULL)"
        ),
    }
    indexes: ClassVar[dict[str, str]] = {
        "edges_by_parent": "edges (parent, kind)",
        "compressions_by_parent": "compressions (parent)",
    }

    def ordered(self) -> dict[str, str]:
        """Whole content in a fixed order."""
        return {
            "edges": "SELECT * FROM {p}edges ORDER BY child",
            "compressions": "SELECT * FROM {p}compressions ORDER BY position",
        }

    def fold(self, events: Sequence[Recorded], db: Connection) -> None:
        """Follow who continues whom."""
        for event in events:
            match event.payload:
                case SessionCreated(parent_session_id=str() as parent, parent_kind=kind):
                    self._edge(event, parent, kind, db)
                case SessionCompressed():
                    db.execute(
                        f"INSERT INTO {self.t('compressions')} VALUES (?,?,?,?)",
                        (event.position, event.session_id, event.payload.continuation, event.at_us),
                    )
                case PayloadsErased(session=str() as erased):
                    db.execute(f"DELETE FROM {self.t('edges')} WHERE child = ?", (erased,))
                    db.execute(f"DELETE FROM {self.t('compressions')} WHERE parent = ?", (erased,))
                case SourceRowChanged(kind="session", changes=changes, conflicts=conflicts) if (
                    "parent_session_id" not in conflicts
                ):
                    self._moved(event, changes, db)
                case IdentityLost(now=now) | IdentityRestored(now=now):
                    self._moved(event, now, db)
                case _:
                    pass

    def _moved(self, event: Recorded, changes: Mapping[str, object], db: Connection) -> None:
        """The edge of a session, where its parent or what it is to it changed."""
        if "parent_session_id" not in changes and "parent_kind" not in changes:
            return
        known = db.execute(
            f"SELECT parent, kind FROM {self.t('edges')} WHERE child = ?", (event.session_id,)
        ).fetchone() or (None, None)
        parent_now = changes.get("parent_session_id", known[0])
        if parent_now is None:
            db.execute(f"DELETE FROM {self.t('edges')} WHERE child = ?", (event.session_id,))
        else:
            self._edge(event, str(parent_now), changes.get("parent_kind", known[1]), db)

    def _edge(self, event: Recorded, parent: str, kind: object, db: Connection) -> None:
        db.execute(
            f"INSERT OR REPLACE INTO {self.t('edges')} VALUES (?,?,?,?)",
            (event.session_id, parent, kind or "child", event.position),
        )


def missing_parents(db: Connection) -> list[tuple[str, str, str]]:
    """(child, parent, kind) of sessions whose parent never was here; one that was deleted here was."""
    rows = db.execute(
        "SELECT e.child, e.parent, e.kind FROM edges e JOIN sessions c ON c.id = e.child"
        " LEFT JOIN sessions p ON p.id = e.parent LEFT JOIN deletions d ON d.session_id = e.parent"
        " WHERE p.id IS NULL AND d.session_id IS NULL ORDER BY e.child"
    )
    return [(str(child), str(parent), str(kind)) for child, parent, kind in rows]
