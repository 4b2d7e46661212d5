"""`retold sessions export`: which sessions, in which form, and what is said of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from ...domain.errors import BadUsage
from ..filters import NAMES, filter_options
from ..options import at_option, home_option, json_option
from ..output import emit_json, plural
from ..stream import answering, put, say
from .delete import delete_exported, refuse_deletion, tell_deleted, with_delegates
from .form import Asked, Done, Form, path_of
from .redact import note_masked, refuse_unmasked, tell_masked

if TYPE_CHECKING:
    from ...infrastructure.reading import View
    from ...projections.base import Connection

FORMS: Final = {
    "jsonl": "jsonl",
    "md": "pages",
    "qmd": "pages",
    "html": "html",
    "trace": "trace",
}
"""The forms, and the module that has each as `FORM`; it is imported once it is asked for."""
_PROMPTS: Final = "prompts"
_SHOWN: Final = 100
"""Sessions that a dry run lists."""


def form_of(asked: Asked) -> Form:
    """How what was asked for is written."""
    module = _PROMPTS if asked.prompts else FORMS[asked.form]
    form: Form = import_module(f".{module}", __package__).FORM
    return form


@click.command()
@click.argument("output", metavar="[OUTPUT]", required=False)
@click.option("--format", "form", type=click.Choice(list(FORMS)), default="jsonl", show_default=True)
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
@click.option(
    "--all", "everything", is_flag=True, help="Every session in any form; with filters, open ones, too."
)
@click.option("--sanitize", is_flag=True, help="Structure without a word of what was said, to be shared.")
@click.option(
    "--redact/--no-redact", default=None, help="Mask secrets, and say where; --format trace always does."
)
@click.option("--upload", is_flag=True, help="With --format trace: send it to a private dataset of yours.")
@click.option("--public", is_flag=True, help="With --upload: a dataset that everybody can read.")
@click.option(
    "--delete-after-verified",
    "delete",
    is_flag=True,
    help="With --session-id, md or qmd: delete it and its delegates once their pages are sound.",
)
@click.option("--yes", "-y", is_flag=True, help="Do so without asking; --delete-after-verified needs it.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.option("--dry-run", is_flag=True, help="Only show what is selected.")
@filter_options
@home_option
@at_option
@json_option
def export(at: str | None, only: str | None, lineage: str, yes: bool, **given: Any) -> None:
    """Export sessions to a file, a folder or standard output.

    OUTPUT is a file, a folder, or - for standard output. Without --session-id and filters it is
    every session, open and archived ones too (Markdown wants --all for that); filters select what has
    ended, with --all what is open, too. HTML is one page of all of them. Markdown goes into a folder, a
    file each, with a line in its manifest.jsonl; where none is named, into session-exports in the home.
    A file that is there already is left alone.

    With --redact what looks like a secret is masked in every text, titles and prompts too, and where is
    said; rules of your own go into redaction.yaml in the home. A trace is one session in the form of
    Claude Code's logs, the one used last if none is named.

    Messages that were undone are not exported; jsonl holds what a model sees, the others what was
    compacted, too. Each message bears one id through every export and `retold import jsonl`.
    """
    filters = {name: given.pop(name) for name in NAMES}
    asked = Asked(given=filters, prompts=only is not None, logical=lineage == "logical", **given)
    form = form_of(asked)
    if asked.delete:
        refuse_deletion(asked, yes=yes or asked.dry_run, at=at)
    _refuse(asked, form)
    refuse_unmasked(asked)
    with answering(asked.home, at) as view:
        with _one_state(view.db):
            done = form.selected(view, asked)
            if asked.delete:
                done.sessions = with_delegates(view.db, done)
            if asked.dry_run:
                done.dry_run = True
                _tell_selected(view.db, asked, done)
                return
            try:
                form.write(view, asked, done)
                note_masked(asked, done)
            finally:
                _note(view, form, asked, done)
        if asked.delete:
            delete_exported(view, asked, done)
    _tell(form, asked, done)
    tell_deleted(asked, done)


def _refuse(asked: Asked, form: Form) -> None:
    if asked.output is not None and not asked.output.strip():
        raise BadUsage("OUTPUT is empty and names no file", hint="name a file, a folder, or -")
    if asked.session is not None and (asked.filtered or asked.everything):
        what = "filters" if asked.filtered else "--all"
        raise BadUsage(f"--session-id and {what} exclude each other", hint="leave one of them out")
    if asked.prompts and asked.sanitize:
        raise BadUsage("--sanitize leaves nothing of a prompt", hint="leave --only user-prompts out")
    if asked.dry_run:
        if asked.session is None and not asked.filtered and not asked.everything:
            raise BadUsage("--dry-run requires at least one filter.", hint="nothing was written")
        return
    streamed = form.streamed(asked)
    if asked.as_json and streamed:
        raise BadUsage("--json answers where the export goes", hint="name a file, or leave --json out")
    form.refuse(asked)
    if asked.output is not None and not streamed:
        from ...infrastructure.exporters.output_file import refuse_inside

        refuse_inside(asked.home, path_of(asked.output))


@contextlib.contextmanager
def _one_state(db: Connection) -> Iterator[None]:
    """Everything is read as it stood at one moment, whoever writes meanwhile."""
    db.execute("SAVEPOINT exporting")
    try:
        yield
    finally:
        db.execute("RELEASE exporting")


def _note(view: View, form: Form, asked: Asked, done: Done) -> None:
    """Remember where it went, so that whoever erases a text is told of it."""
    from ...infrastructure.copies import note_copy

    if done.files and (path := form.copy(asked, done)).exists():
        note_copy(view.home.path, path)


# --- what is said of it -----------------------------------------------------------------------------


def _tell_selected(db: Connection, asked: Asked, done: Done) -> None:
    """What would be exported; the words are those of REFERENCE.md 5."""
    if asked.as_json:
        emit_json(done)
    else:
        what = f"session '{done.sessions[0]}'" if asked.session is not None else done.filters or "all"
        put(f"Would export {len(done.sessions)} session(s) ({what}).")
        for each in done.sessions[:_SHOWN]:
            (source,) = db.execute("SELECT source FROM sessions WHERE id = ?", (each,)).fetchone()
            put(f"  {each}  {source}")
        if len(done.sessions) > _SHOWN:
            put(f"  ... {len(done.sessions) - _SHOWN} more")
    _tell_passed_over(done)


def _tell(form: Form, asked: Asked, done: Done) -> None:
    if asked.as_json:
        emit_json(done)
    elif not form.streamed(asked):
        put(form.said(asked, done))
    say(f"Skipping existing export: {each}. Pass --force to overwrite." for each in done.skipped)
    if done.empty:
        which = plural(len(done.empty), "session has", "sessions have")
        say([f"{which} no messages and no trace: {', '.join(done.empty)}"])
    _tell_passed_over(done)
    tell_masked(done)
    if done.not_utf8:
        values = plural(done.not_utf8, "value")
        say([f"{values} held bytes that are no valid UTF-8: U+FFFD stands there, not_utf8 names the columns"])


def _tell_passed_over(done: Done) -> None:
    if done.passed_over:
        which = plural(done.passed_over, "session that matches", "sessions that match")
        were = "has not ended and was" if done.passed_over == 1 else "have not ended and were"
        say([f"{which} {were} passed over; --all exports such ones, too, and --session-id one"])
