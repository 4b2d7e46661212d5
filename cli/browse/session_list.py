"""The list of the picker: as many rows as there are conversations, and only those drawn that are seen."""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...projections.browsing import Pick
from ..output import cell_width, fit, relative_time
from .matching import Entry
from .steady import steady

MARKS: Final = ("\ue000", "\ue001")
"""Around what a search found in a snippet; no text has them but by chance, and then it is marked."""
_PLAIN, _BOLD, _DIM = Style(), Style(bold=True), Style(dim=True)
_HEADING, _SOURCE, _FOUND = (
    Style(color="cyan", bold=True),
    Style(color="cyan"),
    Style(color="yellow", bold=True),
)
_CURSOR: Final = Style(reverse=True)
_WHEN, _SOURCE_CELLS, _TITLE, _LEAST_PREVIEW = 10, 10, 40, 10
_WITH_SOURCE, _WITH_WHEN = 50, 30


class SessionList(ScrollView, can_focus=True):
    """Conversations under headings, one of them under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home,g", "first", show=False),
        Binding("end,G", "last", show=False),
        Binding("up,k", "app.move(-1)", show=False),
        Binding("down,j", "app.move(1)", show=False),
        Binding("pageup", "app.page(-1)", show=False),
        Binding("pagedown", "app.page(1)", show=False),
        Binding("enter", "app.choose", show=False),
        Binding("a", "app.archive", show=False),
        Binding("p", "app.pin", show=False),
        Binding("r", "app.rename", show=False),
        Binding("e", "app.export", show=False),
        Binding("w", "app.why", show=False),
        Binding("s", "app.scope", show=False),
        Binding("u", "app.undo", show=False),
        Binding("slash", "app.filter", show=False),
        Binding("q", "app.cancel", show=False),
    ]

    class Moved(Message):
        """Another conversation is under the cursor, or none."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.entries: Sequence[Entry] = ()
        self.cursor = 0
        self.empty = ""
        """What stands there where nothing is shown."""

    @property
    def current(self) -> Entry | None:
        """The conversation under the cursor."""
        return self.entries[self.cursor] if self.cursor < len(self.entries) else None

    @property
    def pick(self) -> Pick | None:
        """Its row."""
        return None if self.current is None else self.current.pick

    def show(self, entries: Sequence[Entry], *, stay: bool, empty: str = "") -> None:
        """Show other entries.

        Args:
            stay: the cursor stays on its conversation, or where that was; else it is on the first.
        """
        on = None if self.pick is None else self.pick.line.id
        self.entries, self.empty = entries, empty
        at = 0
        if stay:
            at = next(
                (i for i, each in enumerate(entries) if each.pick and each.pick.line.id == on), self.cursor
            )
        self.cursor = self._beside(min(at, len(entries) - 1), 1)
        self.virtual_size = Size(self.size.width, len(entries))
        self._see()
        self.refresh()
        self.post_message(self.Moved())

    def move(self, by: int) -> None:
        """Put the cursor so many lines further; it passes over headings, and stops at either end."""
        if self.entries:
            self._put(self._beside(max(0, min(self.cursor + by, len(self.entries) - 1)), 1 if by > 0 else -1))

    def page(self, by: int) -> None:
        """A screen further."""
        self.move(by * max(1, self.size.height - 1))

    def action_first(self) -> None:
        self._put(self._beside(0, 1))

    def action_last(self) -> None:
        self._put(self._beside(len(self.entries) - 1, -1))

    def _beside(self, at: int, step: int) -> int:
        """The nearest conversation from a line on, in this direction first."""
        for way in (step, -step):
            found = at
            while 0 <= found < len(self.entries):
                if self.entries[found].pick is not None:
                    return found
                found += way
        return 0

    def _put(self, at: int) -> None:
        if at != self.cursor:
            self.cursor = at
            self._see()
            self.refresh()
            self.post_message(self.Moved())

    def _see(self) -> None:
        top = self.cursor - 1 if self.cursor == 1 else self.cursor  # with the heading above the first
        self.scroll_to_region(Region(0, top, 1, 1 + self.cursor - top), animate=False, force=True)

    # --- drawing -----------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.entries))
        self._see()

    def on_click(self, event: events.Click) -> None:
        at = event.y + self.scroll_offset.y
        if at < len(self.entries) and self.entries[at].pick is not None:
            self._put(at)
            if event.chain == 2:
                self.app.call_later(self.app.run_action, "choose")

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        at = y + self.scroll_offset.y
        if not self.entries and y == 0:
            return Strip([Segment(fit(f"  {self.empty}", width), _DIM)], width)
        if at >= len(self.entries):
            return Strip.blank(width)
        entry = self.entries[at]
        if entry.pick is None:
            return Strip([Segment(fit(entry.heading, width), _HEADING)], width)
        here = at == self.cursor
        pieces = [("▸ " if here else "  ", _PLAIN), *row(entry, entry.pick, width - 2, round(time() * 1e6))]
        return Strip([Segment(text, _CURSOR if here else style) for text, style in pieces], width)


def row(entry: Entry, pick: Pick, width: int, now_us: int) -> list[tuple[str, Style]]:
    """A conversation in exactly `width` cells."""
    line = pick.line
    end: list[tuple[str, Style]] = []
    if width >= _WITH_WHEN:
        when = relative_time(line.last_active_us or line.started_us, now_us)
        end.append((f" {fit(when, _WHEN)}", _DIM))
    if width >= _WITH_SOURCE:
        end.append((f" {fit(steady(line.source), _SOURCE_CELLS)}", _SOURCE))
    room = width - sum(cell_width(text) for text, _ in end)
    title, preview = steady(line.title or ""), steady(line.preview or "")
    if entry.heard is not None:
        return [*_found(title or preview or line.id, entry.heard.snippet, room), *end]
    if not title:
        return [(fit(preview or steady(line.id), room), _PLAIN if preview else _DIM), *end]
    cells = min(cell_width(title), _TITLE if preview else room, room)
    if room - cells - 2 < _LEAST_PREVIEW or not preview:
        return [(fit(title, room), _BOLD), *end]
    return [(fit(title, cells), _BOLD), ("  " + fit(preview, room - cells - 2), _DIM), *end]


def _found(name: str, snippet: str, room: int) -> list[tuple[str, Style]]:
    """The name, and what was said, with the words that were typed standing out."""
    cells = min(cell_width(name), room * 2 // 5)
    if room - cells - 2 < _LEAST_PREVIEW:
        return [(fit(name, room), _BOLD)]
    pieces = [(fit(name, cells), _BOLD), ("  ", _PLAIN)]
    left = room - cells - 2
    lead, mark, rest = snippet.partition(MARKS[0])
    lead = steady(lead)
    if cell_width(lead) > left // 3:  # what was found is to be seen
        lead = "…" + lead[-(left // 3) :].lstrip("… ")
    for index, part in enumerate((lead + mark + rest).split(MARKS[0])):
        marked, _, plain = part.partition(MARKS[1]) if index else ("", "", part)
        for text, style in ((steady(marked), _FOUND), (steady(plain), _DIM)):
            used = min(cell_width(text), left)
            if used:
                pieces.append((fit(text, used), style))
                left -= used
    return [*pieces, (" " * left, _PLAIN)]
