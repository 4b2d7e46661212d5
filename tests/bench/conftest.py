"""Homes to measure on, made once a run; the peer in its own environment; the table at the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from retold.tests.bench import figures
from retold.tests.bench.figures import Child
from retold.tests.conftest import ROOT

HERE = Path(__file__).resolve().parent
SIZE = 100_000
"""Messages of the stores that most is measured on."""


class Peer(Protocol):
    """Runs one measurement of peer_side.py and returns what it printed."""

    def __call__(self, name: str, *args: str | os.PathLike[str]) -> Any: ...


def surroundings(**more: str | os.PathLike[str]) -> dict[str, str]:
    """A child's environment: compiled modules are kept, as they are on a user's machine."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return env | {name: os.fspath(value) for name, value in more.items()}


@pytest.fixture(scope="session")
def peer_python() -> Path:
    """The Python of the peer's environment (RETOLD_PEER)."""
    path = os.environ.get("RETOLD_PEER")
    if not path:
        pytest.fail("RETOLD_PEER names no Python with hermes-agent; `make bench` makes one")
    asked = (
        "import importlib.metadata as m, sqlite3; print(m.version('hermes-agent'), sqlite3.sqlite_version)"
    )
    done = subprocess.run([path, "-c", asked], capture_output=True, text=True, check=True)
    version, sqlite = done.stdout.split()
    figures.FACTS["peer"] = f"hermes-agent {version} on SQLite {sqlite}"
    return Path(path)


@pytest.fixture(scope="session")
def peer(peer_python: Path) -> Peer:
    """The peer's side of a measurement, in a process of its own."""

    def run(name: str, *args: str | os.PathLike[str]) -> Any:
        command = [os.fspath(each) for each in (peer_python, HERE / "peer_side.py", name, *args)]
        done = subprocess.run(command, capture_output=True, env=surroundings(), check=False)
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where all of it lies; some gigabytes, removed at the end."""
    path = tmp_path_factory.mktemp("bench")
    yield path
    shutil.rmtree(path, ignore_errors=True)


MakeStore = Callable[..., Path]


@pytest.fixture(scope="session")
def store(folder: Path, peer_python: Path) -> MakeStore:
    """A Hermes home by the arguments of make_store.py, made when first asked for."""

    def make(messages: int, *, sessions: int = 0, cjk: float = 0.0, index: bool = False) -> Path:
        out = folder / f"hermes-{messages}-{sessions}-{cjk}-{index}"
        if not out.exists():
            command = [str(peer_python), str(HERE / "make_store.py"), str(out), "--messages", str(messages)]
            command += ["--sessions", str(sessions), "--cjk", str(cjk), *([] if index else ["--no-index"])]
            subprocess.run(command, check=True, capture_output=True)
        return out

    return make


@pytest.fixture(scope="session")
def told(folder: Path) -> Callable[[Path], Path]:
    """A Retold home with all of a Hermes home, made when first asked for."""

    def take_in(hermes: Path) -> Path:
        home = folder / f"retold-of-{hermes.name}"
        if not home.exists():
            figures.TAKEN_IN[home] = run_child(
                ["import", "hermes", os.fspath(hermes), "--home", os.fspath(home)]
            )
        return home

    return take_in


def run_child(args: list[str], command: list[str] | None = None, **env: str | os.PathLike[str]) -> Child:
    """Run `retold` (or another program) in a process of its own, with its time and peak memory."""
    from time import perf_counter

    out = ROOT / ".benchmarks"
    out.mkdir(exist_ok=True)
    with (out / "stdout").open("w+b") as stdout, (out / "stderr").open("w+b") as stderr:
        began_s = perf_counter()
        process = subprocess.Popen(
            [*(command or figures.program()), *args], env=surroundings(**env), stdout=stdout, stderr=stderr
        )
        _, status, used = os.wait4(process.pid, 0)
        wall_s = perf_counter() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        stderr.seek(0)
        assert process.returncode == 0, stderr.read().decode("utf-8", "replace")
        stdout.seek(0)
        unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
        return Child(wall_s, used.ru_maxrss * unit / 1e6, stdout.read())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table; a run of everything also writes it into the document."""
    if not figures.FIGURES:
        return
    terminalreporter.write_line("")
    terminalreporter.write_line(figures.text())
    if os.environ.get("RETOLD_BENCH_KEEP"):
        figures.keep()
        terminalreporter.write_line(f"\nwritten to {figures.DOCUMENT.relative_to(ROOT)}")
