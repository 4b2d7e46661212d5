"""`retold log`: one line an event however its text looks, and one object an event with --json."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import apsw
import msgspec
import pytest
from msgspec import inspect

from retold.cli.event_lines import as_json
from retold.cli.output import cell_width
from retold.domain import events as e
from retold.infrastructure.home import EVENTS
from retold.infrastructure.log import Log
from retold.infrastructure.log_lines import Selection, entries
from retold.tests.histories import T0_US, History, draft, history
from retold.tests.infrastructure.filled import execute
from retold.tests.terminal import on_a_terminal

if TYPE_CHECKING:
    from retold.domain.events import Recorded
    from retold.tests.conftest import Run

KEY = "agent:main:telegram:dm:1001"


@pytest.fixture
def told(home: Path) -> Path:
    """Six events."""
    with history(home) as h:
        h.session("20260504_a", source="telegram", session_key=KEY, at_us=T0_US)
        h.say("20260504_a", "one\nline \x1b[2J of\u2028words", at_us=T0_US + 1_000_000)
        h.route(KEY, "20260504_a", at_us=T0_US + 2_000_000)
        h.session("20260505_b", title="plan", at_us=T0_US + 3_000_000)
        h.append("session:20260505_b", e.SessionPinned(), at_us=T0_US + 4_000_000, at_kind="no_later_than")
    return home


def positions(run: Run, *options: str) -> list[int]:
    done = run("log", *options, "--json")
    return [json.loads(line)["position"] for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("told")
def test_each_event_is_one_line_however_its_text_looks(run: Run) -> None:
    done = run("log")
    stream = next(line.split()[3] for line in done.stdout.splitlines() if line.startswith("#3"))

    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "#1       2026-05-05 16:53:20  session:20260504_a                session_created      cli      "
        f"telegram, key {KEY}",
        "#2       2026-05-05 16:53:21  session:20260504_a                message_appended     cli      "
        "user: one line ␛[2J of words",
        f"#3       2026-05-05 16:53:22  {stream}                   session_rerouted     cli      "
        f"{KEY} → 20260504_a (first_message)",
        "#4       2026-05-05 16:53:23  session:20260505_b                session_created      cli      cli",
        "#5       2026-05-05 16:53:23  session:20260505_b                session_titled       cli      "
        "“plan”",
        "#6      ≤2026-05-05 16:53:24  session:20260505_b                session_pinned       cli",
    ]
    assert len(stream) == len("route:01234567…")
    assert positions(run, "--stream", stream.rstrip("…")) == [3]


LONG = "20260622_194950_7af33bc1"


@pytest.fixture
def long_names(home: Path) -> Path:
    """Two sessions with ids as Hermes makes them, a route to one, and two days."""
    with history(home) as h:
        h.session(LONG, source="telegram", session_key=KEY, at_us=T0_US)
        h.say(LONG, "please look at the boat, it leaks at the stern", at_us=T0_US + 1_000_000)
        h.route(KEY, LONG, at_us=T0_US + 2_000_000)
        h.session("20260622_194950_11111111", at_us=T0_US + 24 * 3_600_000_000)
    return home


def test_on_a_terminal_most_of_a_line_is_what_happened(long_names: Path) -> None:
    def seen(columns: int) -> list[str]:
        lines = on_a_terminal("log", env={"RETOLD_HOME": str(long_names)}, columns=columns).splitlines()

        assert all(cell_width(line) <= columns for line in lines)
        return lines

    assert seen(80) == [
        "2026-05-05",
        "#1     16:53:20 …7af33bc1  cli     created: telegram, key agent:main:telegram:d…",
        "#2     16:53:21 …7af33bc1  cli     user: please look at the boat, it leaks at t…",
        f"{seen(80)[3][:26]} cli     rerouted: {KEY} → 2026…",
        "2026-05-06",
        "#4     16:53:20 …11111111  cli     created: cli",
    ]
    assert seen(140)[2].endswith(f" {LONG} cli     user: please look at the boat, it leaks at the stern")
    assert seen(40)[2] == "#2     16:53:21 user: please look at th…"


@pytest.mark.usefixtures("long_names")
def test_a_stream_is_chosen_by_what_any_line_shows_of_it(run: Run, long_names: Path) -> None:
    piped = run("log", "--type", "session_rerouted").stdout.split()[3]
    screen = on_a_terminal("log", env={"RETOLD_HOME": str(long_names)}).splitlines()
    shown = next(line for line in screen if line.startswith("#3")).split()[2]

    assert piped.endswith("…")
    for name in (piped, piped.rstrip("…"), shown, KEY):
        assert positions(run, "--stream", name) == [3]
    for name in ("…7af33bc1", "7af33bc1", "af33bc1"):
        assert positions(run, "--stream", name) == [1, 2]
    assert positions(run, "--type", "rerouted") == [3]


@pytest.mark.usefixtures("long_names")
@pytest.mark.parametrize("name", ["2026", "20260622_194950_…"])
def test_a_name_that_fits_several_streams_names_them(run: Run, name: str) -> None:
    done = run("log", "--stream", name)

    assert done.exit_code == 2
    assert LONG in done.stderr
    assert "20260622_194950_11111111" in done.stderr


def test_a_stream_whose_name_is_damaged_hides_no_other(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("torn_name", at_us=T0_US)
        h.session("sound_name", at_us=T0_US)
    execute(home / EVENTS, "UPDATE streams SET name = CAST(x'73657373696f6e3aff' AS TEXT) WHERE id = 1")

    assert positions(run, "--stream", "d_name") == [2]
    assert positions(run, "--stream", "sound") == [2]
    done = run("log", "--at", "2026-05-05T16:53:20Z")
    assert done.exit_code == 5
    assert done.stdout.splitlines()[-1].startswith("#2 ")


def test_an_end_that_fits_several_streams_names_them(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("a_123456")
        h.session("b_123456")
    done = run("log", "--stream", "…123456")

    assert done.exit_code == 2
    assert "more than one stream ends with '123456'" in done.stderr
    assert "session:a_123456" in done.stderr


def test_no_line_shows_how_python_writes_a_value(run: Run, home: Path) -> None:
    calls = json.dumps([{"id": "c1", "function": {"name": "grep", "arguments": '{"for": "leak"}'}}])
    with history(home) as h:
        h.session("s")
        h.append("session:s", e.SourceRowChanged("session", "s", {"title": "plan", "archived": None}))
        h.append("session:s", e.IdentityLost({"user_id": None}, {}))
        h.append("session:s", e.MessageAppended("assistant", None, tool_calls=calls))
    lines = run("log").stdout.splitlines()

    assert lines[1].endswith("kind=session, row=s, changes=(title=plan, archived=nothing)")
    assert lines[2].endswith("was user_id=nothing")
    assert lines[3].endswith('assistant: → grep({"for": "leak"})')


def struct_info(payload: type[e.Payload]) -> inspect.StructType:
    return cast("inspect.StructType", inspect.type_info(payload))


def some(kind: inspect.Type) -> Any:
    """A value of a field's type, with a line break wherever text may have one."""
    match kind:
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.UnionType():
            return some(kind.types[0])
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.NoneType():
            return None
        case inspect.BytesType():
            return b"x\n"
        case inspect.ListType() | inspect.VarTupleType():
            return [some(kind.item_type)]
        case inspect.DictType():
            kinds = (
                kind.value_type.types
                if isinstance(kind.value_type, inspect.UnionType)
                else (kind.value_type,)
            )
            return {str(number): some(each) for number, each in enumerate(kinds)}
        case inspect.StructType():
            return kind.cls(**{each.name: some(each.type) for each in kind.fields if each.required})
        case _:
            return "x\ny"


@pytest.mark.parametrize("payload", e.PAYLOADS, ids=lambda each: each.__name__)
def test_events_of_every_type_have_a_line_and_an_object(
    run: Run, home: Path, payload: type[e.Payload]
) -> None:
    fields = {each.name: some(each.type) for each in struct_info(payload).fields if each.required}
    with history(home) as h:
        if payload is not e.SessionCreated:
            h.session("s")
        h.append("session:s", payload(**fields))
    line, answer = run("log", "--limit", "1").stdout, run("log", "--json", "--limit", "1")

    assert line.count("\n") == 1
    assert payload.topic.rpartition(".")[0] in line
    assert list(json.loads(answer.stdout)["payload"]) == list(payload.__struct_fields__)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--stream", "session:20260504_a"], [1, 2]),
        (["--stream", "20260505_b"], [4, 5, 6]),
        (["--stream", "20260505"], [4, 5, 6]),
        (["--type", "session_created"], [1, 4]),
        (["--type", "session_created.1"], [1, 4]),
        (["--type", "SessionCreated", "--type", "SessionTitled"], [1, 4, 5]),
        (["--since", "#5"], [5, 6]),
        (["--since", "2026-05-05T16:53:23Z"], [4, 5, 6]),
        (["--limit", "2"], [5, 6]),
        (["--since", "#2", "--limit", "2"], [2, 3]),
        (["--limit", "1", "--stream", "20260504"], [2]),
        (["--limit", "0"], []),
        (["--at", "#3"], [1, 2, 3]),
        (["--at", "2026-05-05T16:53:21Z"], [1, 2]),
        (["--at", "2026-05-05T16:53:21Z", "--limit", "1"], [2]),
        (["--since", "#7"], []),
    ],
    ids=lambda each: " ".join(map(str, each)),
)
def test_options_choose_events(run: Run, options: list[str], found: list[int]) -> None:
    assert positions(run, *options) == found


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stream", "2026"], "more than one stream begins with '2026'"),
        (["--stream", "x"], "no stream, session or routing key is called 'x'"),
        (["--type", "session_creatd"], "no event is of type 'session_creatd'"),
        (["--since", "yore"], "'yore' is neither a position nor a time"),
        (["--since", "#99"], "the log ends at #6; there is no #99 yet"),
    ],
)
def test_what_is_not_there_is_refused_with_a_hint(run: Run, options: list[str], message: str) -> None:
    done = run("log", *options)

    assert done.exit_code == 2
    assert done.stderr.startswith(f"retold: {message}\n  ")


def test_erased_and_unknown_events_are_shown_as_such(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("s")
        secret = h.say("s", "the secret")
        h.erase([secret])
        newer = draft("session:s", 3, e.SessionPinned(), T0_US)
        h.log.append([msgspec.structs.replace(newer, topic="newer.7")])
    lines = run("log").stdout.splitlines()
    states = [json.loads(line)["payload_state"] for line in run("log", "--json").stdout.splitlines()]

    assert "secret" not in "".join(lines)
    assert lines[1].endswith("message_appended     cli      (erased)")
    assert lines[3].endswith("newer                cli      (of a type that this version does not know)")
    assert states == ["here", "erased", "here", "unknown"]
    assert positions(run, "--type", "newer") == positions(run, "--type", "newer.7") == [4]


def test_an_event_that_cannot_be_decoded_never_hides_what_follows(run: Run, home: Path) -> None:
    with history(home) as h:
        h.session("s")
        h.say("s", "torn")
        h.say("s", "whole")
    db = apsw.Connection(str(home / EVENTS))
    db.execute("UPDATE events SET payload = x'93c1' WHERE position = 2")
    db.close()
    done = run("log")

    assert done.exit_code == 5
    assert "(damaged: event #2 (message_appended.1) cannot be decoded" in done.stdout.splitlines()[1]
    assert done.stdout.splitlines()[2].endswith("user: whole")


def test_the_log_folds_nothing_and_leaves_no_projections(run: Run, told: Path) -> None:
    assert run("log").exit_code == 0
    assert not (told / "state.db").exists()


def test_a_folder_without_a_log_is_refused(run: Run, home: Path) -> None:
    assert run("log").exit_code == 2
    assert not home.exists()


def test_events_are_read_one_by_one(home: Path) -> None:
    with history(home) as h:
        with h.together():
            h.session("s")
            for _ in range(50):
                h.say("s", "x")
        walk = entries(h.log, Selection())

        assert [as_json(cast("Recorded", next(walk)))["position"] for _ in range(3)] == [1, 2, 3]


# --- following ------------------------------------------------------------------------------------


@contextmanager
def following(home: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """`retold log --follow` in a process of its own, and a function that reads its next line."""
    with subprocess.Popen(
        [sys.executable, "-m", "retold", "log", "--follow", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"RETOLD_HOME": str(home)},
    ) as program:
        alarm = threading.Timer(60, program.kill)
        alarm.start()
        assert program.stdout is not None
        try:
            yield program, program.stdout.readline
        finally:
            alarm.cancel()
            program.kill()


def test_following_prints_what_other_processes_append_until_it_is_interrupted(told: Path) -> None:
    with following(told, "--json", "--limit", "1") as (program, line):
        assert json.loads(line())["position"] == 6
        for number in range(3):
            with history(told) as h:
                h.say("20260504_a", f"news {number}")

            assert json.loads(line())["payload"]["content"] == f"news {number}"
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)

    assert program.returncode == 130
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert err == ""


def test_following_keeps_to_what_was_chosen(told: Path) -> None:
    with following(told, "--type", "session_titled", "--stream", "20260505_b") as (_, line):
        assert line().startswith("#5")
        with history(told) as h:
            h.say("20260505_b", "no title")
            h.title("20260504_a", "not this one")
            h.title("20260505_b", "plan #2")

        assert line().rstrip().endswith("“plan #2”")


def test_following_a_log_that_is_replaced_says_so(told: Path) -> None:
    with following(told, "--limit", "1") as (program, line):
        assert line().startswith("#6")
        os.replace(told / EVENTS, told / "moved.db")
        _, err = program.communicate(timeout=30)

    assert program.returncode == 4
    assert "was moved, removed or replaced" in err


def test_following_a_pipe_that_closes_ends_quietly(told: Path) -> None:
    with following(told, "--limit", "1") as (program, line):
        line()
        assert program.stdout is not None
        program.stdout.close()
        with history(told) as h:
            h.say("20260504_a", "unheard")

        assert program.wait(timeout=30) == 141


def test_a_log_opened_elsewhere_in_this_process_is_followed_too(told: Path) -> None:
    log = Log(told / EVENTS)
    try:
        with following(told, "--limit", "1") as (_, line):
            assert line().startswith("#6")
            writer = History(log)
            writer.say("20260504_a", "hello")

            assert "hello" in line()
    finally:
        log.close()
