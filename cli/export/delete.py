"""`retold sessions export --delete-after-verified`: a session goes once its pages are sound on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...domain.errors import BadUsage, ChangedMeanwhile, RuleBroken
from ..options import with_home
from ..output import iso_us, plural
from ..stream import put, say
from .form import Asked, Done

if TYPE_CHECKING:
    from ...infrastructure.reading import View
    from ...projections.base import Connection


def refuse_deletion(asked: Asked, *, yes: bool, at: str | None) -> None:
    """Refuse to delete what is not exported as it is, or what is not one session (REFERENCE.md 5.5).

    Raises:
        BadUsage: names the option.
    """
    if not yes:
        raise BadUsage("--delete-after-verified requires --yes.", hint="nothing was written")
    if asked.session is None:
        raise BadUsage(
            "--delete-after-verified is only supported with --session-id.", hint="nothing was written"
        )
    if asked.form not in ("md", "qmd") or asked.prompts:
        raise BadUsage(
            "--delete-after-verified is only supported with --format md or qmd.",
            hint="of these what was written can be held against what is deleted",
        )
    for option, given in (
        ("--lineage logical", asked.logical),
        ("--sanitize", asked.sanitize),
        ("--at", at is not None),
    ):
        if given:
            raise BadUsage(
                f"--delete-after-verified and {option} exclude each other",
                hint="what is deleted has to stand in the export, and nothing else",
            )


def with_delegates(db: Connection, done: Done) -> list[str]:
    """The session, and the delegates that go with it."""
    from ...projections.deletions import delegates_of

    (session_id,) = done.sessions
    return [session_id, *sorted(delegates_of(db, session_id))]


def delete_exported(view: View, asked: Asked, done: Done) -> None:
    """Delete what was exported, if it still is what it was then.

    Raises:
        RuleBroken: a session was changed, or another delegate came, since; nothing was deleted.
    """
    from ..writing import writing

    session_id, *along = done.sessions
    try:
        with writing(asked.home, upkeep=False) as engine:
            deleted = engine.delete_conversation([session_id], "exported", as_of=view.known_at, along=along)
    except ChangedMeanwhile as changed:
        raise RuleBroken(
            f"{changed.message}; not deleting what was exported",
            hint="export it again with --force",
        ) from changed
    done.deleted = list(deleted.sessions)
    done.erase_after_at = iso_us(deleted.erase_after_us)


def tell_deleted(asked: Asked, done: Done) -> None:
    """What was deleted, and how it comes back."""
    if not done.deleted:
        return
    from ...domain.shell import shell_word

    session_id, *along = done.sessions
    if not asked.as_json:
        its = f" and {plural(len(along), 'delegate session')}" if along else ""
        put(f"Deleted exported session '{session_id}'{its}.")
    back = f"retold sessions undelete {shell_word(session_id)}{with_home(asked.home)}"
    say([f"Until {done.erase_after_at} this brings it back: {back}"])
