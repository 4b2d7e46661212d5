"""`retold projections`: how far each has been told, and telling it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.infrastructure.home import Home
from retold.infrastructure.projector import PROJECTIONS
from retold.infrastructure.rebuild import rebuild
from retold.projections.versions import FOLDS
from retold.tests.infrastructure import damage
from retold.tests.infrastructure.filled import drafts, execute, fill, state_file

if TYPE_CHECKING:
    from retold.tests.conftest import Run

NAMES = [each.name for each in PROJECTIONS]
NOW = f"v{FOLDS['transcripts']}"


@pytest.fixture
def filled(home: Path) -> Path:
    fill(home)
    return home


def test_status_of_a_sound_home(filled: Path, run: Run) -> None:
    done = run("projections", "status")
    lines = done.stdout.splitlines()

    assert (done.exit_code, done.stderr) == (0, "")
    assert lines[0].split() == ["projection", "fold", "checkpoint", "lag", "rows", "health"]
    assert [line.split()[0] for line in lines[2 : 2 + len(NAMES)]] == NAMES
    assert lines[2].split() == ["transcripts", NOW, "#307", "0", "605", "ok"]
    assert lines[-2].startswith("log          #307, ")
    assert "WAL" in lines[-1]


def test_the_contract_of_status_in_json(filled: Path, run: Run) -> None:
    answer = run("projections", "status", "--json").json

    assert set(answer) == {
        "head",
        "projections",
        "log_bytes",
        "log_wal_bytes",
        "state_bytes",
        "state_wal_bytes",
        "superseded",
    }
    assert answer["head"] == 307
    assert answer["projections"][0] == {
        "name": "transcripts",
        "fold_version": FOLDS["transcripts"],
        "position": 307,
        "lag": 0,
        "rows": {
            "sessions": 5,
            "messages": 300,
            "deleted_sessions": 0,
            "deleted_messages": 0,
            "deletions": 0,
            "system_prompts": 0,
            "search": 300,
        },
        "health": "ok",
        "detail": None,
    }


@pytest.mark.parametrize(
    ("sql", "health"),
    [
        ("UPDATE search_state SET stale = 'SQLError: no'", "stale index: SQLError: no"),
        ("UPDATE checkpoints SET detached = 'ValueError: no'", "detached: ValueError: no"),
        ("UPDATE checkpoints SET fold_version = 9", f"newer: this program folds {NOW}; upgrade retold"),
        ("UPDATE checkpoints SET position = 9999", "not a fold of this log: it had come to #9999"),
        ("UPDATE checkpoints SET log_id = 'x'", "not a fold of this log: it was told from another log"),
        ("DELETE FROM checkpoints", "not told yet"),
        ("DROP TABLE messages", "damaged: a table cannot be read"),
    ],
)
def test_status_says_what_ails_a_projection(filled: Path, run: Run, sql: str, health: str) -> None:
    execute(state_file(filled), sql)
    done = run("projections", "status")

    assert done.exit_code == 0
    assert health in done.stdout.splitlines()[2]


def test_status_shows_the_lag_and_folds_nothing(filled: Path, run: Run) -> None:
    fill(filled, 10, prefix="later", fold=False)
    both = [run("projections", "status", "--json").json for _ in range(2)]

    assert both[0] == both[1]
    assert [each["lag"] for each in both[0]["projections"]] == [17] * len(NAMES)
    assert [each["health"] for each in both[0]["projections"]] == ["behind"] * len(NAMES)


def test_rebuilding_all_says_that_they_are_equal(filled: Path, run: Run) -> None:
    done = run("projections", "rebuild")

    assert (done.exit_code, done.stderr) == (0, "")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == NAMES
    assert all(line.endswith("equal to what was there") for line in done.stdout.splitlines())


def test_rebuilding_one_says_what_differed_and_is_done(filled: Path, run: Run) -> None:
    execute(state_file(filled), "DELETE FROM messages WHERE id IN (50, 60)")
    done = run("projections", "rebuild", "transcripts")
    lines = done.stdout.splitlines()

    assert done.exit_code == 0
    assert lines[0].endswith("differed from what was there, and is right now")
    assert "  messages: 2 rows missing; the first is 50" in lines
    assert run("verify").exit_code == 0


def test_the_contract_of_rebuild_in_json(filled: Path, run: Run) -> None:
    execute(state_file(filled), "DELETE FROM route_history")
    answer = run("projections", "rebuild", "routing", "--json").json

    assert answer == {
        "projections": [
            {
                "name": "routing",
                "events": 307,
                "rows": {"routes": 1, "route_history": 1},
                "compared": True,
                "equal": False,
                "differences": [
                    {"table": "route_history", "only_before": 0, "only_now": 1, "changed": 0, "first": "307"}
                ],
                "resumed_at": 0,
                "failed": None,
                "file_damaged": None,
            }
        ]
    }


def test_an_unknown_projection_is_2_with_those_there_are(filled: Path, run: Run) -> None:
    done = run("projections", "rebuild", "transcript")

    assert done.exit_code == 2
    assert "there is no projection 'transcript'" in done.stderr
    assert f"one of: {', '.join(NAMES)}" in done.stderr


def test_a_projection_of_a_newer_program_is_3(filled: Path, run: Run) -> None:
    execute(state_file(filled), "UPDATE checkpoints SET fold_version = 9")
    done = run("projections", "rebuild")

    assert done.exit_code == 3
    assert "newer Retold" in done.stderr


def test_an_interrupted_rebuild_says_from_where_it_went_on(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retold.infrastructure.new_tables.BATCH", 50)

    def stop(at: object) -> None:
        raise KeyboardInterrupt

    with Home(filled) as opened, pytest.raises(KeyboardInterrupt):
        rebuild(opened.projector, NAMES, progress=stop)
    done = run("projections", "rebuild")

    assert "going on from #200: equal to what was there" in done.stdout


def test_a_damaged_file_is_begun_anew_by_a_rebuild(filled: Path, run: Run) -> None:
    path = state_file(filled)
    damage.overwrite(path, damage.tree(path, "sessions").root)
    done = run("projections", "rebuild", "lineage")

    assert done.exit_code == 0
    assert done.stdout.count("state.db was damaged, and a new file is begun") == 1
    assert max(map(len, done.stdout.splitlines())) < 300
    assert run("verify").exit_code == 0


def test_a_rebuild_of_what_the_log_has_lost_is_5_and_keeps_the_rows(filled: Path, run: Run) -> None:
    execute(filled / "events.db", "UPDATE events SET payload = x'00' WHERE position = 70")
    done = run("projections", "rebuild")

    assert done.exit_code == 5
    assert "the log is damaged at #70" in done.stderr
    assert execute(state_file(filled), "SELECT id FROM messages WHERE id = 70") == [(70,)]


def test_a_rebuild_also_folds_what_was_behind(filled: Path, run: Run) -> None:
    with Home(filled) as opened:
        opened.log.append(drafts(10, prefix="later"))
    done = run("projections", "rebuild", "--json")

    assert {each["events"] for each in done.json["projections"]} == {324}
    assert run("projections", "status", "--json").json["projections"][0]["lag"] == 0


def test_no_home_is_2(home: Path, run: Run) -> None:
    assert run("projections", "status").exit_code == 2
    assert run("projections", "rebuild").exit_code == 2
    assert not home.exists()
