"""Which session a chat goes on with when its key leads nowhere (REFERENCE.md 8.4).

Newest first, then judged: an end for good fences off what was last in use before it; of what remains
the most recent actual activity wins. Starts and restarts count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from .ends import SETTLED, is_hard
from .errors import RuleBroken
from .events import RouteCandidate
from .facts import NEVER_ROUTED

_MOST_WEIGHED: Final = 20
"""A chat may have thousands of sessions; so many are put on record."""


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """A session that the key could lead to. Times are microseconds UTC.

    Attributes:
        key: the routing key that it bears, or that it inherits from what it continues.
        last_active_us: the latest user or assistant message.
        goes_on_as: the continuation that took over.
        handed_over: it came to this chat by a handoff, from a platform of its own.
    """

    id: str
    source: str
    key: str | None
    started_us: int
    last_active_us: int | None = None
    has_messages: bool = False
    ended_us: int | None = None
    end_reason: str | None = None
    goes_on_as: str | None = None
    parent_kind: str | None = None
    handed_over: bool = False

    @property
    def in_use_us(self) -> int:
        """When it was last in use; of a session in which nothing was said, when it began."""
        return self.started_us if self.last_active_us is None else self.last_active_us


class Choice(msgspec.Struct, frozen=True):
    """The session that was chosen, None for a new one; what was weighed, and what stood in the way."""

    session_id: str | None
    candidates: tuple[RouteCandidate, ...]
    evidence: tuple[str, ...] = ()


def takes_messages(source: str, parent_kind: str | None) -> bool:
    """Whether what a person writes may go to such a session: never to a run of its own (FIELD_CASES A18)."""
    return source not in NEVER_ROUTED and parent_kind not in ("delegate", "tool")


def refuse_run_of_its_own(session_id: str, source: str, parent_kind: str | None) -> None:
    """Nothing where a chat may lead to such a session.

    Raises:
        RuleBroken: it runs by itself, and takes no person's messages.
    """
    if not takes_messages(source, parent_kind):
        what = parent_kind if parent_kind in ("delegate", "tool") else source
        raise RuleBroken(
            f"session {session_id} is a {what} session: no person's message goes there",
            hint="begin a new session, or branch from it",
        )


def recover(claimants: Sequence[Claimant], platform: str) -> Choice:
    """Choose among the sessions that bear a key, or else that stand for the same chat without one.

    Args:
        claimants: all of them, those that ended included: their ends are the fences.
        platform: where the message came from; a session of another source is another's.
    """
    keyed = [each for each in claimants if each.key is not None]
    newest_first = sorted(keyed or claimants, key=lambda s: (s.in_use_us, s.started_us, s.id), reverse=True)
    fence = max(
        (each for each in newest_first if is_hard(each.end_reason) and _is_of_the_chat(each, platform)),
        key=lambda each: (_ended_us(each), each.id),
        default=None,
    )
    verdicts = {each.id: _against(each, fence, platform, keyed=bool(keyed)) for each in newest_first}
    standing = [each for each in newest_first if verdicts[each.id] is None]
    chosen = max(standing, key=lambda s: (s.has_messages, s.in_use_us, s.started_us, s.id), default=None)
    weighed = []
    for each in newest_first:
        verdict = verdicts[each.id]
        if each is chosen:
            verdict = "most recent activity" if each.has_messages else "nothing else is there, and it is open"
        elif verdict is None:
            verdict = "in use before that" if each.has_messages else "no messages"
        weighed.append(RouteCandidate(each.id, verdict, each.last_active_us))
    if fence is not None and chosen is None:
        weighed.sort(key=lambda each: each.session_id != fence.id)
    else:
        weighed.sort(key=lambda each: chosen is None or each.session_id != chosen.id)
    return Choice(None if chosen is None else chosen.id, tuple(weighed[:_MOST_WEIGHED]))


def _against(session: Claimant, fence: Claimant | None, platform: str, *, keyed: bool) -> str | None:
    """What speaks against a session; None where nothing does."""
    if not takes_messages(session.source, session.parent_kind):
        return f"a {session.source} session; no person's message goes there"
    if not _is_of(session, platform):
        return f"a session of {session.source}"
    if is_hard(session.end_reason):
        return f"ended for good ({session.end_reason})"
    if session.goes_on_as is not None:
        return f"compressed; goes on as {session.goes_on_as}"
    if session.end_reason in SETTLED:
        return f"done ({session.end_reason})"
    if fence is not None and session.in_use_us < _ended_us(fence):
        return f"last in use before {fence.id} ended for good ({fence.end_reason})"
    if not keyed and not session.has_messages:
        return "no key and no messages"
    return None


def _is_of_the_chat(session: Claimant, platform: str) -> bool:
    return _is_of(session, platform) and takes_messages(session.source, session.parent_kind)


def _is_of(session: Claimant, platform: str) -> bool:
    return session.source == platform or session.handed_over


def _ended_us(session: Claimant) -> int:
    return session.in_use_us if session.ended_us is None else session.ended_us
