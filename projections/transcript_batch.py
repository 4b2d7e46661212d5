"""One batch of events on its way into the tables of sessions and messages: an event, what it changes.

Over 400 lines because it is one catalogue: what each event changes is to be seen in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ..domain import events as e
from ..domain.ends import SESSION_RESET, SUPERSEDED
from ..domain.events import Recorded, Visibility
from ..domain.source_rows import COSTS, END, HANDOFF, MODEL, TOKENS, WORKSPACE, default
from ..domain.source_values import same, time_us
from .amounts import added
from .base import Connection
from .deletion import Deletion
from .live_columns import LIVE, fold_live
from .message_columns import INSERT_MESSAGE, MESSAGE_COLUMNS, SHOWN, insert_messages, message_row
from .preview import preview_of
from .search_index import SearchIndex
from .search_text import indexed_text
from .session_rows import NEVER_NULL, SOURCE_COLUMNS, SessionRow, SessionRows

_USAGE = (*TOKENS, *COSTS)
_FIXED = frozenset({"id", "session_id"})
"""Columns of a message that no edit changes."""
_EDITABLE = MESSAGE_COLUMNS.keys() - {*_FIXED, "copy_of", "source_id", "summary", "extra"}
_NEVER_NULL = frozenset(name for name, kind in MESSAGE_COLUMNS.items() if "NOT NULL" in kind)
_TOLD: dict[type[e.Payload], tuple[str, ...]] = {
    e.SessionTitled: ("title",),
    e.SessionCompressed: END,
    e.SessionEnded: END,
    e.SessionReset: END,
    e.SessionReopened: END,
    e.SessionArchived: ("archived",),
    e.SessionUnarchived: ("archived",),
    e.SessionPinned: ("pinned",),
    e.SessionUnpinned: ("pinned",),
    e.WorkspaceChanged: WORKSPACE,
    e.ModelChanged: MODEL,
    e.PromptChanged: ("system_prompt_hash",),
    e.UsageRecorded: _USAGE,
    e.HandoffRequested: HANDOFF,
    e.HandoffClaimed: HANDOFF,
    e.HandoffCompleted: HANDOFF,
    e.HandoffFailed: HANDOFF,
}
"""Columns that an event of its own sets plainly."""
_COUNTED = frozenset({"id", "message_count", "tool_call_count"})
"""Columns of a session that are never taken over from elsewhere."""
_CREATED = frozenset({*e.SessionCreated.__struct_fields__, *_COUNTED})
"""Columns of a session that its creation names by themselves."""
FEW = 64
"""To so many messages a row each is written as fast, and its statement is at hand."""
Prepared = tuple[tuple[Any, ...], str | None]
"""A message's row and, unless it is a copy, the text that the search index is told."""
NONE: Mapping[int, Prepared] = {}
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
_calls = msgspec.json.Decoder().decode
_json = msgspec.json.Encoder().encode
_THESE = "id IN (SELECT value FROM json_each(?)) AND session_id = ?"


def _bears(column: str, value: object) -> bool:
    """Whether the sessions table has a column that takes this value."""
    return column in SOURCE_COLUMNS and not (value is None and column in NEVER_NULL)


def _extra(columns: dict[str, Any], odd: dict[str, Any]) -> bytes | None:
    """What no column can bear, the same bytes in whatever order it came."""
    if not columns and not odd:
        return None
    return _pack([dict(sorted(columns.items())), dict(sorted(odd.items()))])


def count_calls(tool_calls: str | None) -> int:
    """How many calls a message's JSON list holds; 0 where it is no list."""
    if not tool_calls:
        return 0
    try:
        calls = _calls(tool_calls)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
    return len(calls) if isinstance(calls, list) else 0


def prepared(event: Recorded, m: e.MessageAppended) -> Prepared:
    """What a message becomes, for which no database is asked."""
    text = indexed_text(m.content, m.tool_name, m.tool_calls) if m.copy_of is None else None
    return message_row(event, m), text


class TranscriptBatch:
    """One batch of events on its way into the tables."""

    def __init__(self, db: Connection, prefix: str, prepared: Mapping[int, Prepared] = NONE) -> None:
        self.db = db
        self.prepared = prepared
        self.prefix = prefix
        self.rows = SessionRows(db, prefix)
        self.deletion = Deletion(self)
        self.index = SearchIndex(db, prefix)
        self.messages: list[tuple[Any, ...]] = []
        self.insert = INSERT_MESSAGE.format(p=prefix)

    def finish(self) -> None:
        """Write what is pending but for messages and their texts."""
        self.rows.write()
        self.index.purge()

    def flush_messages(self) -> None:
        """Write the messages so far, so that SQL sees them."""
        messages, self.messages = self.messages, []
        if len(messages) > FEW:
            for sql, bound in insert_messages(f"{self.prefix}messages", messages):
                self.db.execute(sql, bound)
        elif messages:
            self.db.executemany(self.insert, messages)
        self.deletion.flush()

    def table(self, row: SessionRow) -> str:
        """Where the messages of a session are."""
        return f"{self.prefix}deleted_messages" if row.deleted else f"{self.prefix}messages"

    def fold_all(self, events: Sequence[Recorded]) -> None:
        """Every event; messages, most of all, together with those up to the next other event."""
        first = 0
        for number, event in enumerate(events):
            if type(event.payload) is not e.MessageAppended:
                if first < number:
                    self.append(events[first:number])
                self.fold(event)
                first = number + 1
        if first < len(events):
            self.append(events[first:])

    def fold(self, event: Recorded) -> None:  # noqa: C901  # one line an event is plainer than a table
        """One event that is no message."""
        payload = event.payload
        if isinstance(payload, e.PayloadsErased):
            self.deletion.erased(event, payload)
            self.erase(payload)
            for message, changes in payload.edits.items():
                self.mask(message, changes)
        if not event.stream.startswith("session:"):
            return
        if isinstance(payload, e.SessionDeleted):
            self.deletion.noted(event, payload)
        elif isinstance(payload, e.PromptChanged):
            self.keep_prompt(payload)
        if isinstance(payload, e.SessionCreated):
            self.create(event, payload)
            return
        row = self.rows.get(event.session_id)
        if row is None:
            return  # the event that created it was emptied or is damaged; verify names it
        row["version"] = event.version
        if row["extra"] is not None:
            self.told_plainly(row, payload)
        if type(payload) in LIVE:
            fold_live(row, payload, event.at_us)
        match payload:
            case e.MessageEdited():
                self.edit(row, event, payload.message, payload.changes, payload.odd)
            case e.MessageEnriched():
                self.edit(row, event, payload.message, payload.changes, {})
            case e.MessagesRewound():
                self.show(row, payload.messages, "rewound")
                self.show(row, payload.restored, "live")
                if event.source_ref is None:  # a source counts its own rewinds, and says so
                    row["rewind_count"] += 1
            case e.MessagesRestored():
                self.show(row, payload.messages, "live")
                self.show(row, payload.compacted, "compacted")
            case e.MessagesCompacted():
                self.show(row, payload.messages, "compacted")
            case e.UsageRecorded():
                self.use(row, payload)
            case e.SessionTitled():
                row["title"] = payload.title
                row["title_claimed"] = int(payload.claimed and payload.title is not None)
            case e.SessionCompressed():
                self.end(row, event, "compression", hard=False, ended_at=payload.ended_at)
            case e.SessionEnded():
                self.end(row, event, payload.reason, hard=payload.hard, ended_at=payload.ended_at)
            case e.SessionReset():
                self.end(row, event, SESSION_RESET, hard=True, ended_at=None)
            case e.SessionReopened():
                for column in ("ended_at", "ended_us", "end_reason", "ended_position"):
                    row[column] = None
                row["hard_end"] = 0
            case e.SessionArchived() | e.SessionUnarchived():
                row["archived"] = int(isinstance(payload, e.SessionArchived))
            case e.SessionPinned() | e.SessionUnpinned():
                row["pinned"] = int(isinstance(payload, e.SessionPinned))
            case e.WorkspaceChanged():
                row["cwd"] = payload.cwd
                row["git_branch"] = payload.git_branch
                row["git_repo_root"] = payload.git_repo_root
            case e.ModelChanged():
                row["model"] = payload.model
                row["model_config"] = payload.model_config
            case e.PromptChanged():
                row["system_prompt_hash"] = payload.prompt_hash
            case e.IdentityLost() | e.IdentityRestored():
                self.identify(row, event, payload)
            case e.SourceRowChanged():
                self.source_row(row, event, payload)
            case e.SourceRowGone():
                if payload.kind == "session":
                    row["source_gone"] = 1
                elif payload.kind == "message":
                    self.show(row, payload.messages, "rewound")
            case e.ErasedEvent():
                if payload.topic == e.MessageAppended.topic:
                    row["last_message_position"] = event.position
            case e.SessionDeleted():
                self.deletion.delete(row)
            case e.SessionUndeleted():
                self.deletion.undelete(row)
            case _:
                pass  # an UnknownEvent of a newer writer; the projector marks that it was passed over

    # --- messages ----------------------------------------------------------------------------------

    def append(self, said: Sequence[Recorded]) -> None:
        """Messages that follow one another, and what they change of their sessions."""
        of: dict[str, list[Recorded]] = {}
        for event in said:
            try:
                of[event.stream].append(event)
            except KeyError:
                of[event.stream] = [event]
        deleted = set()
        for stream, some in of.items():
            row = self.rows.get(stream[8:])
            if row is not None:
                self.count(row, some)
                if row.deleted:
                    deleted.add(stream)
        texts: list[tuple[int, str]] = []
        last: int | None = None
        for event in said:
            made, text = self.prepared.get(event.position) or prepared(event, event.payload)
            if event.stream in deleted:
                self.deletion.messages.append(made)
                continue
            self.messages.append(made)
            last = event.position
            if text is not None:
                texts.append((last, text))
        if last is not None:
            self.index.add(texts, last)

    def count(self, row: SessionRow, said: Sequence[Recorded]) -> None:
        """What messages change of their session."""
        values = row.said()
        count = calls = 0
        active_us = values["last_active_us"]
        wanted = values["preview"] is None
        for event in said:
            m: e.MessageAppended = event.payload
            if m.visibility == "live":
                count += 1
                if m.tool_calls:
                    calls += count_calls(m.tool_calls)
            if (m.role != "user" and m.role != "assistant") or m.summary:
                continue
            at_us = event.at_us
            if at_us > event.recorded_at_us:
                at_us = event.recorded_at_us
            if active_us is None or at_us > active_us:
                active_us = at_us
            if wanted and m.role == "user" and m.visibility != "rewound":
                preview = preview_of(m.content)
                if preview is not None:
                    row["preview"], row["preview_message"] = preview, event.position
                    wanted = False
        values["version"] = said[-1].version
        values["last_message_position"] = said[-1].position
        values["message_count"] += count
        values["tool_call_count"] += calls
        values["last_active_us"] = active_us

    def select(self, ids: Iterable[int]) -> list[tuple[Any, ...]]:
        """(id, active, compacted, tool_calls, content, tool_name, copy_of, session_id, table) of each."""
        self.flush_messages()
        found = []
        for each in dict.fromkeys(ids):  # one that is named twice is hidden once
            for table in (f"{self.prefix}messages", f"{self.prefix}deleted_messages"):
                row = self.db.execute(
                    "SELECT id, active, compacted, tool_calls, content, tool_name, copy_of, session_id"
                    f" FROM {table} WHERE id = ?",
                    (each,),
                ).fetchone()
                if row is not None:
                    found.append((*row, table))
                    break
        return found

    def show(self, row: SessionRow, ids: Sequence[int], to: Visibility) -> None:
        """Give messages another visibility; counts follow. Those of another session stay as they are."""
        if not ids:
            return
        active, compacted = SHOWN[to]
        self.flush_messages()
        table, these = self.table(row), (_json(ids).decode(), row["id"])
        moving = [
            tool_calls
            for was_active, tool_calls in self.db.execute(
                f"SELECT active, tool_calls FROM {table} WHERE {_THESE}", these
            )
            if bool(was_active) != bool(active)
        ]
        step = 1 if active else -1
        row["message_count"] += step * len(moving)
        row["tool_call_count"] += step * sum(count_calls(each) for each in moving if each)
        self.db.execute(
            f"UPDATE {table} SET active = ?, compacted = ? WHERE {_THESE}", (active, compacted, *these)
        )
        self.preview(row)

    def edit(
        self,
        row: SessionRow,
        event: Recorded,
        message: int,
        values: Mapping[str, Any],
        odd: Mapping[str, e.Odd],
    ) -> None:
        """Other values in one message; the index is told the old text and the new."""
        before = self.select([message])
        if not before or before[0][7] != row["id"]:
            return
        changes = {
            column: value
            for column, value in values.items()
            if column in _EDITABLE and not (value is None and column in _NEVER_NULL)
        }
        table = before[0][8]
        changes |= self.extra_of(table, message, values, odd, changes)
        if not changes:
            return
        self.index.flush()
        self.db.execute(
            f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in changes)} WHERE id = ?",
            (*changes.values(), message),
        )
        # As it stands in the table now: SQLite may have made text of a number.
        (_, was_active, _, old_calls, old_content, old_name, copy_of, _, _) = before[0]
        (_, active, _, calls, content, name, _, _, _) = self.select([message])[0]
        if copy_of is None and not row.deleted:
            self.index.replace(message, (old_content, old_name, old_calls), (content, name, calls))
        row["message_count"] += bool(active) - bool(was_active)
        row["tool_call_count"] += count_calls(calls) * bool(active) - count_calls(old_calls) * bool(
            was_active
        )
        self.preview(row)
        if not changes.keys().isdisjoint(("timestamp", "role")):
            self.said_at(row, event, message)

    def extra_of(
        self,
        table: str,
        message: int,
        values: Mapping[str, Any],
        odd: Mapping[str, e.Odd],
        borne: Mapping[str, Any],
    ) -> dict[str, bytes | None]:
        """The message's `extra` after an edit whose other values the columns bear, where it changes."""
        packed = self.db.execute(f"SELECT extra FROM {table} WHERE id = ?", (message,)).fetchone()[0]
        columns, odds = _unpack(packed) if packed else ({}, {})
        for column, value in values.items():
            columns.pop(column, None)
            odds.pop(column, None)
            if column not in borne and column not in _FIXED and value is not None:
                columns[column] = value
        extra = _extra(columns, {**odds, **odd})
        return {} if extra == packed else {"extra": extra}

    def said_at(self, row: SessionRow, event: Recorded, message: int) -> None:
        """An edited message may be later activity than was known; what counted once stays counted."""
        role, timestamp = self.db.execute(
            f"SELECT role, timestamp FROM {self.table(row)} WHERE id = ?", (message,)
        ).fetchone()
        at_us = time_us(timestamp)
        if role in ("user", "assistant") and at_us is not None:
            at_us = min(at_us, event.recorded_at_us)
            row["last_active_us"] = max(at_us, row["last_active_us"] or at_us)

    def erase(self, payload: e.PayloadsErased) -> None:
        """Rows of emptied messages leave; what still counts as activity stays counted."""
        for mark in payload.marks:
            row = self.rows.get(mark.session_id) if mark.session_id else None
            if row is not None and mark.active_us is not None and mark.role in ("user", "assistant"):
                row["last_active_us"] = max(row["last_active_us"] or mark.active_us, mark.active_us)
        for found in self.select(payload.positions):
            message, active, _, tool_calls, content, tool_name, copy_of, session_id, table = found
            row = self.rows.get(session_id)
            self.index.flush()
            if row is not None and row.deleted:
                self.index.purge_later()
            elif copy_of is None:
                self.index.erase(message, (content, tool_name, tool_calls))
            self.db.execute(f"DELETE FROM {table} WHERE id = ?", (message,))
            if row is None:
                continue
            if active:
                row["message_count"] -= 1
                row["tool_call_count"] -= count_calls(tool_calls)
            self.preview(row)

    def mask(self, message: int, changes: dict[str, Any]) -> None:
        """What was forgotten of a message leaves its row, and the index for good."""
        found = self.select([message])
        if not found or not changes:
            return
        (_, active, _, old_calls, old_content, old_name, copy_of, session_id, table) = found[0]
        row = self.rows.get(session_id)
        self.index.flush()
        self.db.execute(
            f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in changes)} WHERE id = ?",
            (*changes.values(), message),
        )
        (_, _, _, calls, content, name, _, _, _) = self.select([message])[0]
        if copy_of is None and not (row is not None and row.deleted):
            self.index.replace(message, (old_content, old_name, old_calls), (content, name, calls))
        self.index.purge_later()
        if row is not None:
            row["tool_call_count"] += (count_calls(calls) - count_calls(old_calls)) * bool(active)
            self.preview(row)

    def preview(self, row: SessionRow) -> None:
        """Find the first real message again, after one may have gone or changed."""
        self.flush_messages()
        row["preview"], row["preview_message"] = None, None
        for message, content in self.db.execute(
            f"SELECT id, content FROM {self.table(row)}"
            # From its creation on: a rebuild makes indexes last, and must not read all that came before.
            " WHERE session_id = ? AND id > ? AND role = 'user' AND NOT summary AND (active OR compacted)"
            " ORDER BY id",
            (row["id"], row["created_position"]),
        ):
            preview = preview_of(
                content.decode("utf-8", "replace") if isinstance(content, bytes) else content
            )
            if preview is not None:
                row["preview"], row["preview_message"] = preview, message
                return

    # --- sessions ----------------------------------------------------------------------------------

    def create(self, event: Recorded, p: e.SessionCreated) -> None:
        """A session with its whole identity."""
        values: dict[str, Any] = {k: v for k, v in p.columns.items() if _bears(k, v) and k not in _CREATED}
        extra = {k: v for k, v in p.columns.items() if not _bears(k, v)}
        self.rows.create(
            event.session_id,
            **values,
            source=p.source,
            session_key=p.session_key,
            chat_id=p.chat_id,
            chat_type=p.chat_type,
            thread_id=p.thread_id,
            user_id=p.user_id,
            display_name=p.display_name,
            origin_json=p.origin_json,
            parent_session_id=p.parent_session_id,
            parent_kind=p.parent_kind,
            model=p.model,
            model_config=p.model_config,
            cwd=p.cwd,
            git_branch=p.git_branch,
            git_repo_root=p.git_repo_root,
            profile_name=p.profile_name,
            started_at=event.at_us / 1e6 if p.started_at is None else p.started_at,
            started_us=event.at_us,
            version=event.version,
            created_position=event.position,
            extra=_extra(extra, p.odd),
        )

    def end(
        self, row: SessionRow, event: Recorded, reason: str | None, *, hard: bool, ended_at: float | None
    ) -> None:
        """The session ended; a hard end outranks a soft one and is not overwritten."""
        superseded = reason == SUPERSEDED
        if row["hard_end"] and not hard and not superseded:
            return
        if not superseded or row["ended_us"] is None:
            row["ended_at"] = event.at_us / 1e6 if ended_at is None else ended_at
            row["ended_us"] = event.at_us
        row["end_reason"] = reason
        row["hard_end"] = int(hard)
        row["ended_position"] = event.position

    def use(self, row: SessionRow, payload: e.UsageRecorded) -> None:
        """The session's totals; a model's share is the usage projection's."""
        if payload.model is not None:
            return
        for column in _USAGE:
            value = getattr(payload, column)
            if payload.mode == "delta":
                known = row[column]
                value = (
                    known if value is None else added(known if isinstance(known, (int, float)) else 0, value)
                )
            row[column] = value
        self.columns(row, payload.columns)

    def keep_prompt(self, payload: e.PromptChanged) -> None:
        """A prompt's text, once; also of a session that was erased, where others have the prompt too."""
        if payload.text is not None and payload.prompt_hash is not None:
            self.db.execute(
                f"INSERT OR IGNORE INTO {self.prefix}system_prompts VALUES (?, ?)",
                (payload.prompt_hash, payload.text),
            )

    def identify(
        self, row: SessionRow, event: Recorded, payload: e.IdentityLost | e.IdentityRestored
    ) -> None:
        """Routing identity as it is now; a key that was lost is remembered."""
        lost = isinstance(payload, e.IdentityLost) and payload.now.get("session_key", "") is None
        if lost and row["session_key"] is not None:
            row["lost_key"] = row["session_key"]
        if "parent_kind" in payload.now:
            row["parent_kind"] = payload.now["parent_kind"]
        for column, value in payload.now.items():
            if _bears(column, value) and column not in _COUNTED:
                row[column] = value
        if row["session_key"] is not None:
            row["lost_key"] = None
        row["identity_position"] = event.position

    def source_row(self, row: SessionRow, event: Recorded, payload: e.SourceRowChanged) -> None:
        """Values that the source changed and that were not changed here."""
        if payload.kind != "session":
            return
        if event.source_ref is not None:  # else a person settled a conflict, and has not seen the source
            row["source_gone"] = 0
        self.columns(
            row,
            {k: v for k, v in payload.changes.items() if k not in payload.conflicts},
            {k: v for k, v in payload.odd.items() if k not in payload.conflicts},
        )
        began_us = time_us(row["started_at"]) if "started_at" in payload.changes else None
        if began_us is not None:
            row["started_us"] = began_us

    def columns(self, row: SessionRow, changes: dict[str, Any], odd: dict[str, e.Odd] | None = None) -> None:
        """Set columns by name, as a session that came so has them; the table's lacks go into `extra`."""
        if not changes and not odd:
            return
        known, odds = _unpack(row["extra"]) if row["extra"] else ({}, {})
        for column, value in changes.items():
            known.pop(column, None)
            odds.pop(column, None)
            if column == "parent_kind":
                row[column] = value
            elif _bears(column, value):
                if column not in _COUNTED:
                    row[column] = value
            else:
                if column in SOURCE_COLUMNS and default(column) is not None:
                    row[column] = default(column)
                if not same(value, default(column)):
                    known[column] = value
        row["extra"] = _extra(known, {**odds, **(odd or {})})

    def told_plainly(self, row: SessionRow, payload: object) -> None:
        """What an event of its own says, no odd value says any more."""
        said: Iterable[str] = ()
        match payload:
            case e.IdentityLost() | e.IdentityRestored():
                said = payload.now
            case e.UsageRecorded(model=str()):
                pass  # a model's share, not the session's
            case e.Payload():
                said = _TOLD.get(type(payload), ())
        known, odds = _unpack(row["extra"])
        for column in said:
            known.pop(column, None)
            odds.pop(column, None)
        row["extra"] = _extra(known, odds)
