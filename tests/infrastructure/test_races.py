"""Several processes and threads decide at once: one wins, the others decide again or are told who won."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from retold.domain.errors import DeletedSession
from retold.domain.session_source import SessionSource
from retold.infrastructure import log_schema
from retold.infrastructure.commands import resets, told
from retold.infrastructure.engine import open_home
from retold.infrastructure.sqlite import CREATE, connect, one
from retold.infrastructure.verify import verify
from retold.projections.context import appended
from retold.projections.tree import tip
from retold.tests.infrastructure.processes import run_together

K = "agent:main:telegram:dm:1001"


def test_of_processes_that_want_one_title_one_gets_it(home: Path) -> None:
    with open_home(home) as engine:
        for number in range(4):
            engine.create_session("cli", session_id=f"s{number}")
        codes = [
            f"""
            for round in range(5):
                try:
                    engine.title_session("s{number}", f"plan {{round}}")
                except RetoldError as refused:
                    print("refused", refused.kind, refused.holder)
                else:
                    print("won")
            """
            for number in range(4)
        ]
        answers = run_together(home, codes)
        holders = [engine.claim(f"plan {number}").holder for number in range(5)]

    words = [word for answer in answers for word in answer]
    assert words.count("won") + words.count("refused") == 20
    assert words.count("title_taken") == words.count("refused")
    # A winner gives up the title before: in each round somebody won, and nobody else at the same time.
    assert words.count("won") >= 5
    assert holders[-1] is not None
    with open_home(home) as engine:
        titled = (
            engine.state.reader().execute("SELECT title FROM sessions WHERE title IS NOT NULL").fetchall()
        )
        assert len(set(titled)) == len(titled)


def test_processes_that_create_sessions_of_one_title_make_one_of_them(home: Path) -> None:
    open_home(home).close()
    code = """
        try:
            engine.create_session("cli", title="the plan")
        except RetoldError as refused:
            print(refused.kind)
        else:
            print("won")
    """
    answers = run_together(home, [code] * 4)

    assert sorted(word for answer in answers for word in answer) == ["title_taken"] * 3 + ["won"]


def test_processes_that_move_one_route_leave_one_unbroken_history(home: Path) -> None:
    open_home(home).close()
    code = """
        for number in range(10):
            engine.create_session("telegram", key="agent:main:telegram:dm:1001", cause="reset")
    """
    run_together(home, [code] * 3)
    with open_home(home) as engine:
        engine.projector.catch_up()
        moves = engine.state.reader().execute(
            "SELECT previous, session_id FROM route_history ORDER BY position"
        )
        history = [tuple(row) for row in moves]
        unended = engine.state.reader().execute("SELECT id FROM sessions WHERE NOT hard_end").fetchall()

        assert len(history) == 30
        assert [previous for previous, _ in history] == [None, *(led for _, led in history[:-1])]
        assert unended == [(engine.route_of(K),)] == [(history[-1][1],)]


def test_processes_that_compress_one_session_make_one_continuation(home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("telegram", session_id="s1", key=K, title="plan")
    code = """
        try:
            print("won", engine.compress_session("s1", "what was said").session_id)
        except RetoldError as refused:
            print(refused.kind, refused.successor)
    """
    answers = run_together(home, [code] * 4)
    kinds = sorted(kind for kind, _ in answers)

    assert kinds == ["session_over"] * 3 + ["won"]
    assert len({child for _, child in answers}) == 1


def test_processes_that_append_to_one_session_lose_nothing(home: Path) -> None:
    with open_home(home) as engine:
        engine.create_session("cli", session_id="s1")
    code = """
        for number in range(30):
            print(engine.append_message("s1", "user", f"message {number}").position)
    """
    answers = run_together(home, [code] * 4)
    positions = [int(each) for answer in answers for each in answer]

    assert sorted(positions) == list(range(2, 122))
    with open_home(home) as engine:
        assert [event.version for event in engine.event_log.stream_events("session:s1")] == list(
            range(1, 122)
        )


def test_g4_two_writers_of_one_home_are_as_one(home: Path) -> None:
    with open_home(home) as one_writer, open_home(home) as other:
        one_writer.create_session("telegram", session_id="s1", key=K)
        for number in range(5):
            one_writer.append_message("s1", "user", f"question {number}")
            other.append_message("s1", "assistant", f"answer {number}")
        other.title_session("s1", "plan")
        one_writer.end_session("s1", "session_reset")

        assert other.session("s1").version == one_writer.session("s1").version == 13
        assert other.session("s1").hard_end
        assert one_writer.session("s1").title == "plan"
        for each in (one_writer, other):
            assert [seen.content for seen in each.view("s1").messages] == [
                f"{what} {number}" for number in range(5) for what in ("question", "answer")
            ]
    assert verify(home).exit_code == 0


def test_threads_that_append_to_one_session_lose_nothing(home: Path) -> None:
    with open_home(home, synchronous="NORMAL") as engine:
        engine.create_session("cli", session_id="s1")
        positions: list[int] = []

        def write() -> None:
            saved = [engine.append_message("s1", "user", f"message {number}") for number in range(10)]
            positions.extend(each.position for each in saved)

        threads = [threading.Thread(target=write) for _ in range(16)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

        assert sorted(positions) == list(range(2, 162))


def test_g9_64_threads_first_open_a_new_home_and_write_into_it(home: Path) -> None:
    failed: list[BaseException] = []
    barrier = threading.Barrier(64)

    def first() -> None:
        try:
            barrier.wait()
            with open_home(home) as engine:
                engine.create_session("cli")
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test must tell
            failed.append(error)

    threads = [threading.Thread(target=first) for _ in range(64)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert failed == []
    with open_home(home) as engine:
        assert engine.head().position == 64
        assert engine.projector.catch_up().position == 64


def test_a_log_that_another_process_makes_between_two_looks_is_the_log(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = one
    home.mkdir()
    connect(home / "events.db", flags=CREATE).pragma("journal_mode", "wal")
    made: list[list[str]] = []

    def first_look_then_another(connection: Any, sql: str, *values: Any) -> Any:
        found = look(connection, sql, *values)
        if sql == "PRAGMA application_id" and not made:
            assert found == 0
            made.extend(run_together(home, ["print(engine.create_session('cli').session_id)"]))
        return found

    monkeypatch.setattr(log_schema, "one", first_look_then_another)
    with open_home(home) as engine:
        assert [[event.session_id] for event in engine.event_log.read()] == made


def test_a_session_that_is_deleted_while_its_messages_are_looked_up_is_said_to_be_deleted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home(home) as engine, open_home(home) as other:
        engine.create_session("cli", session_id="s1")
        said = engine.append_message("s1", "user", "hello").position

        def gone_meanwhile() -> Any:
            monkeypatch.undo()
            other.delete_session("s1")
            return engine.projector.catch_up()

        monkeypatch.setattr(engine.projector, "catch_up", gone_meanwhile)
        with pytest.raises(DeletedSession):
            engine.edit_message("s1", "hello there", message=said)


@pytest.mark.parametrize("command", ["resolve", "resume", "reset"])
def test_what_is_compressed_while_a_chat_is_led_to_it_is_never_opened_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    chat = SessionSource("telegram", "1001")
    with open_home(home) as engine, open_home(home) as other:
        engine.create_session("telegram", session_id="s1", key=K)
        engine.compress_session("s1", "summed up", continuation_id="s2")
        engine.reroute(K, "s1", "import")
        found = tip

        def compressed_meanwhile(db: Any, session_id: str) -> str:
            monkeypatch.undo()
            last = found(db, session_id)
            other.compress_session(last, "summed up again", continuation_id="s3")
            return last

        monkeypatch.setattr(resets, "tip", compressed_meanwhile)
        given: dict[str, tuple[Any, ...]] = {"resolve": (chat,), "resume": (K, "s1"), "reset": (K,)}
        led = getattr(engine, command)(*given[command])

        assert led.session_id == "s3" if command != "reset" else led.previous == "s3"
        assert engine.session("s2").successor == "s3"


@pytest.mark.parametrize("goes", ["the message", "the session"])
@pytest.mark.parametrize("command", ["compact", "compress_session", "branch_session"])
def test_what_is_deleted_while_a_decision_reads_it_is_decided_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: str, goes: str
) -> None:
    with open_home(home) as engine, open_home(home) as other:
        engine.create_session("cli", session_id="s1")
        for text in ("hello", "then"):
            engine.append_message("s1", "user", text)
        said = engine.append_message("s1", "user", "and this").position
        read = appended

        def gone_meanwhile(db: Any, ids: Any) -> Any:
            monkeypatch.undo()
            if goes == "the message":
                other.erase_messages([said], reason="asked for")
            else:
                other.delete_session("s1")
            return read(db, ids)

        monkeypatch.setattr(told, "appended", gone_meanwhile)
        given = ("s1",) if command == "branch_session" else ("s1", "summed up")
        kept = {} if command == "branch_session" else {"keep_last": 1}
        if goes == "the session":
            with pytest.raises(DeletedSession):
                getattr(engine, command)(*given, **kept)
        else:
            made = getattr(engine, command)(*given, **kept).session_id
            assert "and this" not in [each.content for each in engine.view(made).messages]
            assert engine.view(made).messages


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_what_races_left_behind_is_a_sound_log(home: Path, synchronous: str) -> None:
    code = f"""
        with open_home(engine.home, synchronous="{synchronous}") as other:
            for number in range(10):
                made = other.create_session("telegram", key=f"K{{number % 3}}", cause="reset")
                try:
                    engine.append_message(made.session_id, "user", f"message {{number}}")
                except RetoldError as refused:
                    assert refused.kind == "session_over", refused  # the other process reset that chat
    """
    run_together(home, [code] * 2)
    with open_home(home) as engine:
        events = engine.event_log.read()

        assert [event.position for event in events] == list(range(1, len(events) + 1))
    found = verify(home)
    assert (found.exit_code, found.problems) == (0, [])
