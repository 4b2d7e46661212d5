"""What the tests of `repair-routing` share: its truth, a log's head, backups, an answer given."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from retold.infrastructure.log import Log
from retold.tests.conftest import FIXTURES

TRUTH: Any = json.loads((FIXTURES / "hermes-home" / "truth.json").read_text())["incident"]
REPAIR = ("sessions", "repair-routing")
LINEAGE, TWICE, UNDECIDED = TRUTH["lineage"], TRUTH["second_history"], TRUTH["two_predecessors"]


def head(home: Path) -> int:
    log = Log(home / "events.db", read_only=True)
    position = log.head().position
    log.close()
    return position


def backups(home: Path) -> list[Path]:
    return sorted(home.parent.glob(f"{home.name}.before-repair-*"))


def answer(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
