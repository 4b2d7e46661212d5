"""Asks before something is done that is hard to take back."""

from __future__ import annotations

import sys

from ..domain.errors import BadUsage


def is_agreed(question: str, *, yes: bool, as_json: bool) -> bool:
    """Whether to go on: by `yes`, else by an answer of y or yes. No answer is a no.

    Raises:
        BadUsage: who wants JSON is asked nothing, and has to say `--yes`.
    """
    if yes:
        return True
    if as_json:
        raise BadUsage("with --json nothing is asked", hint="give --yes as well")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")
