"""`retold mcp`: a client of the mcp package starts it as an agent does and asks over its pipes."""

from __future__ import annotations

import asyncio
import builtins
import json
import select
import subprocess
import sys
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from retold.cli import mcp as command
from retold.infrastructure.home import EVENTS
from retold.tests.conftest import Run
from retold.tests.histories import T0_US, history

if TYPE_CHECKING:
    from mcp import Client

KEY = "agent:main:telegram:dm:1001"
START = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
Answers = list[tuple[Any, bool]]


@pytest.fixture(autouse=True)
def _told(home: Path) -> None:
    with history(home) as h:
        h.session("s1", source="telegram", session_key=KEY, title="boat", at_us=T0_US)
        h.say("s1", "the hull leaks", at_us=T0_US + 1_000_000)
        h.say("s1", "  line\u2028end", "assistant", at_us=T0_US + 2_000_000)
        h.route(KEY, "s1")


def with_client(home: Path, talk: Callable[[Client], Awaitable[Any]]) -> Any:
    from mcp import (
        Client,
        StdioServerParameters,
    )  # takes a second or two, which other tests need not wait for

    async def run() -> Any:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "retold", "mcp", "--home", str(home)],
            env={"PYTHONPATH": ":".join(sys.path), "TZ": "UTC"},
        )
        async with Client(server) as client:
            return await talk(client)

    return asyncio.run(asyncio.wait_for(run(), 60))


def call(home: Path, *asked: tuple[str, dict[str, Any]]) -> Answers:
    async def talk(client: Client) -> Answers:
        answers: Answers = []
        for name, arguments in asked:
            result = await client.call_tool(name, arguments)
            (piece,) = result.content
            assert piece.type == "text"
            answers.append((json.loads(piece.text), result.is_error))
        return answers

    found: Answers = with_client(home, talk)
    return found


def test_a_client_is_told_of_four_tools_that_only_read_and_when_to_call_them(home: Path) -> None:
    async def talk(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = with_client(home, talk)

    assert [each.name for each in tools] == ["session_search", "list_sessions", "show_session", "why"]
    assert all(each.annotations.read_only_hint for each in tools)
    assert all("Call it when" in " ".join(each.description.split()) for each in tools)
    assert set(tools[0].input_schema["properties"]) == {
        "query", "role_filter", "limit", "sort", "session_id", "around_message_id", "window",
        "current_session_id", "profile", "detail",
    }  # fmt: skip
    assert tools[0].input_schema["required"] == []


def test_a_client_finds_scrolls_reads_and_browses(home: Path) -> None:
    before = (home / EVENTS).read_bytes()
    answers = call(
        home,
        ("session_search", {"query": "hull"}),
        ("session_search", {"session_id": "s1", "around_message_id": 4}),
        ("session_search", {"session_id": "s1"}),
        ("session_search", {}),
    )
    found, scrolled, read, browsed = (answer for answer, _ in answers)

    assert [answer["mode"] for answer, _ in answers] == ["discover", "scroll", "read", "browse"]
    assert {is_error for _, is_error in answers} == {False}
    assert found["results"][0]["snippet"] == "the >>>hull<<< leaks"
    assert scrolled["messages"][1] == {
        "id": 4, "role": "assistant", "content": "  line\u2028end", "timestamp": T0_US / 1e6 + 2,
        "anchor": True,
    }  # fmt: skip
    assert read["message_count"] == 2
    assert browsed["results"][0]["preview"] == "the hull leaks"
    assert (home / EVENTS).read_bytes() == before


def test_the_other_tools_answer_as_the_commands_do(home: Path, run: Run) -> None:
    answers = call(
        home,
        ("list_sessions", {"limit": 5}),
        ("show_session", {"session": "boat"}),
        ("show_session", {"session": "s1", "last": 1}),
        ("why", {"chat": "1001"}),
        ("list_sessions", {"at": "#1", "everything": True}),
    )
    listed, shown, last, why, past = (answer for answer, _ in answers)

    assert {is_error for _, is_error in answers} == {False}
    assert listed == run("sessions", "list", "--limit", "5", "--json").json
    assert shown == run("sessions", "show", "boat", "--json").json
    assert [each["id"] for each in last["messages"]] == [4]
    assert why == run("why", "1001", "--json").json
    assert past["sessions"][0]["message_count"] == 0


def test_a_wrong_call_is_an_error_in_a_sentence_and_the_server_goes_on(home: Path) -> None:
    answers = call(
        home,
        ("session_search", {"querry": "hull"}),
        ("session_search", {"session_id": "nope"}),
        ("show_session", {}),
        ("show_session", {"session": 5}),
        ("show_session", {"session": "nope"}),
        ("show_session", {"session": "s1", "first": 1, "last": 1}),
        ("show_session", {"session": "s1", "last": -1}),
        ("why", {"chat": "nobody"}),
        ("list_sessions", {"at": "yesterdayish"}),
        ("delete_session", {"session": "s1"}),
        ("show_session", {"session_id": "s1"}),
    )

    assert [is_error for _, is_error in answers] == [True] * len(answers)
    assert [answer["success"] for answer, _ in answers] == [False] * len(answers)
    assert [answer["error"] for answer, _ in answers[:4]] == [
        "there is no argument 'querry'",
        "session_id not found: nope",
        "session is missing",
        "session has to be a text",
    ]

    assert answers[-1][0]["error"] == "there is no argument 'session_id'"
    assert answers[-1][0]["hint"].startswith("there are: session, first, last,")


def test_half_a_surrogate_pair_in_a_question_is_answered(home: Path) -> None:
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": START},
        {"method": "notifications/initialized"},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "session_search", "arguments": {"query": "hull \ud83d"}},
        },
        {
            "id": 3,
            "method": "tools/call",
            "params": {"name": "session_search", "arguments": {"query": "hull"}},
        },
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "retold", "mcp", "--home", str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "TZ": "UTC"},
    ) as server:
        assert server.stdin
        assert server.stdout
        answers = {}
        for each in asked:
            server.stdin.write(json.dumps({"jsonrpc": "2.0"} | each) + "\n")
            server.stdin.flush()
            if "id" in each and select.select([server.stdout], [], [], 20)[0]:
                answers[each["id"]] = json.loads(server.stdout.readline())
        server.stdin.close()

    assert answers.keys() == {1, 2, 3}
    assert json.loads(answers[2]["result"]["content"][0]["text"])["query"] == "hull \ufffd"
    assert server.returncode == 0


def test_a_home_that_is_not_there_is_an_error_of_each_call(tmp_path: Path) -> None:
    answers = call(tmp_path / "nowhere", ("session_search", {}), ("list_sessions", {}))

    assert [(answer["success"], is_error) for answer, is_error in answers] == [(False, True)] * 2
    assert not (tmp_path / "nowhere").exists()


def test_without_the_extra_it_says_how_to_install_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    done = run("mcp")

    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr == (
        "retold: retold mcp needs the package 'mcp', which is not installed here\n"
        "  install Retold with its extra, from the checkout: pip install '.[mcp]'\n"
    )


READ: dict[str, Callable[[str], Any]] = {
    "claude": lambda text: json.loads(text)["mcpServers"]["retold"],
    "codex": lambda text: tomllib.loads(text)["mcp_servers"]["retold"],
    "hermes": lambda text: yaml.safe_load(text)["mcp_servers"]["retold"],
}


@pytest.mark.parametrize("client", READ)
def test_a_printed_configuration_starts_this_program_on_this_home(
    tmp_path: Path, run: Run, client: str
) -> None:
    odd = tmp_path / 'a "home": b\\c é'
    done = run("mcp", "--print-config", client, "--home", odd)
    entry = READ[client](done.stdout)
    as_json = run("mcp", "--print-config", client, "--home", odd, "--json").json

    assert done.exit_code == 0
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-3:] == ["mcp", "--home", str(odd)]
    assert done.stderr.startswith("This goes into ")
    assert (as_json["client"], as_json["config"]) == (client, done.stdout.rstrip("\n"))


def test_json_goes_with_a_printed_configuration_only(run: Run) -> None:
    assert run("mcp", "--json").exit_code == 2


def test_no_other_command_loads_the_package(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **keywords: Any) -> Any:
        if name.partition(".")[0] in ("mcp", "mcp_types", "anyio"):
            raise ImportError(name)
        return real(name, *more, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)

    assert run("--help").exit_code == 0
    assert run("mcp", "--print-config", "codex").exit_code == 0
    assert run("sessions", "list").exit_code == 0
