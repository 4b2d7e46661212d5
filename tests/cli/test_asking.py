"""What is asked before it is done: only a yes is one, and whoever runs the command hears that it was none."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from retold.infrastructure.home import Home
from retold.tests.infrastructure.ready import prepare

if TYPE_CHECKING:
    from retold.tests.conftest import Run

ASKED = {
    "delete": ("sessions", "delete", "led"),
    "forget a message": ("forget", "led", "m1"),
    "forget a text": ("forget", "--text", "secret 7"),
    "repair": ("sessions", "repair-routing", "--apply"),
}


def interrupted(_: object) -> NoReturn:
    raise KeyboardInterrupt


def head(home: Path) -> int:
    with Home(home, read_only=True) as opened:
        return opened.log.head().position


@pytest.fixture(autouse=True)
def _prepared(home: Path) -> None:
    prepare(home)


@pytest.mark.parametrize("said", ["n\n", "no\n", "\n", "", "what?\n"])
@pytest.mark.parametrize("command", ASKED)
def test_whatever_is_no_yes_writes_nothing_and_exits_with_1(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    before = head(home)
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    done = run(*ASKED[command])

    assert (done.exit_code, head(home)) == (1, before), done
    assert done.stdout in ("Cancelled.\n", "Aborted — nothing was changed.\n")
    assert "? [y/N] " in done.stderr


@pytest.mark.parametrize("command", ASKED)
def test_ctrl_c_at_a_question_exits_with_130_on_a_line_of_its_own(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    before = head(home)
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"readline": interrupted})())
    done = run(*ASKED[command])

    assert (done.exit_code, done.stdout, head(home)) == (130, "", before)
    assert done.stderr.endswith("? [y/N] \nretold: interrupted\n")


@pytest.mark.parametrize("command", ASKED)
def test_who_wants_json_is_asked_nothing_and_told_to_say_yes(run: Run, home: Path, command: str) -> None:
    before = head(home)
    done = run(*ASKED[command], "--json")

    assert (done.exit_code, head(home)) == (2, before)
    assert "give --yes as well" in done.stdout
