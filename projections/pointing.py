"""Which message of a session a person means: by its number here, or by an id that it bears elsewhere."""

from __future__ import annotations

from typing import Final

import msgspec

from .base import Connection
from .sessions import Message, messages

MEANINGS: Final = {
    "id": "the number that `retold sessions show` prints",
    "source_id": "the id that it came with, as exports say it",
    "platform_message_id": "the id that its platform gave it",
}
"""By the column that says so, in the order in which they are named."""
_LONGEST = 18


class Pointed(msgspec.Struct, frozen=True):
    """A message that a name may mean; `by` says in words how it is named so."""

    message: Message
    by: tuple[str, ...]


def pointed(db: Connection, session_id: str, name: str) -> list[Pointed]:
    """The messages of a session that `name` may mean, each once; a copy is the message that it is of.

    Args:
        name: `#42` is the number that a transcript prints and nothing else; `42` may be any of `MEANINGS`.
    """
    digits = name.removeprefix("#")
    number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _LONGEST else None
    only_here = number is not None and digits != name
    found: dict[int, tuple[int, list[str]]] = {}
    for column, words in MEANINGS.items():
        value = name if column == "platform_message_id" else number
        if value is None or (only_here and column != "id"):
            continue
        row = db.execute(
            f"SELECT max(id), coalesce(copy_of, id) FROM messages WHERE session_id = ? AND {column} = ?",
            (session_id, value),
        ).fetchone()
        if row is not None and row[0] is not None:
            found.setdefault(row[1], (row[0], []))[1].append(words)
    return [
        Pointed(message, tuple(by))
        for position, by in found.values()
        for message in messages(db, session_id, after=position - 1, before=position + 1)
    ]
