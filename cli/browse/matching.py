"""Which conversations a filter and a scope let through: plain text, no terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final, Literal

from msgspec import Struct

from ...projections.browsing import Heard, Pick

Kind = Literal["all", "chat", "workspace", "platform"]
ORDER: Final[tuple[Kind, ...]] = ("chat", "workspace", "platform", "all")


class Scope(Struct, frozen=True):
    """What the list is narrowed to: everything, or what shares one thing with the session it was set on."""

    kind: Kind = "all"
    value: str | None = None
    name: str = ""

    def holds(self, pick: Pick) -> bool:
        """Whether the conversation is within it."""
        return self.kind == "all" or _of(self.kind, pick) == self.value


class Entry(Struct, frozen=True):
    """A line of the list: a conversation, or (without one) a heading.

    Attributes:
        heard: the message that was found, where that is why it is here.
    """

    heading: str = ""
    pick: Pick | None = None
    heard: Heard | None = None


class Known(Struct, frozen=True):
    """A conversation with its line in a list, and the text that a filter is held against."""

    pick: Pick
    text: str
    entry: Entry


def known(picks: Iterable[Pick]) -> list[Known]:
    """Each with its title, preview, id and source, folded so that case and composition are no matter."""
    return [
        Known(each, folded("\n".join((at.title or "", at.preview or "", at.id, at.source))), Entry(pick=each))
        for each in picks
        for at in (each.line,)
    ]


def folded(text: str) -> str:
    """`text` as it is compared."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def words(typed: str) -> list[str]:
    """What a filter asks for: every one of its words, in any order; quotes only bind for the full text."""
    return [word for each in folded(typed).split() if (word := each.strip('"“”'))]


def entries(known: Sequence[Known], typed: str, scope: Scope, heard: Sequence[Heard] = ()) -> list[Entry]:
    """The list: pinned conversations, the others, and those in which only a message has what was typed."""
    within = known if scope.kind == "all" else [each for each in known if scope.holds(each.pick)]
    found = within
    for word in words(typed):
        found = [each for each in found if word in each.text]
    pinned = [each.entry for each in found if each.pick.line.pinned]
    others = (
        [each.entry for each in found if not each.pick.line.pinned] if pinned else [e.entry for e in found]
    )
    lines: list[Entry] = []
    if pinned:
        lines += [Entry("Pinned"), *pinned]
    if others:
        lines += [Entry("Latest"), *others] if pinned else others
    if heard:
        there = {each.pick.line.id for each in found}
        by_id = {each.pick.line.id: each.pick for each in within}
        said = [each for each in heard if each.session_id in by_id and each.session_id not in there]
        if said:
            lines.append(Entry("Said in"))
            lines += [Entry(pick=by_id[each.session_id], heard=each) for each in said]
    return lines


def next_scope(now: Scope, pick: Pick | None) -> Scope:
    """The next narrower or wider one that `pick` is in: chat, workspace, platform, all, and around again."""
    at = ORDER.index(now.kind)
    for step in range(1, len(ORDER) + 1):
        kind = ORDER[(at + step) % len(ORDER)]
        if kind == "all":
            break
        value = None if pick is None else _of(kind, pick)
        if pick is not None and value is not None:
            return Scope(kind, value, _name(kind, pick, value))
    return Scope()


def _of(kind: Kind, pick: Pick) -> str | None:
    match kind:
        case "chat":
            return pick.chat
        case "workspace":
            return pick.line.workspace
        case "platform":
            return pick.line.source
        case "all":
            return ""


def _name(kind: Kind, pick: Pick, value: str) -> str:
    if kind == "chat":
        return pick.chat_name or value.replace("\0", " ")
    return PurePath(value).name or value if kind == "workspace" else value
