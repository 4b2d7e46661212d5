"""The picker: a filter, the list it narrows, and what was said in the conversation under the cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import ClassVar, Final

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Size
from textual.widgets import Input, Static
from textual.worker import WorkerFailed

from ...domain.errors import RetoldError
from ...projections.base import Connection
from ...projections.browsing import Heard, Pick, glimpse, heard, picks
from ..output import cell_width, plural
from . import preview
from .acting import Acting
from .matching import Entry, Known, Scope, entries, known, next_scope, words
from .reader import Reader
from .session_list import MARKS, SessionList
from .steady import steady

POLL_S: Final = 1.0
"""How often it is asked whether anything was written."""
_REST: Final = 10
"""A list that takes long to read is read again after so many times as long."""
SEARCH_AFTER_S: Final = 0.12
"""How long nothing is typed until the messages are searched."""
PREVIEW_AFTER_S: Final = 0.05
_MINUTE: Final = 60
_WIDE: Final = 76
"""From so many cells on there is room for a preview."""
_SNIPPET: Final = 120
_KEYS: Final = {
    "filter": "type to filter|↑↓ choose|Enter resume|Tab list and its keys|^S scope|Esc quit",
    "list": (
        "Enter resume|a archive|p pin|r rename|e export|w why|s scope|u undo|/ filter|Tab preview|q quit"
    ),
    "preview": "↑↓ scroll|Tab filter|Enter resume|^S scope|Esc quit",
}


class Filter(Input):
    """What is typed narrows the list; `q` leaves where nothing is typed yet, unless / came before it."""

    asked = False

    def on_key(self, event: events.Key) -> None:
        if self.value or self.asked:
            return
        if event.key in ("q", "slash"):
            event.stop()
            event.prevent_default()
            if event.key == "q":
                self.app.call_later(self.app.run_action, "cancel")
            self.asked = True

    def on_blur(self) -> None:
        self.asked = False


class Transcript(VerticalScroll):
    """The pane beside the list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("enter", "app.choose", show=False),
        Binding("q", "app.cancel", show=False),
    ]


class Browser(Acting):
    """Gives the id that was chosen, "" for none."""

    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "browse.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("ctrl+s", "scope", show=False),
        Binding("escape", "leave", show=False),
        Binding("ctrl+c,ctrl+q", "cancel", show=False, priority=True),
    ]

    def __init__(
        self,
        home: Path,
        option: Sequence[str] = (),
        *,
        source: str | None = None,
        limit: int | None = None,
        workspace: str | None = None,
    ) -> None:
        """Show the sessions of `home`; `option` leads other commands to it, as it was typed."""
        super().__init__(option)
        self.source, self.limit, self.workspace = source, limit, workspace
        self.failure: Exception | None = None
        """What was not foreseen, and ended it."""
        self._rows, self._searching, self._showing = Reader(home), Reader(home), Reader(home)
        self._known: list[Known] = []
        self._heard: list[Heard] = []
        self._scope = Scope()
        self._told_at = 0
        """The position that the list rests on."""
        self._shown: tuple[object, ...] | None = None
        """What the preview shows: session, message, and how much there was of it."""
        self._polls = 0
        self._rest_until_s = 0.0

    # --- what is where -----------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static("❯", id="prompt")
            yield Filter(
                placeholder="title, preview, id, source, or what was said", compact=True, id="filter"
            )
            yield Static("", id="count")
        with Horizontal(id="middle"):
            yield SessionList("list")
            with Vertical(id="right"):
                yield Static("", id="heading")
                with Transcript(id="preview"):
                    yield Static("", id="transcript")
        yield Static("", id="status")
        yield Static("", id="keys")

    @property
    def sessions(self) -> SessionList:
        return self.query_one("#list", SessionList)

    @property
    def typing(self) -> Filter:
        return self.query_one("#filter", Filter)

    @property
    def pick(self) -> Pick | None:
        return self.sessions.pick

    def on_mount(self) -> None:
        self.typing.focus()
        self._fit(self.size)
        self.start(partial(self.load, first=True), "load")
        self.set_interval(POLL_S, self._poll)

    def on_unmount(self) -> None:
        for each in (self._rows, self._searching, self._showing):
            each.close()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size)

    def _fit(self, size: Size) -> None:
        """A narrow terminal has no preview, a low one no line of remarks."""
        self.cells = size.width
        self.query_one("#right").display = size.width >= _WIDE
        self.query_one("#status").display = size.height >= 8
        self.query_one("#keys").display = size.height >= 5
        self._show_keys()
        self.on_session_list_moved()

    def _handle_exception(self, error: Exception) -> None:
        """What was not foreseen ends it, and is told once the terminal is as it was."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        self.failure = self.failure or (cause if isinstance(cause, Exception) else error)
        self.exit("")

    # --- the list ----------------------------------------------------------------------------------

    async def load(self, *, first: bool = False) -> None:
        def read(db: Connection) -> tuple[list[Known], int]:
            found = picks(db, limit=self.limit, source=self.source, workspace=self.workspace)
            return known(found), self._rows.standing.position

        began_s = monotonic()
        try:
            self._known, self._told_at = await self._rows.ask(read)
        except RetoldError as error:
            self.tell(error.message, error=True)
            return
        self._show(stay=not first)
        self._rest_until_s = monotonic() + _REST * (monotonic() - began_s)

    def _show(self, *, stay: bool) -> None:
        lines = entries(self._known, self.typing.value, self._scope, self._heard)
        empty = "No sessions found." if not self._known else "Nothing matches."
        self.sessions.show(lines, stay=stay, empty=empty)
        self._count(lines)

    def _count(self, lines: Sequence[Entry]) -> None:
        shown = sum(each.pick is not None for each in lines)
        every = len(self._known)
        text = plural(every, "session") if shown == every else f"{shown:,} of {every:,}"
        if self._scope.kind != "all":
            text += f" · {self._scope.kind} {steady(self._scope.name)}"
        line = Text(text, style="dim")
        self.query_one("#count", Static).update(line, layout=False)

    def _poll(self) -> None:
        self._polls += 1
        if self._polls % _MINUTE == 0:
            self.sessions.refresh()  # what was "2m ago" is so no more
        if monotonic() < self._rest_until_s:
            return
        if not any(each.group in ("load", "poll") and each.is_running for each in self.workers):
            self.start(self._follow, "poll")

    async def _follow(self) -> None:
        """Show what was written since, by whomever."""
        try:
            position = await self._rows.ask(lambda _: self._rows.standing.position)
        except RetoldError as error:
            self.tell(error.message, error=True)
            return
        if position != self._told_at:
            await self.load()
            if self.typing.value.strip():
                self._search_soon()

    # --- typing ------------------------------------------------------------------------------------

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input is not self.typing:
            return
        self._heard = []  # who said what was typed before is no answer to what is typed now
        self._show(stay=False)
        self._search_soon()

    def _search_soon(self) -> None:
        self.start(partial(self._search, self.typing.value), "search", exclusive=True)

    async def _search(self, typed: str) -> None:
        """Find who said what was typed. A later key cancels it."""
        if not typed.strip():
            return
        await asyncio.sleep(SEARCH_AFTER_S)
        there = {each.pick.line.id for each in self._known}

        def question(db: Connection) -> list[Heard]:
            return heard(db, typed, there, source=self.source, marks=MARKS, width=_SNIPPET)

        try:
            found = await self._searching.ask(question, settle=True)
        except RetoldError as error:
            self.tell(error.message, error=True)
            return
        if typed == self.typing.value:
            self._heard = found
            self._show(stay=True)

    # --- the preview -------------------------------------------------------------------------------

    def on_session_list_moved(self) -> None:
        entry = self.sessions.current
        if entry is None or entry.pick is None:
            wanted: tuple[object, ...] = ()
        else:
            hit = None if entry.heard is None else entry.heard.message_id
            line = entry.pick.line
            asked = tuple(words(self.typing.value)) if hit is not None else ()
            wanted = (
                line.id,
                hit,
                line.message_count,
                line.last_active_us,
                line.title,
                line.end_reason,
                asked,
            )
        if wanted != self._shown and self.query_one("#right").display:
            self._shown = wanted
            self.start(partial(self._preview, entry), "preview", exclusive=True)

    async def _preview(self, entry: Entry | None) -> None:
        head, said = self.query_one("#heading", Static), self.query_one("#transcript", Static)
        if entry is None or entry.pick is None:
            head.update("", layout=False)
            said.update("")
            return
        await asyncio.sleep(PREVIEW_AFTER_S)
        hit = entry.heard
        session_id = entry.pick.line.id if hit is None else hit.said_in
        asked = [] if hit is None else words(self.typing.value)

        def question(db: Connection) -> tuple[Text, Text] | None:
            start = None if hit is None else hit.message_id
            found = glimpse(db, session_id, count=preview.MESSAGES, start=start)
            if found is None:
                return None
            return preview.heading(found, round(time() * 1e6)), preview.transcript(found, asked)

        try:
            found = await self._showing.ask(question)
        except RetoldError as error:
            self.tell(error.message, error=True)
            return
        if found is not None:
            head.update(found[0], layout=False)
            said.update(found[1])
            pane = self.query_one("#preview", Transcript)
            if hit is None:
                pane.scroll_end(animate=False)
            else:
                pane.scroll_home(animate=False)

    # --- keys --------------------------------------------------------------------------------------

    def on_descendant_focus(self) -> None:
        self._show_keys()

    def _show_keys(self) -> None:
        """Those of where the focus is, as many as there is room for."""
        focused = self.screen_stack[0].focused
        where = None if focused is None else focused.id
        text, room = "", self.cells - 2
        for each in _KEYS.get(where or "", _KEYS["filter"]).split("|"):
            if cell_width(text) + cell_width(each) + 3 > room and text:
                break
            text += ("   " if text else "") + each
        self.query_one("#keys", Static).update(Text(text, style="dim"), layout=False)

    def tell(self, text: str, *, error: bool = False) -> None:
        style = "bold red" if error else ""
        self.query_one("#status", Static).update(Text(steady(text), style=style), layout=False)

    def action_move(self, by: int) -> None:
        self.sessions.move(by)

    def action_page(self, by: int) -> None:
        self.sessions.page(by)

    def action_filter(self) -> None:
        self.typing.focus()
        self.typing.asked = True

    def action_leave(self) -> None:
        if self.typing.value:
            self.typing.value = ""
        else:
            self.action_cancel()

    def action_cancel(self) -> None:
        self.exit("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input is self.typing:
            self.action_choose()

    def action_choose(self) -> None:
        pick = self.sessions.pick
        if pick is not None:
            self.exit(pick.line.id)

    def action_scope(self) -> None:
        self._scope = next_scope(self._scope, self.sessions.pick)
        self._show(stay=True)
