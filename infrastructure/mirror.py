"""sessions/sessions.json: the routing index for readers of that file, under Hermes' names.

Written whole, atomically, and stamped with the position it was told at; an older one never goes over
a newer. It is a projection like any other: whoever loses it gets it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ..domain.errors import NoRoom
from ..projections.base import Connection
from .log import Log
from .sqlite import one
from .state_file import StateFile

DEBOUNCE_S = 0.5
FOLDER, NAME = "sessions", "sessions.json"
STAMP = "_retold"
README = (
    "Where each chat's key leads, told from events.db. Written by Retold for readers of this file;"
    " changing it changes nothing. Off with mirror.enabled: false in config.yaml."
)


def entries(db: Connection) -> dict[str, Any]:
    """The routing index as Hermes writes it: key -> entry; what the source said, with what is so now."""
    found: dict[str, Any] = {}
    for key, session_id, entry, at_us, source, chat_type, name, started_us, last_us, origin in db.execute(
        "SELECT r.key, r.session_id, r.entry, r.at_us, s.source, s.chat_type, s.display_name, s.started_us,"
        " s.last_active_us, s.origin_json FROM routes r LEFT JOIN sessions s ON s.id = r.session_id"
        " ORDER BY r.key"
    ):
        value = _decoded(entry)
        value["session_key"] = key
        if value.get("session_id") != session_id or "created_at" not in value:
            value["created_at"] = _local(started_us if started_us is not None else at_us)
            value["updated_at"] = _local(last_us if last_us is not None else at_us)
        value["session_id"] = session_id
        value.setdefault("platform", source)
        value.setdefault("chat_type", chat_type)
        value.setdefault("display_name", name)
        if origin is not None:
            value.setdefault("origin", _decoded(origin))
        found[key] = value
    return found


class Stamp(msgspec.Struct, frozen=True):
    """Which event of which log a mirror was told from."""

    position: int
    chain: str


def write_mirror(home: Path, db: Connection, log: Log, position: int) -> bool:
    """Write the mirror as of the route event at `position`; False where a newer one of this log stands.

    Raises:
        NoRoom: the folder cannot be written.
    """
    folder = home / FOLDER
    path = folder / NAME
    chain = log.chain_at(position)
    if chain is None:
        return False  # the rows are of another log, and about to be told again
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with _locked(folder / ".lock"):
            found = stamp_of(path)
            if found is not None and found.position > position and _is_of(found, log):
                return False
            stamp = Stamp(position, chain.hex())
            text = msgspec.json.format(
                msgspec.json.encode({"_README": README, STAMP: stamp, **entries(db)}), indent=2
            )
            temporary = folder / f".{NAME}.{os.getpid()}"
            handle = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            with open(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except OSError as error:
        raise NoRoom(f"{path} cannot be written: {error.strerror}", hint="check the folder") from error
    return True


def stamp_of(path: Path) -> Stamp | None:
    """What a mirror was told from; None for none, or for a file of another's making."""
    try:
        return msgspec.convert(msgspec.json.decode(path.read_bytes())[STAMP], Stamp)
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        return None


def _is_of(stamp: Stamp, log: Log) -> bool:
    """Whether this log holds that event: one restored from a backup may not."""
    return (log.chain_at(stamp.position) or b"").hex() == stamp.chain


def _decoded(text: str | None) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _local(at_us: int) -> str:
    """As Hermes writes times there: ISO 8601, local, without an offset."""
    return datetime.fromtimestamp(at_us / 1e6).isoformat()  # noqa: DTZ006 # that is their form


@contextlib.contextmanager
def _locked(path: Path) -> Any:
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # and with it the lock


class Mirror:
    """Keeps the mirror behind a writer, in a thread of its own: half a second after a route has moved, with
    all that moved meanwhile; and at closing.

    It is written whole, so it costs by how many routes there are, and no command waits for that. What
    cannot be written now is written with the next change, or by the next writer that closes.
    """

    def __init__(self, home: Path, log: Log, *, enabled: bool) -> None:
        self._home = home
        self._log = log
        self._enabled = enabled
        self._moved = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def moved(self, state: StateFile) -> None:
        """A route moved."""
        if not self._enabled:
            return
        self._moved.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, args=(state,), name="mirror", daemon=True)
            self._thread.start()

    def _follow(self, state: StateFile) -> None:
        while self._moved.wait() and not self._closing.wait(DEBOUNCE_S):
            self._moved.clear()
            if self._closing.is_set():  # who closes may have set just what was cleared, and waits for this
                return
            self._write(state)

    def close(self, state: StateFile) -> None:
        """Write it if a route has moved since it was last written, by whomever."""
        self._closing.set()
        if self._thread is not None:
            self._moved.set()
            self._thread.join()
        self._write(state)

    def rewrite(self, state: StateFile) -> None:
        """What the entries hold may have changed though no route has moved: a text was forgotten."""
        self._write(state, anew=True)

    def _write(self, state: StateFile, *, anew: bool = False) -> None:
        if not self._enabled and not (anew and (self._home / FOLDER / NAME).exists()):
            return
        with contextlib.suppress(Exception):  # the save has happened; no mirror may make it look failed
            db = state.reader()
            moved_at: int | None = one(db, "SELECT max(position) FROM route_history")
            if moved_at is None:
                return
            found = stamp_of(self._home / FOLDER / NAME)
            if anew or found is None or found.position != moved_at or not _is_of(found, self._log):
                write_mirror(self._home, db, self._log, moved_at)
