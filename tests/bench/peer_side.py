"""Measures the peer, under the Python of its own environment; prints one line of JSON.

PEER_PYTHON peer_side.py append FOLDER COUNT SYNCHRONOUS    messages a second, one at a time
PEER_PYTHON peer_side.py compact FOLDER COUNT   milliseconds of compacting a session in place
PEER_PYTHON peer_side.py search HOME QUERY      {"ms": median, "hits": n}
PEER_PYTHON peer_side.py tool HOME QUERY        {"find": median ms, "scroll": …, "browse": …}: its search tool
PEER_PYTHON peer_side.py find HOME QUERY        {"p50": ms, "p95": ms}: finds of its search tool
PEER_PYTHON peer_side.py list HOME              median milliseconds of its list of 20
PEER_PYTHON peer_side.py stats HOME             median milliseconds of its counts
PEER_PYTHON peer_side.py reindex HOME           messages a second of telling its search indexes again
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
figures: Any = importlib.import_module("figures")  # by name: this environment has no package `retold`
each_ms: Callable[..., list[float]] = figures.each_ms
time_ms: Callable[..., float] = figures.time_ms


def opened(folder: Path) -> Any:
    """The peer's store of a home."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["HERMES_HOME"] = str(folder)
    return importlib.import_module("hermes_state").SessionDB(db_path=folder / "state.db")


def append(folder: str, count: str, synchronous: str) -> float:
    """One message at a time into a store that is there or is made; by itself it commits at FULL."""
    speech = importlib.import_module("make_store").Speech(7, 0.0)
    db = opened(Path(folder))
    db._conn.execute(f"PRAGMA synchronous = {synchronous}")  # it has no setting for it
    session = f"s{len(list(db.list_sessions_rich(limit=1000)))}"
    db.create_session(session, "cli")
    said = [speech.said(4) for _ in range(int(count))]
    began_s = perf_counter()
    for number, each in enumerate(said):
        db.append_message(session, "assistant" if number % 2 else "user", each)
    taken_s = perf_counter() - began_s
    db.close()
    return int(count) / taken_s


def compact(folder: str, count: str) -> float:
    """Of a session of its own, to a summary and the last four messages."""
    speech = importlib.import_module("make_store").Speech(7, 0.0)
    db = opened(Path(folder))
    session = f"s{len(list(db.list_sessions_rich(limit=1000)))}"
    db.create_session(session, "cli")
    said = [
        {"role": "assistant" if number % 2 else "user", "content": speech.said(4)}
        for number in range(int(count))
    ]
    for each in said:
        db.append_message(session, each["role"], each["content"])
    began_s = perf_counter()
    db.archive_and_compact(session, [{"role": "user", "content": "what was said so far"}, *said[-4:]])
    taken_s = perf_counter() - began_s
    db.close()
    return taken_s * 1e3


def search(home: str, query: str) -> dict[str, float]:
    """The first ten hits, as its own search tool asks for them."""
    db = opened(Path(home))
    return {
        "ms": time_ms(lambda: db.search_messages(query, limit=10)),
        "hits": len(db.search_messages(query, limit=10_000)),
    }


def tool(home: str, query: str) -> dict[str, float]:
    """Its search tool: three finds, a window around the first, the latest three."""
    db = opened(Path(home))
    ask = importlib.import_module("tools.session_search_tool").session_search
    (first, *_) = json.loads(ask(query=query, db=db))["results"]
    at = {"session_id": first["session_id"], "around_message_id": first["match_message_id"]}
    return {
        "find": time_ms(lambda: ask(query=query, db=db)),
        "scroll": time_ms(lambda: ask(**at, db=db)),
        "browse": time_ms(lambda: ask(db=db)),
    }


def find(home: str, query: str) -> dict[str, float]:
    """Forty finds of its search tool, after one that does not count."""
    db = opened(Path(home))
    ask = importlib.import_module("tools.session_search_tool").session_search
    assert json.loads(ask(query=query, db=db))["count"] > 0
    taken = each_ms(lambda: ask(query=query, db=db), 40)
    return {"p50": median(taken), "p95": quantiles(taken, n=20)[-1]}


def list_(home: str) -> float:
    """The list of 20 that its command line shows."""
    db = opened(Path(home))
    return time_ms(lambda: db.list_sessions_rich(limit=20, order_by_last_active=True))


def stats(home: str) -> float:
    """Counts of sessions and messages."""
    db = opened(Path(home))
    return time_ms(lambda: (db.session_count(), db.message_count()))


def reindex(home: str) -> float:
    """Both its indexes, told again from its messages."""
    db = opened(Path(home))
    count = int(db.message_count())
    began_s = perf_counter()
    db.rebuild_fts()
    return count / (perf_counter() - began_s)


def main() -> None:
    """Measure what was asked for; what the store itself prints goes to standard error."""
    which: dict[str, Callable[..., object]] = {
        "append": append,
        "compact": compact,
        "search": search,
        "tool": tool,
        "find": find,
        "list": list_,
        "stats": stats,
        "reindex": reindex,
    }
    with contextlib.redirect_stdout(sys.stderr):
        answer = which[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
