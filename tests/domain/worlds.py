"""Worlds for the tests of audit and repair: made by hand, or told straight from a Hermes home."""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from retold.domain.facts import ConflictFacts, RouteFacts, SessionFacts, World

MINUTE = 60 * 1_000_000
DAY = 24 * 60 * MINUTE
K = "agent:main:telegram:dm:1001"


class Times:
    """Activity from memory."""

    def __init__(self, times: Mapping[str, Iterable[int]]) -> None:
        self._times = {session_id: sorted(found) for session_id, found in times.items()}

    def last_before(self, session_id: str, at_us: int) -> int | None:
        times = self._times.get(session_id, [])
        after = bisect_right(times, at_us)
        return times[after - 1] if after else None

    def first_after(self, session_id: str, at_us: int) -> int | None:
        times = self._times.get(session_id, [])
        after = bisect_right(times, at_us)
        return times[after] if after < len(times) else None


class Story:
    """A store told in days: `talk("a", K, 1, 1.5)` is a session with messages at those days."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionFacts] = {}
        self.times: dict[str, list[int]] = {}
        self.routes: dict[str, list[RouteFacts]] = {}
        self.conflicts: list[ConflictFacts] = []
        self.position = 0

    def talk(self, name: str, key: str | None, *days: float, began: float | None = None, **more: Any) -> None:
        self.position += 10
        times = [round(day * DAY) for day in days]
        ended = more.pop("ended", None)
        ended_position = more.pop("ended_position", None if ended is None else self.position + 2)
        self.times[name] = times
        self.sessions[name] = SessionFacts(
            id=name,
            source=more.pop("source", "telegram"),
            started_us=round(began * DAY) if began is not None else times[0],
            created_position=self.position,
            key=key,
            last_active_us=max(times, default=None),
            message_count=len(times),
            last_message_position=self.position + 1 if times else None,
            ended_us=None if ended is None else round(ended * DAY),
            ended_position=ended_position,
            **more,
        )

    def route(self, key: str, to: str, at: float = 99, cause: str = "import", **more: Any) -> None:
        self.position += 10
        kind = more.pop("at_kind", "no later than" if cause == "import" else "exact")
        created, updated = more.pop("created", None), more.pop("updated", None)
        self.routes.setdefault(key, []).append(
            RouteFacts(
                key=key,
                session_id=to,
                position=self.position,
                at_us=round(at * DAY),
                cause=cause,
                at_kind=kind,
                entry_created_us=None if created is None else round(created * DAY),
                entry_updated_us=None if updated is None else round(updated * DAY),
                **more,
            )
        )

    def world(self, **more: Any) -> World:
        return World(
            sessions=self.sessions,
            routes=self.routes,
            activity=Times(self.times),
            conflicts=self.conflicts,
            **more,
        )


def world_of(home: Path) -> World:
    """The facts of a Hermes home, read from its own tables as an import would tell them."""
    with sqlite3.connect(home / "state.db") as store:
        store.row_factory = sqlite3.Row
        rows = store.execute("SELECT * FROM sessions ORDER BY started_at, id").fetchall()
        spoken = store.execute("SELECT session_id, role, timestamp FROM messages ORDER BY id").fetchall()
        entries = store.execute("SELECT * FROM gateway_routing ORDER BY session_key").fetchall()
    store.close()
    by_id = {row["id"]: row for row in rows}
    times: dict[str, list[int]] = {}
    any_role: dict[str, list[int]] = {}
    for message in spoken:
        at_us = _us(message["timestamp"])
        any_role.setdefault(message["session_id"], []).append(at_us)
        if message["role"] in ("user", "assistant"):
            times.setdefault(message["session_id"], []).append(at_us)
    sessions = {
        row["id"]: SessionFacts(
            id=row["id"],
            source=row["source"],
            started_us=_us(row["started_at"]),
            created_position=10 * number + 1,
            key=row["session_key"],
            chat_id=row["chat_id"],
            chat_type=row["chat_type"],
            thread_id=row["thread_id"],
            user_id=row["user_id"],
            profile=row["profile_name"],
            last_active_us=max(times.get(row["id"], []), default=None),
            last_message_us=max(any_role.get(row["id"], []), default=None),
            message_count=len(any_role.get(row["id"], [])),
            last_message_position=10 * number + 2 if row["id"] in any_role else None,
            ended_us=None if row["ended_at"] is None else _us(row["ended_at"]),
            end_reason=row["end_reason"],
            ended_position=None if row["ended_at"] is None else 10 * number + 3,
            parent_id=row["parent_session_id"],
            parent_kind=_kind(row, by_id),
            title=row["title"],
        )
        for number, row in enumerate(rows)
    }
    routes: dict[str, Sequence[RouteFacts]] = {}
    for number, row in enumerate(entries):
        entry = json.loads(row["entry_json"])
        routes[row["session_key"]] = (
            RouteFacts(
                key=row["session_key"],
                session_id=entry["session_id"],
                position=10 * len(rows) + number,
                at_us=_us(row["updated_at"]),
                at_kind="no later than",
                cause="import",
                entry_created_us=_iso_us(entry["created_at"]),
                entry_updated_us=_iso_us(entry["updated_at"]),
            ),
        )
    return World(sessions=sessions, routes=routes, activity=Times(times))


def _kind(row: Any, by_id: Mapping[str, Any]) -> Any:
    parent = by_id.get(row["parent_session_id"])
    config = json.loads(row["model_config"] or "{}")
    if row["parent_session_id"] is None:
        return None
    if "_branched_from" in config:
        return "branch"
    if "_delegate_from" in config:
        return "delegate"
    if parent is not None and parent["end_reason"] == "compression":
        return "continuation"
    return "child"


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _iso_us(text: str) -> int:
    at = datetime.fromisoformat(text)
    return _us((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
