"""How long a person or an agent waits who works with many sessions: finds, lists, previews, exports."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest

from retold.infrastructure.reading import reading
from retold.infrastructure.session_search import SessionSearch
from retold.projections.listing import list_sessions
from retold.tests.bench import make_store
from retold.tests.bench.conftest import SIZE, MakeStore, Peer, run_child
from retold.tests.bench.figures import each_ms, note

Told = Callable[[Path], Path]
MANY = 760_000
SESSIONS = 50_000
QUERIES = {
    "a Latin word": make_store.LATIN,
    "two CJK characters": make_store.CJK,
    "a phrase": f'"{make_store.PHRASE}"',
    "a word of every third message": make_store.COMMON,
}


def _p95(taken: list[float]) -> float:
    return quantiles(taken, n=20)[-1]


@pytest.mark.parametrize("name", QUERIES)
def test_finds_against_hermes(store: MakeStore, told: Told, peer: Peer, name: str) -> None:
    hermes = store(SIZE, cjk=0.2, index=True)
    query = QUERIES[name]
    with SessionSearch(told(hermes)) as ask:
        ours = each_ms(lambda: ask(query))
        assert json.loads(ask(query))["count"] > 0
    theirs = peer("find", hermes, query)

    what = f"search tool, {SIZE:,} messages, 20 % of them CJK"
    ratio = median(ours) / theirs["p50"]
    note(
        what, f"find {name}, p50", "ms", median(ours), hermes=theirs["p50"], ratio=ratio, ratio_at_most=1 / 3
    )
    note(what, f"find {name}, p95", "ms", _p95(ours), hermes=theirs["p95"])


def test_finds_among_760_000_messages(store: MakeStore, told: Told) -> None:
    """Hermes is left out: to make its indexes of so many takes longer than all else here."""
    home = told(store(MANY, cjk=0.2))
    what = f"search tool, {MANY:,} messages, 20 % of them CJK"
    with SessionSearch(home) as ask:
        for name, query in QUERIES.items():
            ours = each_ms(partial(ask, query))
            assert json.loads(ask(query))["count"] > 0
            note(what, f"find {name}, p50", "ms", median(ours), at_most=20)
            note(what, f"find {name}, p95", "ms", _p95(ours))
        at = _first(ask, make_store.LATIN)
        note(what, "scroll", "ms", median(each_ms(lambda: ask(**at))), at_most=1)
        note(what, "browse", "ms", median(each_ms(ask)))


def _first(ask: SessionSearch, query: str) -> dict[str, Any]:
    (found, *_) = json.loads(ask(query))["results"]
    return {"session_id": found["session_id"], "around_message_id": found["match_message_id"]}


def test_fifty_thousand_sessions(store: MakeStore, told: Told, peer: Peer, peer_python: Path) -> None:
    hermes = store(4 * SESSIONS, sessions=SESSIONS)
    home = told(hermes)
    theirs = [str(peer_python.with_name("hermes"))]
    what = f"{SESSIONS:,} sessions"
    with reading(home) as view:
        ours = each_ms(lambda: list_sessions(view.db))
    note(what, "list of 20, in process", "ms", median(ours), hermes=peer("list", hermes), at_most=20)
    for name, command in (
        ("list of 20, whole process", ["sessions", "list"]),
        ("dry run of prune, whole process", ["sessions", "prune", "--older-than", "30", "--dry-run"]),
    ):
        pairs = []
        for turn in range(12):  # in turn, so that what else the machine does meets both
            here = run_child(command, RETOLD_HOME=home)
            there = run_child(command, theirs, HERMES_HOME=hermes)
            if turn > 1:
                pairs.append((here.wall_s * 1e3, there.wall_s * 1e3))
        note(
            what,
            name,
            "ms",
            median(each[0] for each in pairs),
            hermes=median(each[1] for each in pairs),
            ratio=median(each[0] / each[1] for each in pairs),
            ratio_at_most=0.4 if "list" in command else None,
        )


def _lines(file: Path) -> int:
    """Counted one by one: a child's peak memory is at least what its parent holds."""
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


def test_export_of_everything(store: MakeStore, told: Told, peer_python: Path, folder: Path) -> None:
    hermes = store(SIZE, cjk=0.2, index=True)
    home = told(hermes)
    theirs = [str(peer_python.with_name("hermes"))]
    pairs = []
    for turn in range(6):
        here, there = folder / f"ours{turn}.jsonl", folder / f"theirs{turn}.jsonl"
        ours = run_child(["sessions", "export", str(here)], RETOLD_HOME=home)
        others = run_child(["sessions", "export", str(there)], theirs, HERMES_HOME=hermes)
        assert _lines(here) == _lines(there)
        here.unlink()
        there.unlink()
        if turn:
            pairs.append((ours.wall_s, others.wall_s, ours.peak_mb, others.peak_mb))
    what = f"export of everything as JSON lines, {SIZE:,} messages, whole process"
    note(
        what,
        "time",
        "s",
        median(each[0] for each in pairs),
        hermes=median(each[1] for each in pairs),
        ratio=median(each[0] / each[1] for each in pairs),
        ratio_at_most=0.5,
    )
    note(
        what,
        "peak memory",
        "MB",
        median(each[2] for each in pairs),
        hermes=median(each[3] for each in pairs),
        at_most=200,
    )
