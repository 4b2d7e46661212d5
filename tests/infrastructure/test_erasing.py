"""An erased message leaves no byte of its text in any file of the home, and stays on record as erased."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from retold.domain import events as e
from retold.domain.errors import RuleBroken
from retold.infrastructure import erasing
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.history import state_at
from retold.infrastructure.rebuild import rebuild
from retold.infrastructure.verify import verify
from retold.infrastructure.when import Point
from retold.projections.search_query import parse

SECRET = "qz7secretq9 鍵"
TRACES = [SECRET.encode(), b"z7secretq9", b"7secretq9", "鍵".encode()]
"""The index shares the beginnings of its words, so their ends are looked for too."""


@pytest.fixture
def engine(home: Path) -> Iterator[SessionEngine]:
    with open_home(home) as opened:
        opened.create_session("telegram", session_id="s1", title="plan")
        opened.append_message("s1", "user", "before", at_us=1_777_000_000_000_000)
        yield opened


def traces(home: Path) -> dict[str, list[bytes]]:
    """Which files of the home hold what of the secret, other than as they lie in memory."""
    found = {}
    for path in sorted(home.rglob("*")):
        if path.is_file() and not path.is_symlink() and not path.name.endswith("-shm"):
            content = path.read_bytes()
            held = [trace for trace in TRACES if trace in content]
            if held:
                found[path.name] = held
    return found


def say_the_secret(engine: SessionEngine) -> int:
    said = engine.append_message(
        "s1", "assistant", f"the word is {SECRET}", tool_calls=f'[{{"x":"{SECRET}"}}]'
    )
    for number in range(80):  # past what the index may trail, so that it holds the word
        engine.append_message("s1", "user", f"message {number}", at_us=1_777_100_000_000_000)
    return said.position


def write(engine: SessionEngine, payload: e.Payload) -> int:
    version = engine.event_log.stream_version("session:s1") + 1
    return engine.save_events([e.Event("session:s1", version, payload, 1_777_200_000_000_000)])[0]


def test_no_byte_of_the_text_is_left_in_any_file_of_the_home(engine: SessionEngine, home: Path) -> None:
    message = say_the_secret(engine)
    state_at(engine.event_log, home, Point(position=message)).close()
    held = traces(home)
    assert {name for name in held if name.startswith(("events.db", "state."))}
    assert any(name.startswith("at-") for name in held)

    done = engine.erase_messages([message], reason="a secret")

    assert traces(home) == {}
    assert done.pending == ()
    assert engine.state.reader().execute("SELECT count(*) FROM messages").fetchone() == (81,)


def test_edits_and_copies_of_the_message_are_erased_with_it(engine: SessionEngine, home: Path) -> None:
    message = say_the_secret(engine)
    copy = write(engine, e.MessageAppended("assistant", f"the word is {SECRET}", copy_of=message))
    edit = write(engine, e.MessageEdited(message, {"content": f"it was {SECRET}"}))
    other = write(engine, e.MessageEdited(4, {"content": "before, edited"}))
    engine.erase_messages([message], reason="a secret")
    record = engine.event_log.read()[-1].payload

    assert traces(home) == {}
    assert record.positions == [message, copy, edit]
    assert [mark.role for mark in record.marks] == ["assistant", "assistant", None]
    assert isinstance(engine.event_log.read(other - 1, limit=1)[0].payload, e.MessageEdited)


def test_that_it_was_and_when_stays_on_record(engine: SessionEngine, home: Path) -> None:
    message = say_the_secret(engine)
    before = engine.head()
    done = engine.erase_messages([message], reason="a secret")
    erased = engine.event_log.read(message - 1, limit=1)[0]

    assert erased.payload == e.ErasedEvent(e.MessageAppended.topic)
    assert engine.event_log.read()[-1].payload == e.PayloadsErased(
        [message], "a secret", [None], [e.ErasedMark("s1", "assistant", erased.at_us)]
    )
    assert engine.event_log.chain_at(before.position) == before.chain  # older heads still hold
    assert done.position == engine.head().position
    found = verify(home)
    assert (found.exit_code, found.problems) == (0, [])


def test_it_is_gone_after_a_rebuild_and_all_else_is_the_same(engine: SessionEngine, home: Path) -> None:
    message = say_the_secret(engine)
    engine.erase_messages([message], reason="a secret")
    told = rebuild(engine.projector, list(engine.projector.projections), compare=True)
    db = engine.state.reader()
    assert engine.projector.settle(wait_ms=10_000)

    assert all(each.equal for each in told)
    assert traces(home) == {}
    match = parse("z7secretq9 OR qz7secretq9 OR 鍵").match
    assert db.execute("SELECT rowid FROM search WHERE search MATCH ?", (match,)).fetchall() == []
    # It was the latest activity, and still counts as one.
    erased = engine.event_log.read(message - 1, limit=1)[0]
    assert db.execute("SELECT last_active_us FROM sessions").fetchone() == (erased.at_us,)


def test_a_first_message_leaves_the_preview_of_its_session(engine: SessionEngine, home: Path) -> None:
    engine.create_session("cli", session_id="s2")
    first = engine.append_message("s2", "user", f"hello {SECRET}")
    engine.append_message("s2", "user", "second")
    engine.erase_messages([first.position], reason="a secret")

    assert engine.state.reader().execute("SELECT preview FROM sessions WHERE id = 's2'").fetchone() == (
        "second",
    )
    assert traces(home) == {}


def test_a_megabyte_is_erased_too(engine: SessionEngine, home: Path) -> None:
    message = engine.append_message("s1", "user", "".join(f"{SECRET}{number:x} " for number in range(40_000)))
    engine.erase_messages([message.position], reason="a secret")

    assert traces(home) == {}


def test_erasing_twice_writes_once(engine: SessionEngine) -> None:
    message = say_the_secret(engine)
    engine.erase_messages([message, message], reason="a secret")
    head = engine.head()

    assert engine.erase_messages([message], reason="a secret").positions == ()
    assert engine.head() == head


@pytest.mark.parametrize("position", [1, 9_999])
def test_what_is_no_message_is_not_erased(engine: SessionEngine, position: int) -> None:
    message = engine.append_message("s1", "user", "not to be erased").position
    head = engine.head()
    with pytest.raises(RuleBroken, match=f"#{position} is no message"):
        engine.erase_messages([message, position], reason="a secret")

    assert engine.head() == head
    assert isinstance(engine.event_log.read(message - 1)[0].payload, e.MessageAppended)


def test_a_reader_in_a_snapshot_keeps_the_text_and_the_answer_says_where(
    engine: SessionEngine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "WAIT_MS", 20)
    message = say_the_secret(engine)
    with closing(apsw.Connection(str(home / "events.db"), flags=apsw.SQLITE_OPEN_READONLY)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchall()
        done = engine.erase_messages([message], reason="a secret")
        assert "events.db" in done.pending

        engine.append_message("s1", "user", "nobody waits for that reader")
        reader.execute("COMMIT")

    assert erasing.sweep(engine.event_log, engine.projector, home) == ()
    assert traces(home) == {}


def test_another_engine_sees_the_message_gone(engine: SessionEngine, home: Path) -> None:
    message = say_the_secret(engine)
    with open_home(home) as other:
        other.append_message("s1", "user", "remembers the session")
        engine.erase_messages([message], reason="a secret")
        other.append_message("s1", "user", "goes on")

        found = other.state.reader().execute("SELECT count(*) FROM messages WHERE id = ?", (message,))
        assert found.fetchone() == (0,)
