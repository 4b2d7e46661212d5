"""Finds a text in every event of the log, and says what is to stand in its place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..domain import events as e
from ..domain.errors import BadUsage, NeedsUpgrade, RuleBroken
from ..domain.events import Recorded
from ..domain.masking import LEAST_CHARACTERS, MASK, Masker, emptied_calls
from ..domain.text import scrub
from ..projections.base import Connection
from ..projections.message_columns import MESSAGE_COLUMNS
from . import codec
from .log import Log
from .sqlite import one, translated

STEP = 2_000


class Found(msgspec.Struct, frozen=True):
    """An event that holds what is to be forgotten; without `masked` nothing can stand in its place."""

    event: Recorded
    masked: e.Payload | None


def to_forget(text: str) -> str:
    """A text as it is looked for.

    Raises:
        BadUsage: it is blank, or shorter than 4 characters.
    """
    if len(text.strip()) < LEAST_CHARACTERS:
        raise BadUsage(
            f"a text to be forgotten has at least {LEAST_CHARACTERS} characters",
            hint="forget the message that holds it: retold forget SESSION MESSAGE",
        )
    return scrub(text)[0]


def find(log: Log, secret: str, *, after: int, upto: int) -> list[Found]:
    """The events after `after` that hold `secret`, each with a mask where it stood.

    A system prompt that held it gets another hash, here and wherever it is named: the old one is made
    of its text alone.

    Raises:
        RuleBroken: it is part of a key or an id. NeedsUpgrade: a newer program's event holds it.
    """
    _refuse_ids(log, secret)
    masker = Masker(secret)
    held = list(_holding(log, masker, after, upto))
    prompts = {
        event.payload.prompt_hash: os.urandom(len(event.payload.prompt_hash) // 2).hex()
        for event in held
        if isinstance(event.payload, e.PromptChanged) and event.payload.prompt_hash
    }
    if prompts:
        masker = Masker(secret, prompts)
        held = list(_holding(log, masker, 0, upto))
    found = [_found(event, masker) for event in held]
    if masker.named:
        raise RuleBroken(
            f"it is part of what names something ({', '.join(sorted(masker.named))}), which nothing would"
            " find without it; nothing was forgotten",
            hint="delete the sessions of that chat, and have them erased: retold sessions delete ID --now",
        )
    return [each for each in found if each.masked != each.event.payload]


def _refuse_ids(log: Log, secret: str) -> None:
    with translated(str(log.path)):
        named = one(log.reader(), "SELECT name FROM streams WHERE instr(name, ?) LIMIT 1", (secret,))
    if named is not None and named.startswith("session:"):
        raise RuleBroken(
            f"it is part of the id of session {named.removeprefix('session:')}; nothing was forgotten",
            hint="an id stays as long as its session: delete it with --now",
        )


def _holding(log: Log, masker: Masker, after: int, upto: int) -> Iterator[Recorded]:
    """Events whose bytes hold one of the texts; only those are decoded."""
    while after < upto:
        with translated(str(log.path)):
            rows: list[Any] = (
                log.reader()
                .execute(
                    "SELECT position, payload FROM events WHERE position > ? AND position <= ?"
                    " ORDER BY position LIMIT ?",
                    (after, upto, STEP),
                )
                .fetchall()
            )
        if not rows:
            return
        for position, payload in rows:
            if payload is not None and masker.holds(codec.unpack(payload)):
                yield from log.read(position - 1, limit=1, upto=position)
        after = rows[-1][0]


def _found(event: Recorded, masker: Masker) -> Found:
    payload = event.payload
    if isinstance(payload, e.UnknownEvent):
        raise NeedsUpgrade(
            f"event #{event.position} of a newer kind holds it: {event.topic}", hint="upgrade retold"
        )
    masked = masker.masked(payload)
    if isinstance(payload, e.TitleClaimed | e.TitleReleased) and masked != payload:
        return Found(event, None)  # who claims a title that nobody may know?
    if isinstance(payload, e.SessionTitled) and masked != payload:
        masked = msgspec.structs.replace(masked, claimed=False)
    if masked != payload and masker.holds(codec.encode(masked)) and not isinstance(payload, e.SessionCreated):
        return Found(event, None)
    return Found(event, masked)


def is_told_by_its_row(found: Found) -> bool:
    """Whether nothing is told of the event but plain columns of a message's row."""
    payload, masked = found.event.payload, found.masked
    return (
        isinstance(payload, e.MessageAppended)
        and isinstance(masked, e.MessageAppended)
        and (payload.columns, payload.odd, payload.attachments)
        == (masked.columns, masked.odd, masked.attachments)
    )


def row_edits(db: Connection, found: Sequence[Found]) -> dict[int, dict[str, e.Scalar]]:
    """The columns that change in each message's row; one that was edited since says what the edit said."""
    edits: dict[int, dict[str, e.Scalar]] = {}
    names = [name for name in MESSAGE_COLUMNS if name in e.MessageAppended.__struct_fields__]
    for each in found:
        position = each.event.position
        for table in ("messages", "deleted_messages"):
            row = db.execute(f"SELECT {', '.join(names)} FROM {table} WHERE id = ?", (position,)).fetchone()
            if row is not None:
                edits[position] = {
                    name: getattr(each.masked, name)
                    for name, value in zip(names, row, strict=True)
                    if value == getattr(each.event.payload, name) != getattr(each.masked, name)
                }
    return edits


def emptied(payload: object) -> e.Payload | None:
    """What stays of a message that is forgotten as a whole; of an edit nothing."""
    if not isinstance(payload, e.MessageAppended):
        return None
    return msgspec.structs.replace(
        payload,
        content=MASK if payload.content or not payload.tool_calls else payload.content,
        tool_calls=emptied_calls(payload.tool_calls) if payload.tool_calls else payload.tool_calls,
        reasoning=None,
        reasoning_content=None,
        reasoning_details=None,
        codex_reasoning_items=None,
        codex_message_items=None,
        api_content=None,
        seen=None,
        columns={},
        odd={},
        attachments=[],
    )
