"""Contexts: compressed in place, undone and redone; what a model sees of a session, and what a person saw.

Over 400 lines because every test asks for the two views of one session, after something else was done to
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from retold import Message
from retold.domain import events as e
from retold.domain.errors import NoSuchMessage, NothingToDo, ProjectionDamaged, RetoldError, SessionOver
from retold.domain.view import NO_RESULT, View
from retold.infrastructure.decisions import Saved
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.rebuild import rebuild
from retold.projections.search import search
from retold.tests.histories import SECOND_US, T0_US
from retold.tests.infrastructure.importing import edit
from retold.tests.infrastructure.routing import continued


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        opened.create_session("telegram", session_id="s")
        yield opened


def talk(engine: SessionEngine, first: int, last: int, session_id: str = "s") -> list[int]:
    """Exchanges: u1, a1, u2, a2 …; the ids of the users' messages."""
    ids = []
    for number in range(first, last + 1):
        saved = engine.append_messages(
            session_id,
            [Message("user", f"u{number}"), Message("assistant", f"a{number}")],
            at_us=T0_US + number * SECOND_US,
        )
        ids.append(saved.positions[0])
    return ids


def said(view: View) -> list[Any]:
    return [each.content for each in view.messages]


def names(first: int, last: int) -> list[str]:
    return [f"{who}{number}" for number in range(first, last + 1) for who in "ua"]


def row(engine: SessionEngine, sql: str) -> tuple[Any, ...]:
    """The first row of a query on the projections."""
    engine.projector.catch_up()
    return tuple(engine.state.reader().execute(sql).fetchall()[0])


def counted(engine: SessionEngine) -> int:
    return int(row(engine, "SELECT message_count FROM sessions WHERE id = 's'")[0])


def found(engine: SessionEngine, query: str) -> list[str]:
    """The visibility of each hit."""
    engine.projector.catch_up()
    engine.projector.settle(wait_ms=10_000)
    return [each.visibility for each in search(engine.state.reader(), query).hits]


# --- compressed in place ---------------------------------------------------------------------------


def test_b11_the_kept_exchanges_follow_the_summary_verbatim_and_history_is_everything(
    engine: SessionEngine,
) -> None:
    talk(engine, 1, 10)
    before = engine.view("s").messages[-6:]
    done = engine.compact("s", "so far", keep_last=3)
    view, history = engine.view("s"), engine.history("s")

    assert said(view) == ["so far", *names(8, 10)]
    assert [each.kind for each in view.messages] == ["summary"] + ["message"] * 6
    assert [(each.role, each.content, each.at_us) for each in view.messages[1:]] == [
        (each.role, each.content, each.at_us) for each in before
    ]
    assert [each.copy_of for each in view.messages[1:]] == [each.id for each in before]
    assert said(history) == [*names(1, 10), "so far"]
    assert [each.visibility for each in history.messages] == ["compacted"] * 14 + ["live"] * 7
    assert counted(engine) == 7
    assert done.positions == (done.summary - 1, done.summary, *done.kept)
    assert {event.save for event in engine.event_log.read(done.positions[0] - 1)} == {done.positions[0]}


def test_what_was_compacted_is_found_once_and_copies_are_not_indexed(engine: SessionEngine) -> None:
    talk(engine, 1, 4)
    engine.compact("s", "so far", keep_last=2)

    assert found(engine, "u1") == ["compacted"]
    assert len(found(engine, "u4")) == 1
    engine.projector.settle(wait_ms=10_000)
    assert row(engine, "SELECT count(*) FROM search_docsize") == (9,)


def test_b10_a_compression_that_fails_changes_nothing(
    engine: SessionEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(engine, 1, 3)
    head = engine.head()
    engine.create_session("telegram", session_id="taken")
    tries: tuple[Callable[[], Saved], ...] = (
        lambda: engine.compress("s", " ", in_place=True),
        lambda: engine.compress("s", "so far", keep_last=3, in_place=True),
        lambda: engine.compress("s", "so far", tail=[1], in_place=True),
        lambda: engine.compress("s", "so far", continuation_id="taken"),
    )
    for attempt in tries:
        with pytest.raises(Exception, match=r"session|exists"):
            attempt()
    with monkeypatch.context() as patch:
        patch.setattr(engine.event_log, "append_within", _no_room)
        with pytest.raises(OSError, match="no room"):
            engine.compact("s", "so far")

    assert engine.head().position == head.position + 1
    assert said(engine.view("s")) == names(1, 3)
    assert found(engine, "u1") == ["live"]


def _no_room(*_: object, **__: object) -> None:
    raise OSError("no room")


def test_b4_what_is_drained_from_a_queue_between_compactions_is_neither_lost_nor_doubled(
    engine: SessionEngine,
) -> None:
    talk(engine, 1, 5)
    for number in range(6, 9):
        engine.append("s", "user", f"u{number}", key=f"queued-{number}")
        engine.compact("s", f"summary {number}", keep_last=1)
    for number in range(6, 9):  # and delivered again, after all of that
        engine.append("s", "user", f"u{number}", key=f"queued-{number}")

    assert said(engine.view("s")) == ["summary 8", "u8"]
    everything = [each.content for each in engine.history("s").messages if each.kind == "message"]
    assert everything == [*names(1, 5), "u6", "u7", "u8"]


def test_b4_what_was_said_since_the_summary_was_written_stays_in_the_context(engine: SessionEngine) -> None:
    talk(engine, 1, 5)
    covered = engine.head().position
    for number in range(6, 9):
        engine.append("s", "user", f"u{number}")
    engine.compact("s", "so far", upto=covered)

    assert said(engine.view("s")) == ["so far", "u6", "u7", "u8"]
    assert counted(engine) == 1 + 3


def test_b4_a_message_that_comes_while_a_compaction_is_decided_is_kept(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(engine, 1, 2)
    save = engine.save_events
    with open_home(home) as other:

        def beaten(*given: Any, **more: Any) -> tuple[int, ...]:
            monkeypatch.undo()
            other.append("s", "user", "meanwhile")
            return save(*given, **more)

        monkeypatch.setattr(engine, "save_events", beaten)
        engine.compact("s", "so far")

    assert said(engine.view("s")) == ["so far", "meanwhile"]


def test_a_compaction_of_a_compaction_keeps_every_message_once_in_history(engine: SessionEngine) -> None:
    first = talk(engine, 1, 4)
    engine.compact("s", "one", keep_last=2)
    talk(engine, 5, 5)
    engine.compact("s", "two", keep_last=2)
    view = engine.view("s")

    assert said(view) == ["two", *names(4, 5)]
    assert view.messages[1].copy_of == first[3]
    assert said(engine.history("s")) == [*names(1, 4), "one", *names(5, 5), "two"]


def test_which_way_a_session_is_compressed_is_a_setting(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("compression: {in_place: true}\n")
    with open_home(home) as engine:
        engine.create_session("telegram", session_id="s")
        talk(engine, 1, 2)
        saved: Saved = engine.compress("s", "so far", keep_last=1)

        assert saved.session_id == "s"
        assert engine.session("s").successor is None
        assert engine.compress("s", "again", in_place=False, continuation_id="next").session_id == "next"
        assert engine.session("s").successor == "next"


def test_a_session_that_is_over_is_not_compacted(engine: SessionEngine) -> None:
    talk(engine, 1, 2)
    engine.end_session("s", "session_reset")
    with pytest.raises(SessionOver):
        engine.compact("s", "so far")


def test_a_compaction_is_nobodys_activity(engine: SessionEngine) -> None:
    talk(engine, 1, 2)
    engine.compact("s", "so far", keep_last=1)

    assert row(engine, "SELECT last_active_us FROM sessions WHERE id = 's'") == (T0_US + 2 * SECOND_US,)


def test_a_summary_is_nobodys_preview_however_its_session_was_folded(engine: SessionEngine) -> None:
    def preview(session_id: str) -> tuple[Any, ...]:
        return row(engine, f"SELECT preview FROM sessions WHERE id = '{session_id}'")

    talk(engine, 1, 2)
    child = engine.compress_session("s", "so far").session_id
    assert preview(child) == (None,)
    said = engine.append_message(child, "user", "and now?").position
    assert preview(child) == ("and now?",)
    engine.rewind(child, said)
    assert preview(child) == (None,)
    rebuild(engine.projector, ["transcripts"], compare=False)
    assert preview(child) == (None,)


def test_no_decision_on_messages_is_made_while_their_rows_cannot_be_had(engine: SessionEngine) -> None:
    talk(engine, 1, 2)
    head = engine.head()
    with engine.projector.transaction() as db:
        db.execute("UPDATE sessions SET version = version - 1")
    decisions: tuple[Callable[[], Saved], ...] = (
        lambda: engine.compact("s", "so far"),
        lambda: engine.undo_turns("s"),
    )
    for decide in decisions:
        with pytest.raises(ProjectionDamaged, match="nothing was written") as refused:
            decide()
        assert "rebuild" in refused.value.hint

    assert engine.head() == head


# --- undone and redone -----------------------------------------------------------------------------


def test_b13_counts_follow_undo_and_what_is_undone_is_not_empty(engine: SessionEngine) -> None:
    talk(engine, 1, 3)
    undone = engine.undo_turns("s")

    assert (undone.rewound_count, counted(engine)) == (2, 4)
    assert undone.new_head_id == engine.view("s").messages[-1].id
    engine.append("s", "user", "another")
    assert counted(engine) == 5
    engine.undo_turns("s", 9)
    assert counted(engine) == 0
    assert engine.view("s").messages == []
    assert engine.session("s").version > 1
    assert len(engine.event_log.stream_events("session:s")) > 6
    with pytest.raises(NothingToDo, match="no turn"):
        engine.undo_turns("s")


def test_a_rewind_says_what_it_took_back_and_counts(engine: SessionEngine) -> None:
    ids = talk(engine, 1, 3)
    done = engine.rewind("s", ids[1])

    assert (done.rewound_count, done.target_message, done.new_head_id) == (4, ids[1], ids[1] - 1)
    assert row(engine, "SELECT rewind_count FROM sessions") == (1,)
    for wrong in (ids[0] + 1, ids[1], 10_000):
        with pytest.raises(NoSuchMessage):
            engine.rewind("s", wrong)


def test_undone_is_redone_step_by_step_until_something_is_said(engine: SessionEngine) -> None:
    talk(engine, 1, 3)
    engine.undo_turns("s")
    engine.undo_turns("s")

    assert said(engine.view("s")) == names(1, 1)
    assert engine.redo("s").restored_count == 2
    assert said(engine.view("s")) == names(1, 2)
    engine.redo("s")
    assert (said(engine.view("s")), counted(engine)) == (names(1, 3), 6)
    with pytest.raises(NothingToDo, match="nothing was undone"):
        engine.redo("s")
    engine.undo_turns("s")
    engine.append("s", "user", "instead")
    with pytest.raises(NothingToDo, match="since the undo"):
        engine.redo("s")
    assert said(engine.view("s")) == [*names(1, 2), "instead"]


def test_b15_what_was_undone_is_in_no_view_after_a_compaction_either(engine: SessionEngine) -> None:
    talk(engine, 1, 4)
    engine.compact("s", "so far", keep_last=2)
    engine.undo_turns("s")

    assert said(engine.view("s")) == ["so far", *names(3, 3)]
    assert said(engine.history("s")) == [*names(1, 3), "so far"]
    assert found(engine, "u4") == ["rewound"]
    engine.redo("s")
    assert said(engine.view("s")) == ["so far", *names(3, 4)]
    assert found(engine, "u4") == ["compacted"]


def test_going_back_past_a_compaction_undoes_it_and_a_redo_brings_it_back(engine: SessionEngine) -> None:
    ids = talk(engine, 1, 4)
    engine.compact("s", "so far", keep_last=1)
    talk(engine, 5, 5)
    before = said(engine.view("s"))
    engine.rewind("s", ids[1])

    assert said(engine.view("s")) == names(1, 1)
    assert counted(engine) == 2
    assert said(engine.history("s")) == names(1, 1)
    engine.redo("s")
    assert said(engine.view("s")) == before
    assert [each.visibility for each in engine.history("s").messages[:4]] == ["compacted"] * 4


def test_an_undo_in_a_continuation_hides_what_it_kept_of_its_parent_too(engine: SessionEngine) -> None:
    ids = talk(engine, 1, 3)
    engine.compress("s", "so far", keep_last=2, continuation_id="next")
    engine.undo_turns("next")

    assert said(engine.view("s", follow=True)) == ["so far", *names(2, 2)]
    assert said(engine.history("next")) == [*names(1, 2), "so far"]
    assert found(engine, "u3") == ["rewound"]
    engine.redo("next")
    assert said(engine.history("next")) == [*names(1, 3), "so far"]
    assert engine.view("next").messages[1].copy_of == ids[1]


# --- what a model sees -----------------------------------------------------------------------------


def test_i13_the_view_is_the_last_compaction_and_all_that_came_later(
    engine: SessionEngine, home: Path
) -> None:
    talk(engine, 1, 5)
    engine.compact("s", "so far")
    talk(engine, 6, 7)
    with open_home(home) as another:  # the first is never closed
        assert said(another.view("s")) == ["so far", *names(6, 7)]


def test_i15_a_call_whose_result_was_lost_is_closed_by_a_marked_placeholder(engine: SessionEngine) -> None:
    engine.append("s", "tool", "of a call that is gone", tool_call_id="gone")
    engine.append("s", "user", "is it dry?")
    call = engine.append("s", Message("assistant", tool_calls=[{"id": "c", "function": {"name": "weather"}}]))
    engine.append("s", "user", "still there?")
    view = engine.view("s")

    assert [(each.role, each.kind) for each in view.messages] == [
        ("user", "message"),
        ("assistant", "message"),
        ("tool", "placeholder"),
        ("user", "message"),
    ]
    assert view.messages[2].content == NO_RESULT
    assert any(f"#{call.position}: no result of its call c" in each for each in view.warnings)
    assert len(engine.history("s").messages) == 4  # of what was really said nothing is left out


def test_b22_a_parent_that_is_missing_is_said_and_the_view_ends_at_the_newest_message(
    engine: SessionEngine,
) -> None:
    continued(engine, "lost", "later")
    engine.append("later", "user", "newest")
    for view in (engine.view("later"), engine.history("later")):
        assert said(view) == ["newest"]
        assert "goes on from lost, which is not here" in view.warnings[0]


def test_i10_a_message_that_was_acknowledged_and_is_not_there_is_reported(engine: SessionEngine) -> None:
    talk(engine, 1, 2)
    last = engine.head().position

    assert engine.view("s", acknowledged=last).warnings == []
    other = engine.create_session("telegram", session_id="other").position
    for lost in (last + 5, other):
        assert f"#{lost} was acknowledged" in engine.view("s", acknowledged=lost).warnings[0]
    with engine.projector.transaction() as db:
        db.execute("DELETE FROM messages WHERE id = ?", (last,))
    assert "3 messages where 4 were counted" in engine.view("s").warnings[0]


def test_e13_what_was_undone_in_an_imported_store_is_in_no_view(
    engine: SessionEngine, hermes_home: Path
) -> None:
    edit(hermes_home, "INSERT INTO sessions (id, source, started_at) VALUES ('h', 'cli', 1.0)")
    for number, active in enumerate((1, 0, 0, 0, 1)):  # undone three times, and said anew
        edit(
            hermes_home,
            "INSERT INTO messages (session_id, role, content, timestamp, active)"
            " VALUES ('h', 'user', ?, 2.0, ?)",
            f"u{number}",
            active,
        )
    import_hermes(engine, hermes_home)

    assert said(engine.view("h")) == said(engine.history("h")) == ["u0", "u4"]
    engine.undo_turns("h")
    assert import_hermes(engine, hermes_home).taken == {}
    assert said(engine.view("h")) == ["u0"]


# --- usage, model, workspace, prompt, pin ----------------------------------------------------------


def usage(engine: SessionEngine) -> tuple[Any, ...]:
    return row(engine, "SELECT input_tokens, output_tokens FROM sessions WHERE id = 's'")


def test_b25_absolute_numbers_replace_and_deltas_add(engine: SessionEngine) -> None:
    for total in (1000, 2500, 5000, 5000):
        engine.record_usage("s", "absolute", input_tokens=total, output_tokens=7)

    assert usage(engine) == (5000, 7)
    head = engine.head()
    engine.record_usage("s", "absolute", input_tokens=5000, output_tokens=7)
    assert engine.head() == head
    for _ in range(2):
        engine.record_usage("s", "delta", input_tokens=10, key="call-1")
    engine.record_usage("s", "delta", input_tokens=10, key="call-2")
    assert usage(engine) == (5020, 7)


def test_a_models_share_is_apart_from_the_totals(engine: SessionEngine) -> None:
    for _ in range(2):
        engine.record_usage("s", "absolute", model="m-1", task="title", input_tokens=5, actual_cost_usd=0.25)

    assert usage(engine) == (0, 0)
    shares = engine.state.reader().execute(
        "SELECT model, task, input_tokens, actual_cost_usd FROM session_model_usage"
    )
    assert shares.fetchall() == [("m-1", "title", 5, 0.25)]


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "total"},
        {"mode": "delta", "input_tokens": -1},
        {"mode": "delta", "input_tokens": 1.5},
        {"mode": "delta", "actual_cost_usd": float("nan")},
        {"mode": "delta", "tokens": 1},
        {"mode": "delta", "billing_provider": "p", "input_tokens": 1},
    ],
)
def test_usage_that_is_none_is_refused(engine: SessionEngine, given: dict[str, Any]) -> None:
    head = engine.head()
    with pytest.raises(RetoldError, match=r"session s: |mode may be 'absolute' or 'delta'"):
        engine.record_usage("s", **given)

    assert engine.head() == head


def test_settings_are_recorded_once_and_only_where_they_change(engine: SessionEngine) -> None:
    changes: tuple[Callable[[], Saved], ...] = (
        lambda: engine.set_model("s", "m-1", model_config='{"temperature":0}'),
        lambda: engine.set_model("s", "m-2"),
        lambda: engine.set_workspace("s", "/srv/boat", git_repo_root="/srv", git_branch="main"),
        lambda: engine.set_prompt("s", "be dry"),
        lambda: engine.pin_session("s"),
    )
    for change in changes:
        assert len(change().positions) == 1
        assert change().positions == ()
    state = engine.session("s")

    assert (state.model, state.model_config) == ("m-2", '{"temperature":0}')
    assert (state.cwd, state.git_repo_root, state.git_branch) == ("/srv/boat", "/srv", "main")
    assert state.pinned
    assert len(engine.unpin_session("s").positions) == 1
    assert engine.unpin_session("s").positions == ()


def test_a_prompts_text_is_in_the_log_once_however_many_sessions_have_it(engine: SessionEngine) -> None:
    engine.create_session("telegram", session_id="t")
    for session_id in ("s", "t"):
        engine.set_prompt(session_id, "be dry")
    engine.set_prompt("s", "be wet")
    engine.set_prompt("s", "be dry")
    engine.set_prompt("s", None)
    told = [event.payload for event in engine.event_log.read(topics=(e.PromptChanged.topic,))]

    assert [each.text for each in told] == ["be dry", None, "be wet", None, None]
    assert told[0].prompt_hash == told[1].prompt_hash == told[3].prompt_hash
    assert engine.session("s").prompt_hash is None
