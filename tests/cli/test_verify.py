"""`retold verify`: what it says, in words and in JSON, and what it answers to a shell."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.tests.infrastructure import damage
from retold.tests.infrastructure.filled import events_file, execute, fill, state_file

if TYPE_CHECKING:
    from retold.tests.conftest import Run, RunProcess


@pytest.fixture
def filled(home: Path) -> Path:
    fill(home)
    return home


def test_a_sound_home_is_four_lines_with_the_head(filled: Path, run: Run) -> None:
    done = run("verify")
    lines = done.stdout.splitlines()

    assert (done.exit_code, done.stderr) == (0, "")
    assert lines[0] == "log          307 events, sound"
    assert lines[1].startswith("head         #307:")
    assert len(lines[1].partition(":")[2]) == 64
    assert lines[2:] == ["projections  equal to a fold from nothing at #307"]


def test_the_contract_in_json(filled: Path, run: Run) -> None:
    answer = run("verify", "--json").json

    assert set(answer) == {"log", "projections", "expect"}
    assert answer["log"] == {
        "ok": True,
        "events": 307,
        "head": answer["log"]["head"],
        "problems": [],
        "unknown_topics": [],
    }
    assert answer["projections"] == {"ok": True, "position": 307, "lag": 0, "compared": True, "problems": []}
    assert answer["expect"] is None


def test_lag_is_told(filled: Path, run: Run) -> None:
    fill(filled, 10, prefix="later", fold=False)
    done = run("verify")

    assert done.exit_code == 0
    assert "equal to a fold from nothing at #307, 17 events behind the log" in done.stdout


def test_damage_to_the_log_is_named_with_ranges_and_cure_and_exits_with_5(filled: Path, run: Run) -> None:
    execute(filled / "events.db", "UPDATE events SET payload = x'00' WHERE position IN (7, 8, 9, 100)")
    done = run("verify")
    answer = run("verify", "--json")

    assert done.exit_code == answer.exit_code == 5
    assert "log          307 events, DAMAGED" in done.stdout
    assert "  payload: #7-9, #100\n" in done.stdout
    assert "cure: restore a backup of events.db" in done.stdout
    assert answer.json["log"]["problems"] == [
        {
            "kind": "payload",
            "positions": [[7, 9], [100, 100]],
            "detail": "its bytes are not those that were hashed",
            "cure": "restore a backup of events.db",
        }
    ]
    assert answer.json["projections"]["compared"] is False


def test_damage_to_a_projection_exits_with_1_and_names_the_command_that_cures_it(
    filled: Path, run: Run
) -> None:
    execute(state_file(filled), "UPDATE sessions SET title = 'x' WHERE id = 's1'")
    before = run("verify")
    cured = run("projections", "rebuild", "transcripts")
    after = run("verify")

    assert before.exit_code == 1
    assert "cure: retold projections rebuild transcripts" in before.stdout
    assert (cured.exit_code, after.exit_code) == (0, 0)
    assert "1 row other than told; the first is s1" in cured.stdout


def test_the_printed_head_can_be_expected(filled: Path, run: Run) -> None:
    head = run("verify", "--json").json["log"]["head"]
    fill(filled, 5, prefix="later")
    whole = run("verify", "--expect", head)
    answer = run("verify", "--json", "--expect", head[1:20])

    assert whole.exit_code == answer.exit_code == 0
    assert f"expected     {head} is there" in whole.stdout
    assert answer.json["expect"] == {"position": 307, "hash": head[5:20], "ok": True}


def test_a_head_that_is_not_there_is_damage_to_the_log(filled: Path, run: Run) -> None:
    wrong = run("verify", "--json", "--expect", "#100:0123456789")
    beyond = run("verify", "--expect", "#400:0123456789")

    assert wrong.exit_code == beyond.exit_code == 5
    assert wrong.json["log"]["problems"][0]["kind"] == "expected"
    assert wrong.json["expect"]["ok"] is False
    assert "the log ends at #307: events are missing" in beyond.stdout


@pytest.mark.parametrize("expect", ["#12", "12:abcdefg0", "head", "#12:0123"])
def test_a_malformed_head_is_one_sentence_and_2(filled: Path, run: Run, expect: str) -> None:
    done = run("verify", "--expect", expect)

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"retold: '{expect}' is not of the form #POSITION:HASH")


def test_no_home_is_2_and_makes_nothing(home: Path, run: Run) -> None:
    done = run("verify")

    assert done.exit_code == 2
    assert not home.exists()


def test_a_log_that_cannot_even_be_opened_is_5(filled: Path, run: Run) -> None:
    path = events_file(filled)
    path.write_bytes(b"garbage!" * 4096)
    words, answer = run("verify"), run("verify", "--json")

    assert words.exit_code == answer.exit_code == 5
    assert "events.db" in words.stderr
    assert answer.json["error"]["kind"] == "log_damaged"


def test_text_from_a_damaged_file_has_no_power_over_the_terminal(filled: Path, run: Run) -> None:
    execute(state_file(filled), "UPDATE checkpoints SET detached = 'a' || char(27) || '[31mb'")
    done = run("verify")

    assert done.exit_code == 1
    assert "\x1b" not in done.stdout


def test_a_page_of_the_log_that_is_gone_leaves_no_traceback(filled: Path, run: Run) -> None:
    path = events_file(filled)
    for leaf in damage.tree(path, "events").leaves[::3]:
        damage.overwrite(path, leaf)
    done = run("verify")

    assert (done.exit_code, done.stderr) == (5, "")
    assert "unreadable" in done.stdout


def test_a_bar_is_drawn_only_on_a_terminal(filled: Path, run_process: RunProcess) -> None:
    piped = run_process("verify")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "retold", "verify", "--home", str(filled)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"},
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        out = process.stdout.read().decode()
        drawn = b""
        try:
            while part := os.read(ours, 4096):
                drawn += part
        except OSError:  # the other end is closed
            pass
    os.close(ours)

    assert piped.stderr == ""
    assert out == piped.stdout
    assert b"\x1b[" in drawn
