"""What the picker does to the conversation under the cursor: each is a command of the program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

from textual.app import App
from textual.worker import Worker

from ...projections.browsing import Pick
from .dialogs import AskLine, ReadText
from .running import Ran, explain, run


class Acting(App[str]):
    """Archives, pins, renames, exports and explains, and takes back what it changed.

    Abstract, which a class of textual cannot be by `abc`: `pick`, `tell` and `load` are those of who has the
    list and the line below it (`app.Browser`).
    """

    def __init__(self, option: Sequence[str]) -> None:
        """`option` leads other commands to the home, as it was typed."""
        super().__init__(ansi_color=True)
        self.option = option
        self.cells = 80
        """How wide the terminal is."""
        self._done: list[tuple[list[int], str]] = []
        """What was changed here and not taken back: its events, and what it was."""

    @property
    def pick(self) -> Pick | None:
        """The conversation under the cursor."""
        raise NotImplementedError

    def tell(self, text: str, *, error: bool = False) -> None:
        """Say something below the list."""
        raise NotImplementedError

    async def load(self) -> None:
        """Show the list as it is now."""
        raise NotImplementedError

    def start(
        self, work: Callable[[], Coroutine[None, None, None]], group: str, *, exclusive: bool = False
    ) -> None:
        """Do something beside; `exclusive` lets it take the place of what is under way in its group."""
        _: Worker[None] = self.run_worker(work, group=group, exclusive=exclusive)

    def action_archive(self) -> None:
        if pick := self.pick:
            self._change(pick, "archive", "archived")

    def action_pin(self) -> None:
        if pick := self.pick:
            self._change(pick, *(("unpin", "unpinned") if pick.line.pinned else ("pin", "pinned")))

    def _change(self, pick: Pick, verb: str, done: str) -> None:
        async def change() -> None:
            ran = await self._run("sessions", verb, "--json", "--", pick.line.id)
            if ran.refusal:
                self.tell(ran.refusal, error=True)
            else:
                await self._changed(ran, f"{_called(pick)} is {done}")

        self.start(change, "change")

    async def _run(self, *argv: str) -> Ran:
        return await asyncio.to_thread(run, self.option, *argv)

    async def _changed(self, ran: Ran, what: str) -> None:
        if ran.positions:
            self._done.append((ran.positions, what))
            what += "; u takes it back"
        await self.load()
        self.tell(what + ".")

    def action_undo(self) -> None:
        """Take back what was changed here last."""
        if not self._done:
            self.tell("Nothing was changed here.")
            return
        positions, what = self._done.pop()

        async def undo() -> None:
            left = set(positions)
            while left:  # what was saved together is undone together
                ran = await self._run("undo", "--json", str(max(left)))
                if ran.refusal:
                    self.tell(ran.refusal, error=True)
                    break
                left -= {max(left), *ran.answer.get("undone", ())}
            else:
                self.tell(f"Taken back: {what}.")
            await self.load()

        self.start(undo, "change")

    def action_rename(self) -> None:
        pick = self.pick
        if pick is None:
            return

        async def rename(typed: str) -> str:
            if not typed.strip():
                return "a title needs a word"
            ran = await self._run("sessions", "rename", "--json", "--", pick.line.id, typed)
            if not ran.refusal:
                await self._changed(ran, f"{_called(pick)} is renamed to {ran.answer.get('title')}")
            return ran.refusal

        self.push_screen(AskLine(f"New title of {_called(pick)}", pick.line.title or "", rename))

    def action_export(self) -> None:
        pick = self.pick
        if pick is None:
            return

        async def export(typed: str) -> str:
            if not typed.strip():
                return "name a file"
            ran = await self._run("sessions", "export", *_export(typed.strip(), pick.line.id))
            if not ran.refusal:
                self.tell(f"Exported to {', '.join(map(str, ran.answer.get('files', ()))) or typed}.")
            return ran.refusal

        name = "".join(char if char.isalnum() or char in "-_" else "_" for char in pick.line.id)
        self.push_screen(
            AskLine("Export to a file (.html, .jsonl), or as Markdown into a folder", f"{name}.html", export)
        )

    def action_why(self) -> None:
        pick = self.pick
        if pick is None:
            return

        self.tell("…")

        async def why() -> None:
            ran = await asyncio.to_thread(explain, self.option, pick.line.id, self.cells - 6)
            self.tell("")
            self.push_screen(ReadText(ran.out or ran.err))

        self.start(why, "change")


def _export(typed: str, session_id: str) -> list[str]:
    """The options of an export that the name of the file asks for."""
    suffix = Path(typed).suffix.lower().removeprefix(".")
    form = suffix if suffix in ("jsonl", "html") else "md"
    return ["--json", "--format", form, "--lineage", "logical", "--session-id", session_id, "--", typed]


def _called(pick: Pick) -> str:
    return f"'{pick.line.title}'" if pick.line.title else pick.line.id
