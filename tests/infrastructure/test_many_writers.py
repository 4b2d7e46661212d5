"""Processes that write to one home side by side: how long they wait, and what they leave behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from retold.infrastructure import log, sqlite
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.sqlite import WAL_BYTES
from retold.infrastructure.verify import verify
from retold.tests.infrastructure.processes import run_together

APPENDS = """
from time import perf_counter
session = engine.create_session("cli").session_id
for number in range({count}):
    began_s = perf_counter()
    engine.append_message(session, "user", f"{{number}} of {{session}}")
    print(perf_counter() - began_s)
"""


def wal_sizes(home: Path) -> list[int]:
    """Of the log and of the projections."""
    return [path.stat().st_size for path in sorted(home.glob("*.db-wal"))]


def stored(engine: SessionEngine) -> list[tuple[int, int]]:
    """Of each session how many messages there are, and how many its row counts."""
    engine.projector.catch_up()
    rows = engine.state.reader().execute(
        "SELECT count(*), s.message_count FROM messages m JOIN sessions s ON s.id = m.session_id"
        " GROUP BY s.id"
    )
    return [(found, counted) for found, counted in rows]


def test_g1_of_8_processes_none_waits_for_long_and_nothing_is_lost(home: Path) -> None:
    with open_home(home) as engine:
        taken_s = sorted(
            float(each) for told in run_together(home, [APPENDS.format(count=200)] * 8) for each in told
        )
        left = wal_sizes(home)

        assert stored(engine) == [(200, 200)] * 8
        assert engine.head().position == 8 * 201
    assert len(taken_s) == 1600
    assert taken_s[len(taken_s) * 99 // 100] < 2.0
    assert taken_s[-1] < 10.0  # whoever waits is not passed by for ever
    assert max(left) <= WAL_BYTES
    assert verify(home).problems == []


def test_g1_a_wal_that_a_reader_has_let_grow_shrinks_once_it_is_gone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LOG_WAL_PAGES", 40)
    monkeypatch.setattr(sqlite, "WAL_PAGES", 40)
    monkeypatch.setattr(sqlite, "WAL_BYTES", 40 * 4_152)
    with open_home(home) as engine:
        made = engine.create_session("cli").session_id
        readers = engine.event_log.reader(), engine.state.reader()
        for each in readers:
            each.execute("BEGIN")
            each.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        for number in range(100):
            engine.append_message(made, "user", str(number))
        grown = wal_sizes(home)
        for each in readers:
            each.execute("COMMIT")
        for number in range(60):
            engine.append_message(made, "user", str(number))
        left = wal_sizes(home)

    assert min(grown) > 80 * 4_152
    assert max(left) <= 80 * 4_152


HOLDS = """
import sys
from pathlib import Path
from retold.infrastructure.engine import open_home

engine = open_home(Path(sys.argv[1]))
with engine.{held} as held:
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "held",
    ["event_log.transaction()", "projector.transaction()", "projector.telling_again()", "state._alone()"],
)
def test_g15_the_next_writer_goes_on_at_once_when_whoever_holds_a_lock_is_killed(
    home: Path, held: str
) -> None:
    with open_home(home) as engine:
        made = engine.create_session("cli").session_id
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDS.format(held=held), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.communicate()
        engine.event_log._write_connection()
        engine.event_log._patience.limit_ms = 1_000
        saved = engine.append_message(made, "user", "on")
        engine.projector.catch_up(wait_ms=1_000)

        assert saved.position == 2
        assert stored(engine) == [(1, 1)]
