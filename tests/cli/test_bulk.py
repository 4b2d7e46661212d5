"""Bulk verbs, renaming and optimizing at the command line: shown, asked, done, taken back."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold.cli.output import cell_width
from retold.domain.errors import NoRoom, TurnRunning
from retold.infrastructure.clock import now_us
from retold.infrastructure.commands.removal import RemovalCommands
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.projector import Projector
from retold.tests.histories import DAY_US, HOUR_US
from retold.tests.peer import peer_python
from retold.tests.terminal import on_a_terminal

if TYPE_CHECKING:
    from retold.tests.conftest import Run

KEY = "agent:main:telegram:dm:1001"
OLD_US, NEW_US = 100 * DAY_US, HOUR_US


@pytest.fixture(autouse=True)
def _made(home: Path) -> None:
    """A compressed conversation and a delegate of 100 days ago, one of an hour ago, and an open one."""
    now = now_us()
    with open_home(home) as engine:
        engine.create_session("telegram", session_id="boat-1", key=KEY, title="boat", at_us=now - OLD_US)
        engine.append_message("boat-1", "user", "the hull leaks", at_us=now - OLD_US)
        engine.create_session(
            "subagent", session_id="sub-1", parent="boat-1", parent_kind="delegate", at_us=now - OLD_US
        )
        engine.end_session("sub-1", "agent_close", at_us=now - OLD_US)
        on = engine.compress_session("boat-1", "so far", at_us=now - OLD_US).session_id
        engine.end_session(on, "agent_close", at_us=now - OLD_US)
        engine.create_session("cli", session_id="new-1", model="vendor/opus", at_us=now - NEW_US)
        engine.append_message("new-1", "user", "hello", at_us=now - NEW_US)
        engine.end_session("new-1", "cli_close", at_us=now - NEW_US)
        engine.create_session("cli", session_id="open-1", at_us=now - NEW_US)


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def ids(run: Run) -> set[str]:
    return {each["id"] for each in run("sessions", "list", "--all", "--json").json["sessions"]}


def listed(run: Run) -> Any:
    return run("sessions", "list", "--all", "--json").json["sessions"]


def taken_back(run: Run, said: str) -> None:
    """Run the command that an answer names."""
    back = re.search(r"takes it back: retold (.*)", said)
    assert back is not None
    assert run(*shlex.split(back[1])).exit_code == 0


def test_a_bare_prune_takes_what_nobody_used_for_90_days_and_can_be_taken_back(run: Run) -> None:
    before, messages = listed(run), run("sessions", "tree", "boat-1").stdout
    done = run("sessions", "prune", "--yes")

    assert (done.exit_code, done.stdout) == (0, "Pruned 2 sessions with 1 delegate.\n")
    assert ids(run) == {"new-1", "open-1"}
    taken_back(run, done.stderr)
    assert listed(run) == before
    assert run("sessions", "tree", "boat-1").stdout == messages
    assert run("verify").exit_code == 0


def test_a_dry_run_shows_what_would_go_and_writes_nothing(run: Run) -> None:
    events = run("log", "--json").stdout
    done = run("sessions", "prune", "--dry-run", "--source", "telegram")
    lines = done.stdout.splitlines()

    assert re.fullmatch(r"2 sessions match \(source 'telegram'; oldest \S+ \S+, newest \S+ \S+\):", lines[0])
    assert re.fullmatch(r"  boat-1 +\d{4}-\d\d-\d\d \d\d:\d\d  telegram   — +1 msg  boat", lines[1])
    assert lines[-2:] == ["With them: 1 delegate.", "Dry run: nothing was deleted."]
    assert run("log", "--json").stdout == events


@pytest.mark.parametrize(("said", "done"), [("y\n", True), ("YES\n", True), ("n\n", False), ("", False)])
def test_it_is_asked_for_and_no_answer_is_a_no(
    run: Run, monkeypatch: pytest.MonkeyPatch, said: str, done: bool
) -> None:
    answer(monkeypatch, said)
    asked = run("sessions", "prune", "--newer-than", "5h")

    assert re.search(r"Delete this session \(oldest .+, newest .+\)\? \[y/N\]", asked.stderr)
    assert asked.exit_code == (0 if done else 1)
    assert ("new-1" in ids(run)) != done
    assert asked.stdout.splitlines()[-1] == ("Pruned 1 session." if done else "Cancelled.")


def test_who_wants_json_has_to_say_yes(run: Run) -> None:
    assert run("sessions", "prune", "--json").json["error"]["hint"] == "give --yes as well"
    assert run("sessions", "prune", "--json", "--dry-run").exit_code == 0


def test_what_changed_while_it_was_asked_stays(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.StringIO):
        def readline(self, *_: Any) -> str:  # type: ignore[override] # text, as StringIO has it
            with open_home(home) as engine:
                engine.reopen_session("new-1")
            return "y\n"

    monkeypatch.setattr("sys.stdin", Slow())
    done = run("sessions", "prune", "--newer-than", "5h")

    assert done.stdout.splitlines()[-1] == "Nothing was deleted: it changed meanwhile."
    assert "new-1" in ids(run)


def test_a_second_prune_passes_over_what_the_first_took_and_takes_no_more(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = run("sessions", "prune", "--older-than", "0d", "--dry-run", "--json").json
    delete = SessionEngine.delete_conversation

    def second(engine: SessionEngine, *given: Any, **more: Any) -> Any:
        monkeypatch.setattr(SessionEngine, "delete_conversation", delete)
        with open_home(home) as other:
            other.delete_session("boat-1")  # as another prune in the middle of its way
            other.create_session("subagent", session_id="late", parent="new-1", parent_kind="delegate")
        return delete(engine, *given, **more)

    monkeypatch.setattr(SessionEngine, "delete_conversation", second)
    done = run("sessions", "prune", "--older-than", "0d", "--yes")

    assert (done.exit_code, done.stdout) == (0, "Nothing was deleted: it changed meanwhile.\n")
    assert "boat-1  changed meanwhile" in done.stderr
    assert "new-1  changed meanwhile" in done.stderr
    assert "late" in ids(run)
    assert {each["id"] for each in shown["sessions"]} == {"boat-1", *ids(run)} - {"late", "open-1"}


def test_a_conversation_goes_in_one_save(run: Run) -> None:
    done = run("sessions", "prune", "--yes", "--json").json
    told = [
        json.loads(line)
        for line in run("log", "--since", f"#{min(done['positions'])}", "--json").stdout.splitlines()
    ]

    assert len({each["save"] for each in told if each["type"] == "session_deleted.1"}) == 1


def test_no_command_ends_or_prunes_what_was_left_open(run: Run, home: Path) -> None:
    now = now_us()
    with open_home(home) as engine:
        engine.create_session("cli", session_id="left", title="left open", at_us=now - OLD_US)
        engine.append_message("left", "user", "hello", at_us=now - OLD_US)
    for argv in (
        ["sessions", "rename", "new-1", "named"],
        ["sessions", "pin", "new-1"],
        ["sessions", "archive", "new-1"],
        ["sessions", "prune", "--yes"],
        ["sessions", "prune", "--older-than", "1d", "--yes"],
        ["verify", "--fix"],
        ["sessions", "optimize"],
    ):
        assert run(*argv).exit_code == 0
    assert run("sessions", "show", "left", "--json").json["end_reason"] is None

    with open_home(home) as engine:
        engine.start_gateway()

    assert run("sessions", "show", "left", "--json").json["end_reason"] == "startup_orphan_reap"
    assert run("sessions", "prune", "--older-than", "1d", "--yes").stdout.startswith("No sessions match")


def test_what_matches_and_stays_is_named_with_the_reason(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        engine.pin_session("boat-1")
        engine.archive_session("new-1")
    done = run("sessions", "prune", "--yes", "--older-than", "0d", "--json").json
    shown = run("sessions", "prune", "--yes", "--older-than", "0d")

    assert done["sessions"] == []
    assert (done["skipped"]["boat-1"], done["skipped"]["new-1"]) == ("pinned", "archived")
    assert shown.stdout.startswith("No sessions match (last active before ")
    assert "  boat-1  pinned\n" in shown.stdout
    both = ("--include-pinned", "--include-archived")
    assert run("sessions", "prune", "--yes", "--older-than", "0d", *both).exit_code == 0
    assert ids(run) == {"open-1"}


def test_a_conversation_of_which_a_part_cannot_go_stays_whole(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = RemovalCommands._go

    def refuses(engine: SessionEngine, session_id: str, *given: Any) -> Any:
        if session_id == "boat-1":
            raise TurnRunning("boat-1", turn="t", gateway=None, since_us=1, lease_until_us=2)
        return go(engine, session_id, *given)

    monkeypatch.setattr(RemovalCommands, "_go", refuses)
    before = ids(run)
    done = run("sessions", "prune", "--yes")

    assert done.exit_code == 1
    assert "Not deleted: boat-1: " in done.stderr
    assert ids(run) == before


def test_delegates_that_went_on_are_pruned_and_come_back_in_order(run: Run, home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("subagent", session_id="sub-2", parent="new-1", parent_kind="delegate")
        further = engine.compress_session("sub-2", "so far").session_id
    trees = run("sessions", "tree", "sub-2").stdout
    done = run("sessions", "prune", "--older-than", "0d", "--yes")

    assert done.stdout == "Pruned 3 sessions with 3 delegates.\n"
    assert {"sub-2", further}.isdisjoint(ids(run))
    taken_back(run, done.stderr)
    assert run("sessions", "tree", "sub-2").stdout == trees
    assert run("sessions", "show", "boat #2", "--json").json["route"] == KEY


def test_after_many_the_log_names_what_to_take_back(run: Run, home: Path) -> None:
    now = now_us()
    with open_home(home) as engine:
        for each in range(21):
            engine.create_session("cron", session_id=f"job-{each}", at_us=now - OLD_US)
            engine.end_session(f"job-{each}", "cli_close", at_us=now - OLD_US)
    done = run("sessions", "prune", "--source", "cron", "--yes")
    named = re.search(r"this names the sessions: retold (.*)", done.stderr)

    assert named is not None
    assert "`retold sessions undelete` takes it back" in done.stderr
    assert len(run(*shlex.split(named[1])).stdout.splitlines()) == 21


@pytest.mark.parametrize("as_json", [False, True])
def test_whoever_interrupts_it_is_told_what_was_done(
    run: Run, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    delete = SessionEngine.delete_conversation

    def stops(engine: SessionEngine, session_ids: Sequence[str], *given: Any, **more: Any) -> Any:
        if "new-1" in session_ids:
            raise KeyboardInterrupt
        return delete(engine, session_ids, *given, **more)

    monkeypatch.setattr(SessionEngine, "delete_conversation", stops)
    done = run("sessions", "prune", "--older-than", "0d", "--yes", *(["--json"] if as_json else []))

    assert done.exit_code == 130
    assert ids(run) == {"new-1", "open-1"}
    if as_json:
        assert done.json["left"] == {"new-1": "interrupted"}
    else:
        assert "Not deleted: new-1: interrupted" in done.stderr
        taken_back(run, done.stderr)


def test_a_full_disk_stops_it_and_says_to_try_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def full(_engine: SessionEngine, session_id: str) -> Any:
        asked.append(session_id)
        raise NoRoom("no room to write events.db: the disk is full")

    monkeypatch.setattr(SessionEngine, "archive_session", full)
    done = run("sessions", "archive", "--older-than", "0d", "--yes")

    assert done.exit_code == 4
    assert done.stdout == "Archived 0 sessions.\n"
    assert len(asked) == 1
    assert "Not archived: boat-1: no room to write events.db: the disk is full" in done.stderr
    assert "Not archived: new-1: not tried, since there is no room" in done.stderr
    assert run("sessions", "archive", "--older-than", "0d", "--yes", "--json").json["left"].keys() >= {
        "boat-1",
        "new-1",
    }


def test_delete_takes_filters_too_and_never_everything(run: Run) -> None:
    refused = run("sessions", "delete", "--yes")
    both = run("sessions", "delete", "boat-1", "--source", "cli", "--yes")
    done = run("sessions", "delete", "--source", "cli", "--yes", "--now")

    assert (refused.exit_code, both.exit_code, done.exit_code) == (2, 2, 0)
    assert "Refusing to delete every ended session" in refused.stderr
    assert done.stdout == "Deleted 1 session.\n"
    assert "They are erased." in done.stderr
    assert run("sessions", "undelete", "new-1").exit_code == 2


@pytest.mark.parametrize(("there", "back"), [("archive", "unarchive"), ("pin", "unpin")])
def test_a_conversation_is_put_away_whole_and_taken_out_again(run: Run, there: str, back: str) -> None:
    before = listed(run)
    done = run("sessions", there, "boat-1", "new-1")
    marked = {each["id"] for each in listed(run) if each["archived"]}

    assert done.exit_code == 0
    assert done.stdout.startswith(f"{there.capitalize()}{'d' if there == 'archive' else 'ned'} 3 sessions.")
    assert len(marked) == (3 if there == "archive" else 0)
    assert run("sessions", there, "boat").stdout.startswith("Nothing to do: all of it is ")
    assert run("sessions", back, "--source", "telegram", "--source", "telegram", "--yes").exit_code == 0
    taken_back(run, run("sessions", there, "boat-1").stderr)
    assert run("sessions", back, "new-1").exit_code == 0
    assert listed(run) == before


def test_zero_is_a_filter_and_nothing_is_not(run: Run) -> None:
    refused = run("sessions", "archive", "--yes")

    assert refused.exit_code == 2
    assert "Refusing to archive every ended session" in refused.stderr
    assert run("sessions", "archive", "--min-messages", "0", "--yes").stdout.startswith(
        "Archived 4 sessions."
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--older-than", "abc"), "Invalid value for --older-than: 'abc'"),
        (("--after", "#120"), "Invalid value for --after: '#120'"),
        (("--before", "2026-13-01"), "Invalid value for --before: '2026-13-01'"),
        (("--source", ""), "--source names nothing"),
        (("--older-than", "5d", "--newer-than", "3d", "--source", "x"), None),
        (("--older-than", "3d", "--newer-than", "5d", "--source", "x"), None),
        (("--after", "2026-05-02", "--before", "2026-05-01"), "Empty time window: the --after bound"),
        (("--newer-than", "1d", "--older-than", "2d"), "Empty time window: the --newer-than bound"),
        (("--min-messages", "5", "--max-messages", "3"), "--min-messages 5 is more than --max-messages 3"),
        (("--min-messages", "-1"), "'--min-messages'"),
        (("--min-cost", "nan"), "'--min-cost'"),
        (("--max-tokens", "many"), "'--max-tokens'"),
    ],
)
def test_a_bad_value_names_its_flag(run: Run, given: tuple[str, ...], says: str | None) -> None:
    done = run("sessions", "prune", "--dry-run", *given)
    inverted = given[1] == "5d"

    if says is None:
        assert done.exit_code == (2 if inverted else 0)
        return
    assert done.exit_code == 2
    assert says in done.stderr


@pytest.mark.parametrize("age", ["99", "99d", "14 weeks", "14wk", "2376h", "99.5 days"])
def test_an_age_is_a_number_of_days_or_has_a_unit(run: Run, age: str) -> None:
    found = run("sessions", "prune", "--dry-run", "--json", "--older-than", age).json

    assert [each["source"] for each in found["sessions"]] == ["telegram", "telegram"]


def test_a_new_title_needs_no_quotes_and_one_that_is_taken_names_its_holder(run: Run) -> None:
    done = run("sessions", "rename", "new", "kitchen", "plan")
    again = run("sessions", "rename", "new-1", "kitchen plan")
    taken = run("sessions", "rename", "open-1", "kitchen", "plan")

    assert done.stdout == "Session 'new-1' renamed to: kitchen plan\n"
    assert again.stdout == "Session 'new-1' is called so already: kitchen plan\n"
    assert taken.exit_code == 3
    assert "Title 'kitchen plan' is already in use by session new-1" in taken.stderr
    taken_back(run, done.stderr)
    assert run("sessions", "rename", "open-1", "--", "-5", "degrees").stdout.endswith(": -5 degrees\n")


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_on_a_terminal_no_line_is_longer_than_it(home: Path, columns: int) -> None:
    with open_home(home) as engine:
        engine.create_session(
            "telegram", session_id="20260504_080000_b33d43d5", model="anthropic/claude-sonnet-4.6"
        )
        engine.title_session("20260504_080000_b33d43d5", "昨晚我们讨论了记忆断裂的问题 " * 3)
        engine.end_session("20260504_080000_b33d43d5", "cli_close")
        engine.pin_session("new-1")
    given = ("sessions", "prune", "--older-than", "0d", "--after", "2000-01-01", "--dry-run")
    sent = on_a_terminal(*given, env={"RETOLD_HOME": str(home)}, columns=columns).splitlines()

    assert max(map(cell_width, sent)) <= columns
    assert any("20260504_080000_b33d43d5  " in each and "昨晚" in each for each in sent)
    assert any("claude-sonnet-4.6" in each for each in sent) == (columns >= 100)


@pytest.mark.parametrize("verb", ["prune", "archive", "delete"])
def test_what_matches_and_has_not_ended_is_counted(run: Run, verb: str) -> None:
    every = run("sessions", verb, "--source", "cli", "--dry-run")
    none = run("sessions", verb, "--source", "cli", "--max-messages", "0", "--yes")

    assert (every.exit_code, none.exit_code) == (0, 0)
    assert every.stderr == "1 session that matches has not ended and stays.\n"
    assert none.stdout.startswith("No sessions match (source 'cli'")
    assert none.stderr == every.stderr
    assert run("sessions", verb, "--source", "cli", "--dry-run", "--json").json["open"] == 1
    assert run("sessions", "pin", "--source", "cli", "--dry-run", "--json").json["open"] == 0


def test_a_title_that_an_older_segment_gives_up_is_said(run: Run) -> None:
    done = run("sessions", "rename", "boat #2", "boat")
    shown = run("sessions", "show", "boat-1", "--json").json

    assert done.exit_code == 0
    assert done.stderr.startswith("It goes on from boat-1, which had that title and has none now.\n")
    assert shown["title"] is None
    taken_back(run, done.stderr)
    assert run("sessions", "show", "boat-1", "--json").json["title"] == "boat"
    assert run("sessions", "rename", "boat #2", "boat", "--json").json["yielded"] == ["boat-1"]
    assert run("sessions", "rename", "boat", "hull", "--json").json["yielded"] == []


def test_the_index_is_tidied_and_nothing_goes(run: Run) -> None:
    before = ids(run)
    done = run("sessions", "optimize")

    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "Optimized the search index.")
    assert re.fullmatch(
        r"Projections: \S+ kB -> \S+ kB(?: \(reclaimed \S+ \w+\))?", done.stdout.splitlines()[1]
    )
    assert ids(run) == before


def test_a_home_that_cannot_be_written_is_not_said_to_be_in_use(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = Projector.transaction
    told = False

    @contextlib.contextmanager
    def full(projector: Projector, wait_ms: int = 5_000) -> Iterator[Any]:
        nonlocal told
        if not told:  # what was left to tell is told; then there is no room
            told = True
            with transaction(projector, wait_ms) as db:
                yield db
            return
        raise NoRoom("state.db cannot be opened or written: attempt to write a readonly database")

    monkeypatch.setattr(Projector, "transaction", full)
    done = run("sessions", "optimize")

    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr.startswith("retold: state.db cannot be opened or written")


@pytest.mark.slow
@pytest.mark.parametrize("given", [("--before", "2027-01-01"), ("--source", "cron"), ("--title", "lisbon")])
def test_a_dry_run_names_the_sessions_that_hermes_names(
    run: Run, hermes_home: Path, tmp_path: Path, given: tuple[str, ...]
) -> None:
    home = tmp_path / "taken-in"
    assert run("import", "hermes", hermes_home, "--home", home).exit_code == 0
    found = run("sessions", "prune", "--dry-run", "--include-archived", *given, "--home", home, "--json").json
    argv = ("sessions", "prune", "--dry-run", "--include-archived", *given)
    peer = subprocess.run(
        [str(peer_python().with_name("hermes")), *argv],
        env=os.environ | {"HERMES_HOME": str(hermes_home), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    theirs = re.findall(r"^  (\S+)  \d{4}-", peer.stdout, re.MULTILINE)

    assert theirs, peer.stderr
    kept_whole = {each for each, why in found["skipped"].items() if why.startswith("one conversation with")}
    assert {each["id"] for each in found["sessions"]} | kept_whole == set(theirs)
    assert kept_whole == set(found["skipped"])
