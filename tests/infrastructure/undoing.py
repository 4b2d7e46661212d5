"""A chat whose changes are undone, and what such a change is."""

from __future__ import annotations

from collections.abc import Callable

from retold.infrastructure.engine import SessionEngine
from retold.tests.histories import DAY_US, MINUTE_US, T0_US
from retold.tests.infrastructure.repairing import K

TITLES = ("plan", "plan #2", "boats", "new")
Do = Callable[[SessionEngine], tuple[int, ...]]


def with_a_past(engine: SessionEngine) -> SessionEngine:
    """A chat with a past: `a` was left for `b` by a reset, `b` is where it is."""
    engine.create_session("telegram", session_id="a", key=K, title="plan", chat_id="1001", at_us=T0_US)
    for minute in range(3):
        engine.append_message("a", "user", f"word {minute}", at_us=T0_US + minute * MINUTE_US)
    engine.create_session(
        "telegram", session_id="b", key=K, cause="reset", parent="a", title="boats", at_us=T0_US + DAY_US
    )
    engine.append_message("b", "user", "hi", at_us=T0_US + DAY_US)
    engine.append_message("b", "assistant", "hello", at_us=T0_US + DAY_US + 1)
    engine.create_session("telegram", session_id="c", key="agent:main:telegram:dm:3", at_us=T0_US)
    return engine
