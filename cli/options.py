"""Options that several commands share; each is a decorator that adds one parameter."""

from __future__ import annotations

import os.path
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ..domain.shell import shell_word

MOST = 10**18
"""No count and no id is larger; SQLite holds no number of more than 64 bits."""


class _Count(click.IntRange):
    """0 or more; help names no upper end, for nobody comes near it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        count: int = super().convert(value, param, ctx)
        if count > MOST:
            self.fail(f"{count} is more than anything here could be", param, ctx)
        return count


COUNT = _Count(min=0)
"""The type of every option that says how many, or which message."""

Command = TypeVar("Command", bound=Callable[..., object])


def home_option(command: Command) -> Command:
    """`home: Path`, absolute; the folder need not exist."""
    return click.option(
        "--home",
        metavar="PATH",
        envvar="RETOLD_HOME",
        default="~/.retold",
        show_default=True,
        show_envvar=True,
        callback=_as_path,
        help="The Retold home to use.",
    )(command)


def with_home(home: Path) -> str:
    """The option that makes a command find this home, where it was named by hand; else ""."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or ctx.get_parameter_source("home") is not ParameterSource.COMMANDLINE:
        return ""
    return f" --home {shell_word(str(home))}"


def json_option(command: Command) -> Command:
    """`as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def at_option(command: Command) -> Command:
    """`at: str | None`, not yet parsed."""
    return click.option(
        "--at",
        metavar="#POS|TIME",
        help="Answer as of a position (#120) or a time (ISO 8601, or 2d for two days ago).",
    )(command)


def _as_path(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    if not value.strip():
        raise click.BadParameter("it names no folder", ctx=ctx, param=param)
    # Links stay as the user wrote them, so that messages name the path that they know.
    return Path(os.path.abspath(os.path.expanduser(value)))
