"""Writers to one home, in this process and in another, each of which may crash at any save."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

from retold.infrastructure.engine import SessionEngine
from retold.tests.proof.worker import answer, crash_at

Answer = dict[str, Any]
DIED: Answer = {"died": True}


class Crash(BaseException):
    """The process is gone; what it held is dropped, never closed."""


class Writer(Protocol):
    """Somebody who writes to the home."""

    def tell(self, command: str, given: Mapping[str, Any], crash: str | None = None) -> Answer: ...

    def close(self) -> None: ...


class Clock:
    """What every writer takes for the time."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        return self.now_us


class Local:
    """An engine in this process."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self.home = home
        self.clock = clock
        self.engine = self._open()

    def _open(self) -> SessionEngine:
        return SessionEngine(self.home, actor="gateway", synchronous="NORMAL", clock=self.clock)

    def tell(self, command: str, given: Mapping[str, Any], crash: str | None = None) -> Answer:
        def told() -> Answer:
            return answer(self.engine, command, dict(given))

        return told() if crash is None else self.dies_in(crash, told)

    def dies_in(self, moment: str, work: Callable[[], Any], *, spared: int = 0) -> Any:
        """Do some work, and die at a moment of a save; another engine takes this one's place.

        Args:
            spared: so many saves before it go well.
        """

        def dies() -> None:
            raise Crash

        crash_at(self.engine, moment, dies, spared=spared)
        try:
            return work()
        except Crash:
            self.engine = self._open()
            return DIED
        finally:
            vars(self.engine.event_log).pop("transaction", None)

    def reopen(self) -> None:
        """Close, and open again: another configuration may be there."""
        self.engine.close()
        self.engine = self._open()

    def close(self) -> None:
        self.engine.close()


class Server:
    """The program of worker.py; one serves one `Remote` at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "retold.tests.proof.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def asked(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin

    def send(self, line: str) -> None:
        self.asked.write(f"{line}\n")
        self.asked.flush()

    def hear(self) -> Answer:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server of writers is gone"
        heard: Answer = json.loads(line)
        return heard

    def close(self) -> None:
        self.asked.close()
        self.process.wait(timeout=30)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Remote:
    """An engine in a process of its own, which is killed where it crashes."""

    def __init__(self, server: Server, home: Path, clock: Clock) -> None:
        self.server = server
        self.home = home
        self.clock = clock
        self.pid = 0
        self._open()

    def _open(self) -> None:
        self.server.send(str(self.home))
        self.pid = self.server.hear()["pid"]

    def begin(self, command: str, given: Mapping[str, Any], crash: str | None = None) -> None:
        """Send a command; `hear` has its answer."""
        asked = {"command": command, "given": given, "crash": crash, "now_us": self.clock.now_us}
        self.server.send(json.dumps(asked))
        assert self.server.hear() == {"taken": command}

    def hear(self) -> Answer:
        """The answer; where the writer died another one is there then."""
        heard = self.server.hear()
        if "over" not in heard:
            return heard
        assert heard["over"] == 9, f"the writer failed: {heard}"
        self._open()
        return DIED

    def tell(self, command: str, given: Mapping[str, Any], crash: str | None = None) -> Answer:
        self.begin(command, given, crash)
        return self.hear()

    def reopen(self) -> None:
        """Close, and open again: another configuration may be there."""
        self.close()
        self._open()

    def close(self) -> None:
        self.server.send("")
        assert self.server.hear() == {"over": 0}
