"""Whatever changes in a Hermes home: one import takes it in, the next has nothing to tell."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from retold.domain.source_messages import digest, shown
from retold.domain.source_rows import packed
from retold.infrastructure.importers.hermes_home import HermesHome
from retold.infrastructure.importers.hermes_rows import plain, session_row
from retold.infrastructure.rebuild import rebuild
from retold.projections.sources import STATES
from retold.tests.infrastructure.importing import importer

VALUES = [
    None,
    0,
    2,
    -5,
    1.5,
    "",
    "x",
    "boat repair",
    "session_reset",
    "compression",
    b"\xff\0",
    "日本",
    1e18,
]
ENTRIES = ['{"session_id": "%s"}', '{"session_id": "%s", "updated_at": "2026-01-01"}', "{broken %s"]


def names(db: apsw.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")][2:]


def change_something(rng: random.Random, db: apsw.Connection) -> None:
    """One change, of a kind that Hermes, a person or an accident makes."""
    session = rng.choice(db.execute("SELECT id FROM sessions").fetchall())[0]
    message = rng.choice(db.execute("SELECT id FROM messages").fetchall())[0]
    key = rng.choice(db.execute("SELECT session_key FROM gateway_routing").fetchall())[0]
    value: Any = rng.choice(VALUES)
    changes: list[tuple[str, tuple[Any, ...]]] = [
        (f"UPDATE sessions SET {rng.choice(names(db, 'sessions'))} = ? WHERE id = ?", (value, session)),
        (f"UPDATE messages SET {rng.choice(names(db, 'messages'))} = ? WHERE id = ?", (value, message)),
        (
            "UPDATE messages SET active = ?, compacted = ? WHERE session_id = ? AND id > ?",
            (rng.choice([0, 1]), rng.choice([0, 1]), session, message),
        ),
        ("DELETE FROM messages WHERE id = ?", (message,)),
        ("DELETE FROM sessions WHERE id = ?", (session,)),
        (
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, ?)",
            (rng.choice([session, "orphan"]), value, rng.choice(VALUES)),
        ),
        (
            "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?",
            (rng.choice(ENTRIES) % session, key),
        ),
        ("DELETE FROM gateway_routing WHERE session_key = ?", (key,)),
    ]
    sql, values = rng.choice(changes)
    with contextlib.suppress(apsw.ConstraintError):  # Hermes' own schema forbids some
        db.execute(sql, values)


@pytest.mark.parametrize("seed", range(6))
def test_one_import_takes_in_all_and_the_next_nothing(
    home: Path, hermes_home: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    with importer(home, hermes_home) as it:
        for _ in range(3):
            db = apsw.Connection(str(hermes_home / "state.db"))
            for _ in range(rng.randrange(1, 14)):
                change_something(rng, db)
            db.close()
            it.run()

            assert it.told() == []
            assert_as_last_seen(it.state, hermes_home, tmp_path / "scratch")
        (rebuilt,) = rebuild(it.engine.projector, ["sources"])

        assert rebuilt.equal


def assert_as_last_seen(state: Any, hermes_home: Path, scratch: Path) -> None:
    """What is remembered of the source is the source."""
    with HermesHome.open(hermes_home, scratch) as there:
        sessions = {row["id"]: packed(session_row(row, {})[0]) for row in there.sessions()}
        ids = [head[0] for head in there.message_heads()]
        messages = {row["id"]: plain(row) for row in there.messages(ids)}
    seen = dict(state("SELECT session_id, seen FROM source_sessions WHERE gone = 0"))
    known = state("SELECT source_id, digest, state FROM source_messages WHERE gone = 0")

    assert {each: seen[each] for each in sessions} == sessions
    assert {row[0]: row[1:] for row in known} == {
        each: (digest(row), STATES[shown(row)]) for each, row in messages.items()
    }
