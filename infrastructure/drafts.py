"""Events on their way into the log: encoded, salted, hashed and packed."""

from __future__ import annotations

import os

from ..domain.events import Event
from . import codec
from .log import Draft
from .log_schema import AT_EXACT, AT_NO_LATER


def draft_of(event: Event) -> Draft:
    """The event's payload as bytes, hashed with a salt of its own, beside its envelope."""
    plain = codec.encode(event.payload)
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
