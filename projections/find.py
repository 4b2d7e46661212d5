"""Finds the session that a person means: by its id, the beginning of one, or a title."""

from __future__ import annotations

from datetime import UTC, datetime

from ..domain.errors import Ambiguous, BadUsage, DeletedSession, NoSuchSession, RuleBroken
from ..domain.shell import shell_word
from ..domain.titles import base_of, lineage_matches, lineage_number, spellings
from .base import Connection
from .deletions import Deletion, deletions_named
from .tree import tip

_LAST = "\U0010ffff"
SHOWN = 10
"""Candidates that an error lists; it says how many there are."""


def find_session(db: Connection, name: str, *, exact: bool = False) -> str:
    """The id of the session that `name` stands for.

    Tried in this order (REFERENCE.md 3): the whole id; the beginning of exactly one id; a title. A
    title means the newest of its lineage (`plan`, `plan #2`, …) and of that the last continuation;
    one that bears a number means just that session.

    Args:
        exact: a title means the session that bears just this one, where one does: for who changes it.

    Raises:
        BadUsage: no name at all. NoSuchSession: nothing bears that name.
        DeletedSession: what bore it was deleted.
        Ambiguous: several ids begin so; it lists them.
    """
    if not name.strip():
        raise BadUsage("no session is named", hint="give an id, the beginning of one, or a title")
    if db.execute("SELECT 1 FROM sessions WHERE id = ?", (name,)).fetchone():
        return name
    begun = _beginning(db, name)
    if len(begun) == 1:
        return begun[0]
    ways = ((_bearing, titled) if exact else (titled,)), spellings(name)
    found = (way(db, spelt) for way in ways[0] for spelt in ways[1])
    by_title = next((each for each in found if each is not None), None)
    if by_title is not None:
        return by_title
    if begun:
        total = db.execute(
            "SELECT count(*) FROM sessions WHERE id >= ? AND id < ?", (name, name + _LAST)
        ).fetchone()[0]
        more = f", of which these are {SHOWN}" if total > SHOWN else ""
        raise Ambiguous(
            f"{total} sessions have an id that begins with '{name}'{more}",
            candidates=begun,
            hint="give more of the id",
        )
    named = deletions_named(db, name)
    if len(named) == 1:
        raise _gone(named[0])
    raise NoSuchSession(f"no session has the id or title '{name}'", hint="see: retold sessions list --all")


def find_deleted(db: Connection, name: str) -> str:
    """The id of the deleted session that `name`, its id or the beginning of it, stands for.

    Raises:
        NoSuchSession: none does, or it is erased. RuleBroken: the session is not deleted.
        Ambiguous: several ids begin so; it lists them.
    """
    named = deletions_named(db, name) if name.strip() else []
    if len(named) == 1:
        if named[0].erased_position is not None:
            raise _gone(named[0])
        return named[0].session_id
    if named:
        raise Ambiguous(
            f"{len(named)} deleted sessions have an id that begins with '{name}'",
            candidates=[each.session_id for each in named[:SHOWN]],
            hint="give more of the id",
        )
    found = find_session(db, name)
    raise RuleBroken(f"session {found} is not deleted", hint="nothing was written")


def _gone(deleted: Deletion) -> NoSuchSession:
    """Who deleted it, when and why, and whether it can be brought back."""
    why = f" ({deleted.reason})" if deleted.reason else ""
    said = f"session {deleted.session_id} was deleted {_local(deleted.at_us)} by {deleted.actor}{why}"
    if deleted.erased_position is not None:
        return NoSuchSession(
            f"{said} and erased (#{deleted.erased_position})", hint="a backup from before may hold it"
        )
    return DeletedSession(
        f"{said}, can be undeleted until {_local(deleted.erase_after_us)}",
        session_id=deleted.session_id,
        erase_after_us=deleted.erase_after_us,
        hint=f"bring it back with: retold sessions undelete {shell_word(deleted.session_id)}",
    )


def _local(at_us: int) -> str:
    """Where this machine is, as all that people read."""
    try:
        return f"{datetime.fromtimestamp(at_us // 1_000_000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{at_us} us"


def _beginning(db: Connection, name: str) -> list[str]:
    rows = db.execute(
        "SELECT id FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT ?", (name, name + _LAST, SHOWN)
    )
    return [row[0] for row in rows]


def titles_in_line(db: Connection, base: str) -> list[str]:
    """Every title that begins as `base` and its numbered ones do: `plan`, `plan #2`, `plan #bar`."""
    rows = db.execute(
        "SELECT title FROM sessions WHERE title = ? OR (title > ? AND title < ?)",
        (base, f"{base} #", f"{base} #{_LAST}"),
    )
    return [row[0] for row in rows if isinstance(row[0], str)]


def _bearing(db: Connection, title: str) -> str | None:
    """The session that bears just this title; one that claimed it goes before one that did not."""
    row = db.execute(
        "SELECT id FROM sessions WHERE title = ?"
        " ORDER BY title_claimed DESC, started_us DESC, id DESC LIMIT 1",
        (title,),
    ).fetchone()
    return None if row is None else str(row[0])


def titled(db: Connection, title: str) -> str | None:
    """The session that a title leads to; a title that its session claimed goes before one it did not."""
    rows: list[tuple[int, int, str, str]] = [
        (claimed, started_us, session_id, other)
        for session_id, other, claimed, started_us in db.execute(
            "SELECT id, title, title_claimed, started_us FROM sessions"
            " WHERE title = ? OR (title > ? AND title < ?)",
            (title, f"{title} #", f"{title} #{_LAST}"),
        )
        if lineage_matches(title, other)
    ]
    numbered = [row for row in rows if row[3] != title]
    asked_by_number = base_of(title) != title and lineage_number(title) > 1
    if not rows:
        return None
    exact = [row for row in rows if row[3] == title]
    if asked_by_number and exact:
        return max(exact)[2]
    return tip(db, max(numbered or exact)[2])
