"""What the pane beside the list shows of a conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rich.text import Text

from ...domain.message import attachment_note, attachments_given
from ...projections.browsing import Glimpse
from ...projections.sessions import Message
from ..output import local_time, plural, relative_time
from ..transcript import calls, one_line, readable
from .steady import steady

MESSAGES: Final = 40
"""Of a conversation: what a person scrolls through to know it again."""
_MOST: Final = 4_000
"""Characters of one message."""
_TOOL: Final = 160
_STYLES: Final = {"user": "bold cyan", "assistant": "bold green"}


def heading(found: Glimpse, now_us: int) -> Text:
    """Who and when: a few lines above the transcript."""
    line, page = found.page.line, found.page
    text = Text(steady(line.title or "(no title)"), style="bold")
    state = (
        "open" if page.ended_us is None and line.end_reason is None else f"ended: {line.end_reason or '?'}"
    )
    facts = [
        line.source,
        relative_time(line.last_active_us or line.started_us, now_us),
        plural(line.message_count, "message"),
        state,
        *(("archived",) if line.archived else ()),
    ]
    named = [line.id, *((line.workspace,) if line.workspace else ())]
    for each in (facts, named):
        text.append(f"\n{steady(' · '.join(each))}", style="dim not bold")
    return text


def transcript(found: Glimpse, words: Iterable[str] = ()) -> Text:
    """The messages, each under its role and time; `words` are marked in them."""
    text = Text()
    if found.before:
        text.append(f"… {plural(found.before, 'earlier message')}\n\n", style="dim")
    if not found.messages:
        text.append("No messages.", style="dim")
    for index, each in enumerate(found.messages):
        if index:
            text.append("\n")
        _add(text, each)
    if found.after:
        text.append(f"\n… {plural(found.after, 'later message')}", style="dim")
    for word in words:
        text.highlight_regex(_as_said(word), "reverse")
    return text


def _as_said(word: str) -> re.Pattern[str]:
    """Where a word stands that was searched for: at the beginning of one, in scripts that part them."""
    return re.compile((r"(?<!\w)" if word.isascii() else "") + re.escape(word), re.IGNORECASE)


def _add(text: Text, each: Message) -> None:
    name = f" {each.tool_name}" if each.tool_name else ""
    text.append(steady(f"{each.role}{name}"), style=_STYLES.get(each.role, "bold"))
    marks: list[str] = [] if each.visibility == "live" else [each.visibility]
    marks += ["summary"] if each.summary else []
    mark = f"  [{', '.join(marks)}]" if marks else ""
    text.append(f"  {local_time(each.at_us)[:-3]}{mark}\n", style="dim")
    style = "dim" if each.role not in _STYLES else ""
    for line in _lines(each):
        text.append(line, style=style).append("\n")
    for call in calls(each.tool_calls):
        text.append(f"→ {steady(one_line(call, _TOOL))}\n", style="dim")


def _lines(each: Message) -> Iterator[str]:
    said = readable(each.content).strip("\n")
    if each.role == "tool":
        yield steady(one_line(said[:_MOST], _TOOL))
        return
    for line in said[:_MOST].replace("\r\n", "\n").split("\n"):
        yield steady(line.expandtabs(4))
    if len(said) > _MOST:
        yield f"… {len(said) - _MOST:,} more characters"
    for attachment in attachments_given(each.attachments):
        yield steady(attachment_note(attachment))
