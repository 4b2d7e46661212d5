"""Every kind of command where it cannot be saved: a typed error, nothing written, and later it works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from retold.domain import events as e
from retold.domain.errors import FileReplaced, NeedsUpgrade, StoreBusy
from retold.infrastructure import retry
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.sqlite import READ_WRITE, connect
from retold.infrastructure.verify import verify
from retold.tests.infrastructure.filled import content, copy_of, draft, told_from_nothing
from retold.tests.infrastructure.ready import COMMANDS, START_US, given, prepare
from retold.tests.proof.worker import answer
from retold.tests.proof.writers import Clock

NOW_US = START_US + 1_000_000


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    home = tmp_path_factory.mktemp("prepared") / "home"
    return home, prepare(home)


@pytest.fixture
def engine(prepared: tuple[Path, int], home: Path) -> Iterator[SessionEngine]:
    shutil.copytree(prepared[0], home, symlinks=True)
    with SessionEngine(home, clock=Clock(NOW_US)) as opened:
        yield opened


def do(engine: SessionEngine, name: str, head: int) -> dict[str, object]:
    return answer(engine, *given(name, head, NOW_US))


def sound(engine: SessionEngine) -> None:
    engine.projector.catch_up()
    assert content(engine.projector) == told_from_nothing(engine.event_log)
    found = verify(engine.home)
    assert (found.exit_code, found.problems, found.log.problems) == (0, [], [])


@pytest.mark.parametrize("name", COMMANDS)
def test_busy_for_longer_than_the_limit_nothing_is_written_and_then_it_is(
    engine: SessionEngine, prepared: tuple[Path, int], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "ATTEMPTS", 2)
    retry._policy.cache_clear()
    head = prepared[1]
    holder = connect(engine.home / "events.db", flags=READ_WRITE)
    holder.execute("BEGIN IMMEDIATE")
    engine.event_log._write_connection().set_busy_timeout(1)
    heard = do(engine, name, head)
    holder.execute("ROLLBACK")
    holder.close()
    retry._policy.cache_clear()

    assert heard["refused"] == StoreBusy.kind
    assert engine.head().position == head
    assert "refused" not in do(engine, name, head)
    sound(engine)


@pytest.mark.parametrize("becomes", ["replaced", "deleted"])
@pytest.mark.parametrize("name", COMMANDS)
def test_b20_beside_a_log_that_is_another_now_nothing_is_written_to_either(
    engine: SessionEngine, prepared: tuple[Path, int], name: str, becomes: str
) -> None:
    path = engine.home / "events.db"
    other = copy_of(path, path.with_name("other.db"))
    before = other.read_bytes()
    if becomes == "replaced":
        os.replace(other, path)
    else:
        path.unlink()
    heard = do(engine, name, prepared[1])

    assert heard["refused"] == FileReplaced.kind
    assert path.read_bytes() == before if becomes == "replaced" else not path.exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_whatever_becomes_of_the_projections_a_command_finds_what_it_needs(
    engine: SessionEngine, prepared: tuple[Path, int], name: str
) -> None:
    for each in engine.home.glob("state.*"):
        each.unlink()

    assert "refused" not in do(engine, name, prepared[1])
    sound(engine)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_old_program_decides_nothing_on_what_a_newer_one_wrote(
    engine: SessionEngine, prepared: tuple[Path, int], name: str
) -> None:
    log = engine.event_log
    streams = [row[0] for row in log.reader().execute("SELECT name FROM streams ORDER BY id")]
    for stream in streams:
        if stream.startswith(("session:", "route:", "gateway:")):
            made = draft(stream, log.stream_version(stream) + 1, e.SessionPinned(), NOW_US)
            log.append([msgspec.structs.replace(made, topic="session_dreamt.1")])
    head = engine.head().position
    heard = do(engine, name, prepared[1])

    if name == "forget a text":  # it stands in no event of the newer program
        assert "refused" not in heard
        return
    if name != "erasure of what was deleted":  # which names what it left, and why
        assert heard["refused"] in (NeedsUpgrade.kind, "built_on"), heard
    written = [each.topic for each in log.read(head)]
    assert written == ([e.MaintenanceRan.topic] if name == "start" else [])  # its upkeep reads no sessions


FULL = """
import json, os, resource, sys
from pathlib import Path
from retold.infrastructure.engine import SessionEngine
from retold.tests.infrastructure.ready import given
from retold.tests.infrastructure.test_hard_times import NOW_US, do
from retold.tests.proof.writers import Clock
home, name, head = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with SessionEngine(home, clock=Clock(NOW_US)) as engine:
    engine.projector.catch_up()
    engine.event_log.empty_wal()
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    heard = do(engine, name, head)
    stands = engine.head().position
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(json.dumps([heard.get("refused"), stands - head, do(engine, name, head).get("refused")]))
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_g4_on_a_full_disk_nothing_is_written_and_then_it_is(
    prepared: tuple[Path, int], home: Path, name: str
) -> None:
    shutil.copytree(prepared[0], home, symlinks=True)
    command = [sys.executable, "-c", FULL, str(home), name, str(prepared[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ('["no_room", 0, null]\n', "")
    found = verify(home)
    assert (found.exit_code, found.problems, found.log.problems) == (0, [], [])
