"""One of several processes that give a home mixed commands: what each was answered goes to standard output.

`python -m retold.tests.crash.mixed_writer HOME NAME COMMANDS`: a JSON line for each command that was done.
Whatever is refused is refused with a typed error; anything else is a fault, and ends the process.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

from retold.domain.errors import RetoldError, StoreBusy, VersionConflict
from retold.domain.session_source import SessionSource
from retold.infrastructure.engine import SessionEngine, open_home

CHATS = tuple(SessionSource("telegram", str(1000 + n), user_id=str(500 + n)) for n in range(4))
TITLES = ("plan", "boat", "sail", "計画", "varnish")


class Writer:
    """Draws commands and notes what came of them."""

    def __init__(self, engine: SessionEngine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.rng = random.Random(name)
        self.said = 0
        self.turns: list[tuple[str, str]] = []
        self.deleted: list[str] = []

    def run(self, commands: int) -> None:
        weighted: list[tuple[int, Callable[[], dict[str, Any]]]] = [
            (40, self.say),
            (8, self.resolve),
            (6, self.say_shared),
            (5, self.title),
            (4, self.compress),
            (3, self.reset),
            (3, self.resume),
            (4, self.enqueue),
            (4, self.next_turn),
            (3, self.finish_turn),
            (2, self.delete),
            (2, self.undelete),
            (2, self.archive),
            (2, self.end),
            (2, self.branch),
            (2, self.forget),
            (2, self.handoff),
            (2, self.rewind),
        ]
        weights, choices = zip(*weighted, strict=True)
        for each in self.rng.choices(choices, weights, k=commands):
            try:
                done = each()
            except (VersionConflict, StoreBusy) as late:
                done = {"late": late.kind}
            except RetoldError as refused:
                done = {"refused": refused.kind}
            print(json.dumps({"command": each.__name__, **done}), flush=True)

    def chat(self) -> SessionSource:
        return self.rng.choice(CHATS)

    def session(self) -> str:
        """Where a chat leads, or one of the sessions that all of them know."""
        led = self.engine.route_of(self.engine.key_of(self.chat()))
        return led if led is not None and self.rng.random() < 0.7 else f"s{self.rng.randrange(4)}"

    def text(self) -> str:
        self.said += 1
        return f"{self.name} says {self.said}"

    # --- commands ----------------------------------------------------------------------------------

    def say(self) -> dict[str, Any]:
        session, text = self.session(), self.text()
        saved = self.engine.append(session, self.rng.choice(["user", "assistant"]), text, key=text)
        return {"said": text, "session": session, "position": saved.position}

    def say_shared(self) -> dict[str, Any]:
        """What every process delivers, under one key."""
        text = f"shared {self.rng.randrange(50)}"
        saved = self.engine.append("s0", "user", text, key=text)
        return {"said": text, "session": "s0", "position": saved.position}

    def resolve(self) -> dict[str, Any]:
        found = self.engine.resolve(self.chat())
        return {"session": found.session_id}

    def title(self) -> dict[str, Any]:
        session, title = self.session(), self.rng.choice(TITLES)
        self.engine.title_session(session, title)
        return {"session": session}

    def compress(self) -> dict[str, Any]:
        session = self.session()
        in_place = self.rng.random() < 0.5
        summary = f"summary: {self.text()}"
        saved = self.engine.compress(session, summary, keep_last=self.rng.randrange(3), in_place=in_place)
        return {"session": saved.session_id, "summary": summary}

    def reset(self) -> dict[str, Any]:
        return {"session": self.engine.reset(self.engine.key_of(self.chat())).session_id}

    def resume(self) -> dict[str, Any]:
        key = self.engine.key_of(self.chat())
        return {"session": self.engine.resume(key, self.session()).session_id}

    def enqueue(self) -> dict[str, Any]:
        session, turn = self.session(), f"{self.name} {self.said} {self.rng.random()}"
        self.engine.enqueue(session, "do it", turn=turn, lane=self.rng.choice(["slot", "overflow"]))
        return {"queued": turn}

    def next_turn(self) -> dict[str, Any]:
        session = self.session()
        begun = self.engine.next_turn(session)
        if begun is not None and begun.turn is not None:
            self.turns.append((session, begun.turn))
            return {"started": begun.turn}
        return {}

    def finish_turn(self) -> dict[str, Any]:
        if not self.turns:
            return {}
        session, turn = self.turns.pop()
        self.engine.finish_turn(session, turn)
        return {"finished": turn}

    def delete(self) -> dict[str, Any]:
        led = self.engine.route_of(self.engine.key_of(self.chat()))
        if led is None:
            return {}
        self.engine.delete_session(led)
        self.deleted.append(led)
        return {"session": led}

    def undelete(self) -> dict[str, Any]:
        if not self.deleted:
            return {}
        return {"session": self.engine.undelete_session(self.deleted.pop()).session_id}

    def archive(self) -> dict[str, Any]:
        session = self.session()
        act = self.engine.archive_session if self.rng.random() < 0.5 else self.engine.unarchive_session
        return {"session": act(session).session_id}

    def end(self) -> dict[str, Any]:
        return {"session": self.engine.end_session(self.session(), "cli_close").session_id}

    def branch(self) -> dict[str, Any]:
        return {"session": self.engine.branch_session(self.session(), lead=False).session_id}

    def forget(self) -> dict[str, Any]:
        session = self.session()
        seen = [each for each in self.engine.view(session).messages if each.kind == "message"]
        if not seen:
            return {}
        chosen = self.rng.choice(seen)
        self.engine.forget_message(chosen.session_id, chosen.id)
        return {"forgotten": chosen.copy_of or chosen.id}

    def handoff(self) -> dict[str, Any]:
        session = self.session()
        self.engine.request_handoff(session, "telegram")
        self.engine.claim_handoff(session, self.name)
        key = self.engine.key_of(self.chat())
        self.engine.complete_handoff(session, self.name, key=key)
        return {"session": session}

    def rewind(self) -> dict[str, Any]:
        session = self.session()
        taken = self.engine.undo_turns(session)
        if self.rng.random() < 0.7:
            self.engine.redo(session)
        return {"session": session, "target": taken.target_message}


def main() -> None:
    home, name, commands = sys.argv[1:]
    with open_home(home, actor="gateway", synchronous="NORMAL") as engine:
        print("ready", flush=True)
        sys.stdin.readline()
        Writer(engine, name).run(int(commands))


if __name__ == "__main__":
    main()
