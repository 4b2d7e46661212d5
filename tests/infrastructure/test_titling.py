"""Who bears which title, and how a conversation's line of descent is named (FIELD_CASES C)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retold.domain.errors import BadTitle, SessionOver, TitleTaken
from retold.domain.events import SessionTitled
from retold.infrastructure.engine import SessionEngine, open_home
from retold.projections.find import find_session
from retold.projections.listing import list_sessions
from retold.projections.tree import chain, tip
from retold.tests.infrastructure.routing import continued

K = "agent:main:telegram:dm:1001"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SessionEngine]:
    with open_home(tmp_path / "home") as opened:
        yield opened


def titles(engine: SessionEngine, *session_ids: str) -> list[str | None]:
    return [engine.session(each).title for each in session_ids]


def talk(engine: SessionEngine, session_id: str, *said: str, source: str = "cli") -> str:
    engine.create_session(source, session_id=session_id)
    for text in said or ("hello",):
        engine.append_message(session_id, "user", text)
    return session_id


# --- whose word counts -----------------------------------------------------------------------------


def test_c1_a_model_gives_the_next_free_number_and_a_person_is_told_who_holds_it(
    engine: SessionEngine,
) -> None:
    for each in ("s1", "s2", "s3"):
        talk(engine, each)
    engine.auto_title("s1", "Intro")
    engine.auto_title("s2", "Intro")

    assert titles(engine, "s1", "s2") == ["Intro", "Intro #2"]
    with pytest.raises(TitleTaken, match="session s1"):
        engine.title_session("s3", "Intro")


def test_a_models_title_never_beats_a_persons_not_even_one_that_was_taken_away(engine: SessionEngine) -> None:
    talk(engine, "s1")
    engine.title_session("s1", "boat repair")

    assert engine.auto_title("s1", "Repairing a boat").positions == ()
    engine.untitle_session("s1")
    assert engine.auto_title("s1", "Repairing a boat").positions == ()
    assert titles(engine, "s1") == [None]


def test_a_model_titles_a_session_once(engine: SessionEngine) -> None:
    talk(engine, "s1")
    engine.auto_title("s1", "Boats")

    assert engine.auto_title("s1", "Keels").positions == ()
    assert titles(engine, "s1") == ["Boats"]


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ('"Boat repair"', "Boat repair"),
        ("Title: Boat repair", "Boat repair"),
        ("**Title: “Boat repair”**", "Boat repair"),
        ("title:  'Boat  repair'\n", "Boat repair"),
        ("Alpha\u200bBeta", "Alpha Beta"),
        ("\u202ex", "x"),
        ("x" * 300, "x" * 100),
        ("👩‍🔧" * 60, "👩‍🔧" * 33),
    ],
)
def test_c6_what_a_model_made_is_cleaned_and_cut_where_a_character_ends(
    engine: SessionEngine, made: str, kept: str
) -> None:
    talk(engine, "s1")
    engine.auto_title("s1", made)

    assert titles(engine, "s1") == [kept]


@pytest.mark.parametrize("made", ["", "  ", "Title:", '""', "\u200b\u2060"])
def test_a_model_that_made_nothing_to_read_titles_nothing(engine: SessionEngine, made: str) -> None:
    talk(engine, "s1")

    assert engine.auto_title("s1", made).positions == ()


def test_a_persons_title_of_over_100_characters_is_refused_and_not_cut(engine: SessionEngine) -> None:
    talk(engine, "s1")
    with pytest.raises(BadTitle, match="101 characters, max 100"):
        engine.title_session("s1", "x" * 101)

    assert titles(engine, "s1") == [None]


# --- before the first message ----------------------------------------------------------------------


def test_a_title_that_waited_for_the_first_message_is_borne_from_the_start(engine: SessionEngine) -> None:
    waiting = engine.check_title("  boat \n repair ")
    engine.create_session("cli", session_id="s1", title=waiting)

    assert titles(engine, "s1") == ["boat repair"]
    with pytest.raises(TitleTaken):
        engine.check_title("boat repair")
    assert engine.check_title("boat repair", session_id="s1") == "boat repair"


def test_a_title_that_was_taken_while_it_waited_loses_no_session(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="s1", title="plan")
    engine.create_session("cli", session_id="s2", title="plan", if_taken="leave")
    engine.create_session("cron", session_id="s3", title="plan", if_taken="number")

    assert titles(engine, "s1", "s2", "s3") == ["plan", None, "plan #2"]
    with pytest.raises(TitleTaken):
        engine.create_session("cli", session_id="s4", title="plan")
    assert not engine.exists("s4")


# --- lines of descent ------------------------------------------------------------------------------


def test_a_number_is_one_past_the_highest_of_its_line(engine: SessionEngine) -> None:
    for at, title in enumerate(("plan", "plan #7", "plan #bar", "pl_n #9")):
        engine.create_session("cli", session_id=f"s{at}", title=title)

    assert engine.next_title("plan") == "plan #8"
    assert engine.next_title("plan #7") == "plan #8"
    assert engine.next_title("p_an") == "p_an"


def test_c2_a_continuation_takes_the_name_of_what_it_goes_on_from(engine: SessionEngine) -> None:
    talk(engine, "s1")
    engine.title_session("s1", "fp")
    tip_id = engine.compress_session("s1", "so far").session_id
    tip_id = engine.compress_session(tip_id, "so far again").session_id
    engine.title_session(tip_id, "fp")

    assert titles(engine, "s1", tip_id) == [None, "fp"]
    talk(engine, "s3")
    with pytest.raises(TitleTaken, match=tip_id):
        engine.title_session("s3", "fp")


def test_a_branch_is_no_continuation_and_takes_no_name_of_its_parent(engine: SessionEngine) -> None:
    talk(engine, "s1")
    engine.title_session("s1", "fp")
    branch = engine.branch_session("s1").session_id

    with pytest.raises(TitleTaken):
        engine.title_session(branch, "fp")


def test_c4_a_title_belongs_to_one_session_of_all_sources_and_the_error_says_which(
    engine: SessionEngine,
) -> None:
    engine.create_session("telegram", session_id="t1", title="P", key=K)

    with pytest.raises(TitleTaken, match="t1"):
        engine.create_session("cli", session_id="c1", title="P")
    assert find_session(engine.caught_up("transcripts"), "P") == "t1"


def test_a_title_is_one_however_its_characters_are_written_and_is_found_so(engine: SessionEngine) -> None:
    talk(engine, "s1")
    talk(engine, "s2")
    engine.title_session("s1", "cafe\u0301")

    assert titles(engine, "s1") == ["caf\u00e9"]
    for written in ("caf\u00e9", "cafe\u0301"):
        with pytest.raises(TitleTaken, match="session s1"):
            engine.title_session("s2", written)
        assert find_session(engine.caught_up("transcripts"), written) == "s1"


def test_a_title_that_a_store_wrote_otherwise_is_no_other_session_s(engine: SessionEngine) -> None:
    """What stands in the log is as it came, and is held against all the same."""
    talk(engine, "s1")
    talk(engine, "s2")
    engine.save_events(engine.titling(engine.session("s1"), "cafe\u0301", engine.at(), by="lineage"))

    with pytest.raises(TitleTaken, match="session s1"):
        engine.title_session("s2", "caf\u00e9")
    with pytest.raises(TitleTaken, match="session s1"):
        engine.check_title("caf\u00e9", session_id="s2")
    engine.auto_title("s2", "caf\u00e9")
    assert find_session(engine.caught_up("transcripts"), "caf\u00e9", exact=True) == "s1"
    assert titles(engine, "s1", "s2") == ["cafe\u0301", "caf\u00e9 #2"]

    engine.title_session("s1", "caf\u00e9")

    assert titles(engine, "s1") == ["caf\u00e9"]


def test_a_continuation_takes_a_name_that_is_written_otherwise(engine: SessionEngine) -> None:
    talk(engine, "s1")
    engine.save_events(engine.titling(engine.session("s1"), "cafe\u0301", engine.at(), by="lineage"))
    on = engine.compress_session("s1", "so far").session_id
    engine.title_session(on, "caf\u00e9")

    assert titles(engine, "s1", on) == [None, "caf\u00e9"]


def test_no_title_is_another_sessions_id(engine: SessionEngine) -> None:
    talk(engine, "s1")
    talk(engine, "plan-2026")

    with pytest.raises(BadTitle, match="'plan-2026' is the id of another session"):
        engine.title_session("s1", "plan-2026")
    with pytest.raises(BadTitle):
        engine.create_session("cli", title="plan-2026")
    with pytest.raises(BadTitle):
        engine.check_title("plan-2026")
    engine.title_session("plan-2026", "plan-2026")
    engine.auto_title("s1", "s1 plan")
    assert titles(engine, "s1", "plan-2026") == ["s1 plan", "plan-2026"]


def test_a_models_title_that_is_an_id_gets_a_number(engine: SessionEngine) -> None:
    talk(engine, "s1")
    talk(engine, "plan-2026")
    engine.auto_title("s1", "plan-2026")

    assert titles(engine, "s1") == ["plan-2026 #2"]


def test_c7_of_several_that_go_on_the_one_in_use_last_is_the_tip_and_a_second_is_refused(
    engine: SessionEngine,
) -> None:
    talk(engine, "s0")
    engine.compress_session("s0", "so far", continuation_id="s1")
    with pytest.raises(SessionOver, match="s1"):
        engine.compress_session("s0", "so far", continuation_id="s2")
    # As an older store left them: siblings that nobody refused.
    for at, each in enumerate(("s2", "s3"), 1):
        continued(engine, "s0", each, source="cli")
        engine.append_message(each, "user", "later", at_us=engine.at() + at * 1_000)
    engine.end_session("s3", "agent_close")

    assert tip(engine.caught_up("transcripts"), "s0") == "s3"


def test_c10_a_branch_is_listed_however_its_parent_was_closed(engine: SessionEngine) -> None:
    talk(engine, "s0")
    branch = engine.branch_session("s0", title="another way").session_id
    for close in ("tui_close", "cli_close"):
        engine.reopen_session("s0")
        engine.end_session("s0", close)
        assert branch in listed(engine)
    later = engine.branch_session("s0", title="a third").session_id
    assert later in listed(engine)


def listed(engine: SessionEngine) -> set[str]:
    return {each.id for each in list_sessions(engine.caught_up("transcripts")).rows}


def test_c11_what_goes_on_after_a_cap_on_turns_names_its_parent_and_why(engine: SessionEngine) -> None:
    talk(engine, "s0")
    child = engine.compress_session("s0", "so far", why="turn_cap").session_id

    assert engine.session(child).parent_id == "s0"
    compressed = [each.payload for each in engine.event_log.read(topics=["session_compressed.1"])]
    assert [(each.continuation, each.why) for each in compressed] == [(child, "turn_cap")]
    assert [each.session_id for each in chain(engine.caught_up("transcripts"), "s0")] == ["s0", child]


def test_c15_what_is_over_is_named_by_its_successor_and_no_later_end_takes_its_place(
    engine: SessionEngine,
) -> None:
    talk(engine, "s0")
    child = engine.compress_session("s0", "so far").session_id

    assert engine.end_session("s0", "cli_close").positions == ()
    assert engine.session("s0").end_reason == "compression"
    with pytest.raises(SessionOver, match=child) as caught:
        engine.append_message("s0", "user", "hello?")
    assert caught.value.successor == child


def test_c17_a_new_name_is_found_at_once_and_a_chain_is_one_row_of_the_list(engine: SessionEngine) -> None:
    at = talk(engine, "s0")
    for _ in range(3):
        at = engine.compress_session(at, "so far").session_id
        engine.append_message(at, "user", "and on")
    engine.title_session(at, "voyage")

    db = engine.caught_up("transcripts")
    assert find_session(db, "voyage") == at
    assert listed(engine) == {at}
    assert len(chain(db, at)) == 4


# --- what a compression and a branch take along -----------------------------------------------------


def test_a_compression_keeps_the_last_exchanges_verbatim_after_its_summary(engine: SessionEngine) -> None:
    engine.create_session("cli", session_id="s0")
    for n in range(10):
        engine.append_message("s0", "user", f"question {n}")
        engine.append_message("s0", "assistant", f"answer {n}")
    child = engine.compress_session("s0", "so far", keep_last=3).session_id

    view = engine.view(child)
    assert [each.content for each in view.messages] == [
        "so far",
        *(f"{word} {n}" for n in (7, 8, 9) for word in ("question", "answer")),
    ]


def test_what_is_said_while_a_compression_is_decided_again_is_in_the_continuation(
    engine: SessionEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(engine, "s0", "one", "two")
    with open_home(engine.home) as other:
        save, late = engine.save_events, ["three"]

        def saved_after_another(*given: Any, **more: Any) -> tuple[int, ...]:
            while late:
                other.append_message("s0", "user", late.pop())
            return save(*given, **more)

        monkeypatch.setattr(engine, "save_events", saved_after_another)
        child = engine.compress_session("s0", "one and two").session_id

    assert [each.content for each in engine.view(child).messages] == ["one and two", "three"]


def test_a_branch_holds_what_was_in_the_context_and_the_chat_goes_on_there(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="s0", key=K, title="boat", chat_id="1001", user_id="501")
    first = engine.append_message("s0", "user", "one").position
    engine.append_message("s0", "user", "two")
    whole = engine.branch_session("s0").session_id
    engine.reroute(K, "s0", "resume")
    short = engine.branch_session("s0", title="short", upto=first, lead=False).session_id

    assert [each.content for each in engine.view(whole).messages] == ["one", "two"]
    assert [each.content for each in engine.view(short).messages] == ["one"]
    assert titles(engine, whole, short) == ["boat #2", "short"]
    assert engine.session(whole).chat_id == "1001"
    assert engine.route_of(K) == "s0"
    assert not engine.session("s0").ended


def test_a_branch_without_a_key_ends_its_parent_softly(engine: SessionEngine) -> None:
    talk(engine, "s0")
    engine.branch_session("s0")

    assert engine.session("s0").end_reason == "branched"
    assert not engine.session("s0").hard_end


def test_who_named_a_session_is_on_record(engine: SessionEngine) -> None:
    talk(engine, "s0")
    engine.auto_title("s0", "Boats")
    engine.title_session("s0", "boats")
    engine.compress_session("s0", "so far")

    named = [each.payload for each in engine.event_log.read(topics=[SessionTitled.topic])]
    assert [each.by for each in named] == ["model", "person", "lineage"]
