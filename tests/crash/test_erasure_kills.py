"""A writer killed anywhere between a deletion, its undoing and an erasure leaves all of it done or none."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

from retold.infrastructure.engine import open_home
from retold.infrastructure.verify import verify
from retold.projections.deletions import NEVER, due
from retold.tests.infrastructure.filled import content, told_from_nothing
from retold.tests.infrastructure.test_erasing import SECRET, traces

WRITER = """
import itertools, sys
from pathlib import Path
from retold.infrastructure.engine import open_home

secret = sys.argv[3]
with open_home(Path(sys.argv[1])) as engine:
    for number in itertools.count():
        session = f"{sys.argv[2]}-{number}"
        key = f"agent:main:telegram:dm:{session}"
        engine.create_session("telegram", session_id=session, key=key, title=session)
        sub = f"{session}-sub"
        engine.create_session("cli", session_id=sub, parent=session, parent_kind="delegate")
        for said in (f"it is {secret}", "and more"):
            message = engine.append_message(session, "user", said).position
        print(session, flush=True)
        engine.delete_session(session)
        engine.undelete_session(session)
        engine.forget_message(session, message)
        engine.forget_text(secret)
        engine.append_message(session, "user", f"again {secret}")
        engine.delete_session(session, now=number % 2 == 0)
"""
KILLS = 12


def test_killed_anywhere_a_deletion_or_an_erasure_is_done_or_it_is_not(home: Path) -> None:
    rng = random.Random(7)
    for run in range(KILLS):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(home), f"r{run}", SECRET], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(rng.randint(1, 3)):
            assert writer.stdout.readline()
        try:
            writer.wait(timeout=rng.random() * 0.15)
        except subprocess.TimeoutExpired:
            writer.send_signal(signal.SIGKILL)
        writer.communicate(timeout=60)

        assert writer.returncode == -signal.SIGKILL
        with open_home(home) as engine:
            engine.projector.catch_up()
            db = engine.state.reader()
            here = {str(row[0]) for row in db.execute("SELECT id FROM sessions")}
            gone = {str(row[0]) for row in db.execute("SELECT session_id FROM deletions")}
            led = {str(row[0]) for row in db.execute("SELECT session_id FROM routes")}
            assert not here & gone
            assert led <= here
            for each in here | gone:
                if not each.endswith("-sub"):
                    holder = engine.claim(each).holder
                    assert holder == (each if each in here else None)
                    assert (f"{each}-sub" in gone) == (each in gone) or f"{each}-sub" not in here | gone
            assert content(engine.projector) == told_from_nothing(engine.event_log)
    with open_home(home) as engine:
        engine.append_message(engine.create_session("cli").session_id, "user", "whoever comes next")
        engine.forget_text(SECRET)
        engine.erase_sessions(due(engine.state.reader(), NEVER))
        assert traces(home) == {}
    assert verify(home).exit_code == 0
