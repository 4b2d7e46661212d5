"""The panel that shows the end of a conversation which is gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..domain.recap import Entry, Limits
from .output import cell_width
from .paragraphs import fold
from .stream import PLAIN_WIDTH, dressed, is_terminal, terminal_width

if TYPE_CHECKING:
    from ..infrastructure.config import DisplaySettings
    from ..projections.recap import Recap

TITLE: Final = "Previous Conversation"
_LEADS: Final = {"user": ("  ● You: ", "gold"), "assistant": ("  ◆ Agent: ", "green")}
_INDENT: Final = {"user": 9, "assistant": 12}
_WIDEST: Final = 120


def limits_of(settings: DisplaySettings) -> Limits:
    """What the `display` settings say of the panel."""
    return Limits(
        exchanges=settings.resume_exchanges,
        user_chars=settings.resume_max_user_chars,
        assistant_chars=settings.resume_max_assistant_chars,
        assistant_lines=settings.resume_max_assistant_lines,
        skip_tool_only=settings.resume_skip_tool_only,
    )


def panel(recap: Recap) -> list[str]:
    """Lines for `put_dressed`: in a box where a terminal reads them. None where nobody said anything."""
    if not recap.entries:
        return []
    if not is_terminal():
        return [dressed((TITLE, "")), *(dressed(*spans) for spans in _lines(recap, PLAIN_WIDTH))]
    width = min(terminal_width(), _WIDEST)
    inner = width - 4
    rule = "─" * max(0, width - 5 - cell_width(TITLE))
    head = dressed(("╭─ ", "dim"), (TITLE, "dim gold"), (f" {rule}╮", "dim"))
    body = [
        dressed(("│ ", "dim"), *spans, (" " * max(0, inner - sum(cell_width(text) for text, _ in spans)), ""))
        + dressed((" │", "dim"))
        for spans in _lines(recap, inner)
    ]
    return [head, *body, dressed((f"╰{'─' * (width - 2)}╯", "dim"))]


def _lines(recap: Recap, width: int) -> Iterator[list[tuple[str, str]]]:
    if recap.earlier:
        count = f"more than {recap.earlier:,}" if recap.more else f"{recap.earlier:,}"
        yield [(f"  ... {count} earlier messages ...", "dim")]
        yield []
    last = max((at for at, each in enumerate(recap.entries) if each.role == "assistant"), default=None)
    for at, each in enumerate(recap.entries):
        yield from _entry(each, width, whole=at == last)


def _entry(each: Entry, width: int, *, whole: bool) -> Iterator[list[tuple[str, str]]]:
    """Of the last answer all is shown, so that a person sees where they left off."""
    lead, color = _LEADS[each.role]
    indent = _INDENT[each.role]
    dim = "" if whole else "dim"
    text = each.whole if whole else each.text
    shown = [part for line in text.splitlines() for part in _folded(line, width - indent)] or [""]
    yield [(lead, f"{dim} bold {color}".strip()), (shown[0], dim)]
    for part in shown[1:]:
        yield [(" " * indent + part, dim)]


def _folded(line: str, width: int) -> list[str]:
    return fold(line, max(width, 8), indent=0) if is_terminal() else [line]
