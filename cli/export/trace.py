"""Export as a trace: one session a file, in the form of Claude Code's logs; on request it is sent."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ...domain.errors import BadUsage, RuleBroken
from ..output import plural
from .form import (
    Asked,
    Done,
    Form,
    Write,
    folder_of,
    opened,
    path_of,
    readable,
    rows_of,
    selected,
    the_file,
    to_stdout,
)

if TYPE_CHECKING:
    from ...infrastructure.exporters.rows import Rows
    from ...infrastructure.reading import View

_SUFFIX = ".trace.jsonl"


def _many(asked: Asked) -> bool:
    return asked.filtered or asked.everything


def _streamed(asked: Asked) -> bool:
    return not asked.upload and not _many(asked) and (asked.output is None or to_stdout(asked))


def _refuse(asked: Asked) -> None:
    if asked.logical:
        raise BadUsage("a trace is of one session", hint="leave --lineage logical out")
    if asked.upload and _many(asked):
        raise BadUsage(
            "--upload exports one session: pass --session-id (or drop filters to use the most recent).",
            hint="nothing was sent",
        )
    if asked.upload and asked.output is not None:
        raise BadUsage("--upload sends the trace and writes no file", hint="leave OUTPUT out")
    if to_stdout(asked) and _many(asked):
        raise BadUsage("traces of many sessions are a file each", hint="name a folder, or leave OUTPUT out")


def _selected(view: View, asked: Asked) -> Done:
    """Where nothing is named, what was used last."""
    found = selected(view, asked)
    if asked.session is None and not _many(asked):
        found.sessions = found.sessions[:1]
        if not found.sessions:
            raise BadUsage("No session found to export. Pass --session-id.", hint="nothing was written")
    return found


def _write(view: View, asked: Asked, done: Done) -> None:
    rows = rows_of(view, asked)
    if asked.upload:
        _upload(rows, asked, done)
    elif not _many(asked):
        with opened(asked, done, _file_name(done.sessions[0]), streamed=_streamed(asked)) as write:
            _one(rows, done, write)
    elif len(done.sessions) == 1 and _is_file(asked):
        with opened(asked, done, "", streamed=False) as write:
            _one(rows, done, write)
    else:
        _into_folder(rows, asked, done)


def _file_name(session_id: str) -> str:
    from ...infrastructure.exporters.markdown import safe_id

    return safe_id(session_id) + _SUFFIX


def _is_file(asked: Asked) -> bool:
    """Whether OUTPUT can be the one file: it is no folder, and is not written as one."""
    if asked.output is None or asked.output.endswith(os.sep):
        return False
    return not path_of(asked.output).is_dir()


def _one(rows: Rows, done: Done, write: Write) -> None:
    from ...infrastructure.exporters.trace import write_trace

    (session_id,) = done.sessions
    count = write_trace(rows, session_id, write)
    if not count:
        raise RuleBroken(
            f"No transcript to export for session '{session_id}'.",
            hint="it has no messages; nothing was written",
        )
    done.exported += 1
    done.messages += count


def _into_folder(rows: Rows, asked: Asked, done: Done) -> None:
    """A file each; a session without messages has none."""
    from ...infrastructure.exporters.output_file import make_folder, written
    from ...infrastructure.exporters.trace import lines, write_trace

    folder = folder_of(asked)
    make_folder(folder)
    for session_id in done.sessions:
        if next(lines(rows, session_id), None) is None:
            done.empty.append(session_id)
            continue
        path = folder / _file_name(session_id)
        if path.is_file() and not asked.force:
            done.skipped.append(readable(path))
            continue
        with written(path, force=asked.force) as out:
            done.messages += write_trace(rows, session_id, out.write)
        done.exported += 1
        done.files.append(readable(path))


def _upload(rows: Rows, asked: Asked, done: Done) -> None:
    from ...infrastructure import hub
    from ...infrastructure.exporters.markdown import safe_id

    token = hub.token()
    (session_id,) = done.sessions
    with tempfile.TemporaryDirectory(prefix="retold-") as folder:
        path = Path(folder) / "trace.jsonl"
        with path.open("wb") as out:
            _one(rows, done, out.write)
        name = safe_id(str(rows.session(session_id)["id"]))
        done.uploaded = hub.upload(path, name, public=asked.public, token=token)


def _said(asked: Asked, done: Done) -> str:
    if (sent := done.uploaded) is not None:
        kind = "public" if sent.public else "private"
        return (
            f"Uploaded {plural(done.messages, 'message')} ({sent.bytes:,} bytes, sha256 {sent.sha256})"
            f" to the {kind} dataset {sent.dataset}: {sent.url}"
        )
    if _many(asked) and not (len(done.files) == 1 and done.files[0] == readable(folder_of(asked))):
        return f"Exported {done.exported} session trace(s) to {readable(folder_of(asked))}"
    return f"Exported 1 session trace to {done.files[0]}"


def _copy(asked: Asked, done: Done) -> Path:
    return folder_of(asked) if _many(asked) else the_file(asked, done)


FORM = Form(_write, _said, _copy, _refuse, _streamed, _selected)
