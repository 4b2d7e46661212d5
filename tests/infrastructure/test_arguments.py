"""Whatever a command is given, it is refused in a sentence or done; and the log reads on to its end."""

from __future__ import annotations

import inspect
import math
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from retold.domain import events as e
from retold.domain.arguments import checks_of
from retold.domain.errors import BadIdentifier, BadTime, BadUsage, EngineClosed, RetoldError, RuleBroken
from retold.domain.inbound import Update
from retold.domain.message import Message
from retold.domain.session_source import SessionSource
from retold.infrastructure.commands.base import Commands
from retold.infrastructure.decisions import event
from retold.infrastructure.drafts import draft_of
from retold.infrastructure.engine import SessionEngine
from retold.infrastructure.verify import verify
from retold.tests.infrastructure.ready import KEY, OTHER, prepare

POISON: dict[str, Any] = {
    "none": None,
    "a number": 5,
    "a number of no column": 1 << 80,
    "less than none": -1,
    "no number": math.nan,
    "a truth": True,
    "bytes": b"x",
    "another word": "nope",
    "a broken text": "a\ud800b",
    "a list of numbers": [5],
    "a list of bytes": [b"x"],
    "a dict by number": {1: 2},
    "a dict of a list": {"a": [1]},
    "a dict of a time": {"a": datetime(2026, 5, 1, tzinfo=UTC)},
    "a dict of a great number": {"a": 1 << 63},
    "a dict of no number": {"a": math.nan},
    "a class": object,
    "an update": Update("telegram", 5, b"x"),  # type: ignore[arg-type]
    "a message": Message(5, {"a": object()}),  # type: ignore[arg-type]
}
GIVEN: dict[str, Any] = {
    "session_id": "led",
    "orphan_id": "orphan",
    "key": KEY,
    "source": "telegram",
    "reason": "its time",
    "message": "user",
    "content": "what is said",
    "role": "user",
    "messages": [{"role": "user", "content": "what is said"}],
    "title": "a title",
    "mode": "delta",
    "model": "a model",
    "cwd": "/somewhere",
    "prompt": "be kind",
    "summary": "summed up",
    "name": "work",
    "platform": "telegram",
    "chat_type": "dm",
    "chat_id": "1002",
    "turn": "t1",
    "text": "do it",
    "update": Update("telegram", "1001", "1"),
    "kind": "prune",
    "retention_days": 90,
    "positions": [],
    "secret": "nothing that anybody said",
    "session_ids": [],
    "keep": "ours",
    "position": 1,
}
OF_A_COMMAND: dict[str, dict[str, Any]] = {
    "resolve": {"source": SessionSource("telegram", "1001")},
    "key_of": {"source": SessionSource("telegram", "1001")},
    "rewind": {"message": 1},
    "enrich_message": {"message": 1},
    "forget_message": {"message": 1},
    "complete_handoff": {"session_id": "handed", "key": OTHER, "gateway": "g"},
    "record_usage": {"input_tokens": 1},
}
"""What a command is given that is meant otherwise elsewhere."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("prepared") / "home"
    prepare(home)
    return home


@pytest.fixture
def ready(prepared: Path, home: Path) -> Path:
    """A home in which every command has something to do: a copy, which takes a tenth of making it."""
    shutil.copytree(prepared, home, symlinks=True)
    return home


def commands() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every public command, with all that it must be given."""
    for group in SessionEngine.__mro__:
        if not issubclass(group, Commands) or group in (Commands, SessionEngine):
            continue
        for name, command in vars(group).items():
            if name.startswith("_") or not inspect.isfunction(command):
                continue
            needed = [
                each.name
                for each in inspect.signature(command).parameters.values()
                if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
            ]
            values = GIVEN | OF_A_COMMAND.get(name, {})
            if set(needed) - {"self"} <= values.keys():
                more = {each: values[each] for each in needed if each != "self"}
                yield name, {**more, **OF_A_COMMAND.get(name, {})}


def answer(engine: SessionEngine, name: str, given: dict[str, Any]) -> int | None:
    """The exit code of a command's refusal; None where it was done."""
    try:
        getattr(engine, name)(**given)
    except RetoldError as refused:
        return refused.exit_code
    return None


def arguments(name: str) -> list[str]:
    """The names of a command's arguments, and one of those that it passes on by name."""
    found = inspect.signature(getattr(SessionEngine, name)).parameters.values()
    further = {
        "identity": "chat_id",
        "peer": "user_id",
        "numbers": "output_tokens",
        "fields": "tool_calls",
    }
    return [further.get(each.name, each.name) for each in found if each.name != "self"]


@pytest.mark.parametrize(("name", "given"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_a_command_is_refused_in_a_sentence_or_done_and_the_home_goes_on(
    ready: Path, name: str, given: dict[str, Any]
) -> None:
    with SessionEngine(ready) as engine:
        for argument in arguments(name):
            for kind, value in POISON.items():
                said = answer(engine, name, {**given, argument: value})
                assert said in (None, 2, 3, 4), (argument, kind)

    with SessionEngine(ready) as engine:
        assert len(list(engine.event_log.read(after=0))) == engine.head().position
        lag = engine.projector.catch_up()
        assert lag.detached == {}
        session_id = engine.create_session("cli").session_id
        assert engine.append(session_id, "user", "and it goes on").position == engine.head().position
    verified = verify(ready)
    assert (verified.log.problems, verified.problems) == ([], [])


@pytest.mark.parametrize("left_by", ["close", "with"])
def test_no_command_is_done_once_the_engine_is_closed(ready: Path, left_by: str) -> None:
    with SessionEngine(ready) as engine:
        head = engine.head()
        if left_by == "close":
            engine.close()
    engine.close()
    for name, given in commands():
        with pytest.raises(EngineClosed, match=f"the engine of {ready} is closed"):
            getattr(engine, name)(**given)
    with pytest.raises(EngineClosed):
        engine.head()
    with SessionEngine(ready) as again:
        assert again.head() == head


@pytest.mark.parametrize("at_us", [1_777_593_600, 1_777_593_600_000, 0, -1])
def test_no_command_saves_a_time_that_is_in_another_unit(ready: Path, at_us: int) -> None:
    refused = []
    with SessionEngine(ready) as engine:
        head = engine.head()
        for name, given in commands():
            if "at_us" in inspect.signature(getattr(SessionEngine, name)).parameters:
                try:
                    getattr(engine, name)(**given, at_us=at_us)
                except BadTime:
                    refused.append(name)
                except RetoldError:
                    pass
                assert engine.head() == head, name

    assert {"append", "create_session", "compress", "enqueue", "resolve", "title_session"} <= set(refused)


def test_every_annotation_of_a_command_can_be_held_against_an_argument() -> None:
    for name, _ in commands():
        assert isinstance(checks_of(inspect.unwrap(getattr(SessionEngine, name))), dict)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            lambda engine: engine.enqueue("led", "x", lane="Slot"),
            "lane may be 'slot' or 'overflow', not 'Slot'",
        ),
        (lambda engine: engine.enqueue("led", "x", turn=5), "turn may be a str or None, not 5"),
        (
            lambda engine: engine.create_session("cli", parent="led", parent_kind="nope"),
            "parent_kind may be ",
        ),
        (lambda engine: engine.create_session("cli", chat_id=1001), "chat_id may be a str or None, not 1001"),
        (lambda engine: engine.start_gateway("main", [5]), "platforms may be a list (each a str), not list"),
        (lambda engine: engine.resolve("telegram"), "source may be a retold.SessionSource, not 'telegram'"),
        (lambda engine: engine.undo(1 << 80), "position may be a whole number, not "),
        (
            lambda engine: engine.append("led", None, "x"),
            "message may be a retold.Message or a str, not None",
        ),
        (lambda engine: engine.prune(retention_days=math.nan), "retention_days may be a number, not nan"),
    ],
)
def test_a_refusal_names_the_argument_and_what_it_may_be(
    ready: Path, command: Callable[[SessionEngine], object], said: str
) -> None:
    with SessionEngine(ready) as engine, pytest.raises(BadUsage) as refused:
        command(engine)

    assert refused.value.message.startswith(said)


def test_a_number_in_the_place_of_an_id_is_told_to_be_passed_as_text(home: Path) -> None:
    with SessionEngine(home) as engine, pytest.raises(BadUsage) as refused:
        engine.create_session("telegram", chat_id=1001)  # type: ignore[arg-type]

    assert "chat_id=str(…)" in refused.value.hint


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (e.TurnQueued("t", "x", "Slot"), "lane"),  # type: ignore[arg-type]
        (e.TurnQueued("t", "x", "slot", about={1: 2}), "about"),  # type: ignore[dict-item]
        (e.TurnQueued("t", "x", "slot", about={"a": datetime(2026, 5, 1, tzinfo=UTC)}), "about"),  # type: ignore[dict-item]
        (e.TurnQueued("t", "x", "slot", about={"a": object()}), "about"),  # type: ignore[dict-item]
        (e.TurnQueued("t", "\ud800", "slot"), "text"),
        (e.GatewayStarted(True, [5]), "platforms"),  # type: ignore[list-item]
        (e.UsageRecorded("delta", input_tokens=1 << 63), "input_tokens"),
        (e.MessageAppended("user", 5), "content"),  # type: ignore[arg-type]
        (e.MessageAppended("user", "x", columns={"a": 1 << 64}), "columns"),
    ],
)
def test_no_event_is_written_that_the_log_could_not_give_back(payload: e.Payload, field: str) -> None:
    with pytest.raises(BadUsage, match=f"^{field} is nothing that can be saved"):
        draft_of(event("session:s", 1, payload, 1))


BAD_IDS = ("a\0b", "../../x", "line\nbreak", "turned\u202eround")


@pytest.mark.parametrize("value", BAD_IDS)
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(lambda engine, value: engine.create_session("cli", key=value), id="key"),
        pytest.param(lambda engine, value: engine.create_session("cli", chat_id=value), id="chat"),
        pytest.param(lambda engine, value: engine.create_session("cli", user_id=value), id="person"),
        pytest.param(lambda engine, value: engine.create_session(value), id="source"),
        pytest.param(lambda engine, value: engine.create_session("cli", session_id=value), id="session"),
        pytest.param(lambda engine, value: engine.set_home_channel("telegram", value), id="home channel"),
        pytest.param(lambda engine, value: engine.set_home_channel(value, "1001"), id="its platform"),
        pytest.param(lambda engine, value: engine.seen_update(Update("telegram", value, "1")), id="update"),
        pytest.param(lambda engine, value: engine.resume(value, "led"), id="resume"),
        pytest.param(lambda engine, value: engine.reset(value), id="reset"),
        pytest.param(lambda engine, value: engine.hold(value, "work"), id="hold"),
    ],
)
def test_what_names_a_place_is_no_path_and_holds_nothing_unseen(
    ready: Path, command: Callable[[SessionEngine, str], object], value: str
) -> None:
    with SessionEngine(ready) as engine:
        head = engine.head()
        with pytest.raises(BadIdentifier):
            command(engine, value)
        assert engine.head() == head


@pytest.mark.parametrize("value", [".", "x" * 256])
def test_a_session_is_not_named_as_no_file_could_be(home: Path, value: str) -> None:
    with SessionEngine(home) as engine, pytest.raises(BadIdentifier):
        engine.create_session("cli", session_id=value)


@pytest.mark.parametrize("days", [0, -5, 36_501, math.inf])
def test_upkeep_deletes_nothing_by_a_time_that_is_none(ready: Path, days: float) -> None:
    with SessionEngine(ready) as engine:
        engine.end_session("there", "agent_close")
        with pytest.raises(BadUsage, match="retention_days"):
            engine.prune(retention_days=days)
        assert not engine.session("there").deleted


def test_a_message_beside_further_content_is_refused_rather_than_half_taken(ready: Path) -> None:
    with SessionEngine(ready) as engine:
        with pytest.raises(BadUsage, match="content"):
            engine.append("led", Message("user", "a"), "b")
        with pytest.raises(BadUsage, match="each message has a key"):
            engine.append_messages("led", [Message("user", "a")], idempotency_keys=["k1", "k2"])


@pytest.mark.parametrize("role", ["User", "assistent", "function"])
def test_a_role_is_one_of_the_four(ready: Path, role: str) -> None:
    with SessionEngine(ready) as engine, pytest.raises(RuleBroken, match="user, assistant, tool or system"):
        engine.append("led", role, "hello")


@pytest.mark.parametrize("value", [[1], {"a": 1}, math.nan, math.inf, object()])
def test_what_is_about_a_turn_is_texts_and_numbers(ready: Path, value: Any) -> None:
    with SessionEngine(ready) as engine:
        for command in (engine.enqueue, engine.begin_turn):
            with pytest.raises(BadUsage, match="about may hold texts and numbers"):
                command("there", text="do it", about={"a": value})
            with pytest.raises(BadUsage, match="about may hold texts and numbers"):
                command("there", text="do it", about={1: "a"})  # type: ignore[dict-item]


def test_calls_are_a_list_or_the_text_of_one(ready: Path) -> None:
    with SessionEngine(ready) as engine, pytest.raises(BadUsage, match="tool_calls may be a list"):
        engine.append("led", "assistant", tool_calls="no json")


def test_tokens_that_add_up_to_more_than_a_column_holds_stay_at_the_most(ready: Path) -> None:
    with SessionEngine(ready) as engine:
        with pytest.raises(BadUsage, match="input_tokens is a whole number"):
            engine.record_usage("led", "delta", input_tokens=1 << 62)
        for model in (None, "m"):
            version = engine.session("led").version
            told = [e.UsageRecorded("delta", model, input_tokens=(1 << 63) - 1) for _ in range(2)]
            engine.save_events([event("session:led", version + n, each, 1) for n, each in enumerate(told, 1)])
        db = engine.state.reader()
        assert engine.projector.catch_up().detached == {}
        assert db.execute("SELECT input_tokens FROM sessions WHERE id = 'led'").fetchall() == [
            ((1 << 63) - 1,)
        ]
        assert db.execute("SELECT input_tokens FROM session_model_usage").fetchall() == [((1 << 63) - 1,)]
