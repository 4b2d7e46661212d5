"""The engine is made of groups of commands: none of them may hide what another one defines."""

from __future__ import annotations

from collections import defaultdict

from retold.infrastructure.decisions import Decisions
from retold.infrastructure.engine import SessionEngine


def test_no_two_groups_define_the_same_name() -> None:
    defined: defaultdict[str, list[type]] = defaultdict(list)
    for group in SessionEngine.__mro__:
        if group.__module__.startswith("retold.") and group is not SessionEngine:
            for name in vars(group):
                if not name.startswith("__"):
                    defined[name].append(group)
    twice = {
        name: groups
        for name, groups in defined.items()
        if len(groups) > 1 and Decisions not in groups and not name.startswith("_abc")
    }

    assert twice == {}


def test_every_command_says_what_it_does() -> None:
    commands = {
        name: value
        for group in SessionEngine.__mro__
        if group.__module__.startswith("retold.infrastructure.commands")
        for name, value in vars(group).items()
        if callable(value) and not name.startswith("_")
    }

    assert [name for name, value in commands.items() if not value.__doc__] == []
