"""What goes into the log and what comes back of it, apart from events: drafts, conditions, heads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec


class Conflict(Exception):
    """A version, an idempotency key or an append condition stood in the way; nothing was written."""


class Condition(msgspec.Struct, frozen=True):
    """What a decision read: refuse the save if any of it moved since `position`."""

    position: int
    streams: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An event ready to be written: everything but its place, its save and its chain value."""

    stream: str
    version: int
    topic: str
    payload: bytes
    payload_hash: bytes
    salt: bytes
    at_us: int | None = None
    at_kind: int = 0
    source_ref: bytes | None = None
    idempotency_key: bytes | None = None
    caused_by: int | None = None


class Masked(msgspec.Struct, frozen=True, gc=False):
    """What is to stand in place of a payload that held a forgotten text."""

    payload: bytes
    payload_hash: bytes
    salt: bytes


class Head(msgspec.Struct, frozen=True):
    """The last event's position and chain value; position 0 and the genesis value of an empty log."""

    position: int
    chain: bytes

    def __str__(self) -> str:
        return f"#{self.position}:{self.chain.hex()}"


class Written(msgspec.Struct, frozen=True):
    """One save: the head that it came after, the head that it made, and what it wrote."""

    before: Head
    head: Head
    rows: Sequence[tuple[Any, ...]]
    """As the query for envelopes gives them, see envelope.py."""
    learned: dict[str, int] = {}
    """Ids of streams that it met first."""

    @property
    def positions(self) -> range:
        """Of its events."""
        return range(self.before.position + 1, self.head.position + 1)


def default_actor(kind: str) -> str:
    """Who writes: a kind (cli, gateway, import, repair) with process id and host."""
    return f"{kind}:{os.getpid()}@{os.uname().nodename}"
