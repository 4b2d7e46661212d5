"""How long a person waits for a list, for a search, for counts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from retold.infrastructure.home import Home
from retold.infrastructure.reading import reading
from retold.infrastructure.session_search import SessionSearch
from retold.projections.listing import list_sessions
from retold.projections.search import search
from retold.projections.sessions import counts
from retold.tests.bench import make_store
from retold.tests.bench.conftest import SIZE, MakeStore, Peer, run_child, surroundings
from retold.tests.bench.figures import note, time_ms

Told = Callable[[Path], Path]
PHRASE = f'"{make_store.PHRASE}"'

# Appends until its input is closed.
_WRITER = """
import sys, threading
from pathlib import Path
from retold import open_home
engine = open_home(Path(sys.argv[1]))
session = engine.create_session("cli").session_id
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set())).start()
print("ready", flush=True)
written = 0
while not over.is_set():
    engine.append_message(session, "user", f"said meanwhile {written}")
    written += 1
engine.close()
print(written)
"""


@pytest.mark.parametrize(
    ("name", "query", "cjk"),
    [
        ("a Latin word", make_store.LATIN, 0.0),
        ("two CJK characters", make_store.CJK, 0.2),
        ("a phrase", PHRASE, 0.0),
    ],
)
def test_search(store: MakeStore, told: Told, peer: Peer, name: str, query: str, cjk: float) -> None:
    hermes = store(SIZE, cjk=cjk, index=True)
    with Home(told(hermes), read_only=True) as home:
        db = home.state.reader()
        hits = search(db, query).ranked_over
        ours = time_ms(lambda: search(db, query))
        words = query if cjk == 0.0 else f'"{query}"'
        raw = "SELECT rowid, bm25(search) FROM search WHERE search MATCH ? ORDER BY 2 LIMIT 10"
        floor = time_ms(lambda: db.execute(raw, (words,)).fetchall())
    theirs = peer("search", hermes, query)

    what = f"{name}, {hits:,} hits (Hermes: {theirs['hits']:,})"
    note(
        f"search in process, {SIZE:,} messages",
        what,
        "ms",
        ours,
        hermes=theirs["ms"],
        floor=floor,
        at_most=10,
    )


@pytest.mark.parametrize(
    ("name", "query", "cjk"),
    [
        ("a Latin word", make_store.LATIN, 0.0),
        ("two CJK characters", make_store.CJK, 0.2),
        ("a phrase", PHRASE, 0.0),
    ],
)
def test_search_tool(store: MakeStore, told: Told, peer: Peer, name: str, query: str, cjk: float) -> None:
    hermes = store(SIZE, cjk=cjk, index=True)
    with SessionSearch(told(hermes)) as ask:
        (first, *_) = json.loads(ask(query))["results"]
        at = {"session_id": first["session_id"], "around_message_id": first["match_message_id"]}
        ours = {
            "find": time_ms(lambda: ask(query)),
            "scroll": time_ms(lambda: ask(**at)),
            "browse": time_ms(ask),
        }
    theirs = peer("tool", hermes, query)

    what = f"search tool, {SIZE:,} messages"
    note(what, f"find {name}", "ms", ours["find"], hermes=theirs["find"])
    if cjk == 0.0 and query == make_store.LATIN:
        note(what, "scroll", "ms", ours["scroll"], hermes=theirs["scroll"], at_most=1)
        note(what, "browse", "ms", ours["browse"], hermes=theirs["browse"])


def test_list(store: MakeStore, told: Told, peer: Peer, peer_python: Path) -> None:
    hermes = store(SIZE, index=True)
    home = told(hermes)
    with reading(home) as view:
        ours = time_ms(lambda: list_sessions(view.db))
    note(f"list of 20 sessions, {SIZE:,} messages", "in process", "ms", ours, hermes=peer("list", hermes))

    pairs = []
    for turn in range(22):  # in turn, so that what else the machine does meets both
        retold = run_child(["sessions", "list"], RETOLD_HOME=home)
        there = run_child(["sessions", "list"], [str(peer_python.with_name("hermes"))], HERMES_HOME=hermes)
        if turn > 1:
            pairs.append((retold.wall_s * 1e3, there.wall_s * 1e3))
    note(
        f"list of 20 sessions, {SIZE:,} messages",
        "whole process (pairs in turn)",
        "ms",
        median(each[0] for each in pairs),
        hermes=median(each[1] for each in pairs),
        ratio=median(each[0] / each[1] for each in pairs),
        ratio_at_most=0.35,
    )


def test_statistics_of_fifteen_thousand_sessions(store: MakeStore, told: Told, peer: Peer) -> None:
    hermes = store(240_000, sessions=15_000)
    with reading(told(hermes)) as view:
        ours = time_ms(lambda: counts(view.db))
    what = "counts by source, 15,000 sessions, 240,000 messages"
    note("at scale, in process", what, "ms", ours, at_most=50)


def test_list_while_a_writer_runs(store: MakeStore, told: Told) -> None:
    hermes = store(130_000, sessions=5_197)
    home = told(hermes)
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=surroundings(),
    )
    assert writer.stdout is not None
    assert writer.stdin is not None
    assert writer.stdout.readline() == b"ready\n"

    def read() -> None:
        with reading(home) as view:
            list_sessions(view.db, limit=50)

    ours = time_ms(read, times=40)
    writer.stdin.close()
    written = int(writer.stdout.readline())
    writer.stdout.close()
    assert writer.wait() == 0
    assert written > 0

    what = "home opened and list of 50, 5,197 sessions, 130,000 messages, while a writer runs"
    note("at scale, in process", what, "ms", ours, at_most=50)
