"""`retold insights`: what was used, of what and when; the numbers are Hermes' where they mean the same."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retold.cli.output import cell_width
from retold.infrastructure.engine import open_home
from retold.tests.cli.test_json_contract import promised
from retold.tests.peer import insights_of_peer
from retold.tests.terminal import on_a_terminal

if TYPE_CHECKING:
    from retold.tests.conftest import Run

NOON_US = 1_780_056_000_000_000
"""29 May 2026, 12:00 UTC, a Friday."""
HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000


@pytest.fixture
def used(home: Path) -> Path:
    """Three sessions on three days, two of them in a row; one long ago."""
    with open_home(home) as engine:
        for name, days, source in (
            ("a", 2, "cli"),
            ("b", 1, "telegram"),
            ("c", 5, "cli"),
            ("old", 60, "cli"),
        ):
            at = NOON_US - days * DAY_US
            engine.create_session(source, session_id=name, model="acme/m-1", at_us=at)
            engine.append_message(name, "user", "hello", at_us=at + HOUR_US)
            engine.append_message(
                name,
                "assistant",
                None,
                tool_calls=[{"id": "1", "function": {"name": "ls"}}] * 2,
                at_us=at + HOUR_US,
            )
            engine.append_message(name, "tool", "x", tool_call_id="1", tool_name="ls", at_us=at + HOUR_US)
        engine.record_usage(
            "a", "delta", model="acme/m-1", input_tokens=100, output_tokens=20, estimated_cost_usd=0.5
        )
        engine.record_usage("a", "delta", model="m-2", input_tokens=7, output_tokens=3, actual_cost_usd=0.25)
        engine.record_usage("b", "delta", model="m-2", input_tokens=1)
    return home


def asked(run: Run, *given: str) -> Any:
    return run(
        "insights", "--at", f"{datetime.fromtimestamp(NOON_US / 1e6, UTC):%Y-%m-%dT%H:%MZ}", "--json", *given
    ).json


@pytest.mark.usefixtures("used")
def test_what_was_used_is_counted_by_model_source_and_tool(run: Run) -> None:
    found = run("insights", "--days", "36500", "--json").json

    assert found["total"]["sessions"] == 4
    assert (found["total"]["input_tokens"], found["total"]["output_tokens"]) == (108, 23)
    assert found["total"]["cost_usd"] == 0.75
    assert [(each["model"], each["sessions"], each["total_tokens"]) for each in found["models"]][:2] == [
        ("m-1", 1, 120),
        ("m-2", 2, 11),
    ]
    assert [(each["source"], each["sessions"]) for each in found["sources"]] == [("cli", 3), ("telegram", 1)]
    assert found["tools"] == [{"tool": "ls", "calls": 8}]
    assert found["user_messages"] == 4


@pytest.mark.usefixtures("used")
def test_days_and_source_narrow_it_and_a_point_looks_from_there(run: Run) -> None:
    assert asked(run, "--days", "3")["total"]["sessions"] == 2
    assert asked(run, "--days", "3", "--source", "cli")["total"]["sessions"] == 1
    assert asked(run)["longest_streak"] == 2
    assert [each["day"] for each in asked(run)["by_day"]] == ["2026-05-24", "2026-05-27", "2026-05-28"]
    empty = run("insights", "--source", "nosuch", "--days", "1")
    assert (empty.exit_code, empty.stdout) == (0, "No sessions began in the last 1 day of source nosuch.\n")
    assert "no session here is of source 'nosuch'" in empty.stderr
    assert run("insights", "--days", "0").exit_code == 2


def test_what_an_import_found_without_a_time_is_said_to_be_missing_from_the_past(
    run: Run, hermes_home: Path
) -> None:
    run("import", "hermes", hermes_home)
    now, then = run("insights", "--days", "36500"), run("insights", "--days", "36500", "--at", "2026-06-25")

    assert "  tokens      0: 0 in, 0 out\n" in then.stdout
    assert "of 57 sessions with answers no tokens and costs are on record as of then" in then.stderr
    assert "on record as of" not in now.stderr


def test_what_stands_for_an_amount_and_is_none_counts_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(
        '{"id": "s1", "source": "cli", "model": "m", "input_tokens": 5, "cache_read_tokens": "many",'
        ' "actual_cost_usd": "free", "messages": []}\n'
    )
    run("import", "jsonl", tmp_path / "x.jsonl")
    (model,) = run("insights", "--days", "36500", "--json").json["models"]

    assert (model["input_tokens"], model["cache_read_tokens"], model["cost_usd"]) == (5, 0, 0)


def test_hours_are_those_of_the_configured_zone(run: Run, used: Path) -> None:
    def hours() -> list[int]:
        return [each["hour"] for each in asked(run, "--days", "3")["by_hour"] if each["messages"]]

    before = hours()
    (used / "config.yaml").write_text("timezone: Asia/Kolkata\n", encoding="utf-8")

    assert (before, hours()) == ([13], [18])


@pytest.mark.usefixtures("used")
def test_what_a_compression_carried_along_is_counted_once(run: Run, home: Path) -> None:
    before = run("insights", "--days", "36500", "--json").json
    with open_home(home) as engine:
        engine.append_message("a", "user", "more", at_us=NOON_US)
        engine.compress_session("a", "so far", keep_last=1)
    after = run("insights", "--days", "36500", "--json").json

    assert after["user_messages"] == before["user_messages"] + 1 + 1  # and the summary, as Hermes counts it
    assert sum(each["messages"] for each in after["by_hour"]) == 1 + sum(
        each["messages"] for each in before["by_hour"]
    )
    assert after["tools"] == before["tools"]


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_bars_fit_a_terminal_and_piped_there_is_no_color(run: Run, home: Path, columns: int) -> None:
    env = {"RETOLD_HOME": str(home)}
    sent = on_a_terminal("insights", "--days", "36500", env=env, columns=columns).splitlines()
    piped = run("insights", "--days", "36500").stdout

    assert max(map(cell_width, sent)) <= columns
    assert any("█" in each for each in sent)
    assert "\x1b" not in piped
    assert "  Fri  " in piped


def test_the_numbers_are_those_of_hermes(run: Run, hermes_home: Path) -> None:
    run("import", "hermes", hermes_home)
    ours, theirs = run("insights", "--days", "36500", "--json").json, insights_of_peer(hermes_home, 36_500)
    total, overview = ours["total"], theirs["overview"]

    assert total["sessions"] == overview["total_sessions"] > 50
    assert total["tool_calls"] == overview["total_tool_calls"]
    assert ours["user_messages"] == overview["user_messages"]
    for name in ("input", "output", "cache_read", "cache_write"):
        assert total[f"{name}_tokens"] == overview[f"total_{name}_tokens"]
    assert total["total_tokens"] == overview["total_tokens"]
    names = ("model", "sessions", "total_tokens", "api_calls", "tool_calls")
    assert [[each[name] for name in names] for each in ours["models"]] == [
        [each[name] for name in names] for each in theirs["models"]
    ]
    assert {each["source"]: (each["sessions"], each["total_tokens"]) for each in ours["sources"]} == {
        each["platform"]: (each["sessions"], each["total_tokens"]) for each in theirs["platforms"]
    }
    assert {each["tool"]: each["calls"] for each in ours["tools"]} == {
        each["tool"]: each["count"] for each in theirs["tools"]
    }
    assert [each["sessions"] for each in ours["by_weekday"]] == [
        each["count"] for each in theirs["activity"]["by_day"]
    ]
    assert [each["sessions"] for each in ours["by_hour"]] == [
        each["count"] for each in theirs["activity"]["by_hour"]
    ]
    assert ours["longest_streak"] == theirs["activity"]["max_streak"]


@pytest.mark.usefixtures("used")
def test_insights_answer_with_what_is_promised(run: Run) -> None:
    answer = run("insights", "--days", "36500", "--json").json
    named = set(answer) | set(answer["total"]) | {"model", "tool", "calls", "day", "weekday", "hour"}

    assert named == promised("insights")
