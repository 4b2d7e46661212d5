"""A Hermes home that is to be changed: held by nobody else, copied first, changed whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw
import msgspec

from ...domain.errors import NoRoom, NotAStore, StoreBusy
from ..copies import BEFORE_REPAIR
from ..foreign import EVENTS
from ..importers.source_file import MAGIC
from ..sqlite import CREATE, READ_WRITE, connect, one, translated, words

SIDECARS = ("", "-wal", "-shm", "-journal")
WAIT_MS = 200
"""Whoever holds the file now is not waited for: it is to be stopped first."""
_PAGES = 2_000
_LONGEST_US = 600 * 1_000_000
"""From a copy to the note of what was written after it; an older one is of another time."""


class Copies(msgspec.Struct, frozen=True):
    """Where the home's files lie as they were before, and the commands that put them back."""

    database: Path
    back: tuple[str, ...]


class Wrote(msgspec.Struct):
    """What was written since the last look: columns by session, and entries by key (None: taken out)."""

    sessions: dict[str, dict[str, Any]] = {}
    routes: dict[str, Mapping[str, Any] | None] = {}


class HermesWriter:
    """The database of a Hermes home, in one transaction, and its mirror."""

    def __init__(self, home: Path, db: apsw.Connection) -> None:
        self.home = home
        self.db = db
        self.mirror_path = home / "sessions" / "sessions.json"
        self.columns = {name for _, name, *_ in db.execute("PRAGMA table_info(sessions)")}
        self.has_routes = bool(list(db.execute("PRAGMA table_info(gateway_routing)")))
        self._wrote = Wrote()

    def wrote(self) -> Wrote:
        """What was written since this was asked last."""
        wrote, self._wrote = self._wrote, Wrote()
        return wrote

    def session(self, session_id: str) -> dict[str, Any] | None:
        """A session's row by column name."""
        cursor = self.db.execute("SELECT * FROM sessions WHERE id = ?", (session_id,))
        row = cursor.fetchone()
        return None if row is None else dict(zip([c[0] for c in cursor.get_description()], row, strict=True))

    def set(self, session_id: str, values: Mapping[str, Any]) -> None:
        """Other values in a session's row; columns that this home does not have are passed over."""
        known = {name: value for name, value in values.items() if name in self.columns}
        if known:
            names = ", ".join(f'"{name}" = ?' for name in known)
            self.db.execute(f"UPDATE sessions SET {names} WHERE id = ?", (*known.values(), session_id))
            self._wrote.sessions.setdefault(session_id, {}).update(known)

    def scope(self) -> str:
        """The routing scope that Hermes reads here: the home's own, else the one that was written last."""
        own = str((self.home / "sessions").resolve())
        if not self.has_routes:
            return own
        scopes = [
            str(name)
            for (name,) in self.db.execute(
                "SELECT scope FROM gateway_routing GROUP BY scope ORDER BY max(updated_at) DESC, scope DESC"
            )
        ]
        return own if own in scopes or not scopes else scopes[0]

    def entry(self, scope: str, key: str) -> dict[str, Any] | None:
        """A key's routing entry in the table."""
        if not self.has_routes:
            return None
        row = self.db.execute(
            "SELECT entry_json FROM gateway_routing WHERE scope = ? AND session_key = ?", (scope, key)
        ).fetchone()
        return None if row is None else object_of(row[0])

    def set_entry(self, scope: str, key: str, entry: Mapping[str, Any] | None) -> None:
        """Another routing entry, or none."""
        self._wrote.routes[key] = entry
        if not self.has_routes:
            return
        if entry is None:
            self.db.execute("DELETE FROM gateway_routing WHERE scope = ? AND session_key = ?", (scope, key))
            return
        self.db.execute(
            "INSERT INTO gateway_routing (scope, session_key, entry_json, updated_at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (scope, session_key) DO UPDATE SET"
            " entry_json = excluded.entry_json, updated_at = excluded.updated_at",
            (scope, key, json.dumps(entry), time.time()),
        )

    def mirror(self) -> dict[str, Any] | None:
        """What the mirror holds; None where there is none, or none that can be read."""
        try:
            return object_of(self.mirror_path.read_bytes().decode("utf-8-sig"))
        except (OSError, UnicodeDecodeError):
            return None

    def mirror_before(self, at_us: int) -> dict[str, Any] | None:
        """What the mirror held before it was set along with the table; None where no copy tells that.

        Args:
            at_us: when that was noted, microseconds since the Unix epoch.
        """
        named = f"{self.mirror_path.name}{BEFORE_REPAIR}"
        found: list[tuple[int, Path]] = []
        with contextlib.suppress(OSError):
            for copy in self.mirror_path.parent.iterdir():
                made_us = copy.stat().st_ctime_ns // 1_000
                if copy.name.startswith(named) and 0 <= at_us - made_us <= _LONGEST_US:
                    found.append((made_us, copy))
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return object_of(max(found)[1].read_bytes().decode("utf-8-sig")) if found else None
        return None

    def write_mirror(self, content: Mapping[str, Any]) -> None:
        """Put other content in its place, at once."""
        aside = self.mirror_path.with_name(f".sessions.json.{os.getpid()}")
        try:
            aside.write_text(json.dumps(content, indent=2, ensure_ascii=False), "utf-8")
            shutil.copymode(self.mirror_path, aside)
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            aside.replace(self.mirror_path)
        finally:
            aside.unlink(missing_ok=True)


@contextlib.contextmanager
def held(home: Path) -> Iterator[HermesWriter]:
    """Hold the home at `home` for ourselves alone; nobody can open its database meanwhile.

    Raises:
        NotAStore: it is no Hermes home. StoreBusy: a process has its database open; it is named where
        that can be seen.
    """
    path = _database(home)
    refuse_held(path)
    with translated(str(path)):
        db = connect(path, flags=READ_WRITE, busy_timeout_ms=WAIT_MS)
    try:
        db.pragma("locking_mode", "EXCLUSIVE")
        try:
            # In WAL mode this fails for every other connection, however idle: each holds a shared lock.
            db.execute("BEGIN EXCLUSIVE")
            if one(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'sessions'") == 0:
                raise NotAStore(f"{path} holds no sessions table")
            db.execute("COMMIT")
        except (apsw.BusyError, apsw.LockedError) as error:
            raise _busy(path, "another process") from error
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise NotAStore(f"{path} is damaged: {error}", hint="import what can be read of it") from error
        except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.IOError, apsw.FullError) as error:
            raise NoRoom(f"{path} cannot be written: {words(error)}", hint="nothing was changed") from error
        yield HermesWriter(home, db)
    finally:
        db.close(True)


def copied(writer: HermesWriter) -> Copies:
    """A copy of the database, and of the mirror, beside them.

    Raises:
        NoRoom: it cannot be written; nothing was changed.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    database = _database(writer.home)
    beside = _free(database.with_name(f"{database.name}{BEFORE_REPAIR}{stamp}"))
    aside = beside.with_name(f".{beside.name}")
    try:
        for file in (database, writer.mirror_path):
            for left in file.parent.glob(f".{glob.escape(file.name)}{BEFORE_REPAIR}*"):
                left.unlink()  # of one that was killed: nobody else copies what is held
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        shutil.copymode(database, aside)
        with translated(str(aside)):
            to = connect(aside, flags=READ_WRITE | CREATE)
            try:
                with to.backup("main", writer.db, "main") as copy:
                    while not copy.done:
                        copy.step(_PAGES)
                to.pragma("journal_mode", "DELETE")
            finally:
                to.close()
        _settle(aside, beside)
        back = [
            f"rm -f {shlex.quote(str(database))}-wal {shlex.quote(str(database))}-shm",
            f"cp -p {shlex.quote(str(beside))} {shlex.quote(str(database))}",
        ]
        if writer.mirror_path.is_file():
            kept = _free(writer.mirror_path.with_name(f"{writer.mirror_path.name}{BEFORE_REPAIR}{stamp}"))
            part = kept.with_name(f".{kept.name}")
            shutil.copy2(writer.mirror_path, part)
            _settle(part, kept)
            back.append(f"cp -p {shlex.quote(str(kept))} {shlex.quote(str(writer.mirror_path))}")
    except OSError as error:
        raise NoRoom(
            f"a copy of {database} cannot be written: {error.strerror}", hint="nothing was changed"
        ) from error
    finally:
        aside.unlink(missing_ok=True)
    return Copies(beside, tuple(back))


def _settle(part: Path, whole: Path) -> None:
    """Give a file its name once all of it is on disk."""
    for path, flags in ((part, os.O_RDONLY), (part.parent, os.O_RDONLY)):
        handle = os.open(path, flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if path == part:
            part.rename(whole)


def refuse_held(database: Path) -> None:
    """Refuse where a process that we may look at has the file open, locks or not.

    Raises:
        StoreBusy: names the process.
    """
    wanted = set()
    for suffix in SIDECARS:
        with contextlib.suppress(OSError):
            stat = database.with_name(database.name + suffix).stat()
            wanted.add((stat.st_dev, stat.st_ino))
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):  # it ended, or is somebody else's
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    stat = link.stat()
                    if (stat.st_dev, stat.st_ino) in wanted:
                        raise _busy(database, f"process {process.name} ({_name(process)})")


def _name(process: Path) -> str:
    try:
        return process.joinpath("comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "?"


def _busy(database: Path, who: str) -> StoreBusy:
    return StoreBusy(
        f"{database} is held by {who}; nothing was changed there",
        hint="stop Hermes, its gateway too, then try again",
    )


def _database(home: Path) -> Path:
    path = home / "state.db"
    if (home / EVENTS).exists():
        raise NotAStore(f"{home} is a Retold home itself", hint="name the Hermes home")
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise NotAStore(
            f"{home} is no Hermes home: its state.db cannot be read ({error.strerror})",
            hint="name the folder that holds state.db",
        ) from error
    if start != MAGIC:
        raise NotAStore(f"{path} is no SQLite database", hint="name the folder that holds state.db")
    return path.resolve()


def _free(path: Path) -> Path:
    found, count = path, 2
    while found.exists():
        found = path.with_name(f"{path.name}-{count}")
        count += 1
    return found


def object_of(text: object) -> dict[str, Any] | None:
    """The object that a JSON text is; None where it is none."""
    try:
        found = json.loads(text) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
