"""A damaged log: reads go on and say what they lack, writes stop, and verify changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import retold
from retold.domain.errors import LogDamaged
from retold.infrastructure.home import Home
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.verify import verify
from retold.tests.infrastructure import damage
from retold.tests.infrastructure.filled import events_file, execute, fill, state_file

if TYPE_CHECKING:
    from retold.tests.conftest import Run


@pytest.fixture
def filled(home: Path) -> Path:
    fill(home)
    return home


def spoil(home: Path, position: int) -> None:
    """Damage one payload, and let the projections be told again without it."""
    execute(home / "events.db", f"UPDATE events SET payload = x'00ff' WHERE position = {position}")
    (home / "state.db").unlink()


def test_the_past_says_what_it_lacks_each_time(filled: Path, run: Run) -> None:
    spoil(filled, 60)
    for _ in range(2):
        for at in ("#100", "2d"):
            done = run("sessions", "list", "--at", at)

            assert done.exit_code == 0
            assert "event #60 cannot be read and was passed over" in done.stderr
    assert "#60" not in run("sessions", "list", "--at", "#59").stderr


def test_status_names_what_was_passed_over(filled: Path, run: Run) -> None:
    spoil(filled, 60)
    run("sessions", "list")
    shown = run("projections", "status").stdout
    healths = {each["health"] for each in run("projections", "status", "--json").json["projections"]}

    assert "passed over: #60" in shown
    assert healths == {"passed over"}


def test_why_tells_damage_from_erasure(home: Path, run: Run) -> None:
    key = "agent:main:telegram:dm:77"
    with retold.open_home(home) as engine:
        engine.create_session("telegram", session_id="a", key=key)
        said = engine.append_message("a", "user", "words").position
        engine.append_message("a", "user", "more")
    spoil(home, said)
    done = run("why", key)

    assert f"event #{said} of a cannot be read" in " ".join(done.stdout.split())
    assert "erased here" not in done.stdout


@pytest.mark.parametrize("position", [60, 307])
def test_g5_a_known_damage_stops_writes_and_not_reads(
    filled: Path, hermes_home: Path, run: Run, position: int
) -> None:
    spoil(filled, position)

    assert run("sessions", "list").exit_code == 0
    with retold.open_home(filled) as engine:
        for write in (
            lambda: engine.append_message("s1", "user", "more"),
            lambda: engine.create_session("cli"),
            lambda: import_hermes(engine, hermes_home),
        ):
            with pytest.raises(LogDamaged, match=f"#{position}.*nothing was written"):
                write()

        assert engine.head().position == 307
    done = run("import", "hermes", hermes_home)

    assert (done.exit_code, f"#{position}" in done.stderr, "retold verify" in done.stderr) == (5, True, True)


def test_damage_that_is_found_while_a_home_is_open_stops_its_writes(filled: Path) -> None:
    with retold.open_home(filled) as engine, Home(filled, read_only=True) as other:
        engine.append_message("s1", "user", "before")
        execute(filled / "events.db", "UPDATE events SET payload = x'00ff' WHERE position = 60")
        other.state.supersede("to be told again")
        other.catch_up(wait_ms=10_000)
        engine.projector.catch_up()
        with pytest.raises(LogDamaged, match="#60"):
            engine.append_message("s1", "user", "after")


def test_writes_go_on_once_the_event_is_mended(filled: Path) -> None:
    [(payload,)] = execute(filled / "events.db", "SELECT payload FROM events WHERE position = 60")
    spoil(filled, 60)
    with Home(filled, read_only=True) as home:
        home.catch_up(wait_ms=10_000)
    execute(filled / "events.db", "UPDATE events SET payload = ? WHERE position = 60", (payload,))
    with retold.open_home(filled) as engine:
        engine.append_message("s1", "user", "after")


# --- the list of events ---------------------------------------------------------------------------


def shown(run: Run, *options: str) -> tuple[int, list[int], list[tuple[int, int]]]:
    """The exit code of `retold log`, the events and the holes."""
    done = run("log", "--json", *options)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    events = [each["position"] for each in told if "last" not in each]
    return done.exit_code, events, [(each["position"], each["last"]) for each in told if "last" in each]


@pytest.mark.parametrize("which", [3, -1])
def test_b21_log_shows_what_follows_unreadable_pages(filled: Path, run: Run, which: int) -> None:
    path = events_file(filled)
    leaf = damage.tree(path, "events").leaves[which]
    lost = damage.rowids(path, leaf)
    damage.overwrite(path, leaf, garbage=bytes(4096))
    rest = [n for n in range(1, 308) if n not in lost]
    hole = [(lost[0], lost[-1])]

    assert shown(run) == (5, rest, hole)
    assert shown(run, "--since", "#2") == (5, rest[1:], hole)
    assert shown(run, "--limit", "400") == (5, rest, hole)
    assert shown(run, "--since", "#1", "--limit", "2") == (0, [1, 2], [])
    assert shown(run, "--at", f"#{lost[-1]}") == (5, [n for n in rest if n < lost[-1]], hole)
    assert shown(run, "--type", "session_created") == (5, [1, 2, 3, 4, 5], hole)
    assert shown(run, "--since", "2020-01-01") == (5, rest, hole)
    assert shown(run, "--at", "2100-01-01")[0] == 5
    assert f"#{lost[0]} to #{lost[-1]} cannot be read" in run("log").stdout


def test_what_was_told_of_a_damaged_end_is_kept_and_answers(filled: Path, run: Run) -> None:
    path = events_file(filled)
    damage.overwrite(path, damage.tree(path, "events").leaves[-1], garbage=bytes(4096))
    done = run("sessions", "show", "s4")
    with Home(filled, read_only=True) as home:
        home.catch_up()
        count = home.state.reader().execute("SELECT count(*) FROM messages").fetchone()

    assert (done.exit_code, count) == (0, (300,))


@pytest.mark.parametrize("quarters", [2, 3])
def test_a_truncated_log_is_read_as_far_as_it_goes(filled: Path, run: Run, quarters: int) -> None:
    path = events_file(filled)
    size = path.stat().st_size
    os.truncate(path, size * quarters // 4 // 4096 * 4096)
    code, events, holes = shown(run)
    done = run("verify")

    assert (code, done.exit_code) == (5, 5)
    assert len(events) > 20
    assert holes[-1][0] == events[-1] + 1
    assert f"from #{events[-1] + 1} on nothing can be read" in done.stdout


# --- verify ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoiled", ["emptied", "garbage", "missing"])
def test_verify_changes_nothing_and_says_the_same_again(filled: Path, spoiled: str) -> None:
    path = state_file(filled)
    if spoiled == "missing":
        (filled / "state.db").unlink()
    else:
        path.write_bytes(b"" if spoiled == "emptied" else b"garbage" * 4000)
    before = sorted(each.name for each in filled.iterdir() if "-" not in each.name)
    first = verify(filled)
    second = verify(filled)

    assert first == second
    assert first.exit_code == (0 if spoiled == "missing" else 1)
    assert sorted(each.name for each in filled.iterdir() if "-" not in each.name) == before


def test_a_limit_beyond_all_numbers_shows_everything(filled: Path, run: Run) -> None:
    assert shown(run, "--limit", "9" * 20) == (0, list(range(1, 308)), [])


def test_following_the_past_is_refused(filled: Path, run: Run) -> None:
    assert run("log", "--follow", "--at", "#3").exit_code == 2
