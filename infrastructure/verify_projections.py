"""Checks what is told from the log: SQLite's own checks, the search index, and a fold from nothing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from ..projections.base import Projection
from ..projections.search_text import indexed_text, is_indexable
from ..projections.transcripts import Transcripts
from .checkpoints import Checkpoint, is_newer, load, why_tell_again
from .differences import NO_ROWS, difference_of
from .past_damage import events_past
from .projector import Projector
from .sqlite import READ_WRITE, connect, one, translated
from .state_file import damaged
from .verify_log import Problem, Progress, sqlite_says

REBUILD_ALL = "retold projections rebuild"
_BATCH = 4_000
_STALE = "not indexed here: the index is checked against the messages"


def rebuild_of(name: str) -> str:
    """The command that cures one projection."""
    return f"{REBUILD_ALL} {name}"


def verify_projections(
    projector: Projector, *, told: bool, progress: Progress | None = None
) -> tuple[list[Problem], int]:
    """Problems of the projections, and the position that they were held against the log at.

    Everything is read in one snapshot, so writers go on. `told` is whether the whole log can be
    read; else nothing can be folded from it to compare with.
    """
    with (
        contextlib.closing(projector.state.open_reader()) as db,
        translated(str(projector.state.link), damaged),
    ):
        db.execute(
            "PRAGMA query_only = 0"
        )  # a temporary table of terms; the file stays open for reading only
        db.execute("BEGIN")
        known = load(db)
        problems = _file(db)
        checkpoints, aside = _checkpoints(projector, known)
        problems += aside
        if Transcripts.name in checkpoints:
            problems += _search(db, projector.log.head().chain, progress)
        position = min((each.position for each in checkpoints.values()), default=0)
        if told:
            problems += _against_the_log(projector, db, checkpoints, progress)
    return problems, position


def _file(db: apsw.Connection) -> list[Problem]:
    said = sqlite_says(db, "PRAGMA quick_check(20)")
    if said == ["ok"]:
        return []
    lines = [line for line in (" ".join(each.split()) for each in said) if line]
    index = [line for line in lines if line.startswith("fts5:")]
    rest = [line for line in lines if not line.startswith("fts5:")]
    found = []
    if index:
        found.append(Problem("search_index", [], f"FTS5 says: {index[0]}", rebuild_of(Transcripts.name)))
    if rest:
        more = f" (and {len(rest) - 1} more)" if len(rest) > 1 else ""
        found.append(Problem("file", [], f"SQLite says of state.db: {rest[0]}{more}", REBUILD_ALL))
    return found


def _checkpoints(
    projector: Projector, known: dict[str, Checkpoint]
) -> tuple[dict[str, Checkpoint], list[Problem]]:
    """The checkpoints whose rows claim to be a fold of this log, and what is wrong with the others."""
    head = projector.log.head()
    fit: dict[str, Checkpoint] = {}
    problems: list[Problem] = []
    for name, projection in projector.projections.items():
        checkpoint = known.get(name)
        if checkpoint is None:
            continue  # nothing is told yet: that is lag
        if is_newer(checkpoint, projection):
            detail = f"{name} was folded by a newer Retold (version {checkpoint.fold_version})"
            problems.append(Problem("newer", [], detail, "upgrade retold"))
            continue
        if checkpoint.detached:
            detail = f"{name} is set aside: {checkpoint.detached}"
            problems.append(Problem("detached", _at(checkpoint), detail, rebuild_of(name)))
            continue
        why = why_tell_again(checkpoint, projection, projector.log, head)
        if why is None:
            fit[name] = checkpoint
        else:
            detail = f"{name} is no fold of this log: {why}"
            problems.append(Problem("no_fold", _at(checkpoint), detail, rebuild_of(name)))
    return fit, problems


def _at(checkpoint: Checkpoint) -> list[list[int]]:
    return [[checkpoint.position, checkpoint.position]]


# --- the search index ------------------------------------------------------------------------------


def _search(db: apsw.Connection, seed: bytes, progress: Progress | None) -> list[Problem]:
    """The index against one made anew from the messages: the same rows, and the same terms in as many.

    A contentless index can be told to forget another text than it was told (FIELD_CASES D14), which
    its own check does not see; the counts of its terms do.
    """
    cure = rebuild_of(Transcripts.name)
    try:
        row = db.execute("SELECT indexed_upto, stale FROM search_state").fetchone()
        if row is None:
            return [Problem("search_index", [], "search_state is empty", cure)]
        upto, stale = row
        if stale is not None:
            return [Problem("search_index", [[upto, upto]], f"the search index is stale: {stale}", cure)]
        found = _query(db, upto, seed)
        with _scratch(db) as made:
            made.execute(f"CREATE VIRTUAL TABLE search USING {Transcripts.virtual['search']}")
            made.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", _texts(db, upto, progress))
            difference = difference_of(
                "search",
                db.execute("SELECT id, sz FROM search_docsize ORDER BY id"),
                made.execute("SELECT id, sz FROM search_docsize ORDER BY id"),
            )
            if difference is None:
                sql = "CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'search', 'row')"
                for each in (db, made):
                    each.execute(sql)
                terms = "SELECT term, doc, cnt FROM temp.terms"
                difference = difference_of("terms", db.execute(terms), made.execute(terms))
    except NO_ROWS as error:
        return [Problem("search_index", [], f"the search index cannot be read: {error}", cure)]
    if difference is not None:
        what = "message" if difference.table == "search" else "term"
        detail = (
            f"the search index is not that of the messages: {difference.only_before} {what}(s) too many,"
            f" {difference.only_now} missing, {difference.changed} other; first {difference.first!r}"
        )
        where = [[int(difference.first)] * 2] if what == "message" else []
        found.append(Problem("search_index", where, detail, cure))
    return found


def _texts(db: apsw.Connection, upto: int, progress: Progress | None) -> Iterator[tuple[int, str]]:
    for number, (message, content, name, calls) in enumerate(
        db.execute(
            "SELECT id, content, tool_name, tool_calls FROM messages"
            " WHERE id <= ? AND copy_of IS NULL ORDER BY id",
            (upto,),
        )
    ):
        if progress is not None and number % _BATCH == 0:
            progress("search index", message, upto)
        yield message, indexed_text(content, name, calls)


def _query(db: apsw.Connection, upto: int, seed: bytes) -> list[Problem]:
    """Look for a word of one message, which the log's head picks, so that each verify may take another."""
    last = one(db, "SELECT max(id) FROM messages WHERE id <= ?", (upto,))
    if last is None:
        return []
    start = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big") % (int(last) + 1)
    for message, content, name, calls in db.execute(
        "SELECT id, content, tool_name, tool_calls FROM messages"
        " WHERE id >= ? AND id <= ? AND copy_of IS NULL ORDER BY id LIMIT 100",
        (start, upto),
    ):
        words = [word for word in indexed_text(content, name, calls).split() if is_indexable(word)]
        if not words:
            continue
        word = words[start % len(words)].replace('"', '""')
        hit = one(db, "SELECT 1 FROM search WHERE search MATCH ? AND rowid = ?", (f'"{word}"', message))
        if hit is None:
            detail = f"searching for {word!r} does not find message #{message}, which holds it"
            return [Problem("search_index", [[message, message]], detail, rebuild_of(Transcripts.name))]
        return []
    return []


# --- a fold from nothing ---------------------------------------------------------------------------


@contextlib.contextmanager
def _scratch(beside: apsw.Connection) -> Iterator[apsw.Connection]:
    """A database of our own for a while: a file that has lost its name, so nothing is ever left of it."""
    folder = Path(beside.filename).parent
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir())
    handle, name = tempfile.mkstemp(prefix=".verify-", suffix=".db", dir=folder)
    os.close(handle)
    try:
        db = connect(Path(name), flags=READ_WRITE)
        db.pragma("locking_mode", "exclusive")
        db.pragma("journal_mode", "off")
        db.pragma("synchronous", "off")
        db.execute("BEGIN EXCLUSIVE")
    finally:
        os.unlink(name)
    try:
        yield db
    finally:
        db.close()


def _against_the_log(
    projector: Projector,
    db: apsw.Connection,
    checkpoints: dict[str, Checkpoint],
    progress: Progress | None,
) -> list[Problem]:
    problems: list[Problem] = []
    with _scratch(db) as made:
        folds = {name: projector.projections[name]() for name in checkpoints}
        for name, fold in folds.items():
            fold.create(made)
            if name == Transcripts.name:
                made.execute("UPDATE search_state SET stale = ?", (_STALE,))
        done = 0
        head = max((each.position for each in checkpoints.values()), default=0)
        for position in sorted({each.position for each in checkpoints.values()}):
            waiting = [name for name in folds if checkpoints[name].position >= position]
            while done < position:
                stretch = events_past(projector.log, done, limit=_BATCH, upto=position)
                done = stretch.done
                for name in waiting:
                    folds[name].fold(stretch.events, made)
                if progress is not None:
                    progress("fold from nothing", done, head)
            for name in waiting:
                if checkpoints[name].position == position:
                    problems += _compared(folds[name], position, db, made)
    return problems


def _compared(
    fold: Projection, position: int, db: apsw.Connection, made: apsw.Connection
) -> Iterable[Problem]:
    problems: list[Problem] = []
    for table, sql in fold.ordered().items():
        if table == "search":
            continue  # held against the messages
        try:
            difference = difference_of(table, db.execute(sql.format(p="")), made.execute(sql.format(p="")))
        except NO_ROWS as error:
            detail = f"{fold.name}: the table {table} cannot be read: {error}"
            problems.append(Problem("rows", [], detail, rebuild_of(fold.name)))
            continue
        if difference is None:
            continue
        counts = f"{difference.only_before} row(s) too many, {difference.only_now} missing"
        detail = (
            f"{fold.name}: {table} differs from the log at #{position}: {counts},"
            f" {difference.changed} other; first {difference.first}"
        )
        where = _where(table, difference.first)
        problems.append(Problem("rows", where, detail, rebuild_of(fold.name)))
    return problems


def _where(table: str, key: str) -> list[list[int]]:
    """The position that a row's key is, where it is one."""
    if table in ("messages", "route_history", "compressions") and key.isdigit():
        return [[int(key), int(key)]]
    return []


def lag_as_found(projector: Projector, head: int) -> int:
    """How many events the projection furthest behind has not folded, before anybody folds them."""
    with (
        contextlib.closing(projector.state.open_reader()) as db,
        translated(str(projector.state.link), damaged),
    ):
        known = load(db)
    positions: Sequence[Any] = [known[n].position if n in known else 0 for n in projector.projections]
    return max(head - min(positions, default=0), 0)
