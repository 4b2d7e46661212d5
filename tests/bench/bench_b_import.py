"""How fast a Hermes home is taken in, and how much it takes on disk then."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from statistics import median

import apsw
import pytest

from retold.infrastructure.engine import open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.tests.bench.conftest import SIZE, MakeStore, run_child
from retold.tests.bench.figures import note, rate

ROUNDS = 3


@pytest.mark.parametrize(("name", "cjk"), [("Latin text", 0.0), ("20 % CJK", 0.2)])
def test_import_a_home(store: MakeStore, folder: Path, name: str, cjk: float) -> None:
    hermes = store(SIZE, cjk=cjk, index=True)
    whole, inside, floor = [], [], []
    on_disk = 0
    for turn in range(ROUNDS):
        home = folder / f"imported-{cjk}-{turn}"
        whole.append(SIZE / run_child(["import", "hermes", str(hermes), "--home", str(home)]).wall_s)
        on_disk = sum(each.stat().st_size for each in home.rglob("*") if not each.is_symlink())
        shutil.rmtree(home)
        engine = open_home(home, actor="import")
        inside.append(rate(SIZE, lambda e=engine: import_hermes(e, hermes)))  # type: ignore[misc]  # bound now
        engine.close()
        shutil.rmtree(home)
        floor.append(rate(SIZE, lambda: _copied(hermes / "state.db", folder / "copy.db")))

    group = f"import of {SIZE:,} messages"
    note(group, f"{name}, whole command", "messages/s", median(whole), floor=median(floor), at_least=15_000)
    note(group, f"{name}, in process", "messages/s", median(inside), floor=median(floor))
    theirs = (hermes / "state.db").stat().st_size
    note(
        "bytes on disk",
        f"{name}, log + projections",
        "MB",
        on_disk / 1e6,
        hermes=theirs / 1e6,
        ratio_at_most=0.6,
    )


def _copied(source: Path, target: Path) -> None:
    """The least that taking messages in can cost: each row read, and written once, durably."""
    target.unlink(missing_ok=True)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    db = apsw.Connection(str(target), flags=flags)
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "FULL")
    db.execute("ATTACH ? AS hermes", (f"file:{os.fspath(source)}?mode=ro&immutable=1",))
    db.execute("CREATE TABLE messages AS SELECT * FROM hermes.messages WHERE 0")
    marks = ",".join("?" * len(list(db.execute("PRAGMA table_info(messages)"))))
    rows = db.execute("SELECT * FROM hermes.messages ORDER BY id").fetchall()
    for at in range(0, len(rows), 4_000):
        with db:
            db.executemany(f"INSERT INTO messages VALUES ({marks})", rows[at : at + 4_000])
    db.close()
