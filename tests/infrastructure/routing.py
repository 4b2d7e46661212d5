"""An engine with a clock that tests turn, and what they look at in chats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from retold.domain import events as e
from retold.domain.audit import Finding, audit
from retold.domain.session_source import SessionSource
from retold.infrastructure.engine import SessionEngine
from retold.projections.world import world
from retold.tests.infrastructure import clocks

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOON = 1_777_636_800_000_000
"""1 May 2026, 12:00 UTC."""
BOAT = SessionSource("telegram", "1001", "Boat", user_id="501", user_name="Åsa")
K = "agent:main:telegram:dm:1001"


class Clock(clocks.Clock):
    """It stands at noon until it is turned."""

    def __init__(self, now_us: int = NOON) -> None:
        super().__init__(now_us)

    def pass_by(self, us: int) -> None:
        self.now_us += us

    def show(self, text: str, zone: str) -> None:
        """Turn it to what a clock of a zone shows."""
        self.now_us = round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 10**6


@contextmanager
def opened(home: Path, clock: Clock, config: str = "") -> Iterator[SessionEngine]:
    """The home, open under a configuration."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(config, encoding="utf-8")
    with SessionEngine(home, actor="gateway", clock=clock) as engine:
        yield engine


Open = Callable[..., Any]


def chat(engine: SessionEngine, source: SessionSource = BOAT, text: str = "hello") -> str:
    """One message of a chat and its answer; the session that they landed in."""
    found = engine.resolve(source).session_id
    engine.append_message(found, "user", text)
    engine.append_message(found, "assistant", f"to {text}")
    return found


def rows(engine: SessionEngine, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    engine.projector.catch_up()
    return [tuple(row) for row in engine.state.reader().execute(sql, values)]


def contents(engine: SessionEngine, session_id: str) -> list[str]:
    """What the messages of a session say, in order."""
    found = rows(engine, "SELECT content FROM messages WHERE session_id = ? ORDER BY id", session_id)
    return [row[0] for row in found]


def payloads(engine: SessionEngine, after: int = 0) -> list[e.Payload]:
    return [event.payload for event in engine.event_log.read(after)]


def saves(engine: SessionEngine, positions: tuple[int, ...]) -> set[int]:
    """The saves that events belong to."""
    found = engine.event_log.read(min(positions) - 1, upto=max(positions))
    return {event.save for event in found}


def findings(engine: SessionEngine) -> list[Finding]:
    engine.projector.catch_up()
    return audit(world(engine.state.reader()))


def continued(
    engine: SessionEngine,
    parent: str,
    *names: str,
    source: str = "telegram",
    at_us: int | None = None,
    **more: Any,
) -> None:
    """As stores of rows left them: sessions that say they continue another, whatever became of that one."""
    for name in names:
        born = e.SessionCreated(source, parent_session_id=parent, parent_kind="continuation", **more)
        engine.save_events([e.Event(f"session:{name}", 1, born, engine.at(at_us))])


def forget_routes(engine: SessionEngine, *keys: str) -> None:
    """As after a loss of the routing index by a store that kept it apart: the keys lead nowhere."""
    for key in keys:
        led = engine.route(key)
        gone = e.RouteClosed(key, led.session_id, "import")
        engine.save_events([engine.rerouted(led, gone, engine.at())])
