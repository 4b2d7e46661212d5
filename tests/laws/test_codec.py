"""What goes into the log comes out of it, byte for byte; whatever is changed in it shows."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retold.domain import events as e
from retold.domain.errors import LogDamaged
from retold.infrastructure import codec
from retold.infrastructure.log import Log
from retold.infrastructure.log_schema import link
from retold.infrastructure.mapper import PayloadMapper
from retold.tests.histories import draft
from retold.tests.laws.payloads import I64, payloads, texts

QUICK = settings(max_examples=200, deadline=None)


@QUICK
@given(payloads)
def test_every_payload_comes_back_as_it_was(payload: e.Payload) -> None:
    plain = codec.encode(payload)
    told: Any = codec.decode(payload.topic, codec.pack(plain))

    assert told == payload
    assert codec.encode(told) == plain  # 1, 1.0 and True are not the same


@QUICK
@given(payloads, I64, st.sampled_from(["exact", "no_later_than"]), st.none() | st.binary(max_size=16), texts)
def test_an_event_comes_back_through_the_mapper_with_its_envelope(
    payload: e.Payload, at_us: int, at_kind: e.AtKind, ref: bytes | None, stream: str
) -> None:
    event = e.Event(stream, 3, payload, at_us, at_kind, ref, ref, 7 if ref else None)
    mapper = PayloadMapper()
    stored = mapper.to_stored_event(cast("Any", event))

    assert mapper.to_domain_event(stored) == event


@QUICK
@given(st.binary(max_size=2000) | st.binary(max_size=40).map(lambda each: each * 40))
@example(b"")
@example(b"\x28\xb5\x2f\xfd")
@example(b"\x28\xb5\x2f\xfd" + b"not a frame")
@example(codec.pack(b"packed twice" * 100))
def test_any_bytes_are_unpacked_as_they_were_packed(plain: bytes) -> None:
    assert codec.unpack(codec.pack(plain)) == plain


@QUICK
@given(st.sampled_from(sorted(e.BY_TOPIC)), st.binary(max_size=60))
def test_bytes_that_are_no_payload_are_damage_and_nothing_else(topic: str, stored: bytes) -> None:
    with contextlib.suppress(LogDamaged):
        assert isinstance(codec.decode(topic, stored, position=5), e.BY_TOPIC[topic])


@QUICK
@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(min_size=16, max_size=16))
def test_a_payload_hash_is_of_these_bytes_and_this_salt(plain: bytes, other: bytes, salt: bytes) -> None:
    kept = codec.payload_hash(plain, salt)

    assert (codec.payload_hash(other, salt) == kept) == (other == plain)
    assert codec.payload_hash(plain, bytes(16)) != kept or salt == bytes(16)


# --- the chain -------------------------------------------------------------------------------------

columns = st.tuples(I64, texts, I64, texts, st.none() | st.binary(max_size=16), st.none() | I64, texts)


@QUICK
@given(columns, columns, st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
@example((1, "ab", 1, "c", None, None, ""), (1, "a", 1, "bc", None, None, ""), bytes(32), bytes(32))
@example((1, "", 1, "", b"", None, ""), (1, "", 1, "", None, None, ""), bytes(32), bytes(32))
def test_rows_that_differ_in_anything_have_other_chain_values(
    row: tuple[object, ...], other: tuple[object, ...], previous: bytes, before: bytes
) -> None:
    assert (link(previous, row) == link(before, other)) == (row == other and previous == before)


CHAINED = (
    "e.position, s.name, e.version, e.topic, e.at_us, e.at_kind, e.recorded_at_us, e.actor, e.caused_by,"
    " e.save, e.source_ref, e.idempotency_key, e.payload_hash"
)


def broken_at(db: apsw.Connection, genesis: bytes) -> int | None:
    """The first position whose chain value is not the link of its row."""
    chain = genesis
    for *row, stored in db.execute(
        f"SELECT {CHAINED}, e.chain FROM events e JOIN streams s ON s.id = e.stream ORDER BY e.position"
    ):
        chain = link(chain, tuple(row))
        if chain != stored:
            return int(row[0])
    return None


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Three events in two saves, every column of the second filled."""
    log = Log(tmp_path / "events.db")
    log.append([draft("session:s1", 1, e.SessionCreated("cli"), 5)])
    full = msgspec.structs.replace(
        draft("session:s1", 2, e.MessageAppended("user", "hi"), 6, caused_by=1),
        source_ref=b"r" * 16,
        idempotency_key=b"k" * 16,
    )
    log.append([full, draft("session:s1", 3, e.SessionArchived(), 7)])
    log.close()
    return log


CHANGES = [
    ("stream", "(SELECT max(id) FROM streams)"),
    ("version", "9"),
    ("topic", "'message_edited.1'"),
    ("at_us", "at_us + 1"),
    ("at_kind", "1"),
    ("recorded_at_us", "recorded_at_us - 1"),
    ("actor", "'gateway:1@host'"),
    ("caused_by", "NULL"),
    ("save", "1"),
    ("source_ref", "NULL"),
    ("idempotency_key", "x'00'"),
    ("payload_hash", "zeroblob(16)"),
    ("chain", "zeroblob(32)"),
]


@pytest.mark.parametrize(("column", "value"), CHANGES, ids=[column for column, _ in CHANGES])
def test_a_change_of_any_column_breaks_the_chain_there(log: Log, column: str, value: str) -> None:
    db = apsw.Connection(str(log.path))
    assert broken_at(db, log.identity.genesis) is None
    db.execute("INSERT INTO streams (name) VALUES ('session:other')")

    db.execute(f"UPDATE events SET {column} = {value} WHERE position = 2")

    assert broken_at(db, log.identity.genesis) == 2


def test_every_column_but_payload_and_salt_is_chained(log: Log) -> None:
    db = apsw.Connection(str(log.path))
    columns = {str(row[1]) for row in db.execute("PRAGMA table_info(events)")}

    assert columns - {column for column, _ in CHANGES} == {"position", "payload", "salt"}


def test_an_event_taken_out_or_put_in_breaks_the_chain(log: Log) -> None:
    db = apsw.Connection(str(log.path))
    db.execute("DELETE FROM events WHERE position = 2")

    assert broken_at(db, log.identity.genesis) == 3


def test_two_logs_never_share_a_chain_value(tmp_path: Path) -> None:
    logs = [Log(tmp_path / name) for name in ("a.db", "b.db")]
    stored = draft("session:s1", 1, e.SessionCreated("cli"), 5)
    for each in logs:
        each.append([stored])

    assert logs[0].head().chain != logs[1].head().chain
    assert logs[0].identity.keyed_hash("route", "K") != logs[1].identity.keyed_hash("route", "K")
    for each in logs:
        each.close()
