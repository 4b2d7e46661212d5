"""How `retold sessions list` looks: with titles or without, and what gives way where it is narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from ..projections.sessions import SessionLine
from .output import Column, cell_width, fit, relative_time, table, visible
from .stream import is_terminal, terminal_width

_WIDEST_PADDED: Final = 64
"""Piped, a longer cell is whole and the others do not wait for it."""
_LEAST_TITLE, _LEAST_PREVIEW = 8, 10
_WORKSPACE: Final = 18


class Cells(msgspec.Struct, frozen=True):
    """What a row says, a cell each."""

    title: str
    preview: str
    workspace: str
    last_active: str
    source: str
    id: str


class Widths(msgspec.Struct, frozen=True):
    """Cells of the columns that give way; 0 for one that is left out, None for as wide as it needs to be."""

    title: int | None = None
    preview: int | None = None
    workspace: int | None = None


def cells_of(each: SessionLine, now_us: int, *, stale: bool) -> Cells:
    """A session's row."""
    marks = [name for name, has in (("pinned", each.pinned), ("archived", each.archived)) if has]
    if stale and not each.archived:
        marks.append("stale")
    mark = f" ({', '.join(marks)})" if marks else ""
    return Cells(
        title=each.title or "—",
        preview=each.preview or "—",
        workspace=label(each.workspace),
        last_active=relative_time(_last_active(each, now_us), now_us),
        source=each.source + mark,
        id=each.id,
    )


def label(workspace: str | None) -> str:
    """A project as people call it: the last part of its path, "—" for none."""
    if not workspace:
        return "—"
    return workspace.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or workspace


def rows(cells: list[Cells], *, titles: bool, workspaces: bool, asked: bool = False) -> Iterable[str]:
    """The lines of the list.

    Args:
        titles: whether any session has one; else what was said first stands in the first column, wider.
        workspaces: whether any session has a project.
        asked: the project was asked for: it stays where it is narrow, and the preview gives way.
    """
    width = terminal_width() if is_terminal() else None
    if width is None:
        widths: Widths | None = Widths(workspace=None if workspaces else 0)
    else:
        widths = _widths(cells, width, titles=titles, workspaces=workspaces, asked=asked)
    if widths is None:
        return [line for each in cells for line in _stacked(each, width or 0)]
    return table(
        [[value(each) for value in _values(titles, widths)] for each in cells], _columns(titles, widths)
    )


def _columns(titles: bool, widths: Widths) -> list[Column]:
    columns = [Column("Title", widths.title, most=_WIDEST_PADDED)] if titles else []
    if widths.preview != 0:
        columns.append(Column("Preview", widths.preview, most=_WIDEST_PADDED))
    if widths.workspace != 0:
        columns.append(Column("Workspace", widths.workspace, most=_WIDEST_PADDED))
    return [*columns, Column("Last Active"), Column("Source", most=_WIDEST_PADDED), Column("ID")]


def _values(titles: bool, widths: Widths) -> list[Callable[[Cells], str]]:
    alone = widths.preview == 0
    values: list[Callable[[Cells], str]] = []
    if titles:  # without a column for it, what was said names a session that has no title
        values.append(lambda row: row.preview if alone and row.title == "—" else row.title)
    if not alone:
        values.append(lambda row: row.preview)
    if widths.workspace != 0:
        values.append(lambda row: row.workspace)
    return [*values, lambda row: row.last_active, lambda row: row.source, lambda row: row.id]


def _widths(cells: list[Cells], width: int, *, titles: bool, workspaces: bool, asked: bool) -> Widths | None:
    """What the other columns leave, since an id is never cut; at most what Hermes gives them.

    None where no table has room.
    """
    taken = _widest("Last Active", (each.last_active for each in cells))
    taken += _widest("Source", (each.source for each in cells)) + _widest("ID", (each.id for each in cells))
    room = width - taken - 2 * 3
    project = min(_WORKSPACE, _widest("Workspace", (each.workspace for each in cells)))
    for beside in (project, 0) if workspaces else (0,):
        left = room - (beside + 2 if beside else 0)
        whole = _shared(left, titles=titles, beside=beside)
        if whole is not None:
            return whole
        if titles and (asked or not beside) and left >= _LEAST_TITLE:
            return Widths(min(left, 60), 0, beside)
    return None


def _shared(room: int, *, titles: bool, beside: int) -> Widths | None:
    """Title and preview side by side, or a preview alone; None where there is no room."""
    if not titles:
        return Widths(0, min(room, 38 if beside else 50), beside) if room >= _LEAST_TITLE else None
    room -= 2
    title = min(28 if beside else 32, max(12, room * 2 // 5))
    preview = min(40, room - title)
    return Widths(title, preview, beside) if preview >= _LEAST_PREVIEW else None


def _widest(name: str, values: Iterable[str]) -> int:
    return max(len(name), *map(cell_width, values))


def _stacked(row: Cells, width: int) -> Iterator[str]:
    """A session where no table has room: what it is about, and below it its id, whole, and the rest."""
    yield fit(row.preview if row.title == "—" else row.title, width).rstrip()
    line = f"  {visible(row.id)}"
    for each in (row.last_active, row.source):
        if cell_width(line) + 2 + cell_width(each) <= width:
            line += f"  {visible(each)}"
    yield line


def _last_active(each: SessionLine, now_us: int) -> int:
    """When it was used last; no activity counts as later than it was recorded, but a start may be."""
    if each.started_us > now_us:
        return each.started_us
    return each.last_active_us or each.started_us
