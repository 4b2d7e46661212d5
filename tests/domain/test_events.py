"""What is on disk stays readable: each topic's fields are frozen, and bytes of the first day still decode."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retold.domain import events as e
from retold.domain.errors import LogDamaged
from retold.infrastructure import codec
from retold.tests.domain.frozen_events import FROZEN, WORDS
from retold.tests.domain.golden_events import GOLDEN

LOG = Path(__file__).parent.parent / "fixtures" / "log"
NESTED = (e.RouteCandidate, e.ErasedMark, e.Attachment, e.Odd)
BY_TOPIC = {payload.topic: payload for payload in GOLDEN}


def name_of(cls: Any) -> str:
    return str(getattr(cls, "topic", cls.__name__))


def shape(cls: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a Struct as frozen_events.py writes them."""
    fields = []
    for each in msgspec.structs.fields(cls):
        line = f"{each.name}: {cls.__annotations__[each.name]}"
        if each.default is not msgspec.NODEFAULT:
            line += f" = {each.default!r}"
        elif each.default_factory is not msgspec.NODEFAULT:
            line += f" = {each.default_factory.__name__}()"
        fields.append(line)
    return tuple(fields)


# --- fields ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [*e.PAYLOADS, *NESTED], ids=name_of)
def test_a_topics_fields_are_those_of_the_first_day_in_their_order(cls: type[msgspec.Struct]) -> None:
    assert shape(cls) == FROZEN.get(name_of(cls)), "see the top of frozen_events.py"


def test_nothing_is_frozen_that_no_longer_exists() -> None:
    assert FROZEN.keys() == {name_of(cls) for cls in (*e.PAYLOADS, *NESTED)}


@pytest.mark.parametrize("cls", [*e.PAYLOADS, *NESTED], ids=name_of)
def test_a_field_with_a_default_is_followed_by_no_field_without_one(cls: type[msgspec.Struct]) -> None:
    optional = [" = " in line for line in FROZEN[name_of(cls)]]

    assert optional == sorted(optional)


def test_the_words_that_a_payload_may_hold_are_those_of_the_first_day() -> None:
    assert {name: typing.get_args(getattr(e, name)) for name in WORDS} == WORDS


def test_a_base_class_has_no_fields() -> None:
    """Array-like decoding would shift: a field added to a base decodes silently wrong."""
    for cls in e.PAYLOADS:
        bases = [base for base in cls.__mro__[1:] if base not in (msgspec.Struct, object)]
        fields = [base.__struct_fields__ for base in bases if issubclass(base, msgspec.Struct)]

        assert bases[0] is e.Payload
        assert not any(fields)


def test_a_field_added_to_a_base_would_decode_silently_wrong() -> None:
    """Why the test above is there."""

    class Base(msgspec.Struct, array_like=True):
        pass

    class Titled(Base, array_like=True):
        title: str
        note: str = ""

    class WiderBase(msgspec.Struct, array_like=True):
        by: str = ""

    class WiderTitled(WiderBase, array_like=True, kw_only=True):
        title: str = ""
        note: str = ""

    stored = msgspec.msgpack.encode(Titled("plan", "a note"))

    assert msgspec.msgpack.decode(stored, type=WiderTitled).by == "plan"


def test_every_payload_class_is_listed_under_a_topic_of_its_own() -> None:
    defined = {
        each
        for each in vars(e).values()
        if isinstance(each, type) and issubclass(each, e.Payload) and each is not e.Payload
    }

    assert set(e.PAYLOADS) == defined
    assert len({cls.topic for cls in e.PAYLOADS}) == len(e.PAYLOADS) == len(e.BY_TOPIC)
    assert all(cls.topic.rpartition(".")[2].isdigit() for cls in e.PAYLOADS)


@pytest.mark.parametrize("cls", e.PAYLOADS, ids=name_of)
def test_a_payload_is_frozen_and_an_array(cls: type[e.Payload]) -> None:
    config = cls.__struct_config__

    assert config.frozen
    assert config.array_like
    assert not config.forbid_unknown_fields  # a newer program may have added some


def test_a_hold_of_a_log_from_before_gateways_were_named_is_nobodys() -> None:
    stored = msgspec.msgpack.encode(["K", "process 7", "a preview server"])
    held = codec.decode("activity_held.1", stored)

    assert held == e.ActivityHeld("K", "process 7", "a preview server", gateway=None, deaths=0)


# --- golden bytes ----------------------------------------------------------------------------------


def golden_bytes(topic: str) -> bytes:
    file = LOG / f"{topic}.hex"
    if not file.exists():
        pytest.fail(f"freeze the topic: write this line to {file}\n{codec.encode(BY_TOPIC[topic]).hex()}")
    return bytes.fromhex(file.read_text())


def test_every_topic_has_a_golden_value_with_every_field_unlike_its_default() -> None:
    assert BY_TOPIC.keys() == e.BY_TOPIC.keys()
    for payload in GOLDEN:
        for each in msgspec.structs.fields(type(payload)):
            value = getattr(payload, each.name)

            assert value not in (each.default, None, {}, []), f"{payload.topic}: {each.name}"


@pytest.mark.parametrize("payload", GOLDEN, ids=lambda each: each.topic)
def test_golden_bytes_decode_to_the_value_and_encode_back_to_themselves(payload: e.Payload) -> None:
    stored = golden_bytes(payload.topic)

    assert codec.decode(payload.topic, stored) == payload
    assert codec.encode(payload) == stored


def test_no_golden_bytes_are_left_of_a_topic_that_no_longer_exists() -> None:
    assert {file.name.removesuffix(".hex") for file in LOG.glob("*.hex")} == {
        *e.BY_TOPIC,
        "message_appended.1.zstd",
    }


def test_a_golden_frame_of_zstd_decodes_to_the_value() -> None:
    stored = bytes.fromhex((LOG / "message_appended.1.zstd.hex").read_text())

    assert codec.decode("message_appended.1", stored) == e.MessageAppended(
        "user", "the same words again " * 60
    )
    assert len(stored) < 200


@pytest.mark.parametrize("payload", GOLDEN, ids=lambda each: each.topic)
def test_bytes_from_before_a_field_was_added_decode_with_its_default(payload: e.Payload) -> None:
    values: list[Any] = msgspec.msgpack.decode(golden_bytes(payload.topic))
    fields = msgspec.structs.fields(type(payload))
    required = sum(each.required for each in fields)
    for kept in range(required, len(fields) + 1):
        older = codec.decode(payload.topic, msgspec.msgpack.encode(values[:kept]))

        for at, each in enumerate(fields):
            default = each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()
            assert getattr(older, each.name) == (getattr(payload, each.name) if at < kept else default)


@pytest.mark.parametrize("payload", GOLDEN, ids=lambda each: each.topic)
def test_bytes_with_a_field_that_a_newer_program_added_still_decode(payload: e.Payload) -> None:
    values: list[Any] = msgspec.msgpack.decode(golden_bytes(payload.topic))

    assert codec.decode(payload.topic, msgspec.msgpack.encode([*values, "newer"])) == payload


# --- what cannot be told ---------------------------------------------------------------------------


def test_an_unknown_topic_decodes_to_an_unknown_event() -> None:
    assert codec.decode("session_dreamt.1", b"\x91\x01") == e.UnknownEvent("session_dreamt.1")


def test_an_emptied_payload_decodes_to_an_erased_event() -> None:
    assert codec.decode("message_appended.1", None) == e.ErasedEvent("message_appended.1")


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x91\x05",
        b"\x92\xa4user\x07",
        b"\x92\xa4user\xa2\xed\xa0",
        b"\x28\xb5\x2f\xfd",
        b"\x28\xb5\x2f\xfdgarbage",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
    ],
    ids=[
        "nothing",
        "never used",
        "too few",
        "wrong type",
        "wrong second",
        "not utf-8",
        "torn frame",
        "no frame",
        "deep",
        "too long",
    ],
)
def test_garbage_is_damage_that_names_its_position(garbage: bytes) -> None:
    with pytest.raises(LogDamaged, match=r"event #17 \(message_appended\.1\)"):
        codec.decode("message_appended.1", garbage, position=17)
