"""The gateway's loop of ARCHITECTURE.md, run as it stands there; and what the public API says of itself."""

from __future__ import annotations

import inspect
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import retold
from retold.domain import errors
from retold.domain import events as e
from retold.infrastructure.home import Home
from retold.infrastructure.verify import verify
from retold.tests.conftest import ROOT
from retold.tests.infrastructure.clocks import Clock
from retold.tests.infrastructure.routing import findings

(LOOP,) = re.findall(
    r"## A gateway's loop\n.*?^```python\n(.*?)^```$",
    (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
BOAT = retold.SessionSource("telegram", "1001", user_id="501", user_name="Åsa")
ROOM = retold.SessionSource("discord", "r1", "Room", "group", user_id="7")
Delivery = tuple[retold.SessionSource, retold.Update, str]


class Killed(BaseException):
    """The process is gone."""


class Agent:
    """Answers each question with one tool call and a sentence; what else happens meanwhile is the test's."""

    def __init__(self) -> None:
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.full_at = 100
        self.seen: list[str] = []
        self.notes: list[str | None] = []
        self.lengths: dict[str, int] = {}

    def __call__(self, view: retold.View, note: str | None) -> Iterator[retold.Message]:
        self.notes.append(note)
        asked = [str(each.content) for each in view.messages if each.role == "user"][-1]
        self.seen.append(asked)
        self.lengths[view.session_id] = len(view.messages)
        call = {"id": f"call {asked}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        yield retold.Message("assistant", None, tool_calls=[call])
        self.meanwhile.pop(asked, lambda: None)()
        yield retold.Message("tool", "looked", tool_name="look", tool_call_id=f"call {asked}")
        yield retold.Message("assistant", f"to {asked}")

    def is_full(self, session_id: str) -> bool:
        return self.lengths.get(session_id, 0) >= self.full_at

    def summary(self) -> str:
        return f"So far: {', '.join(self.seen)}."


def delivery(source: retold.SessionSource, number: int, text: str) -> Delivery:
    return source, retold.Update(source.platform, source.chat_id or "", str(number)), text


@pytest.fixture
def loop() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(LOOP, "ARCHITECTURE.md", "exec"), names)
    return names


@pytest.fixture
def clock() -> Clock:
    return Clock()


def engine_of(home: Path, clock: Clock) -> retold.SessionEngine:
    return retold.SessionEngine(home, actor="gateway", clock=clock)


def said(home: Path) -> list[tuple[str, str]]:
    """Who said what, in the order of the log, copies and summaries left out."""
    with Home(home) as opened:
        messages = [each.payload for each in opened.log.read(topics=[e.MessageAppended.topic])]
    return [
        (each.role, str(each.content))
        for each in messages
        if isinstance(each, e.MessageAppended) and each.copy_of is None and not each.summary
    ]


def sound(home: Path) -> None:
    """Nothing is wrong with chats, log and projections; a turn that was queued was begun, and once.

    A turn that goes on in a continuation has its start there too.
    """
    with Home(home) as opened:
        events = opened.log.read(limit=10_000)
    started = Counter(
        (each.stream, each.payload.turn) for each in events if isinstance(each.payload, e.TurnStarted)
    )
    queued = {each.payload.turn for each in events if isinstance(each.payload, e.TurnQueued)}
    with retold.open_home(home) as engine:
        assert findings(engine) == []
        assert engine.waiting_sessions() == []
    found = verify(home)
    assert (found.log.problems, found.problems) == ([], [])
    assert set(started.values()) == {1}
    assert {turn for _, turn in started} == queued


# --- the loop ----------------------------------------------------------------------------------------


def test_the_loop_is_thirty_lines_of_the_public_api() -> None:
    lines = [line for line in LOOP.splitlines() if line.strip()]

    assert len(lines) <= 30
    assert set(re.findall(r"^(?:from|import) (\w+)", LOOP, re.MULTILINE)) == {"contextlib", "retold"}
    for name in set(re.findall(r"engine\.(\w+)", LOOP)):
        assert hasattr(retold.SessionEngine, name), name


def test_two_chats_and_a_redelivery(home: Path, clock: Clock, loop: dict[str, Any]) -> None:
    agent = Agent()
    with engine_of(home, clock) as engine:
        first, second = delivery(BOAT, 1, "leak?"), delivery(ROOM, 1, "rent?")
        loop["serve"](engine, agent, [first, second, first, delivery(BOAT, 2, "epoxy?"), second])
        boat, room = (engine.route_of(engine.key_of(each)) for each in (BOAT, ROOM))
        platform_ids = [each.content for each in engine.view(str(boat)).messages if each.role == "user"]

    assert agent.seen == ["leak?", "rent?", "epoxy?"]
    assert platform_ids == ["leak?", "epoxy?"]
    assert room not in (None, boat)
    assert Counter(text for role, text in said(home) if role == "user") == {
        "leak?": 1,
        "rent?": 1,
        "epoxy?": 1,
    }
    assert (home / ".clean_shutdown").exists()
    sound(home)


def test_a_message_while_busy_waits_for_the_turns_end(home: Path, clock: Clock, loop: dict[str, Any]) -> None:
    agent = Agent()
    with engine_of(home, clock) as engine:

        def come_in() -> None:
            for number, text in ((2, "and?"), (3, "hello?")):
                loop["take"](engine, agent, *delivery(BOAT, number, text))

        agent.meanwhile["leak?"] = come_in
        loop["serve"](engine, agent, [delivery(BOAT, 1, "leak?")])

    assert agent.seen == ["leak?", "and?", "hello?"]
    words = [text for role, text in said(home) if role == "user" or text.startswith("to ")]
    assert words == ["leak?", "to leak?", "and?", "to and?", "hello?", "to hello?"]
    sound(home)


def test_two_threads_of_one_chat_run_each_turn_once(home: Path, clock: Clock, loop: dict[str, Any]) -> None:
    agent = Agent()
    with engine_of(home, clock) as engine:
        engine.start_gateway()
        threads = [
            threading.Thread(target=loop["take"], args=(engine, agent, *delivery(BOAT, number, f"q{number}")))
            for number in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(timeout=60)
        engine.stop_gateway()

    assert sorted(agent.seen) == [f"q{number}" for number in range(8)]
    words = [text for role, text in said(home) if role == "user" or text.startswith("to ")]
    assert words[1::2] == [f"to {asked}" for asked in words[::2]]
    sound(home)


def test_a_restart_in_a_turn_runs_it_again_and_says_it_once(
    home: Path, clock: Clock, loop: dict[str, Any]
) -> None:
    agent = Agent()
    with engine_of(home, clock) as engine:

        def die() -> None:
            loop["take"](engine, agent, *delivery(BOAT, 2, "and?"))
            raise Killed

        agent.meanwhile["leak?"] = die
        with pytest.raises(Killed):
            loop["serve"](engine, agent, [delivery(BOAT, 1, "leak?")])
    clock.turn(5)
    with engine_of(home, clock) as engine:
        again = [delivery(BOAT, 1, "leak?"), delivery(BOAT, 2, "and?")]  # the platform was never answered
        loop["serve"](engine, agent, [*again, delivery(ROOM, 1, "rent?")])
        session_id = str(engine.route_of(engine.key_of(BOAT)))
        state = engine.session(session_id)

    assert agent.seen == ["leak?", "leak?", "and?", "rent?"]
    assert ["cut off" in (note or "") for note in agent.notes] == [False, True, False, False]
    assert [text for role, text in said(home) if role == "user"] == ["leak?", "and?", "rent?"]
    assert (state.marks.resume, state.turns.running, state.turns.waiting) == (None, None, ())
    sound(home)


def test_a_restart_after_a_compression_in_a_turn_says_it_once_too(
    home: Path, clock: Clock, loop: dict[str, Any]
) -> None:
    agent = Agent()
    key = "agent:main:telegram:dm:1001"
    with engine_of(home, clock) as engine:

        def die() -> None:
            engine.compress(str(engine.route_of(key)), "In short.", keep_last=1)
            raise Killed

        agent.meanwhile["and?"] = die
        with pytest.raises(Killed):
            loop["serve"](engine, agent, [delivery(BOAT, 1, "leak?"), delivery(BOAT, 2, "and?")])
    clock.turn(5)
    with engine_of(home, clock) as engine:
        loop["serve"](engine, agent, [delivery(BOAT, 2, "and?")])
        tip = str(engine.route_of(key))
        context = [each.content for each in engine.view(tip).messages if each.role == "user"]

    assert agent.seen == ["leak?", "and?", "and?"]
    assert [text for role, text in said(home) if role == "user"] == ["leak?", "and?"]
    assert context == ["In short.", "and?"]
    sound(home)


def test_a_long_chat_is_compressed_and_who_is_behind_follows(
    home: Path, clock: Clock, loop: dict[str, Any]
) -> None:
    agent = Agent()
    agent.full_at = 12
    key = "agent:main:telegram:dm:1001"
    with engine_of(home, clock) as engine, retold.open_home(home) as other:

        def compress_elsewhere() -> None:
            other.compress(str(other.route_of(key)), "In short.", at_us=clock())

        agent.meanwhile["q2"] = compress_elsewhere
        loop["serve"](engine, agent, [delivery(BOAT, number, f"q{number}") for number in range(8)])
        tip = str(engine.route_of(key))
        shown = [each for each in engine.history(tip).messages if each.kind == "message"]
        history = [each.content for each in shown if each.role == "user"]
        context = len(engine.view(tip).messages)

    assert agent.seen == [f"q{number}" for number in range(8)]
    assert history == agent.seen
    assert context < 15
    with Home(home) as opened:
        compressed = opened.log.read(topics=[e.SessionCompressed.topic])
    assert len(compressed) == 2  # elsewhere, and by the loop
    sound(home)


def test_a_drain_leaves_what_comes_to_the_next_start(home: Path, clock: Clock, loop: dict[str, Any]) -> None:
    agent = Agent()
    with engine_of(home, clock) as engine:

        def drain() -> None:
            engine.drain_gateway()
            loop["take"](engine, agent, *delivery(BOAT, 2, "and?"))

        agent.meanwhile["leak?"] = drain
        loop["serve"](engine, agent, [delivery(BOAT, 1, "leak?")])
        left = engine.waiting_sessions()
    seen_before = list(agent.seen)
    with engine_of(home, clock) as engine:
        loop["serve"](engine, agent, [])

    assert len(left) == 1
    assert (seen_before, agent.seen) == (["leak?"], ["leak?", "and?"])
    sound(home)


def test_a_chat_that_began_anew_in_a_turn_lets_the_answer_go(
    home: Path, clock: Clock, loop: dict[str, Any]
) -> None:
    agent = Agent()
    with engine_of(home, clock) as engine:
        agent.meanwhile["leak?"] = lambda: engine.reset(engine.key_of(BOAT))
        loop["serve"](engine, agent, [delivery(BOAT, 1, "leak?"), delivery(BOAT, 2, "rent?")])

    assert [text for _, text in said(home) if text.startswith("to ")] == ["to rent?"]
    sound(home)


# --- the public API ----------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public command and question of an engine that is ours."""
    for name, member in inspect.getmembers(retold.SessionEngine, inspect.isfunction):
        if not name.startswith("_") and member.__module__.startswith("retold."):
            yield name, member


COMMANDS = list(commands())


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_is_typed_and_says_what_it_does(name: str, command: Callable[..., Any]) -> None:
    doc = inspect.getdoc(command) or ""
    signature = inspect.signature(command)

    assert doc.split("\n\n")[0].endswith((".", ":", "…"))
    assert signature.return_annotation is not inspect.Signature.empty
    for each in list(signature.parameters.values())[1:]:
        assert each.annotation is not inspect.Parameter.empty, each


def test_the_errors_that_commands_name_are_at_the_front_door() -> None:
    of_errors = {name for name, value in vars(errors).items() if isinstance(value, type)}
    named = {
        word
        for _, command in COMMANDS
        for word in re.findall(r"\b[A-Z]\w+", (inspect.getdoc(command) or "").partition("Raises:\n")[2])
        if word in of_errors
    }

    shared = re.findall(
        r"\b[A-Z]\w+", (inspect.getdoc(retold.SessionEngine) or "").partition("under `Raises`")[2]
    )

    assert len(named) > 20
    assert named <= set(retold.__all__)
    assert {"NoSuchSession", "VersionConflict", "StoreBusy", "NoRoom", "LogDamaged"} <= set(shared)
    assert {name for name in of_errors if issubclass(getattr(errors, name), retold.RetoldError)} <= set(
        retold.__all__
    )


@pytest.mark.parametrize("name", sorted(set(retold.__all__) - {"__version__"}))
def test_everything_at_the_front_door_says_what_it_is(name: str) -> None:
    assert len(inspect.getdoc(getattr(retold, name)) or "") > 20
