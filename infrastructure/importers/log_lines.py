"""Reads the session logs of coding agents: files of JSON, a record a line, whatever state they are in."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ...domain.text import scrub

Record: TypeAlias = dict[str, Any]
_decode = msgspec.json.Decoder().decode
_scan = json.JSONDecoder().raw_decode
_START = re.compile(r'\{"[A-Za-z_]{2,24}":')
"""Where a record may begin in a line that is damaged."""
_BYTES = re.compile(rb"base64|input_audio|\\u00", re.IGNORECASE)
"""What a line has in it that holds a file's bytes; an escape may hide the words."""
_MOST_STARTS = 2_000


class Line(msgspec.Struct, frozen=True, gc=False):
    """One record, or what is wrong where one should be.

    Attributes:
        number: of the line in its file, from 1 on.
        record: None where nothing of the line could be read.
        mark: 8 bytes over the record, the same wherever it stands.
        why: what is wrong with the line, though a record of it may have been read; None for a sound one.
        half: the file's last line, which its writer has not ended yet.
        with_bytes: a file's bytes may be in it.
    """

    number: int
    record: Record | None
    mark: bytes = b""
    why: str | None = None
    half: bool = False
    with_bytes: bool = True


def lines_of(path: Path, is_record: Callable[[Record], bool]) -> Iterator[Line]:
    """The records of a file in its order, those of a damaged line included.

    Args:
        is_record: whether an object that was found in a damaged line is a record, and not a part of one.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if raw.strip():
                yield from _read(number, raw, is_record)


def _read(number: int, raw: bytes, is_record: Callable[[Record], bool]) -> Iterator[Line]:
    try:
        whole = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield from _mended(number, raw, is_record)
        return
    if isinstance(whole, dict):
        with_bytes = _BYTES.search(raw) is not None
        yield Line(number, whole, _mark(raw.strip()), with_bytes=with_bytes)
    else:
        yield Line(number, None, why="it is no JSON object")


def _mended(number: int, raw: bytes, is_record: Callable[[Record], bool]) -> Iterator[Line]:
    """A line that is no single JSON text: the whole records in it, and one reason."""
    try:
        text, why = raw.decode(), None
    except UnicodeDecodeError:
        text, why = raw.decode(errors="replace"), "it is no valid UTF-8; what is not became U+FFFD"
    bare = text.strip("\0\r\n\t \ufeff")
    if not bare:
        yield Line(number, None, why=f"{text.count(chr(0)):,} NUL bytes and nothing else")
        return
    try:
        whole = json.loads(bare, strict=False)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict):  # a lone surrogate, NUL bytes around it, a byte order mark
        if why is None and "\0" in text:
            why = "NUL bytes stand around its record"
        yield Line(number, scrubbed(whole), _mark(bare.encode()), why)
        return
    found = list(_records_in(bare, is_record))
    if not found:
        half = not raw.endswith(b"\n") and whole is None
        yield Line(number, None, why=why or "it is no JSON", half=half)
        return
    reason = why or (
        "records stand in one line"
        if bare.startswith("{") and len(found) > 1
        else "a part of a record stands in one line with a whole one"
    )
    for index, (record, told) in enumerate(found):
        yield Line(number, record, _mark(told.encode()), reason if not index else None)


def _mark(told: bytes) -> bytes:
    return hashlib.blake2b(told, digest_size=8).digest()


def _records_in(text: str, is_record: Callable[[Record], bool]) -> Iterator[tuple[Record, str]]:
    """Each with its text."""
    at = 0
    for _ in range(_MOST_STARTS):
        start = _START.search(text, at)
        if start is None:
            return
        try:
            value, end = _scan(text, start.start())
        except (ValueError, RecursionError):
            at = start.start() + 1
            continue
        # What stands within a record that was cut off is followed by more of it.
        whole = text[end:].lstrip("\0 \t")[:1] in ("", "{")
        if whole and isinstance(value, dict) and is_record(value):
            yield scrubbed(value), text[start.start() : end]
            at = end
        else:
            at = start.start() + 1


def scrubbed(value: Any) -> Any:
    """A JSON value without lone surrogates, at any depth."""
    if isinstance(value, str):
        return scrub(value)[0]
    if isinstance(value, list):
        return [scrubbed(each) for each in value]
    if isinstance(value, dict):
        return {scrub(key)[0]: scrubbed(each) for key, each in value.items()}
    return value
