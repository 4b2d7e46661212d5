"""What an import reads of a Hermes home where it need not read all of it."""

from __future__ import annotations

import msgspec


class Scope(msgspec.Struct):
    """What an import reads of a home: with every session all that it descends from or began.

    Attributes:
        whole: sessions whose messages are all compared.
        since: of those that only gained messages, the last one known.
        again: single messages to be compared.
        spoke: when a session that is not read whole was first and last spoken in, as far as is known.
        routes: whether its routing table or the mirror changed.
    """

    sessions: set[str]
    whole: set[str]
    since: dict[str, int]
    again: set[int]
    spoke: dict[str, tuple[float, float]]
    routes: bool

    def __bool__(self) -> bool:
        return bool(self.sessions) or self.routes
