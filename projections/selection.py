"""Which sessions a bulk command means: filters as SQL, then whole conversations, and why others stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ..domain.retention import SWEPT_REASON
from ..domain.titles import composed
from .base import Connection
from .deletions import delegates_of
from .tree import tip

Match: TypeAlias = Literal["every", "last", "any"]
Verb: TypeAlias = Literal["prune", "delete", "archive", "unarchive", "pin", "unpin"]


class Filters(msgspec.Struct, frozen=True):
    """What is asked of a session, all of it at once (REFERENCE.md 4.3). Times are microseconds, UTC.

    Attributes:
        active_before_us, active_since_us: bounds of the last activity; without messages, of the start.
        title, model, branch: found anywhere in it, in letters of either case.
        provider: in letters of either case; the other texts have to be equal.
        cwd: that folder, or one below it.
        min_tokens, max_tokens: of input and output together.
        min_cost, max_cost: in US dollars, the actual cost, else the estimated one, else 0.
    """

    active_before_us: int | None = None
    active_since_us: int | None = None
    started_before_us: int | None = None
    started_since_us: int | None = None
    source: str | None = None
    title: str | None = None
    end_reason: str | None = None
    cwd: str | None = None
    min_messages: int | None = None
    max_messages: int | None = None
    model: str | None = None
    provider: str | None = None
    user: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None
    branch: str | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    min_tool_calls: int | None = None
    max_tool_calls: int | None = None


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A session as a bulk command shows it."""

    id: str
    title: str | None
    source: str
    model: str | None
    started_us: int
    last_active_us: int | None
    message_count: int
    archived: bool
    pinned: bool
    ended: bool
    """An end stands, or it goes on in another session."""


class Unit(msgspec.Struct, frozen=True, gc=False):
    """A conversation: its segments, the first one first, and what goes along where it is deleted."""

    sessions: tuple[Candidate, ...]
    along: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the segments."""
        return tuple(each.id for each in self.sessions)


class Selection(msgspec.Struct, frozen=True):
    """Conversations by their start, and the sessions that match and stay, each with the reason."""

    units: list[Unit]
    skipped: dict[str, str]

    @property
    def sessions(self) -> list[Candidate]:
        """Every segment, the oldest first."""
        found = [each for unit in self.units for each in unit.sessions]
        return sorted(found, key=lambda each: each.started_us)

    @property
    def along(self) -> list[str]:
        """The delegates that go with them."""
        return [each for unit in self.units for each in unit.along]


class _Rule(msgspec.Struct, frozen=True):
    """How a verb selects.

    Attributes:
        match: which segments of a conversation have to match for it to be taken as a whole.
        ended: only sessions that ended can match, so that no live one is ever put away.
        where: what its sessions are not yet.
        spares: what keeps a conversation from it, unless the caller includes it.
        deletes: delegates go with their parent.
    """

    match: Match
    ended: bool
    where: str
    spares: tuple[Literal["pinned", "archived"], ...] = ()
    deletes: bool = False


_DELETES = _Rule("every", ended=True, where="1", spares=("pinned", "archived"), deletes=True)
_RULES: Final[dict[Verb, _Rule]] = {
    "prune": _DELETES,
    "delete": _DELETES,
    "archive": _Rule("last", ended=True, where="s.archived = 0", spares=("pinned",)),
    "unarchive": _Rule("any", ended=False, where="s.archived = 1"),
    "pin": _Rule("last", ended=False, where="s.pinned = 0"),
    "unpin": _Rule("any", ended=False, where="s.pinned = 1"),
}
_ENDED = "(s.ended_us IS NOT NULL OR s.end_reason IS NOT NULL)"
_COLUMNS = (
    "s.id, s.title, s.source, s.model, s.started_us, s.last_active_us, s.message_count, s.archived, s.pinned,"
    f" {_ENDED}"
)
# What a gateway's start ended for its silence ages from there on: no start hands it to a prune.
_ACTIVE = (
    f"max(s.started_us, coalesce(s.last_active_us, 0), iif(s.end_reason = '{SWEPT_REASON}',"
    " coalesce(s.ended_us, 0), 0), coalesce((SELECT m.timestamp * 1000000"
    " FROM messages m WHERE m.id = s.last_message_position), 0))"
)
_TOKENS = "coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0)"
_COST = "coalesce(s.actual_cost_usd, s.estimated_cost_usd, 0)"
_TESTS: Final[dict[str, str]] = {
    "active_before_us": f"{_ACTIVE} < ?",
    "active_since_us": f"{_ACTIVE} >= ?",
    "started_before_us": "s.started_us < ?",
    "started_since_us": "s.started_us >= ?",
    "source": "s.source = ?",
    "end_reason": "s.end_reason = ?",
    "user": "s.user_id = ?",
    "chat_id": "s.chat_id = ?",
    "chat_type": "s.chat_type = ?",
    "min_messages": "coalesce(s.message_count, 0) >= ?",
    "max_messages": "coalesce(s.message_count, 0) <= ?",
    "min_tokens": f"{_TOKENS} >= ?",
    "max_tokens": f"{_TOKENS} <= ?",
    "min_cost": f"{_COST} >= ?",
    "max_cost": f"{_COST} <= ?",
    "min_tool_calls": "coalesce(s.tool_call_count, 0) >= ?",
    "max_tool_calls": "coalesce(s.tool_call_count, 0) <= ?",
}
_ANYWHERE: Final = {"title": "s.title", "model": "s.model", "branch": "s.git_branch"}
_CWD = "(s.cwd IN (?, ?) OR substr(s.cwd, 1, length(?)) IN (?, ?))"


def matching(db: Connection, filters: Filters, *, ended: bool = True, where: str = "1") -> list[Candidate]:
    """The sessions that pass every filter, one by one, the oldest start first.

    Args:
        ended: only those that ended or go on in another session.
        where: a condition on `sessions s` of the caller's own, without values.
    """
    tests, values = [where], list[Any]()
    if ended:
        tests.append(_ENDED)
    for name, test in _TESTS.items():
        if (value := getattr(filters, name)) is not None:
            tests.append(test)
            values.append(value)
    for name, column in _ANYWHERE.items():
        if (needle := getattr(filters, name)) is not None:
            _add(tests, values, _holding(db, column, needle))
    if filters.provider is not None:
        _add(tests, values, _holding(db, "s.billing_provider", filters.provider, whole=True))
    if filters.cwd is not None:
        folder = filters.cwd.rstrip("/\\")
        below = f"{folder}/"
        tests.append(_CWD)
        values += [filters.cwd, folder, below, below, f"{folder}\\"]
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM sessions s WHERE {' AND '.join(tests)} ORDER BY s.started_us, s.id",
        tuple(values),
    )
    return [_candidate(row) for row in rows]


def select(
    db: Connection, verb: Verb, filters: Filters, *, include: Collection[Literal["pinned", "archived"]] = ()
) -> Selection:
    """The conversations that a verb takes, each as a whole, and the sessions that match and stay.

    What deletes takes a conversation only if every segment of it matches; what can be taken back at any
    time goes by the last one. A delegate goes with its parent, and matches by itself only where its
    source is asked for.

    Args:
        include: what is taken though the verb spares it.
    """
    rule = _RULES[verb]
    found = {each.id: each for each in matching(db, filters, ended=rule.ended, where=rule.where)}
    families = _Families(db)
    units: list[Unit] = []
    skipped: dict[str, str] = {}
    met: set[str] = set()
    for each, candidate in found.items():
        if each in met:
            continue
        if each not in families.linked:  # most are a conversation of their own
            why = _kept(rule, candidate, include)
            if why is None:
                units.append(Unit((candidate,)))
            else:
                skipped[each] = why
            continue
        ids = families.conversation(each)
        met.update(ids)
        unit = Unit(_candidates(db, ids, found), families.along(ids) if rule.deletes else ())
        why = _missed(db, rule, unit, found) or _spared(rule, unit, families, include)
        if why is None and rule.deletes and filters.source is None:
            parent = families.works_for(unit.ids)
            why = None if parent is None else f"delegate of {parent}"
        if why is None:
            units.append(unit)
        else:
            skipped |= {session_id: why for session_id in ids if session_id in found}
    going = {each for unit in units for each in unit.along}
    kept = [unit for unit in units if going.isdisjoint(unit.ids)] if going else units
    return Selection(kept, {name: why for name, why in skipped.items() if name not in going})


def still_open(db: Connection, verb: Verb, filters: Filters) -> int:
    """How many sessions pass every filter and have not ended, where the verb takes only what has."""
    rule = _RULES[verb]
    if not rule.ended:
        return 0
    return len(matching(db, filters, ended=False, where=f"{rule.where} AND NOT {_ENDED}"))


def named(db: Connection, ids: Iterable[str]) -> Selection:
    """The conversations of sessions that are there, each once."""
    families = _Families(db)
    units: dict[tuple[str, ...], Unit] = {}
    for each in ids:
        members = families.conversation(each)
        units[members] = Unit(_candidates(db, members, {}))
    return Selection(list(units.values()), {})


def alone(db: Connection, session_id: str) -> Selection:
    """One session that is there, and the delegates that go with it: its continuations stay."""
    along = tuple(delegates_of(db, session_id))
    return Selection([Unit(_candidates(db, (session_id,), {}), along)], {})


def _add(tests: list[str], values: list[Any], more: tuple[str, list[Any]]) -> None:
    tests.append(more[0])
    values += more[1]


def _holding(db: Connection, column: str, needle: str, *, whole: bool = False) -> tuple[str, list[Any]]:
    """The test that a column holds a text, in letters of either case; `whole`: and nothing else."""
    sought = composed(needle).casefold()
    if needle.isascii():
        test = f"lower({column}) = ?" if whole else f"instr(lower({column}), ?) > 0"
        return test, [sought]
    # SQLite's lower() knows ASCII only.
    known = (row[0] for row in db.execute(f"SELECT DISTINCT {column} FROM sessions s"))
    texts = [(each, composed(each).casefold()) for each in known if isinstance(each, str)]
    fitting = [each for each, text in texts if (text == sought if whole else sought in text)]
    return f"{column} IN (SELECT value FROM json_each(?))", [_json(fitting)]


def _candidate(row: Any) -> Candidate:
    return Candidate(
        row[0], row[1], row[2], row[3], row[4], row[5], row[6] or 0, bool(row[7]), bool(row[8]), bool(row[9])
    )


def _candidates(db: Connection, ids: Collection[str], found: dict[str, Candidate]) -> tuple[Candidate, ...]:
    """The rows of a conversation in its order; those that were found are not read again."""
    asked = [each for each in ids if each not in found]
    rows = dict[str, Candidate]()
    if asked:
        these = "SELECT value FROM json_each(?)"
        for row in db.execute(f"SELECT {_COLUMNS} FROM sessions s WHERE s.id IN ({these})", (_json(asked),)):
            rows[row[0]] = _candidate(row)
    return tuple(found.get(each) or rows[each] for each in ids)


def _missed(db: Connection, rule: _Rule, unit: Unit, found: dict[str, Candidate]) -> str | None:
    """Why a conversation of which a segment matches is not taken by the rule."""
    if rule.match == "any" or len(unit.sessions) == 1:
        return None
    asked = unit.ids if rule.match == "every" else (tip(db, unit.ids[0]),)
    missed = [each for each in unit.sessions if each.id in asked and each.id not in found]
    if not missed:
        return None
    opened = next((each for each in missed if rule.ended and not each.ended), None)
    if opened is not None:
        return f"one conversation with {opened.id}, which is open"
    return f"one conversation with {missed[0].id}, which does not match"


def _spared(
    rule: _Rule, unit: Unit, families: _Families, include: Collection[Literal["pinned", "archived"]]
) -> str | None:
    why = next((kept for each in unit.sessions if (kept := _kept(rule, each, include))), None)
    if why is not None or not rule.deletes or "pinned" in include:
        return why
    for each in unit.along:
        if each in families.pinned:
            return f"its delegate {each} is pinned"
    parent = families.works_for(unit.ids)
    if parent is not None and not families.pinned.isdisjoint(families.above(parent)):
        return f"delegate of {parent}, which is pinned"
    return None


def _kept(rule: _Rule, each: Candidate, include: Collection[Literal["pinned", "archived"]]) -> str | None:
    """Why a verb spares a session, whatever it is linked to."""
    if each.pinned and "pinned" in rule.spares and "pinned" not in include:
        return "pinned"
    if each.archived and "archived" in rule.spares and "archived" not in include:
        return "archived"
    return None


class _Families:
    """Continuations and delegates of everything here, read once."""

    def __init__(self, db: Connection) -> None:
        self._parent: dict[str, tuple[str, str]] = {}
        self._children: dict[str, dict[str, list[str]]] = {"continuation": {}, "delegate": {}}
        for child, parent, kind in db.execute(
            "SELECT c.id, p.id, c.parent_kind FROM sessions c JOIN sessions p ON p.id = c.parent_session_id"
            " WHERE c.parent_kind IN ('continuation', 'delegate') ORDER BY c.started_us, c.id"
        ):
            self._parent[child] = parent, kind
            self._children[kind].setdefault(parent, []).append(child)
        self.linked = {each for child, (parent, _) in self._parent.items() for each in (child, parent)}
        """Those of which there is anything to know."""
        self.pinned = {row[0] for row in db.execute("SELECT id FROM sessions WHERE pinned")}

    def conversation(self, session_id: str) -> tuple[str, ...]:
        """Every segment of the conversation that a session is of, the first one first."""
        path = [session_id]
        while self._parent.get(path[-1], ("", ""))[1] == "continuation":
            above = self._parent[path[-1]][0]
            if above in path:  # of a circle any would do, if always the same
                path.append(min(path[path.index(above) :]))
                break
            path.append(above)
        return self._below(path[-1:], ("continuation",))

    def along(self, ids: Iterable[str]) -> tuple[str, ...]:
        """The delegates of sessions, how those went on, and their delegates."""
        begun = list(ids)
        first = [each for above in begun for each in self._children["delegate"].get(above, ())]
        found = self._below(first, ("continuation", "delegate"))
        return tuple(each for each in found if each not in begun)

    def works_for(self, ids: tuple[str, ...]) -> str | None:
        """Whose delegate a conversation is; None where it is nobody's."""
        parent, kind = self._parent.get(ids[0], ("", ""))
        return parent if kind == "delegate" else None

    def above(self, session_id: str) -> set[str]:
        """The conversation of a session, and those that it works for."""
        found: set[str] = set()
        at: str | None = session_id
        while at is not None and at not in found:
            ids = self.conversation(at)
            found.update(ids)
            at = self.works_for(ids)
        return found

    def _below(self, begun: Iterable[str], kinds: tuple[str, ...]) -> tuple[str, ...]:
        found = dict.fromkeys(begun)
        for each in (waiting := list(found)):
            for kind in kinds:
                fresh = [child for child in self._children[kind].get(each, ()) if child not in found]
                found.update(dict.fromkeys(fresh))
                waiting += fresh
        return tuple(found)


def _json(texts: Collection[str]) -> str:
    """Any number of texts as one value to bind."""
    return msgspec.json.encode(tuple(texts)).decode()
