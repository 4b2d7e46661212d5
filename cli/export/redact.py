"""`retold sessions export --redact`: secrets are masked on the way out, and where is said."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from ...domain.errors import BadUsage
from ..output import plural, visible
from ..stream import say
from .form import Asked, Done

if TYPE_CHECKING:
    from ...infrastructure.reading import View
    from ...infrastructure.redaction.redactor import Masked, Redactor

_SHOWN: Final = 100
"""Lines of the report that are printed; --json has all of them."""


def refuse_unmasked(asked: Asked) -> None:
    """Refuse what cannot be masked here, and what may not leave without.

    Raises:
        BadUsage: an option that another rules out, or a package that is not there.
    """
    if asked.form != "trace":
        for option, given in (("--upload", asked.upload), ("--public", asked.public)):
            if given:
                raise BadUsage(f"{option} is only supported with --format trace.", hint="nothing was written")
    elif asked.public and not asked.upload:
        raise BadUsage("--public says where --upload sends it", hint="add --upload, or leave --public out")
    elif asked.upload and not asked.masks:
        raise BadUsage(
            "--upload and --no-redact exclude each other: nothing is sent with its secrets",
            hint="leave --no-redact out; docs/redaction.md says how a rule is switched off",
        )
    if asked.masks and not asked.dry_run:
        from ...infrastructure.redaction.redactor import MODULES

        what = "a trace is redacted, which" if asked.form == "trace" else "--redact"
        _refuse_missing(what, "redact", MODULES)
    if asked.upload and not asked.dry_run:
        from ...infrastructure.hub import MODULES as OF_UPLOADS

        _refuse_missing("--upload", "upload", OF_UPLOADS)


def _refuse_missing(what: str, extra: str, modules: Sequence[str]) -> None:
    if missing := [each for each in modules if find_spec(each) is None]:
        raise BadUsage(
            f"{what} needs what is not installed: {', '.join(missing)}",
            hint=f"install Retold with the extra `{extra}`: uv tool install '.[{extra}]'",
        )


def redactor(view: View, asked: Asked) -> Redactor:
    """What masks secrets in the rows of this export."""
    from ...infrastructure.redaction.redactor import Redactor

    what = "trace content" if asked.form == "trace" else "content"
    made = Redactor(view.home.path, view.config.redaction.rules, what=what)
    asked.redactors.append(made)
    return made


def note_masked(asked: Asked, done: Done) -> None:
    """Put down what was masked."""
    if asked.masks:
        found = {(each.session, each.message, each.field, each.rule): each for each in _all(asked)}
        done.masked = list(found.values())


def _all(asked: Asked) -> list[Masked]:
    return [each for made in asked.redactors for each in made.report]


def tell_masked(done: Done) -> None:
    """What was masked and where; never what it was."""
    if done.masked is None:
        return
    if not done.masked:
        say(["Redacted: nothing that looks like a secret was found; read it before you share it"])
        return
    count = sum(each.count for each in done.masked)
    of = plural(len({each.session for each in done.masked}), "session")
    say([f"Redacted: {plural(count, 'secret')} in {of}; read it before you share it"])
    say(_line(each) for each in done.masked[:_SHOWN])
    if len(done.masked) > _SHOWN:
        say([f"  ... {len(done.masked) - _SHOWN} more; --json lists all"])


def _line(each: Masked) -> str:
    where = "session" if each.message is None else f"message {each.message}"
    return visible(f"  {each.session}  {where}  {each.field}  {each.rule}  {each.count}")
