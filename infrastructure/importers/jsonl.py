"""Takes in sessions from JSONL, ours or Hermes': as a Hermes home that holds just these.

So a file is imported as a home is: by time, idempotent, nothing that is here written over. It is known
by its content, so the same file brings nothing twice, and another under its name is another source.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from ...domain.errors import BadIdentifier, NotAStore
from ...domain.ids import refuse_unsafe_session
from ...domain.message import STRUCTURED
from ...domain.source_rows import COSTS, TOKENS
from ...domain.text import scrub
from ...projections import exported
from ...projections.base import Connection
from ..blame import blaming
from ..copies import note_copy
from ..exporters.values import encode
from .file_kind import kinds_of
from .hermes import WAIT_S, Target, take_in
from .hermes_home import HermesHome
from .hermes_run import file_store, readable
from .report import ImportReport
from .salvage import Lost
from .turn import my_turn

Fields = dict[str, Any]

_COUNTED: Final = ("last_active", "messages", "segments", "lineage_session_ids", "timings", exported.NOT_UTF8)
"""What an export adds to a session's columns, and is counted or named anew."""
_ROWIDS: Final = frozenset({"rowid", "_rowid_", "oid"})
_WIDEST: Final = 500
_NUMBERS: Final = (1 << 63) - 1
_AMOUNTS: Final = frozenset({*TOKENS, *COSTS, "token_count"})
_TIMES: Final = frozenset({"started_at", "ended_at", "timestamp"})
_LAST_S: Final = 1e11
"""Some three thousand years; a number beyond it is in another unit, or none at all."""


class BadLine(ValueError):
    """A line that is no session; the text says why."""


def import_jsonl(target: Target, path: Path, *, name: str | None = None) -> ImportReport:
    """Take in the sessions of the file at `path`; it is only read.

    Args:
        name: what it is called where it is a copy of ours of what somebody else gave.

    A line that is no session is named in `lost` and passed over. A session that is here already is left
    as it is, and named in `skipped` where the file says otherwise.

    Raises:
        NotAStore: it is no file, or holds no session. VersionConflict, StoreBusy, NoRoom: what was
        taken so far stands; run it again.
    """
    home = target.projector.log.path.parent
    with (
        my_turn(home, timeout_s=WAIT_S),
        blaming(target.projector.log, lambda: target.projector),
        _scratch(home) as scratch,
    ):
        called = name or readable(path)
        store = Path(file_store(called, _content(path)))
        target.projector.catch_up()
        made = _Home(scratch / "home" / "state.db", target.projector.state.reader(), store)
        made.read(path)
        if not made.lines:
            raise _no_session(path, called, made.why)
        with HermesHome.open(scratch / "home", scratch / "links") as there:
            there.path = store
            there.lost += made.bad
            done = take_in(target, there, None, None)
    if name is None:
        note_copy(home, path)
    unchanged = dict(done.unchanged)
    for word, count in made.unchanged.items():
        if count:
            unchanged[word] = unchanged.get(word, 0) + count
    return msgspec.structs.replace(done, path=called, unchanged=unchanged, notes=[*made.notes(), *done.notes])


def _no_session(path: Path, called: str, why: str) -> NotAStore:
    """What the file is, where that can be seen; else what is wrong with its first line."""
    kinds = kinds_of(path)
    if not kinds or kinds[0].command == "jsonl":
        return NotAStore(f"{called} holds no session: {why}")
    hint = "name what `retold sessions export` wrote"
    if kinds[0].command is not None:
        hint = f"take it in with: retold import {kinds[0].command}"
    return NotAStore(f"{called} holds no session: it is {kinds[0].words}", hint=hint)


def refuse_no_file(path: Path) -> None:
    """Refuse what cannot be read, before a home is made for it.

    Raises:
        NotAStore: there is no such file, or it may not be read.
    """
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise NotAStore(f"{readable(path)} cannot be read: {error.strerror or error}") from error


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@contextlib.contextmanager
def _scratch(home: Path) -> Iterator[Path]:
    folder = home / f"import-{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir(mode=0o700)
    try:
        (folder / "home").mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Home:
    """The database of a Hermes home that holds the sessions of a file, but for those that are here."""

    def __init__(self, file: Path, here: Connection, store: Path) -> None:
        self.lines = 0
        self.why = "it is empty"
        self.bad: list[Lost] = []
        self.renumbered: dict[str, int] = {}
        self.unchanged = {"sessions": 0, "messages": 0}
        self._file = file
        self._here = here
        self._store = str(store)
        self._columns: dict[str, set[str]] = {"sessions": {"id"}, "messages": {"id", "session_id"}}
        self._ids: set[str] = set()
        self._next = 0

    def read(self, path: Path) -> None:
        """Take every line that is a session; name the others."""
        self._db = apsw.Connection(os.fspath(self._file))
        try:
            for each in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", "BEGIN"):
                self._db.execute(each).fetchall()
            self._db.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY)")
            self._db.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT NOT NULL)")
            for table, columns in (("sessions", _SESSION), ("messages", _MESSAGE)):
                self._widen(table, columns)
            self._db.execute("CREATE TABLE gateway_routing (scope, session_key, entry_json, updated_at)")
            self._db.execute("CREATE TABLE session_model_usage (session_id TEXT)")
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        self._line(number, line)
            self._db.execute("COMMIT")
        finally:
            self._db.close(True)

    def notes(self) -> list[str]:
        """What there is to know of what was read."""
        match list(self.renumbered):
            case []:
                return []
            case [session_id]:
                which = f"session {session_id}: {self.renumbered[session_id]:,} of its messages"
            case several:
                which = f"{sum(self.renumbered.values()):,} messages of {len(several):,} sessions"
        return [f"{which} bore no id of their own that gives their order, and have new ones"]

    def _line(self, number: int, line: bytes) -> None:
        try:
            for session in _sessions(_object(line)):
                self._session(session)
                self.lines += 1
        except (BadLine, BadIdentifier) as error:
            self.why = self.why if self.bad else f"line {number}: {error}"
            self.bad.append(Lost("line", number, number, None, str(error), 1))

    def _session(self, session: Fields) -> None:
        session_id = session["id"]
        if session_id in self._ids:
            raise BadLine(f"a second session with the id '{session_id}'")
        row = {name: _value(each, name) for name, each in session.items() if name not in _COUNTED}
        messages = [_message(each) for each in session["messages"]]
        self._refuse_columns(row, *messages)
        self._ids.add(session_id)
        if self._is_here(session):
            self.unchanged["sessions"] += 1
            self.unchanged["messages"] += len(messages)
            return
        self._insert("sessions", row)
        renumbered = last = 0
        for message in messages:
            renumbered += self._number(message, last)
            last = message["id"]
            self._insert("messages", {**message, "session_id": session_id})
        if renumbered:
            self.renumbered[session_id] = renumbered

    def _number(self, message: Fields, last: int) -> bool:
        """Give a message an id where it has none, or that of another, or one that is not after `last`."""
        wanted = message.get("id")
        known = type(wanted) is int and last < wanted <= _NUMBERS // 2
        if known and not self._db.execute("SELECT 1 FROM messages WHERE id = ?", (wanted,)).fetchall():
            return False
        (highest,) = self._db.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()  # type: ignore[misc] # an aggregate has a row
        message["id"] = highest + 1
        return True

    def _insert(self, table: str, row: Fields) -> None:
        self._widen(table, row)
        names = ", ".join(map(_quoted, row))
        self._db.execute(
            f"INSERT INTO {table} ({names}) VALUES ({','.join('?' * len(row))})", tuple(row.values())
        )

    def _widen(self, table: str, row: Mapping[str, Any] | tuple[str, ...]) -> None:
        for column in row:
            if column.lower() not in self._columns[table]:
                self._db.execute(f"ALTER TABLE {table} ADD COLUMN {_quoted(column)}")
                self._columns[table].add(column.lower())

    def _refuse_columns(self, *rows: Fields) -> None:
        for name in {name for row in rows for name in row}:
            if not name or "\0" in name or name.lower() in _ROWIDS:
                raise BadLine(f"{name!r} cannot be a column's name")
        if any(len(row) > _WIDEST for row in rows):
            raise BadLine(f"a row of more than {_WIDEST} columns")

    def _is_here(self, session: Fields) -> bool:
        """Whether the session is here just as the file has it, and did not come from this very file."""
        known = self._here.execute(
            "SELECT h.path FROM sessions s LEFT JOIN source_sessions o ON o.session_id = s.id"
            " LEFT JOIN source_homes h ON h.id = o.source WHERE s.id = ?",
            (session["id"],),
        ).fetchone()
        if known is None or known[0] == self._store:
            return False
        mine = exported.session_fields(self._here, session["id"])
        said = {name: each for name, each in session.items() if name not in _COUNTED}
        if not _agree(mine, said):
            return False
        ours = exported.live_messages(self._here, session["id"])
        theirs = iter(session["messages"])
        return all(_agree(each, next(theirs, {})) for each in ours) and next(theirs, None) is None


def _agree(ours: Fields, theirs: Fields) -> bool:
    """Whether a row says here what it says in a file, as an export would write both."""
    mine = {name: each for name, each in ours.items() if each is not None and name != exported.NOT_UTF8}
    said = {name: each for name, each in theirs.items() if each is not None and name != exported.NOT_UTF8}
    if mine.get("pinned") == 0:
        said.setdefault("pinned", 0)  # a store that cannot pin
    return _sorted(encode(mine)) == _sorted(encode(said))


def _sorted(encoded: bytes) -> str:
    return json.dumps(json.loads(encoded), sort_keys=True)


def _object(line: bytes) -> Fields:
    try:
        found = json.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except UnicodeDecodeError as error:
        raise BadLine(f"it is no valid UTF-8 (byte {error.start + 1})") from error
    except RecursionError as error:
        raise BadLine("it is nested too deep") from error
    except ValueError as error:
        raise BadLine(f"it is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise BadLine("it is no object")
    return found


def _sessions(found: Fields) -> Iterator[Fields]:
    """The session of a line, or its segments, where it is a whole conversation."""
    segments = found.get("segments")
    for each in segments if isinstance(segments, list) and segments else [found]:
        if not isinstance(each, dict) or not isinstance(each.get("id"), str):
            raise BadLine("it has no session id")
        refuse_unsafe_session(each["id"])
        messages = each.get("messages")
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
            raise BadLine(f"session '{each['id']}' has no list of messages")
        yield each


def _message(found: Fields) -> Fields:
    row = {
        name: _value(each, name)
        for name, each in found.items()
        if name not in ("session_id", exported.NOT_UTF8)
    }
    if not isinstance(found.get("role"), str):
        raise BadLine("a message has no role")
    content = found.get("content")
    if content is not None and not isinstance(content, str):
        row["content"] = STRUCTURED + str(row["content"])
    return row


def _value(value: Any, name: str) -> Any:
    """What a column can hold: a number, a text, or JSON as text."""
    if isinstance(value, str):
        return scrub(value)[0]
    if isinstance(value, list | dict):
        return scrub(json.dumps(value, ensure_ascii=False))[0]
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        _refuse_number(value, name)
    if isinstance(value, int) and abs(value) > _NUMBERS:
        raise BadLine(f"{name} is a number of more than 64 bits")
    return value


def _refuse_number(value: float, name: str) -> None:
    """Refuse what is no number, no amount or no time, wherever it stands."""
    if value != value or value in (float("inf"), float("-inf")):
        raise BadLine(f"{name} is {value}, which is no number that can be kept")
    if name in _AMOUNTS and value < 0:
        raise BadLine(f"{name} is {value}: less than nothing cannot be used")
    if name in _TIMES and abs(value) >= _LAST_S:
        raise BadLine(f"{name} is {value}, which is no time in seconds since 1970")


def _quoted(name: str) -> str:
    return '"' + scrub(name)[0].replace('"', '""') + '"'


_SESSION: Final = ("source", "started_at", "ended_at", "end_reason", "title", "model", "parent_session_id")
_MESSAGE: Final = ("role", "content", "timestamp", "tool_calls", "tool_name")
"""Columns that there are whatever the file holds."""
