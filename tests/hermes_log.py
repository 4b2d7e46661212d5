"""A log told straight from a Hermes home's tables, for tests of what is read from a log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from retold.domain import events as e
from retold.domain.ends import is_compression, is_hard
from retold.domain.events import Event, session_stream
from retold.domain.parents import parent_kind
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.streams import route_stream

# A process of its own: no second SQLite library may touch a file that this one has open.
_READ = """
import json, sqlite3, sys
store = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro&immutable=1", uri=True)
store.row_factory = sqlite3.Row
tables = {
    name: [dict(row) for row in store.execute("SELECT * FROM " + name + " ORDER BY rowid")]
    for name in ("sessions", "messages", "gateway_routing")
}
json.dump(tables, sys.stdout)
"""
_IDENTITY = ("session_key", "chat_id", "chat_type", "thread_id", "user_id", "display_name", "origin_json")


def told_from(hermes_home: Path, home: Path) -> SessionEngine:
    """A Retold home at `home` with the sessions, messages, ends, titles and routes of `hermes_home`."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(hermes_home / "state.db")], capture_output=True, check=True
    )
    tables = json.loads(done.stdout)
    engine = open_home(home, actor="import")
    drafts = [engine.draft(each) for each in _events(tables, engine.event_log.identity)]
    engine.event_log.append(drafts)
    engine.projector.catch_up(wait_ms=10_000)
    return engine


def _events(tables: dict[str, list[dict[str, Any]]], identity: Any) -> Iterator[Event]:
    rows = {row["id"]: row for row in tables["sessions"]}
    versions: dict[str, int] = {}

    def event(stream: str, payload: e.Payload, at_us: int, kind: e.AtKind = "exact") -> Event:
        versions[stream] = versions.get(stream, 0) + 1
        return Event(stream, versions[stream], payload, at_us, at_kind=kind)

    spoken: dict[str, list[dict[str, Any]]] = {}
    for message in tables["messages"]:
        spoken.setdefault(message["session_id"], []).append(message)
    for row in sorted(rows.values(), key=lambda row: (row["started_at"], row["id"])):
        stream, parent = session_stream(row["id"]), rows.get(row["parent_session_id"])
        created = e.SessionCreated(
            source=row["source"],
            **{name: row[name] for name in _IDENTITY},
            parent_session_id=row["parent_session_id"],
            parent_kind=parent_kind(row, parent),
            model_config=row["model_config"],
        )
        yield event(stream, created, _us(row["started_at"]))
        if row["title"]:
            yield event(stream, e.SessionTitled(row["title"]), _us(row["started_at"]))
        for message in spoken.get(row["id"], []):
            visible: e.Visibility = (
                "live" if message["active"] else "compacted" if message["compacted"] else "rewound"
            )
            said = e.MessageAppended(role=message["role"], content=message["content"], visibility=visible)
            yield event(stream, said, _us(message["timestamp"]))
        if row["ended_at"] is not None:
            at_us, reason = _us(row["ended_at"]), row["end_reason"]
            goes_on = [each for each in rows.values() if each["parent_session_id"] == row["id"]]
            if is_compression(reason) and goes_on:
                yield event(stream, e.SessionCompressed(goes_on[0]["id"]), at_us)
            else:
                yield event(stream, e.SessionEnded(reason, is_hard(reason)), at_us)
    for row in tables["gateway_routing"]:
        entry = json.loads(row["entry_json"])
        led = e.SessionRerouted(
            key=row["session_key"],
            session_id=entry["session_id"],
            previous=None,
            cause="import",
            entry=row["entry_json"],
            entry_created_us=_iso_us(entry["created_at"]),
            entry_updated_us=_iso_us(entry["updated_at"]),
        )
        yield event(route_stream(identity, row["session_key"]), led, _us(row["updated_at"]), "no_later_than")


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _iso_us(text: str) -> int:
    at = datetime.fromisoformat(text)
    return _us((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
