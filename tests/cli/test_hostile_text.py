"""No text of a store has power over the terminal, whatever command shows it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import apsw
import pytest

from retold.cli import main as program
from retold.cli.lazy import LazyGroup
from retold.tests.conftest import Run

BAD = "\x1b[31m\x07\x9b2J\u202e\u2066\r\n\x7f\x85\u2028"
"""Colors, a bell, a C1 introducer, two bidi controls, line ends of every kind."""
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
_STYLE = re.compile("\x1b\\[(?:0|1|2|[12;]*(?:33|32))m")

OLD, NEW, LONE = f"old{BAD}x", f"new{BAD}x", f"lone{BAD}x"
KEY, LOST = f"agent:main:telegram:dm:10{BAD}01", f"agent:main:telegram:dm:20{BAD}02"
TITLE = f"boat{BAD}plan"

COMMANDS: list[tuple[str, ...]] = [
    ("sessions", "list"),
    ("sessions", "list", "--all"),
    ("sessions", "show", OLD),
    ("sessions", "show", NEW, "--full"),
    ("sessions", "show", f"none{BAD}"),
    ("sessions", "tree", OLD),
    ("sessions", "stats"),
    ("sessions", "browse"),
    ("sessions", "repair-routing", "--all"),
    ("resume", OLD),
    ("resume", NEW, "--format", "text"),
    ("resume", f"none{BAD}"),
    ("resume", "--in", f"/none{BAD}"),
    ("where", OLD),
    ("where", f"none{BAD}"),
    ("insights", "--days", "36500"),
    ("insights", "--source", f"none{BAD}"),
    ("search", "hull"),
    ("search", f"hu{BAD}ll"),
    ("why", KEY),
    ("why", LOST),
    ("why", LONE),
    ("why", TITLE),
    ("why", "agent:main"),
    ("why", f"none{BAD}"),
    ("audit",),
    ("log",),
    ("verify",),
    ("projections", "status"),
    ("projections", "rebuild"),
    ("projections", "rebuild", f"none{BAD}"),
    ("import", "hermes"),
    ("demo",),
    ("sessions", "repair-routing", "--apply", "--yes"),
    ("sessions", "repair-routing", "--apply", "--yes", LONE, "--from", OLD),
    ("sessions", "route", KEY, NEW),
    ("sessions", "route", f"none{BAD}", f"none{BAD}"),
    ("sessions", "unroute", LOST),
    ("sessions", "continuation", NEW),
    ("sessions", "restore-identity", OLD),
    ("sessions", "resolve-conflict", f"5{BAD}", "--keep", "ours"),
    ("undo", f"5{BAD}"),
    ("undo", "1"),
    ("sessions", "rename", LONE, f"kitchen{BAD}", "plan"),
    ("sessions", "archive", NEW),
    ("sessions", "archive", f"none{BAD}"),
    ("sessions", "unarchive", "--title", "boat", "--yes"),
    ("sessions", "pin", "--end-reason", f"done{BAD}", "--yes"),
    ("sessions", "prune", "--before", "2020-01-01", "--dry-run"),
    ("sessions", "unpin", OLD),
    ("sessions", "prune", "--before", f"soon{BAD}"),
    ("sessions", "prune", "--cwd", f"/w{BAD}", "--dry-run"),
    ("sessions", "prune", "--cwd", f"/w{BAD}", "--yes"),
    ("sessions", "optimize"),
    ("sessions", "delete", NEW, "--yes"),
    ("sessions", "show", NEW),
    ("sessions", "undelete", NEW),
    ("forget", OLD, f"9{BAD}", "--yes"),
    ("forget", "--text", f"hull{BAD}", "--yes"),
    ("import", "claude", f"none{BAD}"),
    ("import", "codex", f"none{BAD}"),
    ("import", "jsonl", f"none{BAD}"),
    ("sessions", "export", f"/dev/null/no{BAD}"),
    ("sessions", "export", "-", "--session-id", f"none{BAD}"),
    ("export", "hermes", f"/dev/null/no{BAD}"),
    ("mcp", "--print-config", "claude"),
    ("maintain",),
    ("backup", f"/dev/null/no{BAD}"),
    ("restore", f"none{BAD}"),
]


def harmless(text: str) -> bool:
    """Whether nothing in it is a control character but line ends, nor turns the direction of writing."""
    return not any(
        (unicodedata.category(char) == "Cc" and char != "\n") or char in _BIDI
        for char in _STYLE.sub("", text)
    )


@pytest.fixture
def hostile(hermes_home: Path) -> Path:
    """A Hermes home of which every text is hostile."""
    there = apsw.Connection(str(hermes_home / "state.db"))
    made = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name IN (?, ?, ?)"
    tables = [sql for (sql,) in there.execute(made, ("sessions", "messages", "gateway_routing"))]
    there.close()
    home = hermes_home.with_name("hostile-home")
    home.mkdir()
    db = apsw.Connection(str(home / "state.db"))
    db.execute(";".join(tables))
    session = (
        "INSERT INTO sessions (id, source, session_key, user_id, chat_id, chat_type, display_name, model,"
        " started_at, ended_at, end_reason, title, cwd, parent_session_id, message_count)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 2)"
    )
    rows: list[tuple[str, str | None, float, str | None, str | None, str | None]] = [
        (f"odd{BAD}", f"agent:main:telegram{BAD}:dm:1", 1e9, None, None, None),
        (OLD, KEY, 1e9, None, TITLE, None),
        (NEW, KEY, 1e9 + 90_000, f"done{BAD}", f"new{TITLE}", OLD),
        (LONE, None, 1e9 + 200_000, None, None, None),
        (f"cut{BAD}", None, 1e9 + 90_400, None, f"cut{TITLE}", NEW),
    ]
    for id_, key, at, reason, title, parent in rows:
        bad = [f"{name}{BAD}" for name in ("user", "chat", "dm", "display", "model")]
        end = None if reason is None else at + 300
        db.execute(
            session,
            (
                id_,
                f"telegram{BAD if 'odd' in id_ else ''}",
                key,
                *bad,
                at,
                end,
                reason,
                title,
                f"/w{BAD}",
                parent,
            ),
        )
        for index, role in enumerate(("user", f"tool{BAD}", "assistant")):
            db.execute(
                "INSERT INTO messages (session_id, role, content, tool_name, tool_calls, timestamp)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (id_, role, f"the hull{BAD} leaks", f"sh{BAD}", f'[{{"name": "x{BAD}"}}]', at + index),
            )
    for key, target in ((KEY, OLD), (LOST, f"gone{BAD}")):
        db.execute(
            "INSERT INTO gateway_routing (scope, session_key, entry_json, updated_at) VALUES"
            " (?, ?, json_object('session_key', ?, 'session_id', ?, 'platform', 'telegram'), 0)",
            (str(home / "sessions"), key, key, target),
        )
    db.close()
    return home


def _leaves(group: LazyGroup, *path: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, entry in group.table.items():
        found += _leaves(entry, *path, name) if isinstance(entry, LazyGroup) else [(*path, name)]
    return found


def test_every_command_is_among_those_tried() -> None:
    assert all(any(each[: len(leaf)] == leaf for each in COMMANDS) for leaf in _leaves(program.RETOLD))


def test_no_command_lets_a_text_reach_the_terminal(
    run: Run, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(hostile))
    first = run("import", "hermes")
    answers = {argv: run(*argv) for argv in COMMANDS}

    assert first.exit_code == 0, first
    assert [argv for argv, done in answers.items() if not harmless(done.stdout + done.stderr)] == []
    assert [argv for argv, done in answers.items() if done.exit_code not in (0, 1, 2, 3, 4)] == []
    assert "DANGLING" in answers["audit",].stdout


def test_nor_does_one_that_a_terminal_reads(
    run: Run, hostile: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(hostile))
    run("import", "hermes")
    env = {**os.environ, "RETOLD_HOME": str(home), "TERM": "xterm", "COLUMNS": "80"}
    env.pop("NO_COLOR", None)
    shown = _on_a_terminal([each for each in COMMANDS if each != ("demo",)], env)

    assert [argv for argv, text in shown.items() if not harmless(text)] == []
    assert "\x1b[1m" in shown["search", "hull"]


_EACH = """
import json, sys
from retold.cli.main import main
for argv in json.loads(sys.argv[1]):
    main(argv)
    print(chr(0), flush=True)
    print(chr(0), file=sys.stderr, flush=True)
"""


def _on_a_terminal(commands: list[tuple[str, ...]], env: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """What each command shows where standard output is a terminal, and what it says on standard error."""
    import json

    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", _EACH, json.dumps(commands)], stdout=slave, stderr=subprocess.PIPE, env=env
    ) as child:
        os.close(slave)
        out = b""
        while piece := _read(master):
            out += piece
        assert child.stderr is not None
        err = child.stderr.read()
    os.close(master)
    answers = out.decode().replace("\r\n", "\n").split("\0\n")
    remarks = err.decode().split("\0\n")
    assert len(answers) == len(remarks) == len(commands) + 1, err.decode()
    return {argv: answers[at] + remarks[at] for at, argv in enumerate(commands)}


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65_536)
    except OSError:  # the other end is closed
        return b""
