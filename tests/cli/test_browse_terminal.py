"""`sessions browse` as it is started: in a real terminal, in one that can do nothing, and in none."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from retold.cli.browse import command
from retold.infrastructure.engine import open_home
from retold.tests.conftest import Run
from retold.tests.histories import MINUTE_US, T0_US, history
from retold.tests.terminal import on_a_terminal


@pytest.fixture
def talks(home: Path) -> Path:
    with history(home) as h:
        h.session("s1", source="telegram", title="Boat repair", at_us=T0_US)
        h.say("s1", "the hull leaks", at_us=T0_US)
        h.session("s2", source="cli", at_us=T0_US + MINUTE_US)
        h.say("s2", "please refactor the module that knows who is allowed", at_us=T0_US + MINUTE_US)
        h.session("s3", source="averylongsource", at_us=T0_US + 2 * MINUTE_US)
    return home


def asked(home: Path, typed: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What the program does where no terminal is, and what is typed comes from a file."""
    return subprocess.run(
        [sys.executable, "-m", "retold", "sessions", "browse", *options],
        env=os.environ | {"RETOLD_HOME": str(home)},
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# --- no terminal ------------------------------------------------------------------------------------


def test_without_a_terminal_it_is_a_numbered_list(talks: Path) -> None:
    done = asked(talks, "q\n")
    lines = done.stdout.splitlines()

    assert (done.returncode, lines[-1]) == (1, "Cancelled.")
    assert lines[2:5] == [
        f"  1. {'s3':<50}  2026-05-05  averylong…",
        "  2. please refactor the module that knows who is al...  2026-05-05  cli",
        f"  3. {'Boat repair':<50}  2026-05-05  telegram",
    ]
    assert done.stderr.strip() == "Select [1-3]:"


@pytest.mark.parametrize("typed", ["", "\n", "Q\n", "quit\n", "exit\n", "0\n4\nx\n²\n\n"])
def test_no_choice_is_a_no(talks: Path, typed: str) -> None:
    done = asked(talks, typed)

    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "Cancelled."
    assert done.stderr.count("q cancels") == max(0, typed.count("\n") - 1)
    assert "Resuming" not in done.stdout


def test_a_number_resumes(talks: Path) -> None:
    done = asked(talks, "7\n3\n")

    assert done.returncode == 0, done.stderr
    assert "Resuming session: s1" in done.stdout
    assert "That is no number from 1 to 3; q cancels." in done.stderr
    assert "the hull leaks" in done.stdout.split("Resuming session: s1")[1]


def test_in_json_the_choice_is_printed_and_nothing_is_resumed(talks: Path) -> None:
    done = asked(talks, "2\n", "--json")

    assert (done.returncode, done.stdout) == (0, '{"session_id":"s2"}\n')
    assert "2. please" in done.stderr
    assert asked(talks, "q\n", "--json").stdout == '{"session_id":null}\n'


def test_an_empty_home_has_nothing_to_choose_from(home: Path, run: Run) -> None:
    open_home(home).close()

    assert run("sessions", "browse") == (0, "No sessions found.\n", "")
    assert run("sessions", "browse", "--json") == (0, '{"session_id":null}\n', "No sessions found.\n")


def test_a_source_that_is_not_there_is_named(talks: Path, run: Run) -> None:
    done = run("sessions", "browse", "--source", "signal")

    assert (done.exit_code, done.stdout) == (0, "No sessions found.\n")
    assert done.stderr == "no session here is of source 'signal'; there are: averylongsource, cli, telegram\n"


@pytest.mark.parametrize(("option", "count"), [(("--limit", "2"), 2), (("--source", "cli"), 1)])
def test_options_narrow_the_list(talks: Path, option: tuple[str, str], count: int) -> None:
    assert f"Select [1-{count}]:" in asked(talks, "q\n", *option).stderr


def test_a_home_that_is_none_is_refused(tmp_path: Path, run: Run) -> None:
    assert run("sessions", "browse", "--home", tmp_path / "none").exit_code == 2


def test_nobody_who_can_answer_is_a_no(talks: Path, run: Run) -> None:
    """Under pytest reading from standard input is an error."""
    done = run("sessions", "browse")

    assert done.exit_code == 1
    assert done.stdout.endswith("Cancelled.\n")


# --- a terminal -------------------------------------------------------------------------------------


def test_a_dumb_terminal_gets_the_list(talks: Path) -> None:
    env = {"RETOLD_HOME": str(talks), "TERM": "dumb"}
    sent = on_a_terminal("sessions", "browse", env=env)

    assert "  3. Boat repair" in sent
    assert "\x1b" not in sent


def test_without_the_extra_it_is_said_how_to_get_it_and_the_list_is_there(
    talks: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(command, "_on_terminals", lambda _: True)
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    done = run("sessions", "browse")

    assert "  3. Boat repair" in done.stdout
    assert done.stderr.startswith(
        "the full screen needs the package 'textual', which is not installed here;"
        " install Retold with its extra, from the checkout: pip install '.[tui]'\n"
    )


class Tmux:
    """A terminal that is one, with a screen that can be read."""

    def __init__(self, folder: Path, columns: int, rows: int) -> None:
        self.socket = folder / f"tmux-{uuid4().hex[:8]}"
        self("new-session", "-d", "-x", str(columns), "-y", str(rows), "sh")

    def __call__(self, *argv: str) -> str:
        env = {name: value for name, value in os.environ.items() if not name.startswith("TMUX")}
        done = subprocess.run(
            ["tmux", "-S", str(self.socket), "-f", os.devnull, "-u", *argv],
            env=env | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PS1": "$ "},
            capture_output=True,
            check=True,
            timeout=20,
        )
        return done.stdout.decode()

    def type(self, text: str, *keys: str) -> None:
        if text:
            self("send-keys", "-l", text)
        for each in keys:
            self("send-keys", each)

    def screen(self, *options: str) -> list[str]:
        return self("capture-pane", "-p", *options).splitlines()

    def until(self, true: Callable[[list[str]], object], within_s: float = 60) -> list[str]:
        ends = time.monotonic() + within_s
        while not true(lines := self.screen()):
            assert time.monotonic() < ends, "\n".join(lines)
            time.sleep(0.05)
        return lines


@pytest.fixture
def tmux(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tmux]:
    terminal = Tmux(tmp_path_factory.mktemp("t"), 100, 24)
    yield terminal
    terminal("kill-server")


def _begin(tmux: Tmux, home: Path, *, env: str = "") -> None:
    line = shlex.join([sys.executable, "-m", "retold", "sessions", "browse", "--home", str(home)])
    path = shlex.quote(os.environ["PYTHONPATH"])
    tmux.type(f"clear; env -u NO_COLOR PYTHONPATH={path} {env} {line}; echo left with $?", "Enter")
    tmux.until(lambda lines: lines and lines[0].startswith("❯") and any("▸" in line for line in lines))


def test_in_a_terminal_it_fills_the_screen_and_leaves_it_as_it_was(talks: Path, tmux: Tmux) -> None:
    _begin(tmux, talks)
    tmux.type("hull")
    found = tmux.until(
        lambda lines: "1 of 3" in lines[0] and any("the hull leaks" in line for line in lines[2:])
    )
    assert found[1].startswith("▸ Boat repair")
    tmux("resize-window", "-x", "40", "-y", "10")
    narrow = tmux.until(
        lambda lines: len(lines) <= 10 and any(line.startswith("▸ Boat repair") for line in lines)
    )
    assert all(len(line) <= 40 for line in narrow)
    tmux("resize-window", "-x", "100", "-y", "24")
    tmux.until(lambda lines: any("the hull leaks" in line and "│" in line for line in lines))
    tmux.type("", "Enter")
    left = tmux.until(lambda lines: any("left with 0" in line for line in lines))

    assert any("Resuming session: s1" in line for line in left)
    assert not any("❯" in line for line in left)


def test_in_a_terminal_escape_cancels_and_ctrl_c_too(talks: Path, tmux: Tmux) -> None:
    for key in ("Escape", "C-c", "q"):
        _begin(tmux, talks)
        tmux.type("", key)
        left = tmux.until(lambda lines: any("left with 1" in line for line in lines))

        assert any(line == "Cancelled." for line in left)


def test_in_a_terminal_without_color_nothing_is_colored(talks: Path, tmux: Tmux) -> None:
    _begin(tmux, talks, env="NO_COLOR=1")
    tmux.until(lambda lines: any("│" in line for line in lines))

    shown = "\n".join(tmux.screen("-e"))
    tmux.type("", "Escape")
    assert "\x1b[7m" in shown  # the cursor's line stands out all the same
    assert not any(f"\x1b[{code}m" in shown for code in (*range(30, 38), *range(40, 48)))
    assert "\x1b[38;" not in shown
    assert "\x1b[48;" not in shown


def test_odd_text_leaves_every_row_its_columns(home: Path, tmux: Tmux) -> None:
    odd = [
        "👩‍👩‍👧‍👦 family",
        "🇩🇪 flag",
        "❤️ heart",
        "1️⃣ key",
        "👍🏽 ok",
        "한국어 세션",
        "日本語",
        "שלום",
        "e\u0301te\u0301",
        "\u202etxt",
    ]
    with open_home(home) as engine:
        for title in odd:
            engine.create_session("telegram", title=title)
    _begin(tmux, home)
    tmux.until(lambda lines: any("│" in line for line in lines))
    rows = [line for line in tmux.screen() if "telegram" in line and "│" in line]
    tmux.type("", "Escape")

    ends = {_cells(line.partition("telegram")[0]) for line in rows if "·" not in line.partition("│")[0]}
    assert len(rows) >= len(odd)
    assert len(ends) == 1


def _cells(text: str) -> int:
    from retold.cli.output import cell_width

    return cell_width(text)
