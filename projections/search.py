"""Searches what was said: finds messages by their words, ranks them, and gathers them by conversation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from ..domain.events import Visibility
from ..domain.text import scrub
from .base import Connection
from .conversations import HIDDEN_KINDS, HIDDEN_SOURCES, Conversations
from .search_query import Query, parse
from .search_text import plain_text
from .sessions import micros
from .snippet import snippet
from .visibility import visibility

Sort: TypeAlias = Literal["relevance", "newest", "oldest"]
RANKED = 5_000
"""Hits that relevance is computed for, the newest ones: bm25 costs the same for each hit."""
SCANNED = 100_000
"""Messages that are read one by one where the index has no answer, the newest ones."""
TIMED = 100_000
"""Hits that are put in order of time."""
MARKS = (">>>", "<<<")
_OR = re.compile(r"(?<!\S)OR(?!\S)")
_LETTERS = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


class Hit(msgspec.Struct, frozen=True):
    """The best hit of a conversation.

    Attributes:
        more: further hits in the same conversation.
    """

    session_id: str
    message_id: int
    role: str
    snippet: str
    title: str | None
    source: str
    at_us: int | None
    visibility: Visibility
    more: int


class SearchResult(msgspec.Struct, frozen=True):
    """Hits, best first.

    Attributes:
        ranked_over: the hits that these were chosen from.
        conversations: how many conversations have a hit among those.
        notes: what a reader must know of the answer, a sentence each.
    """

    hits: list[Hit]
    ranked_over: int
    conversations: int
    notes: list[str]


_Row: TypeAlias = tuple[int, float, int, str, str, Any, int, int]
"""A message that matches: (rewound, rank, -id, session, role, timestamp, active, compacted). It sorts
itself: what was not rewound first, the smaller rank, the newer. Thousands are made for one answer, so
they are plain tuples."""
_REWOUND = "NOT (m.active OR m.compacted)"
_REST = "-m.id, m.session_id, m.role, CAST(m.timestamp AS REAL), m.active, m.compacted"


def search(
    db: Connection,
    query: str,
    *,
    limit: int = 10,
    offset: int = 0,
    roles: Sequence[str] = (),
    source: str | None = None,
    sort: Sort = "relevance",
    hidden: bool = False,
    marks: tuple[str, str] = MARKS,
    width: int = 160,
) -> SearchResult:
    """Find the conversations in which `query` was said; never raises for how a query is written.

    Of each conversation the best hit is returned; `limit` and `offset` count conversations. By
    relevance, what cron jobs said comes after all else (unless they are the source asked for), and
    what was rewound after what was not; equal hits are ordered by id, so pages neither repeat nor
    skip. Archived sessions are searched; delegates and tools only with `hidden`, or where `source`
    names theirs.

    Args:
        roles: only messages of these roles; none means all.
        marks, width: how the snippet is marked, and how long it is at most.
    """
    query, _ = scrub(query)
    asked = parse(query)
    notes: list[str] = []
    found = _find(db, query, asked, _Filter(roles, source, hidden), sort, notes)
    conversations = Conversations(db, {each[3] for each in found})
    if source is not None:
        wanted = conversations.of_source(source)
        found = [each for each in found if each[3] in wanted]
    if not hidden:
        unwanted = conversations.hidden(source)
        found = [each for each in found if each[3] not in unwanted] if unwanted else found
    found = _ordered(found, sort, after=conversations.of_cron() if source != "cron" else set())
    roots = conversations.roots()
    best: list[tuple[str, _Row]] = []
    more: dict[str, int] = {}
    for each in found:
        conversation = roots.get(each[3], each[3])
        if conversation in more:
            more[conversation] += 1
        else:
            more[conversation] = 0
            best.append((conversation, each))
    if not found:
        notes += _titles(db, query)
    literals = asked.literals or ((_unquoted(asked.scan),) if asked.scan else ())
    return SearchResult(
        hits=[
            _hit(db, each, more[conversation], literals, marks, width)
            for conversation, each in best[offset : offset + limit]
        ],
        ranked_over=len(found),
        conversations=len(best),
        notes=notes,
    )


# --- finding --------------------------------------------------------------------------------------


class _Filter:
    """What a hit must be besides a match, as SQL on `messages m`.

    `roles` alone costs nothing. `all` looks through every session, so it is asked only where there
    are more hits than are looked at; `Conversations` has the last word.
    """

    def __init__(self, roles: Sequence[str], source: str | None, hidden: bool) -> None:
        self.roles = f"m.role IN ({','.join('?' * len(roles))})" if roles else "1"
        self.role_values = tuple(roles)
        chosen, values = "1", tuple[str, ...]()
        if source is not None:
            chosen, values = "source = ?", (source,)
        if not hidden:
            chosen += f" AND coalesce(parent_kind, '') NOT IN {HIDDEN_KINDS}"
            if source is None:
                chosen += f" AND source NOT IN {HIDDEN_SOURCES}"
        self.all = f"{self.roles} AND m.session_id IN (SELECT id FROM sessions WHERE {chosen})"
        self.all_values = (*roles, *values)


def _find(
    db: Connection, query: str, asked: Query, wanted: _Filter, sort: Sort, notes: list[str]
) -> list[_Row]:
    if asked.match is None and asked.scan is None:
        notes.append("the query is empty")
        return []
    if asked.match is None:
        return _scan(db, [_unquoted(asked.scan)], wanted, notes, why="the query holds no word")
    upto, stale = db.execute("SELECT indexed_upto, stale FROM search_state").fetchone()
    literals = list(asked.literals) or [query]
    either = bool(_OR.search(query))
    if stale is not None:
        return _scan(db, literals, wanted, notes, why=f"the search index failed ({stale})", either=either)
    try:
        found = _ask(db, asked.match, wanted, sort, notes)
        if not found and asked.relaxed is not None:
            found = _ask(db, asked.relaxed, wanted, sort, notes)
    except Exception as error:  # noqa: BLE001  # whatever broke the index, the messages are there
        why = f"the search index cannot be read ({error})"
        return _scan(db, literals, wanted, notes, why=why, either=either)
    behind = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM messages WHERE id > ? LIMIT ?)", (upto, SCANNED)
    ).fetchone()[0]
    if behind:
        said: list[str] = []
        known = {each[2] for each in found}
        newer = _scan(db, literals, wanted, said, why="", either=either, after=upto)
        found = [each for each in newer if each[2] not in known] + found
    return found


def _unquoted(scan: str | None) -> str:
    """What stands in quotes, where quotes are all that is around it."""
    text = scan or ""
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == '"' else text


_MATCHED = "FROM search JOIN messages m ON m.id = search.rowid WHERE search MATCH ?"


def _ask(db: Connection, match: str, wanted: _Filter, sort: Sort, notes: list[str]) -> list[_Row]:
    """What the index answers, with what each hit is worth."""
    if sort != "relevance":
        rows = db.execute(
            f"SELECT {_REWOUND}, 0.0, {_REST} {_MATCHED} AND {wanted.roles}"
            " ORDER BY search.rowid DESC LIMIT ?",
            (match, *wanted.role_values, TIMED + 1),
        )
        found: list[_Row] = rows.fetchall()
        if len(found) > TIMED:
            notes.append(f"there are more hits; these are from the latest {TIMED:,} that came in")
        return found[:TIMED]
    where, values, first = wanted.roles, wanted.role_values, 0
    if _beyond(db, "FROM search WHERE search MATCH ?", (match,)) is not None:
        # Too many to rank: where do the newest of those that count begin?
        where, values = wanted.all, wanted.all_values
        cut = _beyond(db, f"{_MATCHED} AND {where}", (match, *values))
        if cut is not None:
            first = cut
            notes.append(f"ranked over the newest {RANKED:,} hits; older ones are not among these")
    rows = db.execute(
        f"SELECT {_REWOUND}, bm25(search), {_REST} {_MATCHED} AND search.rowid >= ? AND {where}",
        (match, first, *values),
    )
    return rows.fetchall()


def _beyond(db: Connection, hits: str, values: tuple[Any, ...]) -> int | None:
    """The id of the last of the newest `RANKED` hits, if there are more than that."""
    rows = db.execute(
        f"SELECT search.rowid {hits} ORDER BY search.rowid DESC LIMIT 2 OFFSET ?", (*values, RANKED - 1)
    ).fetchall()
    return rows[0][0] if len(rows) == 2 else None


def _scan(
    db: Connection,
    literals: Sequence[str],
    wanted: _Filter,
    notes: list[str],
    *,
    why: str,
    either: bool = False,
    after: int = 0,
) -> list[_Row]:
    """Read the messages themselves, the newest first, for every literal (`either`: for any)."""
    tests, values = [], []
    for literal in literals:
        # Not LIKE, which ends at a NUL; lower() knows ASCII only, hence `_LETTERS`.
        tests.append(
            "(instr(lower(m.content), ?) OR instr(lower(m.tool_calls), ?) OR instr(lower(m.tool_name), ?))"
        )
        values += [literal.translate(_LETTERS)] * 3
    rows = db.execute(
        f"SELECT {_REWOUND}, 0.0, {_REST}"
        " FROM (SELECT * FROM messages WHERE id > ? ORDER BY id DESC LIMIT ?) m"
        f" WHERE m.copy_of IS NULL AND {wanted.all} AND ({(' OR ' if either else ' AND ').join(tests)})"
        " LIMIT ?",
        (after, SCANNED, *wanted.all_values, *values, RANKED),
    )
    words = ", ".join(f"'{each}'" for each in literals)
    notes.append(
        f"{why}, so the newest {SCANNED:,} messages were read for {words} as it stands, newest first"
    )
    return rows.fetchall()


# --- order and conversations -----------------------------------------------------------------------


def _ordered(found: list[_Row], sort: Sort, *, after: set[str]) -> list[_Row]:
    """A total order: equal hits go by id, the newer first (`oldest`: the older).

    By relevance, those of the sessions in `after` come after all others.
    """
    if sort == "oldest":
        return sorted(found, key=lambda each: (each[5], -each[2]))
    if sort == "newest":
        return sorted(found, key=lambda each: (-each[5], each[2]))
    found.sort()
    if not after:
        return found
    return [each for each in found if each[3] not in after] + [each for each in found if each[3] in after]


def _titles(db: Connection, query: str) -> list[str]:
    """Where nothing was said, a title may be what was meant; a title is no message, so no hit."""
    needle = query.strip().strip('"`').translate(_LETTERS)
    if not needle:
        return []
    rows = db.execute(
        "SELECT title, id FROM sessions WHERE title IS NOT NULL AND instr(lower(title), ?)"
        " ORDER BY coalesce(last_active_us, started_us) DESC, id LIMIT 3",
        (needle,),
    )
    return [f"'{title}' has it in its title: retold sessions show {session}" for title, session in rows]


def _hit(
    db: Connection, row: _Row, more: int, literals: Sequence[str], marks: tuple[str, str], width: int
) -> Hit:
    """A conversation's best hit, with what is shown of it."""
    _, _, negative_id, session_id, role, timestamp, active, compacted = row
    content, tool_name, tool_calls, title, source = db.execute(
        "SELECT m.content, m.tool_name, m.tool_calls, s.title, s.source"
        " FROM messages m LEFT JOIN sessions s ON s.id = m.session_id WHERE m.id = ?",
        (-negative_id,),
    ).fetchone()
    return Hit(
        session_id=session_id,
        message_id=-negative_id,
        role=role,
        snippet=_snippet(content, tool_name, tool_calls, literals, marks, width),
        title=title,
        source=source or "unknown",
        at_us=micros(timestamp),
        visibility=visibility(active, compacted),
        more=more,
    )


def _snippet(
    content: str | None,
    tool_name: str | None,
    tool_calls: str | None,
    literals: Sequence[str],
    marks: tuple[str, str],
    width: int,
) -> str:
    """Where the match stands: in what was said, else in the tool's name and arguments."""
    start, end = marks
    said = plain_text(content)
    called = " ".join(each for each in (tool_name, tool_calls) if each)
    cut = snippet(said, literals, width=width, start=start, end=end)
    if start in cut or not called:
        return cut
    other = snippet(called, literals, width=width, start=start, end=end)
    return other if start in other or not said.strip() else cut
