"""Sessions that lost their key, for tests of repairs, of undos and of what is told of both."""

from __future__ import annotations

import json
from typing import Any

from retold.domain import events as e
from retold.domain.audit import Finding, audit
from retold.infrastructure.engine import SessionEngine
from retold.projections.world import world
from retold.tests.conftest import FIXTURES
from retold.tests.histories import MINUTE_US, T0_US

TRUTH: Any = json.loads((FIXTURES / "hermes-home" / "truth.json").read_text())["incident"]
K = "agent:main:telegram:dm:1001"
K2 = "agent:main:telegram:dm:1002"


def talk(
    engine: SessionEngine, name: str, key: str | None, began_us: int, *minutes: int, **identity: Any
) -> None:
    """A session with a user's message at each of these minutes."""
    engine.create_session("telegram", session_id=name, at_us=began_us, **identity)
    if key is not None:  # bears it, and no route is told of it
        at = engine.session(name).version + 1
        told = e.IdentityRestored({"session_key": None}, {"session_key": key})
        engine.event_log.append([engine.draft(e.Event(f"session:{name}", at, told, began_us))])
    for minute in minutes or (0,):
        engine.append_message(name, "user", f"{name} {minute}", at_us=began_us + minute * MINUTE_US)


def findings(engine: SessionEngine) -> list[Finding]:
    engine.projector.catch_up()
    return audit(world(engine.state.reader()))


def row(engine: SessionEngine, session_id: str) -> dict[str, Any]:
    engine.projector.catch_up()
    cursor = engine.state.reader().execute("SELECT * FROM sessions WHERE id = ?", (session_id,))
    names = [column[0] for column in cursor.get_description()]
    return dict(zip(names, cursor.fetchall()[0], strict=True))


def payloads(engine: SessionEngine, positions: tuple[int, ...]) -> list[Any]:
    return [event.payload for event in engine.event_log.read(positions[0] - 1, upto=positions[-1])]


def twins(engine: SessionEngine) -> None:
    """A compressed session that three others say they continue, as older stores could have it."""
    engine.create_session("telegram", session_id="p", key=K, at_us=T0_US)
    engine.append_message("p", "user", "hi", at_us=T0_US)
    engine.compress_session("p", "so far", continuation_id="s1", at_us=T0_US + MINUTE_US)
    for minute, name in ((2, "s2"), (3, "s3")):
        state = engine.session("p").continuation()
        drafts = [engine.draft(e.Event(f"session:{name}", 1, state, T0_US + minute * MINUTE_US))]
        engine.event_log.append(drafts)
    for minute, name in ((4, "s1"), (5, "s2"), (6, "s3")):
        engine.append_message(name, "user", "on", at_us=T0_US + minute * MINUTE_US)
