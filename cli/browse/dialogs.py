"""What the picker opens over its list: a line to type, and a text to read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar, TypeAlias

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from textual.worker import Worker

from .steady import steady

Tried: TypeAlias = Callable[[str], Awaitable[str]]
"""Does what was typed; gives what stood in the way, or "" where it is done."""


class AskLine(ModalScreen[None]):
    """Asks for a line, and stays with what stood in the way until it is done or let go."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", show=False)]

    def __init__(self, question: str, value: str, tried: Tried) -> None:
        super().__init__()
        self.question, self.value, self.tried = question, value, tried
        self._trying = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text(self.question, style="bold", no_wrap=True, overflow="ellipsis"))
            yield Input(value=self.value, compact=True, select_on_focus=False)
            yield Static("", id="refusal")
            yield Static(Text("Enter does it · Esc lets it be", style="dim"))

    def on_input_changed(self) -> None:
        self.query_one("#refusal", Static).update("")

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        if not self._trying:
            self._trying = True
            _: Worker[None] = self.run_worker(partial(self._try, event.value))

    async def _try(self, typed: str) -> None:
        try:
            refusal = await self.tried(typed)
        finally:
            self._trying = False
        if refusal:
            self.query_one("#refusal", Static).update(Text(steady(refusal), style="bold red"))
        else:
            self.dismiss()

    def action_close(self) -> None:
        self.dismiss()


class ReadText(ModalScreen[None]):
    """Shows lines that another command printed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,w,enter", "close", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
    ]

    def __init__(self, lines: str) -> None:
        super().__init__()
        self.lines = lines

    def compose(self) -> ComposeResult:
        with Vertical(classes="page"):
            with VerticalScroll():
                yield Static(Text("\n".join(map(steady, self.lines.splitlines()))))
            yield Static(Text("↑↓ scroll · Esc back", style="dim"), classes="keys")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_scroll(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)

    def action_close(self) -> None:
        self.dismiss()
