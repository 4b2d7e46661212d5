"""A Hermes home that is being read: opened without a trace, salvaged, checked and let go."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import apsw

from ...domain.errors import NotAStore, StoreBusy
from .hermes_reader import HermesReader
from .salvage import DAMAGE, Lost, ask, be_lenient
from .source_check import SourceCheck
from .source_file import SourceFile, prepare

#: What SQLite answers where the sidecars fit nothing, or the file may not be opened at all.
NO_SENSE = (apsw.ProtocolError, apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError)

__all__ = ["HermesHome"]

#: Tables that every home has which is worth reading; one that a damaged schema hides is lost.
EXPECTED = {"messages", "gateway_routing", "session_model_usage"}


class HermesHome(HermesReader):
    """Everything an import reads of a home, in one consistent state of its database."""

    def __init__(
        self,
        path: Path,
        source: SourceFile,
        db: apsw.Connection,
        tables: set[str],
        damage: list[str],
    ) -> None:
        super().__init__(path, db, tables)
        for sentence in damage:
            self._add_damage(sentence)
            self._miss(EXPECTED - tables)
        self._source = source
        self._check: SourceCheck | None = None
        self._open = True

    @classmethod
    def open(cls, path: Path, scratch: Path) -> Self:
        """Open the home at `path`; `scratch` is a folder of ours for links and copies.

        Raises:
            NotAStore: no such folder, no database, or no sessions table in it.
            StoreBusy: another program holds the database for itself.
        """
        path = _folder(path)
        file = (path / "state.db").resolve()
        source = prepare(file, scratch)
        try:
            return cls._opened(path, source)
        except NO_SENSE as error:
            if source.mode != "shared":
                raise NotAStore(f"{file} cannot be opened for reading") from error
        source = prepare(file, scratch, aside=True)
        try:
            return cls._opened(path, source)
        except NO_SENSE as error:
            raise NotAStore(f"{file} cannot be opened for reading") from error

    @classmethod
    def _opened(cls, path: Path, source: SourceFile) -> Self:
        db: apsw.Connection | None = None
        try:
            db = source.connect()
            tables, damage = _tables(db, source)
            return cls(path, source, db, tables, damage)
        except BaseException as error:
            if db is not None:
                db.close(True)
            source.remove_links()
            if isinstance(error, (apsw.BusyError, apsw.LockedError)):
                raise StoreBusy(
                    f"{source.path} is held by another program",
                    hint="close Hermes, or run the import again in a moment",
                ) from error
            raise

    def check_in_background(self) -> None:
        """Begin to look for damage, also where nothing is lost by it."""
        if self._check is None:
            self._check = SourceCheck(self._source)
            self._check.start()

    def damage_found(self) -> list[str]:
        """Wait for the check; `damage` and what it found, one sentence for each object."""
        self.check_in_background()
        if self._check is not None:
            for sentence in self._check.result():
                self._add_damage(sentence)
        return list(self.damage)

    def finish(self) -> None:
        """Close everything and hold the file against what it was.

        Raises:
            SourceChanged: it was written while it was read.
        """
        if self._close():
            self._source.settle()

    def _miss(self, tables: set[str]) -> None:
        for table in sorted(tables):
            detail = "the whole table: the damaged schema does not show it"
            self._add(Lost(table, None, None, None, detail))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()
        self._source.remove_links()

    def _close(self) -> bool:
        was_open, self._open = self._open, False
        if was_open:
            if self._check is not None:
                self._check.stop()
            self._db.close(True)
        return was_open


def _folder(path: Path) -> Path:
    path = path.expanduser()
    try:
        if not path.exists():
            raise NotAStore(f"no such folder: {path}", hint="name the folder that holds state.db")
        if not path.is_dir():
            raise NotAStore(
                f"{path} is a file, not a Hermes home", hint="name the folder that holds state.db"
            )
        path = path.resolve()
        if not (path / "state.db").is_file():
            mirror = path / "sessions" / "sessions.json"
            only = ", only sessions/sessions.json, which holds no messages" if mirror.exists() else ""
            raise NotAStore(f"{path} holds no state.db{only}")
    except OSError as error:
        raise NotAStore(f"{path} cannot be read: {error.strerror or error}") from error
    return path


def _tables(db: apsw.Connection, source: SourceFile) -> tuple[set[str], list[str]]:
    """The tables that can be read at all; one read transaction is held from here on."""
    damage: list[str] = []
    db.execute("BEGIN")
    try:
        try:
            tables = _names(db)
            ask(db, "SELECT count(*) FROM sqlite_schema")  # this takes the lock and the snapshot
        except DAMAGE as error:
            if isinstance(error, apsw.NotADBError):
                raise NotAStore(f"{source.path} is no SQLite database") from error
            be_lenient(db)
            damage.append("the schema is damaged, or the file was cut off")
            tables = _names(db)
        columns = ask(db, "PRAGMA table_info(sessions)") if "sessions" in tables else []
        if "id" in [column[1] for column in columns]:
            ask(db, "PRAGMA cache_size = -32000")
            return tables, damage
    except (*DAMAGE, apsw.SQLError) as error:
        raise NotAStore(
            f"{source.path} is too damaged to be read: its first page or its schema is broken"
        ) from error
    so_far = " that can be read" if damage else ""
    raise NotAStore(f"{source.path} holds no sessions table{so_far}")


def _names(db: apsw.Connection) -> set[str]:
    """Tables of the schema as SQLite has taken it in, not as its text says; a view holds no rows."""
    listed = ask(db, "PRAGMA main.table_list")
    return {
        name
        for schema, name, kind, *_ in listed
        if schema == "main" and kind == "table" and name != "sqlite_schema"
    }
