"""What a gateway waits for besides one message: a long session, a compaction, a known key; at any size."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter

from retold.domain import events as e
from retold.domain.events import Event, session_stream
from retold.domain.session_source import SessionSource
from retold.infrastructure import decisions
from retold.infrastructure.engine import SessionEngine, open_home
from retold.tests.bench.bench_a_append import appended
from retold.tests.bench.conftest import MakeStore, Peer
from retold.tests.bench.figures import note, time_ms
from retold.tests.bench.make_store import Speech

LONG, COMPACTED, ROUTES = 100_000, 2_000, 10_000
SMALL, LARGE = 10_000, 1_000_000
AT_US = 1_778_000_000_000_000


def test_the_rate_of_appends_does_not_fall(store: MakeStore, told: MakeStore) -> None:
    said = [Speech(7, 0.0).said(4) for _ in range(4_000)]
    engines = {size: open_home(told(store(size))) for size in (SMALL, LARGE)}
    taken_s: dict[int, list[float]] = {size: [] for size in engines}
    for _ in range(5):
        for size, engine in engines.items():
            taken_s[size].append(sum(appended(engine, said)))
    for engine in engines.values():
        engine.close()

    rates = {size: len(said) / median(taken_s[size]) for size in engines}
    group = "append to a home of many messages"
    for size, rate in rates.items():
        note(group, f"{size:,} messages", "messages/s", rate)
    note(
        group, f"rate at {LARGE:,} to rate at {SMALL:,}", "ratio", rates[LARGE] / rates[SMALL], at_least=0.85
    )


def test_a_long_session_is_loaded(folder: Path) -> None:
    group = f"load a session of {LONG:,} messages, to where it can append"
    for turns in (0, LONG // 20):
        home = folder / f"long-{turns}"
        _long_session(home, turns)
        what = f"with {turns:,} turns on record" if turns else "messages only"
        keep, decisions.keep_snapshot = decisions.keep_snapshot, lambda *_, **__: None  # type: ignore[attr-defined]
        try:
            note(group, f"{what}, without a snapshot", "ms", _load_ms(home), at_most=30)
        finally:
            decisions.keep_snapshot = keep  # type: ignore[attr-defined]
        _load_ms(home)
        note(group, f"{what}, with its snapshot", "ms", _load_ms(home), at_most=1)


def _long_session(home: Path, turns: int) -> None:
    payloads: list[e.Payload] = []
    for number in range(LONG):
        turn = number * turns // LONG
        if turns and turn != (number - 1) * turns // LONG:
            payloads += [e.TurnStarted(f"t{turn}", AT_US)]
        payloads.append(e.MessageAppended("assistant" if number % 2 else "user", f"message {number}"))
        if turns and turn != (number + 1) * turns // LONG:
            payloads += [e.TurnFinished(f"t{turn}", "done")]
    with open_home(home, synchronous="NORMAL") as engine:
        engine.create_session("cli", session_id="long")
        stream = session_stream("long")
        drafts = [
            engine.draft(Event(stream, version, each, AT_US)) for version, each in enumerate(payloads, 2)
        ]
        for first in range(0, len(drafts), 4_000):
            engine.event_log.append(drafts[first : first + 4_000])
        engine.projector.catch_up()


def _load_ms(home: Path) -> float:
    """The median of some engines that have not seen the session."""
    taken = []
    for _ in range(5):
        with open_home(home) as engine:
            began_s = perf_counter()
            engine.session("long")
            taken.append((perf_counter() - began_s) * 1e3)
    return median(taken)


def test_a_session_is_compacted_in_place(folder: Path, peer: Peer) -> None:
    said = [Speech(7, 0.0).said(4) for _ in range(COMPACTED)]
    ours: list[float] = []
    theirs: list[float] = []
    with open_home(folder / "compacted") as engine:
        for _ in range(5):
            ours.append(_compacted_ms(engine, said))
            theirs.append(peer("compact", folder / "compacted-peer", str(COMPACTED)))

    note(
        f"compaction in place of {COMPACTED:,} messages",
        "the last four kept",
        "ms",
        median(ours),
        hermes=median(theirs),
        ratio_at_most=round(1 / 15, 3),
    )


def _compacted_ms(engine: SessionEngine, said: list[str]) -> float:
    session = engine.create_session("cli").session_id
    roles = ("user", "assistant")
    engine.append_messages(session, [{"role": roles[n % 2], "content": each} for n, each in enumerate(said)])
    engine.projector.settle()
    began_s = perf_counter()
    engine.compact(session, "what was said so far", keep_last=2)
    return (perf_counter() - began_s) * 1e3


def test_a_known_key_is_resolved(folder: Path) -> None:
    with open_home(folder / "resolved") as engine:
        sources = [SessionSource("telegram", str(chat), user_id="501") for chat in range(50)]
        for each in sources:
            engine.append_message(engine.resolve(each).session_id, "user", "hello")
        taken_ms = time_ms(lambda: [engine.resolve(each) for each in sources], times=40) / len(sources)

    note("resolve a known key", "50 chats in turn", "ms", taken_ms, at_most=0.2)


def test_a_message_writes_as_much_at_any_number_of_routes(folder: Path) -> None:
    written = {routes: _written_bytes(folder / f"routes-{routes}", routes) for routes in (1, ROUTES)}

    group = "bytes written for a message, log and projections"
    for routes, count in written.items():
        note(group, f"{routes:,} routes", "bytes", count)
    note(group, f"{ROUTES:,} routes to one", "ratio", written[ROUTES] / written[1], at_most=1.1)


def _written_bytes(home: Path, routes: int) -> float:
    said = [Speech(7, 0.0).said(4) for _ in range(500)]
    with open_home(home, synchronous="NORMAL") as engine:
        for number in range(routes):
            engine.create_session("telegram", session_id=f"s{number}", key=f"agent:main:telegram:dm:{number}")
    with open_home(home, synchronous="NORMAL") as engine:  # with WALs that are empty
        engine.append_message("s0", "user", "first")
        before = _wal_bytes(home)
        appended(engine, said, "s0")
        return (_wal_bytes(home) - before) / len(said)


def _wal_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("*.db-wal"))
