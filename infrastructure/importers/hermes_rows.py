"""From what the reader of a Hermes home gives to rows in normal form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ...domain import events as e
from ...domain.events import Odd
from ...domain.source_rows import BILLING, COSTS, PARENT_KIND, THEIR_PARENT_KIND, TOKENS, settled
from ...domain.source_values import Row, as_text
from .salvage import RawText

_USAGE_KEY = ("model", *BILLING, "task")


def plain(row: Mapping[str, Any]) -> Row:
    """The row, with text that is not valid UTF-8 as the domain names it."""
    if RawText not in map(type, row.values()):
        return row  # type: ignore[return-value]  # a dict as the reader made it
    return {column: Odd("text", each.raw) if type(each) is RawText else each for column, each in row.items()}


def prompt_hash(text: str) -> str:
    """What names a prompt that its store does not name."""
    return hashlib.sha256(text.encode()).hexdigest()


def session_row(raw: Mapping[str, Any], prompts: Mapping[str, str]) -> tuple[Row, str | None]:
    """The session's row in normal form and its prompt's text: the row bears the hash only."""
    row = plain(raw)
    if PARENT_KIND in row:
        row = {THEIR_PARENT_KIND if column == PARENT_KIND else column: row[column] for column in row}
    text, named = row.get("system_prompt"), row.get("system_prompt_hash")
    if isinstance(text, str):
        # An empty prompt is as good as none to the store, but it is not the same row.
        same = isinstance(named, str) and prompts.get(named) == text
        lean = {**row, "system_prompt_hash": named if same else prompt_hash(text)}
        del lean["system_prompt"]
        return settled(lean), text
    return settled(row), prompts.get(named) if isinstance(named, str) else None


def model_usage(raw: Mapping[str, Any]) -> e.UsageRecorded | None:
    """A row of session_model_usage as an event; None for one whose key is no text.

    A key that is NULL is read as none (""), and the event says that it was NULL.
    """
    row = plain(raw)
    key = {column: row.get(column, "") for column in _USAGE_KEY}
    if not all(each is None or isinstance(each, str) for each in key.values()):
        return None
    fields: dict[str, Any] = {column: each or "" for column, each in key.items()}
    columns: dict[str, Any] = {column: None for column, each in key.items() if each is None}
    for column, value in row.items():
        if column in fields or column == "session_id":
            continue
        if (column in TOKENS and type(value) is int) or (column in COSTS and type(value) is float):
            fields[column] = value
        elif value is not None or column in TOKENS:
            columns[column] = as_text(value) if isinstance(value, Odd) else value
    return e.UsageRecorded("absolute", **fields, columns=columns)
