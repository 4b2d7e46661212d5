"""The order in which a store's past enters the log: by time across sessions, by id within each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

BEGIN, END = 0, 2
"""Where a session's own marks stand among messages (1) of the same time."""


class Timeline:
    """Messages and marks of sessions, to be put in order; 24 bytes a message.

    A message's key is the latest time that its session had reached by then, so a clock that went
    back never moves a message before an earlier one.
    """

    def __init__(self) -> None:
        self._ids = array("q")
        self._owners = array("q")
        self._keys = array("d")
        self._marks: list[tuple[float, int, int]] = []

    def __len__(self) -> int:
        return len(self._ids)

    def message(self, message_id: int, owner: int, key: float) -> None:
        """A message of the session numbered `owner`; ids come in order."""
        self._ids.append(message_id)
        self._owners.append(owner)
        self._keys.append(key)

    def begin(self, owner: int, key: float) -> None:
        """The session begins: before any message of this time."""
        self._marks.append((key, BEGIN, owner))

    def end(self, owner: int, key: float) -> None:
        """The session ends: after all messages of this time."""
        self._marks.append((key, END, owner))

    def chunks(self, size: int) -> Iterator[tuple[list[tuple[float, int, int]], Sequence[int], list[int]]]:
        """In order: (keys, ids, owners) of at most `size` messages; merge `marks` in with them."""
        keys, ids, owners = self._keys, self._ids, self._owners
        # Stable: of equal times the lower id comes first, and each session keeps its own order.
        order = array("q", sorted(range(len(keys)), key=keys.__getitem__))
        for start in range(0, len(order), size):
            places = order[start : start + size]
            yield (
                [(keys[place], 1, 0) for place in places],
                [ids[place] for place in places],
                [owners[place] for place in places],
            )

    def marks(self) -> list[tuple[float, int, int]]:
        """Begins and ends in order, as (key, BEGIN or END, session)."""
        return sorted(self._marks)
