"""Reads which sessions and messages a Hermes home has, and settles what is new, changed or gone.

Over 400 lines because new, changed and gone are settled in one pass over two sorted streams of rows.
"""

from __future__ import annotations

import shlex
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from ...domain import events as e
from ...domain.ends import COMPRESSION
from ...domain.events import ParentKind, Payload
from ...domain.parents import cycles, kind_again, parent_kind
from ...domain.source_rows import (
    END,
    PARENT_KIND,
    differing,
    here_after,
    packed,
    seen_after,
    session_changes,
    session_continued,
    session_created,
    session_payloads,
    settled,
    unpacked,
)
from ...domain.source_values import Row, Value, time_us
from ...projections.deletions import deletion
from ..sqlite import translated
from .hermes_rows import session_row
from .hermes_run import Run, SessionPlan, file_of, known_messages, readable, rows, rows_of
from .merge import Timeline

HEADS = 4_000
_LATEST_S = 9.2e12

Item = TypeVar("Item")


def in_chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of at most `size`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


class Plan:
    """What a run is to do, settled before it writes anything.

    Attributes:
        timeline: new sessions and messages, and ends, to be told in order of time.
        known: ids of messages that came before, to be compared; `moved` times of odd ones.
        gone, back: ids of messages that left the home, or of sessions.
    """

    def __init__(self, run: Run, prompts: dict[str, str]) -> None:
        self.run = run
        self.prompts = prompts
        self.timeline = Timeline()
        self.known = array("q")
        self.odd_times_us: dict[int, int] = {}
        self.gone_messages: list[int] = []
        self.gone_sessions: list[str] = []
        self._children: defaultdict[str, list[SessionPlan]] = defaultdict(list)
        self._refused_by: Counter[int] = Counter()

    def make(self) -> None:
        """Read the sessions and the heads of all messages."""
        self._read_sessions()
        self._read_heads()
        latest = max((plan.clock for plan in self.run.numbered), default=0.0)
        self.run.was_written_by(time_us(latest) or 0)
        for plan in self.run.numbered:
            self._judge(plan)
        self._name_circles()
        self._name_homes()
        self._find_gone_sessions()

    # --- sessions ------------------------------------------------------------------------------------

    def _read_sessions(self) -> None:
        run, scope = self.run, self.run.home.scope
        among = None if scope is None else scope.sessions
        self._seen = {
            session_id: (source, bytes(seen), gone)
            for session_id, source, seen, gone in rows_of(
                run.db, "SELECT session_id, source, seen, gone FROM source_sessions", "session_id", among
            )
        }
        self._edges: dict[str, tuple[str, ParentKind]] = {
            child: (parent, kind)
            for child, parent, kind in rows_of(
                run.db, "SELECT child, parent, kind FROM edges", "child", among
            )
        }
        unnamed = set(self.prompts) if scope is None else set()
        run.begin("reading sessions", None)
        for raw in run.home.sessions():
            session_id = raw.get("id")
            named = raw.get("system_prompt_hash")
            if isinstance(named, str):
                unnamed.discard(named)
            if isinstance(session_id, str) and session_id not in run.plans:
                self._add(session_id, session_row(raw, self.prompts)[0])
            else:
                run.findings.skip(f"session {session_id!r}: a second row with this id")
        for known in sorted(unnamed):
            run.findings.note(f"system prompt {known}: no session names it; it was left out")
        run.advance(len(run.numbered))

    def _add(self, session_id: str, row: Row) -> SessionPlan:
        run = self.run
        plan = SessionPlan(session_id, len(run.numbered), packed(row))
        run.plans[session_id] = plan
        run.numbered.append(plan)
        source, seen, _ = self._seen.get(session_id, (0, None, 0))
        if seen is not None and source == run.source:
            plan.seen = seen
        elif run.is_erased("session", session_id):
            plan.left_out = True
            run.findings.unchanged["sessions erased here"] += 1
        elif not run.writer.is_new(plan.stream):
            plan.left_out = plan.refused = True
            self._refused_by[source] += 1
            run.findings.skip(f"session {session_id}: {self._who_brought(session_id, source)}")
        parent = row.get("parent_session_id")
        if isinstance(parent, str) and parent:
            plan.parent = parent
            self._children[parent].append(plan)
        return plan

    def _who_brought(self, session_id: str, source: int) -> str:
        gone = deletion(self.run.db, session_id)
        if gone is not None and gone.erased_position is not None:
            return f"a session of this id was erased here (#{gone.erased_position}) and does not come back"
        if gone is not None:
            back = f"retold sessions undelete {shlex.quote(session_id)}"
            return f"a session of this id was deleted here (#{gone.position}); to bring it back: {back}"
        found = rows(self.run.db, "SELECT path FROM source_homes WHERE id = ?", source)
        if not source or not found:
            return "a session of this id began here; it did not come from this home"
        if file := file_of(found[0][0]):
            return f"a session of this id came from the file {file}"
        return f"a session of this id came from another home ({found[0][0] or 'not known by path'})"

    def _name_homes(self) -> None:
        """Say once of each other home that brought sessions of this one how to go on as it."""
        run = self.run
        if run.home.scope is not None:
            return  # an import of everything has said it
        for source, refused in sorted(self._refused_by.items()):
            found = rows(run.db, "SELECT path FROM source_homes WHERE id = ? AND path IS NOT NULL", source)
            if found and not file_of(found[0][0]) and not file_of(readable(run.home.path)):
                most = 2 * refused > len(run.plans)
                looks = "looks like the home that was at" if most else "shares sessions with the home at"
                run.findings.note(
                    f"this {looks} {found[0][0]}: {refused:,} of its {len(run.plans):,} sessions came from"
                    f" there; if that one moved here, import it with --moved-from {shlex.quote(found[0][0])}"
                )

    def row_of(self, session_id: str | None) -> Row | None:
        """The row of a session of this home, or None."""
        plan = None if session_id is None else self.run.plans.get(session_id)
        return None if plan is None else unpacked(plan.row)

    def _judge(self, plan: SessionPlan) -> None:
        """Settle what is to be told of a session."""
        if plan.left_out:
            return
        row = unpacked(plan.row)
        began = _seconds(row.get("started_at"))
        plan.begin = plan.first if began is None else min(began, plan.first)
        plan.began_us = time_us(plan.begin if began is None else began) or 0
        kind = parent_kind(row, self.row_of(plan.parent))
        payloads: list[Payload] = []
        if plan.is_new:
            plan.kind = kind
            self.timeline.begin(plan.number, plan.begin)
            if row.get("ended_at") is not None:
                begun = seen_after({}, session_created(row, at_us=0), 0)
                payloads = session_payloads(begun, row, continuation=self.continuation(plan, row))
        elif not plan.rowless:
            if plan.seen != plan.row or self._seen[plan.id][2]:
                payloads = self._changes(plan, row, kind)
            payloads += self._judged_again(plan, kind)
            payloads += self._goes_on(plan, row)
            plan.later = [p for p in payloads if not isinstance(p, _TIMED)]
            self.run.findings.unchanged["sessions"] += not payloads
        for payload in payloads:
            if isinstance(payload, e.SessionReopened):
                plan.reopens = True
            elif isinstance(payload, e.SessionEnded | e.SessionCompressed):
                plan.ending = payload
                ended = _seconds(row.get("ended_at"))
                reached = max(plan.begin, plan.clock)  # an end comes last, whatever its own clock says
                reached = reached if ended is None else max(ended, reached)
                if plan.id in self.run.waiting:
                    plan.held = reached
                else:
                    self.timeline.end(plan.number, reached)

    def _judged_again(self, plan: SessionPlan, kind: ParentKind | None) -> list[Payload]:
        """What the session is to its parent, where that has shown only since it was first seen."""
        parent, known = self._edges.get(plan.id, (None, None))
        again = kind_again(known, kind)
        if parent is None or parent != plan.parent or again == known or self._is_chosen(plan, known):
            return []
        return [e.SourceRowChanged("session", plan.id, {PARENT_KIND: again})]

    def _is_chosen(self, plan: SessionPlan, kind: ParentKind | None) -> bool:
        """Whether a person's word made the session what it is to its parent, and not what the home says."""
        told: object = None
        for event in self.run.log.stream_events(plan.stream, without_messages=True):
            match event.payload:
                case e.SessionCreated(parent_kind=judged) if event.source_ref is not None:
                    told = judged
                case e.SourceRowChanged(changes=changes, conflicts=conflicts) if (
                    event.source_ref is not None and "parent_session_id" not in conflicts
                ):
                    told = changes.get(PARENT_KIND, told)
                case _:
                    pass
        self.run.writer.version(plan.stream)  # refuses what came after the plan
        return kind != (told or "child")

    def _changes(self, plan: SessionPlan, row: Row, kind: ParentKind | None) -> list[Payload]:
        assert plan.seen is not None
        payloads = session_changes(
            unpacked(plan.seen),
            self._here(plan),
            row,
            row_id=plan.id,
            continuation=self.continuation(plan, row),
            parent_kind=kind,
            at_us=plan.began_us,
        )
        back = bool(self._seen[plan.id][2])
        if back and not any(isinstance(p, e.SourceRowChanged) for p in payloads):
            payloads.append(e.SourceRowChanged("session", plan.id, {}))
        return payloads

    def _here(self, plan: SessionPlan) -> Row:
        """The row as it is here."""
        here: Row = {}
        for event in self.run.log.stream_events(plan.stream, without_messages=True):
            if isinstance(event.payload, e.Payload):
                here = here_after(here, event.payload, event.at_us)
        self.run.writer.version(plan.stream)  # refuses what came after the plan
        return here

    def _goes_on(self, plan: SessionPlan, row: Row) -> list[Payload]:
        """The compression of a session whose continuation came after an import had seen it end."""
        child = self.continuation(plan, row)
        if child is None or plan.seen is None or differing(unpacked(plan.seen), row, END):
            return []  # none, or what changed in the row tells it
        told = (
            "SELECT 1 FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?)"
            f" AND topic <> '{e.MessageAppended.topic}' AND topic = ?"
        )
        with translated(str(self.run.log.path)):
            values = (plan.stream, e.SessionCompressed.topic)
            if self.run.log.reader().execute(told, values).fetchone():
                return []
        return session_continued(row, self._here(plan), child, row_id=plan.id)

    def continuation(self, plan: SessionPlan, row: Row) -> str | None:
        """The first child that compression made of it, but for those that a person took out of the line."""
        if row.get("end_reason") != COMPRESSION:
            return None
        made: list[tuple[float, int, str]] = []
        for child in self._children.get(plan.id, ()):
            its = unpacked(child.row)
            if parent_kind(its, row) == "continuation" and not self._is_put_out(plan, child):
                began = its.get("started_at")
                made.append((began if isinstance(began, float) else 0.0, child.number, child.id))
        return min(made)[2] if made else None

    def _is_put_out(self, plan: SessionPlan, child: SessionPlan) -> bool:
        """Whether a person said that a child does not continue the session."""
        parent, known = self._edges.get(child.id, (None, None))
        return parent == plan.id and known != "continuation" and self._is_chosen(child, known)

    def _name_circles(self) -> None:
        plans = self.run.plans
        parents = {plan.id: plan.parent for plan in plans.values() if plan.parent}
        for circle in cycles(parents, parents.get):
            if any(plans[each].is_new for each in circle):
                way = " → ".join([*circle, circle[0]])
                self.run.findings.note(f"sessions name each other as parent, taken as they are: {way}")

    @property
    def rows_were_lost(self) -> bool:
        """Whether there are sessions in the home that could not be read."""
        return self.run.home.has_lost("sessions")

    def _find_gone_sessions(self) -> None:
        run = self.run
        if self.rows_were_lost:
            return  # what could not be read has not gone
        present = {plan.id for plan in run.numbered if not plan.rowless}
        for session_id, (source, _, gone) in self._seen.items():
            if source == run.source and not gone and session_id not in present:
                self.gone_sessions.append(session_id)
                if session_id in run.plans:
                    run.findings.note(f"session {session_id}: its row is gone, its messages are still there")

    def _has_gone(self, session_id: str) -> bool:
        """Whether this home had the session, and has its row no more."""
        source, _, gone = self._seen_of(session_id)
        plan, scope = self.run.plans.get(session_id), self.run.home.scope
        if scope is not None and session_id not in scope.sessions:
            return bool(gone) and source == self.run.source
        if not source or source != self.run.source or (plan is not None and not plan.rowless):
            return False
        return bool(gone) or not self.rows_were_lost

    def _seen_of(self, session_id: str) -> tuple[int, bytes, int]:
        """A session as it was last seen, in the scope or not; zeros for one that never was."""
        found = self._seen.get(session_id)
        if found is None and self.run.home.scope is not None:
            sql = "SELECT source, seen, gone FROM source_sessions WHERE session_id = ?"
            for source, seen, gone in rows(self.run.db, sql, session_id):
                found = (source, bytes(seen), gone)
        return found or (0, b"", 0)

    def knows(self, session_id: str) -> bool:
        """Whether it is a session of this home, or was one."""
        here = session_id in self.run.plans or self._has_gone(session_id)
        return here or self.run.is_erased("session", session_id)

    def leaves_out(self, session_id: str) -> bool:
        """Whether nothing is to be told of it: another home brought it, or it was erased here."""
        plan = self.run.plans.get(session_id)
        return self.run.is_erased("session", session_id) if plan is None else plan.left_out

    def title_left(self, session_id: str) -> Value:
        """The title that a session bore in this home when it went; None for one that is there."""
        return unpacked(self._seen_of(session_id)[1]).get("title") if self._has_gone(session_id) else None

    # --- messages ------------------------------------------------------------------------------------

    def _read_heads(self) -> None:
        run = self.run
        known_here = rows(run.db, "SELECT 1 FROM source_messages WHERE source = ? LIMIT 1", run.source)
        present = array("q")
        run.begin("reading messages", None)
        columns = run.home.columns("messages")
        if "session_id" not in columns:
            if not run.home.damage:
                lack = "column session_id in its messages" if columns else "table of messages"
                run.findings.note(f"this home has no {lack}: its sessions came without messages")
            return  # what could not be read has not gone
        self._begin_where_known_ones_end()
        for chunk in in_chunks(run.home.message_heads(), HEADS):
            known: set[int] = set()
            if known_here:
                ids = [head[0] for head in chunk]
                present.extend(ids)
                known = {row[0] for row in known_messages(run, "source_id", ids)}
            for message_id, session_id, timestamp in chunk:
                plan = run.plans.get(session_id) or self._without_row(session_id, timestamp)
                if plan.left_out:
                    continue
                self._at(message_id, plan, timestamp)
                if message_id in known:
                    self.known.append(message_id)
                    if plan.pending:
                        plan.late, plan.pending = plan.late + plan.pending, 0
                else:
                    self.timeline.message(message_id, plan.number, plan.clock)
                    plan.pending += not run.is_erased("message", message_id)
            run.advance(len(chunk))
        for plan in run.numbered:
            if plan.late:
                run.findings.note(
                    f"session {plan.id}: messages that stand before known ones in the source came in"
                    f" last: {plan.late:,}"
                )
        if known_here:
            self._find_gone_messages(present)

    def _begin_where_known_ones_end(self) -> None:
        """Of sessions that only gained messages, the known ones are not read again."""
        scope = self.run.home.scope
        for session_id, (first, latest) in {} if scope is None else scope.spoke.items():
            if (plan := self.run.plans.get(session_id)) is not None:
                plan.first, plan.clock, plan.latest = first, latest, latest

    def _at(self, message_id: int, plan: SessionPlan, timestamp: object) -> None:
        if isinstance(timestamp, (int, float)) and -_LATEST_S < timestamp < _LATEST_S:
            at = plan.latest = float(timestamp)
        else:
            self.odd_times_us[message_id] = time_us(plan.latest) or 0
            at = plan.latest
        if at < plan.first:
            plan.first = at
        if at > plan.clock:
            plan.clock = at

    def _without_row(self, session_id: str, timestamp: object) -> SessionPlan:
        """A session that only its messages still name."""
        source, seen, _ = self._seen.get(session_id, (0, None, 0))
        if seen is not None and source == self.run.source:
            row = unpacked(seen)
        else:
            at = float(timestamp) if isinstance(timestamp, (int, float)) else 0.0
            row = settled({"source": "unknown", "started_at": at})
        plan = self._add(session_id, row)
        plan.rowless = True
        if plan.is_new:
            self.run.findings.note(
                f"session {session_id}: its row is missing, its messages came in without it"
            )
        return plan

    def said_us(self, message_id: int, session: SessionPlan) -> int:
        """When a message was said that does not say it: with the one before, or as its session began."""
        return self.odd_times_us.get(message_id, 0) or session.began_us

    def _find_gone_messages(self, present: array[int]) -> None:
        run = self.run
        lost = [each for each in run.home.lost if each.table == "messages"]
        if any(each.first is None for each in lost):
            return
        here = iter(sorted(present))
        at = next(here, None)
        for source_id in self._were_there():
            while at is not None and at < source_id:
                at = next(here, None)
            if at != source_id and not any(
                each.first <= source_id <= (each.last if each.last is not None else each.first)
                for each in lost
                if each.first is not None
            ):
                self.gone_messages.append(source_id)

    def _were_there(self) -> Iterable[int]:
        """Ids of messages that the home had when it was last read, as far as they are read again."""
        run, scope = self.run, self.run.home.scope
        if scope is None:
            sql = "SELECT source_id FROM source_messages WHERE source = ? AND gone = 0 ORDER BY source_id"
            return (row[0] for row in run.db.execute(sql, (run.source,)))
        sql = (
            "SELECT o.source_id FROM source_messages o JOIN (SELECT id FROM messages WHERE session_id = ?1"
            " UNION ALL SELECT id FROM deleted_messages WHERE session_id = ?1) m ON m.id = o.message"
            " WHERE o.source = ?2 AND o.gone = 0"
        )
        return sorted(row[0] for each in scope.whole for row in run.db.execute(sql, (each, run.source)))


def _seconds(value: object) -> float | None:
    """A time that can be placed among others."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < _LATEST_S else None


_TIMED = (e.SessionReopened, e.SessionEnded, e.SessionCompressed)
