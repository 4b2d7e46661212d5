"""`retold import claude` and `retold import codex` as a user meets them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from retold.tests.conftest import FIXTURES, ROOT, Run


def test_an_import_says_what_was_taken_and_names_the_bad_line(run: Run) -> None:
    ran = run("import", "claude", FIXTURES / "claude")

    assert (ran.exit_code, ran.stderr) == (1, "")
    assert ran.stdout.startswith("4 sessions, 20 messages taken in ")
    assert ".jsonl:13: it is no JSON; it was passed over" in ran.stdout
    assert run("import", "claude", FIXTURES / "claude").stdout.startswith(
        "nothing has changed since the last import (4 sessions, 20 messages)\n"
    )


@pytest.mark.parametrize(("kind", "variable"), [("claude", "CLAUDE_CONFIG_DIR"), ("codex", "CODEX_HOME")])
def test_the_logs_are_found_where_the_tool_has_them(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, variable: str
) -> None:
    shutil.copytree(FIXTURES / kind, tmp_path / "there")
    monkeypatch.setenv(variable, str(tmp_path / "there"))

    assert run("import", kind, "--json").json["taken"]["sessions"] == {"claude": 4, "codex": 2}[kind]


@pytest.mark.parametrize("kind", ["claude", "codex"])
@pytest.mark.parametrize("there", ["nowhere", "empty"])
def test_where_no_logs_are_nothing_is_made(
    run: Run, home: Path, tmp_path: Path, kind: str, there: str
) -> None:
    path = tmp_path / "logs"
    if there == "empty":
        path.mkdir()
    ran = run("import", kind, path)

    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert str(path) in ran.stderr
    assert not home.exists()


def test_a_file_of_something_else_is_skipped_with_its_reason(run: Run, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "claude", tmp_path / "there")
    (tmp_path / "there" / "projects" / "other.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    answer = run("import", "claude", tmp_path / "there", "--json").json

    assert answer["taken"]["sessions"] == 4
    assert answer["skipped"] == [
        f"{tmp_path}/there/projects/other.jsonl: it is no log of Claude Code: no line of it is one"
    ]


LOG_OF_CLAUDE = FIXTURES / "claude/projects/-srv-boat/11111111-2222-4333-8444-555555555555.jsonl"
LOG_OF_CODEX = next((FIXTURES / "codex").rglob("*.jsonl"))


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize(
    ("kind", "there", "name", "said"),
    [
        ("claude", LOG_OF_CODEX, "7e57ed00-2222-4333-8444-555555555555.jsonl", "is a log of Codex, not a"),
        ("codex", LOG_OF_CLAUDE, f"rollout-{LOG_OF_CLAUDE.name}", "is a log of Claude Code, not a"),
        ("claude", FIXTURES / "hermes-home/state.db", "a.jsonl", "is a SQLite database, not a log of Claude"),
        ("codex", FIXTURES / "hermes-home/state.db", "rollout-a.jsonl", "is a SQLite database, not a log"),
        ("codex", ROOT / "README.md", "rollout-a.jsonl", "is no log of Codex: no line of it is one"),
    ],
)
def test_a_file_of_something_else_is_refused_and_named(
    run: Run, home: Path, tmp_path: Path, folder: bool, kind: str, there: Path, name: str, said: str
) -> None:
    (tmp_path / "logs").mkdir()
    shutil.copy(there, tmp_path / "logs" / name)
    ran = run("import", kind, tmp_path / "logs" if folder else tmp_path / "logs" / name)

    assert ran.exit_code == 2
    assert said in " ".join(ran.stderr.split())
    assert not home.exists()


def test_why_says_nothing_of_a_bad_line_in_a_log(run: Run, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    before = run("why", "1002").stdout
    run("import", "claude", FIXTURES / "claude")

    assert run("why", "1002").stdout == before
