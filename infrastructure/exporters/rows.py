"""What an export reads of sessions: their rows as they are, or as a change leaves them.

Every form reads through `Rows`, so that what is left out or masked on the way out is so in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from ...projections import exported
from ...projections.base import Connection
from ...projections.exported import Fields

Change = Callable[[Literal["session", "message"], Fields], Fields]
"""What stands in a row's place in an export; the row itself is left as it is."""


class Rows:
    """Sessions and their messages, one by one, after each of the changes in turn."""

    def __init__(self, db: Connection, *changes: Change) -> None:
        self.db = db
        self._changes = changes

    def _change(self, kind: Literal["session", "message"], fields: Fields) -> Fields:
        for change in self._changes:
            fields = change(kind, fields)
        return fields

    def session(self, session_id: str) -> Fields:
        """A session's columns."""
        return self._change("session", exported.session_fields(self.db, session_id))

    def live(self, session_id: str) -> Iterator[Fields]:
        """What a model sees of a session, whole rows."""
        for message in exported.live_messages(self.db, session_id):
            yield self._change("message", message)

    def told(self, session_id: str, among: Sequence[str] = ()) -> Iterator[Fields]:
        """What a person saw of a session; `among` as of `exported.told_messages`."""
        for message in exported.told_messages(self.db, session_id, among):
            yield self._change("message", message)
