"""Arguments whose bytes are no text: a sentence, whatever command they are given to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from retold.tests.conftest import Run


@pytest.mark.parametrize(
    "argv",
    [
        ["sessions", "show"],
        ["sessions", "export", "-", "--session-id"],
        ["sessions", "list", "--source"],
        ["sessions", "archive"],
        ["resume"],
        ["where"],
        ["why"],
        ["log", "--stream"],
    ],
    ids=" ".join,
)
def test_an_argument_that_is_no_text_is_bad_usage(run: Run, hermes_home: Path, argv: list[str]) -> None:
    run("import", "hermes", hermes_home)
    done = run(*argv, os.fsdecode(b"d\xe9ja"))

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("retold: 'd\\xe9ja' is no valid UTF-8")
