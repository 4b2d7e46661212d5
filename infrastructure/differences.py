"""What two tellings of one table do not have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby, zip_longest
from typing import Any

import apsw
import msgspec

NO_ROWS = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.SQLError,
    apsw.IOError,
    TypeError,
    ValueError,
    AttributeError,
)
"""How reading rows ends that no fold has written."""


class Difference(msgspec.Struct, frozen=True):
    """What the rows told again did not have in common with those that were there."""

    table: str
    only_before: int
    only_now: int
    changed: int
    first: str
    """The first such row's key, for a person to look at."""


def difference_of(table: str, before: Iterable[Any], now: Iterable[Any]) -> Difference | None:
    """Walk two row sets, each in the order of its first column, side by side. None where equal."""
    old_rows, new_rows = iter(before), iter(now)
    for old, new in zip_longest(old_rows, new_rows):
        if old != new:
            break
    else:
        return None
    only_before = only_now = changed = 0
    first: Any = None
    olds, news = _groups(old, old_rows), _groups(new, new_rows)
    old_group, new_group = next(olds, None), next(news, None)
    while old_group is not None or new_group is not None:
        gone: list[Any] = []
        added: list[Any] = []
        if new_group is None or (old_group is not None and _before(old_group[0], new_group[0])):
            assert old_group is not None
            key, gone = old_group
            old_group = next(olds, None)
        elif old_group is None or _before(new_group[0], old_group[0]):
            key, added = new_group
            new_group = next(news, None)
        else:
            key = old_group[0]
            gone = [row for row in old_group[1] if row not in new_group[1]]
            added = [row for row in new_group[1] if row not in old_group[1]]
            old_group, new_group = next(olds, None), next(news, None)
        both = min(len(gone), len(added))
        changed += both
        only_before += len(gone) - both
        only_now += len(added) - both
        if first is None and (gone or added):
            first = key
    if first is None:
        return None
    return Difference(table, only_before, only_now, changed, str(first))


def _before(key: Any, other: Any) -> bool:
    """Whether SQLite puts `key` first: NULL, numbers, texts, blobs. A damaged key may be of any kind."""
    kinds = _kind(key), _kind(other)
    return bool(key < other) if kinds[0] == kinds[1] and kinds[0] else kinds[0] < kinds[1]


def _kind(key: Any) -> int:
    return 0 if key is None else 1 if isinstance(key, int | float) else 2 if isinstance(key, str) else 3


def _groups(first: Any, rest: Iterable[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Rows by their first column; a key of several columns makes a group of several rows."""
    rows = rest if first is None else chain([first], rest)
    for key, group in groupby(rows, key=lambda row: row[0]):
        yield key, list(group)
