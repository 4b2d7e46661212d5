"""Searches what was said: finds messages by their words, ranks them, and gathers them by conversation."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from ..domain.events import Visibility
from ..domain.text import scrub
from .base import Connection
from .conversations import HIDDEN_KINDS, HIDDEN_SOURCES, Conversations
from .listing import nothing_there
from .search_index import Text
from .search_query import Query, parse
from .search_text import plain_text, unescaped
from .sessions import micros
from .snippet import cut
from .visibility import visibility

Sort: TypeAlias = Literal["relevance", "newest", "oldest"]
RANKED = 5_000
"""Hits that relevance is computed for, the newest ones: bm25 costs the same for each hit."""
SCANNED = 100_000
"""Messages that are read one by one where the index has no answer, the newest ones."""
AT_A_TIME = 100
"""Of ranked hits, so many are looked up at a time where only the best few conversations are asked for."""
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


_Row: TypeAlias = tuple[float, int, str, int]
"""A message that matches: (worth, -id, session, rewound). The worth is the rank or, in order of time,
-timestamp, so that a row sorts itself: the smaller worth first, then the newer. Thousands are made for
one answer, so they are plain tuples of what order and conversations need; `_hits` reads the rest of the
few that are shown."""
_NEWER = "-CAST(m.timestamp AS REAL)"
_REST = "-m.id, m.session_id, NOT (m.active OR m.compacted)"


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
    cron_last: bool = False,
    counted: bool = True,
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
        cron_last: what cron jobs said comes after all else in order of time, too.
        counted: False where nobody asks how many hits and conversations there are besides those that
            are returned: by relevance, most of what matched is then not looked at, and not counted.
        marks, width: how the snippet is marked, and how long it is at most.
    """
    query, _ = scrub(query)
    asked = parse(query)
    notes: list[str] = []
    wanted = _Filter(roles, source, hidden)
    best = None if counted or sort != "relevance" else _best_few(db, asked, wanted, offset + limit, notes)
    found, shown_as = best or _find(db, query, asked, wanted, sort, notes)
    conversations = Conversations(db, {each[2] for each in found})
    found = _counting(found, conversations, source, hidden=hidden)
    late = conversations.of_cron() if source != "cron" and (cron_last or sort == "relevance") else set[str]()
    found = _ordered(found, sort, after=late)
    roots = conversations.roots()
    held_by = [roots.get(each[2], each[2]) for each in found]
    counts = Counter(held_by)
    shown = _best(found, held_by, offset, limit)
    if not found:
        notes += [*_titles(db, query), *_roles_not_there(db, roles), *nothing_there(db, source=source)]
    return SearchResult(
        hits=_hits(db, {-each[1]: counts[held] - 1 for held, each in shown}, shown_as, marks, width),
        ranked_over=len(found),
        conversations=len(counts),
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
        self.source, self.hidden = source, hidden
        chosen, values = "1", tuple[str, ...]()
        if source is not None:
            chosen, values = "source = ?", (source,)
        if not hidden:
            chosen += f" AND coalesce(parent_kind, '') NOT IN {HIDDEN_KINDS}"
            if source is None:
                chosen += f" AND source NOT IN {HIDDEN_SOURCES}"
        self.all = f"{self.roles} AND m.session_id IN (SELECT id FROM sessions WHERE {chosen})"
        self.all_values = (*roles, *values)


class _Marked(NamedTuple):
    """What to mark in what was found; messages after `read_after` were read, not looked up in the index."""

    literals: Sequence[str]
    beginnings: frozenset[str] = frozenset()
    read_after: int = 0


def _find(
    db: Connection, query: str, asked: Query, wanted: _Filter, sort: Sort, notes: list[str]
) -> tuple[list[_Row], _Marked]:
    if asked.match is None and asked.scan is None:
        notes.append("the query is empty")
        return [], _Marked(())
    if asked.match is None:
        sign = [_unquoted(asked.scan)]
        return _scan(db, sign, wanted, sort, notes, why="the query holds no word"), _Marked(sign)
    upto, stale = db.execute("SELECT indexed_upto, stale FROM search_state").fetchone()
    literals = list(asked.literals) or [query]
    either = bool(_OR.search(query))
    marked = _Marked(literals, asked.beginnings)
    if stale is not None:
        why = f"the search index failed ({stale})"
        return _scan(db, literals, wanted, sort, notes, why=why, either=either), marked
    try:
        found = _ask(db, asked.match, wanted, sort, notes)
        if not found and asked.relaxed is not None:
            found = _ask(db, asked.relaxed, wanted, sort, notes)
            marked = marked._replace(literals=asked.relaxed_literals)
    except Exception as error:  # noqa: BLE001  # whatever broke the index, the messages are there
        why = f"the search index cannot be read ({error})"
        return _scan(db, literals, wanted, sort, notes, why=why, either=either), marked
    behind = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM messages WHERE id > ? LIMIT ?)", (upto, SCANNED)
    ).fetchone()[0]
    if behind:
        said: list[str] = []
        known = {each[1] for each in found}
        newer = _scan(db, literals, wanted, sort, said, why="", either=either, after=upto)
        found = [each for each in newer if each[1] not in known] + found
    return found, marked._replace(read_after=upto)


def _unquoted(scan: str | None) -> str:
    """What stands in quotes, where quotes are all that is around it."""
    text = scan or ""
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == '"' else text


_MATCHED = "FROM search JOIN messages m ON m.id = search.rowid WHERE search MATCH ?"


def _ask(db: Connection, match: str, wanted: _Filter, sort: Sort, notes: list[str]) -> list[_Row]:
    """What the index answers, with what each hit is worth."""
    if sort != "relevance":
        rows = db.execute(
            f"SELECT {_NEWER}, {_REST} {_MATCHED} AND {wanted.roles} ORDER BY search.rowid DESC LIMIT ?",
            (match, *wanted.role_values, TIMED + 1),
        )
        found: list[_Row] = rows.fetchall()
        if len(found) > TIMED:
            notes.append(f"there are more hits; these are from the latest {TIMED:,} that came in")
        return found[:TIMED]
    where, values = wanted.roles, wanted.role_values
    if _more_than(db, match, RANKED):
        where, values = wanted.all, wanted.all_values
    # From the end, which the index reads no further than it must; `rowid >= ?` would go through all.
    ranked: list[_Row] = db.execute(
        f"SELECT bm25(search), {_REST} {_MATCHED} AND {where} ORDER BY search.rowid DESC LIMIT ?",
        (match, *values, RANKED + 1),
    ).fetchall()
    if len(ranked) > RANKED:
        notes.append(f"ranked over the newest {RANKED:,} hits; older ones are not among these")
    return ranked[:RANKED]


def _more_than(db: Connection, match: str, count: int) -> bool:
    """Whether the index has more hits than that."""
    hits = "SELECT 1 FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?"
    return db.execute(hits, (match, count)).fetchone() is not None


def _best_few(
    db: Connection, asked: Query, wanted: _Filter, conversations: int, notes: list[str]
) -> tuple[list[_Row], _Marked] | None:
    """The best hits, up to where they are of so many conversations; None where that is not soon found.

    Where a common word has thousands of hits, most of the time goes into looking up whose they are. Here they
    are looked up best first. What comes last (cron jobs, what was undone) is left to the whole search.
    """
    upto, stale = db.execute("SELECT indexed_upto, stale FROM search_state").fetchone()
    if asked.match is None or stale is not None:
        return None
    if db.execute("SELECT 1 FROM messages WHERE id > ? LIMIT 1", (upto,)).fetchone() is not None:
        return None
    ranks = "SELECT bm25(search), -rowid FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?"
    try:
        ranked = db.execute(ranks, (asked.match, RANKED + 1)).fetchall()
    except Exception:  # noqa: BLE001  # the whole search says what broke the index
        return None
    if len(ranked) <= AT_A_TIME:
        return None
    more = len(ranked) > RANKED
    del ranked[RANKED:]
    heapq.heapify(ranked)  # few are taken from it
    found: list[_Row] = []
    held_by = set[str]()
    while ranked:
        these = [heapq.heappop(ranked) for _ in range(min(AT_A_TIME, len(ranked)))]
        rows = _looked_up(db, these, wanted)
        known = Conversations(db, {each[2] for each in rows})
        late = known.of_cron() if wanted.source != "cron" else set[str]()
        counting = _counting(rows, known, wanted.source, hidden=wanted.hidden)
        found += counting
        now = [each for each in counting if not each[3] and each[2] not in late]
        roots = known.roots()
        held_by.update(roots.get(each[2], each[2]) for each in now)
        if len(held_by) >= conversations:
            if more:
                notes.append(f"ranked over the newest {RANKED:,} hits; older ones are not among these")
            break
    else:
        if more:
            return None
    return found, _Marked(asked.literals, asked.beginnings, upto)


def _looked_up(db: Connection, ranked: list[tuple[float, int]], wanted: _Filter) -> list[_Row]:
    """Those of these hits that are of the roles asked for, in the same order."""
    ids = msgspec.json.encode([-each[1] for each in ranked]).decode()
    rows = db.execute(
        f"SELECT {_REST} FROM json_each(?) hit CROSS JOIN messages m ON m.id = hit.value"
        f" WHERE {wanted.roles}",
        (ids, *wanted.role_values),
    )
    whose = {row[0]: row for row in rows}
    return [(rank, *whose[message]) for rank, message in ranked if message in whose]


def _scan(
    db: Connection,
    literals: Sequence[str],
    wanted: _Filter,
    sort: Sort,
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
        f"SELECT {'0.0' if sort == 'relevance' else _NEWER}, {_REST}"
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


def _counting(
    found: list[_Row], conversations: Conversations, source: str | None, *, hidden: bool
) -> list[_Row]:
    """Those of a source that is asked for; those of delegates and tools only where they are."""
    if source is not None:
        wanted = conversations.of_source(source)
        found = [each for each in found if each[2] in wanted]
    unwanted = set[str]() if hidden else conversations.hidden(source)
    return [each for each in found if each[2] not in unwanted] if unwanted else found


def _ordered(found: list[_Row], sort: Sort, *, after: set[str]) -> list[_Row]:
    """A total order: equal hits go by id, the newer first (`oldest`: the older).

    By relevance, what was rewound comes after what was not; the sessions in `after` come after all others.
    """
    for column in (1, 0):  # one after the other costs less than to compare whole rows
        found.sort(key=itemgetter(column), reverse=sort == "oldest")
    undone = [each for each in found if each[3]] if sort == "relevance" else []
    if undone:
        found = [each for each in found if not each[3]] + undone
    late = [each for each in found if each[2] in after] if after else []
    return [each for each in found if each[2] not in after] + late if late else found


def _best(found: Sequence[_Row], held_by: Sequence[str], offset: int, limit: int) -> list[tuple[str, _Row]]:
    """The first hit of each conversation, for `limit` conversations after the first `offset`."""
    best: dict[str, _Row] = {}
    for conversation, each in zip(held_by, found, strict=True):
        if len(best) >= offset + limit:
            break
        best.setdefault(conversation, each)
    return list(best.items())[offset:]


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


def _roles_not_there(db: Connection, roles: Sequence[str]) -> list[str]:
    absent = [
        role
        for role in roles
        if not db.execute("SELECT 1 FROM messages WHERE role = ? LIMIT 1", (role,)).fetchone()
    ]
    if not absent:
        return []
    here = ", ".join(row[0] for row in db.execute("SELECT DISTINCT role FROM messages ORDER BY role"))
    return [f"no message here is of role '{role}'; there are: {here or 'none'}" for role in absent]


def _hits(
    db: Connection, more: dict[int, int], marked: _Marked, marks: tuple[str, str], width: int
) -> list[Hit]:
    """What is shown of messages, in the order given.

    Args:
        more: by message, the further hits in its conversation.
    """
    rows = db.execute(
        "SELECT m.id, m.session_id, m.role, CAST(m.timestamp AS REAL), m.active, m.compacted,"
        " m.content, m.tool_name, m.tool_calls, s.title, s.source"
        " FROM json_each(?) shown CROSS JOIN messages m ON m.id = shown.value"
        " LEFT JOIN sessions s ON s.id = m.session_id",
        (msgspec.json.encode(tuple(more)).decode(),),
    )
    hits: dict[int, Hit] = {}
    for row in rows:
        message, session_id, role, at_s, active, compacted, content, name, calls, title, source = row
        hits[message] = Hit(
            session_id=session_id,
            message_id=message,
            role=role,
            snippet=_snippet(message, (content, name, calls), marked, marks, width),
            title=title,
            source=source or "unknown",
            at_us=micros(at_s),
            visibility=visibility(active, compacted),
            more=more[message],
        )
    # One that another process erased meanwhile is none.
    return [hits[message] for message in more if message in hits]


def _snippet(message: int, text: Text, marked: _Marked, marks: tuple[str, str], width: int) -> str:
    """Where the match stands: in what was said, else in the tool's name and arguments."""
    cuts: list[str] = []
    for as_it_stands in (False, True) if message > marked.read_after else (False,):
        for part in _parts(*text):
            line, matched = cut(
                part,
                marked.literals,
                beginnings=marked.beginnings,
                as_it_stands=as_it_stands,
                width=width,
                marks=marks,
            )
            if matched:
                return line
            cuts.append(line)
    return next(filter(None, cuts), "")


def _parts(
    content: str | bytes | None, tool_name: str | bytes | None, tool_calls: str | bytes | None
) -> Iterator[str]:
    """What a match may stand in; tool calls as they are, and as the index reads them."""
    yield plain_text(content)
    name, calls = plain_text(tool_name), plain_text(tool_calls)
    yield f"{name} {calls}".strip()
    if (words := unescaped(calls)) != calls:
        yield f"{name} {words}".strip()
