"""How answers look: JSON, rows cut by cell width, times in words; no text harms a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_US = 1_000_000
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
# Direction marks could reorder a whole row, the id beside the title included.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_BREAKS = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029")


# What most rows hold besides ASCII, and plainly so: no marks, no joining. Anything else asks
# wcwidth, whose import would be felt at every start.
_NARROW = frozenset("–—‘’“”…•→─│␛")
_WIDE = (
    ("\u3041", "\u3096"),
    ("\u30a0", "\u30ff"),
    ("\u4e00", "\u9fff"),
    ("\uac00", "\ud7a3"),
    ("\uff01", "\uff60"),
)


class _Answer:
    """What became of this run's answer so far."""

    begun = False
    """Whether some of it is out, so that it cannot be given once more."""


ANSWER = _Answer()


def emit_json(value: object) -> None:
    """Write `value` to stdout as one line of JSON: UTF-8 whatever the locale, NaN as null."""
    import msgspec

    try:
        line = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8, but JSON can escape it
        import json

        plain = _without_nan(msgspec.to_builtins(value))
        line = json.dumps(plain, allow_nan=False, separators=(",", ":")).encode("ascii")
    if (binary := getattr(sys.stdout, "buffer", None)) is not None:
        sys.stdout.flush()
        binary.write(line + b"\n")
        binary.flush()
    else:
        print(line.decode("utf-8"))


def _without_nan(value: object) -> object:
    match value:
        case dict():
            return {key: _without_nan(each) for key, each in value.items()}
        case list() | tuple():
            return [_without_nan(each) for each in value]
        case float() if value != value or value in (float("inf"), float("-inf")):
            return None
        case _:
            return value


def visible(text: str) -> str:
    """`text` on one line and without power over the terminal.

    Line breaks become spaces, other control characters their pictures (␛), lone surrogates �;
    marks that change the direction of writing are dropped, and soft hyphens. Everything else stays.
    """
    return text if text.isprintable() else "".join(map(_visible_char, text))


def _visible_char(char: str) -> str:
    code = ord(char)
    if char in _BREAKS:
        return " "
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if 0x80 <= code <= 0x9F or 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return "" if char in _BIDI or char == "\u00ad" else char


def cell_width(text: str) -> int:
    """How many terminal cells `visible(text)` takes."""
    shown = visible(text)
    if shown.isascii():
        return len(shown)
    return sum(width for _, width in _graphemes(shown))


def _graphemes(shown: str) -> list[tuple[str, int]]:
    """What must not be cut apart, each with its cells."""
    widths = [_plain_width(char) for char in shown]
    if 0 not in widths:
        return list(zip(shown, widths, strict=True))
    from wcwidth import iter_graphemes, wcswidth

    return [(each, max(wcswidth(each), 0)) for each in iter_graphemes(shown)]


def _plain_width(char: str) -> int:
    """1 or 2 cells where that is certain whatever stands beside it, else 0."""
    if char < "\u0300" or char in _NARROW:
        return 1
    return 2 if any(first <= char <= last for first, last in _WIDE) else 0


def fit(text: str, width: int) -> str:
    """`visible(text)` in exactly `width` cells: padded, or cut between graphemes with "…"."""
    # A row never needs a megabyte made visible; eight code points a cell is more than any script.
    head = text[: 8 * width + 64]
    shown = visible(head)
    cells = cell_width(shown)
    if cells > width or len(head) < len(text):
        shown = _cut(shown, width - 1) + "…" if width > 0 else ""
        cells = cell_width(shown)
    return shown + " " * (width - cells)


def _cut(shown: str, width: int) -> str:
    if shown.isascii():
        return shown[:width]
    kept: list[str] = []
    for grapheme, cells in _graphemes(shown):
        width -= cells
        if width < 0:
            break
        kept.append(grapheme)
    return "".join(kept)


class Column(NamedTuple):
    """A column of a table; without a `width` it is as wide as its widest cell, and never cuts.

    With `most` it is no wider than that: a row with a longer cell stands out to the right.
    """

    name: str
    width: int | None = None
    right: bool = False
    most: int | None = None


def table(rows: Sequence[Sequence[str]], columns: Sequence[Column]) -> Iterable[str]:
    """Lines of a table: header, rule, rows; no line ends in spaces."""
    widths = [
        _widest((column.name, *(row[index] for row in rows)), column.most)
        if column.width is None
        else column.width
        for index, column in enumerate(columns)
    ]
    yield _line([column.name for column in columns], columns, widths)
    yield "─" * (sum(widths) + 2 * (len(widths) - 1))
    for row in rows:
        yield _line(row, columns, widths)


def _widest(cells: Iterable[str], most: int | None) -> int:
    widest = max(map(cell_width, cells), default=0)
    return widest if most is None else min(widest, most)


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    fitted = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        text = fit(cell, width) if column.width is not None else _padded(cell, width)
        fitted.append(_to_the_right(text) if column.right else text)
    return "  ".join(fitted).rstrip()


def _padded(cell: str, width: int) -> str:
    shown = visible(cell)
    return shown + " " * (width - cell_width(shown))


def _to_the_right(text: str) -> str:
    stripped = text.rstrip()
    return " " * (len(text) - len(stripped)) + stripped


def relative_time(us: int | None, now_us: int) -> str:
    """How long ago, in the words that Hermes uses; the local date after a week, "?" for none."""
    if not us:
        return "?"
    ago_s = (now_us - us) // _US
    if -_MINUTE_S < ago_s < _MINUTE_S:  # two clocks may differ a little
        return "just now"
    if 0 < ago_s < _HOUR_S:
        return f"{ago_s // _MINUTE_S}m ago"
    if 0 < ago_s < _DAY_S:
        return f"{ago_s // _HOUR_S}h ago"
    if 0 < ago_s < 2 * _DAY_S:
        return "yesterday"
    if 0 < ago_s < 7 * _DAY_S:
        return f"{ago_s // _DAY_S}d ago"
    return local_time(us)[:-9]


def local_time(us: int | None) -> str:
    """ "2026-05-08 14:32:10" where this machine is; "?" for none."""
    if not us:
        return "?"
    moment = time.localtime(us // _US)
    return f"{_year(moment.tm_year)}-{time.strftime('%m-%d %H:%M:%S', moment)}"


def iso_us(us: int) -> str:
    """ISO 8601 in UTC, to the microsecond where there is a fraction: "…T14:32:10.500000Z".

    Years that four digits do not hold are written in the expanded form, "+012026-05-08…".
    """
    seconds, fraction = divmod(us, _US)
    moment = time.gmtime(seconds)
    tail = f".{fraction:06d}" if fraction else ""
    return f"{_year(moment.tm_year)}-{time.strftime('%m-%dT%H:%M:%S', moment)}{tail}Z"


def _year(year: int) -> str:
    return f"{year:04d}" if 0 <= year <= 9999 else f"{year:+07d}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """ "1 message", "2 messages", "1,200 histories"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
