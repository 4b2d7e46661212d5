"""Several processes that append to one home at the same time."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec

from retold.tests.bench.bench_a_append import p99_ms
from retold.tests.bench.figures import note
from retold.tests.bench.make_store import Speech
from retold.tests.infrastructure.processes import run_together

ROUNDS, COUNT, WRITERS = 3, 4_000, 8
_BEFORE = """
from pathlib import Path
from time import perf_counter
import msgspec
from retold.tests.bench.bench_a_append import appended

said = msgspec.json.decode(Path({said!r}).read_bytes())[:{count}]
"""
"""What each is to say is made beforehand: it takes longer than to append it."""
_CODE = """
session = engine.create_session("cli").session_id
began_s = perf_counter()
taken_s = appended(engine, said, session)
print(began_s, perf_counter(), *taken_s)
"""


def test_eight_writers(folder: Path) -> None:
    alone: list[float] = []
    together: list[float] = []
    taken_s: list[float] = []
    said = folder / "said.json"
    said.write_bytes(msgspec.json.encode([Speech(7, 0.0).said(4) for _ in range(COUNT)]))
    for turn in range(ROUNDS):
        alone.append(_rate(folder / f"alone-{turn}", said, 1, []))
        together.append(_rate(folder / f"together-{turn}", said, WRITERS, taken_s))

    group = f"{WRITERS} processes append to one home, one message a transaction"
    note(group, "all of them", "messages/s", median(together))
    note(group, "one process alone", "messages/s", median(alone))
    note(group, "all of them to one alone", "ratio", median(together) / median(alone), at_least=0.9)
    note(group, "99 of 100 within", "ms", p99_ms(taken_s), at_most=100)
    note(group, "the slowest", "ms", max(taken_s) * 1e3, at_most=1_000)


def _rate(home: Path, said: Path, writers: int, taken_s: list[float]) -> float:
    """Messages a second from the first that begins to the last that ends."""
    before = _BEFORE.format(said=str(said), count=COUNT // writers)
    answers = run_together(home, [_CODE] * writers, before=before, timeout_s=600)
    taken_s += [float(each) for answer in answers for each in answer[2:]]
    began_s, ended_s = (pick(float(each[place]) for each in answers) for place, pick in enumerate((min, max)))
    return sum(len(answer) - 2 for answer in answers) / (ended_s - began_s)
