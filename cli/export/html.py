"""Export as one page of HTML, to read in any browser, to search and to send on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...domain.errors import BadUsage
from .form import Asked, Done, Form, conversations, name_of, opened, rows_of, the_file, to_stdout

if TYPE_CHECKING:
    from ...infrastructure.reading import View


def _refuse(asked: Asked) -> None:
    if asked.output is None or to_stdout(asked):
        raise BadUsage("HTML export requires an output file path.", hint="nothing was written")


def _write(view: View, asked: Asked, done: Done) -> None:
    from ...infrastructure.exporters.html import Page, render

    page = Page(conversations(view.db, asked, done), view.config.zone, time.time())
    with opened(asked, done, name_of(asked, done, ".html"), streamed=False) as write:
        for piece in render(rows_of(view, asked), page):
            write(piece)
    done.exported = len(page.conversations)
    done.messages = page.written


def _said(_asked: Asked, done: Done) -> str:
    return f"Exported {done.exported} session(s) to {done.files[0]} (HTML)"


FORM = Form(_write, _said, the_file, _refuse)
