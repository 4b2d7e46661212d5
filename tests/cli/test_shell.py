"""The shell around every command: help, ways of failing, the shared options, how answers look."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
import pytest

from retold.cli import main as program
from retold.cli.lazy import Lazy, LazyGroup, load
from retold.cli.options import at_option, home_option, json_option
from retold.domain.errors import Ambiguous, LogDamaged, NoSuchSession, TitleTaken

if TYPE_CHECKING:
    from retold.tests.conftest import Run, RunProcess


def _leaves(group: LazyGroup, *path: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, entry in group.table.items():
        found += _leaves(entry, *path, name) if isinstance(entry, LazyGroup) else [(*path, name)]
    return found


COMMANDS = _leaves(program.RETOLD)


def _entry(path: tuple[str, ...]) -> Lazy:
    entry: Lazy | LazyGroup = program.RETOLD
    for name in path:
        assert isinstance(entry, LazyGroup)
        entry = entry.table[name]
    assert isinstance(entry, Lazy)
    return entry


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Put a command in the place of `verify` that does what a test says."""

    def put(body: Callable[[], object]) -> None:
        @click.command()
        @json_option
        def command(as_json: bool) -> object:
            return body()

        monkeypatch.setattr("retold.cli.lazy.load", lambda entry: command)

    return put


def _raise(error: BaseException) -> Callable[[], NoReturn]:
    def body() -> NoReturn:
        raise error

    return body


# --- help -----------------------------------------------------------------------------------------


def test_help_shows_every_command_and_imports_none(run_process: RunProcess) -> None:
    listing = "import sys; from retold.cli.main import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    help_text, loaded = done.stdout.rsplit("\n", 2)[:2]

    assert all(f"\n  {name} " in help_text for name in program.RETOLD.table)
    assert not {"apsw", "msgspec", "rich", "eventsourcing", "yaml"} & set(loaded.split())
    assert "retold.cli.why" not in loaded.split()


def test_a_group_shows_its_commands(run: Run) -> None:
    done = run("sessions", "--help")

    assert done.exit_code == 0
    shown = [line.split()[0] for line in done.stdout.split("Commands:\n")[1].splitlines()]
    assert shown == list(program.SESSIONS.table)


def test_no_command_is_bad_usage_and_shows_the_help(run: Run) -> None:
    done = run()

    assert (done.exit_code, done.stdout) == (2, "")
    assert "Commands:" in done.stderr


def test_the_version_is_told(run: Run) -> None:
    assert run("--version") == (0, "retold 0.1.0\n", "")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_listed_command_exists_and_its_docstring_opens_with_its_line(
    path: tuple[str, ...],
) -> None:
    entry = _entry(path)
    command = load(entry)

    assert isinstance(command, click.Command)
    assert (command.help or "").startswith(entry.short_help)
    assert any("--json" in param.opts for param in command.params)


# --- ways of failing ------------------------------------------------------------------------------


def test_a_refusal_is_a_message_a_hint_and_its_exit_code(
    run: Run, broken: Callable[[Callable[[], object]], None]
) -> None:
    broken(_raise(TitleTaken("tea", holder="s1")))
    done = run("verify")

    assert done == (
        3,
        "",
        "retold: Title 'tea' is already in use by session s1\n"
        "  choose another title, or rename that session first\n",
    )


def test_a_refusal_in_json_is_an_object_on_stdout(
    run: Run, broken: Callable[[Callable[[], object]], None]
) -> None:
    broken(_raise(NoSuchSession("no session is called x", hint="see retold sessions list")))
    done = run("verify", "--json")

    assert (done.exit_code, done.stderr) == (2, "")
    assert done.json == {
        "error": {
            "kind": "no_such_session",
            "message": "no session is called x",
            "hint": "see retold sessions list",
        }
    }


def test_what_is_ambiguous_lists_its_candidates(
    run: Run, broken: Callable[[Callable[[], object]], None]
) -> None:
    broken(_raise(Ambiguous("2 sessions begin with 2026", candidates=["2026a", "2026b"], hint="")))

    assert run("verify") == (2, "", "retold: 2 sessions begin with 2026\n  2026a\n  2026b\n")
    assert run("verify", "--json").json["error"]["candidates"] == ["2026a", "2026b"]


def test_a_damaged_log_exits_with_five(run: Run, broken: Callable[[Callable[[], object]], None]) -> None:
    broken(_raise(LogDamaged("the chain breaks at #7")))

    assert run("verify") == (5, "", "retold: the chain breaks at #7\n")


def test_a_message_cannot_reach_the_terminal(
    run: Run, broken: Callable[[Callable[[], object]], None]
) -> None:
    broken(_raise(NoSuchSession("no session is called \x1b[2J\nretold: all is well\udc80")))

    assert run("verify").stderr == "retold: no session is called ␛[2J retold: all is well�\n"
    assert run("verify", "--json").json["error"]["message"].endswith("\udc80")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["verfy"], "No such command 'verfy'. Did you mean 'verify'?"),
        (["sessions", "shw"], "No such command 'shw'. Did you mean 'show'?"),
        (["verify", "--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
    ],
)
def test_bad_usage_is_one_sentence_in_both_forms(
    run: Run,
    broken: Callable[[Callable[[], object]], None],
    argv: list[str],
    message: str,
) -> None:
    broken(lambda: None)
    words, json = run(*argv), run(*argv, "--json")

    assert (words.exit_code, words.stdout) == (2, "")
    assert words.stderr.splitlines()[0] == f"retold: {message}"
    assert (json.exit_code, json.stderr) == (2, "")
    assert json.json["error"]["kind"] == "bad_usage"
    assert json.json["error"]["message"] == message


@pytest.mark.parametrize(
    ("argv", "option", "way"),
    [
        (["--home", "X", "audit"], "--home", "retold audit --home …"),
        (["--home=X", "audit"], "--home", "retold audit --home …"),
        (["sessions", "--json", "list"], "--json", "retold sessions list --json …"),
        (["--at", "#5"], "--at", "retold COMMAND --at …"),
    ],
)
def test_an_option_before_its_command_is_said_to_stand_after_it(
    run: Run, argv: list[str], option: str, way: str
) -> None:
    done = run(*argv)
    told = done.json["error"] if option == "--json" else None

    assert done.exit_code == 2
    if told is None:
        assert done.stderr == f"retold: {option} stands after the command\n  as in: {way}\n"
    else:
        assert (told["message"], told["hint"]) == (f"{option} stands after the command", f"as in: {way}")


def test_what_stands_after_two_dashes_is_no_option(
    run: Run, broken: Callable[[Callable[[], object]], None]
) -> None:
    broken(lambda: None)
    done = run("verify", "--", "--json")

    assert (done.exit_code, done.stdout) == (2, "")
    assert "--json" in done.stderr


def test_an_interrupt_exits_with_130(run: Run, broken: Callable[[Callable[[], object]], None]) -> None:
    broken(_raise(KeyboardInterrupt()))

    assert run("verify") == (130, "", "retold: interrupted\n")
    assert run("verify", "--json").json["error"]["kind"] == "interrupted"


def test_what_was_not_foreseen_is_a_sentence_with_a_way_on(
    run: Run, broken: Callable[[Callable[[], object]], None]
) -> None:
    broken(_raise(ZeroDivisionError("by zero")))

    assert run("verify") == (
        70,
        "",
        "retold: this was not foreseen: ZeroDivisionError: by zero\n"
        "  set RETOLD_DEBUG=1 to see the traceback\n",
    )


def test_the_traceback_shows_when_asked_for(
    run: Run,
    broken: Callable[[Callable[[], object]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RETOLD_DEBUG", "1")
    broken(_raise(ZeroDivisionError("by zero")))
    done = run("verify")

    assert done.exit_code == 70
    assert "Traceback (most recent call last)" in done.stderr


def test_a_full_disk_is_told_as_such(run: Run, broken: Callable[[Callable[[], object]], None]) -> None:
    broken(_raise(OSError(errno.ENOSPC, "No space left on device", "events.db")))
    error = run("verify", "--json")

    assert error.exit_code == 4
    assert error.json["error"]["kind"] == "no_room"
    assert "events.db" in error.json["error"]["message"]


def test_a_command_may_return_its_exit_code(run: Run, broken: Callable[[Callable[[], object]], None]) -> None:
    broken(lambda: 1)

    assert run("verify").exit_code == 1


def test_an_early_end_of_the_reader_is_quiet() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "retold", "--help"],
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write_end)

    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("argv", [["sessions", "list"], ["audit"], ["audit", "--json"], ["search", "hull"]])
def test_a_closed_output_is_not_written_to(run: Run, hermes_home: Path, home: Path, argv: list[str]) -> None:
    run("import", "hermes", hermes_home)
    env = {**os.environ, "RETOLD_HOME": str(home)}
    script = '"$0" -m retold "$@" >&-'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, *argv], stderr=subprocess.PIPE, env=env, check=False
    )

    assert done.returncode == (1 if "audit" in argv else 0)
    assert b"retold:" not in done.stderr


@pytest.mark.parametrize(
    "argv",
    [
        ["sessions", "list", "--limit"],
        ["sessions", "show", "20260504_080000_b33d43d5", "--first"],
        ["sessions", "show", "20260504_080000_b33d43d5", "--last"],
        ["sessions", "show", "20260504_080000_b33d43d5", "--after"],
        ["sessions", "show", "20260504_080000_b33d43d5", "--before"],
        ["search", "hull", "--limit"],
        ["search", "hull", "--offset"],
    ],
    ids=" ".join,
)
def test_a_number_that_nothing_could_count_is_bad_usage(run: Run, hermes_home: Path, argv: list[str]) -> None:
    run("import", "hermes", hermes_home)
    done = run(*argv, "9" * 22)

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"retold: Invalid value for '{argv[-1]}': {'9' * 22} is more than anything here could be"
    )


@pytest.mark.parametrize("option", ["--since", "--at"])
def test_a_position_that_no_log_reaches_is_bad_usage(run: Run, hermes_home: Path, option: str) -> None:
    run("import", "hermes", hermes_home)
    done = run("log", option, "#" + "9" * 22)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "is no position" in done.stderr


@pytest.mark.skipif(
    not os.path.exists("/dev/full"),
    reason="no /dev/full here: only Linux has it",
)
def test_an_answer_that_does_not_fit_is_no_success() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "retold", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert done.returncode == 4
    assert os.strerror(errno.ENOSPC) in done.stderr.decode()


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii:strict"},
    ],
    ids=["C", "C without UTF-8 mode", "strict ASCII"],
)
def test_no_locale_makes_text_fail(run_process: RunProcess, locale: dict[str, str]) -> None:
    done = run_process("sessions", "漢字 — \N{SNOWMAN}", env=locale)

    assert done.exit_code == 2
    assert done.stderr.startswith("retold: No such command")


# --- shared options -------------------------------------------------------------------------------


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @home_option
    @at_option
    @json_option
    def command(home: Path, at: str | None, as_json: bool) -> None:
        click.echo(f"{home} {at} {as_json}")

    monkeypatch.setattr("retold.cli.lazy.load", lambda entry: command)


@pytest.mark.usefixtures("options")
def test_the_home_is_the_option_else_the_environment_else_the_default(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("verify", "--home=~/h").stdout == f"{Path.home()}/h None False\n"
    assert run("verify", "--at", "#3", "--json").stdout == f"{home} #3 True\n"
    monkeypatch.setenv("RETOLD_HOME", "")
    assert run("verify").stdout == f"{Path.home()}/.retold None False\n"


@pytest.mark.usefixtures("options")
def test_an_empty_home_is_refused(run: Run) -> None:
    done = run("verify", "--home", "")

    assert done.exit_code == 2
    assert "--home" in done.stderr.splitlines()[0]
