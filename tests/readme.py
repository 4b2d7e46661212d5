"""Writes the generated parts of README.md and docs/commands.md: commands, their help, and real output.

`make readme` rewrites them; tests/test_readme.py fails while they differ from what the program says.
Between `<!-- generated: NAME -->` and `<!-- end -->` nothing is written by hand.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import click

from retold.cli.filters import NAMES as FILTERS
from retold.cli.lazy import Lazy, LazyGroup, load
from retold.cli.main import RETOLD, main

ROOT = Path(__file__).resolve().parent.parent
FIXTURE = ROOT / "tests" / "fixtures" / "hermes-home"
WRITTEN = ("README.md", "docs/commands.md")
WIDTH = 80
NOW_NS = 1_782_201_600_000_000_000
"""23 June 2026, 08:00 UTC: the day after the last message of the fixture."""
WHOSE = "/home/you"
HELP = RETOLD.context_settings["help_option_names"]
SHARED = {"as_json", "home", "at", "help"}
"""Parameters that most commands have; the table names only a command's own."""

_BLOCK = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_DURATION = re.compile(r"taken in \d+\.\d s")

SESSION = {
    "import": ["retold import hermes"],
    "list": ["retold sessions list --limit 5"],
    "why": ["retold why 1001"],
    "search": ["retold search '\"type constructor\"'", "retold search 세션 --limit 1"],
    "verify": ["retold verify"],
    "week": ["retold demo --week"],
}
"""What is shown, in the order in which it is run, on one home."""


class Command(NamedTuple):
    """A command that can be run: its words after `retold`, and click's description of it."""

    words: tuple[str, ...]
    short_help: str
    command: click.Command

    @property
    def line(self) -> str:
        """ "retold sessions list"."""
        return " ".join(("retold", *self.words))


def commands(group: LazyGroup = RETOLD, words: tuple[str, ...] = ()) -> Iterator[Command]:
    """Every command of the program, in the order of its help."""
    for name, entry in group.table.items():
        if isinstance(entry, Lazy):
            yield Command((*words, name), entry.short_help, load(entry))
        else:
            yield from commands(entry, (*words, name))


def help_of(command: Command) -> str:
    """What `--help` prints in a terminal of 80 columns."""
    parent: click.Context | None = None
    for word in ("retold", *command.words[:-1]):
        parent = click.Context(click.Command(word), info_name=word, parent=parent, help_option_names=HELP)
    context = click.Context(
        command.command,
        info_name=command.words[-1],
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=HELP,
    )
    return command.command.get_help(context)


def parsed(argv: list[str]) -> None:
    """Parse a command line without running it.

    Raises:
        click.UsageError: the program would refuse it.
    """
    command: click.Command = RETOLD
    name: str | None = "retold"
    context: click.Context | None = None
    with contextlib.suppress(click.exceptions.Exit):  # --help and --version end here
        while command is not None:
            context = command.make_context(name, list(argv), parent=context)
            if not isinstance(command, click.Group):
                return
            rest = [*context._protected_args, *context.args]
            name, found, argv = command.resolve_command(context, rest)
            assert found is not None
            command = found


# --- the parts ---------------------------------------------------------------------------------------


def command_table() -> str:
    """Each command with its own options and the first sentence of its help."""
    rows = ["| command | own options | what it does |", "|---|---|---|"]
    for each in commands():
        params = [p for p in each.command.params if p.name not in SHARED]
        arguments = [
            p.make_metavar(click.Context(each.command)) for p in params if isinstance(p, click.Argument)
        ]
        filtered = {p.name for p in params} >= FILTERS
        own = [
            p
            for p in params
            if isinstance(p, click.Option) and not p.hidden and not (filtered and p.name in FILTERS)
        ]
        options = [f"`{max(p.opts, key=len)}`" for p in own] + ["filters"] * filtered
        line = " ".join((each.line, *arguments))
        rows.append(f"| `{line}` | {' '.join(options) or '–'} | {each.short_help} |")
    return "\n".join(rows)


def full_help() -> str:
    """The help of every command."""
    return "\n\n".join(f"## {each.line}\n\n```\n{help_of(each)}\n```" for each in commands())


@functools.cache
def session() -> dict[str, str]:
    """Real output on tests/fixtures/hermes-home, by the name of the part that shows it.

    In UTC, 80 columns wide, at a fixed hour. Made constant: the folder, how long the import took, and
    the chain value (each log has a random identity of its own).
    """
    shown: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, _somebody(Path(folder).resolve()) as user:
        for name, lines in SESSION.items():
            parts = [f"$ {line}\n{_output(line, user)}" for line in lines]
            shown[name] = "```console\n{}\n```".format("\n\n".join(parts))
    return shown


@contextlib.contextmanager
def _somebody(user: Path) -> Iterator[Path]:
    """A user with a Hermes home and no Retold home, on a clock that stands still."""
    database = Path(shutil.copytree(FIXTURE, user / ".hermes")) / "state.db"
    os.utime(database, ns=(NOW_NS, NOW_NS))
    env = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
    env |= {"HOME": str(user), "TZ": "UTC", "NO_COLOR": "1", "COLUMNS": str(WIDTH)}
    clock = SimpleNamespace(time_ns=lambda: NOW_NS)
    try:
        with (
            mock.patch.dict(os.environ, env, clear=True),
            mock.patch("retold.infrastructure.clock.time", clock),
        ):
            time.tzset()
            yield user
    finally:
        time.tzset()


_FOREIGN = {"RETOLD_HOME", "RETOLD_DEBUG", "HERMES_HOME", "FORCE_COLOR"}


class _Terminal(io.StringIO):
    """Standard output as a person has it."""

    def isatty(self) -> bool:
        return True


def _output(line: str, user: Path) -> str:
    """What a command line shows in a terminal."""
    said = _Terminal()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        main(shlex.split(line)[1:])
    text = said.getvalue().replace(str(user), WHOSE)
    text = _DURATION.sub("taken in 0.2 s", text)
    return _HASH.sub(
        lambda _: "7c45872669cd6c27f6a98cc939842f0f05fdb7945916b63d261949abb51e1197", text
    ).rstrip()


def part(name: str) -> str:
    """The text that belongs into the generated part of this name."""
    if name == "commands":
        return command_table()
    if name == "help":
        return full_help()
    return session()[name]


def regenerated(text: str) -> str:
    """A page with all its generated parts written anew."""

    def fresh(match: re.Match[str]) -> str:
        return f"{match[1]}{part(match['name'])}\n{match[3]}"

    return _BLOCK.sub(fresh, text)


def write() -> None:
    """Rewrite the generated parts of every page."""
    for name in WRITTEN:
        page = ROOT / name
        page.write_text(regenerated(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
