"""A home that was imported again and again reads like one that was imported once, as it is now."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from retold.tests.infrastructure.importing import Importer, importer

TIME = 1782131500.25
BAD_TEXT = "CAST(x'61ff' AS TEXT)"
VALUES = ["NULL", "0", "1", "2", "-5", "1.5", "''", "'x'", "'session_reset'", "'compression'", "x'ff00'"]
VALUES += [BAD_TEXT, "'日本'", "1e18", str(TIME), "'[{},{}]'"]
PAIRS = ["0, 0", "0, 1", "1, 0", "1, 1", "NULL, 0", "2, 'x'", "'x', NULL", "0, 1.5", f"0, {BAD_TEXT}"]

ENDS = ["NULL, NULL", f"{TIME}, 'cli_close'", "5.5, NULL", f"{TIME}, x'ff'", f"{TIME}, 'session_reset'"]

#: What tells when and how it came to be so, not what it is. A kind that was recorded stays.
HISTORY = {
    "version",
    "preview_message",
    "created_position",
    "last_message_position",
    "ended_position",
    "identity_position",
    "lost_key",
    "last_active_us",
    "started_us",
    "ended_us",
    "parent_kind",
}
LEFT = {"id", "session_id", "message_count", "tool_call_count", "title", "end_reason", "ended_at"}


def loosened(hermes: Path) -> apsw.Connection:
    """The home's database, with tables that forbid nothing, as recovery tools copy them, and more columns."""
    db = apsw.Connection(str(hermes / "state.db"))
    db.execute("PRAGMA foreign_keys = OFF")
    for table in ("sessions", "messages"):
        info = db.execute(f"PRAGMA table_info({table})").fetchall()
        columns = ", ".join(
            f'"{name}" {kind}' + (" PRIMARY KEY" if key else "") for _, name, kind, _, _, key in info
        )
        db.execute(f"CREATE TABLE loose ({columns})")
        db.execute(f"INSERT INTO loose SELECT * FROM {table}; DROP TABLE {table}")
        db.execute(f"ALTER TABLE loose RENAME TO {table}")
    for table, column in (
        ("sessions", "parent_kind TEXT"),
        ("sessions", "tomorrow"),
        ("sessions", "hidden INTEGER"),
        ("sessions", "pinned INTEGER"),
        ("messages", "copy_of INTEGER"),
        ("messages", "tomorrow"),
    ):
        db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    return db


def edits(rng: random.Random, db: apsw.Connection, focus: list[str], messages: list[int]) -> None:
    """A few odd edits of few rows, so that each row has a history."""
    names = {
        table: [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] not in LEFT]
        for table in ("sessions", "messages")
    }
    for _ in range(rng.randrange(3, 12)):
        session, message, value = rng.choice(focus), rng.choice(messages), rng.choice(VALUES)
        sql = rng.choice(
            [
                f"UPDATE sessions SET \"{rng.choice(names['sessions'])}\" = {value} WHERE id = '{session}'",
                f'UPDATE messages SET "{rng.choice(names["messages"])}" = {value} WHERE id = {message}',
                f"UPDATE messages SET (active, compacted) = ({rng.choice(PAIRS)}) WHERE id = {message}",
                f"UPDATE sessions SET title = {value} WHERE id = '{session}'",
                f"UPDATE sessions SET (ended_at, end_reason) = ({rng.choice(ENDS)}) WHERE id = '{session}'",
                f"INSERT INTO messages (session_id, role, content, timestamp)"
                f" VALUES ('{session}', 'user', {value}, {rng.choice(VALUES)})",
                f"UPDATE session_model_usage SET input_tokens = {value} WHERE session_id = '{session}'",
            ]
        )
        with contextlib.suppress(apsw.ConstraintError):
            db.execute(sql)


def rows(it: Importer) -> dict[str, Any]:
    """What a reader sees, each row by what names it in the source."""
    found: dict[str, Any] = {}
    for session_id in [row[0] for row in it.state("SELECT id FROM sessions")]:
        row = it.session(session_id)
        if isinstance(row["title"], str):
            del row["title_claimed"]  # who came first holds a title that several bear
        found[session_id] = {column: value for column, value in row.items() if column not in HISTORY}
        forget_guess(found[session_id], "started_at")
    names = [row[1] for row in it.state("PRAGMA table_info(messages)")]
    for values in it.state("SELECT * FROM messages"):
        message = dict(zip(names, values, strict=True))
        del message["id"]
        forget_guess(message, "timestamp")
        found[f"message {message['source_id']}"] = message
    found["edges"] = it.state("SELECT child, parent FROM edges ORDER BY child")
    found["usage"] = it.state("SELECT * FROM session_model_usage")
    found["routes"] = it.state("SELECT key, session_id FROM routes ORDER BY key")
    return found


def forget_guess(row: dict[str, Any], column: str) -> None:
    """A time that the source does not say was guessed from what else it said then."""
    if row["extra"] is not None and column in msgspec.msgpack.decode(row["extra"])[1]:
        del row[column]


@pytest.mark.parametrize("seed", range(10))
def test_incremental_imports_give_the_rows_of_one_import(
    home: Path, hermes_home: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    db = loosened(hermes_home)
    focus = rng.sample([row[0] for row in db.execute("SELECT id FROM sessions")], 3)
    marks = ", ".join("?" * len(focus))
    of_them = f"SELECT id FROM messages WHERE session_id IN ({marks})"
    messages = [row[0] for row in db.execute(of_them, focus)][:6] or [1]
    with importer(home, hermes_home) as again:
        for _ in range(5):
            again.run()
            edits(rng, db, focus, messages)
        db.close()
        again.run()
        assert again.told() == []
        with importer(tmp_path / "fresh", hermes_home) as fresh:
            fresh.run()
            incremental, at_once = rows(again), rows(fresh)
    for name, row in incremental.items():
        if isinstance(row, dict) and row.get("hard_end"):  # final, whatever the source says later
            for column in ("hard_end", "ended_at", "end_reason", "extra"):
                row[column] = at_once[name][column]
    differing = {
        name: {c: (v, at_once[name].get(c)) for c, v in row.items() if v != at_once[name].get(c)}
        if isinstance(row, dict)
        else (row, at_once[name])
        for name, row in incremental.items()
        if row != at_once[name]
    }

    assert differing == {}
