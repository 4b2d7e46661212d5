"""Several processes give one home mixed commands: no answer of any of them turns out to be untrue."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from retold.domain import events as e
from retold.domain.audit import explain
from retold.domain.events import Recorded
from retold.domain.turns import Turns
from retold.domain.turns import evolve as turns_after
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.log import Log
from retold.infrastructure.verify import verify
from retold.projections.world import world
from retold.tests.crash.mixed_writer import CHATS, TITLES
from retold.tests.infrastructure.filled import content, told_from_nothing

Answers = list[dict[str, Any]]


def write_together(home: Path, processes: int, commands: int) -> list[Answers]:
    """So many processes, let go at once; what each was answered."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "retold.tests.crash.mixed_writer", str(home), f"w{n}", str(commands)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(processes)
    ]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n", each.communicate()
    for each in started:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    answers = []
    for each in started:
        out, err = each.communicate(timeout=3_000)
        assert each.returncode == 0, err
        answers.append([json.loads(line) for line in out.splitlines()])
    return answers


def events_of(log: Log) -> Iterable[Recorded]:
    after = 0
    while found := log.read(after):
        yield from found
        after = found[-1].position


def hold(home: Path, answers: Answers) -> None:
    """Everything that must be so, whatever the writers did to each other."""
    with open_home(home) as engine:
        engine.projector.catch_up()
        assert content(engine.projector) == told_from_nothing(engine.event_log)
        events = list(events_of(engine.event_log))
        said_once(events, answers)
        turns_once(events, answers)
        routes_unbroken(engine, events)
        titles_unique(engine)
        one_continuation(engine)
    found = verify(home)
    assert (found.exit_code, found.log.problems, found.problems) == (0, [], [])


def said_once(events: list[Recorded], answers: Answers) -> None:
    """Each acknowledged message stands where its answer says, says what it said, and stands there once."""
    at = {event.position: event for event in events}
    masked = {position for event in events for position in getattr(event.payload, "masked", {})}
    for each in answers:
        if "said" in each:
            payload = at[each["position"]].payload
            assert at[each["position"]].session_id == each["session"]
            assert isinstance(payload, e.MessageAppended)
            assert payload.content == (each["said"] if each["position"] not in masked else "[forgotten]")
    said = [
        event.payload.content
        for event in events
        if isinstance(event.payload, e.MessageAppended)
        and event.payload.copy_of is None
        and event.position not in masked
    ]
    assert {text: count for text, count in Counter(map(str, said)).items() if count > 1} == {}
    wanted = {each["said"] for each in answers if "said" in each and each["position"] not in masked}
    wanted |= {each["summary"] for each in answers if "summary" in each}
    assert wanted <= {str(each) for each in said} | {"[forgotten]"}


def turns_once(events: list[Recorded], answers: Answers) -> None:
    """Each acknowledged turn was started at most once; it waits, runs, is over or was cleared."""
    started = Counter(each["started"] for each in answers if "started" in each)
    assert {turn: count for turn, count in started.items() if count > 1} == {}
    queued = {each["queued"] for each in answers if "queued" in each}
    left: dict[str, Turns] = {}
    seen: Counter[str] = Counter()
    for event in events:
        payload = event.payload
        if isinstance(payload, e.Payload) and event.stream.startswith("session:"):
            left[event.stream] = turns_after(left.get(event.stream, Turns()), payload, event.at_us)
        match payload:
            case e.TurnStarted(turn=turn) | e.TurnFinished(turn=turn):
                seen[turn] += 1
            case e.TurnQueued(replaces=str() as turn):
                seen[turn] += 1
            case e.QueueCleared(turns=gone):
                seen.update(gone)
            case _:
                pass
    waits = {each.turn for state in left.values() for each in state.waiting}
    assert queued <= waits | set(seen)


def routes_unbroken(engine: SessionEngine, events: list[Recorded]) -> None:
    """A key leads to one session, each move begins where the last one ended, and all can be explained."""
    led: dict[str, str | None] = {}
    for event in events:
        match event.payload:
            case e.SessionRerouted(key=key, session_id=to, previous=previous):
                assert led.get(key) == previous
                led[key] = to
            case e.RouteClosed(key=key, previous=previous):
                assert led.get(key) == previous
                led[key] = None
            case _:
                pass
    db = engine.state.reader()
    found = db.execute("SELECT key, session_id FROM routes")
    rows: dict[str, str] = {str(key): str(session_id) for key, session_id in found}
    assert rows == {key: to for key, to in led.items() if to is not None}
    there = {row[0] for row in db.execute("SELECT id FROM sessions")}
    assert set(rows.values()) <= there
    known = world(db)
    for key in led:
        assert engine.route_of(key) == led[key]
        told = explain(known, key)
        assert (None if told.route is None else told.route.session_id) == led[key]
    assert set(led) <= {engine.key_of(each) for each in CHATS}


def titles_unique(engine: SessionEngine) -> None:
    """No two sessions have a title, and who has it holds its claim."""
    rows = engine.state.reader().execute(
        "SELECT id, title FROM sessions WHERE title IS NOT NULL AND title_claimed"
    )
    titled = rows.fetchall()
    assert len({title for _, title in titled}) == len(titled)
    for session_id, title in titled:
        assert engine.claim(str(title)).holder == session_id
    for title in TITLES:
        holder = engine.claim(title).holder
        assert holder is None or (holder, title) in titled


def one_continuation(engine: SessionEngine) -> None:
    rows = engine.state.reader().execute(
        "SELECT parent, json_group_array(child) FROM edges JOIN sessions ON id = child"
        " WHERE kind = 'continuation' GROUP BY parent HAVING count(*) > 1"
    )
    assert rows.fetchall() == []


def begin(home: Path) -> None:
    with open_home(home) as engine:
        for n in range(4):
            engine.create_session("cli", session_id=f"s{n}")
        engine.set_home_channel("telegram", "1000")
        for chat in CHATS:
            engine.resolve(chat)


def test_8_processes_with_mixed_commands_are_all_told_the_truth(home: Path) -> None:
    begin(home)
    answers = [each for those in write_together(home, 8, 100) for each in those]

    assert len(answers) == 800
    assert sum("refused" not in each and "late" not in each for each in answers) > 500
    hold(home, answers)


@pytest.mark.soak
def test_8_processes_with_2_000_mixed_commands_each_are_all_told_the_truth(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(home)
    answers = [each for those in write_together(home, 8, 2_000) for each in those]
    done = Counter(each.get("refused") or each.get("late") or "done" for each in answers)
    with capsys.disabled():
        print(f"\n{len(answers)} commands: {dict(done.most_common())}")

    assert len(answers) == 16_000
    hold(home, answers)
