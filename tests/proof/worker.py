"""A writer in a process of its own, which can be killed: commands come and answers go by pipe, a line each.

Run as a program it is a server: a first line `HOME` forks a writer that has the home open and takes the
lines that follow, until one is blank or it dies; then the server says how, and takes the next home.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retold.domain.errors import RetoldError
from retold.domain.session_source import SessionSource
from retold.infrastructure.commands.gateway import Started
from retold.infrastructure.engine import SessionEngine

CRASHES = ("before", "committing", "after")
"""Moments of a save: before it begins, when all is written but not committed, and when it is committed."""


def answer(engine: SessionEngine, command: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a command says: `ok` with what it saved, or `refused` with the kind of the refusal."""
    try:
        if "source" in given and isinstance(given["source"], dict):
            given = {**given, "source": SessionSource.from_dict(given["source"])}
        done = getattr(engine, command)(**given)
    except RetoldError as refused:
        return {"refused": refused.kind, "message": f"{refused.message} ({refused.hint})"}
    each_done = done if isinstance(done, list) else [done]
    positions = [position for each in each_done for position in getattr(each, "positions", ())]
    offered = {"resume": sorted(each.session_id for each in done.resume)} if isinstance(done, Started) else {}
    return {
        **offered,
        "session": getattr(done, "session_id", None),
        "positions": positions,
        "turn": getattr(done, "turn", None),
    }


def crash_at(engine: SessionEngine, moment: str, crash: Any, *, spared: int = 0) -> None:
    """Let `crash` be called at a moment of the engine's next save; `spared`: so many saves go well before."""
    log = engine.event_log
    transaction = type(log).transaction
    saves = iter(range(spared))

    @contextlib.contextmanager
    def crashing() -> Iterator[Any]:
        if next(saves, None) is not None:
            with transaction(log) as connection:
                yield connection
            return
        if moment == "before":
            crash()
        with transaction(log) as connection:
            yield connection
            if moment == "committing":
                crash()
        crash()

    log.transaction = crashing  # type: ignore[method-assign]


class Clock:
    """Says the time that the last command came with."""

    now_us = 0

    def __call__(self) -> int:
        return self.now_us


def write(home: Path) -> None:
    """Take commands until a blank line."""
    clock = Clock()
    with SessionEngine(home, actor="gateway", synchronous="NORMAL", clock=clock) as engine:
        _say({"pid": os.getpid()})
        while line := _line():
            asked = json.loads(line)
            _say({"taken": asked["command"]})  # what dies now leaves no half of a line behind
            clock.now_us = asked["now_us"]
            if asked["crash"] is not None:
                crash_at(engine, asked["crash"], lambda: os.kill(os.getpid(), signal.SIGKILL))
            _say(answer(engine, asked["command"], asked["given"]))
            with contextlib.suppress(AttributeError):
                del engine.event_log.transaction  # a command that saved nothing did not crash


def _line() -> bytes:
    """One line; unbuffered, so that what follows a death is left to the server."""
    read = b""
    while (character := os.read(0, 1)) not in (b"", b"\n"):
        read += character
    return read


def _say(words: dict[str, Any]) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def main() -> None:
    while home := _line():
        writer = os.fork()
        if writer == 0:
            try:
                write(Path(os.fsdecode(home)))
                os._exit(0)
            finally:
                sys.stdout.flush()
                import traceback

                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(writer, 0)
        _say({"over": status})


if __name__ == "__main__":
    main()
