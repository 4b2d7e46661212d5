"""Between a message's row in another store and the events that say it: both ways, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from . import events as e
from .events import Odd, Visibility
from .source_rows import Row, Value, as_text, same, time_us, told_by, value_of

# In the order of MessageAppended's fields.
TEXTS: Final = (
    "content",
    "tool_name",
    "tool_calls",
    "tool_call_id",
    "platform_message_id",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "effect_disposition",
    "api_content",
)
_DEFAULT: Final[dict[str, Value]] = {"observed": 0, "active": 1, "compacted": 0}
_KEYS: Final = ("id", "session_id")
_KNOWN: Final = frozenset({*_KEYS, "role", *TEXTS, "timestamp", "token_count", *_DEFAULT})
_ACTIVE: Final[dict[Visibility, tuple[int, int]]] = {
    "live": (1, 0),
    "compacted": (0, 1),
    "rewound": (0, 0),
}
_SHOWN: Final[dict[tuple[Value, Value], Visibility]] = {pair: word for word, pair in _ACTIVE.items()}

_pack = msgspec.msgpack.Encoder().encode


def shown(row: Mapping[str, Value]) -> Visibility:
    """What `active` and `compacted` say (REFERENCE.md 1.4); what says nothing is live."""
    active, compacted = row.get("active", 1), row.get("compacted", 0)
    if active is None or active:
        return "live"
    return "compacted" if compacted else "rewound"


def _is_plain(row: Mapping[str, Value]) -> bool:
    active, compacted = row.get("active", 1), row.get("compacted", 0)
    return type(active) is int and type(compacted) is int and (active, compacted) in _SHOWN


def digest(row: Mapping[str, Value]) -> bytes:
    """8 bytes over all that the row says, but for a visibility that an event of its own tells."""
    values: list[Any] = [row.get("session_id"), row.get("role"), row.get("timestamp")]
    values += [row.get(column) for column in TEXTS]
    values += [row.get("token_count"), row.get("observed", 0)]
    if len(row) > len(_KNOWN) or not _KNOWN.issuperset(row):
        further = sorted(row.keys() - _KNOWN)
        values += [(column, row[column]) for column in further if row[column] is not None]
    if not _is_plain(row):
        values.append((row.get("active", 1), row.get("compacted", 0)))
    return hashlib.blake2b(_pack(values), digest_size=8).digest()


def message_appended(row: Mapping[str, Value], *, at_us: int) -> e.MessageAppended:
    """The event that brings the row; `source_row_of` gives the row back."""
    odd: dict[str, Odd] = {}
    texts: list[str | None] = []
    for column in TEXTS:
        value = row.get(column)
        if value is not None and type(value) is not str:
            odd[column] = _as_odd(value)
            value = as_text(value)
        texts.append(value)
    role, timestamp = row.get("role"), row.get("timestamp")
    if type(role) is not str:
        odd["role"] = _as_odd(role)
        role = as_text(role) or ""
    exact = timestamp if type(timestamp) is float and not told_by(at_us, timestamp) else None
    if type(timestamp) is not float:
        odd["timestamp"] = _as_odd(timestamp)
    tokens, observed = row.get("token_count"), row.get("observed", 0)
    if tokens is not None and type(tokens) is not int:
        odd["token_count"] = _as_odd(tokens)
        tokens = None
    if type(observed) is not int:
        odd["observed"] = _as_odd(observed)
        observed = 0
    if not _is_plain(row):
        for column in ("active", "compacted"):
            odd[column] = _as_odd(row.get(column, _DEFAULT[column]))
    columns: dict[str, Any] = {}
    if len(row) > len(_KNOWN) or not _KNOWN.issuperset(row):
        for column in row.keys() - _KNOWN:
            value = row[column]
            if isinstance(value, Odd):
                odd[column], value = value, as_text(value)
            if value is not None:
                columns[column] = value
    source_id = row.get("id")
    return e.MessageAppended(
        role,
        *texts,
        token_count=tokens,
        observed=observed,
        visibility=shown(row),
        source_id=source_id if isinstance(source_id, int) else None,
        seen=digest(row),
        timestamp=exact,
        columns=dict(sorted(columns.items())),
        odd=odd,
    )


def message_time_us(row: Mapping[str, Value]) -> int | None:
    """When the row says it was said, or None where it does not say it."""
    return time_us(row.get("timestamp"))


def source_row_of(
    payload: e.MessageAppended, *, at_us: int, session_id: str, columns: Iterable[str] | None = None
) -> Row:
    """The row that `payload` was made from; with `columns`, these and no others."""
    active, compacted = _ACTIVE[payload.visibility]
    row: Row = {
        "id": payload.source_id,
        "session_id": session_id,
        "role": payload.role,
        **{column: getattr(payload, column) for column in TEXTS},
        "timestamp": at_us / 1e6 if payload.timestamp is None else payload.timestamp,
        "token_count": payload.token_count,
        "observed": payload.observed,
        "active": active,
        "compacted": compacted,
        **payload.columns,
        **{column: value_of(each) for column, each in payload.odd.items()},
    }
    return row if columns is None else {column: row.get(column) for column in columns}


# --- a changed row -----------------------------------------------------------------------------------


def message_edited(old: Row, new: Row, *, message: int) -> e.MessageEdited | None:
    """What the row says otherwise; None where only its visibility moved, or nothing did."""
    plain = _is_plain(old) and _is_plain(new)
    changes: dict[str, Any] = {}
    odd: dict[str, Odd] = {}
    for column in sorted({*old, *new} - {*_KEYS}):
        if plain and column in ("active", "compacted"):
            continue
        default = _DEFAULT.get(column)
        value = new.get(column, default)
        if same(old.get(column, default), value):
            continue
        changes[column] = as_text(value) if isinstance(value, Odd) else value
        if isinstance(value, Odd):
            odd[column] = value
    return e.MessageEdited(message, changes, digest(new), odd) if changes else None


def message_after(row: Row, payload: object) -> Row:
    """The row as its source had it after a later event on it."""
    match payload:
        case e.MessageEdited() | e.SourceRowChanged(kind="message"):
            told = {column: value_of(each) for column, each in payload.odd.items()}
            return {**row, **payload.changes, **told}
        case _:
            return row


def with_visibility(row: Row, visibility: Visibility) -> Row:
    """The row, shown as `visibility` says."""
    active, compacted = _ACTIVE[visibility]
    return {**row, "active": active, "compacted": compacted}


def _as_odd(value: Value) -> Odd:
    return value if isinstance(value, Odd) else Odd("value", value)
