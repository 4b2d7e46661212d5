"""Export as JSONL: a line a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...domain.errors import BadUsage
from ..output import plural
from .form import Asked, Done, Form, conversations, name_of, opened, rows_of, the_file, to_stdout

if TYPE_CHECKING:
    from ...infrastructure.reading import View


def _refuse(asked: Asked) -> None:
    if asked.output is None:
        raise BadUsage("JSONL export requires an output path (use - for stdout).", hint="nothing was written")


def _write(view: View, asked: Asked, done: Done) -> None:
    from ...infrastructure.exporters.jsonl import write_session

    everything = asked.session is None and not asked.filtered
    rows = rows_of(view, asked)
    with opened(asked, done, name_of(asked, done, ".jsonl"), streamed=to_stdout(asked)) as write:
        for conversation in conversations(view.db, asked, done):
            for session_id in conversation:
                messages, odd = write_session(rows, session_id, write, with_activity=everything)
                done.exported += 1
                done.messages += messages
                done.not_utf8 += odd


def _said(_asked: Asked, done: Done) -> str:
    return f"Exported {plural(done.exported, 'session')} to {done.files[0]}"


FORM = Form(_write, _said, the_file, _refuse)
