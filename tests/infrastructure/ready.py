"""A home in which every kind of command has something to do, and those commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from retold.domain.events import IdentityLost, session_stream
from retold.infrastructure.decisions import event
from retold.infrastructure.engine import SessionEngine
from retold.tests.proof.writers import Clock

KEY, OTHER = "agent:main:telegram:dm:1001", "agent:main:telegram:dm:1002"
START_US = 1_700_000_000_000_000
Command: TypeAlias = tuple[str, dict[str, Any]]
COMMANDS: dict[str, Command] = {
    "reset": ("reset", {"key": KEY, "session_id": "after"}),
    "timed reset": ("resolve", {"source": {"platform": "telegram", "chat_id": "1003"}}),
    "compress": (
        "compress",
        {"session_id": "led", "summary": "summed up", "keep_last": 2, "continuation_id": "next"},
    ),
    "compact": (
        "compress",
        {"session_id": "led", "summary": "summed up", "keep_last": 2, "in_place": True},
    ),
    "repair": ("repair", {"orphan_id": "orphan"}),
    "delete": ("delete_session", {"session_id": "led"}),
    "undelete": ("undelete_session", {"session_id": "gone"}),
    "erasure": ("delete_session", {"session_id": "led", "now": True}),
    "erasure of what was deleted": ("erase_sessions", {"session_ids": ["gone"], "reason": "its time"}),
    "forget": ("forget_message", {"session_id": "led", "message": "m0"}),
    "forget a text": ("forget_text", {"secret": "secret 7"}),
    "handoff": ("complete_handoff", {"session_id": "handed", "gateway": "g", "key": OTHER}),
    "queue": ("enqueue", {"session_id": "led", "turn": "t9", "text": "later"}),
    "next turn": ("next_turn", {"session_id": "led"}),
    "stop": ("stop_session", {"session_id": "runs"}),
    "branch": ("branch_session", {"session_id": "led", "branch_id": "way"}),
    "title": ("title_session", {"session_id": "led", "title": "another"}),
    "resume": ("resume", {"key": KEY, "session_id": "runs"}),
    "resume in a terminal": ("resume_session", {"session_id": "closed"}),
    "undo": ("undo", {"position": 0}),
    "start": ("start_gateway", {"name": "g"}),
}


def prepare(home: Path) -> int:
    """Make the home; returns its last position."""
    home.mkdir()
    (home / "config.yaml").write_text("session_reset: {mode: none}\n")
    with SessionEngine(home, clock=Clock(START_US)) as engine:
        for name, key in (("led", KEY), ("there", OTHER)):
            engine.create_session("telegram", session_id=name, key=key, title=f"title of {name}")
        engine.create_session("telegram", session_id="runs", key="agent:main:telegram:dm:1004")
        for name in ("handed", "gone"):
            engine.create_session("cli", session_id=name)
        for number in range(12):
            role = ("user", "assistant")[number % 2]
            for name in ("led", "gone"):
                text = f"{name} says {number}, and the secret {number}"
                engine.append_message(name, role, text, platform_message_id=f"m{number}")
        engine.create_session("cli", parent="led", parent_kind="delegate", session_id="helper")
        engine.delete_session("gone")
        engine.create_session("cli", session_id="closed")
        engine.end_session("closed", "cli_close")
        engine.set_home_channel("telegram", "1002")
        engine.request_handoff("handed", "telegram")
        engine.claim_handoff("handed", "g")
        for turn in ("t1", "t2"):
            engine.enqueue("led", f"do {turn}", turn=turn, lane="overflow")
        engine.begin_turn("runs", "t5", text="go on", gateway="g")
        _orphan(engine)
        return engine.archive_session("there").position


def _orphan(engine: SessionEngine) -> None:
    """A session that lost its chat's key, as an older store's crash left one."""
    key = "agent:main:telegram:dm:1003"
    engine.create_session("telegram", session_id="before", key=key, chat_id="1003", user_id="503")
    engine.append_message("before", "user", "what was before")
    engine.compress_session("before", "summed up", continuation_id="orphan")
    engine.append_message("orphan", "user", "what came then")
    led = engine.route(key)
    state = engine.session("orphan")
    lost = IdentityLost({"session_key": key}, {"session_key": None})
    closed = led.close("import")
    assert closed is not None
    engine.save_events(
        [
            event(session_stream("orphan"), state.version + 1, lost, START_US),
            engine.rerouted(led, closed, START_US),
        ]
    )


def given(name: str, head: int, at_us: int) -> Command:
    """A command with all its arguments.

    Args:
        head: the last position of the home, which `undo` undoes.
    """
    command, more = COMMANDS[name]
    if command == "undo":
        more = {"position": head}
    return command, more if command == "erase_sessions" else {"at_us": at_us, **more}
