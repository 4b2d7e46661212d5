"""The gateway that `retold demo --week` starts, stops and kills: it plays the plan on a turned clock.

Run as a program with a home and the number of the first entry. It says `stopped N` or `kill N` where the next
run is to go on at entry N; after `kill` it waits for that.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ..domain.errors import Draining, SessionOver, Suspended, TurnRunning
from ..domain.inbound import Update
from ..domain.message import Message
from ..domain.session_source import SessionSource
from ..infrastructure.commands.turns import Begun
from ..infrastructure.engine import SessionEngine
from . import week_plan as plan

SECOND_US = 1_000_000
RESTART_US = 20 * SECOND_US
"""So long a gateway is away when it is started again."""
TOOL_EVERY = 3


class Clock:
    """It stands until it is turned, and is never turned back."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        return self.now_us

    def pass_by(self, us: int) -> None:
        self.now_us += us


class Gateway:
    """The loop of ARCHITECTURE.md, and what people of a busy week do beside it."""

    def __init__(self, engine: SessionEngine, clock: Clock) -> None:
        self.engine = engine
        self.clock = clock
        self._number = 0
        self._meanwhile: Callable[[], None] | None = None
        self._compressed: Callable[[str], str] | None = None

    def play(self, first: int) -> None:
        """The plan from an entry on, until the gateway is stopped or killed, or the week is over."""
        entries = plan.week()
        self._start()
        if first and plan.delivered(entries[first - 1]):  # a platform that got no answer delivers once more
            self._say(first - 1, entries[first - 1])
        for number in range(first, len(entries)):
            entry = entries[number]
            self.clock.now_us = max(self.clock.now_us + SECOND_US, entry.at_us)
            self._number = number
            self._happen(entry)
        self._stop(len(entries))

    def _start(self) -> None:
        for cut_off in self.engine.start_gateway().resume:
            if cut_off.text:
                self.engine.enqueue(cut_off.session_id, cut_off.text, about=cut_off.about)
        for session_id in self.engine.waiting_sessions():
            self._run(session_id)

    def _stop(self, following: int) -> None:
        self.clock.pass_by(SECOND_US)
        self.engine.stop_gateway()
        print("stopped", following, flush=True)
        raise SystemExit

    # --- the loop ------------------------------------------------------------------------------------

    def _take(self, source: SessionSource, update_id: str, text: str) -> None:
        update = Update(source.platform, source.chat_id or "", update_id)
        to = self.engine.resolve(source).session_id
        about = {"id": update_id}
        to = _on(self.engine.enqueue, to, text, lane="overflow", about=about, update=update)
        self._run(to)

    def _run(self, session_id: str) -> None:
        with contextlib.suppress(TurnRunning, Draining, Suspended, SessionOver):
            while turn := self.engine.next_turn(session_id, gateway="main"):
                session_id = self._turn(turn)

    def _turn(self, turn: Begun) -> str:
        asked = Message("user", turn.text, platform_message_id=str(turn.about["id"]))
        session_id = _on(self.engine.append, turn.session_id, asked, key=str(turn.about["id"]))
        self.clock.pass_by(8 * SECOND_US)
        if (meanwhile := self._meanwhile) is not None:
            self._meanwhile = None
            meanwhile()
        for message in self._answer():
            session_id = _on(self.engine.append, session_id, message)
            self.clock.pass_by(4 * SECOND_US)
        if (compressed := self._compressed) is not None:
            self._compressed = None
            session_id = compressed(session_id)
        session_id = self.engine.finish_turn(session_id, str(turn.turn)).session_id
        state = self.engine.session(session_id)
        if state.titled_by is None:
            self.engine.auto_title(session_id, state.display_name or "a talk")
        return session_id

    def _answer(self) -> list[Message]:
        chat = plan.week()[self._number].chat
        said = Message("assistant", plan.answer(chat, self._number))
        if self._number % TOOL_EVERY:
            return [said]
        call = f"call-{self._number}"
        asked = {"id": call, "type": "function", "function": {"name": "calendar", "arguments": "{}"}}
        found = Message("tool", "2 entries", tool_name="calendar", tool_call_id=call)
        return [Message("assistant", None, tool_calls=[asked]), found, said]

    # --- what happens --------------------------------------------------------------------------------

    def _say(self, number: int, entry: plan.Entry, *, more: int = 0) -> None:
        source = plan.chats()[entry.chat].source
        if entry.kind == "alias":
            source = msgspec.structs.replace(source, chat_id=f"{plan.LID}@lid", user_id=f"{plan.LID}@lid")
        self._take(source, f"{1000 + number * 10 + more}", plan.question(entry.chat, number + more))

    def _happen(self, entry: plan.Entry) -> None:
        match entry.kind:
            case "watch":
                self.engine.expire_due()
                self.engine.expire_handoffs()
                return
            case "restart":
                self._stop(self._number + 1)
            case "busy":
                self._meanwhile = self._more
            case "killed in a turn":
                self._meanwhile = self._be_killed
            case "drained in a turn":
                self._meanwhile = self._drain
            case "compress" | "compact" | "killed once compressed":
                self._compressed = self._shorter
            case "say" | "alias":
                pass
            case _:
                self._command(entry)
                return
        self._say(self._number, entry)

    def _more(self) -> None:
        """What comes in while the turn of this entry runs."""
        for more in (1, 2):
            self._say(self._number, plan.week()[self._number], more=more)

    def _be_killed(self) -> None:
        if plan.week()[self._number].kind == "killed in a turn":
            self._more()
        print("kill", self._number + 1, flush=True)
        time.sleep(60)  # the signal comes first

    def _drain(self) -> None:
        """The gateway is to stop while a turn runs, and another chat is written to meanwhile."""
        self.engine.drain_gateway()
        self._say(self._number, plan.Entry(self.clock(), "say", plan.TAX), more=1)
        self._stop(self._number + 1)

    def _shorter(self, session_id: str) -> str:
        kind = plan.week()[self._number].kind
        topic = self.engine.session(session_id).display_name
        summary = f"So far the {topic} was planned; the dates are set and the list is written."
        session_id = _on(self.engine.compress, session_id, summary, keep_last=1, in_place=kind == "compact")
        if kind == "killed once compressed":
            self._be_killed()
        return session_id

    def _command(self, entry: plan.Entry) -> None:
        """What a person does by a command, in the chat or in a terminal."""
        engine = self.engine
        topic, source = plan.chats()[entry.chat]
        key = engine.key_of(source)
        led = engine.route_of(key) or ""
        match entry.kind:
            case "home channel":
                engine.set_home_channel(source.platform, source.chat_id, name=topic)
            case "new":
                engine.reset(key, title=f"{topic}, second half", source=source)
            case "stop":
                engine.stop_session(led)
            case "resume":
                engine.resume(key, str(engine.session(led).parent_id))
            case "rename":
                engine.title_session(led, f"{topic} for the winter")
            case "delete":
                engine.delete_session(led)
            case "undelete":
                engine.undelete_session(self._deleted())
            case "handoff":
                self._hand_over(source, key)
            case _:
                raise AssertionError(entry.kind)

    def _deleted(self) -> str:
        """The session that was deleted last."""
        self.engine.projector.catch_up()
        row = self.engine.state.reader().execute(
            "SELECT session_id FROM deletions ORDER BY position DESC LIMIT 1"
        )
        return str(next(iter(row))[0])

    def _hand_over(self, source: SessionSource, key: str) -> None:
        """A conversation of the terminal goes on in a chat."""
        engine = self.engine
        begun = engine.create_session("cli", title="trip to Lisbon", cwd="/home/you/trips").session_id
        for role, text in (("user", "Find a train to Lisbon."), ("assistant", "Two changes, 21 hours.")):
            engine.append(begun, role, text)
            self.clock.pass_by(5 * SECOND_US)
        engine.request_handoff(begun, source.platform)
        self.clock.pass_by(2 * SECOND_US)
        (asked,) = engine.pending_handoffs()
        engine.claim_handoff(asked)
        engine.complete_handoff(
            asked,
            key=key,
            chat_id=source.chat_id,
            chat_type=source.chat_type,
            user_id=source.user_id,
            display_name=source.chat_name,
            origin_json=source.to_json(),
        )
        self._say(self._number, plan.Entry(self.clock(), "say", plan.BOAT))


def _on(command: Callable[..., Any], session_id: str, *given: object, **more: object) -> str:
    """A command on a session, or on what it goes on as."""
    try:
        return str(command(session_id, *given, **more).session_id)
    except SessionOver as over:
        if over.successor is None:
            raise
        return _on(command, over.successor, *given, **more)


def main(home: Path, first: int) -> None:
    entries = plan.week()
    clock = Clock(entries[first - 1].at_us + RESTART_US if first else plan.moment(0, "07:00"))
    with SessionEngine(home, actor="gateway", synchronous="NORMAL", clock=clock) as engine:
        Gateway(engine, clock).play(first)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
