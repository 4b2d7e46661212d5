"""The backup that a repair takes first: one for repairs in a row, and as many as the settings keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold.infrastructure.engine import open_home
from retold.infrastructure.verify import verify
from retold.tests.conftest import FIXTURES
from retold.tests.infrastructure.standing import standing

if TYPE_CHECKING:
    from retold.tests.conftest import Run

TRUTH: Any = json.loads((FIXTURES / "hermes-home" / "truth.json").read_text())["incident"]
REPAIR = ("sessions", "repair-routing", "--apply", "--yes")
FIRST, SECOND = TRUTH["lineage"]["orphan"], TRUTH["contiguity"]["orphan"]


@pytest.fixture
def imported(run: Run, home: Path, hermes_home: Path) -> Path:
    assert run("import", "hermes", hermes_home).exit_code == 0
    return home


def backups(home: Path) -> list[Path]:
    return sorted(home.parent.glob(f"{home.name}.before-repair-*"))


def name_a_session(home: Path, title: str) -> None:
    """What is no repair, nor an undo of one."""
    with open_home(home) as engine:
        engine.title_session(FIRST, title)


def test_repairs_in_a_row_and_their_undos_share_the_backup_from_before_them(run: Run, imported: Path) -> None:
    first = run(*REPAIR, FIRST, "--json").json
    run("undo", str(first["adopted"][0]["positions"][0]))
    again = run(*REPAIR, FIRST, "--json").json
    second = run(*REPAIR, SECOND)

    assert (first["backup_taken"], again["backup_taken"]) == (True, False)
    assert (again["backup"], [first["backup"]]) == (
        first["backup"],
        [str(each) for each in backups(imported)],
    )
    assert f"lies in {first['backup']}, and from before the repairs" in second.stderr
    with open_home(Path(first["backup"])) as before:
        assert before.session(FIRST).key is before.session(SECOND).key is None


def test_what_else_was_written_since_is_in_a_backup_of_its_own(run: Run, imported: Path) -> None:
    run(*REPAIR, FIRST)
    name_a_session(imported, "boats")
    run(*REPAIR, SECOND)

    assert len(backups(imported)) == 2
    with open_home(backups(imported)[1]) as before:
        assert (before.session(FIRST).title, before.session(SECOND).key) == ("boats", None)


def test_no_more_backups_are_kept_than_the_settings_say_and_all_can_still_be_undone(
    run: Run, imported: Path
) -> None:
    (imported / "config.yaml").write_text("repair: {keep_backups: 2}\n")
    with open_home(imported) as engine:
        before = standing(engine)
    others = [
        imported.with_name(f"{imported.name}.before-repair-{name}") for name in ("mine", "20260101-000000")
    ]
    for each in others:  # named so by a person
        each.mkdir()
        (each / "note.txt").write_text("keep")
    undo, seen, removed = [], list[Path](), list[str]()
    for number in range(4):
        done = run(*REPAIR, FIRST, "--json").json
        seen.append(Path(done["backup"]))
        removed = done["backups_removed"]
        undo.append(done["adopted"][0]["positions"][0])
        if number < 3:
            run("undo", str(undo[-1]))
            name_a_session(imported, f"title {number}")
    last = run(*REPAIR, FIRST)

    assert removed == [str(seen[1])]
    assert set(backups(imported)) - set(others) == set(seen[2:])
    assert all((each / "note.txt").exists() for each in others)
    assert "A backup" not in last.stderr
    assert run("undo", str(undo[-1])).exit_code == 0
    for _ in range(3):
        with open_home(imported) as engine:
            titled = next(
                each.position
                for each in reversed(
                    engine.event_log.stream_events(f"session:{FIRST}", without_messages=True)
                )
                if each.topic == "session_titled.1" and each.caused_by is None and each.position not in undo
            )
            undo.append(titled)
            engine.undo(titled)
    with open_home(imported) as engine:
        assert standing(engine) == before
    assert verify(imported).problems == []


def test_what_is_removed_is_named(run: Run, imported: Path) -> None:
    (imported / "config.yaml").write_text("repair: {keep_backups: 1}\n")
    run(*REPAIR, FIRST)
    (first,) = backups(imported)
    name_a_session(imported, "boats")
    done = run(*REPAIR, SECOND)

    assert f"Removed, since 1 are kept (repair.keep_backups): {first}\n" in done.stderr
    assert len(backups(imported)) == 1
    assert first not in backups(imported)


def test_a_backup_of_another_log_or_one_that_is_damaged_stands_for_none(run: Run, imported: Path) -> None:
    run(*REPAIR, FIRST)
    (first,) = backups(imported)
    (first / "events.db").write_bytes(b"no database at all")
    run(*REPAIR, SECOND)

    assert len(backups(imported)) == 2


def test_what_was_forgotten_since_is_in_a_backup_no_longer_relied_on(run: Run, imported: Path) -> None:
    run(*REPAIR, FIRST)
    with open_home(imported) as engine:
        engine.forget_text("constructor")
    run(*REPAIR, SECOND)

    assert len(backups(imported)) == 2
