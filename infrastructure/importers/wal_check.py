"""Finds commits that a write-ahead log still holds but SQLite passes over, since one is damaged."""

from __future__ import annotations

import struct
from array import array
from pathlib import Path

_BIG, _LITTLE = 0x377F0683, 0x377F0682
_FRAME_HEADER = 24


def unreadable_commits(wal: Path) -> int:
    """How many commits lie at or behind the first frame whose checksum does not hold.

    Frames of an earlier round bear other salts and are no loss; nor is a last frame without its
    commit, or one that was cut off (https://sqlite.org/fileformat2.html#walformat).
    """
    try:
        with wal.open("rb") as file:
            header = file.read(32)
            if len(header) < 32:
                return 0
            magic, _, page_size = struct.unpack(">III", header[:12])
            if magic not in (_BIG, _LITTLE):
                return 0
            order = ">" if magic == _BIG else "<"
            sums, commits = _checksum(header[:24], (0, 0), order), 0
            sound = sums == struct.unpack(">II", header[24:32])
            size = _FRAME_HEADER + page_size
            while len(frame := file.read(size)) == size:
                _, pages, *salts = struct.unpack(">IIII", frame[:16])
                if struct.pack(">II", *salts) != header[16:24]:
                    break
                if sound:
                    sums = _checksum(frame[:8] + frame[_FRAME_HEADER:], sums, order)
                    sound = sums == struct.unpack(">II", frame[16:24])
                if not sound and pages:
                    commits += 1
            return commits
    except OSError:
        return 0


def makes_sense(wal: Path) -> bool:
    """Whether SQLite would read this log at all; it passes by one whose header does not hold."""
    with wal.open("rb") as file:
        header = file.read(32)
    if len(header) < 32 or struct.unpack(">I", header[:4])[0] not in (_BIG, _LITTLE):
        return False
    order = ">" if struct.unpack(">I", header[:4])[0] == _BIG else "<"
    return _checksum(header[:24], (0, 0), order) == struct.unpack(">II", header[24:32])


def _checksum(content: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    words = array("I", content)
    if (order == ">") != (struct.pack("=H", 1) == b"\0\1"):
        words.byteswap()
    first, second = sums
    numbers = iter(words)
    for even, odd in zip(numbers, numbers, strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
