"""Messages: appended once, in order, whoever delivers them how often; edited, and enriched later.

Over 400 lines because whether a message was said before is decided in one place, for all ways to say it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...domain import events as e
from ...domain.errors import (
    BadUsage,
    IdempotencyMismatch,
    NeedsUpgrade,
    NoSuchMessage,
    NoSuchSession,
    ProjectionDamaged,
    RuleBroken,
    SessionOver,
    VersionConflict,
)
from ...domain.events import Event, session_stream
from ...domain.ids import refuse_blank_key
from ...domain.message import ENRICHED, Json, Message, changed, content_kept, enriched, message_of, said
from ...domain.session import Session
from ...domain.text import is_blank, scrub
from ...projections.context import Copy, appended, by_platform_id, same_message
from ...projections.tree import tip
from ..decisions import Saved, event
from ..log import Condition
from .at_once import append_at_once
from .base import moved
from .told import ToldCommands


class Appended(Saved, frozen=True):
    """The messages' own positions, in their order, also of those that were there before."""

    enriched: tuple[int, ...] = ()
    """Positions of the events by which messages that were there before came to say more."""


class MessageCommands(ToldCommands):
    """What is said in a session."""

    def append(
        self,
        session_id: str,
        message: Message | str,
        content: str | Json | None = None,
        *,
        key: str | None = None,
        expected_version: int | None = None,
        at_us: int | None = None,
        **fields: Any,
    ) -> Appended:
        """Append one message; durable on return. Its id is the position that comes back.

        Args:
            message: a `Message`, or a role, with `content` and the further `fields` of a `Message`.
            key: names this message among those of the conversation: of the session, and of those that it
                goes on from. Delivered again under its key it is the same message: what it says now and did
                not before, such as the platform's id of it, is added; other content is an error. Without
                keys nothing is ever taken for the same.
            expected_version: the version of the session that the caller knows; if it has moved on
                since, nothing is written.
            at_us: when it was said, microseconds since the Unix epoch, UTC; now by default.

        Raises:
            NoSuchSession, SessionOver, RuleBroken, BytesRefused, IdempotencyMismatch.
            VersionConflict: it does not stand at `expected_version`.
        """
        if isinstance(message, Message) and (content is not None or fields):
            raise BadUsage(
                f"a Message says all by itself: {', '.join(('content', *fields))} beside it would be lost",
                hint="give a Message, or a role with content and fields; nothing was written",
            )
        given = message if isinstance(message, Message) else {"role": message, "content": content, **fields}
        return self._append(session_id, [given], [key], expected_version, at_us)

    def append_message(
        self,
        session_id: str,
        role: str,
        content: str | Json | None,
        *,
        idempotency_key: str | None = None,
        at_us: int | None = None,
        **fields: Any,
    ) -> Appended:
        """`append` for a message that is given by its fields' names."""
        return self.append(session_id, role, content, key=idempotency_key, at_us=at_us, **fields)

    def append_messages(
        self,
        session_id: str,
        messages: Sequence[Message | Mapping[str, Any]],
        *,
        idempotency_keys: Sequence[str | None] | None = None,
        expected_version: int | None = None,
        at_us: int | None = None,
    ) -> Appended:
        """Append several messages in one save, in this order: all of them or none.

        Each is a `Message`, or a dict of its fields. Arguments and errors are those of `append`.
        """
        named = idempotency_keys or [None] * len(messages)
        return self._append(session_id, messages, named, expected_version, at_us)

    def _append(
        self,
        session_id: str,
        messages: Sequence[Message | Mapping[str, Any]],
        named: Sequence[str | None],
        expected_version: int | None,
        at_us: int | None,
    ) -> Appended:
        if len(named) != len(messages):
            raise BadUsage("each message has a key, or None in its place", hint="nothing was written")
        for key in named:
            refuse_blank_key(key)
        given = [message_of(each) for each in messages]
        names = [None if key is None else scrub(key)[0] for key in named]
        keys = [None if name is None else self._key(session_id, name) for name in names]

        def decision() -> Appended:
            at = self.at(at_us)
            if expected_version is None:
                at_once = append_at_once(self, self.known(session_id), given, keys, at)
                if at_once is not None:
                    return Appended(session_id, at_once)
            state = self.session(session_id)
            _expect(state, expected_version)
            batch = _Batch(self, state, at)
            for message, key, name in zip(given, keys, names, strict=True):
                batch.take(message, key, name)
            saved = self.save_events(batch.events, condition=batch.condition)
            if batch.events and batch.condition is None:
                self.remember(moved(state, batch.added))
            positions = tuple(each if each > 0 else saved[~each] for each in batch.places)
            return Appended(session_id, positions, tuple(saved[index] for index in batch.enriching))

        return self.decide(decision, again=expected_version is None)

    def edit_message(
        self,
        session_id: str,
        content: str | Json,
        *,
        platform_message_id: str | None = None,
        message: int | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Give a message other content: an edit, no new turn. Nothing is written where it says so already.

        Args:
            platform_message_id, message: which one, by the platform's id of it or by ours, also where it
                was said before the session went on from another. Copies that a compression made follow.

        Raises:
            NoSuchSession. NoSuchMessage: the conversation has none of this id.
        """
        kept = content_kept(content, where=f"session {session_id}")
        if not content or is_blank(kept):
            raise RuleBroken(f"session {session_id}: an edit needs content", hint="nothing was written")

        def decision() -> Saved:
            state = self.session(session_id)
            at = self.at(at_us)
            found = self._found(state, platform_message_id, message)
            edits = [
                (each.session_id, e.MessageEdited(each.id, {"content": kept}))
                for each in found
                if each.content != kept
            ]
            return Saved(session_id, self.save_events(self._after(state, edits, at)))

        return self.decide(decision)

    def enrich_message(
        self, session_id: str, message: int, *, at_us: int | None = None, **fields: Any
    ) -> Saved:
        """Add to a message what was not known when it was said; what it says already stays.

        Args:
            message: its id, as for `edit_message`.
            fields: platform_message_id, token_count, finish_reason, reasoning, … of a `Message`, and
                attachments: the same files, with text that was read from them since.

        Raises:
            NoSuchSession. NoSuchMessage: the conversation has none of this id.
            IdempotencyMismatch: it says something else there already.
        """

        def decision() -> Saved:
            state = self.session(session_id)
            at = self.at(at_us)
            found = self._found(state, None, message)
            given = said(message_of({"role": "tool", **fields}), where=f"session {session_id}")
            more: list[tuple[str, e.Payload]] = []
            for each, (known, _) in appended(self.told(state), [each.id for each in found]).items():
                changes = enriched(known, msgspec.structs.replace(known, **_asked(given, fields)))
                if changes is None:
                    raise _mismatch(session_id, each, "it says something else already")
                if changes:
                    whose = next(other.session_id for other in found if other.id == each)
                    more.append((whose, e.MessageEnriched(each, changes)))
            return Saved(session_id, self.save_events(self._after(state, more, at)))

        return self.decide(decision)

    def _found(self, state: Session, platform_message_id: str | None, message: int | None) -> list[Copy]:
        db = self.told(state)
        if message is not None:
            found, named = same_message(db, state.id, message), f"#{message}"
        else:
            name = scrub(platform_message_id or "")[0]
            found, named = by_platform_id(db, state.id, name), f"with the platform id '{name}'"
        if not found:
            raise NoSuchMessage(f"session {state.id} has no message {named}", hint="nothing was written")
        return found

    def _after(self, state: Session, payloads: Sequence[tuple[str, e.Payload]], at_us: int) -> list[Event]:
        """Events of a session and of those that it goes on from, each the next of its stream."""
        versions = {state.id: state.version}
        events = []
        for session_id, payload in payloads:
            stream = session_stream(session_id)
            if session_id not in versions:
                versions[session_id] = self.event_log.stream_version(stream)
            versions[session_id] += 1
            events.append(event(stream, versions[session_id], payload, at_us))
        return events

    # --- for a batch of messages -------------------------------------------------------------------

    def reopening(self, state: Session) -> tuple[e.SessionReopened, Condition] | None:
        """For a session that was marked compressed and goes on nowhere: it is open again (FIELD_CASES C13).

        Raises:
            SessionOver: it goes on as another after all.
        """
        if state.end_reason != "compression" or state.successor is not None:
            return None
        read_at = self.head().position
        on = tip(self.told(state), state.id)
        if on != state.id:
            raise SessionOver(state.id, successor=on)
        return e.SessionReopened(), Condition(read_at, topics=(e.SessionCreated.topic,))

    def _key(self, session_id: str, name: str) -> bytes:
        return self.identity.keyed_hash("idempotency", session_id, name)

    def said_before(self, state: Session, name: str) -> e.Recorded | None:
        """The message of a conversation that was appended under a key: here, or in what this goes on from.

        A turn that was cut off once its session was compressed says its message again where it goes on.
        """
        whose: str | None = state.id
        passed: set[str] = set()
        while whose is not None and whose not in passed:
            passed.add(whose)
            found = self.event_log.by_idempotency_key(session_stream(whose), self._key(whose, name))
            if found is not None:
                return found
            whose = state.parent_id if state.parent_kind == "continuation" else None
            if whose is not None:
                try:
                    state = self.session(whose, deleted=True)
                except NoSuchSession:  # erased: its messages are known by their keys all the same
                    state = Session(id=whose, version=0, source=state.source)
        return None

    def copies_of(self, state: Session, position: int) -> list[int]:
        """The copies of a message in its session; none where its rows cannot be had: an append goes on."""
        try:
            found = same_message(self.told(state), state.id, position)
        except ProjectionDamaged:
            return []
        return [each.id for each in found if each.id != position and each.session_id == state.id]

    def as_enriched(self, first: e.Recorded, payload: e.MessageAppended) -> e.MessageAppended:
        """A message with all that later deliveries and edits gave to what it lacked at first."""
        for each in self.event_log.stream_events(first.stream, without_messages=True):
            if (
                isinstance(each.payload, e.MessageEnriched | e.MessageEdited)
                and each.payload.message == first.position
            ):
                changes = each.payload.changes
                payload = changed(
                    payload, {n: changes[n] for n in (*ENRICHED, "attachments") if n in changes}
                )
        return payload


class _Batch:
    """Messages on their way into one save."""

    def __init__(self, engine: MessageCommands, state: Session, at_us: int) -> None:
        self._engine = engine
        self._state = state
        self._at_us = at_us
        self._stream = session_stream(state.id)
        self._mine: dict[bytes, int] = {}
        self.events: list[Event] = []
        self.places: list[int] = []
        """Of each message its position, or ~index into the events that will bring it."""
        self.enriching: list[int] = []
        """Indexes of the events that add to messages that are there."""
        self.condition: Condition | None = None
        self._added: Counter[str] = Counter()

    @property
    def added(self) -> int:
        """How many events of the session itself there are."""
        return self._added[self._stream]

    def take(self, message: Message, key: bytes | None, name: str | None) -> None:
        """One more message, under a key of the caller's: its hash here, and its text."""
        if key is not None and name is not None:
            # A redelivered message is answered even where its session has ended since.
            before = self._engine.said_before(self._state, name)
            if before is not None:
                self._again(before, message)
                return
            if key in self._mine:
                self._twice(self._mine[key], message)
                return
        payload = self._state.append(message)
        if self.condition is None:
            reopening = self._engine.reopening(self._state)
            if reopening is not None:
                reopened, self.condition = reopening
                self._add(reopened)
        if key is not None:
            self._mine[key] = len(self.events)
        self.places.append(~len(self.events))
        self._add(payload, key)

    def _add(self, payload: e.Payload, key: bytes | None = None, *, stream: str | None = None) -> None:
        stream = stream or self._stream
        at_version = (
            self._state.version if stream == self._stream else self._engine.event_log.stream_version(stream)
        )
        self._added[stream] += 1
        version = at_version + self._added[stream]
        self.events.append(event(stream, version, payload, self._at_us, idempotency_key=key))

    def _again(self, before: e.Recorded, message: Message) -> None:
        """The message was there before the save: it may come to say more."""
        self.places.append(before.position)
        known = before.payload
        if isinstance(known, e.ErasedEvent):
            return  # erased stays erased
        if self._engine.event_log.is_masked(before.position):
            return  # and so does what was forgotten of it
        if isinstance(known, e.UnknownEvent):
            raise NeedsUpgrade(
                f"event #{before.position} is of a newer kind: {known.topic}", hint="upgrade retold"
            )
        again = said(message, where=f"session {self._state.id}")
        changes = enriched(known, again)
        if changes:
            changes = enriched(self._engine.as_enriched(before, known), again)
        if changes is None:
            raise _mismatch(self._state.id, before.position)
        if changes:
            self.enriching.append(len(self.events))
            self._add(e.MessageEnriched(before.position, changes), stream=before.stream)
            for each in self._engine.copies_of(self._state, before.position):
                self.enriching.append(len(self.events))
                self._add(e.MessageEnriched(each, changes))

    def _twice(self, index: int, message: Message) -> None:
        """The message is in the save already."""
        first = self.events[index]
        known: Any = first.payload
        changes = enriched(known, said(message, where=f"session {self._state.id}"))
        if changes is None:
            raise _mismatch(self._state.id, self._engine.head().position + index + 1)
        if changes:
            self.events[index] = msgspec.structs.replace(first, payload=changed(known, changes))
        self.places.append(~index)


def _asked(given: e.MessageAppended, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked to be added, as it is kept."""
    return {name: getattr(given, name) for name in (*ENRICHED, "attachments") if name in fields}


def _expect(state: Session, version: int | None) -> None:
    if version is not None and state.version != version:
        raise VersionConflict(
            f"session {state.id} stands at version {state.version}, not {version}: another writer was first",
            hint="nothing was written; read it again",
        )


def _mismatch(session_id: str, position: int, why: str = "") -> IdempotencyMismatch:
    if why:
        return IdempotencyMismatch(f"session {session_id}: #{position}: {why}", hint="edit it instead")
    return IdempotencyMismatch(
        f"session {session_id}: this idempotency key was used for another message (#{position})",
        hint="give each message a key of its own",
    )
