"""The list of sessions: one row a conversation, and an exact account of what it leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Literal, TypeAlias

import msgspec

from .base import Connection
from .sessions import _LINE, SessionLine, line, with_preview
from .tree import chain_root, tip

Hidden: TypeAlias = Literal["over_limit", "archived", "older_segments", "delegates", "children", "tool"]
REASONS: tuple[Hidden, ...] = ("over_limit", "archived", "older_segments", "delegates", "children", "tool")
_SHOWN_KINDS = (None, "branch", "reset", "continuation")
WORKSPACE = "coalesce(nullif(s.git_repo_root, ''), nullif(s.cwd, ''))"
"""What a session's project is called: its repository's root, else its folder (REFERENCE.md 3)."""


class Listing(msgspec.Struct, frozen=True):
    """What is pinned, then the rest, each by last activity; and how many are not among them, by reason."""

    rows: list[SessionLine]
    not_shown: dict[Hidden, int]


def list_sessions(
    db: Connection,
    *,
    limit: int | None = 20,
    source: str | None = None,
    workspace: str | None = None,
    everything: bool = False,
    offset: int = 0,
) -> Listing:
    """Conversations, pinned ones before all else, the one last active first; the smaller id of two equal.

    Of a chain of continuations only its last segment is a row. Left out, unless `everything`: older segments,
    archived sessions, and children but for branches and the sessions that a reset began. Sessions of source
    "tool" are left out unless that source is asked for. What `source` or `workspace` rules out is not counted
    as left out. A `limit` of None is none; `offset` passes over so many rows, and what these cost is paid.
    """
    where, values = _filters(db, source, workspace)
    end = None if limit is None else offset + limit
    if everything:
        by_pin = (_every(db, f"{where} AND {each}", values) for each in PINNED_FIRST)
        found = [with_preview(db, each) for each in islice(chain.from_iterable(by_pin), offset, end)]
        every = db.execute(f"SELECT count(*) FROM sessions s WHERE {where}", values).fetchone()[0]
        return Listing(found, {each: every - len(found) if each == "over_limit" else 0 for each in REASONS})
    by_pin = (conversations(db, f"{where} AND {each}", values, source) for each in PINNED_FIRST)
    shown = [with_preview(db, each) for each in islice(chain.from_iterable(by_pin), offset, end)]
    return Listing(shown, _account(db, where, values, source, len(shown)))


def _every(db: Connection, where: str, values: list[Any]) -> Iterator[SessionLine]:
    for row in db.execute(f"SELECT {_LINE} FROM sessions s WHERE {where} ORDER BY {_ACTIVITY}", values):
        yield line(row)


PINNED_FIRST = ("s.pinned = 1", "+s.pinned = 0")
"""Two looks, so that each takes an index in its order; the plus keeps the second off the first one's."""


def nothing_there(db: Connection, *, source: str | None = None, workspace: str | None = None) -> list[str]:
    """Where nothing was found, a sentence for each filter that lets no session here through."""
    said = []
    if source is not None:
        here = [row[0] for row in db.execute("SELECT DISTINCT source FROM sessions ORDER BY source")]
        if source not in here:
            said.append(f"no session here is of source '{source}'; there are: {', '.join(here) or 'none'}")
    if workspace is not None:
        where, values = _filters(db, None, workspace)
        if not db.execute(f"SELECT 1 FROM sessions s WHERE {where} LIMIT 1", values).fetchone():
            said.append(f"no session here has '{workspace}' in the path of its folder")
    return said


_ACTIVITY = "coalesce(s.last_active_us, s.started_us) DESC, s.id"


def _filters(db: Connection, source: str | None, workspace: str | None) -> tuple[str, list[Any]]:
    where, values = ["1"], list[Any]()
    if source is not None:
        where.append("+s.source = ?")
        values.append(source)
    if workspace is not None:
        # A basename that is equal contains it, too, so one test is enough. Python compares, since
        # SQLite's lower() knows ASCII only.
        needle = workspace.casefold()
        known = db.execute(f"SELECT DISTINCT {WORKSPACE} FROM sessions s WHERE {WORKSPACE} IS NOT NULL")
        named = [row[0] for row in known if needle in str(row[0]).casefold()]
        where.append(f"{WORKSPACE} IN ({','.join('?' * len(named))})")
        values += named
    return " AND ".join(where), values


# --- the rows -------------------------------------------------------------------------------------


def conversations(
    db: Connection, where: str = "1", values: Sequence[Any] = (), source: str | None = None
) -> Iterator[SessionLine]:
    """The rows of a list by last activity, found one by one, so that a limit costs what it shows."""
    # The unary pluses keep SQLite on the index of activity, where it would sort every session.
    tool = "" if source == "tool" else " AND +s.source <> 'tool'"
    rows = db.execute(
        f"SELECT {_LINE}, s.parent_kind, EXISTS (SELECT 1 FROM sessions c WHERE c.parent_session_id = s.id"
        f" AND c.parent_kind = 'continuation') FROM sessions s WHERE {where} AND +s.archived = 0{tool}"
        " AND (+s.parent_kind IS NULL OR +s.parent_kind IN ('branch', 'reset', 'continuation'))"
        f" ORDER BY {_ACTIVITY}",
        values,
    )
    goes_on: dict[str, bool] = {}
    for row in rows:
        *columns, kind, continued = row
        if continued and _leads_on(db, columns[0], goes_on):
            continue
        if kind == "continuation" and not _is_shown(_kind(db, chain_root(db, columns[0]))):
            continue
        yield line(columns)


def _leads_on(db: Connection, session_id: str, known: dict[str, bool]) -> bool:
    """Whether some continuation of a session is the last; not so where they run in a circle.

    Of a circle the session that comes first in the list stands for it, and hides the others.
    """
    path: dict[str, None] = {}
    waiting = [session_id]
    while waiting:
        at = waiting.pop()
        if at in path:
            continue
        path[at] = None
        if at in known:
            ends = known[at]
        else:
            after = db.execute(
                "SELECT id FROM sessions WHERE parent_session_id = ? AND parent_kind = 'continuation'", (at,)
            ).fetchall()
            waiting += [row[0] for row in after]
            ends = not after
        if ends:
            known.update(dict.fromkeys(path, True))
            return True
    known.update(dict.fromkeys(path, True))
    return False


def _kind(db: Connection, session_id: str) -> str | None:
    row = db.execute("SELECT parent_kind FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return row[0] if row else None


def _is_shown(kind: str | None) -> bool:
    return kind in _SHOWN_KINDS


def hidden_by(db: Connection, session_id: str) -> Hidden | None:
    """Why a session that exists is no row of a list without filters; None where it is one.

    What it is goes before what was done with it, as in the account.
    """
    kind, archived, its_source = db.execute(
        "SELECT parent_kind, archived, source FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    root = _kind(db, chain_root(db, session_id)) if kind == "continuation" else kind
    if _is_shown(root) and tip(db, session_id) != session_id:
        return "older_segments"
    why = _reason(root, archived, its_source, None)
    return None if why == "over_limit" else why


# --- the account ----------------------------------------------------------------------------------


def _account(
    db: Connection, where: str, values: list[Any], source: str | None, shown: int
) -> dict[Hidden, int]:
    """Why sessions are left out, each counted once: what it is goes before what was done with it."""
    found: Counter[Hidden] = Counter()
    for kind, archived, its_source, count in db.execute(
        "SELECT s.parent_kind, s.archived, s.source, count(*) FROM sessions s"
        f" WHERE {where} GROUP BY s.parent_kind, s.archived, s.source",
        values,
    ):
        if kind != "continuation":
            found[_reason(kind, archived, its_source, source)] += count
    # Chains are few; they alone are looked at one by one.
    links = db.execute(
        "SELECT s.id, s.parent_session_id, s.archived, s.source, p.parent_kind, p.archived, p.source,"
        " p.id IS NOT NULL FROM sessions s LEFT JOIN sessions p ON p.id = s.parent_session_id"
        " WHERE s.parent_session_id IS NOT NULL AND s.parent_kind = 'continuation'"
    ).fetchall()
    if links:
        _account_chains(db, links, found, source, _chosen(db, where, values, links))
    visible = found["over_limit"]
    return {reason: (visible - shown if reason == "over_limit" else found[reason]) for reason in REASONS}


def _chosen(db: Connection, where: str, values: list[Any], links: list[Any]) -> set[str] | None:
    """Those sessions of chains that the filters let through; None for all."""
    if where == "1":
        return None
    members = {row[0] for row in links} | {row[1] for row in links}
    return {
        row[0]
        for row in db.execute(f"SELECT s.id FROM sessions s WHERE {where}", values)
        if row[0] in members
    }


def _account_chains(
    db: Connection, links: list[Any], found: Counter[Hidden], source: str | None, chosen: set[str] | None
) -> None:
    roots, circles = _roots(links)
    parents = {row[1] for row in links}
    moved: set[str] = set()
    for session_id, parent, archived, its_source, kind, p_archived, p_source, there in links:
        if chosen is None or session_id in chosen:
            root = roots[session_id]
            older = session_id in parents and _is_shown(root)
            found["older_segments" if older else _reason(root, archived, its_source, source)] += 1
        # A chain's root was counted with the sessions that have no chain.
        if there and parent not in roots and parent not in moved and (chosen is None or parent in chosen):
            moved.add(parent)
            if _is_shown(kind):
                found[_reason(kind, p_archived, p_source, source)] -= 1
                found["older_segments"] += 1
    for circle in circles:
        stands = _first_active(db, circle, source)
        if stands is not None and (chosen is None or stands in chosen):
            found["older_segments"] -= 1
            found["over_limit"] += 1


def _roots(links: list[Any]) -> tuple[dict[str, str | None], list[list[str]]]:
    """For each continuation the kind of its chain's first segment; and the circles without a last one.

    Where the first segment's parent is missing, or there is none for going round, it is a
    "continuation" itself.
    """
    parents = {row[0]: row[1] for row in links}
    kinds = {row[1]: row[4] for row in links if row[7]}
    roots: dict[str, str | None] = {}
    circles = []
    for start in parents:
        path: dict[str, None] = {}
        at = start
        while at in parents and at not in roots and at not in path:
            path[at] = None
            at = parents[at]
        if at in path:
            steps = list(path)
            circle = steps[steps.index(at) :]
            if not any(parent in circle and child not in circle for child, parent in parents.items()):
                circles.append(circle)
            kind: str | None = "continuation"
        else:
            kind = roots[at] if at in roots else kinds.get(at, "continuation")
        roots.update(dict.fromkeys(path, kind))
    return roots, circles


def _first_active(db: Connection, circle: list[str], source: str | None) -> str | None:
    """The session that stands for a circle in the list."""
    tool = "" if source == "tool" else " AND source <> 'tool'"
    row = db.execute(
        f"SELECT s.id FROM sessions s WHERE s.id IN ({','.join('?' * len(circle))}) AND s.archived = 0{tool}"
        f" ORDER BY {_ACTIVITY} LIMIT 1",
        circle,
    ).fetchone()
    return None if row is None else str(row[0])


def _reason(kind: str | None, archived: int, its_source: str, source: str | None) -> Hidden:
    """Why a session of this kind is left out; "over_limit" for one that only a limit can hide."""
    if kind == "delegate":
        return "delegates"
    if not _is_shown(kind):
        return "children"
    if its_source == "tool" and source != "tool":
        return "tool"
    return "archived" if archived else "over_limit"
