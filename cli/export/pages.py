"""Export as Markdown to read and to keep: a folder with a page a conversation, and a manifest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...domain.errors import BadUsage, RuleBroken
from ..output import plural
from .form import (
    Asked,
    Done,
    Form,
    conversations,
    folder_of,
    readable,
    rows_of,
    the_folder,
    to_stdout,
)

if TYPE_CHECKING:
    from ...infrastructure.reading import View


def _refuse(asked: Asked) -> None:
    if to_stdout(asked):
        raise BadUsage(
            "Markdown/QMD export writes files; stdout (-) is only supported with --format jsonl.",
            hint="name a folder",
        )
    if asked.session is None and not asked.filtered and not asked.everything:
        raise BadUsage(
            "Refusing bulk export without a filter. Pass --session-id or at least one filter"
            " (e.g. --older-than 90, --source telegram).",
            hint="nothing was written; --all exports every session",
        )


def _write(view: View, asked: Asked, done: Done) -> None:
    from ...infrastructure.exporters import markdown, output_file

    folder = folder_of(asked)
    output_file.make_folder(folder)
    rows = rows_of(view, asked)
    asked_for = conversations(view.db, asked, done)
    if asked.delete:  # all of them or none
        for (session_id,) in asked_for:
            path = folder / markdown.file_name(rows.session(session_id), asked.form)
            output_file.refuse_existing(path, force=asked.force)
    replaced = False
    for conversation in asked_for:
        page = markdown.page_of(rows, conversation, lineage=asked.logical)
        path = folder / markdown.file_name(page.session, asked.form)
        now = time.time()
        replaced = replaced or path.exists()
        try:
            with output_file.written(path, force=asked.force) as out:
                for piece in markdown.render(rows, page, asked.form, exported_at=now):
                    out.write(piece)
        except RuleBroken:
            if asked.session is not None:
                raise
            done.skipped.append(readable(path))
            continue
        markdown.note_in_manifest(folder, page, path, asked.form, exported_at=now)
        done.exported += 1
        done.messages += page.count
        done.files.append(readable(path))
        if asked.delete:
            _verify(path, conversation[-1], page.count)
    if replaced and done.files:
        markdown.tidy_manifest(folder)


def _verify(path: Path, session_id: str, count: int) -> None:
    """Raise RuleBroken where what stands on disk is not the page: what it is of is to be deleted."""
    from ...infrastructure.exporters.markdown import failure

    why = failure(path, session_id, count)
    if why is not None:
        raise RuleBroken(f"Export verification failed; not deleting: {why}", hint=f"see {readable(path)}")


def _said(asked: Asked, done: Done) -> str:
    if asked.session is not None and done.exported == 1:
        return f"Exported 1 session ({plural(done.messages, 'message')}) to {done.files[0]}"
    return f"Exported {plural(done.exported, 'session')} to {readable(folder_of(asked))}"


FORM = Form(_write, _said, the_folder, _refuse)
