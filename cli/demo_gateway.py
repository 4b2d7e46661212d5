"""The gateway that `retold demo` kills: it compresses in two steps, as stores of rows did."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ..infrastructure.engine import SessionEngine

KEY = "agent:main:telegram:dm:1001"
DAY_US = 86_400_000_000
BEGAN_US = 1_777_881_600_000_000
"""4 May 2026, 08:00 UTC."""
BOAT = "20260504_080000_b33d43d5"
KITCHEN = "20260507_081000_325c9788"
KITCHEN_2 = "20260508_141930_46dc1a26"
MINUTE_US = 60_000_000
SECOND_DAY_US = BEGAN_US + 3 * DAY_US + 10 * MINUTE_US
THIRD_DAY_US = BEGAN_US + 4 * DAY_US + 379 * MINUTE_US


def play(home: Path) -> None:
    """Write the chat, telling each message when it is stored; then wait to be killed."""
    with SessionEngine(home, actor="gateway") as engine:
        _begin(engine, BOAT, "boat repair", BEGAN_US)
        _say(engine, BOAT, BEGAN_US, "The hull leaks at the keel. Epoxy or cloth?", "Cloth over epoxy.")
        _begin(engine, KITCHEN, "kitchen plan", SECOND_DAY_US)
        _say(engine, KITCHEN, SECOND_DAY_US, "Where should the sink go?", "Under the window.")
        # Two saves where the engine's own compress_session makes one, and no key for the child.
        engine.end_session(KITCHEN, "compression", at_us=THIRD_DAY_US)
        engine.create_session(
            "telegram",
            session_id=KITCHEN_2,
            parent=KITCHEN,
            parent_kind="continuation",
            title="kitchen plan #2",
            at_us=THIRD_DAY_US,
        )
        _say(engine, KITCHEN_2, THIRD_DAY_US, "And the oven?", "Left of the sink.")
        print("compressed", flush=True)
        time.sleep(60)  # the signal comes first


def restart(home: Path) -> None:
    """What it did at its next start: lead the chat to the newest open session that bears the key."""
    with SessionEngine(home, actor="gateway") as engine:
        engine.end_session(KITCHEN, "compression")
        engine.reroute(KEY, BOAT, "recovery", at_us=THIRD_DAY_US + 60 * MINUTE_US)


def _begin(engine: SessionEngine, session_id: str, title: str, at_us: int) -> None:
    engine.create_session(
        "telegram",
        session_id=session_id,
        key=KEY,
        title=title,
        at_us=at_us,
        chat_id="1001",
        chat_type="dm",
        user_id="501",
        display_name="chat 1001",
    )


def _say(engine: SessionEngine, session_id: str, at_us: int, asked: str, answered: str) -> None:
    for number, (role, text) in enumerate((("user", asked), ("assistant", answered)), 1):
        saved = engine.append_message(session_id, role, text, at_us=at_us + number * MINUTE_US)
        print(f"ack {saved.position}", flush=True)


if __name__ == "__main__":
    play(Path(sys.argv[1]))
