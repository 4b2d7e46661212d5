"""`retold demo --week`: what it shows is true, and each kind of fault in such a week is found and cured."""

from __future__ import annotations

import json
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import apsw
import pytest

from retold.cli import demo_week
from retold.cli import week_plan as plan
from retold.cli.output import cell_width
from retold.domain import events as e
from retold.domain.findings import Kind
from retold.infrastructure.engine import open_home
from retold.tests.conftest import FIXTURES
from retold.tests.histories import MINUTE_US, History, history
from retold.tests.infrastructure.importing import edit

if TYPE_CHECKING:
    from retold.tests.conftest import Ran, Run

NIGHT_US = plan.moment(plan.DAYS - 1, "23:30")
FOREIGN = "20251026_233000_0000dead"


class Played(NamedTuple):
    """The week as it was shown, and the home that it left."""

    stdout: str
    exit_code: int
    worked_s: float
    """What its processes worked; how long that takes is the machine's."""
    home: Path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    home = tmp_path_factory.mktemp("week") / "home"
    before_s = worked_s()
    done = subprocess.run(
        [sys.executable, "-m", "retold", "demo", "--week", "--keep", str(home)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.stderr == ""
    return Played(done.stdout, done.returncode, worked_s() - before_s, home)


def worked_s() -> float:
    """Processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def week(played: Played, home: Path) -> Path:
    """A copy of the home that this test may change."""
    return Path(shutil.copytree(played.home, home, symlinks=True))


# --- what is shown -----------------------------------------------------------------------------------


def test_the_week_fits_a_terminal_and_takes_under_twenty_seconds(played: Played) -> None:
    lines = played.stdout.rstrip("\n").split("\n")

    assert played.exit_code == 0
    assert len(lines) <= 40
    assert max(cell_width(line) for line in lines[:-2]) <= 80  # the last two name the folder of this test
    assert played.worked_s < 20


def test_each_day_is_told_and_the_answers_are_real(played: Played, run: Run) -> None:
    home = str(played.home)
    audit, verify = run("audit", "--home", home), run("verify", "--home", home)

    days = re.findall(r"^(\w{3}) \d+ Oct ", played.stdout, re.MULTILINE)
    assert days == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    assert f"$ retold audit\n{audit.stdout}\n" in played.stdout
    assert " ".join(verify.stdout.split()) in " ".join(played.stdout.split())
    assert (audit.exit_code, audit.stdout, verify.exit_code) == (0, "20 chats, no findings\n", 0)
    for line in played.stdout.splitlines()[-2:]:
        *_, command = line.partition("retold ")
        assert run(*shlex.split(command)).exit_code == 0, command


def test_the_week_holds_what_a_busy_gateway_meets(played: Played) -> None:
    with open_home(played.home) as engine:
        db = engine.state.reader()
        causes = {row[0] for row in db.execute("SELECT DISTINCT cause FROM route_history")}
        platforms = {row[0] for row in db.execute("SELECT DISTINCT source FROM sessions")}
        kinds = {row[0] for row in db.execute("SELECT DISTINCT kind FROM edges")}
        runs = [tuple(row) for row in db.execute("SELECT clean, stopped_clean FROM gateway_runs")]
        aliases = db.execute(
            "SELECT count(DISTINCT key) FROM routes WHERE key LIKE '%whatsapp:dm:%'"
        ).fetchone()
        queues = [engine.queue_of(row[0]) for row in db.execute("SELECT session_id FROM routes")]

    assert causes >= {"first_message", "idle", "daily", "compression", "reset", "resume", "handoff", "delete"}
    assert causes >= {"suspended", "undo"}
    assert platforms >= {"telegram", "discord", "slack", "whatsapp", "signal"}
    assert kinds >= {"continuation", "reset"}
    assert sum(stopped is None for _, stopped in runs) == 2  # killed
    assert (1, None) in runs  # once it had been stopped and started again
    assert aliases == (2,)
    assert all(each.running is None and not each.waiting for each in queues)


def test_it_answers_in_json_and_fails_where_anything_is_wrong(
    played: Played, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(home: Path, _: object) -> int:
        shutil.copytree(played.home, home, symlinks=True)
        inject(home, "jumped_back")
        return 2

    monkeypatch.setattr(demo_week, "play", broken)
    done = run("demo", "--week", "--json")

    assert done.exit_code == 1
    told = done.json
    assert told["said"] == told["delivered"] == 656
    assert told["kills"] == 2
    assert [each["kind"] for each in told["audit"]["findings"]] == ["jumped_back"]
    assert told["verify"]["log"]["ok"]
    assert sum(day["messages"] for day in told["days"]) > 1_500


def test_a_gateway_that_fails_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_week, "GATEWAY", "retold.cli.no_such_gateway")
    done = run("demo", "--week")

    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr.startswith("retold: the demo's gateway could not write its chat: ")
    assert "Traceback" not in done.stderr


def test_the_settings_of_a_folder_that_is_to_be_kept_are_not_written_over(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("timezone: UTC\n", encoding="utf-8")
    done = run("demo", "--week", "--keep", tmp_path)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "config.yaml is there already" in done.stderr
    assert (tmp_path / "config.yaml").read_text(encoding="utf-8") == "timezone: UTC\n"
    assert not (tmp_path / "whatsapp").exists()


# --- one fault of each kind -------------------------------------------------------------------------


class Chat(NamedTuple):
    """A chat of the week as it stands at its end."""

    key: str
    led: str
    before: str
    """The session that `led` came from; "" for none."""
    earlier: str
    """And the one that came before that."""
    last_us: int


def chat(home: Path, number: int) -> Chat:
    with open_home(home) as engine:
        key = engine.key_of(plan.chats()[number].source)
        led = str(engine.route_of(key))
        before = engine.session(led).parent_id
        earlier = engine.session(before).parent_id if before else None
        row = engine.state.reader().execute("SELECT last_active_us FROM sessions WHERE id = ?", (led,))
        return Chat(key, led, before or "", earlier or "", int(str(row.fetchall()[0][0])))


def identity(number: int, key: str | None) -> dict[str, Any]:
    """What a session of a chat bears, as a foreign writer would give it."""
    source = plan.chats()[number].source
    return {
        "source": source.platform,
        "session_key": key,
        "chat_id": source.chat_id,
        "chat_type": source.chat_type,
        "user_id": source.user_id,
    }


def jumped_back(told: History, of: Callable[[int], Chat]) -> None:
    """A recovery that took an older session for the newest one."""
    thesis = of(plan.THESIS)
    monday_us = plan.moment(0, "06:00")
    told.session(FOREIGN, at_us=monday_us, **identity(plan.THESIS, thesis.key))
    told.say(FOREIGN, "An old question", at_us=monday_us + MINUTE_US)
    told.route(thesis.key, FOREIGN, previous=thesis.led, cause="recovery", at_us=NIGHT_US)


def stranded(told: History, of: Callable[[int], Chat]) -> None:
    """A crash between a session's row and its key."""
    trip = of(plan.TRIP)
    told.session(FOREIGN, at_us=trip.last_us + MINUTE_US, **identity(plan.TRIP, None))
    told.say(FOREIGN, "And the bus?", at_us=trip.last_us + 2 * MINUTE_US)


def reset_undone(told: History, of: Callable[[int], Chat]) -> None:
    """A recovery that knows of no resets opens what stands behind two of them."""
    notes = of(plan.NOTES)
    told.append(f"session:{notes.earlier}", e.SessionReopened(), at_us=NIGHT_US)
    told.route(notes.key, notes.earlier, previous=notes.led, cause="recovery", at_us=NIGHT_US)


def routed_to_ended(told: History, of: Callable[[int], Chat]) -> None:
    """A session is reset, and a recovery that does not know of it leads the key there."""
    trip = of(plan.TRIP)
    told.end(trip.led, "session_reset", hard=True, at_us=NIGHT_US)
    told.route(trip.key, trip.led, previous=trip.led, cause="recovery", at_us=NIGHT_US)


def dangling_route(told: History, of: Callable[[int], Chat]) -> None:
    """The key is written before the session, and the session never."""
    report = of(plan.REPORT)
    told.route(report.key, FOREIGN, previous=report.led, cause="recovery", at_us=NIGHT_US)


def two_continuations(told: History, of: Callable[[int], Chat]) -> None:
    """Two processes compress one session."""
    thesis = of(plan.THESIS)
    told.session(
        FOREIGN,
        at_us=NIGHT_US - MINUTE_US,
        parent_session_id=thesis.before,
        parent_kind="continuation",
        **identity(plan.THESIS, thesis.key),
    )
    told.say(FOREIGN, "Once more, in short", at_us=NIGHT_US)


def identity_lost(told: History, of: Callable[[int], Chat]) -> None:
    """A row is replaced by one without its key."""
    trip = of(plan.TRIP)
    lost = e.IdentityLost({"session_key": trip.key}, {"session_key": None})
    told.append(f"session:{trip.led}", lost, at_us=NIGHT_US)


def crossed_key(told: History, of: Callable[[int], Chat]) -> None:
    """A continuation gets the key of whoever wrote at the same moment."""
    recipes, other = of(plan.RECIPES), of(plan.CHESS)
    crossed = e.IdentityRestored({"session_key": recipes.key}, {"session_key": other.key})
    told.append(f"session:{recipes.led}", crossed, at_us=NIGHT_US)


INJECTED: dict[str, Callable[[History, Callable[[int], Chat]], None]] = {
    each.__name__: each
    for each in (
        jumped_back,
        stranded,
        reset_undone,
        routed_to_ended,
        dangling_route,
        two_continuations,
        identity_lost,
        crossed_key,
    )
}
"""By kind, what a broken program of another make would write; `source_conflict` needs an import."""


def inject(home: Path, kind: str) -> None:
    chats = {number: chat(home, number) for number in range(len(plan.chats()))}
    with history(home) as told:
        INJECTED[kind](told, chats.__getitem__)


def found(run: Run) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = run("audit", "--json").json["findings"]
    return findings


def named_by_why(run: Run, finding: dict[str, Any]) -> str:
    """The remedy that `retold why` prints for a finding's chat, or its session."""
    told: Ran = run("why", finding["key"] or finding["session_id"])
    remedies = re.findall(r"^  remedy +(retold .*)$", told.stdout, re.MULTILINE)

    assert told.exit_code == 1
    assert finding["remedy"] in remedies, told.stdout
    return str(finding["remedy"])


def cure(run: Run, command: str) -> None:
    """Run a remedy as it is printed; a script says beforehand what the command would ask."""
    _, *argv = shlex.split(command)
    done = run(*argv, *(["--yes"] if "--apply" in argv else []))

    assert done.exit_code == 0, (command, done)


@pytest.mark.parametrize("kind", sorted(INJECTED))
def test_a_week_with_a_fault_of_this_kind_is_cured_by_the_command_that_why_names(
    run: Run, week: Path, kind: str
) -> None:
    inject(week, kind)
    (finding,) = (each for each in found(run) if each["kind"] == kind)
    cure(run, named_by_why(run, finding))

    assert found(run) == []
    assert run("verify").exit_code == 0


def one_chat(hermes_home: Path) -> str:
    """Leave one sound chat of a Hermes home; its session."""
    truth: Any = json.loads((FIXTURES / "hermes-home" / "truth.json").read_text())["incident"]
    session = str(truth["thread"]["routed_to_now"])
    with closing(apsw.Connection(str(hermes_home / "state.db"))) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("DELETE FROM messages WHERE session_id <> ?", (session,))
        db.execute("DELETE FROM sessions WHERE id <> ?", (session,))
        db.execute("DELETE FROM gateway_routing WHERE session_key <> ?", (truth["thread"]["key"],))
    (hermes_home / "sessions" / "sessions.json").unlink(missing_ok=True)
    return session


def test_a_week_with_a_conflict_with_a_source_is_cured_by_the_command_that_why_names(
    run: Run, week: Path, hermes_home: Path
) -> None:
    session = one_chat(hermes_home)
    assert run("import", "hermes", hermes_home).exit_code == 0
    assert found(run) == []
    with open_home(week) as engine:
        engine.title_session(session, "ours")
    edit(hermes_home, "UPDATE sessions SET title = 'theirs' WHERE id = ?", session)
    assert run("import", "hermes", hermes_home).exit_code == 0
    (finding,) = found(run)
    assert finding["kind"] == "source_conflict"
    cure(run, named_by_why(run, finding))

    assert found(run) == []
    assert run("verify").exit_code == 0
    assert run("import", "hermes", hermes_home).exit_code == 0
    assert found(run) == []


def test_every_kind_is_injected() -> None:
    assert {*INJECTED, "source_conflict"} == set(get_args(Kind))
