"""Start-up is imports: a list of what is folded already loads no fold, nothing that writes, no terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from retold.infrastructure.engine import open_home

_LIST = """
import sys
from retold.cli.main import main
code = main(["sessions", "list"])
print(code, *sys.modules)
"""
_NOT_NEEDED = frozenset(
    {
        "retold.infrastructure.engine",
        "retold.infrastructure.projector",
        "retold.projections.search_text",
        "retold.projections.transcripts",
        "backports.zstd",
        "croniter",
        "eventsourcing",
        "rich",
        "tenacity",
        "wcwidth",
        "whenever",
        "yaml",
    }
)


def test_a_list_loads_no_fold_and_nothing_that_writes(home: Path) -> None:
    engine = open_home(home)
    engine.append_message(engine.create_session("cli").session_id, "user", "hello")
    engine.close()
    done = subprocess.run(
        [sys.executable, "-c", _LIST],
        env=os.environ | {"RETOLD_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    code, *loaded = done.stdout.splitlines()[-1].split()

    assert code == "0"
    assert _NOT_NEEDED.isdisjoint(loaded)
