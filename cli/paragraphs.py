"""Text for people: wrapped by terminal cells, with labels that hang to the left of their lines."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Iterator

from .output import cell_width, fit, visible

NARROW = 48
"""With fewer cells than this, what would stand beside each other stands below each other."""
_NARROWEST, _WIDEST, _USUAL = 20, 100, 80
_LEAST_BESIDE = 24
_WORD = re.compile(r"\s*\S+")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def text_width() -> int:
    """How wide text may run here: the terminal's width within reason, 80 where there is none."""
    return min(max(shutil.get_terminal_size((_USUAL, 24)).columns, _NARROWEST), _WIDEST)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken at spaces; a longer word has a line to itself."""
    lines: list[str] = []
    line, used = "", 0
    for word in visible(text).split():
        cells = cell_width(word)
        if line and used + 1 + cells > width:
            lines.append(line)
            line, used = "", 0
        line, used = (f"{line} {word}", used + 1 + cells) if line else (word, cells)
    return [*lines, line] if line else lines


def fold(line: str, width: int, *, indent: int) -> list[str]:
    """A line that is too long goes on under itself, `indent` cells in, broken at spaces."""
    shown = visible(line).rstrip()
    if cell_width(shown) <= width:
        return [shown]
    lines: list[str] = []
    held, used = "", 0
    for word in _WORD.findall(shown):
        cells = cell_width(word)
        if held.strip() and used + cells > width:
            lines.append(held)
            word = " " * indent + word.lstrip()
            held, used = word, cell_width(word)
        else:
            held, used = held + word, used + cells
    return [*lines, held]


def hanging(label: str, paragraphs: Iterable[str], *, indent: int, width: int) -> Iterator[str]:
    """Paragraphs beside a label that stands two cells in; none for no paragraphs."""
    lead = f"  {label}"
    if width - indent < _LEAST_BESIDE:
        said = [line for paragraph in paragraphs for line in wrap(paragraph, width - 4)]
        yield from ([lead] if said else [])
        yield from (f"    {line}" for line in said)
        return
    for paragraph in paragraphs:
        for line in wrap(paragraph, width - indent):
            yield fit(lead, indent - 1).rstrip().ljust(indent) + line
            lead = ""


def short(text: str, width: int) -> str:
    """`text` on one line in at most `width` cells."""
    return fit(text, width).rstrip()


def day(us: int | None, now_us: int) -> str:
    """ "8 May" where this machine is, with the year when it is not this one."""
    if us is None:
        return "?"
    moment, now = time.localtime(us // 1_000_000), time.localtime(now_us // 1_000_000)
    text = f"{moment.tm_mday} {_MONTHS[moment.tm_mon - 1]}"
    return text if moment.tm_year == now.tm_year else f"{text} {moment.tm_year}"


def clock(us: int) -> str:
    """ "14:32" where this machine is."""
    return time.strftime("%H:%M", time.localtime(us // 1_000_000))


def day_and_clock(us: int | None, now_us: int) -> str:
    """ "8 May 14:32"."""
    return "?" if us is None else f"{day(us, now_us)} {clock(us)}"


def same_day(one_us: int, other_us: int) -> bool:
    """Whether two times fall on one local day."""
    return time.localtime(one_us // 1_000_000)[:3] == time.localtime(other_us // 1_000_000)[:3]


def ranges(positions: Iterable[int]) -> str:
    """ "#1, #30-31, #54"."""
    found: list[list[int]] = []
    for position in sorted(set(positions)):
        if found and found[-1][1] == position - 1:
            found[-1][1] = position
        else:
            found.append([position, position])
    return ", ".join(f"#{first}" if first == last else f"#{first}-{last}" for first, last in found)
