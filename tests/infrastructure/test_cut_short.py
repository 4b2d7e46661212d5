"""A database that somebody cuts short while it is read: an error, or what was known, and no dead process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from retold.infrastructure.engine import open_home

READS = """
import os, sys
from pathlib import Path

import apsw
import retold

home, name, size_bytes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with retold.open_home(home) as engine:
    reader, table = engine.event_log.reader(), "SELECT payload FROM events"
    if name == "state.db":
        reader, table = engine.state.reader(), "SELECT content FROM messages"
    rows = reader.execute(table)
    next(rows)
    os.truncate((home / name).resolve(), size_bytes)
    try:
        print("read", len(rows.fetchall()) + 1)
    except apsw.Error as error:
        print("refused", error)
"""


@pytest.mark.parametrize("size_bytes", [0, 8192])
@pytest.mark.parametrize("name", ["state.db", "events.db"])
def test_who_reads_a_file_that_is_cut_short_lives(home: Path, name: str, size_bytes: int) -> None:
    """A reader of a mapped file is killed by SIGBUS."""
    with open_home(home) as engine:
        engine.create_session("cli", session_id="s1")
        engine.append_messages("s1", [{"role": "user", "content": f"{n} {'x' * 900}"} for n in range(400)])
        engine.projector.catch_up()
        engine.event_log.empty_wal()
    done = subprocess.run(
        [sys.executable, "-c", READS, str(home), name, str(size_bytes)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("read 400", "refused database disk image is malformed"))
