"""The program as a person at a terminal sees it."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Mapping


def on_a_terminal(*argv: str, env: Mapping[str, str], columns: int = 80) -> str:
    """What a terminal of so many columns is sent: answers and words about them."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    with subprocess.Popen(
        [sys.executable, "-m", "retold", *argv], stdout=theirs, stderr=theirs, env=os.environ | dict(env)
    ) as program:
        os.close(theirs)
        sent = b""
        with contextlib.suppress(OSError):  # a terminal whose program has left
            while piece := os.read(ours, 65_536):
                sent += piece
        program.wait()
    os.close(ours)
    return sent.decode().replace("\r\n", "\n")
