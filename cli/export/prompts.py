"""Export of what people asked and nothing else: JSONL, a line a prompt, or one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...domain.errors import BadUsage
from ..output import plural
from .form import Asked, Done, Form, conversations, name_of, opened, rows_of, the_file

if TYPE_CHECKING:
    from ...infrastructure.reading import View


def _refuse(asked: Asked) -> None:
    if asked.form not in ("jsonl", "md"):
        raise BadUsage(
            "--only user-prompts supports --format jsonl or md.", hint=f"leave --format {asked.form} out"
        )


def _streamed(asked: Asked) -> bool:
    return asked.output in (None, "-")


def _write(view: View, asked: Asked, done: Done) -> None:
    from ...infrastructure.exporters import prompts

    ids = [each for conversation in conversations(view.db, asked, done) for each in conversation]
    told = prompts.as_markdown if asked.form == "md" else prompts.as_jsonl
    done.exported, done.prompts = len(ids), 0
    name = name_of(asked, done, f".prompts.{asked.form}")
    with opened(asked, done, name, streamed=_streamed(asked)) as write:
        for piece, count in told(rows_of(view, asked), ids):
            write(piece)
            done.prompts += count


def _said(_asked: Asked, done: Done) -> str:
    return f"Exported {plural(done.prompts or 0, 'prompt')} to {done.files[0]}"


FORM = Form(_write, _said, the_file, _refuse, _streamed)
