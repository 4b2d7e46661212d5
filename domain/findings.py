"""What an audit finds: one thing that is wrong with a chat, and which sessions it concerns."""

from __future__ import annotations

from collections.abc import Container
from typing import Literal

from msgspec import Struct

from .chats import Candidate

Kind = Literal[
    "jumped_back",
    "reset_undone",
    "routed_to_ended",
    "dangling_route",
    "two_continuations",
    "crossed_key",
    "identity_lost",
    "stranded",
    "source_conflict",
]


class Finding(Struct, frozen=True, kw_only=True):
    """Something that a person should know of, with the events that show it.

    Attributes:
        session_id: the session that it is about; of a jump, the one that the chat belongs to.
        candidates: of one that is stranded, whose key it could take.
        rivals: sessions without a key that could take it instead.
        facts: ids, times (`…_us`) and numbers for whoever words it; `detail` holds no times.
        remedy: a command that exists.
    """

    kind: Kind
    detail: str
    remedy: str
    key: str | None = None
    session_id: str | None = None
    evidence: tuple[int, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    rivals: tuple[Candidate, ...] = ()
    facts: dict[str, str | int] = {}

    @property
    def weighed(self) -> tuple[Candidate, ...]:
        """Every session that it names beside its own."""
        return (*self.candidates, *self.rivals)


def concerns(finding: Finding, session_ids: Container[str | None]) -> bool:
    """Whether a finding is about any of these sessions, or weighs one of them.

    One that merely fell quiet last before a stranded session began, outside the window, has no part.
    """
    outside = finding.facts.get("last_keyed")
    return finding.session_id in session_ids or any(
        each.session_id in session_ids and each.session_id != outside for each in finding.weighed
    )
