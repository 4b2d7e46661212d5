"""Asks before something is done that is hard to take back."""

from __future__ import annotations

import sys
from typing import Final

from click.exceptions import Exit

from ..domain.errors import BadUsage
from .stream import put

EXIT_DECLINED: Final = 1
"""Of whoever was asked and did not say yes: a script must not take that for done."""


def ask(question: str, *, yes: bool, as_json: bool, declined: str = "Cancelled.") -> None:
    """Go on by `yes`, else by an answer of y or yes. No answer is a no.

    Args:
        declined: what is said after a no.

    Raises:
        Exit: of `EXIT_DECLINED`, after a no.
        BadUsage: who wants JSON is asked nothing, and has to say `--yes`.
        KeyboardInterrupt: Ctrl-C is no answer.
    """
    if yes:
        return
    if as_json:
        raise BadUsage("with --json nothing is asked", hint="give --yes as well")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = ""
    try:
        answer = sys.stdin.readline()
    finally:
        if not answer.endswith("\n"):  # what is said next begins a line of its own
            print(file=sys.stderr)
    if answer.strip().lower() not in ("y", "yes"):
        put(declined)
        raise Exit(EXIT_DECLINED)
