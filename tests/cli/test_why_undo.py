"""`retold why` and `retold log` after an undo: told is what happened, and when, and never its opposite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retold.domain import events as e
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.tests.infrastructure.repairing import TRUTH, twins

if TYPE_CHECKING:
    from retold.tests.conftest import Run

K = "agent:main:telegram:dm:77"
T = 1_778_000_000 * 1_000_000
HOUR = 3_600 * 1_000_000


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        opened.create_session("telegram", session_id="one", key=K, title="boats", at_us=T)
        opened.append_message("one", "user", "hi", at_us=T)
        yield opened


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def moments(run: Run, chat: str = K) -> list[str]:
    return [each["text"] for each in run("why", chat, "--json").json["timeline"]]


def test_a_repair_that_was_undone_gave_no_key(run: Run, engine: SessionEngine, hermes_home: Path) -> None:
    import_hermes(engine, hermes_home)
    done = engine.repair(TRUTH["lineage"]["orphan"])
    before = moments(run, TRUTH["lineage"]["adopts_key"])
    engine.undo(done.position)
    told = moments(run, TRUTH["lineage"]["adopts_key"])[len(before) :]

    assert "kitchen plan #2 gets its key, chat and user" in before
    assert told == [
        "an undo leads the chat to boat repair, away from kitchen plan #2",
        f"boat repair is opened again (undo of #{done.positions[0]})",
        f"kitchen plan is compressed (undo of #{done.positions[0]})",
        f"kitchen plan #2 has no key, chat or user any more (undo of #{done.positions[0]})",
    ]
    assert "was session_key=" in run("log", "--type", "identity_restored", "--limit", "1").stdout


def test_an_identity_that_was_given_back_by_mistake_is_lost_once(run: Run, engine: SessionEngine) -> None:
    lost = e.IdentityLost({"session_key": K, "chat_id": "77"}, {"session_key": None, "chat_id": None})
    version = engine.session("one").version
    engine.event_log.append([engine.draft(e.Event("session:one", version + 1, lost, T + HOUR))])
    done = engine.restore_identity("one")
    engine.undo(done.position)
    told = moments(run)

    assert [each for each in told if "its key" in each] == [
        "boats loses its key and chat",
        "boats gets its key and chat",
        f"boats loses its key and chat (undo of #{done.positions[0]})",
    ]


def test_a_reopening_that_was_undone_is_told_after_it(run: Run, engine: SessionEngine) -> None:
    engine.end_session("one", "agent_close", at_us=T + HOUR)
    opened = engine.reopen_session("one", at_us=T + 2 * HOUR)
    engine.undo(opened.position)

    assert moments(run)[-3:] == [
        "boats ends (agent_close); it may go on",
        "boats is opened again",
        f"boats ends (agent_close); it may go on (undo of #{opened.position})",
    ]


def test_an_end_that_was_undone_is_told_as_an_opening(run: Run, engine: SessionEngine) -> None:
    ended = engine.end_session("one", "session_reset", at_us=T + HOUR)
    engine.undo(ended.position, at_us=T + 2 * HOUR)
    told = run("why", K, "--json").json["timeline"]

    assert [each["text"] for each in told[-2:]] == [
        "boats is closed by a reset",
        f"boats is opened again (undo of #{ended.position})",
    ]
    assert told[-1]["at"] > told[-2]["at"]


def test_a_choice_of_a_continuation_that_was_undone_is_told(run: Run, engine: SessionEngine) -> None:
    twins(engine)
    chosen = engine.choose_continuation("s3")
    engine.undo(chosen.position)
    told = [each for each in moments(run, "s3") if "(undo of" in each]

    assert f"s1 is the continuation of what it comes from now (undo of #{chosen.positions[0]})" in told
    assert not any("gets its" in each for each in told)


def test_sessions_that_named_a_parent_that_is_not_there_stand_alone(run: Run, engine: SessionEngine) -> None:
    engine.create_session(
        "telegram", session_id="two", key=K, parent="gone", parent_kind="child", at_us=T + HOUR
    )
    engine.append_message("two", "user", "hi", at_us=T + HOUR)
    done = engine.detach_children()

    assert "two no longer names gone as what it comes from" in moments(run)
    engine.undo(done.position)
    assert f"two is a child of gone now (undo of #{done.positions[0]})" in moments(run)


def test_a_deletion_and_its_undo_are_told(run: Run, engine: SessionEngine) -> None:
    deleted = engine.delete_session("one", at_us=T + HOUR)
    engine.undo(deleted.position)
    told = moments(run)

    assert told[-4:-2] == [
        "boats is deleted",
        "the chat leads nowhere from here on; its next message begins a new session",
    ]
    assert set(told[-2:]) == {
        "an undo leads the chat to boats",
        f"boats is brought back (undo of #{deleted.positions[0]})",
    }


def test_a_first_route_that_was_undone_leads_nowhere_as_before(run: Run, engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="two", at_us=T)
    engine.append_message("two", "user", "hi", at_us=T)
    engine.undo(engine.lead_key("agent:main:telegram:dm:5", "two").position)

    assert "an undo lets the chat lead nowhere, as before" in moments(run, "agent:main:telegram:dm:5")


def test_a_chat_that_a_person_left_where_it_is_moved_nowhere(run: Run, engine: SessionEngine) -> None:
    engine.lead_key(K, "one")
    told = run("why", K)

    assert moments(run)[-1] == "a person says that the chat goes on in boats"
    assert "a person said that the chat goes on here" in told.stdout
    assert "away from" not in told.stdout
