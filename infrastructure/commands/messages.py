"""Messages: appended once, in order, whoever delivers them how often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...domain import events as e
from ...domain.errors import IdempotencyMismatch, NeedsUpgrade
from ...domain.events import Event, session_stream
from ...domain.session import Session
from ...domain.text import scrub
from ..clock import now_us
from ..decisions import Saved, event
from .base import Commands, moved


class MessageCommands(Commands):
    """What is said in a session."""

    def append_message(
        self,
        session_id: str,
        role: str,
        content: str | None,
        *,
        idempotency_key: str | None = None,
        at_us: int | None = None,
        **fields: Any,
    ) -> Saved:
        """Append one message; durable on return. Its id is the position that comes back.

        Args:
            idempotency_key: the same key with the same content is one message, whose position is
                returned again; with other content it is an error (FIELD_CASES B27).
            at_us: when it was said, microseconds since the Unix epoch, UTC; now by default.
            fields: tool_calls (JSON text), tool_name, tool_call_id, platform_message_id,
                finish_reason, reasoning, token_count.

        Raises:
            NoSuchSession, SessionOver, RuleBroken, IdempotencyMismatch, VersionConflict, …
        """
        return self.append_messages(
            session_id,
            [{"role": role, "content": content, **fields}],
            idempotency_keys=None if idempotency_key is None else [idempotency_key],
            at_us=at_us,
        )

    def append_messages(
        self,
        session_id: str,
        messages: Sequence[dict[str, Any]],
        *,
        idempotency_keys: Sequence[str | None] | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Append several messages in one save, in this order: all of them or none.

        Each is a dict of `role`, `content` and the fields of `append_message`. The positions that
        come back are the messages' own, in their order, also of those that were there before.
        """
        keys: list[bytes | None] = [
            None if key is None else self.identity.keyed_hash("idempotency", session_id, scrub(key)[0])
            for key in (idempotency_keys or [None] * len(messages))
        ]

        def decision() -> Saved:
            state = self.session(session_id)
            at = now_us() if at_us is None else at_us
            places, fresh = self._appended(state, messages, keys, at)
            saved = self.save_events(fresh)
            if fresh:
                self.remember(moved(state, len(fresh)))
            return Saved(session_id, tuple(each if each > 0 else saved[~each] for each in places))

        return self.decide(decision)

    def _appended(
        self, state: Session, messages: Sequence[dict[str, Any]], keys: Sequence[bytes | None], at_us: int
    ) -> tuple[list[int], list[Event]]:
        """For each message its position, or ~index into the events that will bring it; and those."""
        stream = session_stream(state.id)
        places: list[int] = []
        events: list[Event] = []
        mine: dict[bytes, int] = {}
        for message, key in zip(messages, keys, strict=True):
            if key is not None:
                # A redelivered message is answered even where its session has ended since.
                before = self.event_log.by_idempotency_key(stream, key)
                if before is not None:
                    places.append(_same(before.payload, before.position, message, state.id))
                    continue
                if key in mine:
                    _same(events[mine[key]].payload, self.head().position + 1, message, state.id)
                    places.append(~mine[key])
                    continue
                mine[key] = len(events)
            payload = state.append_message(**message)
            places.append(~len(events))
            version = state.version + len(events) + 1
            events.append(event(stream, version, payload, at_us, idempotency_key=key))
        return places, events


def _same(payload: object, position: int, message: dict[str, Any], session_id: str) -> int:
    """The position of the message that bears this idempotency key, if it is this one."""
    if isinstance(payload, e.ErasedEvent):
        return position  # erased stays erased
    if isinstance(payload, e.UnknownEvent):
        raise NeedsUpgrade(f"event #{position} is of a newer kind: {payload.topic}", hint="upgrade retold")
    # Written through the same rules as the first time, on a session that takes anything.
    again = Session(id=session_id, version=0, source="").append_message(**message)
    if again != payload:
        raise IdempotencyMismatch(
            f"session {session_id}: this idempotency key was used for another message (#{position})",
            hint="give each message a key of its own",
        )
    return position
