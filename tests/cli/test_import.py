"""`retold import hermes` as a user meets it."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from retold.cli.import_ import grouped, lines
from retold.infrastructure.engine import open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.tests.conftest import Run, RunProcess


def test_a_first_import_says_what_was_taken(run: Run, hermes_home: Path) -> None:
    ran = run("import", "hermes", hermes_home)

    assert (ran.exit_code, ran.stderr) == (0, "")
    head, *rest = ran.stdout.splitlines()
    assert head.startswith("57 sessions, 914 messages, 27 routes taken in ")
    assert head.endswith(f" s from {hermes_home}, schema 22")
    assert rest[0].startswith("  also taken   5 compressions, 10 ends, 12 titles")
    assert rest[-1].startswith("  recorded as  #")


def test_a_second_import_says_that_nothing_changed(run: Run, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    ran = run("import", "hermes", hermes_home)

    assert ran.stdout.splitlines()[0] == (
        "nothing has changed since the last import (57 sessions, 914 messages, 27 routes)"
    )


def test_what_is_one_is_said_as_one_and_what_is_none_is_left_out(run: Run, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    db = apsw.Connection(str(hermes_home / "state.db"))
    db.execute("UPDATE sessions SET title = 'a new name' WHERE id = '20260504_080000_b33d43d5'")
    db.close()
    ran = run("import", "hermes", hermes_home)

    head, *rest = ran.stdout.splitlines()
    assert head.startswith("1 title taken in ")
    assert [line.split()[0] for line in rest] == ["unchanged", "differs", "recorded"]


def test_a_copy_of_an_imported_home_says_first_what_it_looks_like_and_each_reason_once(
    run: Run, hermes_home: Path, tmp_path: Path
) -> None:
    run("import", "hermes", hermes_home)
    copy = Path(shutil.copytree(hermes_home, tmp_path / "copy"))
    lines = run("import", "hermes", copy).stdout.splitlines()
    skipped = [line for line in lines if line.startswith("  skipped ")]

    assert lines[0] == f"nothing was taken in from {copy}"
    assert lines[1].startswith(f"  note         this looks like the home that was at {hermes_home}")
    assert len(lines) < 10
    assert skipped[0].startswith("  skipped      57 sessions: a session of this id came from another home")
    assert skipped[0].endswith(" and 55 more)")
    assert skipped[1].startswith(
        "  skipped      26 routes: leads to a session, which did not come from this home (agent:main:"
    )
    assert len(run("import", "hermes", copy, "--json").json["skipped"]) == 84


def test_few_lines_of_one_kind_are_told_one_by_one() -> None:
    few = ["session a: odd", "session b: odd", "session c: odd", "route x: odd", "nothing to part"]

    assert grouped(few) == few
    assert grouped([*few, "session d: odd"])[0] == "4 sessions: odd (a, b and 2 more)"


def test_a_move_from_where_no_home_was_is_refused(run: Run, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    done = run("import", "hermes", hermes_home, "--moved-from", "/nope")

    assert done.exit_code == 2
    assert done.stderr.startswith("retold: no home was imported from /nope\n")
    assert str(hermes_home) in done.stderr


def test_an_empty_name_is_no_home(run: Run) -> None:
    """Nor does it stand for ~/.hermes."""
    for argv in (("",), ("x", "--moved-from", " ")):
        done = run("import", "hermes", *argv)

        assert done.exit_code == 2
        assert "is empty and names no folder" in done.stderr


def test_a_long_line_is_wrapped_for_a_terminal_only(run: Run, hermes_home: Path) -> None:
    def differs(text: str) -> list[str]:
        return [line for line in text.splitlines() if "wins" in line or "differs" in line]

    with open_home(hermes_home.with_name("there")) as engine:
        report = import_hermes(engine, hermes_home)

    assert len(differs("\n".join(lines(report)))) == 1
    assert len(differs("\n".join(lines(report, 80)))) == 2
    assert max(len(line) for line in lines(report, 80) if str(hermes_home) not in line) <= 80


def test_json(run: Run, hermes_home: Path) -> None:
    """FIELD_CASES I17: an import that shows a part and says nothing of the rest."""
    answer = run("import", "hermes", hermes_home, "--json").json

    assert list(answer) == [
        "path",
        "schema_version",
        "position",
        "duration_s",
        "taken",
        "unchanged",
        "conflicts",
        "lost",
        "damage",
        "skipped",
        "notes",
        "differences",
    ]
    assert (answer["taken"]["sessions"], answer["taken"]["messages"]) == (57, 914)


def test_the_home_is_found_by_its_variable(
    run: Run, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(hermes_home))

    assert run("import", "hermes").exit_code == 0


def test_what_is_skipped_is_named_with_its_reason(run: Run, hermes_home: Path) -> None:
    db = apsw.Connection(str(hermes_home / "state.db"))
    db.execute(
        "UPDATE gateway_routing SET entry_json = '{' WHERE session_key = 'agent:main:telegram:dm:1001'"
    )
    db.close()
    ran = run("import", "hermes", hermes_home)

    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("  skipped")]
    assert line.startswith("  skipped      route agent:main:telegram:dm:1001: its entry is no JSON")


@pytest.mark.parametrize("what", ["nowhere", "empty", "no database", "no sessions table"])
def test_what_is_no_hermes_home_is_refused_and_nothing_is_created(
    run: Run, home: Path, tmp_path: Path, what: str
) -> None:
    source = tmp_path / "source"
    if what != "nowhere":
        source.mkdir()
    if what == "no database":
        (source / "state.db").write_text("these are not the rows you are looking for" * 100)
    if what == "no sessions table":
        db = apsw.Connection(str(source / "state.db"))
        db.execute("CREATE TABLE other (x)")
        db.close()
    before = sorted(tmp_path.rglob("*"))
    ran = run("import", "hermes", source)

    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert ran.stderr.splitlines()[0].startswith("retold: ")
    assert not home.exists()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_home_exits_with_1_and_names_what_is_lost(run: Run, hermes_home: Path) -> None:
    db = hermes_home / "state.db"
    content = bytearray(db.read_bytes())
    at = content.index(b"The context manager") // 4096 * 4096
    content[at : at + 8] = b"\xff" * 8
    db.write_bytes(content)
    ran = run("import", "hermes", hermes_home)

    assert ran.exit_code == 1
    assert any(line.startswith(("  lost ", "  damaged ")) for line in ran.stdout.splitlines())


@pytest.mark.slow
def test_as_a_process_of_its_own(run_process: RunProcess, hermes_home: Path) -> None:
    ran = run_process("import", "hermes", hermes_home)

    assert (ran.exit_code, ran.stderr) == (0, "")


def test_a_retold_home_is_no_source(run: Run, home: Path, hermes_home: Path, tmp_path: Path) -> None:
    run("import", "hermes", hermes_home)
    other = tmp_path / "other"
    done = run("import", "hermes", home, "--home", other)

    assert done.exit_code == 2
    assert "is a Retold home itself" in done.stderr
    assert not other.exists()


def test_nothing_is_said_of_what_a_broken_mirror_holds(run: Run, hermes_home: Path) -> None:
    (hermes_home / "sessions" / "sessions.json").write_text("{broken", encoding="utf-8")
    report = run("import", "hermes", hermes_home, "--json").json

    assert any("no JSON" in line for line in report["skipped"])
    assert report["differences"] == []
