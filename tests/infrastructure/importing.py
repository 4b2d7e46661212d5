"""A Hermes home that changes between imports, for tests: edit it, import it, see what was appended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from retold.domain.events import ImportRan, Payload, Recorded
from retold.infrastructure.engine import SessionEngine, open_home
from retold.infrastructure.importers.hermes import import_hermes
from retold.infrastructure.importers.report import ImportReport


def edit(hermes: Path, sql: str, *values: Any) -> None:
    """Change the home's database, as Hermes would between two imports."""
    db = apsw.Connection(str(hermes / "state.db"))
    try:
        db.execute(sql, values)
    finally:
        db.close()


def ask(hermes: Path, sql: str, *values: Any) -> list[Any]:
    """Rows of the home's database."""
    db = apsw.Connection(str(hermes / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute(sql, values).fetchall()
    finally:
        db.close()


class Importer:
    """A Retold home beside a Hermes home."""

    def __init__(self, engine: SessionEngine, hermes: Path) -> None:
        self.engine = engine
        self.hermes = hermes
        self.report: ImportReport | None = None

    def run(self, hermes: Path | None = None, **how: Any) -> list[Recorded]:
        """Import, and return what was appended, but for the ImportRan that every run writes."""
        before = self.engine.event_log.head().position
        self.report = import_hermes(self.engine, hermes or self.hermes, **how)
        events = self.events(before)
        assert isinstance(events[-1].payload, ImportRan)
        return events[:-1]

    def told(self, **how: Any) -> list[Payload]:
        """Import, and return the payloads that were appended."""
        return [event.payload for event in self.run(**how)]

    def events(self, after: int = 0) -> list[Recorded]:
        """Events of the log."""
        found: list[Recorded] = []
        while chunk := self.engine.event_log.read(after):
            found += chunk
            after = chunk[-1].position
        return found

    def state(self, sql: str, *values: Any) -> list[Any]:
        """Rows of the projections."""
        self.engine.projector.catch_up()
        return self.engine.projector.state.reader().execute(sql, values).fetchall()

    def session(self, session_id: str) -> dict[str, Any]:
        """A session as it is here."""
        self.engine.projector.catch_up()
        cursor = self.engine.projector.state.reader().execute(
            "SELECT * FROM sessions WHERE id = ?", (session_id,)
        )
        names = [column[0] for column in cursor.get_description()]
        return dict(zip(names, cursor.fetchall()[0], strict=True))

    def position_of(self, message_id: int) -> int:
        """A source's message here."""
        found = self.state("SELECT message FROM source_messages WHERE source_id = ?", message_id)
        return int(found[0][0])


@contextmanager
def importer(home: Path, hermes: Path) -> Iterator[Importer]:
    """Open both."""
    with open_home(home, actor="cli", synchronous="NORMAL") as engine:
        yield Importer(engine, hermes)
