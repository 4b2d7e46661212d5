"""What every form of export is asked, answers with and stands on: the sessions, their rows, the place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..filters import described, parsed
from ..stream import write_bytes

if TYPE_CHECKING:
    from ...infrastructure.exporters.rows import Change, Rows
    from ...infrastructure.hub import Uploaded
    from ...infrastructure.reading import View
    from ...infrastructure.redaction.redactor import Masked, Redactor
    from ...projections.base import Connection

Write = Callable[[bytes], object]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be exported, and how: the options of the command."""

    form: str
    output: str | None
    home: Path
    session: str | None
    given: dict[str, Any]
    everything: bool
    prompts: bool
    logical: bool
    sanitize: bool
    redact: bool | None
    upload: bool
    public: bool
    delete: bool
    force: bool
    dry_run: bool
    as_json: bool
    redactors: list[Redactor] = []
    """Those at work: what they masked is told at the end."""

    @property
    def masks(self) -> bool:
        """Whether secrets are masked: a trace is written to be shared."""
        return self.form == "trace" if self.redact is None else self.redact or False

    @property
    def filtered(self) -> bool:
        """Whether there is any filter."""
        return any(value is not None for value in self.given.values())


class Done(msgspec.Struct):
    """What was written, or would be."""

    dry_run: bool = False
    filters: str | None = None
    sessions: list[str] = []
    exported: int = 0
    messages: int = 0
    prompts: int | None = None
    files: list[str] = []
    skipped: list[str] = []
    empty: list[str] = []
    passed_over: int = 0
    not_utf8: int = 0
    masked: list[Masked] | None = None
    uploaded: Uploaded | None = None
    deleted: list[str] = []
    erase_after_at: str | None = None


def selected(view: View, asked: Asked) -> Done:
    """The session that was named, those that pass the filters and have ended, or all.

    With --all those that have not ended, too.
    """
    if asked.session is not None:
        from ...projections.find import find_session

        return Done(sessions=[find_session(view.db, asked.session)])
    from ...projections.exported import last_used_first

    if not asked.filtered:
        return Done(sessions=last_used_first(view.db))
    from ...projections.selection import matching

    filters = parsed(asked.given, now_us=view.now_us, zone=view.config.zone)
    found = {each.id for each in matching(view.db, filters, ended=not asked.everything)}
    return Done(
        filters=described(filters),
        sessions=last_used_first(view.db, found),
        passed_over=len(matching(view.db, filters, ended=False)) - len(found),
    )


def to_stdout(asked: Asked) -> bool:
    """Whether standard output was named as the place."""
    return asked.output == "-"


def _anything_goes(_asked: Asked) -> None:
    pass


class Form(NamedTuple):
    """A form of export: a module of its own has it as `FORM`, and FORMS in `export` names the module.

    Attributes:
        write: writes what was selected, and puts down in `Done` what that was.
        said: the sentence about it.
        refuse: refuses what makes no sense in this form (BadUsage), before anything is opened.
        streamed: whether it goes to standard output.
        copy: the file or folder that may still hold what is erased later.
        selected: which sessions it is about.
    """

    write: Callable[[View, Asked, Done], None]
    said: Callable[[Asked, Done], str]
    copy: Callable[[Asked, Done], Path]
    refuse: Callable[[Asked], None] = _anything_goes
    streamed: Callable[[Asked], bool] = to_stdout
    selected: Callable[[View, Asked], Done] = selected


def rows_of(view: View, asked: Asked) -> Rows:
    """The rows of what is exported, as the options want them to be."""
    from ...infrastructure.exporters.rows import Rows

    if not asked.sanitize and not asked.masks:
        return Rows(view.db)
    changes: list[Change] = []
    if asked.sanitize:
        from ...infrastructure.exporters.sanitize import Sanitized

        changes.append(Sanitized())
    if asked.masks:
        from .redact import redactor

        changes.append(redactor(view, asked))
    return Rows(view.db, *changes)


def conversations(db: Connection, asked: Asked, done: Done) -> list[list[str]]:
    """The sessions asked for; of a whole conversation its segments, once whichever of them were named."""
    if not asked.logical:
        return [[each] for each in done.sessions]
    from ...projections import exported

    return exported.conversations(db, done.sessions)


# --- where it goes ----------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(asked: Asked, done: Done, name: str, *, streamed: bool) -> Iterator[Write]:
    """Standard output, or the one file; `name` is what it is called in a folder."""
    if streamed:
        yield write_bytes
        return
    from ...infrastructure.exporters.output_file import make_folder, written

    path = path_of(str(asked.output))
    if str(asked.output).endswith(os.sep):
        make_folder(path)
    if os.path.isdir(path):
        path /= name
    with written(path, force=asked.force) as out:
        yield out.write
    done.files.append(readable(path))


def folder_of(asked: Asked) -> Path:
    """Where a file each goes; the home has a folder for them where none is named."""
    from ...infrastructure.exporters.output_file import EXPORTS

    return asked.home / EXPORTS if asked.output is None else path_of(asked.output)


def name_of(asked: Asked, done: Done, suffix: str) -> str:
    """What the one file is called in a folder."""
    if asked.session is None:
        return f"sessions{suffix}"
    from ...infrastructure.exporters.markdown import safe_id

    return safe_id(done.sessions[0]) + suffix


def the_file(_asked: Asked, done: Done) -> Path:
    """The one file that was written."""
    return Path(done.files[0])


def the_folder(asked: Asked, _done: Done) -> Path:
    """The folder that files were written into."""
    return folder_of(asked)


def path_of(text: str) -> Path:
    """A path as a person gives it."""
    return Path(os.path.abspath(os.path.expanduser(text)))


def readable(path: Path) -> str:
    """A path as text, whatever its bytes."""
    return os.fsencode(path).decode(errors="backslashreplace")
