"""Events on their way into the log: encoded, salted, hashed and packed; none that could not be read again."""

from __future__ import annotations

import os
import re
from typing import Final

import msgspec

from ..domain.errors import BadUsage
from ..domain.events import Event, MessageAppended, Payload
from . import codec
from .log import Draft
from .log_schema import AT_EXACT, AT_NO_LATER

_FEWEST, _MOST = -(1 << 63), (1 << 63) - 1
_FIELD: Final = re.compile(r"\$\[(\d+)\]")
"""Where a decoder says that a field is wrong: payloads are arrays."""
_UNREADABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
"""What encoding a value raises that has no bytes, and decoding bytes that are no such payload."""


def draft_of(event: Event) -> Draft:
    """The event's payload as bytes, hashed with a salt of its own, beside its envelope.

    Raises:
        BadUsage: a value that the log could not give back; names the field.
    """
    plain = _readable(event.payload)
    salt = os.urandom(codec.SALT_BYTES)
    return Draft(
        event.originator_id,
        event.originator_version,
        event.payload.topic,
        codec.pack(plain),
        codec.payload_hash(plain, salt),
        salt,
        event.at_us,
        AT_EXACT if event.at_kind == "exact" else AT_NO_LATER,
        event.source_ref,
        event.idempotency_key,
        event.caused_by,
    )


def _readable(payload: Payload) -> bytes:
    """A payload's bytes, once they were read again: what is in the log must never be in doubt."""
    try:
        plain = codec.encode(payload)
        kept = codec.given_back(payload.topic, plain)
    except _UNREADABLE as error:
        raise _unreadable(payload, error) from error
    if type(kept) is not MessageAppended or kept.columns:
        for name in kept.__struct_fields__:
            if not _is_plain(getattr(kept, name)):
                raise _refused(payload, name, "it holds what no column can")
    return plain


def _is_plain(value: object) -> bool:
    """Whether a value is of the kinds that the log and the tables have: no time, no number over 64 bits."""
    kind = type(value)
    if kind is int:
        return _FEWEST <= value <= _MOST  # type: ignore[operator]  # an int, as its type says
    if value is None or kind in (str, bytes, bool, float):
        return True
    if isinstance(value, dict):
        return all(_is_plain(each) for item in value.items() for each in item)
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return isinstance(value, msgspec.Struct) and all(
        _is_plain(getattr(value, name)) for name in value.__struct_fields__
    )


def _unreadable(payload: Payload, error: Exception) -> BadUsage:
    """The refusal of a payload, with the field that is to blame."""
    found = _FIELD.search(str(error))
    fields = payload.__struct_fields__
    if found is not None and int(found[1]) < len(fields):
        return _refused(payload, fields[int(found[1])], str(error).split(" - at ")[0])
    for name in fields:
        try:
            msgspec.msgpack.encode(getattr(payload, name))
        except _UNREADABLE as why:
            return _refused(payload, name, str(why))
    return _refused(payload, "a value", str(error))


def _refused(payload: Payload, name: str, why: str) -> BadUsage:
    what = payload.topic.rpartition(".")[0].replace("_", " ")
    return BadUsage(f"{name} is nothing that can be saved ({what}): {why}", hint="nothing was written")
