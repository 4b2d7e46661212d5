"""Looks for damage in a store that is being read, also where no row is lost by it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import apsw

from .salvage import DAMAGE, ask, be_lenient, quoted
from .source_file import SourceFile
from .wal_check import unreadable_commits

_TREE = re.compile(r"^(?:\*\*\*.*\n)?Tree (\d+) ", re.MULTILINE)
#: Tokenizers that cut the same words in every SQLite since FTS5 began. The trigram tokenizer does
#: not (an index made by 3.40 counts as malformed in 3.54), so its words cannot be held against the
#: text; of those indexes only the structure is read.
_STABLE = {"unicode61", "ascii", "porter"}
_TOKENIZER = re.compile(r"\btokenize\s*=\s*[\"']?\s*(\w+)", re.IGNORECASE)
#: How many answers about one object are looked at.
LIMIT = 20
#: How many messages are compared in one query, so that a damaged page hides few others.
STRETCH = 500
MOST_IDS = 50_000_000


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
            self._found.extend(_check_wal(self._source))
            db.set_progress_handler(self._stopped.is_set, 100_000)
            self._found.extend(_once(check(db)))
        except apsw.InterruptError:
            pass
        finally:
            db.close()


def _check_wal(source: SourceFile) -> Iterator[str]:
    if source.passed_by is not None:
        yield f"{source.passed_by.name} is damaged: whatever it held cannot be read"
    if source.wal is None:
        return
    lost = unreadable_commits(source.wal)
    # A live writer may be in the middle of a frame: what is damaged is so the second time too.
    if lost and unreadable_commits(source.wal) >= lost:
        yield f"the write-ahead log is damaged: its last {lost} commits cannot be read"


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
    yield from _compare_texts(db)


def _check_table(db: apsw.Connection, name: str, roots: dict[int, str]) -> Iterator[str]:
    """A table's pages, and its rows against each of its indexes."""
    answers, whole = _answers(db, f"PRAGMA integrity_check({quoted(name)})")
    if not whole:  # it stumbled over what it was about to name; the quick one looks less closely
        answers += _answers(db, f"PRAGMA quick_check({quoted(name)})")[0]
        if set(answers) <= {"ok"}:
            yield f"table {name} is damaged"
    for answer in answers:
        if answer == "ok":
            continue
        trees = {int(tree) for tree in _TREE.findall(answer)}
        if trees:
            yield from (f"{roots.get(tree, f'table {name}')} is damaged" for tree in sorted(trees))
        elif named := re.search(r"(?:in|from) index (\S+)", answer):
            yield f"index {named[1]} does not agree with table {name}"
        elif " value in " in answer:
            yield f"table {name} holds what its own definition forbids: {answer}"
        else:
            yield f"table {name} is damaged"


def _answers(db: apsw.Connection, question: str) -> tuple[list[str], bool]:
    answers: list[str] = []
    try:
        for (answer,) in db.execute(question):
            answers.append(str(answer))
    except (*DAMAGE, apsw.SQLError):
        return answers[:LIMIT], False
    return answers[:LIMIT], True


def _check_fts(db: apsw.Connection, name: str, statement: str) -> Iterator[str]:
    damaged = f"the search index {name} is damaged (Retold makes its own, nothing is lost by it)"
    try:
        tokenizer = _TOKENIZER.search(statement)
        if tokenizer is None or tokenizer[1].lower() in _STABLE:
            if ask(db, f"PRAGMA quick_check({quoted(name)})") != [("ok",)]:
                yield damaged
        else:
            words = f"temp.{quoted(name + '_words')}"
            ask(db, f"CREATE VIRTUAL TABLE {words} USING fts5vocab(main, {quoted(name)}, row)")
            ask(db, f"SELECT count(*), sum(cnt) FROM {words}")
    except DAMAGE:
        yield damaged
    except apsw.SQLError:
        return  # a tokenizer that is not loaded here: not ours to judge


def _compare_texts(db: apsw.Connection) -> Iterator[str]:
    """Hermes' search index holds a copy of each text: a damaged letter shows by nothing else."""
    sql = (
        "SELECT m.id FROM messages AS m NOT INDEXED JOIN messages_fts_content AS f ON f.id = m.id"
        " WHERE m.id BETWEEN ? AND ? AND f.c0 IS NOT coalesce(m.content, '') || ' '"
        " || coalesce(m.tool_name, '') || ' ' || coalesce(m.tool_calls, '')"
    )
    differ: list[int] = []
    compared = 0
    try:
        last = ask(db, "SELECT max(id) FROM messages_fts_content")[0][0] or 0
        for first in range(1, min(last, MOST_IDS) + 1, STRETCH):
            try:
                differ += [i for (i,) in ask(db, sql, (first, first + STRETCH - 1))]
                compared += STRETCH
            except DAMAGE:
                continue  # rows that cannot be read are named by the reader
    except (*DAMAGE, apsw.SQLError):
        return  # another layout of the index
    if len(differ) > max(LIMIT, compared // 20):
        return  # an index that is told something else, or not kept up: no sign of damage
    for message_id in differ[:LIMIT]:
        yield (
            f"message {message_id}: its text and the copy in the search index differ,"
            " so one of them is damaged"
        )


def _once(sentences: Iterator[str]) -> list[str]:
    """Each sentence once; what is damaged need not be said to disagree as well."""
    kept = list(dict.fromkeys(sentences))
    damaged = {sentence.removesuffix(" is damaged") for sentence in kept}
    return [each for each in kept if each.split(" does not agree")[0] not in damaged - {each}]
