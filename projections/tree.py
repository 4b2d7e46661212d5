"""Walks between sessions: the chain that a session belongs to, and everything around it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .base import Connection
from .deletions import is_deleted

CONTINUATION = "continuation"
ROOT = "root"
"""The kind of a session that came from no other."""


class Segment(msgspec.Struct, frozen=True):
    """One session of a chain, and what kind of child it is."""

    session_id: str
    kind: str


class Node(msgspec.Struct, frozen=True):
    """A line of a tree.

    Attributes:
        last: for each level from the second on, whether the ancestor there (at the end: this node)
            is the last of its siblings. That is all that drawing needs.
        missing: another session names it as its parent, and it is not here.
        again: it stands further up already: the parents run in a circle.
    """

    session_id: str
    kind: str
    parent_id: str | None
    title: str | None
    source: str | None
    message_count: int
    end_reason: str | None
    archived: bool
    last: tuple[bool, ...]
    missing: bool = False
    deleted: bool = False
    """It is missing since it was deleted, or pruned."""
    again: bool = False


def chain(db: Connection, session_id: str) -> list[Segment]:
    """The conversation that a session is a segment of, root first.

    Only continuations are followed: a delegate, a branch or a reset child is another conversation
    (FIELD_CASES C9, A14). Of several continuations the one that `tip` would choose is followed, but
    never away from the session itself.
    """
    above = _above(db, session_id)
    below = _below(db, session_id, set(above))
    ids = [*above, session_id, *below]
    kind = db.execute("SELECT parent_kind FROM sessions WHERE id = ?", (ids[0],)).fetchone()
    first = Segment(ids[0], (kind[0] if kind else None) or ROOT)
    return [first, *(Segment(each, CONTINUATION) for each in ids[1:])]


def tip(db: Connection, session_id: str) -> str:
    """Where the conversation goes on: the last continuation, or the session itself.

    Of several continuations, one that did not end for good goes before one that did; then the one
    where anything was said last (FIELD_CASES C7, C14). Clocks decide nothing else.
    """
    below = _below(db, session_id, set())
    return below[-1] if below else session_id


def chain_root(db: Connection, session_id: str) -> str:
    """The first segment of a session's chain."""
    above = _above(db, session_id)
    return above[0] if above else session_id


def _above(db: Connection, session_id: str) -> list[str]:
    """The segments before a session, root first; a parent that is missing or met before ends it."""
    found: list[str] = []
    seen = {session_id}
    at = session_id
    while True:
        row = db.execute(
            "SELECT p.id FROM sessions c JOIN sessions p ON p.id = c.parent_session_id"
            " WHERE c.id = ? AND c.parent_kind = 'continuation'",
            (at,),
        ).fetchone()
        if row is None or row[0] in seen:
            return found[::-1]
        at = row[0]
        seen.add(at)
        found.append(at)


def _below(db: Connection, session_id: str, seen: set[str]) -> list[str]:
    """The segments after a session, in order."""
    seen = {*seen, session_id}
    found: list[str] = []
    at = session_id
    while True:
        children = [each for each in continuations(db, at) if each not in seen]
        if not children:
            return found
        if len(children) == 1:
            path = children
        else:
            path = max(([each, *_below(db, each, seen)] for each in children), key=lambda p: _rank(db, p[-1]))
        seen.update(path)
        found += path
        if len(children) > 1:
            return found
        at = path[-1]


def continuations(db: Connection, session_id: str, *, deleted: bool = False) -> list[str]:
    """What a session goes on as: one, where nothing is amiss.

    Args:
        deleted: also what was deleted, and may come back.
    """
    of = "SELECT id FROM {} WHERE parent_session_id = :parent AND parent_kind = 'continuation'"
    tables = ("sessions", "deleted_sessions") if deleted else ("sessions",)
    rows = db.execute(f"{' UNION '.join(map(of.format, tables))} ORDER BY 1", {"parent": session_id})
    return [row[0] for row in rows]


def _rank(db: Connection, session_id: str) -> tuple[bool, int, int, str]:
    hard, active_us, started_us = db.execute(
        "SELECT hard_end, coalesce(last_active_us, started_us), started_us FROM sessions WHERE id = ?",
        (session_id,),
    ).fetchone()
    return not hard, active_us, started_us, session_id


# --- the whole tree -------------------------------------------------------------------------------

_NODE = (
    "SELECT id, parent_session_id, parent_kind, title, source, message_count, end_reason, archived"
    " FROM sessions WHERE id = ?"
)


def tree(db: Connection, session_id: str) -> Iterator[Node]:
    """Everything linked to a session: from its oldest ancestor down, in the order of drawing."""
    top = _top(db, session_id)
    seen: set[str] = set()
    waiting: list[tuple[str, str | None, str, tuple[bool, ...]]] = [(top, None, "", ())]
    while waiting:
        at, parent, kind, last = waiting.pop()
        row = db.execute(_NODE, (at,)).fetchone()
        if row is None:
            yield Node(
                at,
                kind or ROOT,
                parent,
                None,
                None,
                0,
                None,
                False,
                last,
                missing=True,
                deleted=is_deleted(db, at),
            )
        else:
            yield Node(
                at,
                row[2] or ROOT,
                row[1],
                row[3],
                row[4],
                row[5] or 0,
                row[6],
                bool(row[7]),
                last,
                again=at in seen,
            )
        if at in seen:
            continue
        seen.add(at)
        children = db.execute(
            "SELECT id, parent_kind FROM sessions WHERE parent_session_id = ?"
            " ORDER BY started_us DESC, id DESC",
            (at,),
        ).fetchall()
        waiting += [
            (child, at, child_kind or "child", (*last, index == 0))
            for index, (child, child_kind) in enumerate(children)
        ]


def _top(db: Connection, session_id: str) -> str:
    """The oldest ancestor by links of every kind; one that is missing counts."""
    seen = [session_id]
    while True:
        row = db.execute("SELECT parent_session_id FROM sessions WHERE id = ?", (seen[-1],)).fetchone()
        if row is None or row[0] is None or row[0] in seen:
            return seen[-1]
        seen.append(row[0])
