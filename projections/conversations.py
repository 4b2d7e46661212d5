"""Which conversation each of many sessions belongs to, read in a few queries: for thousands of hits."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from .base import Connection

HIDDEN_SOURCES = ("tool", "subagent")
HIDDEN_KINDS = ("delegate", "tool")
_THESE = "FROM json_each(?) asked CROSS JOIN sessions s ON s.id = asked.value"
"""The given sessions as they come; `IN` would sort them first."""
_PASSED_OVER = 4
"""Sessions that a walk through the table passes over in no more time than it takes to look one up."""


class _Session(msgspec.Struct, gc=False):
    source: str
    parent: str | None
    kind: str | None


class Conversations:
    """Of the sessions given, those about which there is something to know, and their ancestors.

    Most sessions came from nowhere and belong to a person: they are their own conversation, and it
    costs next to nothing to find that they are not among the others. Where the sessions given are many
    of all there are, others are known as well.
    """

    def __init__(self, db: Connection, ids: Collection[str]) -> None:
        self._db = db
        self._ids = ids
        self._known: dict[str, _Session] = {}
        at_most = db.execute("SELECT coalesce(max(rowid), 0) FROM sessions").fetchone()[0]
        if at_most <= _PASSED_OVER * len(ids):
            self._read("FROM sessions s")
            return
        waiting: Collection[str] = ids
        while waiting:
            found = self._read(_THESE, _json(waiting))
            # A parent that was asked about and is not known is plain, or missing.
            waiting = {
                each.parent
                for each in found
                if each.parent is not None and each.parent not in self._known and each.parent not in ids
            }

    def _read(self, these: str, *values: str) -> list[_Session]:
        """Get to know those of `these` about which there is something to know."""
        rows = self._db.execute(
            f"SELECT s.id, s.source, s.parent_session_id, s.parent_kind {these}"
            " WHERE s.parent_session_id IS NOT NULL OR s.source IN ('tool', 'subagent', 'cron')",
            values,
        )
        found = {row[0]: _Session(*row[1:]) for row in rows}
        self._known.update(found)
        return list(found.values())

    def of_source(self, source: str) -> set[str]:
        """Those of the given sessions that have this source."""
        rows = self._db.execute(f"SELECT s.id {_THESE} WHERE s.source = ?", (_json(self._ids), source))
        return {row[0] for row in rows}

    def of_cron(self) -> set[str]:
        """Those that a scheduler began."""
        return {name for name, each in self._known.items() if each.source == "cron"}

    def hidden(self, source: str | None) -> set[str]:
        """Those of delegates and tools, and what goes on from one; not those whose source is asked for."""
        return {name for name in self._known if self._is_hidden(name, source)}

    def _is_hidden(self, session_id: str, source: str | None) -> bool:
        at, seen = session_id, set[str]()
        while at in self._known and at not in seen:
            seen.add(at)
            each = self._known[at]
            if each.source in HIDDEN_SOURCES:
                return source is None
            if each.kind in HIDDEN_KINDS:
                return True
            if each.kind != "continuation" or each.parent is None:
                return False
            at = each.parent
        return False

    def roots(self) -> dict[str, str]:
        """Session -> what its hits are counted with, for those that are not their own conversation.

        A session is counted with all that came of it, but for a reset, which begins another
        conversation (REFERENCE.md 6.1). A parent that is missing still holds its children together.
        """
        roots: dict[str, str] = {}
        for start in self._known:
            path: dict[str, None] = {}
            at = start
            while at not in roots and at not in path:
                path[at] = None
                each = self._known.get(at)
                if each is None or each.parent is None or each.kind == "reset":
                    break
                at = each.parent
            if at in roots:
                root = roots[at]
            else:
                steps = list(path)
                root = min(steps[steps.index(at) :])  # of a circle any would do, if always the same
            roots.update(dict.fromkeys(path, root))
        return roots


def _json(ids: Collection[str]) -> str:
    """Any number of ids as one value to bind."""
    return msgspec.json.encode(tuple(ids)).decode()
