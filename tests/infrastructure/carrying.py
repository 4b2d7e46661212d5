"""A Hermes home into which a repair is carried: what it holds, and which save is carried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from retold.domain.events import SessionRerouted
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.streams import route_stream
from retold.tests.infrastructure.importing import ask
from retold.tests.infrastructure.repairing import TRUTH

KEY = TRUTH["lineage"]["adopts_key"]
ORPHAN, DONOR, WRONG = (TRUTH["lineage"][name] for name in ("orphan", "predecessor", "routed_to_now"))
CARRIER = """
import sys
from pathlib import Path
from retold.infrastructure.engine import open_home
from retold.infrastructure.exporters.hermes_repair import carry_repairs
with open_home(Path(sys.argv[1])) as engine:
    carry_repairs(engine, Path(sys.argv[2]))
"""


def session(hermes: Path, session_id: str) -> dict[str, Any]:
    columns = ("session_key", "chat_id", "user_id", "parent_session_id", "ended_at", "end_reason")
    (row,) = ask(hermes, f"SELECT {', '.join(columns)} FROM sessions WHERE id = ?", session_id)
    return dict(zip(columns, row, strict=True))


def entries(hermes: Path, key: str = KEY) -> tuple[dict[str, Any], dict[str, Any]]:
    """The key's entry in the table, and in the mirror."""
    ((text,),) = ask(hermes, "SELECT entry_json FROM gateway_routing WHERE session_key = ?", key)
    return json.loads(text), json.loads((hermes / "sessions" / "sessions.json").read_text())[key]


def save_of_repair(engine: SessionEngine) -> int:
    return engine.save_of(repair_of(engine))[0].position


def repair_of(engine: SessionEngine) -> int:
    """The save that led the key back."""
    stream = route_stream(engine.identity, KEY)
    led = engine.event_log.read(0, topics=(SessionRerouted.topic,), stream=stream)
    return next(each.position for each in led if getattr(each.payload, "cause", "") == "repair")
