"""What each imported row was when its source was last read."""

from __future__ import annotations

from typing import Any

import apsw
import pytest

from retold.domain import events as e
from retold.domain.events import Payload, Recorded
from retold.domain.source_rows import unpacked
from retold.projections.sources import EDITED_HERE, SHOWN_HERE, Sources, store_number

STORE = "ab" * 16
NUMBER = store_number(STORE)


def told(position: int, stream: str, payload: Any, *, ref: bytes | None = b"ref") -> Recorded:
    return Recorded(position, stream, 1, payload.topic, position, "exact", 9, "import", None, 1, ref, payload)


CREATED = told(1, "session:s", e.SessionCreated("cli", session_key="k", store=STORE))


def message(position: int, source_id: int, seen: bytes = b"digest..") -> Recorded:
    payload = e.MessageAppended("user", "hi", source_id=source_id, seen=seen)
    return told(position, "session:s", payload)


def rows(events: list[Recorded], batch: int = 100) -> dict[str, list[Any]]:
    db = apsw.Connection(":memory:")
    sources = Sources()
    sources.create(db)
    for start in range(0, len(events), batch):
        sources.fold(events[start : start + batch], db)
    return {table: db.execute(query.format(p="")).fetchall() for table, query in sources.ordered().items()}


def test_a_session_and_its_messages_are_remembered() -> None:
    found = rows([CREATED, message(2, 10), message(3, 11)])

    assert found["source_homes"] == [(NUMBER, STORE, None, None, None, None)]
    assert found["source_messages"] == [
        (2, NUMBER, 10, b"digest..", 0, 0, 0),
        (3, NUMBER, 11, b"digest..", 0, 0, 0),
    ]
    ((session_id, source, created, seen, gone),) = found["source_sessions"]
    assert (session_id, source, created, gone) == ("s", NUMBER, 1, 0)
    assert unpacked(seen)["session_key"] == "k"


def test_what_was_decided_here_is_no_sight_of_the_source() -> None:
    before = rows([CREATED])
    titled = told(2, "session:s", e.SessionTitled("ours"), ref=None)

    assert rows([CREATED, titled]) == before


def test_what_the_source_said_is() -> None:
    found = rows([CREATED, told(2, "session:s", e.SessionTitled("theirs"))])

    assert unpacked(found["source_sessions"][0][3])["title"] == "theirs"


@pytest.mark.parametrize(
    ("payload", "bit"), [(e.MessagesRewound([2]), SHOWN_HERE), (e.MessageEdited(2, {}), EDITED_HERE)]
)
def test_a_message_changed_here_is_marked(payload: Payload, bit: int) -> None:
    found = rows([CREATED, message(2, 10), told(3, "session:s", payload, ref=None)])

    assert found["source_messages"] == [(2, NUMBER, 10, b"digest..", 0, 0, bit)]


def test_an_id_that_comes_again_names_the_later_message() -> None:
    found = rows([CREATED, message(2, 10), message(3, 10, b"another.")])

    assert found["source_messages"] == [(3, NUMBER, 10, b"another.", 0, 0, 0)]


def test_erased_events_leave_their_references_only() -> None:
    erased = told(4, "session:s", e.PayloadsErased([2], "secret", source_refs=[b"m10"]), ref=None)
    live = [CREATED, message(2, 10), message(3, 11), erased]
    emptied = Recorded(
        2, "session:s", 1, e.MessageAppended.topic, 2, "exact", 9, "import", None, 1, b"m10",
        e.ErasedEvent(e.MessageAppended.topic),
    )  # fmt: skip
    again = [CREATED, emptied, message(3, 11), erased]

    assert rows(live)["source_erased"] == [(b"m10",)]
    assert [row[0] for row in rows(live)["source_messages"]] == [3]
    assert rows(live) == rows(again)


def test_an_erased_session_leaves_nothing() -> None:
    erased = told(9, "session:s", e.PayloadsErased([1], "gone", source_refs=[b"s"]), ref=None)
    usage = told(2, "session:s", e.UsageRecorded("absolute", "m"))
    found = rows([CREATED, usage, erased])

    assert (found["source_sessions"], found["source_usage"]) == ([], [])


def test_a_conflict_is_kept_with_both_values() -> None:
    payload = e.SourceRowChanged("session", "s", {"title": "b"}, ["title"], ours={"title": "a"})

    assert rows([CREATED, told(2, "session:s", payload)])["source_conflicts"] == [
        (2, "session", "s", "s", "title", "a", "b", None)
    ]


HISTORY = [
    CREATED,
    message(2, 10),
    message(3, 11),
    told(4, "session:s", e.MessagesCompacted([2])),
    told(5, "session:s", e.MessageEdited(3, {"content": "x"}, b"edited..")),
    told(6, "session:s", e.SourceRowGone("message", "", [3])),
    told(7, "session:s", e.SourceRowChanged("message", "", {}, messages=[3])),
    told(8, "session:s", e.PromptChanged("h", "be kind")),
    told(9, "route:r", e.SessionRerouted("k", "s", None, "import", entry="{}", store=STORE)),
    told(10, "route:r", e.RouteClosed("k", "s", "import", store=STORE)),
    told(11, "session:s", e.SourceRowGone("session", "s", [2, 3])),
    told(12, f"source:{STORE}", e.ImportRan("/home", 22, {}, {}), ref=None),
]


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_however_a_history_is_cut_the_rows_are_the_same(batch: int) -> None:
    found = rows(HISTORY, batch)

    assert found == rows(HISTORY)
    assert [(row[0], row[4], row[5]) for row in found["source_messages"]] == [(2, 1, 1), (3, 0, 1)]
    assert found["source_routes"][0][4] == 1
    assert found["source_homes"][0][2:5] == ("/home", 22, 12)


def test_a_message_changed_on_both_sides_moves_what_was_seen() -> None:
    payload = e.SourceRowChanged(
        "message", "10", {"active": 0, "compacted": 1}, ["active"], seen=b"now.....", messages=[2]
    )

    assert rows([CREATED, message(2, 10), told(3, "session:s", payload)])["source_messages"] == [
        (2, NUMBER, 10, b"now.....", 1, 0, 0)
    ]
