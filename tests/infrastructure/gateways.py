"""Chats that a gateway serves, and one that crashes."""

from __future__ import annotations

from retold.domain import events as e
from retold.domain.session_source import SessionSource
from retold.infrastructure.commands.gateway import Started
from retold.infrastructure.engine import SessionEngine
from retold.tests.infrastructure.clocks import Clock

K = "agent:main:telegram:dm:1001"
PLACE = SessionSource("telegram", "1001")


def chat(engine: SessionEngine, session_id: str = "s1", number: int = 1001, source: str = "telegram") -> str:
    """A chat with one message, and the key that leads to it."""
    key = f"agent:main:{source}:dm:{number}"
    engine.create_session(source, session_id=session_id, key=key)
    engine.append_message(session_id, "user", f"hello from {number}")
    return key


def crash_in_turn(engine: SessionEngine, clock: Clock, session_id: str = "s1") -> Started:
    """A turn begins, the process is gone, and a while later the gateway starts again."""
    clock.turn(100)
    engine.begin_turn(session_id, gateway="main")
    clock.turn(100)
    return engine.start_gateway()


def recoveries(engine: SessionEngine) -> list[e.RecoveryRan]:
    return [
        event.payload
        for event in engine.event_log.read(topics=[e.RecoveryRan.topic])
        if isinstance(event.payload, e.RecoveryRan)
    ]
