"""Writes answers of any length: JSON piece by piece, and lines that know whether a terminal reads them."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..infrastructure.reading import View, reading
from .output import ANSWER, visible

_encode = msgspec.json.Encoder().encode
PLAIN_WIDTH = 160
_BOLD = ("\x1b[1m", "\x1b[0m")
_STYLE = re.compile("(\x1b\\[[01]m)")
_LINE_ENDS = re.compile("\x85|\u2028|\u2029".encode())


def encode(value: object) -> bytes:
    """JSON in UTF-8 on one line, whatever the value holds: lone surrogates escaped, NaN as null.

    The line ends that JSON allows in a string are escaped, too: who reads line by line may not.
    """
    try:
        encoded = _encode(value)
        return _LINE_ENDS.sub(_escaped, encoded) if _LINE_ENDS.search(encoded) else encoded
    except (UnicodeEncodeError, OverflowError, RecursionError):
        import json

        plain = json.dumps(_jsonable(value), separators=(",", ":"))
        return plain.encode("ascii")


def _escaped(end: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(end[0].decode())


def _jsonable(value: Any) -> Any:
    """What Python's json can write: no structs, no NaN and infinities, for which JSON has no word."""
    if isinstance(value, msgspec.Raw):
        import json

        return json.loads(bytes(value))
    if isinstance(value, msgspec.Struct):
        return _jsonable(msgspec.structs.asdict(value))
    if isinstance(value, dict):
        return {key: _jsonable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


def raw_json(text: str) -> object:
    """A JSON text as a value to be encoded: itself where it can stand as it is, else decoded.

    Raises:
        ValueError: it is no JSON. RecursionError: it is nested too deep.
    """
    if "\n" not in text and "\r" not in text:
        try:
            msgspec.json.decode(text)
            return msgspec.Raw(text.encode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
    import json

    # Python's json reads back what its own dumps wrote: lone surrogates, NaN, numbers of any size.
    return json.loads(text)


def write_bytes(piece: bytes) -> None:
    """To standard output, unbuffered by nothing but its own buffer."""
    ANSWER.begun = True
    if (binary := getattr(sys.stdout, "buffer", None)) is not None:
        binary.write(piece)
    else:
        sys.stdout.write(piece.decode())


def write_object(fields: dict[str, object], name: str, items: Iterable[object]) -> None:
    """One JSON object whose last field is a list that is never held in memory as a whole."""
    sys.stdout.flush()
    head = encode(fields)[:-1]
    write_bytes(head + (b"," if len(head) > 1 else b"") + encode(name) + b":[")
    for index, item in enumerate(items):
        write_bytes((b"," if index else b"") + encode(item))
    write_bytes(b"]}\n")


def is_terminal() -> bool:
    """Whether a person at a terminal reads standard output."""
    return sys.stdout.isatty()


def terminal_width() -> int:
    """Cells in a line of the terminal."""
    import shutil  # brings every compressor with it

    return max(20, shutil.get_terminal_size().columns)


def bold(text: str) -> str:
    """`text` in bold where a terminal reads it."""
    shown = visible(text)
    return shown.join(_BOLD) if has_color() else shown


def put(*lines: str, err: bool = False) -> None:
    """Print lines of an answer. Nothing in them has power over the terminal but `bold` itself."""
    ANSWER.begun = ANSWER.begun or not err
    pieces = (line if line.isprintable() else "".join(map(_tamed, _STYLE.split(line))) for line in lines)
    print("\n".join(pieces), file=sys.stderr if err else sys.stdout)


_DRESS = {"bold": "1", "dim": "2", "gold": "33", "green": "32"}


def dressed(*spans: tuple[str, str]) -> str:
    """A line of spans, each a text and what it is dressed as ("", "bold", "dim gold", …) where colors are.

    For `put_dressed`: each text is made harmless here.
    """
    if not has_color():
        return "".join(visible(text) for text, _ in spans)
    return "".join(
        f"\x1b[{';'.join(_DRESS[each] for each in how.split())}m{visible(text)}\x1b[0m"
        if how
        else visible(text)
        for text, how in spans
    )


def put_dressed(lines: Iterable[str]) -> None:
    """Print lines that `dressed` made."""
    ANSWER.begun = True
    print("\n".join(lines))


def _tamed(piece: str) -> str:
    return piece if piece in _BOLD and has_color() else visible(piece)


def has_color() -> bool:
    """Whether the answer may be dressed up (https://no-color.org)."""
    import os

    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def size(count: int) -> str:
    """ "512 B", "1.2 MB": as people say it, in powers of ten."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


@contextlib.contextmanager
def answering(home: Path, at: str | None, *, settle: bool = False) -> Iterator[View]:
    """Open `home` to answer from; what a reader must know of the answer is said when it is out."""
    with reading(home, at, settle=settle) as view:
        try:
            yield view
        finally:  # a session that is not found may be one that could not be told
            say(view.remarks())


def say(lines: Iterable[str]) -> None:
    """Words about the answer, for people: standard error, wrapped where a terminal reads it."""
    width = error_width()
    for each in lines:
        if width is None:
            put(each, err=True)
        else:
            from .paragraphs import wrap

            put(*wrap(each, width), err=True)


def error_width() -> int | None:
    """Cells in a line of the terminal that reads standard error; None where none does."""
    import os

    if not sys.stderr.isatty():
        return None
    try:
        return max(20, os.get_terminal_size(sys.stderr.fileno()).columns)
    except (OSError, ValueError):
        return PLAIN_WIDTH
