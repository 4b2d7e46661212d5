"""Runs other commands of the program while the picker has the screen, and keeps what they say."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

_ONE_AT_A_TIME = threading.Lock()
"""What is printed in the meantime goes to one of them only."""


class Ran(Struct, frozen=True):
    """What a command did."""

    exit_code: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        """Its JSON; {} where it gave none."""
        with contextlib.suppress(ValueError):
            found = json.loads(self.out)
            if isinstance(found, dict):
                return found
        return {}

    @property
    def refusal(self) -> str:
        """What stood in the way, on one line; "" for nothing."""
        error = self.answer.get("error")
        if isinstance(error, dict):
            return "; ".join(filter(None, (str(error["message"]), str(error["hint"]))))
        left = self.answer.get("left")
        if isinstance(left, dict) and left:
            return "; ".join(map(str, left.values()))
        if self.exit_code and not self.out:
            return " ".join(self.err.split()).removeprefix("retold: ")
        return ""

    @property
    def positions(self) -> list[int]:
        """The events that it appended."""
        return [int(each) for each in self.answer.get("positions", ())]


def run(option: Sequence[str], *argv: str) -> Ran:
    """One command line in this process; it says nothing to the terminal.

    Args:
        option: what leads to the home, as it was typed: --home and its value, or nothing.
    """
    from ..main import main

    out, err = io.StringIO(), io.StringIO()
    command, rest = _parted(argv)
    with _ONE_AT_A_TIME, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*command, *option, *rest])
    return Ran(code, out.getvalue(), err.getvalue())


def explain(option: Sequence[str], session_id: str, width: int) -> Ran:
    """What `retold why` says of a session, for so many cells."""
    # A process of its own: it asks the environment how wide a line may be.
    done = subprocess.run(  # noqa: S603 # this very program
        [sys.executable, "-P", "-m", "retold", "why", *option, "--", session_id],
        env=os.environ | {"COLUMNS": str(width), "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    out, err = (each.decode(errors="replace") for each in (done.stdout, done.stderr))
    return Ran(done.returncode, out, err)


def _parted(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Options go before a `--`, behind which everything is a text of a person's."""
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at:]
