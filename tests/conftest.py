"""What tests of every folder share: private homes, and the program in this process or its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures"

# A busy machine is no fault of the code: how long an example took is not what any property is about.
hypothesis.settings.register_profile(
    "retold", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("retold")


class Ran(NamedTuple):
    """What one command line did."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


class Run(Protocol):
    def __call__(self, *argv: str | os.PathLike[str]) -> Ran: ...


class RunProcess(Protocol):
    def __call__(
        self,
        *argv: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120,
    ) -> Ran: ...


@pytest.fixture(scope="session", autouse=True)
def _nobodys_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test sees the homes, the zone or the colors of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("nobody")))
        patch.setenv("TZ", "UTC")
        patch.setenv("NO_COLOR", "1")
        patch.setenv("PYTHONPATH", str(ROOT / ".import"))
        for name in ("RETOLD_HOME", "RETOLD_DEBUG", "HERMES_HOME", "COLUMNS", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def hermes_home(tmp_path: Path) -> Path:
    """A Hermes home with chats gone wrong (truth.json tells which), to be changed at will."""
    return Path(shutil.copytree(FIXTURES / "hermes-home", tmp_path / "hermes-home"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where this test's Retold home is to be; nothing is there yet."""
    return tmp_path / "retold-home"


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process, on `home` unless it names another."""
    from retold.cli.main import main

    monkeypatch.setenv("RETOLD_HOME", str(home))

    def run(*argv: str | os.PathLike[str]) -> Ran:
        capfd.readouterr()
        exit_code = main([os.fspath(each) for each in argv])
        out, err = capfd.readouterr()
        return Ran(exit_code, out, err)

    return run


@pytest.fixture
def run_process(home: Path) -> RunProcess:
    """Run a command line in a process of its own, on `home` unless it names another."""

    def run(
        *argv: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120,
    ) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "retold", *[os.fspath(each) for each in argv]],
            env=os.environ | {"RETOLD_HOME": str(home)} | dict(env or {}),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        out, err = (each.decode("utf-8") for each in (done.stdout, done.stderr))
        return Ran(done.returncode, out, err)

    return run
