"""What is in a session's context: compressing it, taking turns back, and never a tool's result alone.

Every rule is over `Line`s: what there is to know of a message, but for its text. A message that a
compression kept stands there as a copy of itself; the first of them all is its root.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from . import events as e
from .errors import BadUsage, NoSuchMessage, NothingToDo, RuleBroken
from .events import Visibility
from .message import Message, said
from .text import is_blank


class Line(msgspec.Struct, frozen=True, gc=False):
    """One message as the rules see it. `id` is its position; `calls` are the ids of the calls it makes."""

    id: int
    role: str
    visibility: Visibility = "live"
    copy_of: int | None = None
    summary: bool = False
    observed: bool = False
    calls: tuple[str, ...] = ()
    answers: str | None = None
    """The id of the call whose result it is."""

    @property
    def root(self) -> int:
        """The first of a message and its copies."""
        return self.id if self.copy_of is None else self.copy_of

    @property
    def begins_turn(self) -> bool:
        """Whether somebody said it to the agent."""
        return self.role == "user" and not self.summary and not self.observed


# --- compressing -----------------------------------------------------------------------------------


class Compression(msgspec.Struct, frozen=True):
    """Which messages leave the context, and which of them go on after the summary: ids, in order."""

    leaving: list[int]
    kept: list[int]


def summarised(summary: str, *, where: str) -> e.MessageAppended:
    """The message that stands for what was compressed.

    Raises:
        RuleBroken: it is blank. BadUsage, BytesRefused: it is no text.
    """
    if not summary or is_blank(summary):
        raise RuleBroken(f"{where}: a compression needs a summary", hint="nothing was written")
    return msgspec.structs.replace(said(Message("user", summary), where=where), summary=True)


def copied(message: e.MessageAppended, line: Line) -> e.MessageAppended:
    """A message once more, as it stands, further down."""
    return msgspec.structs.replace(
        message, copy_of=line.root, visibility="live", source_id=None, seen=None, summary=False
    )


def compression(
    lines: Sequence[Line],
    *,
    keep_last: int = 0,
    tail: Iterable[int] | None = None,
    upto: int | None = None,
    where: str,
) -> Compression:
    """What a compression of these messages does.

    Args:
        keep_last: how many exchanges go on verbatim, from the last one back. One begins where somebody
            speaks to the agent and holds all that came of it.
        tail: the messages that go on, by id, in place of `keep_last`.
        upto: the last message that the summary covers; whatever came later goes on too.

    Raises:
        NothingToDo: nothing would leave. NoSuchMessage: `tail` or `upto` names what is not in the context.
        BadUsage: both `keep_last` and `tail`, or fewer than no exchanges.
    """
    live = [each for each in lines if each.visibility == "live"]
    known = {each.id for each in live}
    covered = [each for each in live if upto is None or each.id <= upto]
    if tail is not None:
        if keep_last:
            raise BadUsage(f"{where}: keep_last and tail exclude each other", hint="give one of them")
        chosen = set(tail)
        if not chosen <= known:
            raise NoSuchMessage(
                f"{where}: #{min(chosen - known)} is not in its context", hint="name messages of its view"
            )
    else:
        chosen = set(_last(covered, keep_last, where))
    chosen.update(each.id for each in live if upto is not None and each.id > upto)
    kept = _whole(live, chosen)
    if not any(each.id not in kept for each in live if not each.summary):
        raise NothingToDo(f"{where}: nothing would leave its context", hint="keep fewer messages")
    return Compression([each.id for each in live], [each.id for each in live if each.id in kept])


def _last(lines: Sequence[Line], exchanges: int, where: str) -> list[int]:
    if exchanges < 0:
        raise BadUsage(f"{where}: keep_last may be 0 or more, not {exchanges}", hint="nothing was written")
    if exchanges == 0:
        return []
    begun = [index for index, each in enumerate(lines) if each.begins_turn]
    first = begun[-exchanges] if exchanges <= len(begun) else 0
    return [each.id for each in lines[first:] if not each.summary]


def _whole(lines: Sequence[Line], chosen: set[int]) -> set[int]:
    """These, and with each call its results, with each result its call; no result of a call that is gone."""
    call_of = answered(lines)
    results: dict[int, list[int]] = {}
    for result, (caller, _) in call_of.items():
        results.setdefault(caller, []).append(result)
    whole: set[int] = set()
    waiting = deque(chosen)
    answers = {each.id for each in lines if each.role == "tool"}
    while waiting:
        each = waiting.popleft()
        if each in whole or (each in answers and each not in call_of):
            continue
        whole.add(each)
        waiting.extend(results.get(each, ()))
        if each in call_of:
            waiting.append(call_of[each][0])
    return whole


def answered(lines: Iterable[Line]) -> dict[int, tuple[int, str]]:
    """The message that made the call, and the call's id, for each tool result whose call came before it.

    Ids of calls may come again: a result belongs to the last call of its id that has none yet. A result
    that names no call belongs to the oldest that waits.
    """
    waiting: dict[str, int] = {}
    found: dict[int, tuple[int, str]] = {}
    for each in lines:
        if each.role == "tool":
            call = each.answers if each.answers is not None else next(iter(waiting), None)
            if call in waiting:
                found[each.id] = (waiting.pop(call), call)
        for call in each.calls:
            waiting.pop(call, None)
            waiting[call] = each.id
    return found


def call_ids(tool_calls: Any) -> tuple[str, ...]:
    """The ids of the calls in a message's list of them; for one without, its place in the list."""
    if not isinstance(tool_calls, list):
        return ()
    return tuple(
        str(each.get("id") or each.get("call_id") or index) if isinstance(each, dict) else str(index)
        for index, each in enumerate(tool_calls)
    )


# --- taking back -----------------------------------------------------------------------------------


class Rewinding(msgspec.Struct, frozen=True):
    """Taking a session back to where a message was about to be said."""

    rewound: e.MessagesRewound
    target: Line
    count: int
    """How many messages leave the context."""
    last: int | None
    """The message that the context then ends with."""
    elsewhere: list[int]
    """Roots, in sessions that this one continues, of copies that go."""


def rewinding(
    lines: Sequence[Line],
    message: int,
    compactions: Iterable[Sequence[int]],
    *,
    where: str,
) -> Rewinding:
    """Take back a user's message and all that came after it (REFERENCE.md 1.4).

    Where it had left the context by compaction, that is undone as well: what stood before it is live again.

    Args:
        lines: all messages of the session.
        message: its id, or that of the one whose copy the session has.
        compactions: what each compaction of the session took out of the context, oldest first.

    Raises:
        NoSuchMessage: it is none of the session's, nobody said it, or it has been taken back before.
    """
    asked = next((each for each in lines if message in (each.id, each.copy_of)), None)
    if asked is None:
        raise NoSuchMessage(f"{where} has no message #{message}", hint="retold sessions show lists them")
    if asked.role != "user" or asked.summary:
        what = "a summary" if asked.summary else f"of role {asked.role}"
        raise NoSuchMessage(
            f"{where}: #{message} is {what}; it can go back to a user's message only",
            hint="name one of those",
        )
    there = [each for each in lines if each.root == asked.root and each.visibility != "rewound"]
    if not there:
        raise NoSuchMessage(f"{where}: #{message} has been taken back before", hint="nothing was written")
    target = max(there, key=lambda each: (each.visibility == "live", each.id))
    restored = [] if target.visibility == "live" else _uncompacted(lines, target, compactions, where)
    left = {*restored, *(each.id for each in lines if each.visibility == "live" and each.id < target.id)}
    left_roots = {each.root for each in lines if each.id in left}
    after = [each for each in lines if each.id >= target.id and each.visibility != "rewound"]
    gone = {each.root for each in after if not each.summary} - left_roots
    hidden = [
        each
        for each in lines
        if each.visibility != "rewound"
        and each.id not in left
        and (each.id >= target.id or each.root in gone)
    ]
    return Rewinding(
        rewound=e.MessagesRewound(
            [each.id for each in hidden],
            compacted=[each.id for each in hidden if each.visibility == "compacted"],
            restored=restored,
        ),
        target=target,
        count=sum(each.visibility == "live" for each in hidden),
        last=max(left, default=None),
        elsewhere=sorted(gone - {each.id for each in lines}),
    )


def _uncompacted(
    lines: Sequence[Line], target: Line, compactions: Iterable[Sequence[int]], where: str
) -> list[int]:
    """What stood before a message when a compaction took it out of the context."""
    taken_out = [each for each in compactions if target.id in each]
    if not taken_out:
        raise NoSuchMessage(
            f"{where}: #{target.id} had left its context before it came here, nobody knows in what company",
            hint="name a later message",
        )
    compacted = {each.id for each in lines if each.visibility == "compacted"}
    return sorted(each for each in set(taken_out[-1]) & compacted if each < target.id)


def last_turns(lines: Sequence[Line], turns: int, *, where: str) -> int:
    """The message with which the last `turns` turns begin; the first of all where there are fewer.

    Raises:
        NothingToDo: there is none. BadUsage: less than one turn.
    """
    if turns < 1:
        raise BadUsage(f"{where}: 1 or more turns can be undone, not {turns}", hint="nothing was written")
    begun = sorted(
        {each.root: each.id for each in lines if each.begins_turn and each.visibility != "rewound"}.items()
    )
    if not begun:
        raise NothingToDo(f"{where}: there is no turn to undo", hint="nothing was written")
    return begun[max(0, len(begun) - turns)][1]


def taken_back(rewound: e.MessagesRewound) -> e.MessagesRestored:
    """The reverse of a rewind: every message as it stood before."""
    compacted = set(rewound.compacted)
    return e.MessagesRestored(
        [each for each in rewound.messages if each not in compacted],
        compacted=[*rewound.compacted, *rewound.restored],
    )


def redoable(events: Iterable[e.Recorded]) -> e.Recorded | None:
    """The rewind that a redo takes back: the last one that none has taken back yet.

    Args:
        events: of one session, oldest first, since its last message.
    """
    undone: list[e.Recorded] = []
    for event in events:
        if event.source_ref is not None:
            continue
        if isinstance(event.payload, e.MessagesRewound):
            undone.append(event)
        elif isinstance(event.payload, e.MessagesRestored) and undone:
            undone.pop()
    return undone[-1] if undone else None
