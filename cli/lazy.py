"""A click group that shows its commands without importing them: start-up is imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click


class Lazy(NamedTuple):
    """Where a command lives, and the line that help shows for it."""

    module: str
    attribute: str
    short_help: str


class LazyGroup(click.Group):
    """Stands stubs in for its commands; the one that is called is imported and takes over."""

    def __init__(
        self,
        name: str,
        table: dict[str, Lazy | LazyGroup],
        *,
        short: Mapping[str, Sequence[str]] | None = None,
        **attrs: object,
    ) -> None:
        """`short` are options that stand for a command where they come first: `-c` for `resume`."""
        commands: dict[str, click.Command] = {
            each: entry if isinstance(entry, LazyGroup) else click.Command(each, short_help=entry.short_help)
            for each, entry in table.items()
        }
        super().__init__(name, commands, **attrs)  # type: ignore[arg-type] # click's own keywords
        self.table = table
        self.short = short or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.short:
            args = [*self.short[args[0]], *args[1:]]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 # click asks with it
        return list(self.commands)  # in the order of the table: what is needed first comes first

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, stub, rest = super().resolve_command(ctx, args)
        entry = self.table.get(name) if name else None
        return name, load(entry) if isinstance(entry, Lazy) else stub, rest


def load(entry: Lazy) -> click.Command:
    from importlib import import_module

    command: click.Command = getattr(import_module(f".{entry.module}", __package__), entry.attribute)
    return command
