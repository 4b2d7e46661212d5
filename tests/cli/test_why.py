"""`retold why`: who a chat belongs to, what was decided, and what is wrong, as text and as JSON.

Over 400 lines because every test asks the same command of a chat that went another way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import retold
from retold.cli.output import cell_width
from retold.domain.events import RouteCandidate
from retold.infrastructure.engine import SessionEngine
from retold.tests.conftest import FIXTURES
from retold.tests.hermes_log import told_from

if TYPE_CHECKING:
    from retold.tests.conftest import Run

MINUTE = 60 * 1_000_000
DAY = 24 * 60 * MINUTE
T = 1_778_000_000 * 1_000_000
K = "agent:main:telegram:dm:77"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("imported") / "home"
    told_from(FIXTURES / "hermes-home", home).close()
    return home


@pytest.fixture(scope="module")
def truth() -> Any:
    return json.loads((FIXTURES / "hermes-home" / "truth.json").read_text())["incident"]


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with retold.open_home(home) as engine:
        yield engine


def talk(engine: SessionEngine, session_id: str, at_us: int, turns: int = 2) -> None:
    for minute in range(turns):
        engine.append_message(session_id, "user", f"word {minute}", at_us=at_us + minute * MINUTE)


# --- the fixture's chats ----------------------------------------------------------------------------


def test_a_chat_that_jumped_back_reads_like_a_story(
    run: Run, imported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETOLD_HOME", str(imported))
    done = run("why", "1001")

    assert done.exit_code == 1
    assert done.stdout.splitlines()[:8] == [
        "telegram, chat 1001, user 501                        agent:main:telegram:dm:1001",
        "JUMPED BACK: the next message would reopen a talk last used on 4 May; the one",
        "you were having, last used on 8 May, has lost its key.",
        "",
        "  leads to   boat repair      20260504_080000_b33d43d5   28 messages, open",
        "  belongs to kitchen plan #2  20260508_141930_46dc1a26   33 messages, no key",
        done.stdout.splitlines()[6],
        "             entry, and when, is not on record; no reset or /resume is either.",
    ]
    assert "kitchen plan begins; the entry dates from this second" in done.stdout
    assert "kitchen plan is compressed, goes on as kitchen plan #2" in done.stdout
    assert "nothing: all 83 messages of the 3 sessions are here" in done.stdout
    assert "remedy       retold sessions repair-routing" in done.stdout
    assert max(cell_width(line) for line in done.stdout.splitlines()) <= 80


@pytest.mark.parametrize(
    "named",
    ["agent:main:telegram:dm:1001", "boat repair", "kitchen plan #2", "20260508_141930", "dm:1001", "1001"],
)
def test_a_chat_is_found_by_key_part_title_or_session(run: Run, imported: Path, named: str) -> None:
    assert run("why", named, "--json", "--home", imported).json["key"] == "agent:main:telegram:dm:1001"


def test_the_json_has_the_contract_s_fields(run: Run, imported: Path, truth: Any) -> None:
    told = run("why", "1001", "--json", "--home", imported).json
    jump = told["findings"][0]

    assert list(told) == [
        "key",
        "session_id",
        "decision",
        "candidates",
        "timeline",
        "findings",
        "undated_route",
    ]
    assert told["session_id"] == truth["lineage"]["routed_to_now"]
    assert list(told["decision"]) == ["position", "at", "cause"]
    assert told["decision"]["cause"] == "import"
    assert {tuple(each) for each in told["candidates"]} == {("session_id", "verdict", "last_active_at")}
    assert {tuple(each) for each in told["timeline"]} == {("position", "at", "session_id", "text")}
    assert list(jump) == [
        "kind",
        "key",
        "session_id",
        "detail",
        "evidence",
        "candidates",
        "remedy",
        "rivals",
    ]
    assert (jump["kind"], jump["session_id"]) == ("jumped_back", truth["lineage"]["orphan"])
    assert told["decision"]["position"] in jump["evidence"]


@pytest.mark.parametrize("name", ["resumed_on_purpose", "thread", "resumed_and_silent", "slept"])
def test_a_sound_chat_is_called_sound(run: Run, imported: Path, truth: Any, name: str) -> None:
    done = run("why", truth[name]["key"], "--home", imported)

    assert done.exit_code == 0
    assert "Sound: " in done.stdout
    assert run("why", truth[name]["key"], "--json", "--home", imported).json["findings"] == []


def test_a_resume_before_the_import_is_told_from_how_the_newer_talk_ended(
    run: Run, imported: Path, truth: Any
) -> None:
    done = run("why", truth["resumed_and_silent"]["key"], "--home", imported)

    assert "was led there on purpose" in done.stdout
    assert "is left by a /resume or a" in done.stdout


def test_a_second_history_is_told_in_order(run: Run, imported: Path) -> None:
    done = run("why", "1003", "--json", "--home", imported)
    texts = [each["text"] for each in done.json["timeline"]]
    before = next(n for n, text in enumerate(texts) if "last message before the jump" in text)
    again = next(n for n, text in enumerate(texts) if "a second history" in text)

    assert before < again
    assert "there are two histories" in " ".join(run("why", "1003", "--home", imported).stdout.split())


@pytest.mark.parametrize("name", ["reset_undone", "routed_to_ended", "dangling_route", "two_continuations"])
def test_each_kind_is_named_in_capitals(run: Run, imported: Path, truth: Any, name: str) -> None:
    done = run("why", truth[name]["key"], "--home", imported)

    assert done.exit_code == 1
    assert f"\n{name.replace('_', ' ').upper()}: " in done.stdout


def test_a_stranded_session_without_a_clear_chat_names_who_could_own_it(
    run: Run, imported: Path, truth: Any
) -> None:
    incident = truth["two_predecessors"]
    told = run("why", incident["orphan"], "--json", "--home", imported).json

    assert (told["key"], told["decision"], told["session_id"]) == (None, None, incident["orphan"])
    assert {each["session_id"] for each in told["candidates"]} == {
        incident["orphan"],
        *incident["candidates"],
    }
    assert [each["kind"] for each in told["findings"]] == ["stranded"]


def test_a_stranded_session_with_one_candidate_is_explained_by_that_chat(
    run: Run, imported: Path, truth: Any
) -> None:
    incident = truth["contiguity"]

    assert run("why", incident["orphan"], "--json", "--home", imported).json["key"] == incident["adopts_key"]


def test_an_id_that_only_a_route_names_is_explained_by_its_key(run: Run, imported: Path, truth: Any) -> None:
    key = truth["dangling_route"]["key"]
    missing = run("why", key, "--json", "--home", imported).json["session_id"]
    done = run("why", missing, "--home", imported)

    assert done.exit_code == 1
    assert done.stdout == run("why", key, "--home", imported).stdout
    assert missing in done.stdout


def test_an_id_that_several_routes_name_lists_their_keys(run: Run, home: Path) -> None:
    with retold.open_home(home) as engine:
        engine.create_session("telegram", session_id="here", key=K)
        for key in (K, f"{K}:2"):
            led = engine.route(key)
            moved = led.lead_to("20991231_235959_deadbeef", "recovery")
            assert moved is not None
            engine.save_events([engine.rerouted(led, moved, T)])
    done = run("why", "20991231_235959_deadbeef", "--json")

    assert done.exit_code == 2
    assert done.json["error"]["candidates"] == [K, f"{K}:2"]


def test_a_command_names_the_home_that_was_named(
    run: Run, imported: Path, truth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = f" --home {imported}\n"
    orphan = truth["lineage"]["orphan"]
    for argv in (("why", "1001"), ("audit",)):
        assert f"retold sessions repair-routing --apply {orphan}{there}" in (
            run(*argv, "--home", imported).stdout
        )
    undecided = truth["two_predecessors"]["orphan"]
    assert f"retold sessions repair-routing --apply {undecided} --from SESSION{there}" in (
        run("why", undecided, "--home", imported).stdout
    )

    monkeypatch.setenv("RETOLD_HOME", str(imported))
    assert "--home" not in run("why", "1001").stdout + run("audit").stdout


def test_the_last_keyed_session_outside_the_window_is_weighed_and_said_to_be_outside(
    run: Run, imported: Path, truth: Any
) -> None:
    orphan = truth["out_of_window"]["orphan"]
    told = run("why", orphan, "--json", "--home", imported).json
    (finding,) = told["findings"]

    assert [each["verdict"] for each in finding["candidates"]] == [
        "fell quiet 2400 s before it began; outside the window"
    ]
    assert finding["candidates"][0]["session_id"] in finding["detail"]


def test_two_that_claim_one_predecessor_name_each_other(run: Run, imported: Path, truth: Any) -> None:
    one, two = truth["two_claimants"]["orphans"]
    for orphan, other in ((one, two), (two, one)):
        findings = run("why", orphan, "--json", "--home", imported).json["findings"]
        (mine,) = [each for each in findings if each["session_id"] == orphan]

        assert [each["session_id"] for each in mine["candidates"]] == [truth["two_claimants"]["predecessor"]]
        assert [each["session_id"] for each in mine["rivals"]] == [other]


def test_a_cli_session_has_no_key_by_nature(run: Run, imported: Path, truth: Any) -> None:
    done = run("why", truth["shapes"]["base"], "--home", imported)

    assert done.exit_code == 0
    assert "no routing key by nature" in done.stdout


def test_several_matches_are_listed(run: Run, imported: Path) -> None:
    done = run("why", "telegram", "--json", "--home", imported)

    assert done.exit_code == 2
    assert done.json["error"]["kind"] == "ambiguous"
    assert "agent:main:telegram:dm:1001" in done.json["error"]["candidates"]


def test_no_match_says_what_to_give(run: Run, imported: Path) -> None:
    done = run("why", "nobody at all", "--home", imported)

    assert done.exit_code == 2
    assert "nobody at all" in done.stderr
    assert "retold sessions list" in done.stderr


def test_the_past_is_explained_as_it_was_known(run: Run, imported: Path) -> None:
    now = run("why", "1001", "--json", "--home", imported).json
    done = run("why", "1001", "--json", "--home", imported, "--at", f"#{now['decision']['position'] - 1}")

    assert done.json["decision"] is None
    assert run("why", "1001", "--home", imported, "--at", "#9999999").exit_code == 2


def test_what_had_not_begun_by_a_time_is_no_part_of_it(run: Run, imported: Path, truth: Any) -> None:
    late = truth["two_continuations"]["most_recent"]
    done = run("why", late, "--home", imported, "--at", "2026-05-08T14:25:00Z")

    assert done.exit_code == 2
    assert "no key, session or title here matches" in done.stderr


def test_a_time_says_what_had_happened_by_it(run: Run, imported: Path) -> None:
    done = run("why", "1001", "--home", imported, "--at", "2026-05-08T14:25:00Z")

    assert "kitchen plan #2: last message; no key, chat or user" in done.stdout
    assert "14:32" not in done.stdout
    assert "as of 2026-05-08T14:25:00Z" in done.stderr


AT_DAWN = "2026-05-08T05:30:00Z"


def test_where_a_key_led_before_an_import_found_it_is_not_made_up(run: Run, imported: Path) -> None:
    done = run("why", "1001", "--home", imported, "--at", AT_DAWN)
    found = run("why", "1001", "--json", "--home", imported, "--at", AT_DAWN).json
    audited = run("audit", "--home", imported, "--at", AT_DAWN)
    words = " ".join(done.stdout.split())

    assert (done.exit_code, audited.exit_code) == (0, 0)
    assert "Unknown: where the chat led on 8 May 05:30 is not on record." in words
    assert "last touched 8 May 14:19 by its own words; where it led before that is not on record" in words
    assert "JUMPED" not in words + audited.stdout
    assert "22 Jun" not in words.partition("boat repair begins")[2]
    assert (found["session_id"], found["decision"], found["findings"]) == (None, None, [])
    assert (
        found["undated_route"]
        == run("why", "1001", "--json", "--home", imported).json["decision"]["position"]
    )
    assert "where 1 key led then is not on record" in audited.stderr


def test_a_route_whose_entry_was_not_touched_since_is_told(run: Run, imported: Path) -> None:
    done = run("why", "1001", "--home", imported, "--at", "2026-05-08T15:00:00Z")

    assert done.exit_code == 1
    assert "JUMPED BACK" in done.stdout
    assert run("why", "1001", "--json", "--home", imported).json["undated_route"] is None


# --- chats made by the engine -----------------------------------------------------------------------


def test_a_chat_that_never_moved_began_with_its_first_message(run: Run, engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, at_us=T)
    talk(engine, "a", T + MINUTE)
    done = run("why", K)

    assert done.exit_code == 0
    assert "the chat's first message began it" in done.stdout
    assert "a begins with the first message" in done.stdout


def test_a_compressed_chat_tells_both_decisions(run: Run, engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, title="plan", at_us=T)
    talk(engine, "a", T + MINUTE)
    engine.compress_session("a", "summary", continuation_id="b", at_us=T + DAY)
    talk(engine, "b", T + DAY + MINUTE)
    done = run("why", "plan")

    assert done.exit_code == 0
    assert "was compressed, and goes on here" in done.stdout
    assert "Before that: the chat's first message began it" in done.stdout
    assert "plan is compressed, goes on as plan #2" in done.stdout


def test_a_reset_chat_is_sound(run: Run, engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, at_us=T)
    talk(engine, "a", T + MINUTE)
    engine.create_session("telegram", session_id="b", key=K, cause="reset", at_us=T + DAY)
    talk(engine, "b", T + DAY + MINUTE)
    done = run("why", K)

    assert done.exit_code == 0
    assert "a reset of the chat began it" in done.stdout
    assert "a is closed by a reset" in done.stdout
    assert "b begins after a reset" in done.stdout


def test_a_recovery_to_an_older_talk_is_a_jump(run: Run, engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, title="boat", at_us=T)
    talk(engine, "a", T + MINUTE)
    engine.create_session("telegram", session_id="b", key=K, title="kitchen", at_us=T + DAY)
    talk(engine, "b", T + DAY + MINUTE)
    engine.reroute(
        K,
        "a",
        "recovery",
        candidates=[RouteCandidate("b", "was not looked at", T + DAY + 2 * MINUTE)],
        evidence=["the index was lost"],
        at_us=T + 2 * DAY,
    )
    done = run("why", K)
    said = " ".join(done.stdout.split())

    assert done.exit_code == 1
    assert "JUMPED BACK: " in said
    assert "a recovery chose this session" in said
    assert "It weighed kitchen" in said
    assert "the index was lost" in said


def test_a_resume_to_an_older_talk_is_no_jump(run: Run, engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, at_us=T)
    talk(engine, "a", T + MINUTE)
    engine.create_session("telegram", session_id="b", key=K, at_us=T + DAY)
    talk(engine, "b", T + DAY + MINUTE)
    engine.end_session("b", "session_switch", at_us=T + 2 * DAY)
    engine.reroute(K, "a", "resume", at_us=T + 2 * DAY)
    done = run("why", K)

    assert done.exit_code == 0
    assert "somebody in the chat went back to it with /resume" in done.stdout


def test_an_erased_message_is_counted_as_lost(run: Run, engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="a", key=K, at_us=T)
    talk(engine, "a", T + MINUTE)
    said = engine.append_message("a", "user", "secret", at_us=T + 5 * MINUTE)
    engine.erase_messages([said.position], reason="asked for")

    assert "1 message of a, erased here" in run("why", K).stdout


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_wide_titles_and_long_keys_stay_in_their_columns(
    run: Run, engine: SessionEngine, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    long_key = "agent:main:telegram:group:-100123456789012345:5012345678901"
    titles = [
        "データベースの移行を確認してください、それから",
        "部署到生产环境之前先跑测试 🚀👩‍👩‍👧‍👦 and all the rest of it",
    ]
    for day, title in enumerate(titles):
        engine.create_session(
            "telegram", session_id=f"s{day}", key=long_key, title=title, at_us=T + day * DAY
        )
        talk(engine, f"s{day}", T + day * DAY + MINUTE)
    engine.reroute(long_key, "s0", "recovery", at_us=T + 3 * DAY)
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run("why", long_key).stdout.splitlines()

    assert max(cell_width(line) for line in lines if " retold " not in line) <= min(columns, 100)
    assert long_key in lines[0] + lines[1]


def test_a_chat_of_many_sessions_shows_the_latest_and_counts_the_rest(
    run: Run, engine: SessionEngine
) -> None:
    for day in range(30):
        engine.create_session("telegram", session_id=f"s{day:02}", key=K, cause="reset", at_us=T + day * DAY)
        talk(engine, f"s{day:02}", T + day * DAY + MINUTE, 1)
    done = run("why", K)

    assert len(done.stdout.splitlines()) < 70
    assert "more moments; --json has them all" in done.stdout
    assert "more sessions" in done.stdout
    assert len(run("why", K, "--json").json["candidates"]) == 30


@pytest.mark.parametrize("columns", [20, 40])
def test_on_a_very_narrow_terminal_only_ids_and_keys_and_commands_are_too_long(
    run: Run, imported: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("RETOLD_HOME", str(imported))
    lines = [*run("why", "1001").stdout.splitlines(), *run("audit").stdout.splitlines()]
    long = [line.strip() for line in lines if cell_width(line) > columns]

    allowed = ("→ retold ", "retold ", "agent:", "2026", "2099", "TWO CONTINUATIONS (1)")
    assert [line for line in long if not line.startswith(allowed) and "#" not in line] == []
    assert "20260508_141930_46dc1a26" in "".join(lines)
