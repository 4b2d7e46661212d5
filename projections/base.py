"""What a projection is: named tables, and a fold of events into their rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Protocol

from ..domain.events import Recorded

OfMessages = Literal["all", "imported", "none"]


class Cursor(Protocol):
    """The rows of a statement."""

    def __iter__(self) -> Iterator[Any]: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """What folds and queries need of a database; apsw.Connection has it."""

    def execute(self, statements: str, bindings: Any = ..., /) -> Cursor: ...
    def executemany(self, statements: str, sequenceofbindings: Iterable[Any], /) -> Cursor: ...


class Projection(ABC):
    """A fold into tables of its own.

    `fold` sees events in position order, each once, in batches of any size: the same log gives the
    same rows however it was cut. No clock, no randomness, no other projection's tables. A change of
    what is folded raises `version`, and whoever opens the home next tells the projection again.

    Tables are made under `prefix + name`, so that a rebuild can fill new ones beside those that are
    read; `indexes` are made once the rows are there, with a name that no earlier generation bears.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    tables: ClassVar[dict[str, str]]
    """Table name -> what stands in the parentheses of CREATE TABLE, and after them."""
    virtual: ClassVar[dict[str, str]] = {}
    """Virtual table name -> module and arguments."""
    indexes: ClassVar[dict[str, str]] = {}
    """Index name -> 'table (columns) [WHERE …]'."""
    unique_indexes: ClassVar[frozenset[str]] = frozenset()
    of_messages: ClassVar[OfMessages] = "all"
    """Which messages change anything in it: those that came from a source may where others do not."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def t(self, table: str) -> str:
        """The table's name with this instance's prefix."""
        return self.prefix + table

    def create(self, db: Connection) -> None:
        """Make the tables, empty."""
        for table, body in self.tables.items():
            db.execute(f"CREATE TABLE {self.t(table)} {body}")
        for table, module in self.virtual.items():
            db.execute(f"CREATE VIRTUAL TABLE {self.t(table)} USING {module}")

    def create_indexes(self, db: Connection, generation: int) -> None:
        """Make the indexes on this instance's tables."""
        for index, on in self.indexes.items():
            unique = "UNIQUE " if index in self.unique_indexes else ""
            db.execute(f"CREATE {unique}INDEX {index}_g{generation} ON {self.prefix}{on}")

    def drop(self, db: Connection) -> None:
        """Remove the tables and with them their indexes."""
        for table in (*self.virtual, *self.tables):
            db.execute(f"DROP TABLE IF EXISTS {self.t(table)}")

    @abstractmethod
    def fold(self, events: Sequence[Recorded], db: Connection) -> None:
        """Write what `events` change. Called inside a transaction that also moves the checkpoint."""

    def prepare(self, events: Sequence[Recorded]) -> None:  # noqa: B027  # few folds have any
        """Make what a fold of `events` needs and no database is asked for; nothing by default.

        Called before `fold`, or not at all, and while another instance settles in another thread.
        """

    def settle(self, db: Connection) -> None:  # noqa: B027  # as above
        """Do what a fold may leave for later (the search index trails; a rebuild leaves its bulk);
        nothing by default.

        Called inside a transaction, of the last fold or of its own, and by any thread.
        """

    @abstractmethod
    def ordered(self) -> dict[str, str]:
        """Table -> ORDER BY of its whole content, for comparing two foldings row for row."""
