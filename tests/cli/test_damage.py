"""Damage that a query is the first to meet: mended from the log, or named; never a traceback."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

from retold.infrastructure.engine import open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.projector import PROJECTIONS
from retold.tests.conftest import FIXTURES
from retold.tests.infrastructure import damage
from retold.tests.infrastructure.filled import events_file, execute, state_file

if TYPE_CHECKING:
    from retold.tests.conftest import Ran, Run

HERMES = FIXTURES / "hermes-home"
SESSION = "20260622_194950_7af33b"
READS = [
    ("sessions", "list", "--all"),
    ("sessions", "show", SESSION),
    ("sessions", "tree", SESSION),
    ("sessions", "repair-routing"),
    ("search", "boat"),
    ("search", "->"),
    ("why", "1001"),
    ("audit",),
    ("audit", "--json"),
]
OTHERS = [
    ("sessions", "stats"),
    ("sessions", "list", "--at", "#600"),
    ("log",),
    ("projections", "status"),
    ("projections", "rebuild"),
    ("import", "hermes", str(HERMES)),
    ("verify",),
]


NOBODY = """
import ctypes, os, sys
if os.geteuid() == 0 and sys.platform == "linux":  # even root obeys the modes without capabilities
    ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
from retold.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def _as_nobody(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", NOBODY, *argv],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of Hermes, taken in once for all tests here."""
    path = tmp_path_factory.mktemp("sound") / "home"
    with open_home(path, actor="import") as engine:
        import_hermes(engine, HERMES)
        engine.projector.settle()
    return path


@pytest.fixture
def anew(imported: Path, home: Path) -> Callable[[], Path]:
    """Puts a sound copy of that home where `run` looks for it."""

    def copied() -> Path:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(imported, home, symlinks=True)
        return home

    return copied


def zero_every_row(state: Path) -> None:
    """All pages of all tables and indexes but those of the checkpoints, which an opening reads."""
    db = apsw.Connection(str(state), flags=apsw.SQLITE_OPEN_READONLY)
    sql = "SELECT pageno FROM dbstat WHERE name NOT GLOB '*checkpoints*' AND name <> 'sqlite_schema'"
    pages = [int(str(page)) for (page,) in db.execute(sql)]
    db.close()
    for page in pages:
        damage.overwrite(state, page, garbage=bytes(damage.page_size(state)))


def spoil_every_text(state: Path) -> None:
    """A byte that UTF-8 knows not, at the end of each text but a session's id, by which it is looked for."""
    for projection in PROJECTIONS:
        for table in projection.tables:
            columns = [row[1] for row in execute(state, f"PRAGMA table_info({table})") if row[2] == "TEXT"]
            columns = [each for each in columns if each not in ("id", "session_id")]
            if columns:
                spoiled = ", ".join(f"{each} = {each} || CAST(x'ff' AS TEXT)" for each in columns)
                execute(state, f"UPDATE OR IGNORE {table} SET {spoiled}")


@pytest.mark.parametrize(
    ("command", "spoil"),
    [
        *((command, zero_every_row) for command in READS),
        *((command, spoil_every_text) for command in (READS[0], READS[1], READS[-1])),
    ],
)
def test_a_query_that_meets_damage_is_answered_from_the_log(
    anew: Callable[[], Path], run: Run, command: tuple[str, ...], spoil: Callable[[Path], None]
) -> None:
    anew()
    sound = run(*command)
    path = state_file(anew())
    spoil(path)
    first, second = run(*command), run(*command)

    assert (first.exit_code, first.stdout) == (sound.exit_code, sound.stdout)
    assert first.stderr.splitlines()[0].startswith("the projections in state.db were damaged: ")
    assert "told again from the log" in first.stderr
    assert second == sound
    assert path.exists()


@pytest.mark.parametrize("spoil", [zero_every_row, spoil_every_text])
def test_an_import_into_damaged_projections_takes_nothing_twice(
    anew: Callable[[], Path], run: Run, spoil: Callable[[Path], None]
) -> None:
    spoil(state_file(anew()))
    done = run("import", "hermes", HERMES)

    assert done.exit_code == 0
    assert done.stdout.startswith("nothing has changed since the last import")
    assert run("verify").exit_code == 0


@pytest.mark.parametrize("spoil", [zero_every_row, spoil_every_text])
def test_verify_names_what_no_query_can_read_and_a_rebuild_mends_it(
    anew: Callable[[], Path], run: Run, spoil: Callable[[Path], None]
) -> None:
    spoil(state_file(anew()))
    before, cured, after = run("verify"), run("projections", "rebuild"), run("verify")

    assert (before.exit_code, cured.exit_code, after.exit_code) == (1, 0, 0)
    assert "cure: retold projections rebuild" in before.stdout


def test_a_value_that_no_fold_writes_is_damage_too(anew: Callable[[], Path], run: Run) -> None:
    execute(state_file(anew()), "UPDATE source_sessions SET seen = x'ff'")
    done = run("import", "hermes", HERMES)

    assert done.exit_code == 0
    assert done.stdout.startswith("nothing has changed since the last import")
    assert "a row in it is none that the log tells" in done.stderr


def test_a_fault_of_the_program_is_no_damage(
    anew: Callable[[], Path], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = anew()
    before = (home / "state.db").readlink()

    def fail(*_: object, **__: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr("retold.projections.listing.list_sessions", fail)
    done = run("sessions", "list")

    assert (done.exit_code, "a fault" in done.stderr) == (70, True)
    assert (home / "state.db").readlink() == before


def test_what_was_half_said_is_not_said_again(
    anew: Callable[[], Path], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retold.cli import transcript

    anew()
    said = transcript.lines

    def broken_off(*args: object, **named: object) -> object:
        yield next(iter(said(*args, **named)))  # type: ignore[arg-type]
        raise apsw.CorruptError("met late")

    monkeypatch.setattr(transcript, "lines", broken_off)
    done = run("sessions", "show", SESSION)

    assert done.exit_code == 1
    assert "give the command again" in done.stderr


def test_a_command_of_the_engine_decides_again_on_sound_rows(anew: Callable[[], Path]) -> None:
    home = anew()
    zero_every_row(state_file(home))
    with open_home(home) as engine:
        count = engine.decide(
            lambda: engine.state.reader().execute("SELECT count(*) FROM messages WHERE role <> ''").fetchone()
        )

        assert count == (914,)


def test_a_past_that_was_kept_and_is_damaged_is_folded_again(anew: Callable[[], Path], run: Run) -> None:
    home = anew()
    sound = run("sessions", "list", "--at", "#600")
    for kept in (home / "cache").glob("at-*.db"):
        spoil_every_text(kept)
    done = run("sessions", "list", "--at", "#600")

    assert (done.exit_code, done.stdout) == (0, sound.stdout)
    assert "what was kept of the past was damaged" in done.stderr
    assert run("sessions", "list", "--at", "#600") == sound


@pytest.mark.parametrize("spoil", [zero_every_row, spoil_every_text])
def test_where_nothing_can_be_written_the_cure_is_named(
    anew: Callable[[], Path], spoil: Callable[[Path], None]
) -> None:
    home = anew()
    spoil(state_file(home))
    events_file(home)
    home.chmod(0o555)
    try:
        done = _as_nobody("sessions", "list", "--home", str(home))
    finally:
        home.chmod(0o755)

    assert (done.returncode, done.stdout) == (1, "")
    assert "the projections in state.db are damaged: " in done.stderr
    assert "retold projections rebuild" in done.stderr


# --- any page, any byte ---------------------------------------------------------------------------


def _is_told(done: Ran, command: tuple[str, ...], what: str) -> None:
    assert done.exit_code in (0, 1, 2, 5), (what, command, done)
    assert "Traceback" not in done.stderr, (what, command, done)


def _damaged_anywhere(path: Path, rng: random.Random) -> str:
    size = damage.page_size(path)
    page, at = rng.randrange(2, path.stat().st_size // size + 1), rng.randrange(size)
    kind = rng.choice(("zeros", "noise", "bit", "byte"))
    if kind == "bit":
        damage.flip(path, page, at=at, bit=rng.randrange(8))
    elif kind == "byte":
        damage.overwrite(path, page, at=at, garbage=b"\xff")
    else:
        damage.overwrite(path, page, garbage=bytes(size) if kind == "zeros" else rng.randbytes(size))
    return f"{kind} at {at} of page {page}"


@pytest.mark.parametrize("file", [state_file, events_file])
@pytest.mark.parametrize("seed", range(2))
def test_no_damage_of_a_page_or_a_byte_is_unforeseen(
    anew: Callable[[], Path], run: Run, file: Callable[[Path], Path], seed: int
) -> None:
    """Each command meets another damage first, and those after it what that one left."""
    rng = random.Random(seed)
    commands = [*READS, *OTHERS]
    for first in rng.sample(commands, 4):
        what = _damaged_anywhere(file(anew()), rng)
        for command in (first, *rng.sample(commands, 3)):
            _is_told(run(*command), command, what)


@pytest.mark.parametrize(
    ("what", "where"), [("topic", "events"), ("actor", "events"), ("name", "streams")], ids=str
)
def test_a_text_of_the_log_that_is_no_utf_8_is_damage_to_the_log(
    anew: Callable[[], Path], run: Run, what: str, where: str
) -> None:
    execute(anew() / "events.db", f"UPDATE {where} SET {what} = CAST(x'73ff' AS TEXT) WHERE rowid = 3")
    shown, found = run("log", "--json"), run("verify", "--json")

    assert (shown.exit_code, found.exit_code) == (5, 5)
    assert shown.stdout.count("\n") > 1_000
    assert found.json["projections"]["problems"] == []
    for command in READS:
        _is_told(run(*command), command, what)


# --- a source that may not be read ----------------------------------------------------------------


@pytest.mark.parametrize("locked", [".", "state.db", ".."])
def test_a_hermes_home_that_may_not_be_read_is_2_and_one_sentence(
    tmp_path: Path, home: Path, locked: str
) -> None:
    hermes = Path(shutil.copytree(HERMES, tmp_path / "outer" / "hermes"))
    path = (hermes / locked).resolve()
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        done = _as_nobody("import", "hermes", str(hermes), "--home", str(home))
    finally:
        path.chmod(mode)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "cannot be read: Permission denied" in done.stderr
    assert not home.exists()
