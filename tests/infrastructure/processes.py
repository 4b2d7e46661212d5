"""Runs code on one home in several processes that begin at the same moment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent, indent

_PROGRAM = """
import sys
from pathlib import Path
from retold.domain.errors import RetoldError
from retold.infrastructure.engine import open_home

with open_home(sys.argv[1]) as engine:
{before}
    print("ready", flush=True)
    sys.stdin.readline()
{code}
"""


def run_together(
    home: Path, codes: Sequence[str], *, before: str = "pass", timeout_s: float = 120
) -> list[list[str]]:
    """Run each code with `engine` open on `home`, all let go at once; what each printed, by lines.

    Args:
        before: what each does before it says that it is ready.
    """
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _program(code, before), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for code in codes
    ]
    for each in started:
        assert each.stdout is not None
        each.stdout.readline()
    for each in started:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    answers = []
    for each in started:
        out, err = each.communicate(timeout=timeout_s)
        assert each.returncode == 0, err
        answers.append(out.split())
    return answers


def _program(code: str, before: str) -> str:
    return _PROGRAM.format(code=indent(dedent(code), "    "), before=indent(dedent(before), "    "))
