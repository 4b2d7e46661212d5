"""Between a message's row in another store and the events that say it: both ways, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

import msgspec

from . import events as e
from .events import Odd, Visibility
from .message import TEXTS
from .source_values import Row, Value, as_odd, as_text, same, time_us, told_by, value_of

_DEFAULT: Final[dict[str, Value]] = {"observed": 0, "active": 1, "compacted": 0}
_KEYS: Final = ("id", "session_id")
_SHOWING: Final = ("active", "compacted")
_KNOWN: Final = frozenset({*_KEYS, "role", *TEXTS, "timestamp", "token_count", *_DEFAULT})
_ACTIVE: Final[dict[Visibility, tuple[int, int]]] = {
    "live": (1, 0),
    "compacted": (0, 1),
    "rewound": (0, 0),
}
_SHOWN: Final[dict[tuple[Value, Value], Visibility]] = {pair: word for word, pair in _ACTIVE.items()}

_SAID: Final = ("session_id", "role", "timestamp", *TEXTS, "token_count", "observed")
_said = itemgetter(*_SAID)
_texts = itemgetter(*TEXTS)
_TEXT_TYPES: Final = frozenset({str, type(None)})
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
    try:
        values = _said(row)
    except KeyError:  # an older store lacks columns; they are at their defaults
        values = tuple(row.get(column, _DEFAULT.get(column)) for column in _SAID)
    if not _KNOWN.issuperset(row):
        further = sorted(row.keys() - _KNOWN)
        values += tuple((column, row[column]) for column in further if row[column] is not None)
    if not _is_plain(row):
        values += ((row.get("active", 1), row.get("compacted", 0)),)
    return hashlib.blake2b(_pack(values), digest_size=8).digest()


def message_appended(row: Mapping[str, Value], *, at_us: int) -> e.MessageAppended:
    """The event that brings the row; `source_row_of` gives the row back."""
    odd: dict[str, Odd] = {}
    try:
        texts: Any = _texts(row)
    except KeyError:
        texts = [row.get(column) for column in TEXTS]
    if not _TEXT_TYPES.issuperset(map(type, texts)):
        texts = [_text(column, value, odd) for column, value in zip(TEXTS, texts, strict=True)]
    role, timestamp, source_id = row.get("role"), row.get("timestamp"), row.get("id")
    if type(role) is not str:
        role = _text("role", role, odd) or ""
        odd.setdefault("role", Odd("value", None))
    exact: float | None = None
    if type(timestamp) is not float:
        odd["timestamp"] = as_odd(timestamp)
    elif not told_by(at_us, timestamp):
        exact = timestamp
    tokens, observed = row.get("token_count"), row.get("observed", 0)
    if tokens is not None and type(tokens) is not int:
        odd["token_count"], tokens = as_odd(tokens), None
    if type(observed) is not int:
        odd["observed"], observed = as_odd(observed), 0
    if not _is_plain(row):
        for column in ("active", "compacted"):
            odd[column] = as_odd(row.get(column, _DEFAULT[column]))
    return e.MessageAppended(
        role,
        **dict(zip(TEXTS, texts, strict=True)),
        token_count=tokens,
        observed=observed,
        visibility=shown(row),
        source_id=source_id if isinstance(source_id, int) else None,
        seen=digest(row),
        timestamp=exact,
        columns={} if _KNOWN.issuperset(row) else _further(row, odd),
        odd=dict(sorted(odd.items())) if odd else odd,
    )


def _text(column: str, value: Value, odd: dict[str, Odd]) -> str | None:
    if value is None or type(value) is str:
        return value
    odd[column] = as_odd(value)
    return as_text(value)


def _further(row: Mapping[str, Value], odd: dict[str, Odd]) -> dict[str, Any]:
    """Columns that no field is for."""
    columns: dict[str, Any] = {}
    for column in sorted(row.keys() - _KNOWN):
        value = row[column]
        if isinstance(value, Odd):
            odd[column], value = value, as_text(value)
        if value is not None:
            columns[column] = value
    return columns


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


def message_edited(old: Row, new: Row, *, message: int, at_us: int = 0) -> e.MessageEdited | None:
    """What the row says otherwise; None where only its visibility moved, or nothing did.

    `changes` hold what a new message's fields would: an edited row folds like one that came so.
    `at_us` is when it was said, for a row that does not say it.
    """
    changes: dict[str, Any] = {}
    odd: dict[str, Odd] = {}
    for column in sorted({*old, *new, *_SHOWING} - {*_KEYS}):
        default = _DEFAULT.get(column)
        value = new.get(column, default)
        if not same(old.get(column, default), value):
            changes[column] = _field(column, value, odd, at_us)
    if not changes.keys().isdisjoint(_SHOWING):
        changes = {column: value for column, value in changes.items() if column not in _SHOWING}
        if not (_is_plain(old) and _is_plain(new)):  # else an event of its own tells it
            changes |= zip(_SHOWING, _ACTIVE[shown(new)], strict=True)
            if not _is_plain(new):
                odd |= {column: as_odd(new.get(column, _DEFAULT[column])) for column in _SHOWING}
    return e.MessageEdited(message, changes, digest(new), odd) if changes else None


def _field(column: str, value: Value, odd: dict[str, Odd], at_us: int) -> Value:
    """What the column's field bears of the value; the rest is kept exact in `odd`."""
    if column in _SHOWING:
        return value
    if column in ("role", *TEXTS):
        text = _text(column, value, odd)
        if text is None and column == "role":
            odd["role"], text = Odd("value", None), ""
        return text
    if column == "timestamp" and type(value) is not float:
        odd[column] = as_odd(value)
        known_us = time_us(value)
        return (at_us if known_us is None else known_us) / 1e6
    if (column == "observed" or (column == "token_count" and value is not None)) and type(value) is not int:
        odd[column] = as_odd(value)
        return _DEFAULT.get(column)
    if isinstance(value, Odd):
        odd[column] = value
        return as_text(value)
    return value


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
