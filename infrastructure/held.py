"""Which copies outside of a home hold what was erased in it: each is read through, and none is changed."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from ..domain.errors import RetoldError
from ..domain.masking import LEAST_CHARACTERS, Masker
from ..domain.message import content_given, json_given
from ..domain.text import scrub
from ..projections.base import Connection
from . import codec
from .copies import copies_of, logs_of
from .exporters.output_file import EXPORTS
from .home import EVENTS
from .importers.source_file import MAGIC, prepare

_PAGES: Final = frozenset({".md", ".qmd", ".html", ".htm", ".json", ".jsonl", ".txt"})
"""What exports are called; of a folder that is none of ours nothing else is read."""
_STEP_BYTES: Final = 1 << 22
_MOST_FILES: Final = 50_000
_PIECES: Final = 8
_LONGEST: Final = 200
# What one form of an export writes otherwise than another: a piece of text between them is alike in all.
_PARTED = re.compile("[\\x00-\\x1f<>&\"'`\\\\]+")


class Held(msgspec.Struct, frozen=True):
    """Where it stands still.

    Attributes:
        files: those that hold it.
        unread: those that could not be looked through, and may.
    """

    files: tuple[Path, ...] = ()
    unread: tuple[Path, ...] = ()

    @property
    def all(self) -> list[Path]:
        """Both."""
        return [*self.files, *self.unread]


def still_held(home: Path, db: Connection, texts: Sequence[str], *, names: bool = False) -> Held:
    """The copies of a home that hold one of the texts; without any text, all that there are.

    Args:
        names: the texts are ids of sessions. What another program wrote may have them otherwise.
    """
    copies = copies_of(home, db)
    asked = [each for each in texts if len(each.strip()) >= LEAST_CHARACTERS]
    if not asked or not copies:
        return Held(unread=tuple(copies))
    look = _Look(asked, home)
    blind = set(logs_of(db)) if names else set[Path]()
    files: list[Path] = []
    unread: list[Path] = []
    for copy in copies:
        if copy in blind:
            unread.append(copy)
            continue
        holding, dark = look.through(copy)
        if _is_home(copy):  # a backup is one thing, and goes as one
            holding, dark = [copy] * bool(holding), [copy] * bool(dark and not holding)
        files += holding
        unread += dark
    return Held(tuple(dict.fromkeys(files)), tuple(dict.fromkeys(unread)))


def pieces_of(*texts: str | None) -> list[str]:
    """What to look for where a message is meant: the longest pieces of it that every export writes alike.

    Nothing where no piece of it is long enough to mean anything.
    """
    found: dict[str, None] = {}
    for text in texts:
        for said in _strings(content_given(text)):
            found |= dict.fromkeys(each.strip()[:_LONGEST] for each in _PARTED.split(said))
    long = [each for each in found if len(each) >= 2 * LEAST_CHARACTERS]
    short = [each for each in found if len(each) >= LEAST_CHARACTERS]
    return sorted(long or short, key=len, reverse=True)[:_PIECES]


def exported_pages(home: Path, held: Held) -> list[Path]:
    """Those of the files that exports put into the home itself: they can be made again."""
    folder = home.resolve() / EXPORTS
    return [each for each in held.files if folder in each.resolve().parents]


class _TooMany(Exception):
    """A folder of more files than anybody exports."""


class _Look:
    """Looks for texts in files of any kind."""

    def __init__(self, texts: Sequence[str], home: Path) -> None:
        self._unread: list[Path] = []
        self._maskers = [Masker(each) for each in texts]
        self._overlap = max(1 << 16, 32 * max(map(len, texts)))
        self._home = home

    def through(self, copy: Path) -> tuple[list[Path], list[Path]]:
        """The files of a copy that hold one, and those that cannot be read."""
        self._unread = []
        try:
            return [path for path in _files(copy) if self._holds(path)], self._unread
        except _TooMany:
            return [], [copy]

    def _holds(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                if path.name != EVENTS and file.read(len(MAGIC)) != MAGIC:
                    file.seek(0)
                    return self._in_text(file)
            return self._in_database(path)
        except (OSError, RetoldError, apsw.Error, UnicodeError, ValueError):
            self._unread.append(path)
            return False

    def _any(self, content: bytes) -> bool:
        return any(each.holds(content) for each in self._maskers)

    def _in_text(self, file: Any) -> bool:
        rest = b""
        while step := file.read(_STEP_BYTES):
            if self._any(rest + step):
                return True
            rest = (rest + step)[-self._overlap :]
        return False

    def _in_database(self, path: Path) -> bool:
        """Row by row: in the file itself a text may lie in parts, and that of a log is compressed."""
        with tempfile.TemporaryDirectory(prefix="look-", dir=self._home) as scratch:
            source = prepare(path, Path(scratch))
            db = source.connect()
            try:
                if path.name == EVENTS:
                    db.execute("SELECT 1 FROM events").fetchone()  # no log at all says nothing
                return any(self._any(row) for row in _rows(db))
            finally:
                db.close(True)
                source.remove_links()


def _rows(db: apsw.Connection) -> Iterator[bytes]:
    """Every row of a database, as its texts one after another."""
    names = db.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    for (name,) in names:
        quoted = str(name).replace('"', '""')
        for row in db.execute(f'SELECT * FROM "{quoted}"'):
            texts = [_bytes(each) for each in row if isinstance(each, str | bytes)]
            if texts:
                yield b"\n".join(texts)


def _bytes(value: str | bytes) -> bytes:
    return codec.unpack(value) if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")


def _files(copy: Path) -> Iterator[Path]:
    """The files of a copy: all of a home's, else what exports and logs are called."""
    if not copy.is_dir():
        yield copy
        return
    ours = _is_home(copy)
    count = 0
    for folder, folders, names in os.walk(copy):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > _MOST_FILES:
                raise _TooMany
            path = Path(folder, name)
            if (ours or path.suffix.lower() in _PAGES) and path.is_file() and not _is_sidecar(path):
                yield path


def _is_home(copy: Path) -> bool:
    return (copy / EVENTS).exists()


def _is_sidecar(path: Path) -> bool:
    """Whether it is read with the database beside it."""
    return (
        path.name.endswith(("-wal", "-shm", "-journal"))
        and path.with_name(path.name.rpartition("-")[0]).exists()
    )


def _strings(value: Any) -> Iterable[str]:
    """Every text in a value, in JSON within JSON, too."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, str):
        inner = json_given(value) if value.lstrip()[:1] in ("{", "[") else None
        if isinstance(inner, dict | list):
            yield from _strings(inner)
        else:
            yield scrub(value)[0]
