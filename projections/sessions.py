"""What lists and pages show of sessions: rows of a list, one session whole, its messages, counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ..domain.events import Visibility
from .base import Connection
from .live_columns import waiting_of
from .tree import Segment, chain
from .visibility import visibility


class SessionLine(msgspec.Struct, frozen=True):
    """What a list shows of a session. Times are microseconds since the epoch."""

    id: str
    title: str | None
    source: str
    started_us: int
    last_active_us: int | None
    message_count: int
    preview: str | None
    archived: bool
    parent_id: str | None
    end_reason: str | None
    pinned: bool = False
    workspace: str | None = None
    """The root of the repository that it is about, else the folder."""


class UnderWay(msgspec.Struct, frozen=True):
    """What runs and waits in a session, and what a restart or a handoff left on it."""

    turn: str | None = None
    turn_since_us: int | None = None
    lease_until_us: int | None = None
    gateway: str | None = None
    """Who runs the turn, where that is a gateway."""
    waiting: int = 0
    resume: str | None = None
    """Why its turn was cut off, where it is to be resumed."""
    resume_marked_us: int | None = None
    restarts: int = 0
    suspended: str | None = None
    handoff: str | None = None
    handoff_platform: str | None = None
    handoff_error: str | None = None


class SessionPage(msgspec.Struct, frozen=True):
    """One session with what leads to it and what belongs to it; its messages are read apart."""

    line: SessionLine
    lineage: list[Segment]
    key: str | None
    """The routing key that the session bears."""
    route: str | None
    """The key that leads to this session."""
    leads_to: str | None
    """Where the session's own key leads."""
    model: str | None
    display_name: str | None
    ended_us: int | None
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    under_way: UnderWay = UnderWay()


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as it is shown; `id` is its position."""

    id: int
    role: str
    content: str | None
    at_us: int | None
    tool_calls: str | None
    tool_name: str | None
    visibility: Visibility
    copy_of: int | None
    summary: bool = False
    attachments: str | None = None
    """A JSON list of objects: path, kind, text."""


class SourceCount(msgspec.Struct, frozen=True):
    """How much one source has said."""

    source: str
    sessions: int
    messages: int


_LINE = (
    "s.id, s.title, s.source, s.started_us, s.last_active_us, s.message_count, s.preview, s.archived,"
    " s.parent_session_id, s.end_reason, s.pinned, coalesce(nullif(s.git_repo_root, ''), nullif(s.cwd, ''))"
)


def line(row: Any) -> SessionLine:
    """A row of `_LINE`'s columns."""
    (
        session_id,
        title,
        source,
        started_us,
        active_us,
        count,
        preview,
        archived,
        parent,
        end,
        pinned,
        project,
    ) = row
    return SessionLine(
        session_id,
        title,
        source,
        started_us,
        active_us,
        count or 0,
        preview,
        bool(archived),
        parent,
        end,
        bool(pinned),
        project,
    )


def with_preview(db: Connection, row: SessionLine) -> SessionLine:
    """A continuation without a real message of its own shows its chain's first."""
    at, seen = row, {row.id}
    preview = row.preview
    while preview is None and at.parent_id is not None and at.parent_id not in seen:
        above = db.execute(
            f"SELECT {_LINE} FROM sessions c JOIN sessions s ON s.id = c.parent_session_id"
            " WHERE c.id = ? AND c.parent_kind = 'continuation'",
            (at.id,),
        ).fetchone()
        if above is None:
            break
        at = line(above)
        seen.add(at.id)
        preview = at.preview
    return row if preview is row.preview else msgspec.structs.replace(row, preview=preview)


def page(db: Connection, session_id: str) -> SessionPage:
    """A session that exists, by its id."""
    row = db.execute(
        f"SELECT {_LINE}, s.session_key, s.model, s.display_name, s.ended_us, s.input_tokens,"
        " s.output_tokens, coalesce(s.actual_cost_usd, s.estimated_cost_usd) FROM sessions s WHERE s.id = ?",
        (session_id,),
    ).fetchone()
    key, model, display_name, ended_us, tokens_in, tokens_out, cost_usd = row[12:]
    leads_to = None
    if key is not None:
        led = db.execute("SELECT session_id FROM routes WHERE key = ?", (key,)).fetchone()
        leads_to = led[0] if led else None
    route = key
    if leads_to != session_id:
        led = db.execute(
            "SELECT key FROM routes WHERE session_id = ? ORDER BY at_us DESC, key LIMIT 1", (session_id,)
        ).fetchone()
        route = led[0] if led else None
    return SessionPage(
        line=with_preview(db, line(row[:12])),
        lineage=chain(db, session_id),
        key=key,
        route=route,
        leads_to=leads_to,
        model=model,
        display_name=display_name,
        ended_us=ended_us,
        input_tokens=tokens_in or 0,
        output_tokens=tokens_out or 0,
        cost_usd=cost_usd,
        under_way=_under_way(db, session_id),
    )


def _under_way(db: Connection, session_id: str) -> UnderWay:
    row = db.execute(
        "SELECT running_turn, turn_since_us, lease_until_us, turn_gateway, waiting, resume_reason,"
        " resume_marked_us, restarts, suspended, handoff_state, handoff_platform, handoff_error"
        " FROM sessions WHERE id = ?",
        (session_id,),
    ).fetchone()
    turn, since_us, lease_until_us, gateway, waiting, resume, marked_us, restarts, suspended = row[:9]
    return UnderWay(
        turn=turn,
        turn_since_us=since_us,
        lease_until_us=lease_until_us,
        gateway=None if turn is None else gateway,
        waiting=len(waiting_of(waiting)),
        resume=resume,
        resume_marked_us=marked_us,
        restarts=restarts,
        suspended=suspended,
        handoff=row[9],
        handoff_platform=row[10],
        handoff_error=row[11],
    )


def messages(
    db: Connection,
    session_id: str,
    *,
    first: int | None = None,
    last: int | None = None,
    after: int | None = None,
    before: int | None = None,
) -> Iterator[Message]:
    """Messages in order, every visibility, read one by one: a session of any size takes no memory.

    Args:
        first, last: at most so many from the beginning or the end of what is asked for; both cost
            what they return, however long the session is (FIELD_CASES K10).
        after, before: only messages with a greater or smaller id.
    """
    where, values = ["session_id = ?"], [session_id]
    bound: list[Any] = list(values)
    if after is not None:
        where.append("id > ?")
        bound.append(after)
    if before is not None:
        where.append("id < ?")
        bound.append(before)
    limit = first if first is not None else last
    order = "DESC" if first is None and last is not None else "ASC"
    sql = (
        "SELECT id, role, content, timestamp, tool_calls, tool_name, active, compacted, copy_of, summary,"
        " attachments FROM messages"
        f" WHERE {' AND '.join(where)} ORDER BY id {order} LIMIT ?"
    )
    rows = db.execute(sql, (*bound, -1 if limit is None else limit))
    for row in rows if order == "ASC" else reversed(list(rows)):
        shown = visibility(row[6], row[7])
        at_us, summary = micros(row[3]), bool(row[9])
        yield Message(row[0], row[1], row[2], at_us, row[4], row[5], shown, row[8], summary, row[10])


def micros(timestamp: object) -> int | None:
    """Seconds since the epoch as microseconds; None for what is no time at all."""
    if isinstance(timestamp, bool) or not isinstance(timestamp, int | float):
        return None
    if not -1e11 < timestamp < 1e11:  # some three thousand years; milliseconds given as seconds
        return None
    return round(timestamp * 1e6)


def counts(db: Connection) -> list[SourceCount]:
    """Every source with its sessions and messages, most sessions first.

    All of them count: archived sessions, children, and messages that were compacted or rewound. Lines of an
    agent's log that nobody said (the hidden role `meta`) are no messages.
    """
    rows = db.execute(
        """
        WITH hidden(session_id, messages) AS MATERIALIZED (
            SELECT session_id, count(*) FROM messages WHERE active = 0 AND role <> 'meta' GROUP BY session_id
        ), per_source(source, messages) AS (
            SELECT s.source, sum(h.messages) FROM hidden h JOIN sessions s ON s.id = h.session_id GROUP BY 1
        )
        SELECT t.source, t.sessions, t.live + coalesce(p.messages, 0)
        FROM (SELECT source, count(*) AS sessions, sum(message_count) AS live FROM sessions GROUP BY source) t
        LEFT JOIN per_source p ON p.source = t.source
        ORDER BY t.sessions DESC, t.source
        """
    )
    return [SourceCount(*row) for row in rows]


def archived_count(db: Connection) -> int:
    """How many sessions are archived."""
    return int(db.execute("SELECT count(*) FROM sessions WHERE archived = 1").fetchone()[0])
