"""Writes what is new of sessions that were read from the logs of coding agents."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec

from ...domain import events as e
from ...domain import title_claim
from ...domain.errors import BadTitle
from ...domain.events import AtKind, Payload, Visibility, session_stream
from ...domain.source_messages import message_appended
from ...domain.source_rows import (
    here_after,
    seen_after,
    session_changes,
    session_created,
    session_payloads,
    settled,
    unpacked,
)
from ...domain.source_values import Row
from ...domain.title_claim import TitleClaim
from ...domain.titles import cut_title, made_title
from ...projections.base import Connection
from ...projections.sources import SHOWN_HERE, STATES, usage_digest, usage_key
from ..clock import now_us
from ..log import Log
from ..streams import title_stream
from .agent_sessions import BESIDE, LogSession, Said, as_json
from .hermes_run import source_number
from .report import Findings
from .writer import Told, Writer

_CHUNK: Final = 500
_MOST: Final = 1 << 53
_SHOWING: Final[dict[Visibility, Callable[[list[int]], Payload]]] = {
    "live": e.MessagesRestored,
    "compacted": e.MessagesCompacted,
    "rewound": e.MessagesRewound,
}


class _Known(msgspec.Struct, frozen=True):
    """A message as it came in."""

    position: int
    state: int
    changed_here: int


class Taking:
    """Writes sessions, as far as they are new.

    Attributes:
        beside: how many lines that nobody said came in alone.
    """

    def __init__(
        self,
        log: Log,
        db: Connection,
        store: str,
        name: str,
        column: str,
        *,
        planned_at: int,
        findings: Findings,
    ) -> None:
        self.writer = Writer(log, planned_at=planned_at, taken=findings.taken, wrote=lambda _: None)
        self._log = log
        self._db = db
        self._store = store
        self._name, self._column = name, column
        self._findings = findings
        self._source = source_number(db, store)
        self._erased = {bytes(row[0]) for row in db.execute("SELECT ref FROM source_erased")}
        self._claims: dict[str, TitleClaim] = {}
        self._now_us = now_us()
        self.beside = 0

    def tell(self, session: LogSession) -> None:
        """Write what is new of a session."""
        stream = session_stream(session.id)
        row = self._db.execute(
            "SELECT source, seen FROM source_sessions WHERE session_id = ?", (session.id,)
        ).fetchone()
        seen = unpacked(bytes(row[1])) if row is not None and row[0] == self._source else None
        if seen is None:
            if not session.has_words:
                self._findings.skip(f"session {session.id}: nobody said anything in it yet")
                return
            if self._is_erased("session", session.id):
                self._findings.unchanged["sessions erased here"] += 1
                return
            if not self.writer.is_new(stream):
                self._findings.skip(
                    f"session {session.id}: a session of this id did not come from these logs"
                )
                return
        now = self._row(session, seen)
        kind: e.ParentKind | None = None if session.parent is None else "delegate"
        began_us = round(cast("float", now["started_at"]) * 1e6)
        if seen is None:
            created = session_created(now, at_us=began_us, parent_kind=kind, store=self._store)
            self.writer.add(self._told(stream, created, session.id, "session", began_us))
            payloads = session_payloads(seen_after({}, created, began_us), now)
        else:
            here = self._here(stream)
            payloads = session_changes(seen, here, now, row_id=session.id, parent_kind=kind, at_us=began_us)
        added = self._tell_messages(session, stream, began_us)
        self._tell_rest(session, stream, payloads, seen or {})
        self._tell_usage(session, stream)
        self._findings.unchanged["sessions"] += seen is not None and not payloads and not added

    # --- the session ---------------------------------------------------------------------------------

    def _row(self, session: LogSession, seen: Row | None) -> Row:
        """The session as another store's row would have it."""
        began = seen.get("started_at") if seen is not None else None
        if not isinstance(began, float):
            began = (self._now_us if session.began_us is None else session.began_us) / 1e6
        tokens: Counter[str] = Counter()
        for share in session.usage.values():
            tokens.update(share)
        config = None if session.parent is None else as_json({"_delegate_from": session.parent})
        return settled(
            {
                "source": self._name,
                "started_at": began,
                "parent_session_id": session.parent,
                "model": session.model,
                "model_config": config,
                "cwd": session.cwd,
                "git_branch": session.git_branch,
                "title": _title(session) or (seen or {}).get("title"),  # it may stand in a file that is gone
                **{column: _counted(count) for column, count in tokens.items()},
            }
        )

    def _here(self, stream: str) -> Row:
        here: Row = {}
        for event in self._log.stream_events(stream, without_messages=True):
            if isinstance(event.payload, e.Payload):
                here = here_after(here, event.payload, event.at_us)
        self.writer.version(stream)  # refuses what came after the plan
        return here

    def _tell_rest(self, session: LogSession, stream: str, payloads: list[Payload], seen: Row) -> None:
        unit: list[Told] = []
        for payload in payloads:
            if self._is_erased(payload.topic, session.id):
                continue
            if isinstance(payload, e.SessionTitled):
                unit += self._titled(session, stream, payload, seen.get("title"))
                continue
            if isinstance(payload, e.SourceRowChanged):
                for column in payload.conflicts:
                    self._findings.conflict(
                        f"session {session.id}: {column} changed in the log and here; ours stays"
                    )
            unit.append(self._told(stream, payload, session.id))
        if unit:
            self.writer.add(*unit)

    def _titled(
        self, session: LogSession, stream: str, payload: e.SessionTitled, before: object
    ) -> Iterator[Told]:
        if isinstance(before, str) and self._claim(before).holder == session.id:
            yield self._moved(before, e.TitleReleased(before, session.id), session.id)
        claimed = True
        if payload.title is not None:
            holder = self._claim(payload.title).holder
            if holder is None:
                yield self._moved(payload.title, e.TitleClaimed(payload.title, session.id), session.id)
            elif holder != session.id:
                claimed = False
                self._findings.note(
                    f"session {session.id}: its title '{payload.title}' belongs to session {holder};"
                    " it came in unclaimed"
                )
        yield self._told(stream, e.SessionTitled(payload.title, claimed, session.titled_by), session.id)

    def _claim(self, title: str) -> TitleClaim:
        found = self._claims.get(title)
        if found is None:
            stream = title_stream(self._log.identity, title)
            found = TitleClaim(title)
            for event in self._log.stream_events(stream):
                found = title_claim.evolve(found, event.version, event.payload)
            self.writer.decided_on(stream, found.version)
            self._claims[title] = found
        return found

    def _moved(self, title: str, payload: Payload, session_id: str) -> Told:
        claim = self._claim(title)
        self._claims[title] = title_claim.evolve(claim, claim.version + 1, payload)
        return self._told(title_stream(self._log.identity, title), payload, session_id)

    def _tell_usage(self, session: LogSession, stream: str) -> None:
        known = {
            bytes(key): bytes(digest)
            for key, digest in self._db.execute(
                "SELECT key, digest FROM source_usage WHERE session_id = ?", (session.id,)
            )
        }
        for model, tokens in session.usage.items():
            counts: dict[str, Any] = {column: _counted(count) for column, count in tokens.items()}
            share = e.UsageRecorded("absolute", model, **counts)
            if known.get(usage_key(share)) != usage_digest(share):
                self.writer.add(self._told(stream, share, session.id, "usage"))

    # --- messages ------------------------------------------------------------------------------------

    def _tell_messages(self, session: LogSession, stream: str, began_us: int) -> int:
        """The new ones in their order, and known ones that a compression or a way back moved."""
        ids = [_message_id(session.id, each.key) for each in session.said]
        known = self._known(ids)
        moved: dict[Visibility, list[int]] = {}
        before: list[tuple[int, Said]] = []  # lines that nobody said: they come with the message after them
        added = unchanged = 0
        for message_id, said in zip(ids, session.said, strict=True):
            there = known.get(message_id)
            if said.row["role"] == BESIDE:
                if there is None and not self._is_erased("message", message_id):
                    before.append((message_id, said))
                continue
            if there is not None:
                unchanged += 1
                if STATES[said.visibility] != there.state and not there.changed_here & SHOWN_HERE:
                    moved.setdefault(said.visibility, []).append(there.position)
            elif self._is_erased("message", message_id):
                self._findings.unchanged["messages erased here"] += 1
            else:
                if before:
                    told = [str(each.row[self._column]) for _, each in before]
                    said.row[f"{self._name}.before"] = f"[{','.join(told)}]"
                self._tell_message(session, stream, message_id, said, began_us)
                added += 1
            before.clear()
        for message_id, said in before:  # no message came after these yet
            self._tell_message(session, stream, message_id, said, began_us)
        self.beside += len(before)
        added += len(before)
        if unchanged:
            self._findings.unchanged["messages"] += unchanged
        unit = [
            self._told(stream, _SHOWING[visibility](sorted(positions)), session.id)
            for visibility, positions in moved.items()
        ]
        if unit:
            self.writer.add(*unit)
        return added

    def _tell_message(
        self, session: LogSession, stream: str, message_id: int, said: Said, began_us: int
    ) -> None:
        at_us = began_us if said.at_us is None else said.at_us
        row: Row = {**said.row, "id": message_id, "session_id": session.id, "timestamp": at_us / 1e6}
        payload = msgspec.structs.replace(
            message_appended(row, at_us=at_us),
            visibility=said.visibility,
            seen=said.line,
            attachments=said.attachments,
            summary=said.summary,
        )
        self.writer.add(self._told(stream, payload, message_id, "message", at_us))

    def _known(self, ids: list[int]) -> dict[int, _Known]:
        found: dict[int, _Known] = {}
        for start in range(0, len(ids) if self._source else 0, _CHUNK):
            chunk = ids[start : start + _CHUNK]
            for source_id, *rest in self._db.execute(
                "SELECT source_id, message, state, changed_here FROM source_messages"
                f" WHERE source = ? AND source_id IN ({','.join('?' * len(chunk))})",
                (self._source, *chunk),
            ):
                found[source_id] = _Known(*rest)
        return found

    # --- what every event bears ----------------------------------------------------------------------

    def _is_erased(self, kind: str, row: str | int) -> bool:
        return bool(self._erased) and self._ref(kind, row) in self._erased

    def _ref(self, kind: str, row: str | int) -> bytes:
        return self._log.identity.keyed_hash(self._store, kind, row)

    def _told(
        self, stream: str, payload: Payload, row: str | int, kind: str = "", at_us: int | None = None
    ) -> Told:
        """An event that the logs tell; of what has no time of its own, by when it was so."""
        at_kind: AtKind = "no_later_than" if at_us is None else "exact"
        at = self._now_us if at_us is None else at_us
        return Told(stream, payload, at, at_kind, self._ref(kind or payload.topic, row))


def _message_id(session_id: str, key: str) -> int:
    """A number for a message that its log names by a text."""
    digest = hashlib.blake2b(f"{session_id}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _counted(count: int) -> int:
    return max(0, min(count, _MOST))


def _title(session: LogSession) -> str | None:
    if session.title is None:
        return None
    try:
        return made_title(session.title) if session.titled_by == "model" else cut_title(session.title)
    except BadTitle:
        return None
