"""Writes answers of any length: JSON piece by piece, and lines that know whether a terminal reads them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from .output import visible

_encode = msgspec.json.Encoder().encode
PLAIN_WIDTH = 160


def encode(value: object) -> bytes:
    """JSON in UTF-8 on one line, whatever the value holds: lone surrogates escaped, NaN as null."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        plain = json.dumps(_jsonable(msgspec.to_builtins(value)), separators=(",", ":"))
        return plain.encode("ascii")


def _jsonable(value: Any) -> Any:
    """Without NaN and infinities, for which JSON has no word."""
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
    # Python's json reads back what its own dumps wrote: lone surrogates, NaN, numbers of any size.
    return json.loads(text)


def write_bytes(piece: bytes) -> None:
    """To standard output, unbuffered by nothing but its own buffer."""
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
    return max(40, shutil.get_terminal_size().columns)


def bold(text: str) -> str:
    """`text` in bold where a terminal reads it."""
    shown = visible(text)
    return f"\x1b[1m{shown}\x1b[0m" if has_color() else shown


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


def say(lines: Iterable[str]) -> None:
    """Words about the answer, for people: standard error."""
    for each in lines:
        print(visible(each), file=sys.stderr)
