"""`retold sessions export`: sessions as JSONL or Markdown, or only what people asked."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import msgspec

from ..domain.errors import BadUsage, RuleBroken
from .filters import described, filter_options, parsed
from .options import at_option, home_option, json_option
from .output import emit_json, plural
from .stream import answering, put, say, write_bytes

if TYPE_CHECKING:
    from ..infrastructure.reading import View
    from ..projections.base import Connection

Format = Literal["jsonl", "md", "qmd"]
Write = Callable[[bytes], object]
_SHOWN: Final = 100
"""Sessions that a dry run lists."""


class Asked(msgspec.Struct, frozen=True):
    """What is to be exported, and how."""

    form: Format
    output: str | None
    home: Path
    session: str | None
    given: dict[str, Any]
    prompts: bool
    logical: bool
    force: bool
    dry_run: bool

    @property
    def filtered(self) -> bool:
        """Whether there is any filter."""
        return any(value is not None for value in self.given.values())

    @property
    def streamed(self) -> bool:
        """Whether it goes to standard output."""
        return self.output == "-" or (self.prompts and self.output is None)


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
    passed_over: int = 0
    not_utf8: int = 0


@click.command()
@click.argument("output", metavar="[OUTPUT]", required=False)
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "md", "qmd"]), default="jsonl", show_default=True
)
@click.option(
    "--session-id", "session", metavar="ID", help="One session: its id, the beginning of it, or a title."
)
@click.option("--only", type=click.Choice(["user-prompts"]), help="Only what people asked: jsonl or md.")
@click.option(
    "--lineage",
    type=click.Choice(["single", "logical"]),
    default="single",
    show_default=True,
    help="logical: the whole conversation that a session is a segment of.",
)
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.option("--dry-run", is_flag=True, help="Only show what the filters select.")
@filter_options
@home_option
@at_option
@json_option
def export(
    home: Path,
    at: str | None,
    as_json: bool,
    output: str | None,
    form: Format,
    session: str | None,
    only: str | None,
    lineage: str,
    force: bool,
    dry_run: bool,
    **given: Any,
) -> None:
    """Export sessions to a file, a folder or standard output.

    OUTPUT is a file, a folder, or - for standard output. Without --session-id and filters it is
    every session, open and archived ones too (jsonl); filters select what has ended. Markdown goes
    into a folder, a file each, with a line in its manifest.jsonl; where none is named, into
    session-exports in the home. A file that is there already is left alone.

    Messages that were undone are not exported; jsonl holds what a model sees, the others what was
    compacted, too. Each message bears one id through every export and `retold import jsonl`.
    """
    asked = Asked(form, output, home, session, given, only is not None, lineage == "logical", force, dry_run)
    _refuse(asked, as_json=as_json)
    with answering(home, at) as view, _one_state(view.db):
        done = _selected(view, asked)
        if dry_run:
            done.dry_run = True
            _tell_selected(view.db, done, as_json=as_json)
            return
        if asked.prompts:
            _export_prompts(view.db, asked, done)
        elif form == "jsonl":
            _export_jsonl(view.db, asked, done)
        else:
            _export_pages(view, asked, done)
        _note(view, asked, done)
    _tell(asked, done, as_json=as_json)


def _refuse(asked: Asked, *, as_json: bool) -> None:
    if asked.output is not None and not asked.output.strip():
        raise BadUsage("OUTPUT is empty and names no file", hint="name a file, a folder, or -")
    if asked.session is not None and asked.filtered:
        raise BadUsage("--session-id and filters exclude each other", hint="leave one of them out")
    if asked.prompts and asked.form == "qmd":
        raise BadUsage("--only user-prompts supports --format jsonl or md.", hint="leave --format qmd out")
    if asked.dry_run:
        if not asked.filtered:
            raise BadUsage("--dry-run requires at least one filter.", hint="nothing was written")
        return
    if as_json and asked.streamed:
        raise BadUsage("--json answers where the export goes", hint="name a file, or leave --json out")
    if not asked.prompts:
        _refuse_place(asked)
    _refuse_home(asked)


def _refuse_home(asked: Asked) -> None:
    """No export goes among the files of the home."""
    from ..infrastructure.exporters.output_file import refuse_inside

    if asked.output is not None and not asked.streamed:
        refuse_inside(asked.home, _path(asked.output))


def _refuse_place(asked: Asked) -> None:
    if asked.form == "jsonl":
        if asked.output is None:
            raise BadUsage(
                "JSONL export requires an output path (use - for stdout).", hint="nothing was written"
            )
    elif asked.output == "-":
        raise BadUsage(
            "Markdown/QMD export writes files; stdout (-) is only supported with --format jsonl.",
            hint="name a folder",
        )
    elif asked.session is None and not asked.filtered:
        raise BadUsage(
            "Refusing bulk export without a filter. Pass --session-id or at least one filter"
            " (e.g. --older-than 90, --source telegram).",
            hint="nothing was written",
        )


@contextlib.contextmanager
def _one_state(db: Connection) -> Iterator[None]:
    """Everything is read as it stood at one moment, whoever writes meanwhile."""
    db.execute("SAVEPOINT exporting")
    try:
        yield
    finally:
        db.execute("RELEASE exporting")


def _selected(view: View, asked: Asked) -> Done:
    if asked.session is not None:
        from ..projections.find import find_session

        return Done(sessions=[find_session(view.db, asked.session)])
    from ..projections.exported import last_used_first

    if not asked.filtered:
        return Done(sessions=last_used_first(view.db))
    from ..projections.selection import matching

    filters = parsed(asked.given, now_us=view.now_us, zone=view.config.zone)
    ended = {each.id for each in matching(view.db, filters)}
    return Done(
        filters=described(filters),
        sessions=last_used_first(view.db, ended),
        passed_over=len(matching(view.db, filters, ended=False)) - len(ended),
    )


def _conversations(db: Connection, asked: Asked, done: Done) -> list[list[str]]:
    """The sessions asked for; of a whole conversation its segments, once whichever of them were named."""
    if not asked.logical:
        return [[each] for each in done.sessions]
    from ..projections.exported import segments

    found = dict.fromkeys(tuple(segments(db, each)) for each in done.sessions)
    return [list(each) for each in found]


# --- where it goes ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(asked: Asked, done: Done, name: str) -> Iterator[Write]:
    """Standard output, or the file; `name` is what it is called in a folder."""
    if asked.streamed:
        yield write_bytes
        return
    from ..infrastructure.exporters.output_file import written

    path = _path(str(asked.output))
    if path.is_dir():
        path /= name
    with written(path, force=asked.force) as out:
        yield out.write
    done.files.append(_readable(path))


def _note(view: View, asked: Asked, done: Done) -> None:
    """Remember where it went, so that whoever erases a text is told of it."""
    from ..infrastructure.copies import note_copy

    if done.files and (asked.prompts or asked.form == "jsonl"):
        path = Path(done.files[0])
        if path.is_file():
            note_copy(view.home.path, path)
    elif done.files:
        note_copy(view.home.path, _folder(asked))


def _folder(asked: Asked) -> Path:
    """Where pages go."""
    from ..infrastructure.exporters.output_file import EXPORTS

    return asked.home / EXPORTS if asked.output is None else _path(asked.output)


def _path(text: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(text)))


def _readable(path: Path) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def _name(asked: Asked, done: Done, suffix: str) -> str:
    if asked.session is None:
        return f"sessions{suffix}"
    from ..infrastructure.exporters.markdown import safe_id

    return safe_id(done.sessions[0]) + suffix


# --- each form --------------------------------------------------------------------------------------


def _export_jsonl(db: Connection, asked: Asked, done: Done) -> None:
    from ..infrastructure.exporters.jsonl import write_session

    everything = asked.session is None and not asked.filtered
    with _opened(asked, done, _name(asked, done, ".jsonl")) as write:
        for conversation in _conversations(db, asked, done):
            for session_id in conversation:
                messages, odd = write_session(db, session_id, write, with_activity=everything)
                done.exported += 1
                done.messages += messages
                done.not_utf8 += odd


def _export_prompts(db: Connection, asked: Asked, done: Done) -> None:
    from ..infrastructure.exporters import prompts

    ids = [each for conversation in _conversations(db, asked, done) for each in conversation]
    told = prompts.as_markdown if asked.form == "md" else prompts.as_jsonl
    done.exported, done.prompts = len(ids), 0
    with _opened(asked, done, _name(asked, done, f".prompts.{asked.form}")) as write:
        for piece, count in told(db, ids):
            write(piece)
            done.prompts += count


def _export_pages(view: View, asked: Asked, done: Done) -> None:
    from ..infrastructure.exporters import markdown, output_file

    folder = _folder(asked)
    output_file.make_folder(folder)
    form: markdown.Format = "qmd" if asked.form == "qmd" else "md"
    for conversation in _conversations(view.db, asked, done):
        page = markdown.page_of(view.db, conversation, lineage=asked.logical)
        path = folder / markdown.file_name(page.session, form)
        now = time.time()
        try:
            with output_file.written(path, force=asked.force) as out:
                for piece in markdown.render(view.db, page, form, exported_at=now):
                    out.write(piece)
        except RuleBroken:
            if asked.session is not None:
                raise
            done.skipped.append(_readable(path))
            continue
        markdown.note_in_manifest(folder, page, path, form, exported_at=now)
        done.exported += 1
        done.messages += page.count
        done.files.append(_readable(path))


# --- what is said of it -----------------------------------------------------------------------------


def _tell_selected(db: Connection, done: Done, *, as_json: bool) -> None:
    """What would be exported; the words are those of REFERENCE.md 5."""
    if as_json:
        emit_json(done)
    else:
        put(f"Would export {len(done.sessions)} session(s) ({done.filters}).")
        for each in done.sessions[:_SHOWN]:
            (source,) = db.execute("SELECT source FROM sessions WHERE id = ?", (each,)).fetchone()
            put(f"  {each}  {source}")
        if len(done.sessions) > _SHOWN:
            put(f"  ... {len(done.sessions) - _SHOWN} more")
    _tell_passed_over(done)


def _tell(asked: Asked, done: Done, *, as_json: bool) -> None:
    if as_json:
        emit_json(done)
    elif not asked.streamed:
        put(_sentence(asked, done))
    say(f"Skipping existing export: {each}. Pass --force to overwrite." for each in done.skipped)
    _tell_passed_over(done)
    if done.not_utf8:
        values = plural(done.not_utf8, "value")
        say([f"{values} held bytes that are no valid UTF-8: U+FFFD stands there, not_utf8 names the columns"])


def _tell_passed_over(done: Done) -> None:
    if done.passed_over:
        which = plural(done.passed_over, "session that matches", "sessions that match")
        were = "has not ended and was" if done.passed_over == 1 else "have not ended and were"
        say([f"{which} {were} passed over; --session-id exports such a one"])


def _sentence(asked: Asked, done: Done) -> str:
    if done.prompts is not None:
        return f"Exported {plural(done.prompts, 'prompt')} to {done.files[0]}"
    if asked.form == "jsonl":
        return f"Exported {plural(done.exported, 'session')} to {done.files[0]}"
    if asked.session is not None:
        return f"Exported 1 session ({plural(done.messages, 'message')}) to {done.files[0]}"
    return f"Exported {plural(done.exported, 'session')} to {_readable(_folder(asked))}"
