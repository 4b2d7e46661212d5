"""How `retold sessions tree` looks, drawn and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..projections.tree import Node
from .output import emit_json, plural, visible
from .paragraphs import fold
from .stream import bold


def emit(asked: str, nodes: Iterable[Node]) -> None:
    """One flat list in the order of drawing: a tree of any depth stays readable."""
    emit_json(
        {
            "session_id": asked,
            "sessions": [
                {
                    "id": each.session_id,
                    "kind": each.kind,
                    "parent_id": each.parent_id,
                    "depth": len(each.last),
                    "title": each.title,
                    "source": each.source,
                    "message_count": each.message_count,
                    "end_reason": each.end_reason,
                    "archived": each.archived,
                    "missing": each.missing,
                    "deleted": each.deleted,
                    "again": each.again,
                }
                for each in nodes
            ],
        }
    )


def lines(asked: str, nodes: Iterable[Node], width: int | None = None) -> Iterator[str]:
    """A line a session, under what it came from; the one that was asked for is marked.

    Args:
        width: cells of the terminal; a longer line goes on under itself.
    """
    for each in nodes:
        stem = "".join("   " if last else "│  " for last in each.last[:-1])
        joint = ("└─ " if each.last[-1] else "├─ ") if each.last else ""
        here = each.session_id == asked and not each.again
        first, *more = _fitted(_words(each, here=here), len(stem + joint), width)
        name = visible(each.session_id)
        yield stem + joint + (first.replace(name, bold(name), 1) if here else first)
        yield from (stem + _UNDER[joint] + line for line in more)


_UNDER = {"": "   ", "└─ ": "   ", "├─ ": "│  "}


def _fitted(words: str, taken: int, width: int | None) -> list[str]:
    return [words] if width is None else fold(words, max(width - taken, 16), indent=0)


def _words(each: Node, *, here: bool) -> str:
    name = visible(each.session_id)
    kind = f"{each.kind}  " if each.last else ""
    if each.deleted:
        return f"{kind}{name}  (deleted)"
    if each.missing:
        return f"{kind}{name}  (missing: it is named as a parent, and is not here)"
    if each.again:
        return f"{kind}{name}  (see above: the parents run in a circle)"
    facts = [plural(each.message_count, "message"), each.end_reason or "open", each.source or "?"]
    if each.archived:
        facts.append("archived")
    title = f"  {visible(each.title)}" if each.title else ""
    return f"{kind}{name}{title}  ({', '.join(map(visible, facts))}){'  ← this one' if here else ''}"
