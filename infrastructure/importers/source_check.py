"""Looks for damage in a store that is being read, also where no row is lost by it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import apsw

from .salvage import DAMAGE, ask, be_lenient, quoted
from .source_file import SourceFile

_TREE = re.compile(r"^(?:\*\*\*.*\n)?Tree (\d+) ", re.MULTILINE)
#: Tokenizers that cut the same words in every SQLite since FTS5 began. The trigram tokenizer does
#: not (an index made by 3.40 counts as malformed in 3.54), so its words cannot be held against the
#: text; of those indexes only the structure is read.
_STABLE = re.compile(r"tokenize\s*=\s*['\"]\s*(?!unicode61|ascii|porter)", re.IGNORECASE)
LIMIT = 20


class SourceCheck:
    """One thread with a connection of its own; SQLite works without holding the interpreter."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source
        self._found: list[str] = []
        self._db: apsw.Connection | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source-check", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def result(self) -> list[str]:
        """Wait for the check; one sentence for each damaged object."""
        self._thread.join()
        return list(self._found)

    def stop(self) -> None:
        """Give up the check, as when the import itself gave up."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            db = self._source.connect()
        except apsw.Error:
            return  # the reader's own opening has said what is wrong
        try:
            db.set_progress_handler(self._stopped.is_set, 100_000)
            self._found.extend(_unique(check(db)))
        except apsw.InterruptError:
            pass
        finally:
            db.close()


def check(db: apsw.Connection) -> Iterator[str]:
    """Check every table with its indexes, and every FTS5 index."""
    roots: dict[int, str] = {}
    objects: list[tuple[str, str, str]] = []
    try:
        ask(db, "SELECT 1 FROM sqlite_schema LIMIT 1")
    except DAMAGE:
        be_lenient(db)
    try:
        sql = "SELECT type, name, rootpage, sql FROM sqlite_schema WHERE type IN ('table', 'index')"
        for kind, name, root, statement in db.execute(sql):
            if not str(name).isprintable():
                yield "the schema is damaged"
                continue
            roots[root] = f"{kind} {name}"
            objects.append((str(kind), str(name), str(statement or "")))
    except (*DAMAGE, apsw.SQLError, UnicodeDecodeError):
        yield "the schema is damaged"
    for kind, name, statement in objects:
        if kind == "table" and not statement.upper().startswith("CREATE VIRTUAL"):
            yield from _check_table(db, name, roots)
    for _, name, statement in objects:
        if re.match(r"CREATE VIRTUAL TABLE .*USING\s+fts5\b", statement, re.IGNORECASE | re.DOTALL):
            yield from _check_fts(db, name, statement)


def _check_table(db: apsw.Connection, name: str, roots: dict[int, str]) -> Iterator[str]:
    try:
        answers = ask(db, f"PRAGMA quick_check({quoted(name)})")
    except (*DAMAGE, apsw.SQLError):
        yield f"table {name} is damaged"
        return
    for (answer,) in answers[:LIMIT]:
        if answer == "ok":
            continue
        trees = {int(tree) for tree in _TREE.findall(answer)}
        if trees:
            yield from (f"{roots.get(tree, f'table {name}')} is damaged" for tree in sorted(trees))
        elif named := re.search(r"(?:in|from) index (\S+)", answer):
            yield f"index {named[1]} does not agree with table {name}"
        else:
            yield f"table {name} is damaged"


def _check_fts(db: apsw.Connection, name: str, statement: str) -> Iterator[str]:
    damaged = f"the search index {name} is damaged (Retold makes its own, nothing is lost by it)"
    try:
        if not _STABLE.search(statement):
            answers = ask(db, f"PRAGMA quick_check({quoted(name)})")
            if answers != [("ok",)]:
                yield damaged
                return
        else:
            probe = quoted(f"{name}_words")
            db.execute(f"CREATE VIRTUAL TABLE temp.{probe} USING fts5vocab(main, {quoted(name)}, instance)")
            db.execute(f"SELECT count(*), sum(offset) FROM temp.{probe}").fetchall()
    except DAMAGE:
        yield damaged
    except apsw.SQLError:
        return  # a tokenizer that is not loaded here: not ours to judge


def _unique(sentences: Iterator[str]) -> Iterator[str]:
    seen: set[str] = set()
    for sentence in sentences:
        if sentence not in seen:
            seen.add(sentence)
            yield sentence
