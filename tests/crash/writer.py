"""Writes to a home until it is killed, saying what it begins and what was acknowledged.

Run as a program it is a server: for each line `HOME SEED` on standard input it forks a writer, so that
nothing has to be imported a second time. The writer's words, and `over STATUS` when it has died, go to
standard output.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from retold.infrastructure.engine import SessionEngine


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())


def text_of(run: str, number: int, part: int) -> str:
    """The content that a message of this number must come back with."""
    rng = random.Random(f"{run} {number} {part}")
    size = rng.choice([1, 3, 10, 40, 40, 400, 12_000])
    return f"{run} {number} {part} " + " ".join(f"word{rng.randrange(500)}" for _ in range(size))


def write(home: Path, run: str) -> None:
    """Append without end."""
    say(f"pid {os.getpid()}")
    with SessionEngine(home) as engine:
        number = 0
        while True:
            session = f"{run}-{number}"
            say(f"begin {number} 1")
            created = engine.create_session("cli", session_id=session, title=session)
            say(f"ack {number} {','.join(map(str, created.positions))}")
            number += 1
            rng = random.Random(f"{run} {number}")
            for _ in range(rng.randrange(5, 40)):
                parts = rng.choice([1, 1, 1, 2, 7])
                messages = [
                    {"role": ("user", "assistant")[part % 2], "content": text_of(run, number, part)}
                    for part in range(parts)
                ]
                say(f"begin {number} {parts}")
                saved = engine.append_messages(session, messages)
                say(f"ack {number} {','.join(map(str, saved.positions))}")
                number += 1


def main() -> None:
    for line in sys.stdin:
        home, run = line.split()
        writer = os.fork()
        if writer == 0:
            try:
                write(Path(home), run)
            finally:
                os._exit(1)
        _, status = os.waitpid(writer, 0)
        say(f"over {status}")


if __name__ == "__main__":
    main()
