"""Between a session's row in another store and the events that say it: both ways, nothing lost.

A row is held in normal form (`settled`): columns at their default are left out, so a store that
gains columns has not changed. What no event of its own can say, SourceRowChanged says, so folding
the payloads of a change over the old row always gives the new one.

Over 400 lines because both ways stand together: what one writes the other has to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from . import events as e
from .ends import COMPRESSION, SESSION_RESET, is_hard
from .events import Odd, Payload
from .source_values import Row, Value, as_odd, as_text, same, time_us, told_by, value_of

IDENTITY: Final = (
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "user_id",
    "display_name",
    "origin_json",
)
END: Final = ("ended_at", "end_reason")
WORKSPACE: Final = ("cwd", "git_branch", "git_repo_root")
MODEL: Final = ("model", "model_config")
TOKENS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
COSTS: Final = ("estimated_cost_usd", "actual_cost_usd")
BILLING: Final = ("billing_provider", "billing_base_url", "billing_mode")
PRICING: Final = ("cost_status", "cost_source", "pricing_version")
HANDOFF: Final = ("handoff_state", "handoff_platform", "handoff_error")
USAGE: Final = (*TOKENS, *COSTS, *BILLING, *PRICING)
ASPECTS: Final = (
    END,
    IDENTITY,
    ("title",),
    ("archived",),
    ("pinned",),
    WORKSPACE,
    MODEL,
    ("system_prompt_hash",),
    USAGE,
    HANDOFF,
)
"""Columns that one event tells together: a change of one here and of another there is a conflict."""

TELLS: Final = {*END, "title", "archived", "pinned", "system_prompt_hash", *USAGE}
"""Columns that a new session's later events tell, not its first."""
_CREATED: Final = (*IDENTITY, "parent_session_id", *MODEL, *WORKSPACE, "profile_name")
_ZERO: Final = frozenset(
    {
        *TOKENS,
        "archived",
        "pinned",
        "hidden",
        "expiry_finalized",
        "rewind_count",
        "compression_fallback_streak",
        "compression_ineffective_count",
        "git_metadata_generation",
    }
)
PARENT_KIND: Final = "parent_kind"
"""In the changes of a session's row: what it is to its parent, as judged here."""
THEIR_PARENT_KIND: Final = "source.parent_kind"
"""A column of the source that bears our name: its own, so under another."""
_NOT_KEPT: Final = frozenset({"id", "message_count", "tool_call_count", PARENT_KIND})
"""The key, what is counted here, and what is ours."""
_TEXTS: Final = frozenset({*_CREATED, "source", "title", "end_reason", "system_prompt_hash"})

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(dict[str, Any]).decode


def default(column: str) -> Value:
    """What the store itself gives rows when it adds the column."""
    return 0 if column in _ZERO else None


def settled(row: Mapping[str, Value]) -> Row:
    """The row in normal form."""
    return {c: v for c, v in row.items() if c not in _NOT_KEPT and not same(v, default(c))}


def packed(row: Row) -> bytes:
    """A row in normal form as bytes; equal rows give equal bytes."""
    return _pack(dict(sorted(row.items())))


def unpacked(stored: bytes) -> Row:
    """The inverse of `packed`."""
    return {c: _odd(v) if isinstance(v, list) else v for c, v in _unpack(stored).items()}


def differing(one: Row, other: Row, among: Iterable[str] | None = None) -> list[str]:
    """The columns whose values differ, by name."""
    columns = sorted({*one, *other}) if among is None else among
    return [c for c in columns if not same(_of(one, c), _of(other, c))]


# --- a new session -----------------------------------------------------------------------------------


def session_created(
    row: Row, *, at_us: int, parent_kind: e.ParentKind | None = None, store: str | None = None
) -> e.SessionCreated:
    """The session's first event: its identity, and all that has no event of its own."""
    odd: dict[str, Odd] = {}
    fields = {column: _field(column, row.get(column), odd, at_us) for column in (*_CREATED, "source")}
    started = row.get("started_at")
    if not told_by(at_us, started) and type(started) is not float:
        odd["started_at"] = as_odd(started)
    columns: dict[str, Any] = {}
    for column, value in row.items():
        if column in TELLS or column in _CREATED or column in ("source", "started_at"):
            continue
        columns[column] = _field(column, value, odd, at_us)
    return e.SessionCreated(
        **cast("dict[str, Any]", fields),
        parent_kind=parent_kind,
        started_at=started if type(started) is float and not told_by(at_us, started) else None,
        columns=columns,
        odd=odd,
        store=store,
    )


def seen_after(row: Row, payload: Payload, at_us: int) -> Row:
    """The row as its source had it when `payload` was written at `at_us`."""
    changes = _told(row, payload, at_us)
    return settled({**({} if isinstance(payload, e.SessionCreated) else row), **changes}) if changes else row


def here_after(row: Row, payload: Payload, at_us: int) -> Row:
    """The row as it is here: as `seen_after`, but what was changed on both sides stays ours."""
    if isinstance(payload, e.SourceRowChanged) and payload.conflicts:
        ours = {c: v for c, v in payload.changes.items() if c not in payload.conflicts}
        odd = {c: v for c, v in payload.odd.items() if c not in payload.conflicts}
        payload = msgspec.structs.replace(payload, changes=ours, odd=odd)
    return seen_after(row, payload, at_us)


def _told(row: Row, payload: Payload, at_us: int) -> Row:
    match payload:
        case e.SessionCreated():
            return _created(payload, at_us)
        case e.SourceRowChanged(kind="session"):
            return {**payload.changes, **_values(payload.odd)}
        case e.IdentityLost() | e.IdentityRestored():
            return dict(payload.now)
        case e.SessionTitled():
            return {"title": payload.title}
        case e.SessionCompressed():
            return {"ended_at": _ended(payload, at_us), "end_reason": COMPRESSION}
        case e.SessionEnded():
            return {"ended_at": _ended(payload, at_us), "end_reason": payload.reason}
        case e.SessionReset():
            return {"ended_at": at_us / 1e6, "end_reason": SESSION_RESET}
        case e.SessionReopened():
            return {"ended_at": None, "end_reason": None}
        case e.SessionArchived() | e.SessionUnarchived():
            return {"archived": int(isinstance(payload, e.SessionArchived))}
        case e.SessionPinned() | e.SessionUnpinned():
            return {"pinned": int(isinstance(payload, e.SessionPinned))}
        case e.WorkspaceChanged():
            return {c: getattr(payload, c) for c in WORKSPACE}
        case e.ModelChanged():
            return {c: getattr(payload, c) for c in MODEL}
        case e.PromptChanged():
            return {"system_prompt_hash": payload.prompt_hash}
        case e.UsageRecorded(model=None):
            return _used(row, payload)
        case _:
            return _handed(payload)


def _handed(payload: Payload) -> Row:
    match payload:
        case e.HandoffRequested():
            return dict(zip(HANDOFF, ("pending", payload.platform, None), strict=True))
        case e.HandoffClaimed():
            return {"handoff_state": "running"}
        case e.HandoffCompleted():
            return dict(zip(HANDOFF, ("completed", payload.platform, None), strict=True))
        case e.HandoffFailed():
            return {"handoff_state": "failed", "handoff_error": payload.reason}
        case _:
            return {}


def _created(p: e.SessionCreated, at_us: int) -> Row:
    row: Row = {column: getattr(p, column) for column in _CREATED}
    row["source"] = p.source
    row["started_at"] = at_us / 1e6 if p.started_at is None else p.started_at
    return {**row, **p.columns, **_values(p.odd)}


def _ended(payload: e.SessionEnded | e.SessionCompressed, at_us: int) -> float:
    return at_us / 1e6 if payload.ended_at is None else payload.ended_at


def _used(row: Row, p: e.UsageRecorded) -> Row:
    told: Row = {}
    for column in (*TOKENS, *COSTS):
        value = getattr(p, column)
        if p.mode == "delta":
            before = _of(row, column)
            if value is None:
                continue
            value += before if isinstance(before, (int, float)) else 0
        told[column] = value
    return {**told, **p.columns}


# --- a changed session -------------------------------------------------------------------------------


def session_payloads(
    old: Row,
    new: Row,
    *,
    continuation: str | None = None,
    parent_kind: e.ParentKind | None = None,
    at_us: int = 0,
) -> list[Payload]:
    """What happened between two sights of a row; folded over `old` they give `new`.

    `continuation` is the child that compression made, `parent_kind` what `new` is to its parent,
    `at_us` when it began, for a row that does not say it.
    """
    payloads: list[Payload] = []
    row = old
    for payload in _typed(old, new, continuation):
        after = seen_after(row, payload, 0)
        if differing(row, after):  # else it can say no more than was said
            payloads.append(payload)
            row = after
    rest = differing(row, new)
    if rest:
        payloads.append(_changed(new, rest, parent_kind, at_us))
    return payloads


def session_changes(
    seen: Row,
    here: Row,
    new: Row,
    *,
    row_id: str,
    continuation: str | None = None,
    parent_kind: e.ParentKind | None = None,
    at_us: int = 0,
) -> list[Payload]:
    """The three-way comparison: a row as last seen in its source, as it is here, as it is there now.

    What changed there only becomes events of its kind. Of what changed on both sides ours stays;
    the last payload then names those columns, and moves only what was last seen.
    """
    contested = []
    for aspect in _aspects(seen, new):
        changed = differing(seen, new, aspect)
        if changed and differing(seen, here, aspect):
            contested += changed
    agreed = settled({**new, **{c: _of(seen, c) for c in contested}})
    payloads = [
        msgspec.structs.replace(p, row=row_id) if isinstance(p, e.SourceRowChanged) else p
        for p in session_payloads(
            seen, agreed, continuation=continuation, parent_kind=parent_kind, at_us=at_us
        )
    ]
    if contested:
        changed_there = _changed(new, sorted(contested), parent_kind, at_us)
        conflicts = differing(here, new, sorted(contested))
        changed_there.changes.pop(PARENT_KIND, None)  # what it is to a parent that was named here, ours says
        ours = {c: _readable(_of(here, c)) for c in conflicts}
        payloads.append(msgspec.structs.replace(changed_there, row=row_id, conflicts=conflicts, ours=ours))
    return payloads


def session_continued(row: Row, here: Row, continuation: str, *, row_id: str) -> list[Payload]:
    """What is told of a session that had ended by compression before its continuation came.

    `row` is the session in its source, which says of its end what it said before; `here` as in
    `session_changes`. Nothing where the session stands otherwise here: ours stays.
    """
    if differing(row, here, END):
        return []
    at = row.get("ended_at")
    compressed = e.SessionCompressed(continuation, float(at) if isinstance(at, (int, float)) else None)
    rest = differing(seen_after(row, compressed, 0), row)
    if not rest:
        return [compressed]
    return [compressed, msgspec.structs.replace(_changed(row, rest, None, 0), row=row_id)]


def _aspects(seen: Row, new: Row) -> Iterator[tuple[str, ...]]:
    yield from ASPECTS
    together = {column for aspect in ASPECTS for column in aspect}
    yield from ((column,) for column in sorted({*seen, *new} - together))


def _typed(old: Row, new: Row, continuation: str | None) -> Iterator[Payload]:
    yield from _end(old, new, continuation)
    yield from _identity(old, new)
    title = new.get("title")
    if differing(old, new, ("title",)):
        yield e.SessionTitled(title if isinstance(title, str) else None)
    for column, on, off in (
        ("archived", e.SessionArchived, e.SessionUnarchived),
        ("pinned", e.SessionPinned, e.SessionUnpinned),
    ):
        if bool(_of(old, column)) != bool(_of(new, column)):
            yield on() if _of(new, column) else off()
    for columns, event in ((WORKSPACE, e.WorkspaceChanged), (MODEL, e.ModelChanged)):
        if differing(old, new, columns) and all(_is_text(new.get(c)) for c in columns):
            yield event(**{c: cast("Any", new.get(c)) for c in columns})
    prompt = new.get("system_prompt_hash")
    if differing(old, new, ("system_prompt_hash",)) and _is_text(prompt):
        yield e.PromptChanged(cast("str | None", prompt))
    if differing(old, new, USAGE):
        yield _usage(old, new)


def _end(old: Row, new: Row, continuation: str | None) -> Iterator[Payload]:
    if not differing(old, new, END):
        return
    at, reason = new.get("ended_at"), new.get("end_reason")
    if at is None:
        if old.get("ended_at") is not None:
            yield e.SessionReopened()
        return
    ended_at = float(at) if isinstance(at, (int, float)) else None
    if ended_at is None and old.get("ended_at") is not None:
        return  # it had ended, and the new time is none: no end can say it
    if reason == COMPRESSION and continuation is not None:
        yield e.SessionCompressed(continuation, ended_at)
    else:
        known = reason if isinstance(reason, str) else None
        yield e.SessionEnded(known, is_hard(known), ended_at)


def _identity(old: Row, new: Row) -> Iterator[Payload]:
    changed = [c for c in differing(old, new, IDENTITY) if _is_text(new.get(c))]
    gone = [c for c in changed if new.get(c) is None]
    if gone:
        yield e.IdentityLost({c: _readable(old.get(c)) for c in gone}, dict.fromkeys(gone))
    now = {c: _readable(new[c]) for c in changed if c not in gone}
    if now:
        yield e.IdentityRestored({c: _readable(old.get(c)) for c in now}, now)


def _usage(old: Row, new: Row) -> e.UsageRecorded:
    fields: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    for names, kind in ((TOKENS, int), (COSTS, float)):
        for column in names:
            value = _of(new, column)
            if type(value) is kind:
                fields[column] = value
            elif not isinstance(value, Odd) and (value is not None or kind is int):
                columns[column] = value
    for column in (*BILLING, *PRICING):  # the fields name a model's share, these the session's
        value = new.get(column)
        if not isinstance(value, Odd) and not same(old.get(column), value):
            columns[column] = value
    return e.UsageRecorded("absolute", **fields, columns=columns)


def _changed(
    new: Row, columns: list[str], parent_kind: e.ParentKind | None, at_us: int
) -> e.SourceRowChanged:
    odd: dict[str, Odd] = {}
    changes: dict[str, Any] = {c: _field(c, _of(new, c), odd, at_us) for c in columns}
    if "parent_session_id" in changes:
        changes[PARENT_KIND] = parent_kind
    return e.SourceRowChanged("session", "", changes, odd=odd)


# --- values ------------------------------------------------------------------------------------------


def _of(row: Row, column: str) -> Value:
    return row[column] if column in row else default(column)


def _is_text(value: Value) -> bool:
    return value is None or isinstance(value, str)


def _field(column: str, value: Value, odd: dict[str, Odd], at_us: int) -> e.Scalar:
    """The value as a session's row here can bear it; what that loses is kept exact in `odd`."""
    if column == "source" and value is None:
        odd[column] = Odd("value", None)
        return "unknown"
    if column == "started_at" and type(value) is not float:
        odd[column] = as_odd(value)
        known_us = time_us(value)
        return (at_us if known_us is None else known_us) / 1e6
    if isinstance(value, Odd) or (column in _TEXTS and not _is_text(value)):
        odd[column] = as_odd(value)
        return as_text(value)
    return value


def _readable(value: Value) -> e.Scalar:
    return as_text(value) if isinstance(value, Odd) else value


def _odd(stored: list[Any]) -> Odd:
    return Odd(*stored)


def _values(odd: Mapping[str, Odd]) -> Row:
    return {column: value_of(each) for column, each in odd.items()}
