"""A large import is folded meanwhile by a second process, whose help nobody needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retold.infrastructure import fold_ahead, new_tables, projector, rebuild
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.verify import verify


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred events count as many."""
    monkeypatch.setattr(fold_ahead, "BULK_FROM", 100)
    monkeypatch.setattr(projector, "BULK_FROM", 100)


@pytest.mark.usefixtures("small")
def test_what_is_folded_ahead_is_what_would_be_folded_anyway(
    tmp_path: Path, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[subprocess.Popen[Any]] = []
    popen: Any = subprocess.Popen

    def noted(*args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
        children.append(popen(*args, **kwargs))
        return children[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    filled: list[int] = []
    begin = new_tables.begin

    def begun(*args: Any) -> int:
        filled.append(begin(*args))
        return filled[-1]

    monkeypatch.setattr(rebuild, "begin", begun)
    with SessionEngine(tmp_path / "home") as engine:
        import_hermes(engine, hermes_home)

    assert len(children) == 1
    assert children[0].returncode == 0
    assert max(filled) > 0  # the rebuild at the end went on from where the child had come
    assert verify(tmp_path / "home").exit_code == 0


@pytest.mark.usefixtures("small")
def test_a_child_that_is_killed_is_not_missed(
    tmp_path: Path, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen: Any = subprocess.Popen

    def doomed(*args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
        child: subprocess.Popen[Any] = popen(*args, **kwargs)
        child.send_signal(signal.SIGKILL)
        return child

    monkeypatch.setattr(subprocess, "Popen", doomed)
    with SessionEngine(tmp_path / "home") as engine:
        report = import_hermes(engine, hermes_home)

        assert report.taken["messages"] == 914
        assert engine.projector.lag().events == 0


def test_a_child_whose_parent_is_gone_stops(tmp_path: Path) -> None:
    with SessionEngine(tmp_path) as engine:
        engine.create_session("cli")
    read, write = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "retold.infrastructure.fold_ahead", str(tmp_path)],
        stdin=read,
        env=fold_ahead.child_env(),
    )
    os.close(read)
    os.close(write)

    assert child.wait(timeout=20) == 0
