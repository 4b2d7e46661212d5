"""A small gateway that can be killed at any of its saves, and goes on where it was at its next start.

Run as a program it is a server: for each line `HOME SAVE MOMENT` on standard input it forks a gateway that
kills itself before or after so many saves (SAVE -1: never). `over STATUS SAVES` goes to standard output.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retold.domain.errors import TurnOver
from retold.domain.turns import Lane
from retold.infrastructure.engine import SessionEngine

KEY = "agent:main:telegram:dm:1001"
SESSION = "s1"
ASKED: tuple[tuple[str, Lane | None], ...] = (
    ("first", None),
    ("queued one", "overflow"),
    ("a follow-up", "slot"),
    ("queued two", "overflow"),
)
"""What the chat says: the first begins a turn at once, the others wait for its end."""


class Killable(SessionEngine):
    """An engine that dies before or after its save of this number."""

    kill_at = -1
    before = False
    saves = 0

    def save_events(self, events: Sequence[Any], **more: Any) -> tuple[int, ...]:
        if not events:
            return ()
        number, self.saves = self.saves, self.saves + 1
        if number == self.kill_at and self.before:
            os.kill(os.getpid(), signal.SIGKILL)
        positions = super().save_events(events, **more)
        if number == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return positions


def play(home: Path, kill_at: int, moment: str) -> int:
    """Start, go on with what was cut off, take what the chat says, run all of it, stop. How many saves."""
    with Killable(home, actor="gateway") as engine:
        engine.kill_at, engine.before = kill_at, moment == "before"
        if not engine.exists(SESSION):
            engine.create_session("telegram", session_id=SESSION, key=KEY)
        for offered in engine.start_gateway().resume:
            begun = engine.begin_turn(SESSION, text=offered.text, gateway="main")
            run(engine, str(begun.turn), offered.text)
        for text, lane in ASKED:
            take(engine, text, lane)
        while (following := engine.next_turn(SESSION, gateway="main")) is not None:
            run(engine, str(following.turn), following.text)
        engine.stop_gateway()
        return engine.saves


def take(engine: SessionEngine, text: str, lane: Lane | None) -> None:
    """Take what the chat says, again if it is not known whether it was taken: its turn's id tells."""
    try:
        if lane is not None:
            engine.enqueue(SESSION, text, turn=text, lane=lane)
            return
        engine.begin_turn(SESSION, turn=text, text=text, gateway="main")
    except TurnOver:
        return
    for later, its_lane in ASKED[1:]:  # what comes while the first turn is under way
        take(engine, later, its_lane)
    run(engine, text, text)


def run(engine: SessionEngine, turn: str, text: str | None) -> None:
    """One turn: the message is known by its text, however often its turn was cut off.

    A session that a crash found between two turns is gone on with too: then nothing is to be said.
    """
    if text is not None:
        engine.append_message(SESSION, "user", text, idempotency_key=f"user {text}")
        answer = f"answer to {text}"
        engine.append_message(SESSION, "assistant", answer, idempotency_key=f"answer {text}")
    engine.finish_turn(SESSION, turn)


def main() -> None:
    for line in sys.stdin:
        home, kill_at, moment = line.split()
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(tell, str(play(Path(home), int(kill_at), moment)).encode())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(1)
        os.close(tell)
        _, status = os.waitpid(child, 0)
        saves = os.read(told, 20).decode() or "-1"
        os.close(told)
        os.write(1, f"over {status} {saves}\n".encode())


if __name__ == "__main__":
    main()
